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
    "Attention": "tsattn.attention",
    "Backbone": "tsattn.backbones",
    "Batch": "tsattn.batch",
    "CO2DataModule": "tsattn.data",
    "CSVDataModule": "tsattn.data",
    "Experiment": "tsattn.experiments",
    "ForecastDataModule": "tsattn.data",
    "Forecaster": "tsattn.forecaster",
    "ForecastingModule": "tsattn.training",
    "FrameDataModule": "tsattn.data",
    "Output": "tsattn.task",
    "Predictor": "tsattn.predictors",
    "PublicDataModule": "tsattn.data",
    "Result": "tsattn.experiments",
    "Scaler": "tsattn.scaler",
    "Task": "tsattn.task",
    "UserError": "tsattn.errors",
    "build_attention": "tsattn.attention",
    "build_backbone": "tsattn.backbones",
    "build_predictor": "tsattn.predictors",
    "compare": "tsattn.leaderboard.compare",
    "diagnose": "tsattn.diagnosis",
    "load": "tsattn.forecaster",
    "resume": "tsattn.experiments",
    "run": "tsattn.experiments",
}

__all__ = [
    "Attention",
    "Backbone",
    "Batch",
    "CO2DataModule",
    "CSVDataModule",
    "Experiment",
    "ForecastDataModule",
    "Forecaster",
    "ForecastingModule",
    "FrameDataModule",
    "Output",
    "Predictor",
    "PublicDataModule",
    "Result",
    "Scaler",
    "Task",
    "UserError",
    "build_attention",
    "build_backbone",
    "build_predictor",
    "compare",
    "diagnose",
    "load",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":  # the one in pyproject.toml
        return importlib.import_module("importlib.metadata").version("tsattn")
    if name not in _HOMES:
        raise AttributeError(f"module 'tsattn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
