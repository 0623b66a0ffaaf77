"""The LightningDataModule that every data set shares: a subclass only loads a frame and splits it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from tsattn.batch import Batch
from tsattn.data.frame import read_csv
from tsattn.data.frequency import future_index, infer_frequency, season_length, seconds
from tsattn.data.scaling import fit_scaler, scaled_series
from tsattn.data.splits import Split
from tsattn.data.windows import Series, WindowDataset
from tsattn.errors import UserError, one_of
from tsattn.task import Task

__all__ = ["ForecastDataModule"]


class ForecastDataModule(LightningDataModule):
    """Windows of one multivariate series for training, validation, testing, and forecasting beyond its end.

    Args:
        name: the name of the data set, as run folders and tables show it.
        context_length: past steps that a model sees, L.
        prediction_length: steps that it forecasts, T.
        batch_size: windows in a training batch.
        eval_batch_size: windows in a validation or test batch.
        num_workers: loader processes; 0 is fastest, as a batch is one gather from memory.

    Attributes:
        date_column: the column of time stamps in a CSV file of this data.
        allow_missing: whether values may be missing.
        task: sizes, channels, frequency and scaler. Set by `setup`; a task set before (from a trained model) is obeyed,
            nothing is fitted again.
    """

    name: str
    date_column: str = "date"
    allow_missing: bool = False

    def __init__(
        self,
        name: str,
        context_length: int = 336,
        prediction_length: int = 96,
        batch_size: int = 32,
        eval_batch_size: int = 128,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        self.name = name
        sizes = {
            "context_length": context_length,
            "prediction_length": prediction_length,
            "batch_size": batch_size,
            "eval_batch_size": eval_batch_size,
        }
        for what, size in sizes.items():
            if size < 1:
                raise UserError(f"{what} must be at least 1, not {size}")
        if num_workers < 0:
            raise UserError(f"num_workers must be at least 0, not {num_workers}")
        self.context_length = context_length
        self.prediction_length = prediction_length
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.task: Task | None = None
        self.frame: pd.DataFrame | None = None
        self._input: Path | None = None
        self._series: Series | None = None
        self._split: Split | None = None

    @abstractmethod
    def load_frame(self) -> pd.DataFrame:
        """The whole data set: float columns over a regular DatetimeIndex."""

    @abstractmethod
    def split(self, num_rows: int) -> Split:
        """Where training, validation and test rows end."""

    def forecast_from(self, path: str | Path) -> None:
        """Predict beyond the end of this CSV file instead of the data set's own end; it must hold the same channels."""
        self._input = Path(path)
        self.frame = None

    def setup(self, stage: str) -> None:
        """Load, split and scale (called by the Trainer for `stage` fit, validate, test or predict)."""
        if self.frame is None:
            self.frame = self._read_input() if self._input is not None else self.load_frame()
        source = str(self._input) if self._input is not None else self.name
        if self.task is None:
            frequency = infer_frequency(pd.DatetimeIndex(self.frame.index), source)
            split = self.split(len(self.frame))
            # the windows of every part must exist before anything is computed
            for part in ("train", "val", "test"):
                split.origins(part, self.context_length, self.prediction_length)
            mean, scale = fit_scaler(self.frame.iloc[: split.train_end])
            self.task = Task(
                data=self.name,
                context_length=self.context_length,
                prediction_length=self.prediction_length,
                channels=tuple(map(str, self.frame.columns)),
                frequency=frequency,
                season_length=season_length(frequency),
                mean=mean,
                scale=scale,
            )
        else:
            for size in ("context_length", "prediction_length"):
                if getattr(self, size) != getattr(self.task, size):
                    raise UserError(
                        f"the model was trained with {size} {getattr(self.task, size)}, not {getattr(self, size)}"
                    )
            infer_frequency(pd.DatetimeIndex(self.frame.index), source, expected=self.task.frequency)
            missing = [name for name in self.task.channels if name not in self.frame.columns]
            if missing:
                raise UserError(
                    f"{source} lacks channel {missing[0]!r}; the model was trained on {one_of(self.task.channels)}"
                )
            self.frame = self.frame[list(self.task.channels)]
        self._series = scaled_series(self.frame, self.task.mean, self.task.scale)
        self._split = None if self._input is not None else self.split(len(self.frame))

    @property
    def split_rows(self) -> Split:
        """Where the parts of the loaded frame end."""
        if self._split is None:
            raise UserError("call setup('fit') before asking for the split")
        return self._split

    def windows(self, part: str, context_length: int | None = None) -> WindowDataset:
        """All windows of ``train``, ``val`` or ``test``, with the given context or the model's own.

        A longer context leaves the windows of validation and test the same; training windows need all of it.
        """
        L = context_length or self.context_length
        origins = self.split_rows.origins(part, L, self.prediction_length)
        assert self._series is not None
        return WindowDataset(self._series, origins, L, self.prediction_length)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled training windows."""
        return self._loader(self.windows("train"), self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Validation windows in the order of time."""
        return self.eval_dataloader("val")

    def test_dataloader(self) -> DataLoader[Batch]:
        """Test windows in the order of time."""
        return self.eval_dataloader("test")

    def eval_dataloader(self, part: str, context_length: int | None = None) -> DataLoader[Batch]:
        """All windows of a part in the order of time, with the given context or the model's own."""
        return self._loader(self.windows(part, context_length), self.eval_batch_size)

    def predict_dataloader(self) -> DataLoader[Batch]:
        """The one window whose horizon lies beyond the end of the data."""
        if self._series is None:
            raise UserError("call setup('predict') before asking for the window to predict")
        rows = len(self._series.values)
        if rows < self.context_length:
            raise UserError(
                f"{self._input or self.name} has {rows} rows, but the model needs the last {self.context_length}"
            )
        assert self.frame is not None
        assert self.task is not None
        window = self._series.windows(torch.tensor([rows]), self.context_length, 0)
        future = future_index(self.frame.index[-1], self.task.frequency, self.prediction_length)
        stamps = torch.from_numpy(seconds(future))[None]
        assert window.time is not None
        whole: Any = [replace(window, time=torch.cat([window.time, stamps], 1))]
        return DataLoader(whole, batch_size=None, collate_fn=_as_is)

    def _read_input(self) -> pd.DataFrame:
        assert self._input is not None
        return read_csv(self._input, date_column=self.date_column, allow_missing=self.allow_missing)

    def _loader(self, windows: WindowDataset, batch_size: int, shuffle: bool = False) -> DataLoader[Batch]:
        return DataLoader(
            windows,
            batch_size=batch_size,
            shuffle=shuffle,
            num_workers=self.num_workers,
            collate_fn=_as_is,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=self.num_workers > 0,
        )


def _as_is(batch: Any) -> Any:
    return batch
