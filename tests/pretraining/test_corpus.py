"""The synthetic corpus keeps what it promises: seeds, seasons, counts, stable processes, values that can be learnt."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from benchmarks.pretraining import kinds
from benchmarks.pretraining.corpus import ANY, BUSINESS, FORGOTTEN, KINDS, NAMED, WRONG, draw
from benchmarks.pretraining.kinds import Series

LENGTH = 700


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def likeness(series: Series, lag: int) -> float:
    return float(np.corrcoef(series[lag:], series[:-lag])[0, 1])


def test_a_seed_decides_the_series_and_none_comes_twice() -> None:
    one, other, third = (draw(np.random.default_rng(seed), 60, 100) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    rows = {row.tobytes() for row in np.concatenate([one[0], third[0]])}
    assert len(rows) == 120


@pytest.mark.parametrize("length", [16, 17, 60, 700, 2048])
def test_values_are_finite_and_vary_at_every_length(rng: np.random.Generator, length: int) -> None:
    values, seasons = draw(rng, 200, length)
    assert values.shape == (200, length)
    assert values.dtype == np.float64
    assert seasons.shape == (200,)
    assert seasons.dtype == np.int64
    assert seasons.min() >= 1
    assert not np.isinf(values).any()
    assert np.abs(values[~np.isnan(values)]).max() < 1e13
    observed = (~np.isnan(values)).mean(axis=1)
    assert observed.min() > 0.3
    assert 0.02 < (observed < 1).mean() < 0.2
    assert (np.nanstd(values, axis=1) > 0).mean() > 0.97


def test_scales_span_orders_of_magnitude(rng: np.random.Generator) -> None:
    levels = np.nanmean(np.abs(draw(rng, 600, 60)[0]), axis=1)
    assert np.quantile(levels, 0.02) < 0.5
    assert np.quantile(levels, 0.98) > 1e5
    assert (np.nanmin(draw(rng, 600, 60)[0], axis=1) >= 0).mean() > 0.75


@pytest.mark.parametrize("kind", [*KINDS])
@pytest.mark.parametrize("length", [16, 300])
def test_each_kind_draws_what_its_form_says(rng: np.random.Generator, kind: str, length: int) -> None:
    for _ in range(40):
        period = max(1, int(rng.choice([*KINDS[kind].periods])))
        series = KINDS[kind].make(rng, length, float(period))
        assert series.shape == (length,)
        assert np.isfinite(series).all()
        if KINDS[kind].form == "whole":
            assert series.min() >= 0


def test_counts_are_whole(rng: np.random.Generator) -> None:
    for make in kinds.counts, kinds.intermittent:
        for _ in range(50):
            series = make(rng, 200, 12.0)
            assert (series == np.round(series)).all()
            assert series.min() >= 0
    drawn = kinds.counted(rng, np.full(20_000, 5.0))
    assert drawn.mean() == pytest.approx(5, rel=0.05)
    assert drawn.var() > 4.8


@pytest.mark.parametrize("period", [2.0, 7.0, 9.3, 24.0, 52.18])
def test_a_season_comes_again(rng: np.random.Generator, period: float) -> None:
    lag = round(50 * period)  # whole
    alike = [likeness(kinds.season(rng, lag + 200, period, changing=0.0), lag) for _ in range(20)]
    assert min(alike) > 0.999


@pytest.mark.parametrize(("kind", "lag"), [("crowd", 168), ("demand", 168), ("sunlight", 24)])
def test_days_and_weeks_show_in_the_autocorrelation(rng: np.random.Generator, kind: str, lag: int) -> None:
    alike = [likeness(KINDS[kind].make(rng, LENGTH, 24.0), lag) for _ in range(40)]
    assert np.median(alike) > 0.6


def test_most_monthly_series_have_a_season_and_some_have_little(rng: np.random.Generator) -> None:
    ratios = []
    for _ in range(200):
        changes = np.diff(kinds.smoothing(rng, 240, 12.0))
        ratios.append(likeness(changes, 12))
    assert np.mean(np.array(ratios) > 0.4) > 0.7
    assert np.mean(np.array(ratios) < 0.2) > 0.02


def test_the_roots_of_a_process_lie_within_the_unit_circle(rng: np.random.Generator) -> None:
    for order, lag in (1, 1), (3, 1), (1, 12):
        for _ in range(100):
            polynomial = kinds.polynomial(rng, order, lag)
            assert polynomial[0] == 1
            assert len(polynomial) == order * lag + 1
            assert np.abs(np.roots(polynomial)).max() < 1


def test_a_process_has_the_variance_of_its_roots(rng: np.random.Generator) -> None:
    polynomial = kinds.polynomial(np.random.default_rng(3), 3, 1)
    response = lfilter([1], polynomial, np.eye(1, 5000)[0])
    series = lfilter([1], polynomial, rng.standard_normal(200_000))
    assert series[5000:].var() == pytest.approx((response**2).sum(), rel=0.1)


def test_processes_stay_bounded(rng: np.random.Generator) -> None:
    for _ in range(50):
        series = kinds.arma(rng, rng.standard_normal(20_000), 12)
        assert np.abs(series[10_000:]).max() < 3 * np.abs(series[:10_000]).max()


def test_an_autoregression_has_unit_variance_from_its_first_step(rng: np.random.Generator) -> None:
    rows = np.stack([kinds.memory(rng.standard_normal(50), 0.9) for _ in range(4000)])
    np.testing.assert_allclose(rows.var(axis=0), 1, atol=0.15)
    assert likeness(rows[:, 10:12].ravel(), 1) == pytest.approx(0.9 / 2, abs=0.1)


def test_the_error_of_a_cycle_stays_in_later_ones() -> None:
    sums = kinds.by_cycle(np.arange(1.0, 8), 3)
    np.testing.assert_array_equal(sums, [0, 0, 0, 1, 2, 3, 1 + 4])


def test_most_periods_are_known_and_some_are_not(rng: np.random.Generator) -> None:
    seasons = draw(rng, 1500, 700)[1]
    shares = {period: float((seasons == period).mean()) for period in (1, 4, 7, 12, 24, 48, 52)}
    assert all(share > 0.03 for share in shares.values())
    assert 0.1 < shares[1] < 0.35
    assert shares[12] > 0.15
    assert len(np.unique(seasons)) > 25
    assert FORGOTTEN + WRONG < 0.2 < NAMED


def test_short_series_have_short_periods(rng: np.random.Generator) -> None:
    assert np.mean(draw(rng, 600, 30)[1] > 15) < 0.3
    assert {*ANY, *BUSINESS} >= {4, 12, 52}
