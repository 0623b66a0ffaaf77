"""Long-horizon time-series forecasting with swappable structured attention.

The public names are imported when they are first asked for, so that `import tsattn` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsattn.attention import Attention, build_attention
    from tsattn.backbones import Backbone, build_backbone
    from tsattn.batch import Batch
    from tsattn.data import CO2DataModule, CSVDataModule, ForecastDataModule, FrameDataModule, PublicDataModule
    from tsattn.diagnosis import diagnose
    from tsattn.errors import UserError
    from tsattn.experiments import Experiment, Result, resume, run
    from tsattn.forecaster import Forecaster, load
    from tsattn.leaderboard.compare import compare
    from tsattn.predictors import Predictor, build_predictor
    from tsattn.scaler import Scaler
    from tsattn.task import Output, Task
    from tsattn.training import ForecastingModule

    __version__: str

_HOMES = {
    "tsattn.attention": ("Attention", "build_attention"),
    "tsattn.backbones": ("Backbone", "build_backbone"),
    "tsattn.batch": ("Batch",),
    "tsattn.data": ("CO2DataModule", "CSVDataModule", "ForecastDataModule", "FrameDataModule", "PublicDataModule"),
    "tsattn.experiments": ("Experiment", "Result", "resume", "run"),
    "tsattn.forecaster": ("Forecaster", "load"),
    "tsattn.training": ("ForecastingModule",),
    "tsattn.task": ("Output", "Task"),
    "tsattn.predictors": ("Predictor", "build_predictor"),
    "tsattn.scaler": ("Scaler",),
    "tsattn.errors": ("UserError",),
    "tsattn.leaderboard.compare": ("compare",),
    "tsattn.diagnosis": ("diagnose",),
}

__all__ = ["Attention", "Backbone", "Batch", "CO2DataModule", "CSVDataModule", "Experiment", "ForecastDataModule"]
__all__ += ["Forecaster", "ForecastingModule", "FrameDataModule", "Output", "Predictor", "PublicDataModule", "Result"]
__all__ += ["Scaler", "Task", "UserError", "build_attention", "build_backbone", "build_predictor", "compare"]
__all__ += ["diagnose", "load", "resume", "run"]


def __getattr__(name: str) -> Any:
    if name == "__version__":  # the one in pyproject.toml
        return importlib.import_module("importlib.metadata").version("tsattn")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'tsattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
