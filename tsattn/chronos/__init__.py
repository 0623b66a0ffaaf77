"""Pretrained Chronos models with another attention.

`adapt` takes a pipeline of chronos-forecasting (Chronos-T5, Chronos-Bolt, Chronos-2) or the name or folder of one, and
gives a copy in which the attention of the layers asked for is another kind, with as much of the trained weights as the
kind can hold. Needs the extra `chronos`, but for forecasts by a shipped model as it is.

In the order of their imports: `bolt`, Chronos-Bolt from layers of this package; `open_models` and `families`, forecasts
and what differs between T5, Bolt and 2; `opening`, weights by their name; `swapped_attention` and `extra_classes`, what
replaces their attention; `conversions` and `calibration` of the weights; `adapted`, the adapted model and its folder;
`chronos_network` and `chronos_predictor`, which forecast with it and train it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsattn import descriptions

if TYPE_CHECKING:
    from tsattn.chronos.adapted import AdaptedChronos, adapt, load_adapted
    from tsattn.chronos.opening import open_pipeline

_HOMES = {"AdaptedChronos": "adapted", "adapt": "adapted", "load_adapted": "adapted", "open_pipeline": "opening"}

__all__ = ["AdaptedChronos", "adapt", "load_adapted", "open_pipeline"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.chronos' has no attribute {name!r}")
    return descriptions.imported(f"tsattn.chronos.{_HOMES[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
