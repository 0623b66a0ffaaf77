"""Panels that go on: with a future of their covariates, or with later rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.assembly import Assembly
from tsattn.data.category_columns import in_categories, with_categories
from tsattn.data.columns import id_order
from tsattn.data.frequency import Times
from tsattn.data.grid import Grid, counts
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
from tsattn.data.roles import Roles
from tsattn.data.stamps import in_zone_of, times_like
from tsattn.data.table_options import TextFormat
from tsattn.data.table_rows import Rows, future_rows
from tsattn.errors import UserError, shown

__all__ = ["appended", "with_future"]

_PLAIN = TextFormat()
_SERIES = "the series"


def with_future(panel: Panel, future: Any, text: TextFormat = _PLAIN) -> Panel:
    """A panel whose future covariates are known after its last rows; what it knew of them there is replaced.

    Time stamps that are missing in between are filled as missing. Series that the panel has not got are left out, which
    is logged.

    Args:
        panel: the series.
        future: a frame, or the path of a file, of ids, time stamps and future covariates, in any order; or a panel,
            of which the rows after the end of each series are taken.
        text: how its text is written.

    Raises:
        UserError: for a panel without future covariates, cells that cannot be used, and rows that are not after the
            last one of their series or not on its grid, naming the row.
    """
    S, F = len(panel), len(panel.future_names)
    roles = Roles(None if panel.is_wide else panel.id_name, panel.time_name, ("value",), future=panel.future_names)
    if isinstance(future, Panel):
        future = _rows_after(panel, future)
    categories = {name: panel.covariate_categories[name] for name in roles.future if name in panel.covariate_categories}
    own = Rows(
        names=panel.ids,
        series=np.arange(S),
        time=panel.time[panel.starts[1:] - 1],
        values=np.zeros((S, 1)),
        past=np.zeros((S, 0)),
        known=np.zeros((S, F)),
        weights=np.zeros((S, 0)),
        static=np.zeros((S, 0)),
        where=lambda row: f"{_SERIES}, row {panel.starts[row + 1]}",
        categories=categories,
    )
    rows = future_rows(future, own, roles, text, _SERIES)
    place = {name: number for number, name in enumerate(panel.ids)}
    ends = counts(own.time)[[place[name] for name in rows.names]][rows.series]
    early = np.flatnonzero(counts(rows.time) <= ends)
    if early.size:
        row = int(early[0])
        of = "" if panel.is_wide else f" of series {shown(rows.names[rows.series[row]])}"
        raise UserError(
            f"{rows.where(row)}: time stamp {rows.time[row]}{of} does not come after the last row with a target"
        )
    parts = [own, rows]
    frequency = panel.frequency
    joined, _ = Assembly(lambda: parts, roles, _SERIES, lambda row: rows.where(row - S), frequency=frequency).panel()
    assert joined.ahead is not None
    with quiet(False):  # the future is new, even where the panel is not
        ahead = in_categories(joined.ahead, roles.future, joined.covariate_categories, categories, "the future")
    return replace(panel, ahead=ahead, ahead_starts=joined.ahead_starts)


def appended(panel: Panel, later: Panel) -> Panel:
    """The series of both panels; of one that is in both the rows of the first, up to where those of the second begin.

    Time stamps that are missing in between are filled as missing. What comes after the end of a series is known from
    the panel that it ends in. All rows are held in memory.

    Args:
        panel: the series.
        later: others with the same columns and frequency, or later rows of the same.

    Raises:
        UserError: for other columns, another frequency, or time stamps on another grid.
    """
    for what in ("channels", "past_names", "future_names", "static_names", "frequency", "is_wide"):
        if getattr(panel, what) != getattr(later, what):
            before, after = (shown(repr(getattr(one, what))) for one in (panel, later))
            raise UserError(f"the later rows have {what} {after}, those before {before}; both need the same")
    later = with_categories(
        later, later.past_names, later.future_names, panel.covariate_categories, "the table of later rows"
    )
    later_time = in_zone_of(panel.time, later.time, "the table of later rows", "the table before")
    ids = _joined_ids(panel.ids, later.ids)
    place = {name: number for number, name in enumerate(ids)}
    first, second = (np.array([place[name] for name in one.ids], np.int64) for one in (panel, later))
    ends, begins, phases = _extents(panel, later, later_time, first, second, ids)
    # of each series: rows of the first panel, filled ones, rows of the second
    mine, theirs = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    mine[first], theirs[second] = panel.lengths, later.lengths
    both = np.intersect1d(first, second)
    origin = ends - mine  # coordinate of the first row of the first panel
    mine[both] = np.clip(begins[both] - origin[both], 0, mine[both])
    gap = np.zeros(len(ids), np.int64)
    gap[both] = np.where(mine[both] > 0, begins[both] - origin[both] - mine[both], 0)
    lengths = mine + gap + theirs
    starts = np.concatenate([[0], np.cumsum(lengths)])
    step = np.arange(starts[-1]) - starts[:-1].repeat(lengths)
    owner = np.arange(len(ids)).repeat(lengths)
    rows_before = len(panel.time)
    from_first, from_second = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    from_first[first], from_second[second] = panel.starts[:-1], rows_before + later.starts[:-1]
    index = np.where(step < mine[owner], from_first[owner] + step, from_second[owner] + step - (mine + gap)[owner])
    is_gap = (step >= mine[owner]) & (step < (mine + gap)[owner])

    def rows(name: str) -> NDArray[np.float64] | None:
        one, other = getattr(panel, name), getattr(later, name)
        if one is None:
            return None
        part = np.concatenate([one, other])[np.where(is_gap, 0, index)]
        return np.where(is_gap[:, None], np.nan, part)

    stamps = np.concatenate([counts(panel.time), counts(later_time)])[np.where(is_gap, 0, index)]
    if is_gap.any():
        grid = _grid(panel, later, later_time)
        filled = owner[is_gap]
        stamps[is_gap] = counts(grid.join(origin[filled] + step[is_gap], phases[filled]))
    is_later = np.isin(np.arange(len(ids)), second)
    ahead, ahead_starts = _joined_ahead(panel, later, first, second, is_later)
    categories, static = _joined_static(panel, later, first, second, len(ids))
    values = rows("values")
    assert values is not None
    return replace(
        panel,
        ids=ids,
        time=times_like(panel.time, stamps),
        starts=starts,
        values=values,
        past_covariates=rows("past_covariates"),
        future_covariates=rows("future_covariates"),
        ahead=ahead,
        ahead_starts=ahead_starts,
        static=static,
        static_categories=categories,
        weights=None,
        complete=frozenset(),
    )


def _joined_ids(ids: Sequence[Any], others: Sequence[Any]) -> tuple[Any, ...]:
    names = list(dict.fromkeys([*ids, *others]))
    return tuple(names[place] for place in id_order(names))


def _rows_after(panel: Panel, future: Panel) -> pd.DataFrame:
    """The future covariates of a panel after the last rows of another."""
    last = dict(zip(panel.ids, panel.time[panel.starts[1:] - 1], strict=True))
    frame = future.to_frame()
    owners = pd.Series(future.ids * len(frame)) if future.is_wide else frame[future.id_name]
    ends = owners.map(last)
    frame = frame.rename(columns={future.id_name: panel.id_name, future.time_name: panel.time_name})
    kept = frame[panel.time_name].gt(ends) | ends.isna()
    names = [*([] if panel.is_wide else [panel.id_name]), panel.time_name, *panel.future_names]
    return frame.loc[kept, [name for name in names if name in frame.columns]]


def _extents(
    panel: Panel,
    later: Panel,
    later_time: Times,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    ids: Sequence[Any],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Coordinates after the last row of the one and of the first row of the other, and phases, of all series."""
    # split together: of stamps that clocks have moved, the others tell the usual time of day
    edges = panel.time[panel.starts[1:] - 1].append(later_time[later.starts[:-1]])
    coordinates, found = _grid(panel, later, later_time).split(edges)
    ends, begins = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    phase, other = np.full(len(ids), -2), np.full(len(ids), -2)
    ends[first], phase[first] = coordinates[: len(panel)], found[: len(panel)]
    begins[second], other[second] = coordinates[len(panel) :], found[len(panel) :]
    wrong = np.flatnonzero((phase != other) & (phase > -2) & (other > -2))
    if wrong.size:
        raise UserError(
            f"the later rows of series {shown(ids[wrong[0]])} are not on the time grid of those before; both need the "
            f"same, at frequency {panel.frequency!r}"
        )
    return ends + 1, begins, phase


def _grid(panel: Panel, later: Panel, later_time: Times) -> Grid:
    """The grid that the rows of both lie on."""
    edges = [
        time[rows]
        for time, one in ((panel.time, panel), (later_time, later))
        for rows in (one.starts[:-1], one.starts[1:] - 1)
    ]
    return Grid(edges[0].append(edges[1:]), panel.frequency)


def _joined_ahead(
    panel: Panel, later: Panel, first: NDArray[np.int64], second: NDArray[np.int64], is_later: NDArray[np.bool_]
) -> tuple[NDArray[np.float64] | None, NDArray[np.int64]]:
    S = len(is_later)
    if panel.ahead is None or later.ahead is None:
        return None, np.zeros(S + 1, np.int64)
    own = first[~is_later[first]]
    part = panel.take(np.flatnonzero(~is_later[first]))
    assert part.ahead is not None
    steps = np.zeros(S, np.int64)
    steps[own], steps[second] = np.diff(part.ahead_starts), np.diff(later.ahead_starts)
    owners = np.concatenate([own.repeat(np.diff(part.ahead_starts)), second.repeat(np.diff(later.ahead_starts))])
    ahead = np.concatenate([part.ahead, later.ahead])[np.argsort(owners, kind="stable")]
    return ahead, np.concatenate([[0], np.cumsum(steps)])


def _joined_static(
    panel: Panel, later: Panel, first: NDArray[np.int64], second: NDArray[np.int64], S: int
) -> tuple[tuple[tuple[str, ...], ...], NDArray[np.int64] | None]:
    """The categories of both; of a series in both, that of the later rows."""
    if panel.static is None or later.static is None:
        return panel.static_categories, panel.static
    pairs = zip(panel.static_categories, later.static_categories, strict=True)
    categories = tuple(tuple(sorted({*mine, *others})) for mine, others in pairs)
    joined = np.zeros((S, len(categories)), np.int64)
    for one, places in ((panel, first), (later, second)):
        codes = one.with_static(one.static_names, categories, _SERIES).static
        assert codes is not None
        joined[places] = codes
    return categories, joined
