"""Pretrained Chronos forecasters with their self-attention swapped for any attention of this package.

`adapt` takes a pipeline of chronos-forecasting (Chronos-T5, Chronos-Bolt, Chronos-2) or the name or folder of one, and
gives a copy in which the attention of the layers asked for is another kind, with as much of the trained weights as the
kind can hold. Needs the extra `chronos`, but for forecasts by a shipped model as it is.

What lies where:

- a model is found and opened: `named_weights`, `pipelines`, `bolt_pipeline`; what differs between the families:
  `families`, `family_tasks`;
- it is swapped: `adapting`, `building`, `adapted_chronos`, `adapted_models`; what then stands in it:
  `swapped_attention`, `group_and_cross`, `token_layout`, `relative_bias`, `pair_rotation`, `decoder_cache`;
- weights are converted: `copying`, `rotating`, `projecting`, `special_cases`; `activations`, `context_windows` and
  `calibration` learn from series; `structure_report` and `swap_cost` say what it loses and costs;
- it is kept: `saving`;
- it forecasts and is trained, as the predictor `chronos`: `chronos_predictor`, `chronos_options`, `chronos_network`,
  `trained_parts`, `chronos_forecasts` with `pipeline_forecasts` and `native_bolt`, `channel_rows`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsattn import descriptions

if TYPE_CHECKING:
    from tsattn.chronos.adapted_chronos import AdaptedChronos
    from tsattn.chronos.adapting import adapt
    from tsattn.chronos.pipelines import open_pipeline
    from tsattn.chronos.saving import load_adapted
    from tsattn.chronos.structure_report import compare_structures

_HOMES = {
    "AdaptedChronos": "tsattn.chronos.adapted_chronos",
    "adapt": "tsattn.chronos.adapting",
    "compare_structures": "tsattn.chronos.structure_report",
    "load_adapted": "tsattn.chronos.saving",
    "open_pipeline": "tsattn.chronos.pipelines",
}

__all__ = ["AdaptedChronos", "adapt", "compare_structures", "load_adapted", "open_pipeline"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn.chronos' has no attribute {name!r}")
    return descriptions.imported(f"{_HOMES[name]}.{name}")


def __dir__() -> list[str]:
    return __all__
