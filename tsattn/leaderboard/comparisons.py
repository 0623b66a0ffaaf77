"""Paired comparisons of arms: with standard attention of the same predictor, and with the ridge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.leaderboard.deviations import Deviations
from tsattn.leaderboard.paired_errors import COMPARISON, Pair, PairedErrors, Seeds, predictor_of
from tsattn.leaderboard.standings import METRICS, RIDGE, STANDARD, RankedArm, Standings

__all__ = [
    "COMPARISON",
    "LEVEL",
    "RESAMPLES",
    "Pair",
    "adjusted",
    "by_block_length",
    "compare_all",
    "compare_pairs",
    "confirm",
    "planned",
    "verdict_of",
]

LEVEL = 0.05
"""Of significance, after correction."""

RESAMPLES = 20_000
"""Of the bootstrap, unless others are asked for."""


def planned(board: Standings) -> list[Pair]:
    """Every pair that is compared: attentions and ablations with standard attention, and all of them with the ridge."""
    beside_standard, beside_ridge = [], []
    for dataset, horizon in board.tables:
        arms = board.arms_of(dataset, horizon)
        for arm in (one for one in arms if one.attention):
            standard, ridge = RankedArm(arm.predictor, STANDARD), RankedArm(RIDGE)
            if arm != standard and standard in arms:
                beside_standard.append(Pair(dataset, horizon, arm, standard))
            if ridge in arms:
                beside_ridge.append(Pair(dataset, horizon, arm, ridge))
    return beside_standard + beside_ridge


def compare_all(
    board: Standings,
    *,
    without: Collection[int] = (),
    resamples: int | None = None,
    stretch: float = 1.0,
) -> pd.DataFrame:
    """Every comparison of a board, corrected for their number.

    Args:
        board: what was run.
        without: seeds that are left out, as they are to confirm what is found.
        resamples: of the bootstrap, 20,000 by default.
        stretch: of its blocks, to see what hangs on their length; see
            `tsattn.leaderboard.block_bootstrap.block_length`.

    Returns:
        A row a comparison: the columns `COMPARISON`, where ``against`` is ``standard`` or ``ridge``; ``seeds`` and
        ``reference_seeds``, how many, and ``is_paired``, whether seed by seed; ``mean`` and ``reference``, the errors
        over all windows and seeds; ``difference`` with the 95 % interval from ``low`` to ``high``; ``percent``,
        ``percent_low`` and ``percent_high``, the same relative to the error of the reference; ``p``, and ``holm``,
        corrected; ``detectable``, ``percent_detectable``, the smallest difference that is found in 80 of 100 cases
        where Holm's procedure is strictest; ``blocks`` and ``block_length`` of the bootstrap, and ``seed_freedom``, the
        degrees of freedom of what is known of the luck of seeds; ``loss`` and ``reference_loss``, by which both were
        trained, and ``is_other_loss``, whether these differ, which alone can make a difference; ``verdict``:
        ``better``, ``worse`` or ``tie``, ``one seed`` where nothing is known of that luck, so that the interval is one
        of these models alone and there is no p-value, or ``no interval`` where there are fewer than two blocks, or the
        windows are not the same.
    """

    def known(seed: int) -> bool:
        return seed not in without

    return _compared(board, planned(board), known, known, resamples, stretch=stretch)


def compare_pairs(
    board: Standings,
    pairs: Iterable[Pair],
    metrics: Collection[str] = tuple(METRICS),
    resamples: int | None = None,
    alike: Callable[[RankedArm], str] = predictor_of,
) -> pd.DataFrame:
    """Some comparisons of a board, corrected for the number of these.

    Args:
        board: what was run.
        pairs: that are compared; one that is there twice is compared once.
        metrics: of `METRICS`.
        resamples: see `compare_all`.
        alike: by what an arm is called together with all others the luck of whose seeds is taken to be alike, unless
            its own is larger than theirs.

    Returns:
        As `compare_all`, where ``against`` is the attention of the reference, or the predictor of one that has none.
    """
    pairs = list(dict.fromkeys(pairs))

    def is_any(seed: int) -> bool:
        return True

    only = {(*pair.names, metric) for pair in pairs for metric in metrics}
    return _compared(board, pairs, is_any, is_any, resamples, only=only, alike=alike)


def confirm(
    board: Standings, seeds: Collection[int], resamples: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What other seeds found, and what is left of that with seeds that chose nothing.

    Args:
        board: what was run.
        seeds: the fresh ones; none of them has a part in the choice.
        resamples: see `compare_all`.

    Returns:
        The comparisons without these seeds; and of those among them that differ from standard attention, the
        comparisons of the means of these seeds alone, corrected for their number. How far seeds lie apart is learnt
        from all of them.
    """
    found = compare_all(board, without=seeds, resamples=resamples)
    chosen = found[found["verdict"].isin(["better", "worse"]) & (found["against"] == STANDARD)]
    named = set(chosen[COMPARISON[:5]].itertuples(index=False, name=None))
    pairs = [pair for pair in planned(board) if pair.names in named]

    def is_fresh(seed: int) -> bool:
        return seed in seeds

    def is_any(seed: int) -> bool:
        return True

    only = set(chosen[COMPARISON].itertuples(index=False, name=None))
    return found, _compared(board, pairs, is_fresh, is_any, resamples, only=only)


STRETCHES = (0.5, 1.0, 2.0, 4.0)
"""Of the blocks, at which `by_block_length` looks."""


def by_block_length(
    board: Standings, found: pd.DataFrame, *, without: Collection[int] = (), resamples: int | None = None
) -> pd.DataFrame:
    """How far what was found to differ from standard attention hangs on the length of the bootstrap's blocks.

    Differences that do not forget within a block are taken for surer than they are: then p-values grow with it.

    Args:
        board: what was run.
        found: what `compare_all` says of it.
        without: see `compare_all`.
        resamples: see `compare_all`.

    Returns:
        A row for each difference from standard attention and each length of `STRETCHES`, without those that come to the
        same length: the columns of `compare_all` but for what is ``detectable``, where ``holm`` is corrected beside
        all other p-values of ``found`` as they are.
    """
    chosen = found[found["verdict"].isin(["better", "worse"]) & (found["against"] == STANDARD)]
    only = set(chosen[COMPARISON].itertuples(index=False, name=None))
    named = {name[:5] for name in only}
    pairs = [pair for pair in planned(board) if pair.names in named]

    def known(seed: int) -> bool:
        return seed not in without

    own = found.set_index(COMPARISON)["p"]
    parts = [found.iloc[:0].drop(columns=[*_DETECTABLE])]
    for stretch in STRETCHES if pairs else ():
        part = _compared(board, pairs, known, known, resamples, only=only, stretch=stretch)
        part = part.drop(columns=[*_DETECTABLE])
        for place, row in enumerate(part[[*COMPARISON, "p"]].itertuples(index=False, name=None)):
            beside = own.drop(index=[row[:-1]]).dropna().to_numpy(float)
            part.loc[place, "holm"] = adjusted(np.append(beside, float(row[-1])))[-1]
        parts.append(part)
    lengths = pd.concat(parts, ignore_index=True).drop_duplicates([*COMPARISON, "block_length"])
    lengths["verdict"] = [verdict_of(*values) for values in zip(*(lengths[name] for name in _JUDGED), strict=True)]
    return lengths.sort_values([*COMPARISON, "block_length"], kind="stable", ignore_index=True)


def adjusted(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """P-values corrected by Holm's procedure (1979, *A simple sequentially rejective multiple test procedure*).

    Args:
        p_values: `(m,)` of every comparison that was made.
    """
    order = np.argsort(p_values, kind="stable")
    left = np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(np.maximum.accumulate(p_values[order] * left), 1.0)
    return corrected


def _compared(
    board: Standings,
    pairs: Iterable[Pair],
    is_used: Seeds,
    is_known: Seeds,
    resamples: int | None,
    only: Collection[tuple[object, ...]] | None = None,
    alike: Callable[[RankedArm], str] = predictor_of,
    stretch: float = 1.0,
) -> pd.DataFrame:
    pairs = list(pairs)
    rows: list[dict[str, object]] = []
    found: list[Deviations | None] = []
    for dataset in dict.fromkeys(pair.dataset for pair in pairs):
        drawn = PairedErrors(board, dataset, is_used, is_known, resamples or RESAMPLES, alike, stretch)
        for pair in pairs:
            if pair.dataset == dataset:
                for row, deviation in drawn.compared(pair):
                    if only is None or tuple(row[name] for name in COMPARISON) in only:
                        rows.append(row)
                        found.append(deviation)
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame["holm"] = np.nan
    tested = frame["p"].notna().to_numpy()
    frame.loc[tested, "holm"] = adjusted(frame.loc[tested, "p"].to_numpy(float))
    strictest = LEVEL / max(1, int(tested.sum()))
    frame["detectable"] = [
        one.detectable(strictest) if one is not None and known else np.nan
        for one, known in zip(found, tested, strict=True)
    ]
    for name in ("difference", "low", "high", "detectable"):
        percent = "percent" if name == "difference" else f"percent_{name}"
        frame[percent] = 100 * frame[name].astype(float) / frame["reference"].astype(float)
    losses = {
        pair.names: [board.loss(pair.dataset, pair.horizon, one) for one in (pair.arm, pair.reference)]
        for pair in pairs
    }
    of_rows = [losses[names] for names in frame[COMPARISON[:5]].itertuples(index=False, name=None)]
    frame["loss"], frame["reference_loss"] = ([one[side] for one in of_rows] for side in (0, 1))
    frame["is_other_loss"] = (frame["loss"] != frame["reference_loss"]) & (frame["reference_loss"] != "")
    frame["verdict"] = [verdict_of(*values) for values in zip(*(frame[name] for name in _JUDGED), strict=True)]
    return frame.sort_values("against", ascending=False, kind="stable", ignore_index=True)  # standard, then ridge


_COLUMNS = [
    *COMPARISON,
    *(
        "seeds",
        "reference_seeds",
        "is_paired",
        "mean",
        "reference",
        "difference",
        "low",
        "high",
        "p",
        "blocks",
        "block_length",
    ),
    "seed_freedom",
]
_DETECTABLE = ("detectable", "percent_detectable")
_JUDGED = ("difference", "low", "high", "holm")


def verdict_of(difference: float, low: float, high: float, holm: float) -> str:
    """What a comparison comes to: ``better``, ``worse``, ``tie``, ``one seed`` or ``no interval``, see `compare_all`.

    Args:
        difference: of the errors.
        low: the end of its interval.
        high: the other end.
        holm: its corrected p-value; NaN without one.
    """
    if np.isnan([difference, low, high]).any():
        return "no interval"
    if np.isnan(holm):
        return "one seed"
    if low <= 0 <= high or holm >= LEVEL:
        return "tie"
    return "better" if difference < 0 else "worse"
