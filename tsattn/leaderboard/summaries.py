"""What runs came to: means and spreads, means over horizons, skill, and what validation would have chosen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.leaderboard.attention_share import attention_share
from tsattn.leaderboard.own_seconds import highest_memory, known_seconds
from tsattn.leaderboard.standings import RIDGE, RankedArm, Standings

__all__ = [
    "LEAST_WEIGHT",
    "ROLLING",
    "beside_the_ridge",
    "choices",
    "comparable",
    "horizon_means",
    "scores",
]

LEAST_WEIGHT = 0.25
"""Of the trained attention in an ensemble that counts as one that holds it."""

ROLLING = "rolling origins"

_ARM = ["predictor", "attention"]
_TABLE = ["dataset", "horizon"]
_SCALED = ["mase", "wql"]
_TEST = ["mse", "mae", *_SCALED]
_COSTS = ["flops", "seconds", "parameters", "peak_memory", "weight"]
_ERRORS = [*_TEST, "validation_mse", "validation_mae"]
_MEANS = [*_ERRORS, *_COSTS]
_WHOLE = [*_ERRORS, "seconds", "peak_memory"]
_SAME = ["context_length", "windows", "trained_windows", "pretraining"]


def scores(board: Standings) -> pd.DataFrame:
    """Mean and spread over seeds of every arm in every table.

    Returns:
        A row a data set, horizon and arm, with ``seeds``, how many runs there are; the means of ``mse``, ``mae``,
        ``mase`` and ``wql``, NaN where records have none, ``validation_mse``, ``validation_mae``, ``flops``,
        ``seconds``, ``parameters``, ``peak_memory`` and ``weight``, that of trained members with an attention;
        ``mse_spread`` and the like of the other test errors, the standard deviation over seeds, NaN of a single one;
        ``context_length``, ``windows``, ``trained_windows`` and ``pretraining``; and ``skill``, by how many percent the
        MSE lies below that of the ridge of the same table, NaN without a ridge, or with one that was tested on other
        windows. An error that one of several seeds lacks is NaN, and so are seconds and memory.
    """
    done = board.done.astype(dict.fromkeys(_MEANS, "float64"))
    done["seconds"], done["peak_memory"] = known_seconds(done), highest_memory(done)
    done["weight"] = [*map(attention_share, done["experiment"], done["weight"])]
    groups = done.groupby([*_TABLE, *_ARM], sort=False)
    found = groups[_MEANS].mean()
    # the mean of the other seeds, or horizons, would be one of another set of runs
    found[_WHOLE] = groups[_WHOLE].mean(skipna=False)
    for metric in _TEST:
        found[f"{metric}_spread"] = groups[metric].std().where(found[metric].notna())
    found["seeds"] = groups.size()
    found[_SAME] = groups[_SAME].first()
    found["pretraining"] = found["pretraining"].fillna("")  # of records from before it was kept
    found = found.reset_index()
    found["skill"] = np.where(beside_the_ridge(found), _skill(found, _TABLE), np.nan)
    order = {arm: number for number, arm in enumerate(board.arms)}
    datasets = {name: number for number, name in enumerate(board.datasets)}
    places = [
        (datasets[dataset], horizon, order[RankedArm(predictor, attention)])
        for dataset, horizon, predictor, attention in found[[*_TABLE, *_ARM]].itertuples(index=False)
    ]
    return found.iloc[sorted(range(len(found)), key=places.__getitem__)].reset_index(drop=True)


def horizon_means(board: Standings, table: pd.DataFrame) -> pd.DataFrame:
    """Means over the horizons of each data set, of those arms that have all of them.

    Args:
        board: what was run.
        table: from `scores`.

    Returns:
        A row a data set and arm: the means of all scores, NaN where a horizon is missing, or lacks that error;
        ``skill`` of the mean MSE, NaN where it is NaN at a horizon; ``missing``, the horizons that are not there;
        ``pretraining``; ``seeds``, the least, and ``most_seeds``, the most of any horizon.
    """
    rows = []
    for (dataset, *names), part in table.groupby(["dataset", *_ARM], sort=False):
        missing = sorted(set(board.horizons(str(dataset))) - set(part["horizon"]))
        means = part[_MEANS].mean() * (np.nan if missing else 1.0)
        # a horizon from before the scaled ones were kept has none
        means[_WHOLE] = part[_WHOLE].mean(skipna=False) * (np.nan if missing else 1.0)
        row = {"dataset": dataset, "predictor": names[0], "attention": names[1], "missing": missing}
        row |= {str(name): value for name, value in means.items()}
        row["pretraining"] = part["pretraining"].iloc[0]
        row["has_skill"] = part["skill"].notna().all()
        rows.append({**row, "seeds": part["seeds"].min(), "most_seeds": part["seeds"].max()})
    found = pd.DataFrame(rows, columns=["dataset", *_ARM, *_MEANS, "missing", "pretraining", "seeds", "most_seeds"])
    has_skill = np.array([row["has_skill"] for row in rows], bool)
    found["skill"] = np.where(has_skill, _skill(found, ["dataset"]), np.nan)
    return found


def choices(board: Standings, means: pd.DataFrame, origins: pd.DataFrame | None = None) -> pd.DataFrame:
    """For each data set the arms that validation and rolling origins choose, and the one that the test would, which is
    no choice.

    Args:
        board: what was run.
        means: from `horizon_means`.
        origins: from `tsattn.leaderboard.origins.read_origins`, if arms were scored there; of these the `comparable`.

    Returns:
        A row a data set, ``by`` (``validation``, ``rolling origins`` or ``test``, by the lowest error) and
        ``among``: ``attention``, the arms that hold a trained attention, alone or with a weight of at least
        `LEAST_WEIGHT`, or ``all``. It has the columns of ``means``, and of the same arm without that member
        ``without``, its name, empty where nothing is left, with ``without_mse`` and ``without_mae``, NaN where
        it was not run.
    """
    rows = []
    whole = means[means["mse"].notna()].copy()
    whole["rolling"] = _on_origins(whole, origins)
    for dataset, part in whole.groupby("dataset", sort=False):
        arms = [RankedArm(*names) for names in part[_ARM].itertuples(index=False)]
        holds = np.array([board.has_attention(arm) for arm in arms]) & (part["weight"] >= LEAST_WEIGHT).to_numpy()
        known = {str(arm): number for number, arm in enumerate(arms)}
        for among, candidates in (("attention", part[holds]), ("all", part)):
            for by, column in (("validation", "validation_mse"), (ROLLING, "rolling"), ("test", "mse")):
                if candidates[column].notna().any():
                    best = candidates.iloc[int(candidates[column].argmin())].to_dict()
                    without = board.without_attention(RankedArm(best["predictor"], best["attention"]))
                    other = part.iloc[known[without]] if without in known else None
                    row = {"dataset": dataset, "among": among, "by": by, **best, "without": without}
                    for metric in ("mse", "mae"):
                        row[f"without_{metric}"] = np.nan if other is None else other[metric]
                    rows.append(row)
    return pd.DataFrame(
        rows, columns=["among", "by", "rolling", *means.columns, "without", "without_mse", "without_mae"]
    )


def _on_origins(means: pd.DataFrame, origins: pd.DataFrame | None) -> list[float]:
    """The error of each arm on rolling origins; NaN where it was not scored there."""
    names = ["dataset", *_ARM]
    known = {} if origins is None else comparable(origins).set_index(names)["error"].to_dict()
    return [known.get(arm, np.nan) for arm in means[names].itertuples(index=False, name=None)]


def comparable(origins: pd.DataFrame) -> pd.DataFrame:
    """Of each data set the rows at one horizon and of one number of blocks, since errors of others are no rivals.

    Args:
        origins: from `tsattn.leaderboard.origins.read_origins`.

    Returns:
        The rows at that horizon and of that number of which there are most arms; of as many those of more blocks, then
        those at the shorter horizon.
    """
    kinds = [
        (str(dataset), len(errors), -int(horizon))
        for dataset, errors, horizon in zip(origins["dataset"], origins["origins"], origins["horizon"], strict=True)
    ]
    best: dict[str, tuple[int, int, int]] = {}
    for (dataset, blocks, horizon), arms in Counter(kinds).items():
        best[dataset] = max(best.get(dataset, (0, 0, 0)), (arms, blocks, horizon))
    return origins[np.array([kind[1:] == best[kind[0]][1:] for kind in kinds], bool)]


def beside_the_ridge(table: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows of `scores` are of as many windows as the ridge of the same table; all where there is none."""
    is_ridge = (table["predictor"] == RIDGE) & (table["attention"] == "")
    own = table["windows"].astype("Int64").fillna(0)
    keys = [*table[_TABLE].itertuples(index=False, name=None)]
    windows = {key: one for key, one, is_one in zip(keys, own, is_ridge, strict=True) if is_one}
    return np.array([windows.get(key, one) == one for key, one in zip(keys, own, strict=True)], bool)


def _skill(table: pd.DataFrame, by: list[str]) -> NDArray[np.float64]:
    """By how many percent each MSE lies below that of the ridge of the same group; NaN without a ridge."""
    ridge = table[(table["predictor"] == RIDGE) & (table["attention"] == "")].set_index(by)["mse"].to_dict()
    keys = table[by[0]] if len(by) == 1 else list(table[by].itertuples(index=False, name=None))
    beside = np.array([ridge.get(key, np.nan) for key in keys], np.float64)
    return np.asarray(100 * (1 - table["mse"].to_numpy(np.float64) / beside), np.float64)
