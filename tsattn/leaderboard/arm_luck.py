"""The luck of arms: that of all attentions of a predictor together, unless the runs of one tell otherwise.

How far seeds lie apart is learnt relative to the error, from all arms whose luck is taken to be alike; two or three
seeds of one arm alone would say next to nothing of it. That need not hold: one attention may train far less steadily
than the others. Where an F test at the 10 % level says that the runs of an arm lie further apart than those of the
others (or, of two ways, from the mean of the others of the same seed), its luck is its own, of all its horizons, with
the few degrees of freedom that these have. Where horizons differ in their luck, the runs at each are taken relative to
that of the others there. What the test overlooks depends on how much larger that luck is: of two seeds at two horizons,
beside three other arms, 3 cases of 100 where it is tenfold, and 30 of 100 where it is threefold. Where no arm has two
seeds nothing is known about others, and what comes out holds for these models alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tsattn.leaderboard.block_bootstrap import ResampledRuns
from tsattn.leaderboard.seed_luck import SeedLuck, at_each_horizon
from tsattn.leaderboard.standings import OriginErrors, RankedArm

__all__ = ["ArmLucks", "ArmRuns", "Table"]


@dataclass(frozen=True)
class ArmRuns:
    """The runs of an arm, their errors, and their seeds; of what draws nothing there is one run, and no seed."""

    runs: ResampledRuns
    errors: OriginErrors
    seeds: Sequence[int]

    def of(self, seeds: Iterable[int]) -> ResampledRuns:
        """Those of some seeds; all of what has none."""
        return self.runs.only([self.seeds.index(seed) for seed in seeds]) if self.seeds else self.runs

    @property
    def relative(self) -> ArmRuns:
        """As shares of their mean."""
        return self.relative_to(self.runs.mean)

    def relative_to(self, level: float) -> ArmRuns:
        """As shares of an error."""
        return replace(self, runs=self.runs.relative_to(level))

    def beside(self, others: Sequence[ArmRuns]) -> tuple[ResampledRuns, int] | None:
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


Table = Mapping[RankedArm, ArmRuns]
"""The arms at one horizon that are taken to be alike, relative to their means."""


@dataclass(frozen=True)
class ArmLucks:
    """What seeds do to arms whose luck is taken to be alike, at each horizon.

    Attributes:
        common: of all of them; empty where too few runs tell.
        own: of those whose runs lie further apart than those of the others.
    """

    common: Mapping[int, SeedLuck]
    own: Mapping[RankedArm, Mapping[int, SeedLuck]]

    def at(self, horizon: int, arm: RankedArm) -> SeedLuck | None:
        """Of an arm; the same one for all that have none of their own."""
        return self.own.get(arm, self.common).get(horizon)

    @property
    def is_pooled(self) -> bool:
        """Whether all horizons tell together how large the luck of all is."""
        return len({id(luck) for luck in self.common.values()}) == 1

    @classmethod
    def apart(cls, tables: Mapping[int, Table]) -> ArmLucks:
        """Of single runs.

        Args:
            tables: by the horizon.
        """
        found = {}
        means = _means(tables)
        for arm in _arms(tables):
            base = at_each_horizon(_each_without(arm, means), _of_runs)
            scaled = _scaled(means, base)
            own = _of_runs([_alone(arm, table) for table in scaled])
            others = _of_runs([_without(arm, table) for table in scaled])
            if own is not None and others is not None and own.exceeds(others):
                whole = _of_runs([_alone(arm, table) for table in _scaled(tables, base)])
                assert whole is not None
                found[arm] = _at_scale(whole, base)
        return cls(at_each_horizon(tables, _of_runs), found)

    @classmethod
    def crossed(cls, tables: Mapping[int, Table]) -> ArmLucks:
        """Of pairs: without what a seed does to all arms alike; of none where that is nothing that could be told.

        Args:
            tables: by the horizon; the runs at each are over the same windows.
        """
        common = at_each_horizon(tables, _of_what_is_left)
        means = _means(tables)
        scaled = _scaled(means, common)
        apart, left = SeedLuck.of(_runs(scaled)), _of_what_is_left(scaled)
        if apart is None or left is None or not apart.is_more_than(left):
            return cls({}, {})
        found = {}
        for arm in _arms(tables):
            base = at_each_horizon(_each_without(arm, means), _of_what_is_left)
            scaled = _scaled(means, base)
            beside = _beside_others(arm, scaled)
            own = SeedLuck.of([runs for runs, _ in beside])
            of_others = _of_what_is_left([_without(arm, table) for table in scaled])
            if own is None or of_others is None:
                continue
            # a mean of k others has a kth of the variance of one
            if own.exceeds(of_others.times(math.sqrt(1 + 1 / min(count for _, count in beside)))):
                whole = SeedLuck.of([runs for runs, _ in _beside_others(arm, _scaled(tables, base))])
                assert whole is not None
                found[arm] = _at_scale(whole, base)
        return cls(common, found)


def _of_runs(tables: Sequence[Table]) -> SeedLuck | None:
    apart = SeedLuck.of(_runs(tables))
    return None if apart is None else apart.told_with(_of_what_is_left([_mean_errors(table) for table in tables]))


def _of_what_is_left(tables: Sequence[Table]) -> SeedLuck | None:
    return SeedLuck.crossed([[(one.runs, one.seeds) for one in table.values()] for table in tables])


def _means(tables: Mapping[int, Table]) -> dict[int, Table]:
    """By the horizon, what tests need alone, which is little beside what was drawn anew."""
    return {horizon: _mean_errors(table) for horizon, table in tables.items()}


def _mean_errors(table: Table) -> Table:
    return {
        arm: replace(one, runs=ResampledRuns(one.runs.means, one.runs.resampled[:, :0])) for arm, one in table.items()
    }


def _beside_others(arm: RankedArm, tables: Iterable[Table]) -> list[tuple[ResampledRuns, int]]:
    """Where it can be told, the differences of an arm from the mean of the others, see `ArmRuns.beside`."""
    found = [table[arm].beside([*_without(arm, table).values()]) for table in tables if arm in table]
    return [one for one in found if one is not None]


def _runs(tables: Iterable[Table]) -> list[ResampledRuns]:
    return [one.runs for table in tables for one in table.values()]


def _arms(tables: Mapping[int, Table]) -> list[RankedArm]:
    return list(dict.fromkeys(arm for table in tables.values() for arm in table))


def _alone(arm: RankedArm, table: Table) -> Table:
    return {one: runs for one, runs in table.items() if one == arm}


def _without(arm: RankedArm, table: Table) -> Table:
    return {one: runs for one, runs in table.items() if one != arm}


def _each_without(arm: RankedArm, tables: Mapping[int, Table]) -> dict[int, Table]:
    return {horizon: _without(arm, table) for horizon, table in tables.items()}


def _scaled(tables: Mapping[int, Table], base: Mapping[int, SeedLuck]) -> list[Table]:
    """Relative to a luck at each horizon; without horizons at which there is none, unless there is none at any."""
    if not any(luck.spread for luck in base.values()):
        return [*tables.values()]
    return [
        {arm: one.relative_to(base[horizon].spread) for arm, one in table.items()}
        for horizon, table in tables.items()
        if horizon in base and base[horizon].spread
    ]


def _at_scale(own: SeedLuck, base: Mapping[int, SeedLuck]) -> dict[int, SeedLuck]:
    """At each horizon, from what it is relative to the luck of the others there.

    Where that is one for all horizons its uncertainty cancels out, as the runs were divided by it.
    """
    if not any(luck.spread for luck in base.values()):
        return dict.fromkeys(base, own)
    if len({id(luck) for luck in base.values()}) == 1:
        return {horizon: own.times(luck.spread) for horizon, luck in base.items()}
    return {horizon: own.scaled_by(luck) for horizon, luck in base.items()}
