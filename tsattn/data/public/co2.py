"""Weekly atmospheric CO2 at Mauna Loa, 1958-2001: a real series that needs no download.

Source: Keeling and Whorf, Scripps CO2 program, as shipped inside statsmodels (public domain): 2284 weeks in parts
per million, 59 of them missing.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from typing_extensions import override

from tsattn.data.datamodule import ForecastDataModule, Source
from tsattn.data.panel import Panel
from tsattn.data.reader import TableReader
from tsattn.data.splits import ByShare

__all__ = ["CO2DataModule"]


class CO2DataModule(ForecastDataModule):
    """Weekly atmospheric CO2, split 70 / 10 / 20 percent in time; missing weeks are masked, never dropped.

    Args:
        context_length: past weeks that a model sees, L.
        prediction_length: weeks that it forecasts, T.
        **sizes: batch sizes, see `ForecastDataModule`.
    """

    def __init__(self, context_length: int = 208, prediction_length: int = 52, **sizes: Any) -> None:
        super().__init__(
            "co2",
            _Weeks(self),
            ByShare(0.7, 0.1),
            context_length=context_length,
            prediction_length=prediction_length,
            **sizes,
        )

    def load_frame(self) -> pd.DataFrame:
        """The 2284 weeks, in parts per million."""
        from statsmodels.datasets import co2

        frame: pd.DataFrame = co2.load_pandas().data.astype("float64")
        frame.index.name = "date"
        return frame


class _Weeks(Source):
    def __init__(self, data: CO2DataModule) -> None:
        self.data = data

    @override
    def load(self) -> Panel:
        return TableReader(strict=True, allow_missing=True).read(self.data.load_frame(), "co2")
