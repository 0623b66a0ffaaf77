"""The series that a predictor was fitted to: what it starts from, which rows it knows, and how they are saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import Panel
from tsattn.data.columns import match_ids
from tsattn.data.frequency import Times
from tsattn.data.stamps import time_numbers, time_unit, time_zone, times_of
from tsattn.evaluation.measure import seasonal_errors
from tsattn.experiments import Result
from tsattn.forecaster.frame_kinds import FrameKind
from tsattn.plain_data import typed
from tsattn.scaler import SeriesId

__all__ = ["FittedSeries"]

_ARRAYS = ("starts", "values", "past_covariates", "future_covariates", "ahead", "ahead_starts", "static")
_PLAIN: dict[str, Any] = {
    **{"ids": tuple[SeriesId, ...], "channels": tuple[str, ...], "frequency": str},
    **dict.fromkeys(("past_names", "future_names", "static_names"), tuple[str, ...]),
    **{"static_categories": tuple[tuple[str, ...], ...], "covariate_categories": dict[str, Sequence[str]]},
    **{"is_wide": bool, "id_name": str, "time_name": str},
}
"""The attributes of the panel that are plain data, and their types."""

_MORE: dict[str, Any] = {
    **{"time_zone": str | None, "time_unit": str | None, "is_complete": bool, "kind": dict[str, Any]},
    "earlier_ids": tuple[SeriesId, ...],
}
_ERRORS, _KNOWN, _UNTIL = "seasonal_error", "trained", "trained_until"


@dataclass(frozen=True)
class FittedSeries:
    """Series, and what a fit has seen of them.

    Attributes:
        panel: the series; once saved and loaded, their ends.
        trained_until: by the id of a series, the last time stamp (or step) that the predictor was trained on, rows for
            validation among them; a series that it was not trained on is not here. Series of an earlier fit may be.
        seasonal_error: `(S, C)` of the rows that it was trained on, what MASE divides by.
        is_complete: whether these are all rows that it was trained on; not so of one that started from the model of a
            run, whose rows are not known.
        kind: of the frame that they came in.
    """

    panel: Panel
    trained_until: Mapping[Any, Any]
    seasonal_error: NDArray[np.float64]
    is_complete: bool = True
    kind: FrameKind = field(default_factory=FrameKind)

    @classmethod
    def of(cls, result: Result) -> Self:
        """The series of a run."""
        data = result.data
        assert data.panel is not None
        assert data.task is not None
        # fitted once more, it has seen all rows
        ends = np.array([split.val_end if result.refitted is None else split.test_end for split in data.splits])
        left_out = np.array([split.test_end for split in data.splits]) - data.panel.lengths
        # where training ended before the rows that are here, the first of these is taken for the last of it
        trained = np.where(ends > 0, np.maximum(ends - left_out, 1), 0)
        errors = seasonal_errors(data.panel, trained, data.task.season_length)
        return cls(data.panel, _stamps(data.panel, trained), errors)

    def named_as(self, other: Panel) -> FittedSeries:
        """The same with the ids and the names of columns of another panel, whose ids may be text where these are not.

        Args:
            other: the panel.
        """
        given = {fitted: name for name, fitted in match_ids(other.ids, self.panel.ids).items()}
        ids = tuple(given.get(name, name) for name in self.panel.ids)
        until = {given.get(name, name): stamp for name, stamp in self.trained_until.items()}
        panel = replace(self.panel, ids=ids, id_name=other.id_name, time_name=other.time_name)
        return replace(self, panel=panel, trained_until=until)

    def with_earlier(self, earlier: FittedSeries | None) -> Self:
        """The same after an earlier fit; of series of both, the later of the last time stamps counts.

        Args:
            earlier: what that has seen; None where it is not known.
        """
        if earlier is None:
            return replace(self, is_complete=False)
        until = dict(earlier.named_as(self.panel).trained_until)
        until |= {name: max(stamp, until.get(name, stamp)) for name, stamp in self.trained_until.items()}
        return replace(self, trained_until=until, is_complete=earlier.is_complete)

    def last_rows(self, rows: int, seasons: Sequence[int] = ()) -> FittedSeries:
        """The same with the ends of the series alone, see `Panel.last_rows`.

        They begin so many rows before what was not trained on, so that it can be scored; of a panel in files, whose
        part for testing may be larger than memory, so many before the very end.
        """
        panel, more = self.panel, np.zeros(len(self.panel), np.int64)
        for number, name in enumerate(() if panel.is_mapped else panel.ids):
            if name in self.trained_until:
                time = panel.time_of(number)
                more[number] = len(time) - time.searchsorted(self.trained_until[name], side="right")
        return replace(self, panel=panel.last_rows(rows + more, seasons))

    def plain(self) -> dict[str, Any]:
        """What is not an array, as plain data."""
        return {
            **{name: getattr(self.panel, name) for name in _PLAIN},
            "time_zone": time_zone(self.panel.time),
            "time_unit": time_unit(self.panel.time),  # None: steps
            "is_complete": self.is_complete,
            "kind": asdict(self.kind),
            "earlier_ids": self._earlier,
        }

    @property
    def _earlier(self) -> list[Any]:
        """The series of an earlier fit that are not in the panel."""
        return [name for name in self.trained_until if name not in {*self.panel.ids}]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays, by name."""
        panel = self.panel
        arrays = {name: getattr(panel, name) for name in _ARRAYS}
        known = [number for number, name in enumerate(panel.ids) if name in self.trained_until]
        until = [self.trained_until[name] for name in (*(panel.ids[number] for number in known), *self._earlier)]
        return {
            "time": time_numbers(panel.time).copy(),
            **{name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None},
            _ERRORS: self.seasonal_error,
            _KNOWN: np.array(known, np.int64),
            _UNTIL: time_numbers(_like(until, panel.time)).copy(),
        }

    @classmethod
    def restored(cls, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The series of what `plain` and `arrays` gave.

        Raises:
            TypeError: for other fields than `plain` gives.
            ValueError: for values that do not go together.
        """
        fields = typed(plain, _PLAIN | _MORE, "history")
        if fields["is_wide"] and len(fields["ids"]) != 1:
            raise ValueError("a wide frame is one series")
        zone, unit, is_complete, kind, earlier = (fields.pop(name) for name in _MORE)
        kind = FrameKind(**typed(kind, get_type_hints(FrameKind), "kind"))
        categories = fields["covariate_categories"].items()
        fields["covariate_categories"] = {name: tuple(some) for name, some in categories}
        fields.update({name: arrays.get(name) for name in _ARRAYS})
        panel = Panel(time=times_of(arrays["time"], unit, zone), **fields)
        _check_categories(panel)
        known = [*(panel.ids[number] for number in arrays[_KNOWN]), *earlier]
        until = dict(zip(known, times_of(arrays[_UNTIL], unit, zone), strict=True))
        return cls(panel, until, arrays[_ERRORS], is_complete, kind)


def _check_categories(panel: Panel) -> None:
    """Refuse a panel with numbers beyond its categories, or without categories for a column."""
    columns: list[tuple[Any, Sequence[str]]] = []
    if panel.static is not None:
        columns = [*zip(panel.static.T, panel.static_categories, strict=True)]
    for part, names in (
        (panel.past_covariates, panel.past_names),
        (panel.future_covariates, panel.future_names),
        (panel.ahead, panel.future_names),
    ):
        covariates = [] if part is None else zip(part.T - 1, names, strict=True)  # counted from 1
        columns += [
            (column, panel.covariate_categories[name])
            for column, name in covariates
            if name in panel.covariate_categories
        ]
    for column, categories in columns:
        if np.fmax.reduce(column, initial=-1) >= len(categories):
            raise ValueError("a category is not among those of its column")


def _stamps(panel: Panel, rows: NDArray[np.int64]) -> dict[Any, Any]:
    """The time stamp of the last of the first `rows (S,)` of each series that has any."""
    some = np.flatnonzero(rows > 0)
    last = panel.time[panel.starts[:-1][some] + rows[some] - 1]
    return dict(zip((panel.ids[number] for number in some), last, strict=True))


def _like(times: list[Any], others: Times) -> Times:
    """Times, in the unit of others."""
    if isinstance(others, pd.DatetimeIndex):
        return pd.DatetimeIndex(times).as_unit(others.unit)
    steps: Times = pd.Index(times, dtype=np.int64)
    return steps
