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
from tsattn.leaderboard.paired_errors import _Lucks, _Runs
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.standings import OriginErrors, RankedArm, Standings

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


def _of_pairs(
    spreads: Sequence[float], seeds: int, cases: int, *, horizons: int = 1, of_seeds: float = 0.02, shift: float = 0.0
) -> float:
    """How often the second arm, whose true error differs by a shift, is told from the first one at the 5 % level.

    Seeds do `of_seeds` to all arms alike, and to each its own spread.
    """
    rng = np.random.default_rng(7)
    resample = Resample.draw(40, 1, RESAMPLES, rng)
    arms = [RankedArm("patchtst", str(number)) for number in range(len(spreads))]
    found = 0
    for _ in range(cases):
        tables = []
        for _ in range(horizons):
            means = 1 + np.array(spreads)[:, None] * rng.standard_normal((len(arms), seeds))
            means += of_seeds * rng.standard_normal(seeds)
            means[1] += shift
            errors = OriginErrors(np.ones((seeds, 1)), np.ones(1), np.zeros(1))
            tables.append({arm: _Runs(_runs(one), errors, range(seeds)) for arm, one in zip(arms, means, strict=True)})
        reference, arm = (tables[0][one].runs for one in arms[:2])
        lucks = _Lucks.crossed(tables)
        if lucks.common is None:
            lucks = _Lucks.of([(arm, runs.runs) for table in tables for arm, runs in table.items()])
        luck, other = lucks.both(arms[1], arms[0])
        around = deviations(arm, reference, resample, luck, other, rng)
        low, high = around.interval(arm.mean - reference.mean)
        found += not low <= 0 <= high
    return found / cases


@pytest.mark.parametrize(("arms", "seeds", "horizons"), [(4, 3, 1), (4, 2, 2), (14, 3, 1)])
def test_what_seeds_do_to_all_arms_alike_is_no_luck_of_one(arms: int, seeds: int, horizons: int) -> None:
    assert 0.02 <= _of_pairs((0.01,) * arms, seeds, 400, horizons=horizons) <= 0.075
    strong = _of_pairs((0.01,) * arms, seeds, 100, horizons=horizons, of_seeds=1.0)
    assert strong <= 0.1, "however much it is"


@pytest.mark.parametrize(
    "spreads", [(0.003, 0.03, 0.003, 0.003), (0.03, 0.003, 0.003, 0.003), (0.01, 0.03, 0.01, 0.01)]
)
def test_an_arm_of_more_luck_of_its_own_is_not_told_apart_in_pairs(spreads: Sequence[float]) -> None:
    assert _of_pairs(spreads, 3, 400) <= 0.11


def test_pairs_of_all_arms_find_what_seeds_would_hide() -> None:
    assert _of_pairs((0.01,) * 4, 3, 200, shift=0.04) >= 0.8
    # were seeds no part of what is left, runs would lie sqrt(.01^2 + .02^2) apart
    assert _of_pairs((0.0224,) * 4, 3, 200, of_seeds=0.0, shift=0.04) <= 0.6
    assert _of_pairs((0.01,) * 4, 3, 200, of_seeds=0.0, shift=0.04) >= 0.8, "without pairs, where seeds do nothing"


def test_seeds_that_do_nothing_that_could_be_told_make_no_pairs() -> None:
    rng = np.random.default_rng(1)
    errors = OriginErrors(np.ones((3, 1)), np.ones(1), np.zeros(1, int))
    for of_seeds, at_least, at_most in ((0.0, 0.05, 0.2), (0.05, 0.95, 1.0)):
        paired = 0
        for _ in range(200):
            means = 1 + of_seeds * rng.standard_normal(3) + 0.01 * rng.standard_normal((4, 3))
            table = {arm: _Runs(_runs(one), errors, range(3)) for arm, one in zip(ARMS, means, strict=True)}
            paired += _Lucks.crossed([table]).common is not None
        assert at_least <= paired / 200 <= at_most


def test_what_is_left_of_runs_is_that_of_least_squares() -> None:
    """Where some runs are missing."""
    rng = np.random.default_rng(3)
    seeds = [[1, 2, 3, 4], [1, 2, 3], [2, 4], [9]]
    means = [rng.standard_normal(len(one)) for one in seeds]
    luck = SeedLuck.crossed([[(_runs(values), one) for values, one in zip(means, seeds, strict=True)]])
    labels = [(arm, seed) for arm, of_arm in enumerate(seeds) for seed in of_arm]
    frame = pd.DataFrame(labels, columns=["arm", "seed"]).assign(y=np.concatenate(means))
    design = pd.get_dummies(frame[["arm", "seed"]].astype(str), dtype=float)
    _, _, rank, _ = np.linalg.lstsq(design, frame["y"], rcond=None)
    fitted = design.to_numpy() @ np.linalg.lstsq(design, frame["y"], rcond=None)[0]
    assert luck is not None
    assert luck.freedom == len(frame) - rank == 10 - 7
    assert luck.spread == pytest.approx(np.sqrt(((frame["y"] - fitted) ** 2).sum() / luck.freedom))
    assert len(luck.apart) == 9, "not the one whose arm and seed it has alone"
    assert luck.apart[:, 0] == pytest.approx((frame["y"] - fitted)[:9] * np.sqrt(9 / luck.freedom))
    assert SeedLuck.crossed([[(_runs(np.ones(2)), [1, 2])]]) is None, "one arm"
    assert SeedLuck.crossed([[], [(_runs(np.ones(1)), [1]), (_runs(np.ones(1)), [1])]]) is None, "one seed"


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
    """Comparisons of a board with two seeds at 24 and one at 48, in which one attention has more luck.

    The seeds of standard attention are others, so that nothing is paired with it.
    """
    runs = [
        record(
            "ETTh1",
            horizon,
            "patchtst",
            kind,
            seed + 10 * (kind == "standard"),
            shift=shake * seed * (kind == shaken),
            windows=900,
        )
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
