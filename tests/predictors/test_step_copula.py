"""Steps hang together in paths as they did in the windows, and keep their marginals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from tsattn.predictors.step_copula import StepCopula

T = 5
WANTED = 0.8 ** np.abs(np.subtract.outer(np.arange(T), np.arange(T)))


def drawn(windows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    normal: np.ndarray = rng.multivariate_normal(np.zeros(T), WANTED, windows)
    return normal


def generators(count: int, first: int = 0) -> list[np.random.Generator]:
    return [np.random.default_rng([7, first + number]) for number in range(count)]


def test_it_is_the_correlation_of_the_ranks_whatever_scale_they_come_on() -> None:
    scores = drawn(4000)
    copula = StepCopula.of(scores)
    np.testing.assert_allclose(copula.correlation, WANTED, atol=0.05)
    bent = np.exp(scores) * np.arange(1, T + 1) + 3  # forecasts that are off by as much
    np.testing.assert_allclose(StepCopula.of(bent).correlation, copula.correlation, atol=1e-12)
    shuffled = StepCopula.of(scores[np.random.default_rng(1).permutation(4000)])
    np.testing.assert_allclose(shuffled.correlation, copula.correlation, atol=1e-9)


def test_what_is_missing_is_left_out() -> None:
    scores = drawn(6000)
    scores[np.random.default_rng(1).random(scores.shape) < 0.3] = np.nan
    scores[0] = np.nan
    np.testing.assert_allclose(StepCopula.of(scores).correlation, WANTED, atol=0.08)


def test_few_windows_say_little() -> None:
    np.testing.assert_allclose(StepCopula.of(drawn(1)).correlation, np.eye(T))
    few, many = (np.abs(StepCopula.of(drawn(count)).correlation - np.eye(T)).sum() for count in (4, 400))
    assert few < many
    constant = StepCopula.of(np.zeros((9, T)))
    assert np.isfinite(constant.correlation).all()
    np.linalg.cholesky(constant.correlation)


def test_each_path_has_a_share_of_its_own_of_every_step() -> None:
    levels = StepCopula(WANTED).levels(generators(3), T, 2, 100)
    assert levels.shape == (3, T, 2, 100)
    places = (levels.sort(-1).values * 100).floor()
    assert bool((places == places.new_tensor(range(100))).all())  # one in each 100th: exact quantiles


def test_paths_hang_together_as_the_copula_says() -> None:
    levels = StepCopula(WANTED).levels(generators(1), T, 1, 5000)[0, :, 0]
    np.testing.assert_allclose(np.corrcoef(special.ndtri(levels.numpy())), WANTED, atol=0.04)
    alone = StepCopula(np.eye(T)).levels(generators(1), T, 1, 5000)[0, :, 0]
    np.testing.assert_allclose(np.corrcoef(alone), np.eye(T), atol=0.06)
    assert stats.spearmanr(levels[0], levels[1]).statistic > 0.7


@pytest.mark.parametrize("paths", [1, 2, 5, 99, 100])
def test_few_paths_hang_together_as_many_do(paths: int) -> None:
    count = 8000 // paths
    levels = StepCopula(WANTED).levels(generators(count), T, 1, paths)[:, :, 0]
    normal = special.ndtri(levels.transpose(1, 2).flatten(0, 1).numpy())  # paths of all windows
    np.testing.assert_allclose(np.corrcoef(normal.T), WANTED, atol=0.03)
    assert normal.sum(1).std() == pytest.approx(np.sqrt(WANTED.sum()), rel=0.03)
    assert stats.kstest(normal[:, 2], "norm").pvalue > 0.001


def test_draws_of_a_window_do_not_depend_on_the_others_nor_its_steps_on_later_ones() -> None:
    copula = StepCopula(WANTED)
    both = copula.levels(generators(2), T, 1, 9)
    assert bool((copula.levels(generators(1, first=1), T, 1, 9)[0] == both[1]).all())
    assert bool((copula.levels(generators(2), 3, 1, 9) == both[:, :3]).all())
    longer = copula.levels(generators(2), 2 * T + 1, 1, 9)
    assert longer.shape == (2, 2 * T + 1, 1, 9)
