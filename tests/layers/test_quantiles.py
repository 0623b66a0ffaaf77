"""Quantiles that open from a median: ordered whatever the network gives, normal where it gives zeros."""

from __future__ import annotations

from statistics import NormalDist

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsattn.errors import UserError
from tsattn.layers import QuantileFan

LEVELS = (0.05, 0.1, 0.3, 0.5, 0.51, 0.9)


def test_zeros_open_to_the_standard_normal_quantiles() -> None:
    fan = QuantileFan(LEVELS).double()
    median = torch.tensor([[-3.0], [4.0]], dtype=torch.float64)
    quantiles = fan(median, torch.zeros(2, 1, 5, dtype=torch.float64))
    normal = torch.tensor([NormalDist().inv_cdf(level) for level in LEVELS], dtype=torch.float64)
    torch.testing.assert_close(quantiles, median[..., None] + normal, rtol=1e-6, atol=1e-6)


def test_a_step_is_the_distance_of_two_neighbours() -> None:
    fan = QuantileFan(LEVELS).double()
    median, raw = torch.randn(7, 4).double(), torch.randn(7, 4, 5).double()
    quantiles = fan(median, raw)
    assert quantiles.shape == (7, 4, 6)
    assert torch.equal(quantiles[..., 3], median)
    normal = torch.tensor([NormalDist().inv_cdf(level) for level in LEVELS], dtype=torch.float64).diff()
    expected = normal * torch.log1p((raw + torch.tensor(torch.e - 1).double().log()).exp())
    torch.testing.assert_close(quantiles.diff(dim=-1), expected, rtol=1e-5, atol=1e-6)


@given(
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    st.floats(-1e4, 1e4),
    st.floats(0, 300),
    st.integers(0, 1000),
)
def test_quantiles_never_cross(dtype: torch.dtype, level: float, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    fan = QuantileFan(LEVELS).to(dtype)
    median = (level + torch.randn(20, generator=generator)).to(dtype)
    quantiles = fan(median, (spread * torch.randn(20, 5, generator=generator)).to(dtype))
    assert quantiles.isfinite().all()
    assert (quantiles.diff(dim=-1) >= 0).all()


def test_wrong_levels_are_refused() -> None:
    with pytest.raises(UserError, match=r"quantiles must rise, each given once, not 0\.9, 0\.5"):
        QuantileFan((0.9, 0.5))
