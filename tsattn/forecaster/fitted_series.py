"""Series that a predictor was fitted to: which rows it has seen, and how they are saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, get_type_hints

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data import Panel
from tsattn.data.columns import match_ids
from tsattn.data.frequency import Times
from tsattn.data.stamps import kept_zone, time_numbers, time_unit, time_zone, times_of
from tsattn.descriptions import typed
from tsattn.errors import UserError
from tsattn.forecaster.frames import FrameKind
from tsattn.scaler import SeriesId
from tsattn.task import UNKNOWN_ZONE

if TYPE_CHECKING:
    from tsattn.experiments import Result

_ARRAYS = ("starts", "values", "past_covariates", "future_covariates", "ahead", "ahead_starts", "static")
_PLAIN: dict[str, Any] = {
    **{"ids": tuple[SeriesId, ...], "channels": tuple[str, ...], "frequency": str},
    **dict.fromkeys(("past_names", "future_names", "static_names"), tuple[str, ...]),
    **{"static_categories": tuple[tuple[str, ...], ...], "covariate_categories": dict[str, Sequence[str]]},
    **{"is_wide": bool, "id_name": str, "time_name": str},
}
_MORE: dict[str, Any] = {
    **{"time_zone": str | None, "time_unit": str | None, "is_complete": bool, "kind": dict[str, Any]},
    "earlier_ids": tuple[SeriesId, ...],
}
_ERRORS, _KNOWN, _UNTIL = "seasonal_error", "trained", "trained_until"


@dataclass(frozen=True)
class FittedSeries:
    """Series (after `load`, their ends), the rows that this fit or an earlier one has seen, and their kind of frame."""

    panel: Panel
    trained_until: Mapping[Any, Any]  # by series id, the last time stamp or step trained on, validation rows included
    seasonal_error: NDArray[np.float64]  # (S, C) of the rows that were trained on: MASE divides by it
    is_complete: bool = True  # whether these are all rows that were trained on; false after a start from a run
    kind: FrameKind = field(default_factory=FrameKind)

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return the series of a run."""
        from tsattn.evaluation.measure import seasonal_errors

        panel, task, _ = result.data.contents
        # a refit has seen all rows
        ends = np.array([split.val_end if result.refitted is None else split.test_end for split in result.data.splits])
        left_out = np.array([split.test_end for split in result.data.splits]) - panel.lengths
        # if training ended before the rows that are here, the first of these counts as its last
        trained = np.where(ends > 0, np.maximum(ends - left_out, 1), 0)
        some = np.flatnonzero(trained > 0)
        last = panel.time[panel.starts[:-1][some] + trained[some] - 1]
        until = dict(zip((panel.ids[number] for number in some), last, strict=True))
        return cls(panel, until, seasonal_errors(panel, trained, task.season_length))

    def named_as(self, other: Panel) -> FittedSeries:
        """Return these series with the ids and names of columns of another panel, whose ids may be text."""
        given = {fitted: name for name, fitted in match_ids(other.ids, self.panel.ids).items()}
        ids = tuple(given.get(name, name) for name in self.panel.ids)
        until = {given.get(name, name): stamp for name, stamp in self.trained_until.items()}
        panel = replace(self.panel, ids=ids, id_name=other.id_name, time_name=other.time_name)
        return replace(self, panel=panel, trained_until=until)

    def with_earlier(self, earlier: FittedSeries | None) -> Self:
        """Return these series after an earlier fit (None if unknown); the later of two time stamps counts."""
        if earlier is None:
            return replace(self, is_complete=False)
        until = dict(earlier.named_as(self.panel).trained_until)
        until |= {name: max(stamp, until.get(name, stamp)) for name, stamp in self.trained_until.items()}
        return replace(self, trained_until=until, is_complete=earlier.is_complete)

    def last_rows(self, rows: int, seasons: Sequence[int] = ()) -> FittedSeries:
        """Return the ends of the series, from `rows` before the rows to score; of a panel in files, before its end."""
        panel, more = self.panel, np.zeros(len(self.panel), np.int64)
        for number, name in enumerate(() if panel.is_mapped else panel.ids):
            if name in self.trained_until:
                time = panel.time_of(number)
                more[number] = len(time) - time.searchsorted(self.trained_until[name], side="right")
        return replace(self, panel=panel.last_rows(rows + more, seasons))

    @property
    def _earlier(self) -> list[Any]:  # ids of an earlier fit that are not in the panel
        return [name for name in self.trained_until if name not in {*self.panel.ids}]

    def plain(self) -> dict[str, Any]:
        """Return all that is not an array, as plain data."""
        time, zone = self.panel.time, kept_zone(self.panel.time)
        if zone == UNKNOWN_ZONE:
            mend = "give the model times in UTC, or in a zone with a name such as Europe/Berlin"
            raise UserError(f"the time zone {time_zone(time)} has no name to save it by: {mend}")
        return {
            **{name: getattr(self.panel, name) for name in _PLAIN},
            **{"time_zone": zone, "time_unit": time_unit(time)},  # no unit: steps
            **{"is_complete": self.is_complete, "kind": asdict(self.kind), "earlier_ids": self._earlier},
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays, by name."""
        panel = self.panel
        arrays = {name: getattr(panel, name) for name in _ARRAYS}
        known = [number for number, name in enumerate(panel.ids) if name in self.trained_until]
        stamps = [self.trained_until[name] for name in (*(panel.ids[number] for number in known), *self._earlier)]
        unit: Any = time_unit(panel.time)
        until: Times = pd.Index(stamps, dtype=np.int64) if unit is None else pd.DatetimeIndex(stamps).as_unit(unit)
        return {
            "time": time_numbers(panel.time).copy(),
            **{name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None},
            _ERRORS: self.seasonal_error,
            _KNOWN: np.array(known, np.int64),
            _UNTIL: time_numbers(until).copy(),
        }

    @classmethod
    def restored(cls, plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Invert `plain` and `arrays`; raise a TypeError or ValueError for fields that do not fit together."""
        fields = typed(plain, _PLAIN | _MORE, "history")
        if fields["is_wide"] and len(fields["ids"]) != 1:
            raise ValueError("a wide frame is one series")
        zone, unit, is_complete, kind, earlier = (fields.pop(name) for name in _MORE)
        kind = FrameKind(**typed(kind, get_type_hints(FrameKind), "kind"))
        fields["covariate_categories"] = {name: tuple(some) for name, some in fields["covariate_categories"].items()}
        fields.update({name: arrays.get(name) for name in _ARRAYS})
        panel = Panel(time=times_of(arrays["time"], unit, zone), **fields)
        static = panel.static
        columns: list[Any] = [] if static is None else [*zip(static.T, panel.static_categories, strict=True)]
        parts = ((panel.past_covariates, panel.past_names), (panel.future_covariates, panel.future_names))
        categories = panel.covariate_categories
        for part, names in (*parts, (panel.ahead, panel.future_names)):
            covariates = () if part is None else zip(part.T - 1, names, strict=True)  # counted from 1
            columns += [(one, categories[name]) for one, name in covariates if name in categories]
        if any(np.fmax.reduce(column, initial=-1) >= len(valid) for column, valid in columns):
            raise ValueError("a category is not among those of its column")
        known = [*(panel.ids[number] for number in arrays[_KNOWN]), *earlier]
        until = dict(zip(known, times_of(arrays[_UNTIL], unit, zone), strict=True))
        return cls(panel, until, arrays[_ERRORS], is_complete, kind)
