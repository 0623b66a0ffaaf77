"""The LightningDataModule that every data set is: a source of series, a rule that splits them, and the windows."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus
from torch.utils.data import DataLoader

from tsattn.batch import Batch
from tsattn.data.batch_order import spread
from tsattn.data.category_columns import aligned_categories, with_training_categories
from tsattn.data.frequency import season_length
from tsattn.data.future_windows import FutureWindows
from tsattn.data.model_zone import warn_of_unknown_zone
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
from tsattn.data.scaling import fit_scaler, scaled_series
from tsattn.data.size_checks import check_choices, check_sizes
from tsattn.data.sources import Source
from tsattn.data.split_rule import AllRows, ByCount, SplitRule
from tsattn.data.splits import PART_WORDS, Split, all_origins
from tsattn.data.time_numbers import kept_zone
from tsattn.data.window_loaders import HOST, WindowLoaders
from tsattn.data.windows import Series, WindowDataset
from tsattn.errors import UserError
from tsattn.scaler import Scaler, check_transform
from tsattn.task import Task

__all__ = ["ForecastDataModule"]

logger = logging.getLogger("tsattn")

LINEAR_WINDOWS = 100_000  # a linear map of a few hundred steps gains nothing from more


class ForecastDataModule(LightningDataModule):
    """Base class of data: windows for training, validation, testing and forecasting beyond the end.

    Args:
        name: the name of the data set, as run folders and tables show it.
        source: where the series come from.
        rule: where training, validation and test rows of each series end.
        context_length: past steps that a model sees, L.
        prediction_length: steps that it forecasts, T.
        batch_size: windows in a training batch.
        eval_batch_size: windows in a validation or test batch.
        num_workers: loader processes; 0 is fastest, as a batch is one gather from memory.
        resident_gb: on a CUDA device scaled series of at most so many GB lie in its memory, and windows are cut there;
            larger ones are cut on the host and sent in the background. With `num_workers` they always are.
        scaling: ``global``, all series by one mean and standard deviation a channel; ``series``, each by its own, so
            that small ones count as much as large ones.
        val_windows: validation windows that are scored at each validation of a training: ``all``, a number of them, or
            ``auto``, as many as take less than a quarter of the time of training: a third of the windows trained on
            since the last one. Fewer than all are spread over all series and their time, the same ones each time.
            Outside of a training, and for testing, all windows are scored.
        transform: of the targets before they are scaled, so that no forecast is negative: ``log``, ``log1p`` or
            ``box_cox``, whose lambda the training rows decide, or ``{kind: box_cox, lambda: 0.5}``; None for none.
            Forecasts come back exactly, quantile by quantile, and scores stay those of the values themselves.

    Attributes:
        task: sizes, columns and frequency. Set by `setup`.
        scaler: how series and covariates are scaled. Set by `setup`; where task and scaler are set before (those of a
            trained model) they are obeyed, nothing is fitted again.
        panel: the series in original units. Set by `setup`.
        parts: the parts that must have windows.
        in_key: of a class, names of further arguments that change a result and neither series nor split, as what is
            done to each batch: they are part of an experiment's key.
        training_batches: how many batches the training loader gives, epoch after epoch; None for those of one epoch.
        scored_windows: what ``auto`` comes to in a training, set before it; None for all windows.
    """

    name: str
    parts: tuple[str, ...] = ("train", "val", "test")
    in_key: tuple[str, ...] = ()

    def __init__(
        self,
        name: str,
        source: Source,
        rule: SplitRule,
        context_length: int = 336,
        prediction_length: int = 96,
        batch_size: int = 32,
        eval_batch_size: int = 128,
        num_workers: int = 0,
        resident_gb: float = 8.0,
        scaling: str = "global",
        val_windows: int | Literal["auto", "all"] = "auto",
        transform: str | dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.source = source
        self.rule = rule
        check_sizes(
            num_workers=num_workers,
            resident_gb=resident_gb,
            context_length=context_length,
            prediction_length=prediction_length,
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
        )
        check_choices(scaling, val_windows)
        self.context_length = context_length
        self.prediction_length = prediction_length
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.resident_gb = resident_gb
        self.scaling = scaling
        self.val_windows = val_windows
        self.transform = check_transform(transform)
        self.training_batches: int | None = None
        self.scored_windows: int | None = None
        self.task: Task | None = None
        self.scaler: Scaler | None = None
        self.panel: Panel | None = None
        self._input: Path | None = None  # a file to forecast from
        self._series: Series | None = None
        self._scaled: tuple[Panel, Task, Scaler] | None = None  # what `_series` was made of
        self._splits: list[Split] | None = None
        self._loaders = WindowLoaders(num_workers, resident_gb)

    def prepare_data(self) -> None:
        """Fetch what the series are read from, if it is not here (called on one process only)."""
        if self._input is None:
            self.source.prepare()

    def forecast_from(self, path: str | Path) -> None:
        """Predict beyond the end of the series in this file instead of the data set's own."""
        self._input = Path(path)
        self.panel = None

    def setup(self, stage: str) -> None:
        """Load, split and scale (called by the Trainer for `stage` fit, validate, test or predict), once."""
        if self._is_set_up:
            return
        if self.panel is None:
            source = self.source if self._input is None else self.source.at(self._input)
            self.panel = (source if self.task is None else source.for_task(self.task)).load()
        panel = self.panel
        splits = None if self._input is not None else [self.rule.split(panel.time_of(s)) for s in range(len(panel))]
        if self.task is None or self.scaler is None:
            assert splits is not None, "a file is forecast from with the task of a trained model"
            self._check_windows(splits)
            panel = with_training_categories(panel, splits)
            self.task, self.scaler = self._new_task(panel), fit_scaler(panel, splits, self.scaling, self.transform)
        else:
            panel = self._obey(self.task, panel)
        self.panel = panel
        self._series = None
        self._scaled = panel, self.task, self.scaler
        self._splits = splits
        if stage != "predict":  # what lies beyond the end is scaled with the series that are forecast
            self._series = self._scale(self._scaled)

    def _scale(self, made_of: tuple[Panel, Task, Scaler]) -> Series:
        """Scale the series; those that a trained model does not know by their own training rows."""
        panel, _, scaler = made_of
        splits = self._splits
        return scaled_series(panel, scaler, None if splits is None else np.array([one.train_end for one in splits]))

    @property
    def series(self) -> Series:
        """The scaled series that windows are cut from."""
        if self._series is None:
            if self._scaled is None:
                raise UserError("call setup('fit') before asking for the series or windows")
            self._series = self._scale(self._scaled)
        return self._series

    @property
    def splits(self) -> list[Split]:
        """Where the parts of each series end."""
        if self._splits is None:
            raise UserError("call setup('fit') before asking for the split")
        return self._splits

    def windows(
        self, part: str, context_length: int | None = None, seasons: Sequence[int] | None = None
    ) -> WindowDataset:
        """All windows of ``train``, ``val`` or ``test``, with the given context or the model's own.

        A longer context leaves the windows of validation and test the same; training windows need all of it. For
        `seasons` see `WindowDataset`.
        """
        return self._windows(self.series, part, context_length or self.context_length, seasons)

    def with_context(self, context_length: int) -> Self:
        """The same data, set up, for a model that sees so many past steps: series, splits and scaler are shared.

        Validation and test windows stay those of the same rows; training windows need the whole context.
        """
        if self._scaled is None:
            raise UserError("call setup('fit') before asking for another context")
        panel, task, scaler = self._scaled
        other = copy.copy(self)
        other.context_length = context_length
        other.task = replace(task, context_length=context_length)
        other._scaled = panel, other.task, scaler
        # what belongs to a training
        other.trainer, other.training_batches, other.scored_windows = None, None, None
        other._loaders = WindowLoaders(self.num_workers, self.resident_gb)
        return other

    def with_validation(self, first: float, last: float) -> Self:
        """The same data, set up, with a part of the rows for validation; all else is shared, as in `with_context`.

        Args:
            first: the share of these rows, of each series, after which the part begins.
            last: the share with which it ends.
        """
        other = self.with_context(self.context_length)
        other._splits = [split.with_validation(first, last) for split in self.splits]
        return other

    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled training windows, see `ShuffledBatches`; the order is that of torch's seed.

        While a Trainer runs on a CUDA device they may lie there, see `resident_gb`, as those of validation and test.
        """
        series, device = self._at_the_trainer()
        windows = self._windows(series, "train", self.context_length)
        return self._loaders.shuffled(windows, self.batch_size, device, self._process, self.training_batches)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Validation windows in the order of series and time; of several processes each has its share of them.

        In a training these are as many as `val_windows` says.
        """
        rank, world_size = self._process
        series, device = self._at_the_trainer()
        windows = self._windows(series, "val", self.context_length)
        is_fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        numbers = spread(len(windows), self.num_scored(len(windows)) if is_fitting else len(windows))
        return self._loaders.in_order(windows, numbers[rank::world_size], self.eval_batch_size, device)

    def test_dataloader(self) -> DataLoader[Batch]:
        """Test windows in the order of series and time."""
        series, device = self._at_the_trainer()
        windows = self._windows(series, "test", self.context_length)
        return self._loaders.in_order(windows, range(len(windows)), self.eval_batch_size, device)

    def num_scored(self, available: int) -> int:
        """How many of the validation windows each validation of a training scores."""
        if self.val_windows == "all":
            return available
        most = self.scored_windows if self.val_windows == "auto" else int(self.val_windows)
        return available if most is None else min(most, available)

    def teardown(self, stage: str) -> None:
        """Free the memory of the device (called by the Trainer at its end)."""
        self._loaders.free()

    def on_exception(self, exception: BaseException) -> None:
        """The same (called by the Trainer where it ends otherwise)."""
        self._loaders.free()

    def eval_dataloader(
        self, part: str, context_length: int | None = None, every: int = 1, seasons: Sequence[int] | None = None
    ) -> DataLoader[Batch]:
        """Windows of a part in the order of series and time, with the given context or the model's own; on the host.

        Args:
            part: ``train``, ``val`` or ``test``.
            context_length: L; the model's own by default.
            every: 1 for all windows, k for each k-th of them.
            seasons: see `WindowDataset`.
        """
        windows = self.windows(part, context_length, seasons)
        return self._loaders.in_order(windows, range(0, len(windows), every), self.eval_batch_size)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Send what is not there yet, without waiting for it (called by the Trainer)."""
        return batch if batch.past.device == device else batch.to(device, non_blocking=True)

    def thinning(self, part: str, context_length: int | None = None) -> int:
        """What `every` leaves enough windows for a linear map, at most `LINEAR_WINDOWS`: 1 for data of common size."""
        return -(-len(self.windows(part, context_length)) // LINEAR_WINDOWS)

    def predict_dataloader(self) -> DataLoader[Batch]:
        """The windows whose horizons lie beyond the end of the data, one a series."""
        series = self.series  # refuses to be asked for before setup
        assert self.panel is not None
        assert self.task is not None
        assert self.scaler is not None
        windows = FutureWindows(self.panel, series, self.task, self.scaler)
        return self._loaders.beyond_the_end(windows, self.eval_batch_size)

    @property
    def _is_set_up(self) -> bool:
        """Whether the series are those of the panel, task and scaler that are asked for."""
        assert (self.task is None) == (self.scaler is None), "task and scaler of a trained model are set together"
        asked = self.panel, self.task, self.scaler
        return self._scaled is not None and all(
            done is wanted for done, wanted in zip(self._scaled, asked, strict=True)
        )

    def recut(self, rule: SplitRule, parts: tuple[str, ...]) -> Self:
        """The same data split by another rule, not set up: they are scaled by their own training rows.

        Args:
            rule: where the parts of each series end.
            parts: those that must have windows.
        """
        other = copy.copy(self)
        other._loaders = WindowLoaders(self.num_workers, self.resident_gb)
        other.rule = rule
        other.parts = parts
        other.task = other.scaler = None
        return other

    def with_all_rows(self, *, rescale: bool = True) -> Self:
        """The same data, set up, all rows for training, on the scale that they have or (`rescale`) on their own."""
        whole = self.recut(AllRows(self.rule), ("train",))
        whole.task, whole.scaler = (None, None) if rescale else (self.task, self.scaler)
        with quiet():  # what is to be said of these rows was said when these data were set up
            whole.setup("fit")
        return whole

    def _new_task(self, panel: Panel) -> Task:
        """The task for these series."""
        return Task(
            data=self.name,
            context_length=self.context_length,
            prediction_length=self.prediction_length,
            channels=panel.channels,
            frequency=panel.frequency,
            season_length=season_length(panel.frequency),
            past_covariates=panel.past_names,
            future_covariates=panel.future_names,
            static=panel.static_names,
            categories=panel.static_categories,
            covariate_categories=aligned_categories(
                (*panel.past_names, *panel.future_names), panel.covariate_categories
            ),
            time_zone=kept_zone(panel.time),
        )

    def _check_windows(self, splits: list[Split]) -> None:
        """Refuse lengths for which a part has no window, before anything is computed; say which series are short."""
        L, T = self.context_length, self.prediction_length
        if "val" not in self.parts and isinstance(self.rule, ByCount):
            what = "all rows before the test rows are trained on" if self.rule.test else "all rows are trained on"
            logger.warning("val_rows is 0: %s, and the last weights stay; give val_rows to choose the best", what)
        for part in self.parts:
            origins = all_origins(splits, part, L, T)
            lacking = sum(not rows for rows in origins)
            if lacking:
                logger.warning("%d of %d series are too short for a %s window", lacking, len(splits), PART_WORDS[part])
        short = sum(split.train_end < L + T for split in splits)
        if len(splits) > 1 and short:
            logger.warning(
                "%d of %d series have fewer training rows than context_length %d + prediction_length %d; their "
                "contexts are padded",
                short,
                len(splits),
                L,
                T,
            )

    def _obey(self, task: Task, panel: Panel) -> Panel:
        """The panel as a trained model needs it, or the reason why it cannot be that.

        Raises:
            UserError: naming what differs.
        """
        for size in ("context_length", "prediction_length"):
            if getattr(self, size) != getattr(task, size):
                raise UserError(f"the model was trained with {size} {getattr(task, size)}, not {getattr(self, size)}")
        source = str(self._input or self.name)
        warn_of_unknown_zone(panel, task, source)
        return panel.for_task(task, source)

    def _windows(
        self, series: Series, part: str, context_length: int, seasons: Sequence[int] | None = None
    ) -> WindowDataset:
        origins = all_origins(self.splits, part, context_length, self.prediction_length)
        return WindowDataset(series, origins, context_length, self.prediction_length, seasons)

    def _at_the_trainer(self) -> tuple[Series, torch.device]:
        """The series where the Trainer that runs now has its batches cut, and the device it computes on."""
        device = self._running_on
        return self._loaders.placed(self.series, device), device

    @property
    def _running_on(self) -> torch.device:
        """The device of the Trainer while it runs, the host before and after: there the model is, too."""
        is_running = self.trainer is not None and self.trainer.state.status == TrainerStatus.RUNNING
        return self.trainer.strategy.root_device if is_running and self.trainer is not None else HOST

    @property
    def _process(self) -> tuple[int, int]:
        """The number of this process, and how many there are."""
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
