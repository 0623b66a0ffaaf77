"""LightningDataModules of public data and of your data: a source of series, a rule that splits them, windows."""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from lightning.pytorch import LightningDataModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from typing_extensions import override

from tsattn.batch import Batch
from tsattn.data import windows as batches
from tsattn.data.data_options import SPLIT, DataOptions, WindowOptions
from tsattn.data.mapped import is_panel_folder
from tsattn.data.matching import match_task, new_task, with_future, with_training_categories
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.scaling import check_counts, fit_scaler, scaled_series
from tsattn.data.splits import PART_WORDS, ByCount, LastTenth, Recut, Split, SplitRule, all_origins
from tsattn.data.windows import HOST, FutureWindows, Series, WindowDataset, whole_batch
from tsattn.errors import UserError, quiet
from tsattn.scaler import Scaler
from tsattn.task import Output, Task

logger = logging.getLogger("tsattn")


class Source(ABC):
    """A source of series; each call of `load` returns equal series."""

    @abstractmethod
    def load(self) -> Panel:
        """Return all series, in original units."""

    def prepare(self) -> None:  # noqa: B027  # most have nothing to fetch
        """Download missing files; called on one process only."""

    def for_task(self, task: Task) -> Source:
        """Return the source to read for a trained model; by default unchanged."""
        return self

    def at(self, path: Path) -> Source:
        """Return a source that reads a CSV or Parquet file to forecast from; UserError if the data set has none."""
        return FrameSource(path)


@dataclass(eq=False)
class FrameSource(Source):
    """A frame, a file or a converted table.

    Attributes:
        table: a frame, a function that makes one, or the path of a file or of a converted table.
        reader: reader of the table; by default columns and frequency are inferred.
        future: a frame or file of ids, time stamps and future covariates after the end of each series, or None.
        is_fixed: use the reader unchanged for every trained model, and for no other table.
    """

    table: object
    reader: TableReader = TableReader()  # noqa: RUF009  # it is frozen
    future: object = None
    is_fixed: bool = False

    @override
    def load(self) -> Panel:
        table = self.table() if callable(self.table) else self.table
        return self.reader.read(table, future=self.future)

    @override
    def for_task(self, task: Task) -> FrameSource:
        return self if self.is_fixed else FrameSource(self.table, self.reader.for_task(task), self.future)

    @override
    def at(self, path: Path) -> FrameSource:
        return FrameSource(path) if self.is_fixed else FrameSource(path, self.reader.unweighted(), self.future)


class ForecastDataModule(LightningDataModule):
    """Base class of data sets: windows for training, validation, testing and forecasting.

    Nothing is read before `setup`.

    Args:
        name: name of the data set in run folders and tables.
        source: the source of the series.
        rule: splits the rows of each series into training, validation and test rows.
        **sizes: lengths, batch sizes and scales, see `WindowOptions`.

    Attributes:
        task: sizes, columns and frequency; `setup` sets it, unless `prepare` is given a trained model's.
        scaler: scales of series and covariates.
        panel: the series in original units; read by `setup`, unless they are set before.
    """

    name: str
    parts: tuple[str, ...] = ("train", "val", "test")  # parts that need windows
    options: ClassVar[type[WindowOptions]] = WindowOptions  # the dataclass of further arguments
    in_key: tuple[str, ...] = ()  # arguments that change only batches, but are part of an experiment's key
    training_batches: int | None = None  # number of training batches, over several epochs; None: one epoch
    scored_windows: int | None = None  # windows of a validation if `val_windows` is ``auto``; None: all

    def __init__(self, name: str, source: Source, rule: SplitRule, **sizes: Any) -> None:
        super().__init__()
        given = WindowOptions(**sizes)
        self.name, self.source, self.rule = name, source, rule
        self.context_length, self.prediction_length = given.context_length, given.prediction_length
        self.batch_size, self.eval_batch_size = given.batch_size, given.eval_batch_size
        self.num_workers, self.resident_gb = given.num_workers, given.resident_gb
        self.scaling, self.val_windows = given.scaling, given.val_windows
        self.transform: Any = given.transform
        self.season_length = given.season_length
        self.task: Task | None = None
        self.scaler: Scaler | None = None
        self.panel: Panel | None = None
        self._read: Panel | None = None  # before its categories became the training's
        self._input: Path | None = None  # a file to forecast from
        self._series: Series | None = None
        self._scaled: tuple[Panel, Task, Scaler] | None = None  # the source of `_series`
        self._splits: list[Split] | None = None
        self._held: tuple[Series, Series] | None = None  # series on the host, and their copy on a device

    def prepare_data(self) -> None:
        """Download missing files (called on one process only)."""
        if self._input is None:
            self.source.prepare()

    def forecast_from(self, path: str | Path | None, future: Any = None) -> None:
        """Forecast the series in a file instead of the data set's; `future`: rows of covariates ahead of them."""
        if future is not None:
            if not isinstance(self.source, FrameSource):
                raise UserError(f"{type(self).__name__} has no covariates: leave out `--future` (Python: `future=`)")
            self.source = replace(self.source, future=future)
        if path is not None:
            self._input, self.panel = Path(path), None

    def prepare(self, stage: str, task: Task | None = None, scaler: Scaler | None = None) -> None:
        """Do what a Trainer does before `stage`; a trained model gives its task and scaler."""
        if task is not None:
            self.task, self.scaler = task, scaler
        if self.panel is None:
            self.prepare_data()
        self.setup(stage)

    def setup(self, stage: str) -> None:
        """Load, split and scale (called by the Trainer for `stage` fit, validate, test or predict), once."""
        asked = self.panel, self.task, self.scaler
        if self._scaled is not None and all(one is other for one, other in zip(self._scaled, asked, strict=True)):
            return
        if self.panel is None:
            source = self.source if self._input is None else self.source.at(self._input)
            self.panel = (source if self.task is None else source.for_task(self.task)).load()
        panel = self.panel
        splits = None if self._input is not None else [self.rule.split(panel.time_of(s)) for s in range(len(panel))]
        if self.task is None or self.scaler is None:
            if splits is None:
                raise UserError("to forecast from a file, give `prepare` the task and the scaler of a trained model")
            self._check_windows(splits)
            panel = with_training_categories(panel, splits)
            self.task = new_task(panel, self.name, self.context_length, self.prediction_length, self.season_length)
            self.scaler = fit_scaler(panel, splits, self.scaling, self.transform)
        else:
            for size in ("context_length", "prediction_length"):
                mine, trained = getattr(self, size), getattr(self.task, size)
                if mine != trained:
                    raise UserError(f"the model was trained with {size} {trained}, not {mine}")
            panel = match_task(panel, self.task, str(self._input or self.name), tells_zone=True)
        self.panel, self._read, self._splits, self._series = panel, self.panel, splits, None
        self._scaled = panel, self.task, self.scaler
        if stage != "predict":  # for a forecast, series are scaled when needed
            self._series = self.series

    @property
    def contents(self) -> tuple[Panel, Task, Scaler]:
        """Panel, task and scaler, once `setup` has run."""
        if self._scaled is None:
            raise UserError("call setup('fit') before asking for the panel, task, scaler, series or windows")
        return self._scaled

    @property
    def series(self) -> Series:
        """Scaled series to cut windows from; series that a trained model does not know are scaled by their rows."""
        if self._series is None:
            panel, _, scaler = self.contents
            history = None if self._splits is None else np.array([one.train_end for one in self._splits])
            self._series = scaled_series(panel, scaler, history)
        return self._series

    @property
    def splits(self) -> list[Split]:
        """The row at which each part of each series ends."""
        if self._splits is None:
            raise UserError("call setup('fit') before asking for the split")
        return self._splits

    def windows(
        self,
        part: str,
        context_length: int | None = None,
        seasons: Sequence[int] | None = None,
        device: torch.device = HOST,
        *,
        padded: bool = False,
    ) -> WindowDataset:
        """Return the windows of ``train``, ``val`` or ``test`` on a device; the default context is the model's.

        `padded` allows longer contexts for the same windows of validation and test. See `Series.windows`.
        """
        series, sizes = self.series, (context_length or self.context_length, self.prediction_length)
        origins = all_origins(self.splits, part, min(sizes[0], self.context_length) if padded else sizes[0], sizes[1])
        if device.type in batches.RESIDENT_ON and not self.num_workers and series.nbytes <= self.resident_gb * 1e9:
            if self._held is None or self._held[0] is not series or self._held[1].values.device != device:
                self._held = series, series.to(device)
            series = self._held[1]
        return WindowDataset(series, origins, *sizes, seasons)

    def _copied(self, **changes: Any) -> Self:
        other = copy.copy(self)
        vars(other).update(dict.fromkeys(("trainer", "training_batches", "scored_windows", "_held")) | changes)
        return other

    def with_context(self, context_length: int) -> Self:
        """Return a copy for a model with this context, without reading again; training windows have full contexts."""
        panel, task, scaler = self.contents
        task = replace(task, context_length=context_length)
        return self._copied(context_length=context_length, task=task, _scaled=(panel, task, scaler))

    def planned(self, trainer: Trainer, batches: int | None = None, scored: int | None = None) -> Self:
        """Return a copy for a training with this number of batches (None: an epoch) and scored windows (None: all)."""
        return self._copied(trainer=trainer, training_batches=batches, scored_windows=scored)

    def with_splits(self, change: Callable[[Split], Split], parts: tuple[str, ...] | None = None) -> Self:
        """Return a copy with changed splits, perhaps with other parts; scales do not change."""
        return self._copied(_splits=[change(split) for split in self.splits], parts=parts or self.parts)

    def recut(self, rule: SplitRule, parts: tuple[str, ...]) -> Self:
        """Return a copy that splits by another rule and needs windows in `parts`; `setup` computes scales again."""
        return self._copied(rule=rule, parts=parts, panel=self._read, task=None, scaler=None, _scaled=None)

    def with_all_rows(self, *, rescale: bool = True) -> Self:
        """Return a copy, set up, that trains on all rows; `rescale` computes scales from all rows."""
        whole = self.recut(Recut(self.rule, Split.all_for_training), ("train",))
        with quiet():  # the first setup has logged these messages
            whole.prepare("fit", *(() if rescale else self.contents[1:]))
        return whole

    def check_distribution(self, output: Output) -> None:
        """For a distribution of counts, refuse transformed data and data that are not counts; call it after `setup`."""
        if output.distribution != "negative_binomial" or self.panel is None:
            return
        if self.transform is not None:
            mend = f"leave out transform {self.transform['kind']}, or use distribution student_t"
            raise UserError(f"distribution {output.distribution} needs untransformed counts: {mend}")
        check_counts(self.panel, f"distribution {output.distribution}")

    def train_dataloader(self) -> DataLoader[Batch]:
        """Load training windows, shuffled by torch's seed; under a Trainer on CUDA they may be on the device."""
        windows, device = self._at_the_trainer("train")
        memory, options = self._loading(windows, device)
        of = self.batch_size, torch.initial_seed(), *self._process, self.training_batches, memory
        return batches.TrainingLoader(windows, batches.ShuffledBatches(len(windows), *of), **options)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Load validation windows in order; in a training their number is `val_windows`, and processes share them."""
        rank, world_size = self._process
        windows, device = self._at_the_trainer("val")
        is_fitting = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
        numbers = batches.spread(len(windows), self.num_scored(len(windows)) if is_fitting else len(windows))
        return self._in_order(windows, numbers[rank::world_size], device)

    def test_dataloader(self) -> DataLoader[Batch]:
        """Load test windows in the order of series and time."""
        windows, device = self._at_the_trainer("test")
        return self._in_order(windows, range(len(windows)), device)

    def eval_dataloader(
        self, part: str, context_length: int | None = None, every: int = 1, **cut: Any
    ) -> DataLoader[Batch]:
        """Load each `every`-th window of a part in the order of series and time, on the host. See `windows`."""
        windows = self.windows(part, context_length, **cut)
        return self._in_order(windows, range(0, len(windows), every))

    def predict_dataloader(self) -> DataLoader[Batch]:
        """Load a window for each series, with its horizon after the last row."""
        panel, task, scaler = self.contents
        windows = FutureWindows(panel, self.series, task, scaler)
        # no batch sampler: Lightning would replace it for predictions
        return DataLoader(windows, batch_size=self.eval_batch_size, **self._loading(windows, HOST)[1])

    def num_scored(self, available: int) -> int:
        """Count the windows that each validation of a training scores."""
        if self.val_windows == "all":
            return available
        most = self.scored_windows if self.val_windows == "auto" else int(self.val_windows)
        return available if most is None else min(most, available)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Move a batch to the device without waiting, unless it is already there (called by the Trainer)."""
        return batch if batch.past.device == device else batch.to(device, non_blocking=True)

    def teardown(self, stage: str) -> None:
        """Free the memory of the device (called by the Trainer at its end)."""
        self._held = None

    def on_exception(self, exception: BaseException) -> None:
        """Free the memory of the device (called by the Trainer if it fails)."""
        self._held = None

    def _at_the_trainer(self, part: str) -> tuple[WindowDataset, torch.device]:
        trainer = self.trainer
        is_running = trainer is not None and trainer.state.status == TrainerStatus.RUNNING
        device = trainer.strategy.root_device if is_running and trainer is not None else HOST
        return self.windows(part, device=device), device

    def _loading(self, windows: WindowDataset, device: torch.device) -> tuple[torch.device | None, dict[str, Any]]:
        """Return the device that holds the series of windows (None: the host) and the options of a loader."""
        is_held = self._held is not None and windows.series is self._held[1]
        return windows.series.values.device if is_held else None, {
            "num_workers": self.num_workers,
            "collate_fn": whole_batch,
            # background copies need page-locked memory
            "pin_memory": device.type == "cuda" and not is_held,
            "persistent_workers": self.num_workers > 0,
            # otherwise each loader would draw from torch's global generator and change dropout
            "generator": torch.Generator(),
        }

    def _in_order(
        self, windows: WindowDataset, numbers: range | NDArray[Any], device: torch.device = HOST
    ) -> DataLoader[Batch]:
        memory, options = self._loading(windows, device)
        ordered: Any = batches.OrderedBatches(numbers, self.eval_batch_size, memory)
        return DataLoader(windows, batch_sampler=ordered, **options)

    @property
    def _process(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _check_windows(self, splits: list[Split]) -> None:
        L, T = self.context_length, self.prediction_length
        if "val" not in self.parts and isinstance(self.rule, ByCount):
            what = "all rows before the test rows are trained on" if self.rule.test else "all rows are trained on"
            logger.warning("val_rows is 0: %s, and the last weights are kept; set val_rows to select the best", what)
        for part in self.parts:
            lacking = sum(not rows for rows in all_origins(splits, part, L, T))
            if lacking:
                logger.warning("%d of %d series are too short for a %s window", lacking, len(splits), PART_WORDS[part])
        short = sum(split.train_end < L + T for split in splits)
        if len(splits) > 1 and short:
            rows = f"context_length {L} + prediction_length {T}"
            said = "%d of %d series have fewer training rows than %s; their contexts are padded"
            logger.warning(said, short, len(splits), rows)


class FrameDataModule(ForecastDataModule):
    """Data frame: long (a row for each series and time stamp) or wide (a column for each channel).

    Missing values are masked, gaps in time are filled with missing values, and no value is dropped.

    Args:
        frame: a pandas, polars or pyarrow frame, or another frame with ``__arrow_c_stream__``.
        name: name of the data set in run folders and tables.
        **options: columns, text, split, lengths and batch sizes, see `DataOptions`.
    """

    options = DataOptions
    source: FrameSource

    def __init__(self, frame: Any, name: str = "frame", **options: Any) -> None:
        given = DataOptions(**options)
        rule, sizes = given.rule, {one.name: getattr(given, one.name) for one in fields(WindowOptions)}
        super().__init__(name, FrameSource(frame, given.reader), rule, **sizes)
        if isinstance(rule, ByCount):
            self.parts = ("train", *(["val"] if rule.val else []), *(["test"] if rule.test else []))


class CSVDataModule(FrameDataModule):
    """CSV or Parquet file: long (a row for each series and time stamp) or wide (a column for each channel).

    The data set is named after the file.

    Args:
        path: a ``.csv``, ``.csv.gz``, ``.parquet`` or ``.pq`` file, or a converted table (``datasets convert``).
        **options: columns, split, lengths and batch sizes, see `DataOptions`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        table = Path(path).expanduser()
        super().__init__(table, name=Path(table.name.removesuffix(".gz")).stem, **options)
        self.path = table


class MappedDataModule(CSVDataModule):
    """Series of any size: a CSV, Parquet or Arrow file, or a folder of files, long or wide, as `FrameDataModule`.

    The table is converted once to a folder of arrays, as by ``tsattn datasets convert``, and again when the table or
    its options change. Rows stay in the files of the folder, so memory holds one batch.

    Args:
        path: a table or a converted table.
        folder: folder of the arrays; by default ``NAME.panel``, next to the table.
        verify: compare the checksums of arrays, which reads all arrays; sizes are always compared.
        **options: columns, split, lengths and batch sizes, see `DataOptions`.
    """

    def __init__(self, path: str, folder: str | None = None, verify: bool = False, **options: Any) -> None:
        super().__init__(path, **options)
        self.folder = self.path.with_name(f"{self.path.name}.panel") if folder is None else Path(folder).expanduser()
        self.source = _Converted(self.path, self.source.reader, folder=self.folder, verify=verify)


@dataclass
class _Converted(FrameSource):
    table: Path
    folder: Path | None = None
    verify: bool = False

    @override
    def load(self) -> Panel:
        folder = None if is_panel_folder(self.table) else self.folder
        panel = self.reader.converted(self.table, folder, verify=self.verify)
        return panel if self.future is None else with_future(panel, self.future, self.reader)

    @override
    def for_task(self, task: Task) -> _Converted:
        return self


class PanelDataModule(FrameDataModule):
    """A panel from Python, split by `LastTenth` unless `DataOptions` define another split."""

    def __init__(self, **options: Any) -> None:
        super().__init__(None, name="panel", **options)
        self.source = FrameSource(_given, self.source.reader)
        if all(options.get(name) is None for name in SPLIT):
            self.rule = LastTenth(self.context_length, self.prediction_length)

    def give(self, panel: Panel) -> None:
        """Set the panel; call it before `setup`."""
        self.panel = panel
        if isinstance(self.rule, LastTenth):
            parts = [self.rule.split(range(rows)) for rows in panel.lengths.tolist()]
            self.parts = ("train", "val") if any(part.train_end < part.val_end for part in parts) else ("train",)


def _given() -> Any:
    mend = "`predict --run DIR --input FILE` forecasts from a file, and tsattn.load(DIR) takes frames"
    raise UserError(f"the series of this run were given in Python and are not in its folder: {mend}")
