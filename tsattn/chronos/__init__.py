"""Pretrained Chronos models with another attention.

`adapt` takes a pipeline of chronos-forecasting (Chronos-T5, Chronos-Bolt, Chronos-2) or the name or folder of one, and
gives a copy in which the attention of the layers asked for is another kind, with as much of the trained weights as the
kind can hold. Needs the extra `chronos`, but for forecasts by a shipped model as it is.

The files, each of which uses only those named before it:

- `bolt`: Chronos-Bolt from layers of this package, and the files of its weights;
- `open_models`, `families`: forecasting with open models, and what differs between T5, Bolt and 2;
- `opening`: finding and opening weights by their name;
- `swapped_attention`, `extra_classes`: what replaces their attention;
- `conversions`, `calibration`: what happens to the weights;
- `adapted`: `adapt` and the adapted model, kept in a folder;
- `chronos_network`, `chronos_predictor`: the predictor `chronos`, which forecasts with it and trains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsattn import descriptions

if TYPE_CHECKING:
    from tsattn.chronos.adapted import AdaptedChronos, adapt, load_adapted
    from tsattn.chronos.opening import open_pipeline

_HOMES = {
    "AdaptedChronos": "tsattn.chronos.adapted",
    "adapt": "tsattn.chronos.adapted",
    "load_adapted": "tsattn.chronos.adapted",
    "open_pipeline": "tsattn.chronos.opening",
}

__all__ = ["AdaptedChronos", "adapt", "load_adapted", "open_pipeline"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.chronos' has no attribute {name!r}")
    return descriptions.imported(f"{_HOMES[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
