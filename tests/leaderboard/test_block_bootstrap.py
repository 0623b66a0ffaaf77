"""Intervals hold what they say under dependence of windows and luck of seeds, and find what is there."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t

from tests.leaderboard.invented import overlapping
from tsattn.leaderboard.block_bootstrap import Resample, ResampledRuns, block_length
from tsattn.leaderboard.deviations import Deviations, deviations
from tsattn.leaderboard.seed_luck import SeedLuck


@pytest.mark.parametrize(
    ("origins", "horizon", "length"),
    [(2785, 96, 192), (2689, 192, 268), (2545, 336, 336), (2161, 720, 720), (11425, 96, 571), (134, 60, 60)],
)
def test_blocks_are_as_long_as_a_horizon_at_least(origins: int, horizon: int, length: int) -> None:
    assert block_length(origins, horizon) == length
    assert length >= horizon
    assert block_length(origins, horizon, 2) == min(2 * length, origins)
    assert block_length(origins, horizon, 0.5) == max(round(length / 2), min(horizon, origins))


def test_sums_are_those_of_the_drawn_origins() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(37)
    resample = Resample.draw(37, 5, 20, rng)
    taken = (resample.starts[:, :, None] + np.arange(resample.length)) % 37
    np.testing.assert_allclose(resample.sums(values), values[taken].sum((1, 2)), atol=1e-12)


def test_means_are_errors_over_observed_targets() -> None:
    rng = np.random.default_rng(0)
    sums, counts = rng.random((3, 90)), rng.integers(1, 9, 90).astype(float)
    runs = ResampledRuns.of(sums, counts, Resample.draw(90, 4, 10, rng))
    np.testing.assert_allclose(runs.means, [sum(seed) / sum(counts) for seed in sums])
    assert runs.mean == pytest.approx(float(np.mean([sum(seed) / sum(counts) for seed in sums])))


def test_blocks_keep_the_spread_that_single_windows_lose() -> None:
    """The spread of a mean of windows that overlap is known: n + h - 1 steps, each in h windows or fewer."""
    rng = np.random.default_rng(0)
    n, h = 4000, 50
    weights = np.convolve(np.ones(n), np.ones(h)) / (n * h)
    exact = np.sqrt((weights**2).sum())
    spreads = []
    for _ in range(30):
        values = overlapping(n, h, rng, memory=0.0)
        resample = Resample.draw(n, h, 400, rng)
        runs = ResampledRuns.of(values[None], np.ones(n), resample)
        zero = ResampledRuns.of(np.zeros((1, n)), np.ones(n), resample)
        spreads.append(deviations(runs, zero, resample, None, None, rng).spread)
    assert np.sqrt(np.mean(np.square(spreads))) == pytest.approx(exact, rel=0.12)
    assert exact > 5 * np.std(values) / np.sqrt(n)


def test_luck_of_seeds_has_its_spread() -> None:
    rng = np.random.default_rng(0)
    arms = [ResampledRuns(lucky, np.repeat(lucky[:, None], 4000, 1)) for lucky in rng.standard_normal((200, 2))]
    luck = SeedLuck.of(arms)
    assert luck is not None
    assert luck.freedom == 200
    assert luck.of_mean(5, rng).std() == pytest.approx(1 / np.sqrt(5), rel=0.1)
    assert SeedLuck.of([ResampledRuns(np.ones(1), np.ones((1, 10)))]) is None


def _one_case(
    windows: int, horizon: int, memory: float, seeds: int, luck: float, shift: float, rng: np.random.Generator
) -> tuple[float, bool]:
    """The p-value of two arms whose true difference is `shift`, and whether the interval holds that."""
    common, apart = overlapping(windows, horizon, rng, memory), 0.5 * overlapping(windows, horizon, rng, memory)

    def runs(sign: int) -> NDArray[np.float64]:
        return np.stack([5 + common + sign * apart / 2 + luck * rng.standard_normal() for _ in range(seeds)])

    resample = Resample.draw(windows, horizon, 600, rng)
    ones = np.ones(windows)
    arm = ResampledRuns.of(runs(1) + shift, ones, resample)
    reference = ResampledRuns.of(runs(-1), ones, resample)
    of_both = SeedLuck.of([arm, reference])
    around = deviations(arm, reference, resample, of_both, of_both, rng)
    difference = arm.mean - reference.mean
    low, high = around.interval(difference)
    return around.p_value(difference), low <= shift <= high


def _paired_case(alike: float, shift: float, rng: np.random.Generator) -> tuple[float, float]:
    """The p-value of five pairs of runs whose luck is alike, and what would have been found."""
    n, h = 700, 24
    resample = Resample.draw(n, h, 600, rng)
    common, ones = overlapping(n, h, rng, 0.8), np.ones(n)
    shared, own = rng.standard_normal((5, 1)), rng.standard_normal((2, 5, 1))
    lucks = alike * shared + (1 - alike) * own
    apart = 0.05 * overlapping(n, h, rng, 0.8)
    arm, reference = (
        ResampledRuns.of(5 + common + sign * apart + luck + (sign > 0) * shift, ones, resample)
        for sign, luck in zip((1, -1), lucks, strict=True)
    )
    around = deviations(arm, reference, resample, SeedLuck.of([arm.less(reference)]), None, rng)
    return around.p_value(arm.mean - reference.mean), around.detectable(0.05)


def test_pairs_find_what_luck_would_hide() -> None:
    rng = np.random.default_rng(5)
    assert np.mean([_paired_case(0.99, 0.1, rng)[0] < 0.05 for _ in range(30)]) > 0.9
    assert _paired_case(0.99, 0.1, rng)[1] < 0.1
    assert np.mean([_paired_case(0.0, 0.1, rng)[0] < 0.05 for _ in range(30)]) < 0.3


@pytest.mark.parametrize("alike", [0.0, 0.99])
def test_pairs_find_nothing_where_nothing_is(alike: float) -> None:
    rng = np.random.default_rng(11)
    assert np.mean([_paired_case(alike, 0.0, rng)[0] < 0.05 for _ in range(200)]) <= 0.085


@pytest.mark.parametrize(
    ("windows", "horizon", "memory", "seeds", "luck"),
    [
        (1000, 24, 0.0, 5, 0.0),
        (1000, 24, 0.8, 5, 0.1),
        (700, 96, 0.8, 3, 0.05),
        (300, 100, 0.8, 2, 0.1),
        (1000, 24, 0.8, 1, 0),
    ],
)
def test_nothing_is_found_where_nothing_is(windows: int, horizon: int, memory: float, seeds: int, luck: float) -> None:
    rng = np.random.default_rng(7)
    cases = [_one_case(windows, horizon, memory, seeds, luck, 0.0, rng) for _ in range(200)]
    wrong = np.mean([p < 0.05 for p, _ in cases])
    held = np.mean([inside for _, inside in cases])
    # 0.05 in 200 cases is 0.02 to 0.08; three blocks, the fewest of these, are allowed a little more
    assert 0.005 <= wrong <= (0.12 if windows == 3 * horizon else 0.09)
    assert held >= (0.88 if windows == 3 * horizon else 0.91)


def test_windows_as_if_independent_would_find_what_is_not_there() -> None:
    """The reason for blocks: a plain test of overlapping windows errs most of the time."""
    rng = np.random.default_rng(7)
    wrong = []
    for _ in range(100):
        difference = overlapping(700, 96, rng, 0.8)
        wrong.append(abs(difference.mean()) > 1.96 * difference.std() / np.sqrt(len(difference)))
    assert np.mean(wrong) > 0.5


def test_what_is_there_is_found_as_often_as_is_said() -> None:
    rng = np.random.default_rng(3)
    n, h = 1000, 24
    sizes = []
    for _ in range(20):
        resample = Resample.draw(n, h, 600, rng)
        runs = ResampledRuns.of(0.5 * overlapping(n, h, rng, 0.8)[None], np.ones(n), resample)  # as arms differ there
        zero = ResampledRuns.of(np.zeros((1, n)), np.ones(n), resample)
        sizes.append(deviations(runs, zero, resample, None, None, rng).detectable(0.05))
    shift = float(np.mean(sizes))
    found = np.mean([_one_case(n, h, 0.8, 1, 0.0, shift, rng)[0] < 0.05 for _ in range(100)])
    assert 0.65 <= found <= 0.93


@pytest.mark.parametrize(
    ("freedoms", "spreads"),
    [((28.5,), (1,)), ((3.0,), (1,)), ((1.5,), (1,)), ((28.5, 8.0), (1, 1)), ((9.0, 8.0), (0.3, 1))],
    ids=["20 blocks", "3 blocks", "2 blocks", "and luck", "luck most"],
)
@pytest.mark.parametrize("level", [0.05, 0.0003])
def test_what_is_detectable_is_found_in_80_of_100_cases(
    freedoms: tuple[float, ...], spreads: tuple[float, ...], level: float
) -> None:
    """Also where blocks are few, and where the level is that of one comparison among many."""
    rng = np.random.default_rng(4)
    found = np.stack(
        [
            np.sqrt(rng.chisquare(freedom, 20_000) / freedom) * spread
            for freedom, spread in zip(freedoms, spreads, strict=True)
        ]
    )
    said = np.median(
        [Deviations(np.empty(0), [*zip(one, freedoms, strict=True)]).detectable(level) for one in found[:, :500].T]
    )
    quantiles = t.ppf(1 - level / 2, np.array(freedoms))
    critical = np.sqrt(((quantiles[:, None] * found) ** 2).sum(0))
    differences = said + np.hypot.reduce(spreads) * rng.standard_normal(found.shape[1])
    assert 0.75 <= np.mean(np.abs(differences) > critical) <= 0.85


def _drawn(spreads: tuple[float, ...], freedoms: tuple[float, ...], resamples: int, seed: int) -> Deviations:
    """Sources that vary normally, with the chi-squared mixture."""
    rng = np.random.default_rng(seed)
    parts = [spread * rng.standard_normal(resamples) for spread in spreads]
    mixed = [
        part * np.sqrt(freedom / rng.chisquare(freedom, resamples))
        for part, freedom in zip(parts, freedoms, strict=True)
    ]
    sources = [np.stack(pair) for pair in zip(parts, mixed, strict=True)]
    return Deviations(np.sum(mixed, axis=0), [*zip(spreads, freedoms, strict=True)], sources)


@pytest.mark.parametrize(
    ("freedom", "p", "tolerance"),
    [(2.0, 0.2, 0.1), (2.0, 1e-8, 0.1), (8.0, 1e-3, 0.15), (8.0, 1e-8, 0.3), (28.5, 1e-3, 0.3), (28.5, 1e-4, 0.5)],
)
@pytest.mark.parametrize("sign", [-1, 1])
def test_p_values_are_those_of_students_t_far_out_in_the_tails(
    freedom: float, p: float, tolerance: float, sign: int
) -> None:
    difference = sign * 3 * t.ppf(1 - p / 2, freedom)
    assert _drawn((3.0,), (freedom,), 20_000, 1).p_value(difference) == pytest.approx(p, rel=tolerance)


@pytest.mark.parametrize("difference", [0.5, 3.0, -6.0])
@pytest.mark.parametrize("spreads", [(1.0, 1.0), (0.3, 1.0), (1.0, 0.0)])
def test_p_values_of_two_sources_are_how_often_such_deviations_are_drawn(
    difference: float, spreads: tuple[float, float]
) -> None:
    many = _drawn(spreads, (9.0, 4.0), 2_000_000, 2)
    expected = float(np.mean(np.abs(many.values) >= abs(difference)))
    assert _drawn(spreads, (9.0, 4.0), 20_000, 3).p_value(difference) == pytest.approx(expected, rel=0.15)


def test_small_p_values_hang_on_no_single_draw() -> None:
    """They would be 0, 1, 2 or 3 of the draws if these were counted."""
    found = [_drawn((0.2, 1.0), (28.5, 8.0), 20_000, seed).p_value(7.0) for seed in range(8)]
    assert max(found) < 3e-4
    assert max(found) < 1.3 * min(found)


def test_a_difference_of_nothing_is_one() -> None:
    rng = np.random.default_rng(0)
    resample = Resample.draw(100, 5, 50, rng)
    runs = ResampledRuns.of(np.ones((1, 100)), np.ones(100), resample)
    around = deviations(runs, runs, resample, None, None, rng)
    assert around.p_value(0.0) == 1
    assert around.interval(0.0) == (0, 0)


@pytest.mark.parametrize("origins", [1, 20, 40])
def test_fewer_origins_than_a_horizon_have_no_spread(origins: int) -> None:
    resample = Resample.draw(origins, 48, 10, np.random.default_rng(0))
    assert not resample.has_spread
    np.testing.assert_allclose(resample.sums(np.ones(origins)), resample.starts.shape[1] * resample.length)


def test_draws_without_an_observed_target_say_nothing() -> None:
    rng = np.random.default_rng(0)
    for observed, is_enough in ((250, True), (40, False)):
        counts = (np.arange(400) < observed).astype(float)
        resample = Resample.draw(400, 96, 2000, np.random.default_rng(1))
        arms = [ResampledRuns.of(rng.normal(mean, 1, (3, 400)) * counts, counts, resample) for mean in (0, 0.5)]
        found = deviations(*arms, resample, None, None, rng)
        assert (found is not None) == is_enough
        assert found is None or np.isfinite([*found.values, found.spread, *found.interval(-0.5)]).all()
