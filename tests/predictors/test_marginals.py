"""The distribution of a step between and beyond its quantiles, and where a target lies in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from tests.layers.test_distributions import batch_of, made, of_scipy
from tsattn.predictors.marginals import FamilyMarginals, QuantileMarginals
from tsattn.task import DISTRIBUTIONS

LEVELS = (0.05, 0.3, 0.5, 0.9)


def test_quantiles_of_a_normal_distribution_go_on_as_it_does() -> None:
    location, scale = torch.randn(3, 5, 2, 1), torch.rand(3, 5, 2, 1) + 0.5
    known = location + scale * torch.special.ndtri(torch.tensor(LEVELS))
    marginals = QuantileMarginals(known, LEVELS)
    asked = torch.rand(3, 5, 2, 7, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    expected = stats.norm.ppf(asked.numpy(), location.numpy(), scale.numpy())
    np.testing.assert_allclose(marginals.quantiles(asked), expected, rtol=1e-4, atol=1e-4)
    again = marginals.quantiles(torch.tensor(LEVELS).expand(3, 5, 2, -1))
    torch.testing.assert_close(again, known.double(), rtol=1e-5, atol=1e-5)


def test_scores_are_the_way_back_also_where_quantiles_are_one_number() -> None:
    known = torch.tensor([[0.0, 1.0, 4.0, 5.0], [2.0, 2.0, 2.0, 3.0]]).view(1, 2, 1, 4)
    marginals = QuantileMarginals(known, LEVELS)
    levels = torch.tensor([0.01, 0.2, 0.4, 0.97], dtype=torch.float64)
    for level in levels:
        value = marginals.quantiles(level.expand(1, 2, 1, 1))[..., 0]
        scores = marginals.scores(value, torch.full((1, 2, 1), 0.5))
        assert scores[0, 0, 0].item() == pytest.approx(special.ndtri(level.item()))
    tied = marginals.scores(torch.full((1, 2, 1), 2.0), torch.full((1, 2, 1), 0.5))
    assert bool(tied.isfinite().all())
    assert special.ndtri(0.01) < tied[0, 1, 0] < special.ndtri(0.9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_scores_of_draws_of_a_distribution_are_normal(name: str) -> None:
    batch = batch_of()
    family, parameters = made(name, batch)
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(100):
        drawn = torch.from_numpy(of_scipy(name, parameters).rvs(random_state=rng).astype(float))
        if family.are_counts:
            assert batch.units is not None
            drawn = batch.units.normalise(drawn[..., None])[..., 0]
        uniform = torch.from_numpy(rng.random(drawn.shape))
        scores.append(FamilyMarginals(family, parameters, batch).scores(drawn, uniform))
    assert stats.kstest(torch.stack(scores).flatten(), "norm").pvalue > 0.001
