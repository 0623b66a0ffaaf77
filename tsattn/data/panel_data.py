"""A panel in memory, to train on and not to test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frequency import Times
from tsattn.data.panel import Panel
from tsattn.data.splits import Split
from tsattn.errors import UserError

__all__ = ["PanelDataModule"]

_HELD_OUT = 0.1  # share of the rows of a series that validation has


class PanelDataModule(ForecastDataModule):
    """A panel without a test part, as a model is trained that is to forecast what comes next.

    Validation has the last tenth of each series, and at least one horizon, if what is left for training holds a whole
    window; else the series is for training alone.

    Args:
        panel: the series.
        **options: lengths, batch sizes and scaling, see `ForecastDataModule`.
    """

    def __init__(self, panel: Panel, **options: Any) -> None:
        super().__init__("panel", **options)
        self.panel = panel
        parts = [self.split(panel.time_of(number)) for number in range(len(panel))]
        self.parts = ("train", "val") if any(part.train_end < part.val_end for part in parts) else ("train",)

    def load_panel(self) -> Panel:
        """The panel that was given."""
        assert self.panel is not None
        return self.panel

    def load_input(self, path: Path) -> Panel:
        """There is none: forecasts start from the panel."""
        raise UserError(f"a panel is forecast from itself, not from {path}")

    @override
    def split(self, time: Times) -> Split:
        rows, L, T = len(time), self.context_length, self.prediction_length
        held_out = max(T, round(_HELD_OUT * rows))
        return Split(rows - held_out if rows - held_out >= L + T else rows, rows, rows)
