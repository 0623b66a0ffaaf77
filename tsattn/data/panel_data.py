"""A panel in memory."""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from tsattn.data.frequency import Times
from tsattn.data.own_data import FrameDataModule
from tsattn.data.panel import Panel
from tsattn.data.scaling import fit_scaler
from tsattn.data.splits import Split
from tsattn.errors import UserError
from tsattn.scaler import Scaler
from tsattn.task import Task

__all__ = ["PanelDataModule"]

_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
_HELD_OUT = 0.1  # share of the rows of a series that validation has


class PanelDataModule(FrameDataModule):
    """A panel that is given, without a test part unless a split is asked for.

    By default validation has the last tenth of each series, and at least one horizon, if what is left for training
    holds a whole window; else the series is for training alone.

    Args:
        **options: columns and text, by which the panel was read and a file to forecast from is; split, lengths and
            batch sizes: see `FrameDataModule`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(None, name="panel", **options)
        self._is_split = any(options.get(name) is not None for name in _SPLIT)

    def give(self, panel: Panel) -> None:
        """Take the panel, before `setup`."""
        self.panel = panel
        if not self._is_split:
            parts = [self.split(panel.time_of(number)) for number in range(len(panel))]
            self.parts = ("train", "val") if any(part.train_end < part.val_end for part in parts) else ("train",)

    def describe(self) -> tuple[Task, Scaler]:
        """The task of the panel, and the scale of all of its rows, for what is not trained; it may be short."""
        assert self.panel is not None
        whole = [Split(rows, rows, rows) for rows in self.panel.lengths.tolist()]
        return self._new_task(self.panel), fit_scaler(self.panel, whole, self.scaling, self.transform)

    @override
    def load_panel(self) -> Panel:
        if self.panel is None:
            raise UserError(
                "the series of this run were given in Python and are not in its folder: `predict --run DIR --input "
                "FILE` forecasts from a file, and tsattn.load(DIR) takes frames"
            )
        return self.panel

    @override
    def split(self, time: Times) -> Split:
        if self._is_split:
            return super().split(time)
        rows, L, T = len(time), self.context_length, self.prediction_length
        held_out = max(T, round(_HELD_OUT * rows))
        return Split(rows - held_out if rows - held_out >= L + T else rows, rows, rows)
