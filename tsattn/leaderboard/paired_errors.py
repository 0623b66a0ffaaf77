"""The errors of two arms in the same windows, and what time and the luck of seeds do to their difference.

Runs of the same seed begin with the same weights and see the same batches where they have as many parameters; then they
lie closer to each other than to other seeds. So where both arms have as many parameters and the same seeds, and enough
of these to know how far pairs lie apart, pairs are drawn, and what luck does is `N / (N - H)` times the variance of the
N differences around their means at H horizons, of `N - H` degrees of freedom. That holds however alike the runs of a
pair are. Horizons are pooled where those of the single runs of the predictor are, which are more.

Where too little is known of the pairs of two arms alone, or they have not as many parameters, but the same seeds, pairs
are taken out of an analysis of variance of two ways over all attentions of a predictor: what is left of their runs is
drawn for both arms, apart, if an F test at the 10 % level says that seeds do something to all arms alike. Elsewhere
seeds of both arms are drawn apart, by an analysis of variance of one way. See `tsattn.leaderboard.seed_luck` for both.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tsattn.leaderboard.arm_luck import ArmLucks, ArmRuns
from tsattn.leaderboard.block_bootstrap import Resample, ResampledRuns
from tsattn.leaderboard.deviations import Deviations, deviations
from tsattn.leaderboard.seed_luck import SeedLuck
from tsattn.leaderboard.standings import METRICS, RankedArm, Standings

__all__ = ["COMPARISON", "Pair", "PairedErrors", "Seeds", "predictor_of"]

COMPARISON = ["dataset", "horizon", "predictor", "attention", "against", "metric"]
"""The columns by which a comparison is known."""

_SEED = 20240607
_PAIRED_FREEDOM = 3  # degrees of freedom below which the spread of differences of pairs is known too badly

Seeds = Callable[[int], bool]
"""Whether a seed is one of some."""


def predictor_of(arm: RankedArm) -> str:
    """The predictor of an arm, whose luck is taken to be alike for all its attentions that do not tell otherwise."""
    return arm.predictor


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

    @property
    def names(self) -> tuple[str, int, str, str, str]:
        """The values of `COMPARISON`, but for the metric."""
        against = self.reference.attention or self.reference.predictor
        return self.dataset, self.horizon, self.arm.predictor, self.arm.attention, against


class PairedErrors:
    """The runs of one data set, resampled once each.

    Args:
        board: what was run.
        dataset: of the board.
        is_used: the seeds whose means are compared.
        is_known: those from which it is learnt how far seeds lie apart; they hold the others.
        resamples: how many.
        alike: by what an arm is called together with all others whose luck is taken to be alike, relative to the error,
            unless its own is larger than theirs.
        stretch: of the blocks, see `tsattn.leaderboard.block_bootstrap.block_length`.
    """

    def __init__(
        self,
        board: Standings,
        dataset: str,
        is_used: Seeds,
        is_known: Seeds,
        resamples: int,
        alike: Callable[[RankedArm], str] = predictor_of,
        stretch: float = 1.0,
    ) -> None:
        self.board, self.dataset, self.alike, self.stretch = board, dataset, alike, stretch
        self.is_used, self.is_known, self.resamples = is_used, is_known, resamples
        self._horizons = [horizon for name, horizon in board.tables if name == dataset]
        self._runs: dict[tuple[int, RankedArm, str], ArmRuns | None] = {}
        self._resamples: dict[tuple[int, int], Resample] = {}
        self._apart: dict[tuple[str, str], ArmLucks] = {}
        self._crossed: dict[tuple[str, str], ArmLucks] = {}

    def compared(self, pair: Pair) -> Iterator[tuple[dict[str, object], Deviations | None]]:
        """A row for each metric; nothing where an arm has no run of the seeds that are used."""
        for metric in METRICS:
            arm, reference = (self._resampled(pair.horizon, one, metric) for one in (pair.arm, pair.reference))
            if arm is None or reference is None:
                continue
            pairs, apart = self._luck_of_pairs(pair, metric), self._lucks(pair, metric)
            is_paired = pairs is not None or apart is not None
            common = set(arm.seeds) & set(reference.seeds)
            used, other_used = (sorted(common) if is_paired else one.seeds for one in (arm, reference))
            runs, others = arm.of(filter(self.is_used, used)), reference.of(filter(self.is_used, other_used))
            if not len(runs) or not len(others):
                continue
            row: dict[str, object] = dict(zip(COMPARISON, (*pair.names, metric), strict=True))
            difference = runs.mean - others.mean
            row |= {"seeds": len(runs), "reference_seeds": len(others), "is_paired": is_paired}
            row |= {"mean": runs.mean, "reference": others.mean, "difference": difference}
            resample = self._resample(pair.horizon, len(arm.errors.counts))
            row |= {"blocks": resample.blocks, "block_length": resample.length}
            row |= {"low": np.nan, "high": np.nan, "p": np.nan, "seed_freedom": 0.0}
            if not arm.errors.has_windows_of(reference.errors) or not resample.has_spread:
                yield row, None
                continue
            luck: SeedLuck | None
            other_luck: SeedLuck | None
            if pairs is not None:
                luck, other_luck = pairs.times(others.mean), None
            else:
                luck, other_luck = apart or (
                    self._luck(pair.horizon, one, metric) if known.seeds else None
                    for one, known in ((pair.arm, arm), (pair.reference, reference))
                )
                if luck is other_luck:
                    luck = other_luck = luck and luck.times((runs.mean + others.mean) / 2)
                else:
                    luck, other_luck = luck and luck.times(runs.mean), other_luck and other_luck.times(others.mean)
            rng = self._rng(pair.horizon, str(pair.arm), str(pair.reference), metric)
            around = deviations(runs, others, resample, luck, other_luck, rng)
            if around is None:
                yield row, None
                continue
            row["low"], row["high"] = around.interval(difference)
            row["seed_freedom"] = min((one.freedom for one in (luck, other_luck) if one is not None), default=0.0)
            is_luck_known = pairs is not None or all(
                known is not None or not one.seeds for known, one in ((luck, arm), (other_luck, reference))
            )
            if is_luck_known:
                row["p"] = around.p_value(difference)
            yield row, around

    def _resampled(self, horizon: int, arm: RankedArm, metric: str) -> ArmRuns | None:
        """The runs of an arm with known seeds; None where there are none."""
        place = horizon, arm, metric
        if place not in self._runs:
            rows = self.board.runs(self.dataset, horizon, arm)
            rows = rows[[np.isnan(seed) or self.is_known(int(seed)) for seed in rows["seed"].astype(float)]]
            self._runs[place] = None
            if len(rows):
                errors = self.board.origin_errors(rows["key"].tolist(), metric)
                resample = self._resample(horizon, len(errors.counts))
                runs = ResampledRuns.of(errors.sums, errors.counts, resample)
                self._runs[place] = ArmRuns(runs, errors, [int(seed) for seed in rows["seed"].dropna()])
        return self._runs[place]

    def _luck(self, horizon: int, arm: RankedArm, metric: str) -> SeedLuck | None:
        """Of the seeds of an arm, relative to the error."""
        return self._of_single_runs(self.alike(arm), metric).at(horizon, arm)

    def _of_single_runs(self, name: str, metric: str) -> ArmLucks:
        if (name, metric) not in self._apart:
            tables = {one: self._alike(name, one, metric) for one in self._horizons}
            self._apart[name, metric] = ArmLucks.apart(tables)
        return self._apart[name, metric]

    def _luck_of_pairs(self, pair: Pair, metric: str) -> SeedLuck | None:
        """Of the differences of runs of one seed, relative to the reference; None where too little is known of it, no
        seed that is used is that of both, or one seed means other weights to begin with, as there are not as many.
        """
        found = {}
        for horizon in self._horizons if self._begins_with_the_same_weights(pair) else ():
            arm, reference = (self._resampled(horizon, one, metric) for one in (pair.arm, pair.reference))
            if arm is not None and reference is not None and arm.errors.has_windows_of(reference.errors):
                common = sorted(set(arm.seeds) & set(reference.seeds))
                if horizon == pair.horizon and not any(map(self.is_used, common)):
                    return None
                others = reference.of(common)
                if common:
                    found[horizon] = arm.of(common).less(others).relative_to(others.mean)
        # pairs alone are too few to tell whether horizons are alike
        is_pooled = self._of_single_runs(self.alike(pair.arm), metric).is_pooled
        luck = SeedLuck.of([*found.values()] if is_pooled else [found[pair.horizon]] if pair.horizon in found else [])
        return luck if luck is not None and luck.freedom >= _PAIRED_FREEDOM else None

    def _lucks(self, pair: Pair, metric: str) -> tuple[SeedLuck, SeedLuck] | None:
        """Of both arms without what a seed does to all arms alike, relative to the error; None where too little is
        known of it, or the arms are not alike, or their seeds are others.
        """
        name = self.alike(pair.arm)
        known = [self._resampled(pair.horizon, one, metric) for one in (pair.arm, pair.reference)]
        seeds = [{*filter(self.is_used, one.seeds)} for one in known if one is not None]
        if self.alike(pair.reference) != name or len(seeds) < 2 or seeds[0] != seeds[1] or not seeds[0]:
            return None
        if (name, metric) not in self._crossed:
            tables = {one: _of_the_same_windows(self._alike(name, one, metric)) for one in self._horizons}
            self._crossed[name, metric] = ArmLucks.crossed(tables)
        lucks = self._crossed[name, metric]
        common = lucks.common.get(pair.horizon)
        if common is None or common.freedom < _PAIRED_FREEDOM:
            return None
        luck, other_luck = (lucks.at(pair.horizon, one) for one in (pair.arm, pair.reference))
        return None if luck is None or other_luck is None else (luck, other_luck)

    def _alike(self, name: str, horizon: int, metric: str) -> dict[RankedArm, ArmRuns]:
        """Arms that draw and are alike, with their runs relative to the error."""
        known = {
            one: self._resampled(horizon, one, metric)
            for one in self.board.arms_of(self.dataset, horizon)
            if self.alike(one) == name
        }
        return {arm: runs.relative for arm, runs in known.items() if runs is not None and runs.seeds}

    def _begins_with_the_same_weights(self, pair: Pair) -> bool:
        """Whether one seed draws as many for both."""
        sizes = [
            self.board.runs(pair.dataset, pair.horizon, one)["parameters"].max() for one in (pair.arm, pair.reference)
        ]
        return bool(sizes[0] == sizes[1])

    def _resample(self, horizon: int, origins: int) -> Resample:
        """The same draws of windows for all runs of a table, so that differences are paired."""
        place = horizon, origins
        if place not in self._resamples:
            rng = self._rng(horizon, str(origins))
            self._resamples[place] = Resample.draw(origins, horizon, self.resamples, rng, self.stretch)
        return self._resamples[place]

    def _rng(self, horizon: int, *names: str) -> np.random.Generator:
        """What draws here, whatever else is compared."""
        words = [self.dataset, str(horizon), *names]
        return np.random.default_rng([_SEED, *(zlib.crc32(word.encode()) for word in words)])


def _of_the_same_windows(arms: dict[RankedArm, ArmRuns]) -> dict[RankedArm, ArmRuns]:
    """Those whose windows are those of the first."""
    return {arm: runs for arm, runs in arms.items() if runs.errors.has_windows_of(next(iter(arms.values())).errors)}
