"""Training of networks with Lightning."""

from tsattn.training.execution import Execution
from tsattn.training.module import ForecastingModule
from tsattn.training.train import Training, TrainingFiles, check_training, train
from tsattn.training.trainer_options import TrainerOptions

__all__ = ["Execution", "ForecastingModule", "TrainerOptions", "Training", "TrainingFiles", "check_training", "train"]
