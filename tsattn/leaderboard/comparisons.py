"""Paired comparisons of arms: with standard attention of the same predictor, and with the ridge."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsattn.leaderboard.block_bootstrap import Deviations, Resample, ResampledRuns, SeedLuck, deviations
from tsattn.leaderboard.standings import METRICS, RIDGE, STANDARD, OriginErrors, RankedArm, Standings

__all__ = ["COMPARISON", "LEVEL", "Pair", "adjusted", "compare_all", "compare_pairs", "confirm", "planned"]

LEVEL = 0.05
"""Of significance, after correction."""

COMPARISON = ["dataset", "horizon", "predictor", "attention", "against", "metric"]
"""The columns by which a comparison is known."""

_RESAMPLES = 10_000
_PER_COMPARISON = 40  # resamples, so that the smallest p-value times the number of comparisons is half the level
_SEED = 20240607
_PAIRS = 4  # seeds that both arms have, below which the spread of their differences is known too badly

_Seeds = Callable[[int], bool]


@dataclass(frozen=True)
class _Runs:
    """The runs of an arm, their errors, and their seeds; of what draws nothing there is one run, and no seed."""

    runs: ResampledRuns
    errors: OriginErrors
    seeds: Sequence[int]

    def of(self, seeds: Iterable[int]) -> ResampledRuns:
        """Those of some seeds; all of what has none."""
        return self.runs.only([self.seeds.index(seed) for seed in seeds]) if self.seeds else self.runs


@dataclass(frozen=True, order=True)
class Pair:
    """Two arms in a table.

    Attributes:
        dataset: of the table.
        horizon: of the table.
        arm: what is compared.
        reference: with what.
    """

    dataset: str
    horizon: int
    arm: RankedArm
    reference: RankedArm


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
) -> pd.DataFrame:
    """Every comparison of a board, corrected for their number.

    Args:
        board: what was run.
        without: seeds that are left out, as they are to confirm what is found.
        resamples: of the bootstrap; by default 10,000, and 40 for each comparison where these are more.

    Returns:
        A row a comparison: the columns `COMPARISON`, where ``against`` is ``standard`` or ``ridge``; ``seeds`` and
        ``reference_seeds``, how many, and ``is_paired``, whether seed by seed; ``mean`` and ``reference``, the errors
        over all windows and seeds; ``difference`` with the 95 % interval from ``low`` to ``high``; ``percent``,
        ``percent_low`` and ``percent_high``, the same relative to the error of the reference; ``p``, and ``holm``,
        corrected; ``detectable``, ``percent_detectable``, the smallest difference that is found in 80 of 100 cases
        where Holm's procedure is strictest; ``blocks`` and ``block_length`` of the bootstrap, and ``seed_freedom``, the
        degrees of freedom of what is known of the luck of seeds, 0 where the comparison is one of single models;
        ``verdict``: ``better``, ``worse`` or ``tie``, or ``no interval`` where there are fewer than two blocks, or the
        windows are not the same.
    """

    def known(seed: int) -> bool:
        return seed not in without

    return _compared(board, planned(board), known, known, resamples)


def compare_pairs(
    board: Standings, pairs: Iterable[Pair], metrics: Collection[str] = tuple(METRICS), resamples: int | None = None
) -> pd.DataFrame:
    """Some comparisons of a board, corrected for the number of these.

    Args:
        board: what was run.
        pairs: that are compared; one that is there twice is compared once.
        metrics: of `METRICS`.
        resamples: see `compare_all`.

    Returns:
        As `compare_all`, where ``against`` is the attention of the reference, or the predictor of one that has none.
    """
    pairs = list(dict.fromkeys(pairs))

    def is_any(seed: int) -> bool:
        return True

    only = {(*_names(pair), metric) for pair in pairs for metric in metrics}
    return _compared(board, pairs, is_any, is_any, resamples, only=only)


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
    pairs = [pair for pair in planned(board) if _names(pair) in named]

    def is_fresh(seed: int) -> bool:
        return seed in seeds

    def is_any(seed: int) -> bool:
        return True

    only = set(chosen[COMPARISON].itertuples(index=False, name=None))
    return found, _compared(board, pairs, is_fresh, is_any, resamples, only=only)


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


def _names(pair: Pair) -> tuple[str, int, str, str, str]:
    against = pair.reference.attention or pair.reference.predictor
    return pair.dataset, pair.horizon, pair.arm.predictor, pair.arm.attention, against


def _compared(
    board: Standings,
    pairs: Iterable[Pair],
    is_used: _Seeds,
    is_known: _Seeds,
    resamples: int | None,
    only: Collection[tuple[object, ...]] | None = None,
) -> pd.DataFrame:
    pairs = list(pairs)
    number = len(pairs) * len(METRICS) if only is None else len(only)
    resamples = resamples or max(_RESAMPLES, _PER_COMPARISON * number)
    rows: list[dict[str, object]] = []
    found: list[Deviations | None] = []
    for table in dict.fromkeys((pair.dataset, pair.horizon) for pair in pairs):
        drawn = _TestedArms(board, *table, is_used, is_known, resamples)
        for pair in pairs:
            if (pair.dataset, pair.horizon) == table:
                for row, deviation in drawn.compared(pair):
                    if only is None or tuple(row[name] for name in COMPARISON) in only:
                        rows.append(row)
                        found.append(deviation)
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame["holm"] = np.nan
    tested = frame["p"].notna().to_numpy()
    frame.loc[tested, "holm"] = adjusted(frame.loc[tested, "p"].to_numpy(float))
    strictest = LEVEL / max(1, int(tested.sum()))
    frame["detectable"] = [np.nan if one is None else one.detectable(strictest) for one in found]
    for name in ("difference", "low", "high", "detectable"):
        percent = "percent" if name == "difference" else f"percent_{name}"
        frame[percent] = 100 * frame[name].astype(float) / frame["reference"].astype(float)
    frame["verdict"] = [_verdict(*values) for values in zip(*(frame[name] for name in _JUDGED), strict=True)]
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
_JUDGED = ("difference", "low", "high", "holm")


def _verdict(difference: float, low: float, high: float, holm: float) -> str:
    if np.isnan([difference, low, high, holm]).any():
        return "no interval"
    if low <= 0 <= high or holm >= LEVEL:
        return "tie"
    return "better" if difference < 0 else "worse"


class _TestedArms:
    """The runs of one data set and horizon, resampled once each.

    Args:
        board: what was run.
        dataset: of the table.
        horizon: of the table.
        is_used: the seeds whose means are compared.
        is_known: those from which it is learnt how far seeds lie apart; they hold the others.
        resamples: how many.
    """

    def __init__(
        self, board: Standings, dataset: str, horizon: int, is_used: _Seeds, is_known: _Seeds, resamples: int
    ) -> None:
        self.board, self.dataset, self.horizon = board, dataset, horizon
        self.is_used, self.is_known, self.resamples = is_used, is_known, resamples
        self._runs: dict[tuple[RankedArm, str], _Runs | None] = {}
        self._resamples: dict[int, Resample] = {}
        self._lucks: dict[tuple[str, str], SeedLuck | None] = {}

    def compared(self, pair: Pair) -> Iterator[tuple[dict[str, object], Deviations | None]]:
        """A row for each metric; nothing where an arm has no run of the seeds that are used."""
        for metric in METRICS:
            arm, reference = (self._resampled(one, metric) for one in (pair.arm, pair.reference))
            if arm is None or reference is None:
                continue
            common = sorted(set(arm.seeds) & set(reference.seeds))
            is_paired = len(common) >= _PAIRS and any(map(self.is_used, common))
            used, other_used = ((common if is_paired else one.seeds) for one in (arm, reference))
            runs, others = arm.of(filter(self.is_used, used)), reference.of(filter(self.is_used, other_used))
            if not len(runs) or not len(others):
                continue
            row: dict[str, object] = dict(zip(COMPARISON, (*_names(pair), metric), strict=True))
            difference = runs.mean - others.mean
            row |= {"seeds": len(runs), "reference_seeds": len(others), "is_paired": is_paired}
            row |= {"mean": runs.mean, "reference": others.mean, "difference": difference}
            resample = self._resample(len(arm.errors.counts))
            row |= {"blocks": resample.blocks, "block_length": resample.length}
            if not arm.errors.has_windows_of(reference.errors) or not resample.has_spread:
                yield {**row, "low": np.nan, "high": np.nan, "p": np.nan}, None
                continue
            if is_paired:
                luck = SeedLuck.of([arm.of(common).less(reference.of(common))])
            else:
                luck = self._luck(pair.arm.predictor, metric)
            rng = self._rng(str(pair.arm), str(pair.reference), metric)
            is_drawn = bool(reference.seeds) and not is_paired
            around = deviations(runs, others, resample, luck, rng, is_reference_drawn=is_drawn)
            if around is None:
                yield {**row, "low": np.nan, "high": np.nan, "p": np.nan}, None
                continue
            row["seed_freedom"] = 0.0 if luck is None else luck.freedom
            low, high = around.interval(difference)
            yield {**row, "low": low, "high": high, "p": around.p_value(difference)}, around

    def _resampled(self, arm: RankedArm, metric: str) -> _Runs | None:
        """The runs of an arm with known seeds; None where there are none."""
        if (arm, metric) not in self._runs:
            rows = self.board.runs(self.dataset, self.horizon, arm)
            rows = rows[[pd.isna(seed) or self.is_known(int(seed)) for seed in rows["seed"]]]
            self._runs[arm, metric] = None
            if len(rows):
                errors = self.board.origin_errors(rows["key"].tolist(), metric)
                runs = ResampledRuns.of(errors.sums, errors.counts, self._resample(len(errors.counts)))
                self._runs[arm, metric] = _Runs(runs, errors, [int(seed) for seed in rows["seed"].dropna()])
        return self._runs[arm, metric]

    def _luck(self, predictor: str, metric: str) -> SeedLuck | None:
        """Of the seeds of a predictor, whatever its attention."""
        if (predictor, metric) not in self._lucks:
            arms = [arm for arm in self.board.arms_of(self.dataset, self.horizon) if arm.predictor == predictor]
            known = [self._resampled(arm, metric) for arm in arms]
            self._lucks[predictor, metric] = SeedLuck.of([runs.runs for runs in filter(None, known)])
        return self._lucks[predictor, metric]

    def _resample(self, origins: int) -> Resample:
        """The same draws of windows for all runs of a table, so that differences are paired."""
        if origins not in self._resamples:
            self._resamples[origins] = Resample.draw(origins, self.horizon, self.resamples, self._rng(str(origins)))
        return self._resamples[origins]

    def _rng(self, *names: str) -> np.random.Generator:
        """What draws here, whatever else is compared."""
        words = [self.dataset, str(self.horizon), *names]
        return np.random.default_rng([_SEED, *(zlib.crc32(word.encode()) for word in words)])
