"""Change panels: match the columns, categories and zone of a trained model, add a future, or append later rows.

Shape letters: S series.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.data.assembly import Assembly
from tsattn.data.columns import MOST, UNSEEN, Categories, first_names, id_order, in_categories, recoded
from tsattn.data.frequency import Grid, counts, season_length
from tsattn.data.panel import Panel
from tsattn.data.row_ranges import are_first, blocks_of
from tsattn.data.splits import Split
from tsattn.data.stamps import in_zone_of, kept_zone, no_times_of, time_zone
from tsattn.data.table_options import TableOptions
from tsattn.data.table_rows import Roles, Rows, future_rows
from tsattn.errors import UserError, one_of, quiet, shown
from tsattn.task import Task

logger = logging.getLogger("tsattn")


def new_task(panel: Panel, name: str, context_length: int, prediction_length: int, season: int | None) -> Task:
    """Return the task of forecasting the series of a panel called `name`; `season` None follows from the frequency."""
    covariates, known = (*panel.past_names, *panel.future_names), panel.covariate_categories
    return Task(
        data=name,
        context_length=context_length,
        prediction_length=prediction_length,
        channels=panel.channels,
        frequency=panel.frequency,
        season_length=season_length(panel.frequency) if season is None else season,
        past_covariates=panel.past_names,
        future_covariates=panel.future_names,
        static=panel.static_names,
        categories=panel.static_categories,
        covariate_categories=tuple(known.get(name, ()) for name in covariates) if known else (),
        time_zone=kept_zone(panel.time),
    )


def match_task(panel: Panel, task: Task, source: str, *, tells_zone: bool = False) -> Panel:
    """Match a panel from `source` to a trained model's columns, categories and zone; log channels that are left out."""
    if panel.frequency != task.frequency:
        raise UserError(f"{source} has frequency {panel.frequency!r}; the model was trained on {task.frequency!r}")
    times, zone = no_times_of(task), time_zone(panel.time)
    if times is not None:
        panel = replace(panel, time=in_zone_of(times, panel.time, source, "the training data"))
    elif zone is not None and tells_zone:
        says = "%s: the time zone of the saved model is unknown; time stamps are read in their own time zone, %s"
        logger.warning(f"{says}, as if it were the same", source, zone)
    if missing := [name for name in task.channels if name not in panel.channels]:
        raise UserError(f"{source} lacks channel {missing[0]!r}; the model was trained on {one_of(task.channels)}")
    if unused := [shown(name) for name in panel.channels if name not in task.channels]:
        noun, verb, it = ("column", "is", "it") if len(unused) == 1 else ("columns", "are", "them")
        says = "%s: %s %s %s not used: the model was not trained on %s"
        logger.warning(says, source, noun, one_of(unused), verb, it)
    covariates = {"past": task.past_covariates, "future": task.future_covariates, "static": task.static}
    for kind, wanted in covariates.items():
        if missing := [name for name in wanted if name not in getattr(panel, f"{kind}_names")]:
            what = "static column" if kind == "static" else f"{kind} covariate"
            raise UserError(f"{source} lacks the {what} {missing[0]!r} that the model was trained with")
    panel = panel.select(channels=task.channels, **covariates)
    panel = with_categories(panel, task.categories_by_covariate, source)
    return in_static_categories(panel, task.categories, source)


def with_training_categories(panel: Panel, splits: Sequence[Split]) -> Panel:
    """Limit the categories of covariates to categories in the training rows; UserError for too many, or none."""
    if not panel.covariate_categories:
        return panel
    ends = np.array([split.train_end for split in splits])
    seen: dict[str, tuple[str, ...]] = {}
    for part, names in ((panel.past_covariates, panel.past_names), (panel.future_covariates, panel.future_names)):
        for k, name in enumerate(names):
            if name not in panel.covariate_categories or part is None:
                continue
            blocks = (part[rows][are_first(panel.starts, ends, rows), k] for rows in blocks_of(part))
            codes = set[int]().union(*(block[block > 0].astype(int).tolist() for block in blocks))
            seen[name] = tuple(panel.covariate_categories[name][code - 1] for code in sorted(codes))
            if not seen[name]:
                raise UserError(f"covariate {shown(name)} has no category in the training rows")
            if len(seen[name]) > MOST:
                has = f"covariate {shown(name)} has {len(seen[name])} categories in the training rows"
                raise UserError(f"{has}; use at most {MOST}, or numbers")
    return with_categories(panel, seen, "the series")


def with_categories(panel: Panel, wanted: Categories, source: str) -> Panel:
    """Number the categories of covariates as a trained model does, see `in_categories`."""
    have, past, future = panel.covariate_categories, panel.past_names, panel.future_names
    if not have and not wanted:
        return panel
    return replace(
        panel,
        past_covariates=in_categories(panel.past_covariates, past, have, wanted, source),
        future_covariates=in_categories(panel.future_covariates, future, have, wanted, source),
        ahead=None if panel.ahead is None else recoded(panel.ahead, have, future, wanted),
        covariate_categories=dict(wanted),
    )


def in_static_categories(panel: Panel, wanted: Sequence[Sequence[str]], source: str) -> Panel:
    """Number the categories of each static column by their place in `wanted`; others are logged and get -1."""
    columns = []
    for k, (name, known) in enumerate(zip(panel.static_names, wanted, strict=True)):
        number = {category: i for i, category in enumerate(known)}
        own, codes = [*panel.static_categories[k], UNSEEN], np.asarray(panel.static)[:, k]
        columns.append(np.array([number.get(category, -1) for category in own])[codes])
        texts = np.array(own, dtype=object)[codes]
        unseen = np.flatnonzero((columns[-1] < 0) & (texts != UNSEEN)).tolist()
        if unseen:
            of = ["" if panel.is_wide else f"series {shown(panel.ids[i])} has " for i in unseen]
            named = [f"{whose}category {shown(texts[i])}" for whose, i in zip(of, unseen, strict=True)]
            says = "%s: static column %s: %s, not seen in training, replaced by the mean of the trained categories"
            logger.warning(says, source, shown(name), first_names(named, str))
    static = np.stack(columns, axis=1).astype(np.int64) if columns else None
    return replace(panel, static=static, static_categories=tuple(map(tuple, wanted)))


_PLAIN = TableOptions()
_SERIES, _LATER = "the series", "the table of later rows"


def with_future(panel: Panel, future: Any, text: TableOptions = _PLAIN) -> Panel:
    """Replace a panel's future covariates by a frame or file; log series that are not in the panel."""
    S, F = len(panel), len(panel.future_names)
    roles = Roles(None if panel.is_wide else panel.id_name, panel.time_name, ("value",), future=panel.future_names)
    categories = {name: panel.covariate_categories[name] for name in roles.future if name in panel.covariate_categories}
    last, none = panel.time[panel.starts[1:] - 1], np.zeros((S, 0))
    arrays = np.zeros((S, 1)), none, np.zeros((S, F)), none, none
    own = Rows(
        panel.ids, np.arange(S), last, *arrays, lambda row: f"{_SERIES}, row {panel.starts[row + 1]}", categories
    )
    rows = future_rows(future, own, roles, text, _SERIES)
    place = {name: number for number, name in enumerate(panel.ids)}
    ends = counts(last)[[place[name] for name in rows.names]][rows.series]
    for row in np.flatnonzero(counts(rows.time) <= ends)[:1].tolist():
        of = "" if panel.is_wide else f" of series {shown(rows.names[rows.series[row]])}"
        stamp = f"time stamp {rows.time[row]}{of}"
        raise UserError(f"{rows.where(row)}: {stamp} is not after the last row with a target; give later rows only")
    parts, named = [own, rows], (roles, _SERIES, lambda row: rows.where(row - S))
    joined, _ = Assembly(lambda: parts, *named, frequency=panel.frequency).panel()
    with quiet(lifted=True):  # log about the future even if the panel was read before
        ahead = in_categories(joined.ahead, roles.future, joined.covariate_categories, categories, "the future")
    return replace(panel, ahead=ahead, ahead_starts=joined.ahead_starts)


def appended(panel: Panel, later: Panel) -> Panel:
    """Join two panels in memory. A series in both keeps the first panel's rows before the second panel's first row.

    Missing time stamps in between are filled as missing. The future of a series comes from the panel in which it ends.
    UserError if columns, frequencies or time grids differ.
    """
    for what in ("channels", "past_names", "future_names", "static_names", "frequency", "is_wide"):
        if getattr(panel, what) != getattr(later, what):
            before, after = (shown(repr(getattr(one, what))) for one in (panel, later))
            raise UserError(f"the later rows have {what} {after}, but earlier rows {before}; both need the same")
    later = with_categories(later, panel.covariate_categories, _LATER)
    later = replace(later, time=in_zone_of(panel.time, later.time, _LATER, "the table before"))
    names, both = list(dict.fromkeys([*panel.ids, *later.ids])), (panel, later)
    ids = tuple(names[place] for place in id_order(names))
    S, place = len(ids), {name: number for number, name in enumerate(ids)}
    first, second = (np.array([place[name] for name in one.ids], np.int64) for one in both)
    # split all stamps together: stamps that a change of clocks moved get the usual time of day from the others
    edges = [one.time[rows] for one in both for rows in (one.starts[:-1], one.starts[1:] - 1)]
    grid = Grid(edges[0].append(edges[1:]), panel.frequency)
    coordinates, found = grid.split(edges[1].append(edges[2]))
    n, numbers, lengths = len(panel), np.concatenate([first, second]), np.concatenate([one.lengths for one in both])
    begin = np.concatenate([coordinates[:n] + 1 - panel.lengths, coordinates[n:]])
    phase, end = np.zeros((2, S), np.int64)
    origin, cut = np.full((2, S), np.iinfo(np.int64).max)  # first coordinate of each series, and of its later rows
    phase[first] = found[:n]
    wrong = second[np.isin(second, first) & (phase[second] != found[n:])]
    if wrong.size:
        whose = f"the later rows of series {shown(ids[wrong[0]])}"
        needs = f"both need the same, at frequency {panel.frequency!r}"
        raise UserError(f"{whose} are not on the time grid of the rows before; {needs}")
    phase[second], cut[second] = found[n:], begin[n:]
    end[numbers] = begin + lengths  # for a series in both, the end in the later panel
    np.minimum.at(origin, numbers, begin)
    starts = np.concatenate([[0], np.cumsum(end - origin)])
    owner, number = numbers.repeat(lengths), np.arange(lengths.sum())
    step = number - (np.cumsum(lengths) - lengths - begin).repeat(lengths)  # the coordinate of each row
    kept = (number >= len(panel.time)) | (step < cut[owner])
    to = (starts[:-1] - origin)[owner[kept]] + step[kept]

    def rows(name: str) -> Any:
        if getattr(panel, name) is None:
            return None
        joined = np.concatenate([getattr(one, name) for one in both])
        result = np.full((starts[-1], joined.shape[1]), np.nan)
        result[to] = joined[kept]
        return result

    time = grid.join(np.arange(starts[-1]) - (starts[:-1] - origin).repeat(end - origin), phase.repeat(end - origin))
    place_of = np.arange(len(time))  # keep given stamps: a grid cannot separate the two stamps of a repeated hour
    place_of[to] = len(time) + np.flatnonzero(kept)
    time = time.append([panel.time, later.time]).take(place_of)
    if isinstance(panel.time, pd.DatetimeIndex) and isinstance(time, pd.DatetimeIndex):
        time = time.as_unit(panel.time.unit)
    wholes = {name: rows(name) for name in ("values", "past_covariates", "future_covariates")}
    joined = replace(panel, ids=ids, time=time, starts=starts, weights=None, **wholes)
    return _with_other_parts(joined, (panel, first), (later, second))


def _with_other_parts(joined: Panel, *parts: tuple[Panel, NDArray[np.int64]]) -> Panel:
    """Take the future of each series from the panel in which it ends, and static columns from the later panel first."""
    (panel, first), (later, second) = parts
    S = len(joined)
    kinds = zip(panel.static_categories, later.static_categories, strict=True)
    categories = tuple(tuple(sorted({*mine, *others})) for mine, others in kinds)
    static: Any = None if panel.static is None else np.zeros((S, len(categories)), np.int64)
    for one, numbers in parts if static is not None else ():
        static[numbers] = np.asarray(in_static_categories(one, categories, _SERIES).static)
    ahead_of = np.concatenate([first.repeat(np.diff(panel.ahead_starts)), second.repeat(np.diff(later.ahead_starts))])
    is_last = ~np.isin(ahead_of, second) | (np.arange(len(ahead_of)) >= panel.ahead_starts[-1])
    order = np.flatnonzero(is_last)[np.argsort(ahead_of[is_last], kind="stable")]
    steps = np.bincount(ahead_of[is_last], minlength=S)
    known = None if panel.ahead is None or later.ahead is None else np.concatenate([panel.ahead, later.ahead])[order]
    ahead_starts = np.concatenate([[0], np.cumsum(steps)])
    return replace(joined, ahead=known, ahead_starts=ahead_starts, static=static, static_categories=categories)
