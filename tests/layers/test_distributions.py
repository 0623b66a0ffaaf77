"""Distributions as outputs: likelihoods, means and quantiles are those of scipy, at any size."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tsattn.batch import Batch, WindowUnits
from tsattn.layers import InstanceNorm, OutputDistribution, distribution
from tsattn.task import DISTRIBUTIONS, Output
from tsattn.training.losses import batch_loss

B, L, T, C = 3, 11, 5, 2
LEVELS = (0.001, 0.1, 0.5, 0.77, 0.999)
UNITS = WindowUnits(torch.full((B, C), 9.0), torch.tensor([[4.0, 0.5]]).repeat(B, 1))


def batch_of(seed: int = 0, *, observed: bool = False) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    counts = torch.poisson(torch.full((B, L + T, C), 9.0, dtype=torch.float64), generator=rng)
    scaled = (counts - UNITS.mean[:, None]) / UNITS.scale[:, None]
    mask = torch.rand(scaled.shape, generator=rng) > 0.3 if observed else None
    parts: dict[str, Any] = {"past": scaled[:, :L], "target": scaled[:, L:], "units": UNITS}
    if mask is not None:
        parts |= {"past_observed": mask[:, :L], "target_observed": mask[:, L:]}
    return Batch(**parts)


def made(name: str, batch: Batch, seed: int = 0) -> tuple[OutputDistribution, Tensor]:
    family = distribution(Output(distribution=name))
    rng = torch.Generator().manual_seed(seed)
    level = torch.randn(B, T, C, generator=rng, dtype=torch.float64)
    raw = 2 * torch.randn(B, T, C, family.num_outputs - 1, generator=rng, dtype=torch.float64)
    return family, family(level, raw, InstanceNorm(batch.past, batch.past_observed), batch)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_level_of_a_window_moves_its_distribution_alone(name: str) -> None:
    """Of one that is measured from its last value, the forecasts are those from its mean, moved as far."""
    batch = batch_of()
    family = distribution(Output(distribution=name))
    rng = torch.Generator().manual_seed(1)
    level = torch.randn(B, T, C, generator=rng, dtype=torch.float64)
    raw = torch.randn(B, T, C, family.num_outputs - 1, generator=rng, dtype=torch.float64)
    mean, last = (InstanceNorm(batch.past, subtract_last=one) for one in (False, True))
    moved = level - (last.level - mean.level) / mean.scale
    torch.testing.assert_close(family(moved, raw, last, batch), family(level, raw, mean, batch))


def of_scipy(name: str, parameters: Tensor) -> Any:
    one, two, *more = (part.numpy() for part in parameters.unbind(-1))
    if name == "normal":
        return stats.norm(one, two)
    if name == "student_t":
        return stats.t(more[0], one, two)
    return stats.nbinom(1 / two, 1 / (1 + one * two))


def original(values: Tensor) -> Tensor:
    return values * UNITS.scale[:, None] + UNITS.mean[:, None]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_likelihood_mean_and_quantiles_are_those_of_scipy(name: str) -> None:
    batch = batch_of()
    family, parameters = made(name, batch)
    scipy = of_scipy(name, parameters)
    if family.are_counts:
        counts = original(batch.target)
        found = family.log_prob(parameters, batch.target.float(), batch)
        np.testing.assert_allclose(found, scipy.logpmf(counts.round().numpy()), rtol=1e-8, atol=1e-8)
    else:
        found = family.log_prob(parameters, batch.target, batch)
        np.testing.assert_allclose(found, scipy.logpdf(batch.target.numpy()), rtol=1e-8, atol=1e-8)
    values = original(batch.target).round().numpy() if family.are_counts else batch.target.numpy()
    for share, at in zip(
        family.cdf(parameters, batch.target, batch), (values - family.are_counts, values), strict=True
    ):
        np.testing.assert_allclose(share, scipy.cdf(at), rtol=1e-8, atol=1e-12)
    back = original if family.are_counts else lambda part: part
    np.testing.assert_allclose(back(family.forecast(parameters, (), batch)), scipy.mean(), rtol=1e-6)
    quantiles = family.forecast(parameters, LEVELS, batch)
    assert quantiles.shape == (B, T, C, len(LEVELS))
    for number, level in enumerate(LEVELS):
        np.testing.assert_allclose(back(quantiles[..., number]), scipy.ppf(level), rtol=1e-6, atol=1e-9)
    each = torch.rand(B, T, C, 4, dtype=torch.float64)  # levels of their own
    drawn = family.quantiles(parameters, each, batch)
    for number in range(4):
        expected = scipy.ppf(each[..., number].numpy())
        np.testing.assert_allclose(back(drawn[..., number]), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    batch = batch_of(observed=True)
    family = distribution(Output(distribution=name))
    norm = InstanceNorm(batch.past, batch.past_observed)

    def loss(level: Tensor, raw: Tensor) -> Tensor:
        parameters = family(level, raw, norm, batch)
        return batch_loss("nll", parameters, batch, (), family)

    rng = torch.Generator().manual_seed(1)
    level = torch.randn(B, T, C, generator=rng, dtype=torch.float64, requires_grad=True)
    raw = torch.randn(B, T, C, family.num_outputs - 1, generator=rng, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (level, raw))
    hidden = Batch(**{**vars(batch), "target": batch.target.where(batch.target_observed, torch.nan)})
    parameters = family(level, raw, norm, batch)
    again = batch_loss("nll", parameters, hidden, (), family)
    torch.testing.assert_close(again, loss(level, raw))  # what is not observed counts nothing


def test_counts_have_positive_means_whatever_the_level_is() -> None:
    batch = batch_of()
    family = distribution(Output(distribution="negative_binomial"))
    level = torch.tensor([-1e4, -3.0, 0.0, 2.0, 50.0]).expand(B, C, T).transpose(1, 2)
    raw = torch.zeros(B, T, C, 1)
    parameters = family(level, raw, None, batch)
    assert bool((parameters > 0).all())
    wanted = original(level.double())
    torch.testing.assert_close(parameters[:, 3:, :, 0], wanted[:, 3:], rtol=0.05, atol=0.05)  # left as they are
    empty = Batch(past=batch.past, past_observed=torch.zeros_like(batch.past, dtype=torch.bool), units=batch.units)
    assert family(level, raw, None, empty).isfinite().all()
