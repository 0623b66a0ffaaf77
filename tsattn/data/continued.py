"""Panels that continue: with a future of their covariates, or with later rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.category_columns import in_categories
from tsattn.data.columns import id_order
from tsattn.data.grid import counts
from tsattn.data.grid_layout import lay_out
from tsattn.data.matching import in_static_categories, with_categories
from tsattn.data.panel import Panel
from tsattn.data.quiet import quiet
from tsattn.data.roles import Roles
from tsattn.data.stamps import in_zone_of
from tsattn.data.table_rows import Rows, future_rows
from tsattn.data.text_format import TextFormat
from tsattn.errors import UserError, shown

__all__ = ["appended", "with_future"]

_PLAIN = TextFormat()
_SERIES, _LATER = "the series", "the table of later rows"


def with_future(panel: Panel, future: Any, text: TextFormat = _PLAIN) -> Panel:
    """Replace what a panel knows of its future covariates after its last rows.

    Missing time stamps in between are filled as missing. Series that the panel has not got are left out, which is
    logged.

    Args:
        panel: the series.
        future: a frame, or the path of a file, of ids, time stamps and future covariates, in any order; or a panel,
            of which the rows after the end of each series are taken.
        text: how its text is written.

    Raises:
        UserError: for a panel without future covariates, cells that cannot be used, and rows that are not after the
            last one of their series or not on its grid, naming the row.
    """
    roles = Roles(None if panel.is_wide else panel.id_name, panel.time_name, (), future=panel.future_names)
    S, last = len(panel), panel.time[panel.starts[1:] - 1]
    if isinstance(future, Panel):
        future = _rows_after(panel, future)
    categories = {name: panel.covariate_categories[name] for name in roles.future if name in panel.covariate_categories}
    rows = future_rows(future, roles, text, panel.frequency if panel.frequency.isdecimal() else None, categories)
    none = np.zeros((S, 0))
    own = Rows(
        num_own=S,
        names=panel.ids,
        series=np.arange(S),
        time=last,
        values=none,
        past=none,
        known=np.full((S, len(panel.future_names)), np.nan),
        weights=none,
        where=lambda row: f"{_SERIES}, row {panel.starts[row + 1]}",
        categories=categories,
    )
    joined = own.with_future(rows, _SERIES, roles)
    early = np.flatnonzero(counts(joined.time)[S:] <= counts(last)[joined.series[S:]])
    if early.size:
        row = S + int(early[0])
        of = "" if panel.is_wide else f" of series {shown(panel.ids[joined.series[row]])}"
        raise UserError(
            f"{joined.where(row)}: time stamp {joined.time[row]}{of} does not come after the last row with a target"
        )
    layout = lay_out(
        *(joined.time, joined.series, joined.names, panel.frequency, joined.where, _SERIES),
        is_wide=panel.is_wide,
        num_own=S,
    )
    with quiet(False):  # the future is new, even where the panel is not
        in_own = in_categories(joined.known, roles.future, joined.categories, categories, "the future")
    assert in_own is not None
    known, is_last = layout.spread(in_own), np.zeros(len(layout.time), dtype=bool)
    is_last[layout.starts[:-1]] = True
    return replace(panel, ahead=known[~is_last], ahead_starts=layout.starts - np.arange(S + 1))


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


def appended(panel: Panel, later: Panel) -> Panel:
    """Join the series of two panels; a series in both has the first one's rows up to where the second one's begin.

    Missing time stamps in between are filled as missing. The future of a series is that of the panel in which it ends.
    All rows are held in memory.

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
    later = with_categories(later, panel.covariate_categories, _LATER)
    later = replace(later, time=in_zone_of(panel.time, later.time, _LATER, "the table before"))
    names = list(dict.fromkeys([*panel.ids, *later.ids]))
    ids = tuple(names[place] for place in id_order(names))
    S, place = len(ids), {name: number for number, name in enumerate(ids)}
    first, second = (np.array([place[name] for name in one.ids], np.int64) for one in (panel, later))
    begins = np.full(S, np.iinfo(np.int64).max)
    begins[second] = counts(later.time)[later.starts[:-1]]
    owner = first.repeat(panel.lengths)
    kept = counts(panel.time) < begins[owner]
    owners = np.concatenate([owner[kept], second.repeat(later.lengths)])

    def where(row: int) -> str:
        return "the rows before" if row < kept.sum() else "the later rows"

    with quiet():  # filled rows were told of when the panels were read
        layout = lay_out(
            *(panel.time[kept].append(later.time), owners, ids, panel.frequency, where, _LATER), is_wide=panel.is_wide
        )

    def rows(name: str) -> Any:
        one, other = getattr(panel, name), getattr(later, name)
        return None if one is None else layout.spread(np.concatenate([one[kept], other]))

    categories = tuple(
        tuple(sorted({*mine, *others}))
        for mine, others in zip(panel.static_categories, later.static_categories, strict=True)
    )
    static = None if panel.static is None else np.zeros((S, len(categories)), np.int64)
    ahead, steps = [], np.zeros(S, np.int64)
    for one, numbers in ((panel, first), (later, second)):
        if static is not None:
            static[numbers] = in_static_categories(one, categories, _SERIES).static
        is_end = (one is later) | ~np.isin(numbers, second)
        part = one.take(np.flatnonzero(is_end))
        if part.ahead is not None:
            steps[numbers[is_end]] = np.diff(part.ahead_starts)
            ahead.append((part.ahead, numbers[is_end].repeat(np.diff(part.ahead_starts))))
    joined: NDArray[np.float64] | None = None
    if ahead:
        order = np.argsort(np.concatenate([numbers for _, numbers in ahead]), kind="stable")
        joined = np.concatenate([values for values, _ in ahead])[order]
    return replace(
        panel,
        ids=ids,
        time=layout.time,
        starts=layout.starts,
        **{name: rows(name) for name in ("values", "past_covariates", "future_covariates")},
        ahead=joined,
        ahead_starts=np.concatenate([[0], np.cumsum(steps)]),
        static=static,
        static_categories=categories,
        weights=None,
        complete=frozenset(),
    )
