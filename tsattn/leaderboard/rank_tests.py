"""Ranks over tables: Friedman's test, and Nemenyi's of each pair, by scikit-posthocs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pandas as pd

from tsattn.errors import UserError
from tsattn.leaderboard.standings import RankedArm, Standings

__all__ = ["Ranking", "posthocs", "rankings"]

_LEVEL = 0.05
_FEWEST_ARMS, _FEWEST_TABLES = 3, 2  # of Friedman's test


@dataclass(frozen=True)
class Ranking:
    """Mean ranks of arms over tables, 1 for the lowest MSE (Demsar 2006, *Statistical comparisons of classifiers*).

    Attributes:
        what: which arms are ranked.
        ranks: mean rank by arm, the best first.
        tables: the data sets and horizons that were ranked over.
        p: of Friedman's test that all ranks are alike.
        pairs: p-values of Nemenyi's test, by arm and arm.
        critical_difference: mean ranks that differ by less are not told apart at the 5 % level.
        left_out: arms that are not in every one of these tables.
    """

    what: str
    ranks: pd.Series[float]
    tables: Sequence[tuple[str, int]]
    p: float
    pairs: pd.DataFrame
    critical_difference: float
    left_out: Sequence[RankedArm]


def posthocs() -> ModuleType:
    """The package of the tests.

    Raises:
        UserError: if it is not installed.
    """
    try:
        import scikit_posthocs
    except ImportError as error:
        raise UserError("ranks need scikit-posthocs: pip install 'tsattn[leaderboard]'") from error
    module: ModuleType = scikit_posthocs
    return module


def rankings(board: Standings, table: pd.DataFrame) -> list[Ranking]:
    """The attentions of each predictor, and all arms; those that Friedman's test can be made of.

    Args:
        board: what was run.
        table: from `scores`.

    Raises:
        UserError: if scikit-posthocs is not installed.
    """
    predictors = list(dict.fromkeys(arm.predictor for arm in board.arms if arm.attention))
    groups = [
        (f"the attentions of {name}", [arm for arm in board.arms if arm.predictor == name]) for name in predictors
    ]
    groups.append(("all arms", board.arms))
    found = [_ranking(what, arms, table) for what, arms in groups]
    return [one for one in found if one is not None]


def _whole_part(errors: pd.DataFrame, arms: Sequence[RankedArm]) -> tuple[list[RankedArm], pd.DataFrame]:
    """The arms that are done in many tables, and the tables that have all of these: as many errors as can be."""
    counts = errors.notna().sum().to_dict()
    parts = []
    for least in sorted({counts[arm] for arm in arms}):
        kept = [arm for arm in arms if counts[arm] >= least]
        parts.append((kept, errors[kept].dropna()))
    able = [part for part in parts if len(part[0]) >= _FEWEST_ARMS and len(part[1]) >= _FEWEST_TABLES]
    return max(able or parts, key=lambda part: part[1].size)


def _ranking(what: str, arms: Sequence[RankedArm], table: pd.DataFrame) -> Ranking | None:
    names = pd.Series([RankedArm(*pair) for pair in table[["predictor", "attention"]].itertuples(index=False)])
    wanted = table.assign(arm=names.to_numpy())[names.isin(list(arms)).to_numpy()]
    errors = wanted.pivot_table(index=["dataset", "horizon"], columns="arm", values="mse", sort=False)
    if errors.empty:
        return None
    kept, whole = _whole_part(errors, [arm for arm in arms if arm in errors.columns])
    if len(kept) < _FEWEST_ARMS or len(whole) < _FEWEST_TABLES:
        return None
    from scipy.stats import friedmanchisquare, studentized_range

    whole.columns = pd.Index([str(arm) for arm in kept])
    ranks = whole.rank(axis=1).mean().sort_values(kind="stable")
    p = float(friedmanchisquare(*(whole[name] for name in whole.columns)).pvalue)
    pairs = posthocs().posthoc_nemenyi_friedman(whole.reset_index(drop=True))
    quantile = studentized_range.ppf(1 - _LEVEL, len(kept), np.inf) / np.sqrt(2)
    difference = float(quantile * np.sqrt(len(kept) * (len(kept) + 1) / (6 * len(whole))))
    tables = [(str(dataset), int(horizon)) for dataset, horizon in whole.index]
    return Ranking(what, ranks, tables, p, pairs, difference, [arm for arm in arms if arm not in kept])
