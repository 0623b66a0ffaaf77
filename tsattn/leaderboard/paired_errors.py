"""The errors of two arms in the same windows, and what time and the luck of seeds do to their difference."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tsattn.leaderboard.block_bootstrap import Deviations, Resample, ResampledRuns, SeedLuck, deviations
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


@dataclass(frozen=True)
class _Lucks:
    """What seeds do to arms whose luck is taken to be alike.

    Attributes:
        common: of all of them; None where none has two seeds.
        own: of those whose runs lie further apart than those of the others.
    """

    common: SeedLuck | None
    own: Mapping[RankedArm, SeedLuck]

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
    """

    def __init__(
        self,
        board: Standings,
        dataset: str,
        is_used: Seeds,
        is_known: Seeds,
        resamples: int,
        alike: Callable[[RankedArm], str] = predictor_of,
    ) -> None:
        self.board, self.dataset, self.alike = board, dataset, alike
        self.is_used, self.is_known, self.resamples = is_used, is_known, resamples
        self._horizons = [horizon for name, horizon in board.tables if name == dataset]
        self._runs: dict[tuple[int, RankedArm, str], _Runs | None] = {}
        self._resamples: dict[tuple[int, int], Resample] = {}
        self._spreads: dict[tuple[str, str], _Lucks] = {}

    def compared(self, pair: Pair) -> Iterator[tuple[dict[str, object], Deviations | None]]:
        """A row for each metric; nothing where an arm has no run of the seeds that are used."""
        for metric in METRICS:
            arm, reference = (self._resampled(pair.horizon, one, metric) for one in (pair.arm, pair.reference))
            if arm is None or reference is None:
                continue
            common = sorted(set(arm.seeds) & set(reference.seeds))
            luck_of_pairs = self._luck_of_pairs(pair, metric) if any(map(self.is_used, common)) else None
            used, other_used = ((common if luck_of_pairs else one.seeds) for one in (arm, reference))
            runs, others = arm.of(filter(self.is_used, used)), reference.of(filter(self.is_used, other_used))
            if not len(runs) or not len(others):
                continue
            row: dict[str, object] = dict(zip(COMPARISON, (*pair.names, metric), strict=True))
            difference = runs.mean - others.mean
            row |= {"seeds": len(runs), "reference_seeds": len(others), "is_paired": luck_of_pairs is not None}
            row |= {"mean": runs.mean, "reference": others.mean, "difference": difference}
            resample = self._resample(pair.horizon, len(arm.errors.counts))
            row |= {"blocks": resample.blocks, "block_length": resample.length}
            row |= {"low": np.nan, "high": np.nan, "p": np.nan, "seed_freedom": 0.0}
            if not arm.errors.has_windows_of(reference.errors) or not resample.has_spread:
                yield row, None
                continue
            luck, other_luck = luck_of_pairs, None
            if luck_of_pairs is not None:
                luck = luck_of_pairs.times(others.mean)
            else:
                luck, other_luck = (
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
            is_luck_known = luck_of_pairs is not None or all(
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
        known_lucks = self._spreads[place]
        return known_lucks.own.get(arm, known_lucks.common)

    def _luck_of_pairs(self, pair: Pair, metric: str) -> SeedLuck | None:
        """Of the differences of runs of one seed, relative to the reference; None where too little is known of it, or
        one seed means other weights to begin with, as there are not as many.
        """
        found = []
        for horizon in self._horizons if self._begins_with_the_same_weights(pair) else ():
            arm, reference = (self._resampled(horizon, one, metric) for one in (pair.arm, pair.reference))
            if arm is not None and reference is not None and arm.errors.has_windows_of(reference.errors):
                common = sorted(set(arm.seeds) & set(reference.seeds))
                others = reference.of(common)
                if len(common) > 1:
                    found.append(arm.of(common).less(others).relative_to(others.mean))
        luck = SeedLuck.of(found)
        return luck if luck is not None and luck.freedom >= _PAIRED_FREEDOM else None

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
            self._resamples[place] = Resample.draw(origins, horizon, self.resamples, rng)
        return self._resamples[place]

    def _rng(self, horizon: int, *names: str) -> np.random.Generator:
        """What draws here, whatever else is compared."""
        words = [self.dataset, str(horizon), *names]
        return np.random.default_rng([_SEED, *(zlib.crc32(word.encode()) for word in words)])
