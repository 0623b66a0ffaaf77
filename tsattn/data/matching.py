"""Panels as a trained model needs them: its columns in its order, its categories, its time zone.

Shape letters: S series.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tsattn.data.category_columns import MOST, UNSEEN, Categories, aligned_categories, in_categories, recoded
from tsattn.data.frequency import Times, season_length
from tsattn.data.panel import Panel
from tsattn.data.row_ranges import are_first, blocks_of
from tsattn.data.splits import Split
from tsattn.data.stamps import in_zone_of, kept_zone, no_times_of, time_zone
from tsattn.errors import UserError, one_of, shown
from tsattn.task import UNKNOWN_ZONE, Task

__all__ = [
    *("in_static_categories", "in_zone_of_model", "match_task", "new_task", "warn_of_unknown_zone", "with_categories"),
    "with_training_categories",
]

logger = logging.getLogger("tsattn")


def new_task(panel: Panel, name: str, context_length: int, prediction_length: int) -> Task:
    """Return the task of forecasting the series of a panel, which has this name."""
    covariates = (*panel.past_names, *panel.future_names)
    return Task(
        data=name,
        context_length=context_length,
        prediction_length=prediction_length,
        channels=panel.channels,
        frequency=panel.frequency,
        season_length=season_length(panel.frequency),
        past_covariates=panel.past_names,
        future_covariates=panel.future_names,
        static=panel.static_names,
        categories=panel.static_categories,
        covariate_categories=aligned_categories(covariates, panel.covariate_categories),
        time_zone=kept_zone(panel.time),
    )


def match_task(panel: Panel, task: Task, source: str) -> Panel:
    """Give a panel the columns, categories and time zone of a trained model.

    Args:
        panel: the series.
        task: of the model; other channels are left out, which is logged.
        source: what the table is, for messages.

    Raises:
        UserError: naming what is lacking, or another frequency.
    """
    if panel.frequency != task.frequency:
        raise UserError(f"{source} has frequency {panel.frequency!r}; the model was trained on {task.frequency!r}")
    times = no_times_of(task)
    if times is not None:
        panel = in_zone_of_model(panel, times, source)
    if missing := [name for name in task.channels if name not in panel.channels]:
        raise UserError(f"{source} lacks channel {missing[0]!r}; the model was trained on {one_of(task.channels)}")
    if unused := [shown(name) for name in panel.channels if name not in task.channels]:
        noun, verb, it = ("column", "is", "it") if len(unused) == 1 else ("columns", "are", "them")
        says = "%s: %s %s %s not used: the model was not trained on %s"
        logger.warning(says, source, noun, one_of(unused), verb, it)
    for kind, wanted, names in (
        ("past covariate", task.past_covariates, panel.past_names),
        ("future covariate", task.future_covariates, panel.future_names),
        ("static column", task.static, panel.static_names),
    ):
        if missing := [name for name in wanted if name not in names]:
            raise UserError(f"{source} lacks the {kind} {missing[0]!r} that the model was trained with")
    panel = panel.select(
        channels=task.channels, past=task.past_covariates, future=task.future_covariates, static=task.static
    )
    panel = with_categories(panel, task.categories_by_covariate, source)
    return in_static_categories(panel, task.categories, source)


def with_training_categories(panel: Panel, splits: Sequence[Split]) -> Panel:
    """Limit the categories of covariates to those in the training rows.

    Raises:
        UserError: for a covariate of too many categories.
    """
    if not panel.covariate_categories:
        return panel
    ends = np.array([split.train_end for split in splits])
    seen: dict[str, tuple[str, ...]] = {}
    for part, names in ((panel.past_covariates, panel.past_names), (panel.future_covariates, panel.future_names)):
        for k, name in enumerate(names):
            if name not in panel.covariate_categories or part is None:
                continue
            codes: set[float] = set()
            for rows in blocks_of(part):
                column = part[rows][are_first(panel.starts, ends, rows), k]
                codes |= {*np.unique(column[~np.isnan(column)]).tolist()}
            known = panel.covariate_categories[name]
            seen[name] = tuple(known[int(code) - 1] for code in sorted(codes) if code)
            if not seen[name]:
                raise UserError(f"covariate {shown(name)} has no category in the training rows")
            if len(seen[name]) > MOST:
                raise UserError(
                    f"covariate {shown(name)} has {len(seen[name])} categories in the training rows; give at most "
                    f"{MOST}, or numbers"
                )
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
    """Number the categories of each static column by their place in those given; others are -1, which is logged."""
    columns = []
    for k, (name, known) in enumerate(zip(panel.static_names, wanted, strict=True)):
        assert panel.static is not None
        number = {category: i for i, category in enumerate(known)}
        own, codes = [*panel.static_categories[k], UNSEEN], panel.static[:, k]
        columns.append(np.array([number.get(category, -1) for category in own])[codes])
        texts = np.array(own, dtype=object)[codes]
        unseen = np.flatnonzero((columns[-1] < 0) & (texts != UNSEEN))
        if len(unseen):
            of = ["" if panel.is_wide else f"series {shown(panel.ids[i])} has " for i in unseen[:12]]
            named = [f"{whose}category {shown(text)}" for whose, text in zip(of, texts[unseen[:12]], strict=True)]
            more = ", ..." if len(unseen) > 12 else ""
            says = "%s: static column %s: %s, not seen in training: the mean of the learnt categories takes the place"
            logger.warning(says, source, shown(name), one_of(named) + more)
    static = np.stack(columns, axis=1).astype(np.int64) if columns else None
    return replace(panel, static=static, static_categories=tuple(map(tuple, wanted)))


def in_zone_of_model(panel: Panel, time: Times, source: str) -> Panel:
    """Convert the time stamps of a panel to the zone of those that a model was fitted on.

    Args:
        panel: the series.
        time: of the model; none are needed.
        source: what the table is, for messages.

    Raises:
        UserError: if one has a zone and the other has not, one counts steps, or days are no days there.
    """
    return replace(panel, time=in_zone_of(time, panel.time, source, "what the model was fitted on"))


def warn_of_unknown_zone(panel: Panel, task: Task, source: str) -> None:
    """Log that time stamps have a zone, but the one of the model was not saved with it."""
    zone = time_zone(panel.time)
    if task.time_zone == UNKNOWN_ZONE and zone is not None:
        logger.warning(
            "%s: the time zone of the model was not kept when it was saved; time stamps are taken in theirs, %s, as if "
            "that were the same",
            source,
            zone,
        )
