"""Pretrained Chronos models with another attention.

`adapt` takes a pipeline of chronos-forecasting (Chronos-T5, Chronos-Bolt, Chronos-2) or the name or folder of one, and
gives a copy in which the attention of the layers asked for is another kind, with as much of the trained weights as the
kind can hold. Needs the extra `chronos`, but for forecasts by a shipped model as it is.

The rooms, each of which uses only those named before it:

- `bolt`: Chronos-Bolt from layers of this package, and the files of its weights;
- `models`: finding and opening one, and what differs between the families;
- `swapped`: what stands in the place of their attention;
- `converting`: what becomes of the weights, and what of the scores is lost;
- the files beside this one: the adapted model, how it is made, calibrated, kept and counted;
- `forecasting`: the predictor `chronos`, which forecasts with it and is trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsattn import descriptions

if TYPE_CHECKING:
    from tsattn.chronos.adapted_chronos import AdaptedChronos
    from tsattn.chronos.adapting import adapt
    from tsattn.chronos.converting.structure_report import compare_structures
    from tsattn.chronos.models.pipelines import open_pipeline
    from tsattn.chronos.saving import load_adapted

_HOMES = {
    "AdaptedChronos": "tsattn.chronos.adapted_chronos",
    "adapt": "tsattn.chronos.adapting",
    "compare_structures": "tsattn.chronos.converting.structure_report",
    "load_adapted": "tsattn.chronos.saving",
    "open_pipeline": "tsattn.chronos.models.pipelines",
}

__all__ = ["AdaptedChronos", "adapt", "compare_structures", "load_adapted", "open_pipeline"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.chronos' has no attribute {name!r}")
    return descriptions.imported(f"{_HOMES[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
