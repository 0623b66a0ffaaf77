"""Everything that you may say about data of your own; nothing here needs Lightning."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: F401  # the command line resolves the types of inherited fields here
from dataclasses import dataclass, field
from typing import Any, Literal

from tsattn.data.matching import new_task
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.scaling import fit_scaler
from tsattn.data.splits import Split, SplitRule, asked_rule
from tsattn.data.table_options import TableOptions
from tsattn.errors import UserError, is_whole_number, shown, whole_number
from tsattn.scaler import Scaler, check_transform
from tsattn.task import MOST_STEPS, Task

SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
"""Options of which each says where the parts of a series end."""


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Windows, batches and scales of a data set.

    Attributes:
        context_length: past steps that a model sees, L.
        prediction_length: steps that it forecasts, T.
        batch_size: windows in a training batch.
        eval_batch_size: windows in a validation or test batch.
        num_workers: loader processes; 0 is fastest, as a batch is one gather from memory.
        resident_gb: without `num_workers`, scaled series of at most so many GB lie, and are cut, on a CUDA device.
        scaling: ``global``, all series by one mean and standard deviation a channel; ``series``, each by its own, so
            that small ones count as much as large ones.
        val_windows: windows that each validation of a training scores: ``all``, a number, spread evenly and the same
            each time, or ``auto``: a third of the windows trained on since the last validation.
        transform: of the targets, so that no forecast is negative: ``log``, ``log1p`` or ``box_cox``, whose lambda the
            training rows decide, or ``{kind: box_cox, lambda: 0.5}``. Forecasts and scores are in original units.
        season_length: steps in a season, for naive and local models and MASE. By default it follows from the frequency;
            where time counts steps it is 1. MASE has no value if it is longer than the training rows.

    Raises:
        UserError: for a size below 1, a negative number of processes or GB, or a word that is none of these.
    """

    context_length: int = 336
    prediction_length: int = 96
    batch_size: int = 32
    eval_batch_size: int = 128
    num_workers: int = 0
    resident_gb: float = 8.0
    scaling: str = "global"
    val_windows: int | Literal["auto", "all"] = "auto"
    transform: str | dict[str, Any] | None = None
    season_length: int | None = None

    def __post_init__(self) -> None:
        for size in ("context_length", "prediction_length", "batch_size", "eval_batch_size"):
            whole_number(size, getattr(self, size))
        if self.season_length is not None:
            whole_number("season_length", self.season_length, most=MOST_STEPS)
        whole_number("num_workers", self.num_workers, least=0)
        if not self.resident_gb >= 0:
            raise UserError(f"resident_gb must be at least 0, not {self.resident_gb}")
        if self.scaling not in ("global", "series"):
            raise UserError(f"scaling must be one of global, series, not {self.scaling!r}")
        most: Any = self.val_windows
        if most not in ("auto", "all") and not (is_whole_number(most) and most >= 1):
            raise UserError(f"val_windows must be auto, all or a number of at least 1, not {shown(repr(most))}")
        object.__setattr__(self, "transform", check_transform(self.transform))


@dataclass(frozen=True, kw_only=True)
class DataOptions(WindowOptions, TableOptions):
    """Everything that you may say about a table of your own: columns, text, gaps, weights, split, windows.

    What is not described here is described in `TableOptions` and `WindowOptions`.

    Attributes:
        strict: mend nothing: time stamps must rise from row to row of a series, without a gap, and no cell be empty.
        train_fraction: share of the rows of each series for training, the first ones; 0.7 unless another split is
            given; for `Forecaster` see its `val_rows`.
        val_fraction: share of the rows for validation, the next ones; the rest is for testing. 0.1 by default.
        val_rows: instead of shares: rows of each series for validation, before the last `test_rows`. 0 alone trains on
            all rows.
        test_rows: rows of each series for testing, the last ones.
        val_from: instead of shares: the first time stamp for validation, as 2020-01-01.
        test_from: the first time stamp for testing.
        weight_column: column of weights, numbers of at least 0: how much the targets of a row count in a training. 0
            leaves them out, as if they were missing; they still count in contexts, scales and every score.
        series_weights: weights of series by their ids, or of the columns of a wide frame; 1 for all others.
        row_weights: stretches of time, ``[first, last, weight]`` each, both ends included, a date alone as the
            whole day. Weights of the same row are multiplied, and only their ratios matter.
        scaling: ``series``, each series by its own mean and standard deviation; ``global``, all by one a channel.

    Raises:
        UserError: for two ways to split, or half of one, and what text cannot be written in.
    """

    id_column: str | list[str] | None = None  # type: ignore[assignment]  # names are joined by the reader
    target: str | list[str] | None = None
    frequency: Any = None
    strict: bool = False
    train_fraction: float | None = None
    val_fraction: float | None = None
    val_rows: int | None = None
    test_rows: int | None = None
    val_from: str | None = None
    test_from: str | None = None
    series_weights: dict[str, float] | None = None
    row_weights: list[list[Any]] | None = None
    scaling: str = "series"
    reader: TableReader = field(init=False, repr=False)
    rule: SplitRule = field(init=False, repr=False)

    def __post_init__(self) -> None:
        WindowOptions.__post_init__(self)
        object.__setattr__(self, "reader", TableReader.of(vars(self), strict=self.strict))
        object.__setattr__(self, "rule", asked_rule(**{name: getattr(self, name) for name in SPLIT}))

    def describe(self, panel: Panel, name: str = "panel") -> tuple[Task, Scaler]:
        """Return the task of a panel, which may be short, and the scale of all its rows, for what is not trained."""
        whole = [Split(rows, rows, rows) for rows in panel.lengths.tolist()]
        task = new_task(panel, name, self.context_length, self.prediction_length, self.season_length)
        transform: Any = self.transform  # a mapping, once it was checked
        return task, fit_scaler(panel, whole, self.scaling, transform)
