"""Weekly atmospheric CO2 at Mauna Loa, 1958-2001: a real series that needs no download.

Source: Keeling and Whorf, Scripps CO2 program, as shipped inside statsmodels (public domain): 2284 weeks in parts
per million, 59 of them missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frequency import Times
from tsattn.data.panel import Panel
from tsattn.data.public.wide_csv import check_frame, read_csv
from tsattn.data.splits import Split

__all__ = ["CO2DataModule"]


class CO2DataModule(ForecastDataModule):
    """Weekly atmospheric CO2, split 70 / 10 / 20 percent in time; missing weeks are masked, never dropped.

    Args:
        context_length: past weeks that a model sees, L.
        prediction_length: weeks that it forecasts, T.
        **sizes: batch sizes, see `ForecastDataModule`.
    """

    def __init__(self, context_length: int = 208, prediction_length: int = 52, **sizes: Any) -> None:
        super().__init__("co2", context_length, prediction_length, **sizes)

    def load_frame(self) -> pd.DataFrame:
        """The 2284 weeks, in parts per million."""
        from statsmodels.datasets import co2

        frame: pd.DataFrame = co2.load_pandas().data.astype("float64")
        frame.index.name = "date"
        check_frame(frame, "co2", allow_missing=True)
        return frame

    @override
    def load_panel(self) -> Panel:
        """The 2284 weeks as one series."""
        return self.wide_panel(self.load_frame(), "co2")

    @override
    def load_input(self, path: Path) -> Panel:
        """A CSV file of weeks with a column ``co2``."""
        return self.wide_panel(read_csv(path, allow_missing=True), str(path))

    @override
    def split(self, time: Times) -> Split:
        """70 / 10 / 20 percent."""
        return Split.by_fraction(len(time), 0.7, 0.1)
