"""Training of networks with Lightning, which is imported once something trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsattn.descriptions import late

if TYPE_CHECKING:
    from tsattn.training.execution import Execution
    from tsattn.training.module import ForecastingModule
    from tsattn.training.train import Training, TrainingFiles
    from tsattn.training.trainer_options import TrainerOptions

__all__ = ["Execution", "ForecastingModule", "TrainerOptions", "Training", "TrainingFiles"]

_HOMES = {"Execution": "execution", "ForecastingModule": "module", "TrainerOptions": "trainer_options"}
__getattr__ = late(__name__, (f"tsattn.training.{_HOMES.get(name, 'train')}.{name}" for name in __all__))
