"""What is known of the luck of an arm: that of all attentions of its predictor, unless its own runs tell otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from tests.leaderboard.invented import record
from tsattn.leaderboard.block_bootstrap import Resample, ResampledRuns, SeedLuck, deviations
from tsattn.leaderboard.comparisons import COMPARISON, compare_all
from tsattn.leaderboard.paired_errors import _Lucks
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.standings import RankedArm, Standings

ARMS = [RankedArm("patchtst", kind) for kind in ("standard", "mlr", "swa", "uniform")]
SEEDS = (2, 1, 2, 1)  # at each of four horizons, as on ETTm1
RESAMPLES = 500


def _runs(means: NDArray[np.float64]) -> ResampledRuns:
    """Whose errors are the same in every window, so that there is nothing but luck."""
    return ResampledRuns(means, np.repeat(means[:, None], RESAMPLES, 1))


def _wrong(spreads: Sequence[float], cases: int) -> float:
    """How often the first two arms, whose true errors are the same, are told apart at the 5 % level."""
    rng = np.random.default_rng(5)
    resample = Resample.draw(40, 1, RESAMPLES, rng)
    wrong = 0
    for _ in range(cases):
        known = [
            (arm, _runs(1 + spread * rng.standard_normal(seeds)))
            for seeds in SEEDS
            for arm, spread in zip(ARMS, spreads, strict=True)
        ]
        lucks = _Lucks.of(known)
        standard, mlr = (known[len(ARMS) + number][1] for number in (0, 1))  # at a horizon of one seed
        luck, other = (lucks.own.get(arm, lucks.common) for arm in (ARMS[1], ARMS[0]))
        around = deviations(mlr, standard, resample, luck, other, rng)
        low, high = around.interval(mlr.mean - standard.mean)
        wrong += not low <= 0 <= high
    return wrong / cases


def test_an_arm_of_more_luck_is_not_told_apart_by_it() -> None:
    """Of luck that is taken for that of the others, it would be in 22 of 100 cases."""
    assert _wrong((0.003, 0.03, 0.003, 0.003), 600) <= 0.075


def test_luck_that_is_alike_is_told_as_often_as_is_said() -> None:
    assert 0.02 <= _wrong((0.01,) * 4, 600) <= 0.075


def test_an_f_test_says_whose_luck_is_larger() -> None:
    rng = np.random.default_rng(2)
    calm = SeedLuck.of([_runs(1 + 0.01 * rng.standard_normal(2)) for _ in range(40)])
    assert calm is not None
    for factor, is_larger in ((10.0, True), (1.0, False), (0.1, False)):
        luck = SeedLuck.of([_runs(1 + factor * calm.spread * np.array([-1.0, 1.0]) / np.sqrt(2)) for _ in range(2)])
        assert luck is not None
        assert luck.spread == pytest.approx(factor * calm.spread)
        assert luck.exceeds(calm) == is_larger
    still = SeedLuck.of([_runs(np.ones(2))])
    assert still is not None
    assert calm.exceeds(still)
    assert not still.exceeds(calm)
    assert not still.exceeds(still)


def _compared(shaken: str, shake: float) -> pd.DataFrame:
    """Comparisons of a board with two seeds at 24 and one at 48, in which one attention has more luck."""
    runs = [
        record("ETTh1", horizon, "patchtst", kind, seed, shift=shake * seed * (kind == shaken), windows=900)
        for horizon, seeds in ((24, (1, 2)), (48, (1,)))
        for kind in ("standard", "swa", "mlr", "btt")
        for seed in seeds
    ]
    found = compare_all(Standings(Records.of(runs)), resamples=2000)
    return found[found["metric"] == "mse"].set_index(["attention", "horizon"])


def test_the_luck_of_an_arm_is_its_own_at_all_horizons() -> None:
    alike, unlike = _compared("mlr", 0.0), _compared("mlr", 20.0)
    assert (alike["seed_freedom"] == 4).all(), "one degree of freedom of each of four attentions"
    for horizon in (24, 48):
        width = {
            name: one.loc[("mlr", horizon), "high"] - one.loc[("mlr", horizon), "low"]
            for name, one in (("alike", alike), ("unlike", unlike))
        }
        assert unlike.loc[("mlr", horizon), "seed_freedom"] == 1
        assert width["unlike"] > 10 * width["alike"]
        assert unlike.loc[("swa", horizon), "seed_freedom"] == 4, "of all, as nothing says that theirs is another"
    assert set(unlike.loc["mlr", "verdict"]) == {"tie"}
    assert set(COMPARISON) <= {*alike.columns, "attention", "horizon"}
