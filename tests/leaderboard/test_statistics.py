"""Differences between models: estimates, variances over time and seeds, verdicts, and claims over data sets."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tsattn.errors import UserError
from tsattn.leaderboard.statistics import (
    Difference,
    Estimate,
    ModelErrors,
    SeedVariance,
    difference,
    holm,
    over_data_sets,
    seed_variance,
)

PAIR = {"mlr": 1.0, "standard": -1.0}


def model(
    errors: Sequence[float] | Sequence[Sequence[float]] | NDArray[np.float64],
    seeds: Sequence[int | None] = (None,),
    counts: float = 1.0,
) -> ModelErrors:
    sums = counts * np.atleast_2d(np.asarray(errors, float))
    n = sums.shape[1]
    return ModelErrors(sums, np.full(n, counts), np.arange(n), tuple(seeds))


def constant(*errors: float, origins: int = 40, first_seed: int = 1) -> ModelErrors:
    """Runs with the same error in every window, so that time tells nothing."""
    seeds = range(first_seed, first_seed + len(errors))
    return model(np.tile(np.array(errors)[:, None], origins), [*seeds])


def moving(seed: int, origins: int = 240, horizon: int = 6) -> NDArray[np.float64]:
    """Errors of overlapping windows."""
    steps = np.random.default_rng(seed).standard_normal(origins + horizon)
    return 1 + 0.2 * np.convolve(steps, np.full(horizon, 1 / horizon), "valid")[:origins]


def estimate(value: float, error: float, df: float = math.inf) -> Estimate:
    return Estimate(estimate=value, standard_error=error, df=df)


def test_the_estimate_is_the_weighted_sum_of_logs_of_means_over_horizons_and_shared_seeds() -> None:
    tables = [
        {"a": constant(1.0, 3.0), "b": constant(4.0, 4.0, 100.0), "c": constant(8.0)},
        {"a": constant(6.0, 6.0), "b": constant(2.0, 6.0), "c": constant(1.0)},
    ]
    found = difference(tables, {"a": 0.5, "b": 0.5, "c": -1}, horizons=[1, 2])
    # only seed 1 is shared: (1 + 6) / 2, (4 + 2) / 2 and (8 + 1) / 2
    assert found.estimate == pytest.approx(math.log(3.5) / 2 + math.log(3) / 2 - math.log(4.5))
    assert found.seeds == 1
    assert found.blocks == 10, "a tenth of the origins is a block"


@pytest.mark.parametrize(("horizon", "length"), [(6, 24), (48, 60)])
def test_the_variance_over_time_is_that_of_bootstrap_draws(horizon: int, length: int) -> None:
    n = 240
    one, other = moving(1), moving(2)
    counts = np.random.default_rng(3).uniform(1, 3, n)
    pair = {"a": ModelErrors(one[None] * counts, counts, np.arange(n), (None,))}
    pair["b"] = ModelErrors(other[None] * counts, counts, np.arange(n), (None,))
    found = difference([pair], {"a": 1, "b": -1}, horizons=[horizon], block_share=length / n)
    k = n // length
    starts = np.random.default_rng(0).integers(0, n, (20_000, k))
    drawn = ((starts[:, :, None] + np.arange(length)) % n).reshape(len(starts), n)
    ratios = np.log((one * counts)[drawn].sum(1) / (other * counts)[drawn].sum(1))
    cut, wrapped = horizon / (3 * length), horizon / (3 * n) * (1 - horizon / (2 * length))
    share = (1 - horizon / (3 * n)) / (1 - cut - wrapped) / k
    assert found.standard_error**2 == pytest.approx(ratios.var() * k * share / (1 - share), rel=0.03)
    assert found.df == pytest.approx(1.5 * (k - 1) * (1 - cut))
    assert found.seeds == 0
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(found.estimate) / found.standard_error, found.df))


def test_standard_errors_of_horizons_add() -> None:
    names = {"a": 1.0, "b": -1.0}
    first, second = ({"a": model(moving(2 * h)), "b": model(moving(2 * h + 1))} for h in (1, 2))
    alone = [difference([table], names, horizons=[horizon]) for table, horizon in ((first, 6), (second, 48))]
    both = difference([first, second], names, horizons=[6, 48])
    # each horizon moves the log of the mean of two by about half
    assert both.standard_error == pytest.approx(sum(one.standard_error for one in alone) / 2, rel=0.05)
    assert both.blocks == 5
    errors, dfs = np.array([one.standard_error for one in alone]), np.array([13.5 * (1 - 6 / 72), 6 * (1 - 1 / 3)])
    assert both.df == pytest.approx((errors.sum() / (errors / np.sqrt(dfs)).sum()) ** 2, rel=0.05)


def test_seed_variance_pools_relative_variances() -> None:
    errors = {"a": [1.0, 1.2, 1.1], "b": [20.0, 21.0], "single": [1.0]}
    found = seed_variance({name: constant(*runs) for name, runs in errors.items()} | {"ridge": model([1.0])})
    squares, df = 0.0, 0
    for runs in errors.values():
        mean = sum(runs) / len(runs)
        squares += sum((run / mean - 1) ** 2 for run in runs)
        df += len(runs) - 1
    assert found.df == df == 3
    assert found.value == pytest.approx(squares / df)
    assert math.isnan(seed_variance({"single": constant(1.0)}).value)


def test_seeds_count_by_welch_and_satterthwaite() -> None:
    table = {"a": constant(0.9, 1.1), "b": constant(1.98, 2.0, 2.02), "c": constant(1.0, 1.1, 1.2)}
    found = difference([table], {"a": 1, "b": -1}, horizons=[1])
    own = {"a": 0.02, "b": 0.0001, "c": 0.01 / 1.1**2}
    df = {"a": 1, "b": 2, "c": 2}
    pooled = sum(own[name] * df[name] for name in own) / 5
    # one degree of freedom of the pooled variance beside those of a model; two shared seeds
    variance = (own["a"] + pooled) / 2 / 2 + (2 * own["b"] + pooled) / 3 / 2
    assert found.standard_error**2 == pytest.approx(variance)
    of_pooled = (1 / 2 + 1 / 3) / 2
    parts = {"a": own["a"] / 4, "b": own["b"] / 3, "c": 0.0}
    parts = {name: part + of_pooled * own[name] * df[name] / 5 for name, part in parts.items()}
    assert found.df == pytest.approx(variance**2 / sum(part**2 / df[name] for name, part in parts.items()))
    assert found.seed_error == found.standard_error


def test_seeds_of_horizons_are_independent() -> None:
    table = {"a": constant(0.9, 1.1), "b": constant(0.99, 1.01)}
    one = difference([table], {"a": 1, "b": -1}, horizons=[1])
    four = difference([table] * 4, {"a": 1, "b": -1}, horizons=[1] * 4, variances=[*map(seed_variance, [table] * 4)])
    assert four.seed_error == pytest.approx(one.seed_error / 2)
    lent = difference([table] * 4, {"a": 1, "b": -1}, horizons=[1] * 4, variances=[seed_variance(table)] * 4)
    assert four.df > 3 * lent.df, "a variance lent to other horizons tells nothing twice"


def test_verdicts() -> None:
    for value, error, verdict in (
        (-1.97, 1.0, "better"),
        (-1.95, 1.0, "undecided"),
        (1.95, 1.0, "undecided"),
        (1.97, 1.0, "worse"),
        (0.0, 0.00604, "equal within 1 %"),  # 1.645 * 0.00604 = 0.00994 < log(1.01) = 0.00995
        (0.0, 0.00606, "undecided"),
        (-0.004, 0.001, "better"),  # also within 1 %, but better comes first
        (math.nan, 1.0, "undecided"),
    ):
        assert estimate(value, error).verdict() == verdict, (value, error)


def test_the_margin_and_the_percents() -> None:
    found = estimate(math.log(0.98), 0.01, df=5)
    assert found.percent == pytest.approx(-2)
    half = stats.t.ppf(0.95, 5) * 0.01
    expected = [100 * (0.98 * math.exp(side * half) - 1) for side in (-1, 1)]
    assert found.percent_interval(0.9) == pytest.approx(expected)
    assert found.verdict(0.05) == "equal within 5 %"
    assert found.verdict(0.005) == "undecided"


def test_a_claim_is_a_random_effects_mean_with_the_jackknifes_error() -> None:
    values = np.array([-0.03, -0.01, 0.005, -0.02, 0.012])
    errors = np.array([0.004, 0.006, 0.01, 0.003, 0.02])
    found = over_data_sets({str(v): estimate(v, e) for v, e in zip(values, errors, strict=True)})
    w = 1 / errors**2
    q = sum(w * (values - sum(w * values) / sum(w)) ** 2)
    between = (q - 4) / (sum(w) - sum(w**2) / sum(w))
    assert found.between == pytest.approx(math.sqrt(between))
    w = 1 / (errors**2 + between)
    mean = sum(w * values) / sum(w)
    left_out = [sum(np.delete(w * values, i)) / sum(np.delete(w, i)) for i in range(5)]
    assert found.estimate == pytest.approx(mean)
    assert found.standard_error == pytest.approx(math.sqrt(sum((one - mean) ** 2 for one in left_out)))
    assert (found.df, found.better, found.worse) == (4, 3, 2)
    assert found.sign_p == pytest.approx(stats.binomtest(3, 5).pvalue)
    assert found.verdict() == "undecided"
    agreeing = over_data_sets({name: estimate(0.01, 0.006) for name in "abc"})
    assert agreeing.standard_error == pytest.approx(0.006 / math.sqrt(3)), "that three agree may be chance"


def test_data_sets_of_one_source_count_as_one() -> None:
    first = {"a": estimate(-0.03, 0.01), "b": estimate(-0.01, 0.01), "c": estimate(-0.02, 0.02)}
    others = {"d": estimate(0.01, 0.01), "e": estimate(0.0, 0.02)}
    mean = np.average([-0.03, -0.01, -0.02], weights=[4, 4, 1])  # which do not differ by more than their errors
    alone = over_data_sets({"abc": estimate(mean, 0.01 * 1.5**-1), **others})
    found = over_data_sets({**first, **others}, dict.fromkeys(first, "abc"))
    assert (found.estimate, found.between) == (pytest.approx(alone.estimate), pytest.approx(alone.between))
    assert found.standard_error == pytest.approx(alone.standard_error)
    assert (found.sources, found.df, found.better, found.worse) == (3, 2, 3, 1)
    assert over_data_sets(first, dict.fromkeys(first, "abc")).reason.endswith("add data sets of other sources")


def test_data_sets_without_an_interval_count_for_the_signs_alone() -> None:
    unknown = Difference(estimate=-0.5, reason="no model has two seeds", blocks=9, seeds=1)
    known = {"a": estimate(-0.01, 0.01), "b": estimate(-0.02, 0.01), "c": estimate(0.0, 0.01)}
    found = over_data_sets({**known, "d": unknown})
    assert (found.left_out, found.better, found.worse, found.sign_p) == (("d",), 3, 0, 0.25)
    assert found.estimate == pytest.approx(-0.01)
    alone = over_data_sets({"a": known["a"], "d": unknown})
    assert alone.reason.startswith("fewer than two data sets")
    assert alone.verdict() == "undecided"


def test_holm_counts_questions_without_an_answer() -> None:
    np.testing.assert_allclose(holm([0.01, 0.04, math.nan, 0.03]), [0.04, 0.09, math.nan, 0.09])
    assert holm([]).shape == (0,)


# models, horizon, and why there is no interval
NO_INTERVAL: list[tuple[dict[str, ModelErrors], int, str]] = [
    ({"mlr": model([1.0]), "standard": model([2.0])}, 1, "1 test origins are fewer than two blocks of 1; leave out"),
    ({"mlr": model(moving(1)), "standard": model(moving(2))}, 121, "240 test origins are fewer than two blocks"),
    ({"mlr": constant(1.0), "standard": constant(2.0)}, 1, "no model has two seeds"),
    ({"mlr": constant(0.0, 0.0), "standard": constant(2.0, 2.0)}, 1, "mlr has error 0"),
]
REFUSED: list[tuple[dict[str, ModelErrors], str]] = [
    ({"mlr": constant(1.0, 2.0)}, "standard has no runs at one of the horizons"),
    ({"mlr": constant(1.0), "standard": constant(1.0, first_seed=2)}, "mlr and standard share no seed"),
    ({"mlr": constant(1.0), "standard": constant(1.0, origins=41)}, "mlr and standard have different test windows"),
    ({"mlr": model([1.0, 2.0]), "standard": model([1.0, 2.0], counts=2.0)}, "different test windows"),
]


def test_no_interval_has_a_reason_and_what_cannot_be_compared_is_refused_by_name() -> None:
    for table, horizon, reason in NO_INTERVAL:
        found = difference([table], PAIR, horizons=[horizon])
        assert found.reason.startswith(reason)
        assert found.verdict() == "undecided"
        assert np.isnan([found.standard_error, found.p_value, *found.interval(), *found.percent_interval()]).all()
    for table, says in REFUSED:
        with pytest.raises(UserError, match=says):
            difference([table], PAIR, horizons=[96])
    with pytest.raises(ValueError, match="must sum to 0"):
        difference([], {"a": 1.0}, horizons=[])
    for bad in ([1.0, math.nan], [1.0, math.inf], [1.0, -1.0]):
        with pytest.raises(UserError, match="errors of seed 7"):
            model(bad, [7])
    with pytest.raises(UserError, match="a run twice"):
        model([[1.0], [1.0]], [1, 1])


def test_equal_models_are_equal_and_variances_can_be_lent() -> None:
    found = difference([{"mlr": model(moving(1)), "standard": model(moving(1))}], PAIR, horizons=[6])
    assert (found.percent, found.standard_error, found.p_value) == (0, 0, 1)
    assert found.verdict() == "equal within 1 %"
    same = over_data_sets({"a": estimate(0.0, 0.0), "b": estimate(0.0, 0.0)})
    assert (same.estimate, same.standard_error, same.verdict()) == (0, pytest.approx(0, abs=1e-6), "equal within 1 %")
    table = {"mlr": constant(1.0), "standard": constant(2.0)}
    found = difference([table], PAIR, horizons=[1], variances=[SeedVariance({"other": (0.0002, 7)})])
    assert (found.standard_error, found.df) == (pytest.approx(0.02), pytest.approx(7))
