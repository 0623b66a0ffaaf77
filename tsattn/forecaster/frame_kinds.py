"""Forecasts in the kind of frame that was given: of which library, and whether time was periods."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype, is_object_dtype

from tsattn.data import Panel
from tsattn.data.tables import as_frame
from tsattn.errors import UserError

__all__ = ["FrameKind", "plain_forecast"]

_TIMES = "cutoff"  # beside the column of time stamps


@dataclass(frozen=True)
class FrameKind:
    """Of which kind a frame is; a file is read as one of pandas.

    Attributes:
        library: ``pandas``, ``polars``, ``pyarrow`` or another one that narwhals makes frames of.
        period: the frequency of its periods; None where time is anything else.
        has_dates: whether time is dates, without a time of day.

    Raises:
        ValueError: for another library, or what is no frequency of periods.
    """

    library: str = "pandas"
    period: str | None = None
    has_dates: bool = False

    def __post_init__(self) -> None:
        if nw.Implementation.from_string(self.library) is nw.Implementation.UNKNOWN:
            raise ValueError(f"{self.library} is no library of frames")
        if self.period is not None:
            pd.PeriodDtype(self.period)  # which refuses what is no frequency

    @classmethod
    def of(cls, frame: Any, panel: Panel) -> FrameKind:
        """The kind of a frame that was read as a panel; lazy frames are of the kind that they are computed to."""
        if isinstance(frame, pd.DataFrame | pd.Series):
            return cls(period=_period(frame, panel.time_name))
        known = nw.from_native(frame, pass_through=True)
        if not isinstance(known, nw.DataFrame | nw.LazyFrame):
            return cls()
        library = known.implementation.name.lower()
        is_eager = isinstance(known, nw.DataFrame) or library == "polars"
        has_dates = known.collect_schema().get(panel.time_name) == nw.Date
        return cls(library if is_eager else "pyarrow", has_dates=has_dates)

    def give(self, frame: pd.DataFrame) -> Any:
        """A frame of forecasts, whose second column is time, in this kind.

        Raises:
            UserError: if its library is not installed here.
        """
        times = [name for name in (*frame.columns[1:2], _TIMES) if name in frame.columns]
        if self.period is not None:
            frame = frame.assign(**{name: frame[name].dt.to_period(self.period) for name in times})
        if self.library == "pandas":
            return frame
        if importlib.util.find_spec(self.library) is None:
            raise UserError(f"the series were frames of {self.library}, which is not installed here: give a frame")
        table = pa.Table.from_pandas(frame, preserve_index=False)
        backend: Any = self.library
        made = nw.from_arrow(table, backend=backend)
        if self.has_dates:
            are_midnights = [name for name in times if (frame[name] == frame[name].dt.normalize()).all()]
            made = made.with_columns(nw.col(*are_midnights).cast(nw.Date)) if are_midnights else made
        return made.to_native()


def plain_forecast(frame: Any) -> pd.DataFrame:
    """A frame of forecasts of any kind as one of pandas with time stamps.

    Raises:
        UserError: for what is no frame.
    """
    plain = as_frame(frame, "the forecast")
    periods = [name for name, kind in plain.dtypes.items() if isinstance(kind, pd.PeriodDtype)]
    stamps = {str(name): plain[name].dt.to_timestamp() for name in periods}
    dates = [
        name for name, kind in plain.dtypes.items() if is_object_dtype(kind) and infer_dtype(plain[name]) == "date"
    ]
    stamps |= {str(name): pd.to_datetime(plain[name]) for name in dates}
    return plain.assign(**stamps) if stamps else plain


def _period(frame: pd.DataFrame | pd.Series, time_name: str) -> str | None:
    """The frequency of the periods that are the column of time, or without one the index or a level of it."""
    index = frame.index
    columns = [] if isinstance(frame, pd.Series) else [frame[name] for name in frame.columns if str(name) == time_name]
    levels: list[Any] = [index.get_level_values(number) for number in range(index.nlevels)]
    kinds = [one.dtype for one in columns or levels]
    # an offset has another name than its periods, ME and M
    names = (kind.name for kind in kinds if isinstance(kind, pd.PeriodDtype))
    return next((name.removeprefix("period[").removesuffix("]") for name in names), None)
