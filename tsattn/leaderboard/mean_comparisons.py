"""Paired comparisons of means over horizons: of the few arms that were chosen, with standard attention and the ridge.

Every single horizon is compared in `tsattn.leaderboard.comparisons`, corrected for hundreds of others. What a board is
read for is less: whether the arm that was chosen on validation, without a look at the test, has a lower mean error over
all horizons than what it should be held against. These comparisons are a family of their own, and are corrected for
their own number.

Windows of several horizons cover the same time, so that their luck hangs together, nobody knows how closely. It is
taken to be the same at all horizons: the quantiles of the deviations of every horizon are averaged. No other way to
hang together makes a mean vary more (Dhaene et al. 2002, *The concept of comonotonicity in actuarial science and
finance: theory*), so that intervals are rather too wide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tsattn.leaderboard.comparisons import LEVEL, RESAMPLES, adjusted, verdict_of
from tsattn.leaderboard.deviations import Deviations
from tsattn.leaderboard.paired_errors import Pair, PairedErrors
from tsattn.leaderboard.standings import RankedArm, Standings

__all__ = ["MeanPair", "compare_means"]

_METRIC = "mse"
_COLUMNS = [
    *("dataset", "predictor", "attention", "against", "horizons", "mean", "reference", "difference", "low", "high"),
    *("p", "holm", "detectable", "is_other_loss", "undecided", "verdict"),
]


@dataclass(frozen=True, order=True)
class MeanPair:
    """Two arms on a data set.

    Attributes:
        dataset: of the board.
        arm: what is compared.
        reference: with what.
    """

    dataset: str
    arm: RankedArm
    reference: RankedArm


def compare_means(board: Standings, pairs: Iterable[MeanPair], resamples: int | None = None) -> pd.DataFrame:
    """The MSE of arms, mean over all horizons of a data set, beside that of others, corrected for their number.

    Args:
        board: what was run.
        pairs: that are compared; one that is there twice is compared once.
        resamples: of the bootstrap, 20,000 by default.

    Returns:
        A row a pair, with ``against``, the attention of the reference, or the predictor of one that has none;
        ``horizons``, a tuple of those that the means are over; ``mean`` and ``reference``, the errors; ``difference``
        with its 95 % interval from ``low`` to ``high``, and all of these in percent of the reference as ``percent``,
        ``percent_low`` and ``percent_high``; ``p`` and ``holm``; ``detectable`` and ``percent_detectable``;
        ``is_other_loss``, whether both were trained by different losses at any horizon; ``verdict``, see
        `tsattn.leaderboard.comparisons.compare_all`; and ``undecided``, by the reason (``one seed``, ``no interval``,
        ``not run``) at which horizons nothing can be
        told, which are in no mean. Of what was not run at a horizon there is no mean at all.
    """
    rows, found = [], []
    by_dataset: dict[str, PairedErrors] = {}
    for pair in dict.fromkeys(pairs):
        if pair.dataset not in by_dataset:
            by_dataset[pair.dataset] = PairedErrors(
                board, pair.dataset, _is_any, _is_any, resamples=resamples or RESAMPLES
            )
        row, deviations = _compared(board, by_dataset[pair.dataset], pair)
        rows.append(row)
        found.append(deviations)
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    tested = frame["p"].notna().to_numpy()
    frame.loc[tested, "holm"] = adjusted(frame.loc[tested, "p"].to_numpy(float))
    strictest = LEVEL / max(1, int(tested.sum()))
    frame["detectable"] = [np.nan if one is None else one.detectable(strictest) for one in found]
    for name in ("difference", "low", "high", "detectable"):
        percent = "percent" if name == "difference" else f"percent_{name}"
        frame[percent] = 100 * frame[name].astype(float) / frame["reference"].astype(float)
    judged = frame[["difference", "low", "high", "holm"]].astype(float)
    frame["verdict"] = [verdict_of(*values) for values in judged.itertuples(index=False, name=None)]
    return frame


def _compared(board: Standings, errors: PairedErrors, pair: MeanPair) -> tuple[dict[str, object], Deviations | None]:
    """The row of a pair, and by how much its mean difference would differ had time and seeds been others."""
    horizons = board.horizons(pair.dataset)
    arm, reference = pair.arm, pair.reference
    of_horizon = {
        horizon: next(
            (
                one
                for one in errors.compared(Pair(pair.dataset, horizon, arm, reference))
                if one[0]["metric"] == _METRIC
            ),
            None,
        )
        for horizon in horizons
    }
    known = {horizon: one for horizon, one in of_horizon.items() if one is not None}
    undecided: dict[str, list[int]] = {}
    for horizon, one in of_horizon.items():
        word = _undecided(one)
        if word:
            undecided.setdefault(word, []).append(horizon)
    told = [horizon for horizon, one in of_horizon.items() if not _undecided(one)]
    is_told = bool(told) and len(known) == len(horizons)
    row: dict[str, object] = {"dataset": pair.dataset, "predictor": arm.predictor, "attention": arm.attention}
    row |= {"against": reference.attention or reference.predictor, "undecided": undecided}
    row["horizons"] = tuple(told) if is_told else tuple(horizons)
    for name in ("mean", "reference", "difference"):
        over = told if is_told else horizons if len(known) == len(horizons) else []
        row[name] = float(np.mean([float(str(known[one][0][name])) for one in over])) if over else np.nan
    losses = [[board.loss(pair.dataset, horizon, one) for one in (arm, reference)] for horizon in known]
    row["is_other_loss"] = any(one != other != "" for one, other in losses)
    row |= dict.fromkeys(("low", "high", "p", "holm"), np.nan)
    if not is_told:
        return row, None
    deviations = _together([one for one in (known[horizon][1] for horizon in told) if one is not None])
    difference = float(str(row["difference"]))
    row["low"], row["high"] = deviations.interval(difference)
    row["p"] = deviations.p_value(difference)
    return row, deviations


def _undecided(compared: tuple[dict[str, object], Deviations | None] | None) -> str:
    """Why a horizon tells nothing; empty where it does."""
    if compared is None:
        return "not run"
    row, deviations = compared
    if deviations is None:
        return "no interval"
    return "one seed" if np.isnan(float(str(row["p"]))) else ""


def _together(parts: list[Deviations]) -> Deviations:
    """Of the mean of several, all of which are as lucky as each other."""
    count = min(len(one.values) for one in parts)
    levels = (np.arange(count) + 0.5) / count
    values = np.mean([np.quantile(one.values, levels) for one in parts], axis=0)
    spread = float(np.mean([one.spread for one in parts]))
    return Deviations(values, [(spread, min(one.freedom for one in parts))])


def _is_any(seed: int) -> bool:
    return True
