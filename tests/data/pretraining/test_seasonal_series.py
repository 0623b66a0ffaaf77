"""Series with seasons that last: the same for the same seed, each on one scale, most of them alike a season later."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import toeplitz

from tsattn.data.pretraining import seasonal_series as seasons
from tsattn.data.pretraining.seasonal_series import seasonal_covariance, seasonal_series


def test_a_seed_decides_all_series() -> None:
    series = seasonal_series(13, 96, seed=4)
    assert series.shape == (13, 96)
    assert np.array_equal(series, seasonal_series(13, 96, seed=4))
    assert np.array_equal(series[:5], seasonal_series(5, 96, seed=4)), "fewer are the first of more"
    assert not np.allclose(series, seasonal_series(13, 96, seed=5))
    assert seasonal_series(0, 96).shape == (0, 96)


def test_series_are_on_one_scale_and_some_are_skewed() -> None:
    series = seasonal_series(200, 300)
    assert np.allclose(series.mean(axis=1), 0)
    assert np.allclose(series.std(axis=1), 1)
    skewness = (series**3).mean(axis=1)
    assert 0.05 < np.mean(skewness > 1) < 0.4, "exponentials"


def test_a_process_is_a_covariance() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        column = seasonal_covariance(120, rng)
        assert column.shape == (120,)
        assert column[0] == column.max()
        assert np.linalg.eigvalsh(toeplitz(column)).min() > 0


def test_a_season_later_is_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seasons, "_SEASONS", {24: 1.0})
    monkeypatch.setattr(seasons, "_DAYS", ())
    series = seasonal_series(300, 480, seed=1)
    later = {gap: np.mean(series[:, gap:] * series[:, :-gap]) for gap in (12, 24)}
    assert later[24] > 0.5 > 0.3 > later[12]


def test_a_second_season_may_be_the_week(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seasons, "_SECOND", 1.0)
    monkeypatch.setattr(seasons, "_WEEK", 1.0)
    monkeypatch.setattr(seasons, "_SEASONS", {24: 1.0})
    periods: list[int] = []
    made = seasons._quasi_periodic

    def noted(distance: np.ndarray, season: int, rng: np.random.Generator) -> np.ndarray:
        periods.append(season)
        return made(distance, season, rng)

    monkeypatch.setattr(seasons, "_quasi_periodic", noted)
    seasonal_covariance(50, np.random.default_rng(0))
    assert periods == [24, 168]
