"""The errors of two arms in the same windows, and what time and the luck of seeds do to their difference."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tsattn.leaderboard.block_bootstrap import Resample, ResampledRuns, SeedLuck, deviations
from tsattn.leaderboard.deviations import Deviations
from tsattn.leaderboard.standings import METRICS, OriginErrors, RankedArm, Standings

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


@dataclass(frozen=True)
class _Runs:
    """The runs of an arm, their errors, and their seeds; of what draws nothing there is one run, and no seed."""

    runs: ResampledRuns
    errors: OriginErrors
    seeds: Sequence[int]

    def of(self, seeds: Iterable[int]) -> ResampledRuns:
        """Those of some seeds; all of what has none."""
        return self.runs.only([self.seeds.index(seed) for seed in seeds]) if self.seeds else self.runs

    @property
    def relative(self) -> _Runs:
        """As shares of their mean."""
        return replace(self, runs=self.runs.relative_to(self.runs.mean))

    def beside(self, others: Sequence[_Runs]) -> tuple[ResampledRuns, int] | None:
        """The differences from the mean of other runs of the same seed, and of how many these are the means at least;
        None of fewer than two.
        """
        known = {seed: [one.of([seed]) for one in others if seed in one.seeds] for seed in self.seeds}
        shared = [seed for seed, runs in known.items() if runs]
        if len(shared) < 2:
            return None
        means = [np.mean([runs.means for runs in known[seed]], axis=0) for seed in shared]
        resampled = [np.mean([runs.resampled for runs in known[seed]], axis=0) for seed in shared]
        mean_of_others = ResampledRuns(np.concatenate(means), np.concatenate(resampled))
        return self.of(shared).less(mean_of_others), min(len(known[seed]) for seed in shared)


@dataclass(frozen=True)
class _Lucks:
    """What seeds do to arms whose luck is taken to be alike.

    Attributes:
        common: of all of them; None where too few runs tell.
        own: of those whose runs lie further apart than those of the others.
    """

    common: SeedLuck | None
    own: Mapping[RankedArm, SeedLuck]

    def both(self, arm: RankedArm, reference: RankedArm) -> tuple[SeedLuck | None, SeedLuck | None]:
        """Of two arms; the same one where neither has its own."""
        return self.own.get(arm, self.common), self.own.get(reference, self.common)

    @classmethod
    def of(cls, known: Sequence[tuple[RankedArm, ResampledRuns]]) -> _Lucks:
        """From the runs of each arm at each horizon, relative to their mean."""
        found = {}
        for arm in dict.fromkeys(one for one, _ in known):
            own = SeedLuck.of([runs for one, runs in known if one == arm])
            others = SeedLuck.of([runs for one, runs in known if one != arm])
            if own is not None and others is not None and own.exceeds(others):
                found[arm] = own
        return cls(SeedLuck.of([runs for _, runs in known]), found)

    @classmethod
    def crossed(cls, tables: Sequence[Mapping[RankedArm, _Runs]]) -> _Lucks:
        """Of pairs: from the runs of all arms at each horizon, relative to their mean, without what a seed does to all
        arms alike; of none where that is nothing that could be told.
        """
        apart = SeedLuck.of([one.runs for table in tables for one in table.values()])
        common = SeedLuck.crossed([[(one.runs, one.seeds) for one in table.values()] for table in tables])
        if apart is None or common is None or not apart.is_more_than(common):
            return cls(None, {})
        found = {}
        for arm in dict.fromkeys(one for table in tables for one in table):
            others = [[runs for one, runs in table.items() if one != arm] for table in tables]
            beside = [
                one
                for table, rest in zip(tables, others, strict=True)
                if arm in table and (one := table[arm].beside(rest)) is not None
            ]
            own = SeedLuck.of([runs for runs, _ in beside])
            of_others = SeedLuck.crossed([[(one.runs, one.seeds) for one in rest] for rest in others])
            if own is None or of_others is None:
                continue
            # a mean of k others has a kth of the variance of one
            if own.exceeds(of_others.times(math.sqrt(1 + 1 / min(count for _, count in beside)))):
                found[arm] = own
        return cls(common, found)


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
        self._runs: dict[tuple[int, RankedArm, str], _Runs | None] = {}
        self._resamples: dict[tuple[int, int], Resample] = {}
        self._spreads: dict[tuple[str, str], _Lucks] = {}
        self._crossed: dict[tuple[str, str], _Lucks] = {}

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
                    self._luck(one, metric) if known.seeds else None
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

    def _resampled(self, horizon: int, arm: RankedArm, metric: str) -> _Runs | None:
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
                self._runs[place] = _Runs(runs, errors, [int(seed) for seed in rows["seed"].dropna()])
        return self._runs[place]

    def _luck(self, arm: RankedArm, metric: str) -> SeedLuck | None:
        """Of the seeds of an arm, relative to the error: the same one for all that are alike, but for those whose runs
        lie further apart than those of the others.
        """
        place = self.alike(arm), metric
        if place not in self._spreads:
            self._spreads[place] = _Lucks.of(
                [
                    (one, known.runs.relative_to(known.runs.mean))
                    for horizon in self._horizons
                    for one in self.board.arms_of(self.dataset, horizon)
                    if self.alike(one) == place[0]
                    and (known := self._resampled(horizon, one, metric)) is not None
                    and known.seeds
                ]
            )
        return self._spreads[place].both(arm, arm)[0]

    def _luck_of_pairs(self, pair: Pair, metric: str) -> SeedLuck | None:
        """Of the differences of runs of one seed, relative to the reference; None where too little is known of it, no
        seed that is used is that of both, or one seed means other weights to begin with, as there are not as many.
        """
        found = []
        for horizon in self._horizons if self._begins_with_the_same_weights(pair) else ():
            arm, reference = (self._resampled(horizon, one, metric) for one in (pair.arm, pair.reference))
            if arm is not None and reference is not None and arm.errors.has_windows_of(reference.errors):
                common = sorted(set(arm.seeds) & set(reference.seeds))
                if horizon == pair.horizon and not any(map(self.is_used, common)):
                    return None
                others = reference.of(common)
                if len(common) > 1:
                    found.append(arm.of(common).less(others).relative_to(others.mean))
        luck = SeedLuck.of(found)
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
            tables = [self._alike(name, horizon, metric) for horizon in self._horizons]
            self._crossed[name, metric] = _Lucks.crossed(tables)
        common = self._crossed[name, metric].common
        if common is None or common.freedom < _PAIRED_FREEDOM:
            return None
        luck, other_luck = self._crossed[name, metric].both(pair.arm, pair.reference)
        return None if luck is None or other_luck is None else (luck, other_luck)

    def _alike(self, name: str, horizon: int, metric: str) -> dict[RankedArm, _Runs]:
        """Arms that draw and are alike, with their runs relative to the error, which are over the same windows."""
        found: dict[RankedArm, _Runs] = {}
        for one in self.board.arms_of(self.dataset, horizon):
            known = self._resampled(horizon, one, metric) if self.alike(one) == name else None
            if known is not None and known.seeds:
                first = next(iter(found.values()), known)
                if known.errors.has_windows_of(first.errors):
                    found[one] = known.relative
        return found

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
