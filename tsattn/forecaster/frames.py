"""Frames of forecasts: real time stamps, original units, in the kind of frame that was given."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import torch
from pandas.api.types import infer_dtype, is_object_dtype
from torch import Tensor

from tsattn.batch import Batch
from tsattn.data import FutureWindows, Panel, Series, scaled_series
from tsattn.data.tables import as_frame
from tsattn.errors import UserError, one_of, shown
from tsattn.predictors.fitted import FittedPredictor
from tsattn.task import MEDIAN, Output, Task

_CUTOFF, _SCENARIO = "cutoff", "scenario"


def future_frame(forecasts: Iterable[Tensor], task: Task, output: Output, panel: Panel, first: int = 0) -> pd.DataFrame:
    """Return forecasts beyond the end of each series: a row for each series (or channel) and step.

    Columns are ids and time stamps as the data name them, ``predictions``, and a column for each quantile, named by its
    level, ``0.1``; ``predictions`` is then the median. Channels of a wide table are series in the column ``unique_id``;
    a long table names its channels in ``target_name``. Series are sorted by id, channels stay in the order of the data.

    Args:
        forecasts: batches in original units, each `(B, T, C)`; `(B, T, C, Q)` if the output has Q quantiles.
        task: the task that was forecast.
        output: form of the forecast.
        panel: the series.
        first: number of the first series that is forecast.

    Raises:
        UserError: for a forecast that is not finite, naming the series.
    """
    values = torch.cat([*forecasts]).double().cpu().transpose(1, 2)  # (S, C, T) or (S, C, T, Q)
    S, C, T = values.shape[:3]
    is_good = values.isfinite().flatten(2).all(-1)
    if not bool(is_good.all()):
        number, channel = (~is_good).nonzero()[0].tolist()
        name = task.channels[channel] if panel.is_wide else panel.ids[first + number]
        raise UserError(
            f"the forecast of series {shown(name)} is not finite: its last {task.context_length} rows hold values far "
            "outside of those that were trained on, or the model is damaged"
        )
    rows = np.tile(np.arange(S * T).reshape(S, 1, T), (1, C, 1)).ravel()
    time, channels = panel.future_times(np.arange(first, first + S), T).take(rows), np.repeat(list(task.channels), T)
    ids = pd.Index([*panel.ids[first : first + S]], tupleize_cols=False).repeat(C * T)
    frame = pd.DataFrame({panel.id_name: channels if panel.is_wide else ids, panel.time_name: time})
    if C > 1 and not panel.is_wide:
        frame["target_name"] = np.tile(channels, S)
    quantiles = {str(level): values[..., number] for number, level in enumerate(output.quantiles)}
    point = quantiles[str(MEDIAN)] if quantiles else values
    return frame.assign(**{name: part.numpy().ravel() for name, part in {"predictions": point, **quantiles}.items()})


def last_window(fitted: FittedPredictor, panel: Panel, id: Any = None, series: Series | None = None) -> Batch:
    """Return the window of a series (by default the first; `id` may be its text) whose horizon lies beyond its end."""
    found = [number for number, own in enumerate(panel.ids) if id is None or own == id or str(own) == str(id)]
    if not found:
        also = ", ..." if len(panel.ids) > 20 else ""
        raise UserError(f"there is no series {shown(id)}; valid: {one_of(map(str, panel.ids[:20]))}{also}")
    task = replace(fitted.predictor.task, context_length=fitted.predictor.context_length)
    series = scaled_series(panel, fitted.scaler) if series is None else series
    panel = panel if fitted.predictor.uses_covariates else replace(panel, ahead=None)
    return FutureWindows(panel, series, task, fitted.scaler, warns_of_short=False)[found[0]]


def scenarios_of(future: Any) -> dict[Any, Any]:
    """Return the frames of several scenarios by name (of a list: from 0); a single frame by None."""
    if not isinstance(future, list | tuple | Mapping):
        return {None: future}
    named = dict(future) if isinstance(future, Mapping) else dict(enumerate(future))
    if not named:
        raise UserError("future is empty: give a frame, a list of frames, or a dictionary of frames by scenario")
    if wrong := [name for name in named if not isinstance(name, str | int | float)]:
        raise UserError(f"the name of a scenario in future must be a text or a number, not {shown(repr(wrong[0]))}")
    return named


def in_scenario(frames: Iterable[pd.DataFrame], name: Any) -> Iterator[pd.DataFrame]:
    """Yield frames of `future_frame` with the name of their scenario in a third column."""
    for frame in frames:
        if _SCENARIO in frame.columns:
            raise UserError(f"rename column {_SCENARIO} of the series: the forecast has a column of that name")
        frame.insert(2, _SCENARIO, name)
        yield frame


@dataclass(frozen=True)
class FrameKind:
    """Kind of a frame; files are read as frames of pandas.

    Attributes:
        library: ``pandas``, ``polars``, ``pyarrow`` or another library that narwhals supports.
        period: frequency of its periods; None if time is anything else.
        has_dates: whether time is dates, without a time of day.
    """

    library: str = "pandas"
    period: str | None = None
    has_dates: bool = False

    def __post_init__(self) -> None:
        if nw.Implementation.from_string(self.library) is nw.Implementation.UNKNOWN:
            raise ValueError(f"{self.library} is no library of frames")
        if self.period is not None:
            pd.PeriodDtype(self.period)  # this refuses unknown frequencies

    @classmethod
    def of(cls, frame: Any, panel: Panel) -> FrameKind:
        """Return the kind of a frame that was read as a panel; a lazy frame counts as its computed kind."""
        if isinstance(frame, pd.DataFrame | pd.Series):
            # of the column of time; without a column, of the index
            columns = frame.dtypes.items() if isinstance(frame, pd.DataFrame) else ()
            levels = [frame.index.get_level_values(number).dtype for number in range(frame.index.nlevels)]
            kinds: list[Any] = [kind for name, kind in columns if str(name) == panel.time_name] or levels
            # an offset has another name than its periods, ME and M
            periods = (kind.name for kind in kinds if isinstance(kind, pd.PeriodDtype))
            return cls(period=next((name.removeprefix("period[").removesuffix("]") for name in periods), None))
        known = nw.from_native(frame, pass_through=True)
        if not isinstance(known, nw.DataFrame | nw.LazyFrame):
            return cls()
        library = known.implementation.name.lower()
        is_eager = isinstance(known, nw.DataFrame) or library == "polars"
        has_dates = known.collect_schema().get(panel.time_name) == nw.Date
        return cls(library if is_eager else "pyarrow", has_dates=has_dates)

    def give(self, frame: pd.DataFrame) -> Any:
        """Return a frame of forecasts, whose second column is time, in this kind."""
        times = [name for name in (*frame.columns[1:2], _CUTOFF) if name in frame.columns]
        if self.period is not None:
            frame = frame.assign(**{name: frame[name].dt.to_period(self.period) for name in times})
        if self.library == "pandas":
            return frame
        if importlib.util.find_spec(self.library) is None:
            raise UserError(f"the fitted series were {self.library} frames: install {self.library}, or pass a frame")
        import pyarrow as pa

        backend: Any = self.library
        made = nw.from_arrow(pa.Table.from_pandas(frame, preserve_index=False), backend=backend)
        if self.has_dates:
            are_midnights = [name for name in times if (frame[name] == frame[name].dt.normalize()).all()]
            made = made.with_columns(nw.col(*are_midnights).cast(nw.Date)) if are_midnights else made
        return made.to_native()


def plain_forecast(frame: Any) -> pd.DataFrame:
    """Return a frame of forecasts of any kind as a pandas frame with time stamps."""
    plain = as_frame(frame, "the forecast")
    stamps = {}
    for name, kind in plain.dtypes.items():
        if isinstance(kind, pd.PeriodDtype):
            stamps[str(name)] = plain[name].dt.to_timestamp()
        elif is_object_dtype(kind) and infer_dtype(plain[name]) == "date":
            stamps[str(name)] = pd.to_datetime(plain[name])
    return plain.assign(**stamps) if stamps else plain
