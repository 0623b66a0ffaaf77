"""What is known of the luck of an arm: that of all attentions of its predictor, unless its own runs tell otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import bartlett

from tests.leaderboard.invented import record
from tsattn.leaderboard.arm_luck import ArmLucks, ArmRuns
from tsattn.leaderboard.block_bootstrap import Resample, ResampledRuns
from tsattn.leaderboard.comparisons import COMPARISON, compare_all
from tsattn.leaderboard.deviations import deviations
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.seed_luck import SeedLuck, at_each_horizon
from tsattn.leaderboard.standings import OriginErrors, RankedArm, Standings

ARMS = [RankedArm("patchtst", kind) for kind in ("standard", "mlr", "swa", "uniform")]
SEEDS = (2, 1, 2, 1)  # at each of four horizons, as on ETTm1
RESAMPLES = 500


def _runs(means: NDArray[np.float64]) -> ResampledRuns:
    """Whose errors are the same in every window, so that there is nothing but luck."""
    return ResampledRuns(means, np.repeat(means[:, None], RESAMPLES, 1))


def _table(arms: Sequence[RankedArm], means: Sequence[NDArray[np.float64]], first: int = 0) -> dict[RankedArm, ArmRuns]:
    """Arms of the same seeds, or each of its own if a first one is given."""
    found = {}
    for number, (arm, one) in enumerate(zip(arms, means, strict=True)):
        errors = OriginErrors(np.ones((len(one), 1)), np.ones(1), np.zeros(1))
        seeds = [first * number + seed for seed in range(len(one))]
        found[arm] = ArmRuns(_runs(one), errors, seeds)
    return found


def _wrong(spreads: Sequence[float], cases: int) -> float:
    """How often the first two arms, whose true errors are the same, are told apart at the 5 % level."""
    rng = np.random.default_rng(5)
    resample = Resample.draw(40, 1, RESAMPLES, rng)
    wrong = 0
    for _ in range(cases):
        tables = {
            horizon: _table(ARMS, [1 + spread * rng.standard_normal(seeds) for spread in spreads], first=10)
            for horizon, seeds in enumerate(SEEDS)
        }
        lucks = ArmLucks.apart(tables)
        standard, mlr = (tables[1][arm].runs for arm in ARMS[:2])  # at a horizon of one seed
        luck, other = (lucks.at(1, arm) for arm in (ARMS[1], ARMS[0]))
        around = deviations(mlr, standard, resample, luck, other, rng)
        low, high = around.interval(mlr.mean - standard.mean)
        wrong += not low <= 0 <= high
    return wrong / cases


def test_an_arm_of_more_luck_is_not_told_apart_by_it() -> None:
    """Of luck that is taken for that of the others, it would be in 22 of 100 cases."""
    assert _wrong((0.003, 0.03, 0.003, 0.003), 600) <= 0.075


def test_an_arm_of_more_luck_does_not_hide_it_by_its_own() -> None:
    """Of four horizons that are alike; were it relative to a luck that is mostly its own, in 11 of 100 cases."""
    rng = np.random.default_rng(12)
    resample = Resample.draw(40, 1, RESAMPLES, rng)
    wrong = 0
    for _ in range(400):
        tables = {
            horizon: _table(ARMS, [1 + 0.003 * (1 + 9 * (arm == ARMS[1])) * rng.standard_normal(2) for arm in ARMS], 10)
            for horizon in range(4)
        }
        lucks = ArmLucks.apart(tables)
        mlr, standard = (tables[0][arm].runs for arm in (ARMS[1], ARMS[0]))
        around = deviations(mlr, standard, resample, lucks.at(0, ARMS[1]), lucks.at(0, ARMS[0]), rng)
        low, high = around.interval(mlr.mean - standard.mean)
        wrong += not low <= 0 <= high
    assert wrong / 400 <= 0.07


def test_a_horizon_whose_runs_are_all_the_same_says_nothing_of_an_arm() -> None:
    still = _table(ARMS, [np.ones(2)] * 4, 10)
    shaken = _table(ARMS, [1 + 0.01 * (1 + 30 * (arm == ARMS[1])) * np.array([-1.0, 1.0]) for arm in ARMS], 10)
    lucks = ArmLucks.apart({96: still, 720: shaken})
    near, far = (lucks.at(horizon, ARMS[1]) for horizon in (96, 720))
    assert near is not None
    assert far is not None
    assert near.spread == 0
    assert far.spread == pytest.approx(0.31 * np.sqrt(2))


def test_a_luck_of_two_runs_beside_one_of_two_has_a_degree_of_freedom() -> None:
    """With less than one no detectable difference can be computed."""
    one, other = (SeedLuck.of([_runs(1 + size * np.array([-1.0, 1.0]))]) for size in (0.5, 0.01))
    assert one is not None
    assert other is not None
    assert (one.freedom, other.freedom) == (1, 1)
    assert one.scaled_by(other).freedom == 1
    assert one.scaled_by(other).spread == pytest.approx(one.spread * other.spread)


def test_luck_that_is_alike_is_told_as_often_as_is_said() -> None:
    assert 0.02 <= _wrong((0.01,) * 4, 600) <= 0.075


@pytest.mark.parametrize(("factors", "seeds"), [((1, 4), (3, 3)), ((1, 1.5, 2, 2.5), (2, 2, 2, 2)), ((1, 2), (5, 5))])
def test_luck_that_grows_with_the_horizon_is_told_apart_no_more_often(
    factors: Sequence[float], seeds: Sequence[int]
) -> None:
    """At the furthest horizon; of luck that is taken for alike, it would be in 12 to 22 of 100 cases."""
    rng = np.random.default_rng(3)
    resample = Resample.draw(40, 1, RESAMPLES, rng)
    wrong = 0
    for _ in range(400):
        tables = {
            horizon: _table(ARMS, [1 + 0.005 * factor * rng.standard_normal(count) for _ in ARMS], first=10)
            for horizon, (factor, count) in enumerate(zip(factors, seeds, strict=True))
        }
        lucks, last = ArmLucks.apart(tables), len(factors) - 1
        mlr, standard = (tables[last][arm].runs for arm in (ARMS[1], ARMS[0]))
        around = deviations(mlr, standard, resample, lucks.at(last, ARMS[1]), lucks.at(last, ARMS[0]), rng)
        low, high = around.interval(mlr.mean - standard.mean)
        wrong += not low <= 0 <= high
    assert wrong / 400 <= 0.085


def test_horizons_are_pooled_where_their_luck_is_alike() -> None:
    rng = np.random.default_rng(7)
    pooled = {}
    for factor in (1.0, 10.0):
        known = {
            horizon: _runs(1 + spread * rng.standard_normal(8))
            for horizon, spread in ((96, 0.01), (192, 0.01 * factor))
        }
        known[720] = _runs(np.ones(1))
        pooled[factor] = at_each_horizon(known, SeedLuck.of), known
    lucks, known = pooled[1.0]
    assert lucks[96] is lucks[192] is lucks[720]
    assert lucks[96].freedom == 14
    lucks, known = pooled[10.0]
    for horizon in (96, 192):
        assert lucks[horizon].freedom == 7
        assert lucks[horizon].spread == pytest.approx(known[horizon].means.std(ddof=1))
    assert lucks[720] is lucks[192], "the largest, where nothing is known"
    assert at_each_horizon({96: _runs(np.ones(1))}, SeedLuck.of) == {}
    still = {96: _runs(np.ones(3)), 192: _runs(np.ones(2))}
    assert at_each_horizon(still, SeedLuck.of)[96].freedom == 3, "no luck at all is alike"
    assert at_each_horizon({**still, 336: known[96]}, SeedLuck.of)[96].spread == 0


def test_horizons_are_told_apart_by_bartletts_test() -> None:
    rng = np.random.default_rng(8)
    levels = []
    for _ in range(200):
        groups = [1 + spread * rng.standard_normal(count) for spread, count in ((0.01, 5), (0.015, 3), (0.012, 7))]
        lucks = at_each_horizon({horizon: _runs(one) for horizon, one in enumerate(groups)}, SeedLuck.of)
        levels.append((bartlett(*groups).pvalue >= 0.25, lucks[0] is lucks[1]))
    assert all(expected == found for expected, found in levels)
    assert 20 < sum(found for _, found in levels) < 190


def test_a_luck_of_its_own_is_that_of_its_horizon_where_horizons_differ() -> None:
    rng = np.random.default_rng(9)
    tables = {
        horizon: _table(
            ARMS, [1 + size * (1 + 19 * (arm == ARMS[1])) * rng.standard_normal(4) for arm in ARMS], first=10
        )
        for horizon, size in ((96, 0.001), (720, 0.01))
    }
    lucks = ArmLucks.apart(tables)
    assert list(lucks.own) == [ARMS[1]]
    near, far = (lucks.at(horizon, ARMS[1]) for horizon in (96, 720))
    common = lucks.at(720, ARMS[0])
    assert near is not None
    assert far is not None
    assert common is not None
    assert 4 < far.spread / near.spread < 25
    assert common.freedom == 12
    assert far.freedom == pytest.approx(1 / (1 / 6 + 1 / 9)), "of its runs at both, and of the others there"


def _beside_the_ridge(of_seeds: float, seeds: int, horizons: int, cases: int) -> tuple[float, float]:
    """How often an arm is told from an error that is its true one, and the degrees of freedom in the mean."""
    rng = np.random.default_rng(4)
    resample = Resample.draw(40, 1, RESAMPLES, rng)
    ridge, wrong, freedoms = _runs(np.ones(1)), 0, []
    for _ in range(cases):
        tables = {
            horizon: _table(ARMS, 1 + 0.01 * rng.standard_normal((4, seeds)) + of_seeds * rng.standard_normal(seeds))
            for horizon in range(horizons)
        }
        luck = ArmLucks.apart(tables).at(0, ARMS[1])
        assert luck is not None
        freedoms.append(luck.freedom)
        arm = tables[0][ARMS[1]].runs
        low, high = deviations(arm, ridge, resample, luck, None, rng).interval(arm.mean - 1)
        wrong += not low <= 0 <= high
    return wrong / cases, float(np.mean(freedoms))


def test_arms_that_share_seeds_do_not_count_as_others_where_seeds_move_all_alike() -> None:
    """Were they to count, an arm would be told from what it is in 17 of 100 cases; of two seeds, 10 are left."""
    wrong, freedom = _beside_the_ridge(0.03, 2, 2, 400)
    assert wrong <= 0.13
    assert freedom < 3, "2 seeds at 2 horizons"
    wrong, freedom = _beside_the_ridge(0.0, 2, 2, 400)
    assert 0.02 <= wrong <= 0.075
    assert 4 < freedom <= 8


def test_degrees_of_freedom_are_those_of_satterthwaite() -> None:
    """Beside mean squares of a table of 3 arms and 4 seeds."""
    values = 1 + 0.01 * np.random.default_rng(1).standard_normal((3, 4)) + 0.02 * np.arange(4)
    relative = values / values.mean(1, keepdims=True)
    luck = ArmLucks.apart({96: _table(ARMS[:3], relative)}).at(96, ARMS[0])
    assert luck is not None
    of_seeds = 3 * relative.mean(0).var(ddof=1)
    left = (((relative - relative.mean(1, keepdims=True) - relative.mean(0) + relative.mean()) ** 2).sum()) / 6
    variance = of_seeds / 3 + left * 2 / 3
    assert luck.spread**2 == pytest.approx(variance)
    assert luck.freedom == pytest.approx(variance**2 / ((of_seeds / 3) ** 2 / 3 + (left * 2 / 3) ** 2 / 6))


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
        tables = {}
        for horizon in range(horizons):
            means = 1 + np.array(spreads)[:, None] * rng.standard_normal((len(arms), seeds))
            means += of_seeds * rng.standard_normal(seeds)
            means[1] += shift
            tables[horizon] = _table(arms, means)
        reference, arm = (tables[0][one].runs for one in arms[:2])
        lucks = ArmLucks.crossed(tables)
        if not lucks.common:
            lucks = ArmLucks.apart(tables)
        luck, other = (lucks.at(0, one) for one in (arms[1], arms[0]))
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
    for of_seeds, at_least, at_most in ((0.0, 0.05, 0.2), (0.05, 0.95, 1.0)):
        paired = 0
        for _ in range(200):
            means = 1 + of_seeds * rng.standard_normal(3) + 0.01 * rng.standard_normal((4, 3))
            paired += bool(ArmLucks.crossed({96: _table(ARMS, means)}).common)
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

    The seeds of each are others, so that nothing is paired.
    """
    runs = [
        record(
            "ETTh1",
            horizon,
            "patchtst",
            kind,
            seed + 10 * number,
            shift=shake * seed * (kind == shaken),
            windows=900,
        )
        for horizon, seeds in ((24, (1, 2)), (48, (1,)))
        for number, kind in enumerate(("standard", "swa", "mlr", "btt"))
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
