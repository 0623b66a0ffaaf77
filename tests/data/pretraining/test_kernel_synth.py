"""Series of Gaussian processes and mixtures of real ones: the same for the same seed, each on one scale."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import WhiteKernel

from tsattn.data.pretraining import kernel_synth
from tsattn.data.pretraining.kernel_synth import composed_covariance, kernel_bank, synthetic_series
from tsattn.data.pretraining.mixed_series import mixed_series


def test_a_seed_decides_all_series() -> None:
    series = synthetic_series(13, 96, seed=4)
    assert series.shape == (13, 96)
    assert np.array_equal(series, synthetic_series(13, 96, seed=4))
    assert np.array_equal(series[:5], synthetic_series(5, 96, seed=4)), "fewer are the first of more"
    assert not np.allclose(series, synthetic_series(13, 96, seed=5))
    assert synthetic_series(0, 96).shape == (0, 96)


def test_series_are_on_one_scale_and_unlike() -> None:
    series = synthetic_series(40, 200)
    assert np.allclose(series.mean(axis=1), 0)
    assert np.allclose(series.std(axis=1), 1)
    alike = np.abs(np.corrcoef(series))[np.triu_indices(40, 1)]
    assert np.median(alike) < 0.5
    rough = np.abs(np.diff(series)).mean(axis=1)
    assert rough.min() < 0.1 < 0.8 < rough.max(), "smooth ones and noise"


def test_covariances_are_those_of_the_kernels() -> None:
    length = 30
    steps = np.linspace(0, 1, length)[:, None]
    for kernel in kernel_bank(length):
        made = kernel_synth._matrix(kernel_synth._covariance(kernel, length))
        expected = kernel.noise_level * np.eye(length) if isinstance(kernel, WhiteKernel) else kernel(steps)
        np.testing.assert_allclose(made, expected, atol=1e-12, err_msg=str(kernel))


def test_compositions_are_covariances() -> None:
    rng = np.random.default_rng(0)
    made = [kernel_synth._covariance(kernel, 40) for kernel in kernel_bank(40)]
    kept = [part.copy() for part in made]
    for _ in range(30):
        whole = composed_covariance(made, rng)
        assert np.allclose(whole, whole.T)
        assert np.linalg.eigvalsh(whole).min() > -1e-8 * np.abs(whole).max()
    assert all(np.array_equal(one, other) for one, other in zip(made, kept, strict=True)), "the bank stays as it is"


def test_draws_have_the_covariance_that_was_composed() -> None:
    """Of white noise and a wave of 8 steps: what comes a period later is alike, half a period later not."""
    parts = [kernel_synth._covariance(kernel_synth.ExpSineSquared(1.0, 8 / 400), 400)]
    batches = kernel_synth._batches(parts, 400, 50, np.random.default_rng(1))
    series = np.concatenate([next(batches) for _ in range(10)])
    later = {gap: np.mean(series[:, gap:] * series[:, :-gap]) for gap in (4, 8)}
    assert later[8] > 0.95
    assert later[4] < 0


def test_mixtures_are_of_the_sources_alone() -> None:
    steps = np.arange(900.0)
    sources = {"waves": [np.sin(steps / 5), np.cos(steps / 9)], "line": [steps[:50]]}
    mixed = mixed_series(sources, 400, 100, seed=2)
    assert len(mixed) == 400
    assert {len(one) for one in mixed} == {50, 100}
    for one in mixed:
        assert np.isclose(one.mean(), 0)
        assert np.isclose(one.std(), 1)
    again = mixed_series(sources, 400, 100, seed=2)
    assert all(np.array_equal(one, other) for one, other in zip(mixed, again, strict=True))
    lines = [one for one in mixed if np.allclose(np.diff(one, 2), 0)]
    assert 5 < len(lines) < 80, "the smaller source comes, too, but less often"


@pytest.mark.filterwarnings("error")
def test_missing_values_stay_missing_and_constants_are_left_out() -> None:
    gone = np.sin(np.arange(300.0))
    gone[40:60] = np.nan
    sources = {"gone": [gone, np.full(300, np.nan)], "flat": [np.ones(300)]}
    mixed = mixed_series(sources, 30, 200)
    assert all(np.isfinite(one).any() for one in mixed)
    assert any(np.isnan(one).any() for one in mixed)
