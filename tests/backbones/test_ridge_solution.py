"""The closed form of ridge regression against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SklearnRidge

from tests.toy_windows import toy_task, toy_windows
from tsattn.backbones.ridge_solution import apply_ridge, solve_ridge
from tsattn.batch import Batch


def centred_rows(windows: Batch, gaps: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts, horizons and levels of every channel of every window whose targets are all known, one by one."""
    rows = []
    for b in range(len(windows)):
        for c in range(windows.past.shape[-1]):
            past, target = windows.past[b, :, c].numpy(), windows.target[b, :, c].numpy()
            seen = windows.past_observed[b, :, c].numpy() if gaps else np.ones(len(past), bool)
            known = windows.target_observed[b, :, c].numpy() if gaps else np.ones(len(target), bool)
            level = past[seen].mean() if seen.any() else past.mean()
            first = int(np.argmax(seen)) if seen.any() else 0
            centred = np.where(np.arange(len(past)) < first, 0.0, past - level)
            if known.all():
                rows.append((centred, target - level, level))
    x, y, levels = zip(*rows, strict=True)
    return np.stack(x), np.stack(y), np.stack(levels)


@pytest.mark.parametrize("gaps", [False, True])
def test_it_equals_scikit_learn(gaps: bool) -> None:
    batches = [toy_windows(toy_task(9, 4), 30, gaps=gaps, seed=seed) for seed in range(4)]
    parts = [centred_rows(windows, gaps) for windows in batches]
    x, y, levels = (np.concatenate(part) for part in zip(*parts, strict=True))
    assert (len(x) < 4 * 30 * 3) == gaps
    expected = SklearnRidge(alpha=10.0, fit_intercept=False).fit(x, y)
    weight = solve_ridge(batches, alpha=10.0)
    np.testing.assert_allclose(weight.T, expected.coef_, rtol=1e-8, atol=1e-10)
    if not gaps:
        forecast = torch.cat([apply_ridge(weight, windows).transpose(1, 2).flatten(0, 1) for windows in batches])
        np.testing.assert_allclose(forecast, expected.predict(x) + levels[:, None], rtol=1e-8)
