"""Losses of what is observed: by value, by quantile, and by frequency against the definition of the transform."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tsattn.training import ForecastingModule
from tsattn.training.losses import FREQUENCY, LOSSES, frequency_loss, masked_loss

LEVELS = (0.1, 0.5, 0.75, 0.9)
SMALL = {"kind": "transformer", "d_model": 16, "num_heads": 2}


def test_the_pinball_loss_is_the_mean_over_observed_targets_and_levels() -> None:
    forecast, target = torch.randn(2, 6, 3, 4).double(), torch.randn(2, 6, 3).double()
    observed = torch.rand(2, 6, 3) > 0.4
    error = target[..., None] - forecast
    losses = torch.stack([2 * e * (q - (e < 0).double()) for e, q in zip(error.unbind(-1), LEVELS, strict=True)], -1)
    junk = torch.where(observed, target, 1e3)
    torch.testing.assert_close(masked_loss("pinball", forecast, junk, observed, LEVELS), losses[observed].mean())
    torch.testing.assert_close(masked_loss("pinball", forecast, target, None, LEVELS), losses.mean())
    median = masked_loss("pinball", forecast[..., :1], target, None, (0.5,))
    torch.testing.assert_close(median, masked_loss("mae", forecast[..., 0], target, None))


def test_the_loss_follows_from_what_is_forecast() -> None:
    assert (ForecastingModule(SMALL).loss, ForecastingModule(SMALL, loss="mae").loss) == ("mse", "mae")
    assert ForecastingModule(SMALL, quantiles=LEVELS).loss == "pinball"
    assert ForecastingModule(SMALL, distribution="normal").loss == "nll"


def by_definition(error: NDArray[np.float64]) -> NDArray[np.float64]:
    T = error.shape[1]
    frequencies, steps = np.arange(T // 2 + 1), np.arange(T)
    waves = np.exp(-2j * np.pi * np.outer(frequencies, steps) / T) / np.sqrt(T)
    spectrum = np.abs(np.einsum("ft,btc->bfc", waves, error)).mean(1, keepdims=True)
    return 0.5 * np.abs(error) + 0.5 * spectrum


def drawn(T: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    forecast, target = (torch.randn(3, T, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    observed = torch.rand(3, T, 2, generator=generator) > 0.3
    weight = torch.randint(0, 3, (3, T, 2), generator=generator).double()
    return forecast, target, observed, weight


@pytest.mark.parametrize("T", [1, 2, 7, 12])
def test_the_loss_by_frequency_is_as_defined(T: int) -> None:
    forecast, target, observed, weight = drawn(T)
    error = (forecast - target).numpy()
    plain = by_definition(error).mean()
    assert masked_loss(FREQUENCY, forecast, target, None).item() == pytest.approx(plain, rel=1e-12)
    assert T > 1 or plain == pytest.approx(np.abs(error).mean())
    counts = (observed & (weight > 0)).numpy()
    each = by_definition(np.where(counts, error, 0.0)) * weight.numpy()
    expected = each[counts].mean() if counts.any() else 0.0
    assert masked_loss(FREQUENCY, forecast, target, observed, (), weight).item() == pytest.approx(expected, rel=1e-12)
    assert masked_loss(FREQUENCY, forecast, target, torch.zeros_like(observed)) == 0


def test_a_perfect_forecast_has_a_finite_gradient() -> None:
    target = drawn(8)[1]
    leaf = target.clone().requires_grad_()
    loss = masked_loss(FREQUENCY, leaf, target, None)
    loss.backward()
    assert (loss == 0) & leaf.grad.isfinite().all()


def test_half_precisions_are_transformed_in_float32() -> None:
    forecast, target, observed, _ = drawn(7)
    half = frequency_loss(forecast.bfloat16(), target.bfloat16(), observed)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half.double(), frequency_loss(forecast, target, observed), rtol=0, atol=0.05)


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "frequency", "pinball"])
def test_an_unknown_target_reaches_no_gradient(name: str) -> None:
    torch.manual_seed(0)
    levels = (0.1, 0.5, 0.9) if name == "pinball" else ()
    target, observed = torch.randn(3, 6, 2), torch.rand(3, 6, 2) < 0.6
    made = torch.randn(3, 6, 2, *([len(levels)] if levels else []))
    results = []
    for unknown in (0.0, torch.nan, 7.0):
        forecast = made.clone().requires_grad_()
        loss = masked_loss(name, forecast, target.masked_fill(~observed, unknown), observed, levels)
        (gradient,) = torch.autograd.grad(loss, forecast)
        results.append((loss.detach(), gradient))
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])
    assert not results[0][1][~observed].any()
    if name in LOSSES:
        torch.testing.assert_close(results[0][0], LOSSES[name](made[observed], target[observed]))
        everything = torch.ones_like(observed)
        torch.testing.assert_close(masked_loss(name, made, target, everything), masked_loss(name, made, target, None))
        assert masked_loss(name, made, target, ~everything) == 0
