"""Training of networks with Lightning, which is imported once something trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tsattn.descriptions import imported

if TYPE_CHECKING:
    from tsattn.training.execution import Execution
    from tsattn.training.module import ForecastingModule
    from tsattn.training.train import Training, TrainingFiles
    from tsattn.training.trainer_options import TrainerOptions

__all__ = ["Execution", "ForecastingModule", "TrainerOptions", "Training", "TrainingFiles"]

_HOMES = {"Execution": "execution", "ForecastingModule": "module", "TrainerOptions": "trainer_options"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tsattn.training' has no attribute {name!r}")
    return imported(f"tsattn.training.{_HOMES.get(name, 'train')}.{name}")
