"""Weekly atmospheric CO2 at Mauna Loa, 1958-2001: a real series that needs no download.

Source: Keeling and Whorf, Scripps CO2 program, as shipped inside statsmodels (public domain): 2284 weeks in parts
per million, 59 of them missing.
"""

from __future__ import annotations

import pandas as pd

from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.frame import check_frame
from tsattn.data.splits import Split

__all__ = ["CO2DataModule"]


class CO2DataModule(ForecastDataModule):
    """Weekly atmospheric CO2, split 70 / 10 / 20 percent in time; missing weeks are masked, never dropped.

    Args:
        context_length: past weeks that a model sees, L.
        prediction_length: weeks that it forecasts, T.
        **sizes: batch sizes, see `ForecastDataModule`.
    """

    allow_missing = True

    def __init__(self, context_length: int = 208, prediction_length: int = 52, **sizes: int) -> None:
        super().__init__("co2", context_length, prediction_length, **sizes)

    def load_frame(self) -> pd.DataFrame:
        """The 2284 weeks, in parts per million."""
        from statsmodels.datasets import co2

        frame: pd.DataFrame = co2.load_pandas().data.astype("float64")
        frame.index.name = self.date_column
        check_frame(frame, "co2", allow_missing=True)
        return frame

    def split(self, num_rows: int) -> Split:
        """70 / 10 / 20 percent."""
        return Split.by_fraction(num_rows, 0.7, 0.1)
