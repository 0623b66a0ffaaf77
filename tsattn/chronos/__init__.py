"""Pretrained Chronos models (T5, Bolt, 2), with their original or swapped attention; needs the extra `chronos`.

The modules, each importing only modules before it: `channel_rows`, `families`, `opening`, `swapped_attention`,
`conversions`, `adapted`, `chronos_predictor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsattn import descriptions

if TYPE_CHECKING:
    from tsattn.chronos.adapted import AdaptedChronos, adapt, load_adapted
    from tsattn.chronos.opening import open_pipeline

__all__ = ["AdaptedChronos", "adapt", "load_adapted", "open_pipeline"]


_ADAPTED = (f"tsattn.chronos.adapted.{name}" for name in ("AdaptedChronos", "adapt", "load_adapted"))
__getattr__ = descriptions.late(__name__, (*_ADAPTED, "tsattn.chronos.opening.open_pipeline"))


def __dir__() -> list[str]:
    return __all__
