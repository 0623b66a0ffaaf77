"""The runs of an experiment as a table, and what validation chooses among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import yaml

from benchmarks.paper.planned import LEFT
from tsattn.errors import UserError
from tsattn.experiments.dotted import get_at
from tsattn.leaderboard.records import Records

__all__ = ["BEHIND", "EDGE", "LEAST_SEEDS", "chosen_by_validation", "described_by", "listed", "runs_of"]

LEAST_SEEDS = 3
"""Of each arm, below which no claim is decided."""

EDGE = "`edge` says whether the rate is the least or the greatest of those tried, so that one beyond may be better."
"""What reports say of a choice at the edge of its grid."""

BEHIND = "with its rate at the edge of those tried"
"""What rules say of it."""


def runs_of(records: Records) -> pd.DataFrame:
    """All entries of the records, a row each; ``values`` is the description of the experiment as plain data.

    Raises:
        UserError: if no run is done.
    """
    frame = records.frame
    if not (frame["status"] == "done").any():
        raise UserError("no run is done, so there is nothing to report")
    frame["values"] = [yaml.load(text, yaml.CSafeLoader) if text else {} for text in frame["experiment"]]
    return frame


def described_by(runs: pd.DataFrame, **paths: str) -> pd.DataFrame:
    """The same with a column for each of some values of the experiments, None where one has no such value.

    Args:
        runs: from `runs_of`.
        **paths: by the name of the column, the dotted path of the value: ``width="model.backbone.d_model"``.
    """

    def at(values: Mapping[str, Any], path: str) -> Any:
        try:
            return get_at(values, path)
        except KeyError:
            return None

    return runs.assign(**{name: [at(values, path) for values in runs["values"]] for name, path in paths.items()})


def chosen_by_validation(
    runs: pd.DataFrame, arm: Sequence[str], candidate: Sequence[str], error: str = "validation_mse"
) -> pd.DataFrame:
    """Of each arm the runs of the candidate with the least validation error, mean over seeds.

    A candidate of which a run failed, as one that diverged, is not chosen; nor is one that has fewer seeds than another
    of the same arm. Runs that are left, see `benchmarks.paper.planned`, have no part in the choice.

    Args:
        runs: from `runs_of`, described.
        arm: the columns that tell arms apart.
        candidate: those that are chosen, such as the learning rate.
        error: the column of the validation error.

    Returns:
        rows of `runs`, with ``candidates``, how many there were; ``is_edge``, whether the first of these columns has
        the least or greatest number of those tried, as one alone has; and ``is_whole``, whether all seeds of the runs
        were tried with every candidate, and none is left, so that no later run can change the choice.
    """
    parts = []
    seeds = runs["seed"].nunique()
    for _, planned in runs.groupby([*arm], dropna=False, sort=False):
        part = planned[planned["status"] != LEFT]
        groups = part.groupby([*candidate], dropna=False, sort=False)
        whole = groups.filter(lambda group: bool((group["status"] == "done").all()))
        if not len(whole):
            continue
        sizes = whole.groupby([*candidate], dropna=False)["seed"].transform("size")
        whole = whole[sizes == sizes.max()]
        means = whole.groupby([*candidate], dropna=False)[error].transform("mean")
        best = whole[means == means.min()]
        tried = part[candidate[0]]
        is_number = pd.api.types.is_numeric_dtype(tried)
        is_edge = is_number and best[candidate[0]].iloc[0] in (tried.min(), tried.max())
        is_whole = len(part) == len(planned) and bool((groups["seed"].nunique() == seeds).all())
        parts.append(best.assign(candidates=len(groups), is_edge=is_edge, is_whole=is_whole))
    if not parts:
        return runs.iloc[:0].assign(candidates=0, is_edge=False, is_whole=False)
    return pd.concat(parts, ignore_index=True)


def listed(values: pd.Series) -> str:
    """The different numbers of a column, as a report lists them: ``200, 1000``; ``none`` where there are none."""
    return ", ".join(f"{value:g}" for value in sorted(values.dropna().unique())) or "none"
