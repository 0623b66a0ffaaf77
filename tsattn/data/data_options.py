"""All options for your data; this module does not need Lightning."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: F401  # the command line resolves the types of inherited fields here
from dataclasses import dataclass, field
from typing import Any, Literal

from tsattn import descriptions
from tsattn.data.matching import new_task
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.scaling import fit_scaler
from tsattn.data.splits import Split, SplitRule, asked_rule
from tsattn.data.table_options import TableOptions
from tsattn.descriptions import Description
from tsattn.errors import UserError, is_number, is_whole_number, one_of, shown, whole_number
from tsattn.scaler import LARGEST_LAMBDA, TRANSFORMS, Scaler
from tsattn.task import MOST_STEPS, Task

SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
"""Options that say where the parts of a series end."""


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Windows, batches and scales of a data set.

    Attributes:
        context_length: past steps that a model sees, L.
        prediction_length: steps that it forecasts, T.
        batch_size: windows in a training batch.
        eval_batch_size: windows in a validation or test batch.
        num_workers: loader processes; 0 is fastest, because a batch is cut from memory in one operation.
        resident_gb: without `num_workers`, scaled series up to this size in GB are kept and cut on a CUDA device.
        scaling: ``global`` scales all series by one mean and standard deviation for each channel. ``series`` scales
            each series by its mean and standard deviation, so that small series count as much as large series.
        val_windows: windows that each validation of a training scores: ``all``, a number of evenly spread fixed
            windows, or ``auto``: a third of the windows trained on since the last validation.
        transform: transform of the targets, so that no forecast is negative: ``log``, ``log1p``, ``box_cox`` (lambda is
            estimated from training rows) or ``{kind: box_cox, lambda: 0.5}``. Results are in original units.
        season_length: steps in a season, for naive and local models and MASE. By default it follows from the frequency;
            if time counts steps it is 1. MASE has no value if the season is longer than the training rows.

    Raises:
        UserError: for a size below 1, a negative number of processes or GB, or an unknown word.
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
        if not (is_number(self.resident_gb) and self.resident_gb >= 0):
            raise UserError(f"resident_gb must be at least 0, not {self.resident_gb}")
        if self.scaling not in ("global", "series"):
            raise UserError(f"scaling must be one of global, series, not {self.scaling!r}")
        most: Any = self.val_windows
        if most not in ("auto", "all") and not (is_whole_number(most) and most >= 1):
            raise UserError(f"val_windows must be auto, all or a number of at least 1, not {shown(repr(most))}")
        object.__setattr__(self, "transform", check_transform(self.transform))


@dataclass(frozen=True, kw_only=True)
class DataOptions(WindowOptions, TableOptions):
    """All options for your table: columns, text, gaps, weights, split, windows.

    The other options are described in `TableOptions` and `WindowOptions`.

    Attributes:
        strict: do not repair the table: time stamps of a series must rise without gaps, and no cell may be empty.
        train_fraction: share of the first rows of each series for training; 0.7 unless you give another split. For
            `Forecaster` see its `val_rows`.
        val_fraction: share of the next rows for validation; 0.1 by default. The rest is for testing.
        val_rows: instead of shares, number of rows of each series for validation, before the last `test_rows`. 0
            without `test_rows` trains on all rows.
        test_rows: number of the last rows of each series for testing.
        val_from: instead of shares, the first time stamp for validation, such as 2020-01-01.
        test_from: the first time stamp for testing.
        weight_column: column of weights, numbers of at least 0: how much the targets of a row count in a training. 0
            excludes them from training, like missing targets. They still count in contexts, scales and every score.
        series_weights: weights of series by id, or of the columns of a wide frame; 1 for all others.
        row_weights: weights of time intervals, each ``[first, last, weight]``, both ends included; a date means
            the whole day. Weights of the same row are multiplied. Only ratios of weights matter.
        scaling: ``series``: by the mean and standard deviation of each series. ``global``: of all series, by channel.

    Raises:
        UserError: for two ways to split, an incomplete split, or options of text that no file can have.
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

    def describe(self, panel: Panel) -> tuple[Task, Scaler]:
        """Return the task of a panel, which may be short, and a scaler for all its rows, for models without a fit."""
        whole = [Split(rows, rows, rows) for rows in panel.lengths.tolist()]
        task = new_task(panel, "panel", self.context_length, self.prediction_length, self.season_length)
        transform: Any = self.transform  # a mapping after the check
        return task, fit_scaler(panel, whole, self.scaling, transform)


def check_transform(description: Description | None) -> dict[str, Any] | None:
    """Return a transform as plain data: ``{kind: log}``, or ``{kind: box_cox, lambda: 0.5}``."""
    if description is None:
        return None
    kind, chosen = descriptions.named(description, what="transform", table=TRANSFORMS)
    if kind not in TRANSFORMS:
        raise UserError(f"unknown transform {shown(kind)}; valid: {one_of(TRANSFORMS)}")
    descriptions.check_names(chosen, ["lambda"] if kind == "box_cox" else [], f"transform {kind}")
    if (given := chosen.get("lambda")) is None:
        return {"kind": kind}
    if not is_number(given) or not 0 <= given <= LARGEST_LAMBDA:  # one below 0 has a ceiling that no forecast can pass
        raise UserError(f"lambda of box_cox must be a number from 0 to {LARGEST_LAMBDA:g}, not {shown(repr(given))}")
    return {"kind": kind, "lambda": float(given)}
