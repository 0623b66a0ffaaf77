"""A panel in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frequency import Times
from tsattn.data.panel import Panel
from tsattn.data.scaling import fit_scaler
from tsattn.data.split_rule import SplitRule
from tsattn.data.splits import Split
from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task

__all__ = ["PanelDataModule"]

_HELD_OUT = 0.1  # share of the rows of a series that validation has


class PanelDataModule(ForecastDataModule):
    """A panel that is given, without a test part unless a split is asked for.

    By default validation has the last tenth of each series, and at least one horizon, if what is left for training
    holds a whole window; else the series is for training alone.

    Args:
        train_fraction: the six are those of `FrameDataModule`: a split with a test part.
        val_fraction: see there.
        val_rows: see there.
        test_rows: see there.
        val_from: see there.
        test_from: see there.
        scaling: see `ForecastDataModule`.
        **sizes: lengths and batch sizes, see `ForecastDataModule`.
    """

    def __init__(
        self,
        train_fraction: float | None = None,
        val_fraction: float | None = None,
        val_rows: int | None = None,
        test_rows: int | None = None,
        val_from: str | None = None,
        test_from: str | None = None,
        scaling: str = "series",
        **sizes: Any,
    ) -> None:
        super().__init__("panel", scaling=scaling, **sizes)
        split = train_fraction, val_fraction, val_rows, test_rows, val_from, test_from
        self.rule = SplitRule.of(*split) if any(part is not None for part in split) else None

    def give(self, panel: Panel) -> None:
        """Take the panel, before `setup`."""
        self.panel = panel
        if self.rule is None:
            parts = [self.split(panel.time_of(number)) for number in range(len(panel))]
            self.parts = ("train", "val") if any(part.train_end < part.val_end for part in parts) else ("train",)

    def describe(self) -> tuple[Task, Scaler]:
        """The task of the panel, and the scale of all of its rows, for what is not trained; it may be short."""
        assert self.panel is not None
        whole = [Split(rows, rows, rows) for rows in self.panel.lengths.tolist()]
        return self._new_task(self.panel), fit_scaler(self.panel, whole, self.scaling)

    def load_panel(self) -> Panel:
        """The panel that was given."""
        if self.panel is None:
            raise UserError("a PanelDataModule reads nothing: the series of a Forecaster are given to it")
        return self.panel

    def load_input(self, path: Path) -> Panel:
        """There is none: forecasts start from the panel."""
        raise UserError(f"a panel is forecast from itself, not from {path}")

    @override
    def split(self, time: Times) -> Split:
        if self.rule is not None:
            return self.rule.split(time)
        rows, L, T = len(time), self.context_length, self.prediction_length
        held_out = max(T, round(_HELD_OUT * rows))
        return Split(rows - held_out if rows - held_out >= L + T else rows, rows, rows)
