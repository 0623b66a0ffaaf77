"""Small trainings that the tests of this room share."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback

from tsattn.data import CSVDataModule
from tsattn.training.callbacks import BestCheckpoint


def windows_of(csv: Path, batch_size: int = 64, **more: Any) -> CSVDataModule:
    return CSVDataModule(str(csv), context_length=48, prediction_length=12, batch_size=batch_size, **more)


def trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    """A Trainer on one CPU that writes and says nothing, but for the callbacks."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    writes = {"enable_checkpointing": any(isinstance(one, BestCheckpoint) for one in callbacks)}
    place = {"default_root_dir": folder, "accelerator": "cpu", "devices": 1, "max_epochs": -1}
    return Trainer(callbacks=[*callbacks], **{**quiet, **writes, **place, **options})
