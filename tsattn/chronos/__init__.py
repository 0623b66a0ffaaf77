"""Pretrained Chronos models (T5, Bolt, 2), with their own attention or another; needs the extra `chronos`.

Forecasts by a shipped model as it is need no extra. In the order of their imports: `bolt`, the network of Chronos-Bolt
from layers of this package; `open_models` and `families`, forecasts and training of the three families; `opening`,
weights by their name; `swapped_attention`, what replaces their attention; `conversions` of the weights; `adapted`, the
adapted model, its calibration and its folder; `chronos_predictor`, which forecasts with it and trains it.
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
