"""The parts that backbones are built from."""

from __future__ import annotations

import pytest
import torch

from tsattn.attention import build_attention
from tsattn.errors import UserError
from tsattn.layers import DirectHead, Encoder, InstanceNorm


def test_instance_norm_standardises_and_restores() -> None:
    past = 5 + 3 * torch.randn(4, 50, 2, dtype=torch.float64)
    norm = InstanceNorm(past)
    scaled = norm.normalised()
    torch.testing.assert_close(scaled.mean(1), torch.zeros(4, 2, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(scaled.std(1, correction=0), torch.ones(4, 2, dtype=torch.float64), atol=1e-5, rtol=0)
    torch.testing.assert_close(norm.restore(scaled), past)
    quantiles = scaled[..., None] + torch.tensor([-1.0, 0.0, 2.0])
    expected = torch.stack([norm.restore(scaled + shift) for shift in (-1.0, 0.0, 2.0)], -1)
    torch.testing.assert_close(norm.restore(quantiles), expected)


def test_instance_norm_looks_at_observed_steps_only() -> None:
    past = torch.randn(2, 30, 3, dtype=torch.float64)
    observed = torch.rand(2, 30, 3) > 0.3
    norm = InstanceNorm(past, observed)
    junk = torch.where(observed, past, 1e6)
    torch.testing.assert_close(InstanceNorm(junk, observed).level, norm.level)
    torch.testing.assert_close(InstanceNorm(junk, observed).scale, norm.scale)
    torch.testing.assert_close(norm.level[1, 0, 2], past[1, observed[1, :, 2], 2].mean())
    everything = InstanceNorm(past, torch.ones_like(observed))
    torch.testing.assert_close(everything.scale, InstanceNorm(past).scale)


def test_a_window_without_variation_or_observation_stays_finite() -> None:
    flat = torch.full((1, 10, 2), 7.0)
    assert InstanceNorm(flat).normalised().abs().max() == 0
    blind = InstanceNorm(flat, torch.zeros(1, 10, 2, dtype=torch.bool))
    torch.testing.assert_close(blind.scale, torch.ones(1, 1, 2))
    # nothing observed: the last value known before the window, which it was filled with, is its level
    torch.testing.assert_close(blind.level, flat[:, :1])


def test_the_last_observed_step_can_be_the_level() -> None:
    past = torch.randn(3, 30, 2, dtype=torch.float64)
    plain = InstanceNorm(past, subtract_last=True)
    assert torch.equal(plain.level, past[:, -1:])
    assert torch.equal(plain.scale, InstanceNorm(past).scale)
    torch.testing.assert_close(plain.restore(plain.normalised()), past)
    observed = torch.rand(3, 30, 2) > 0.4
    observed[0, 25:] = False
    observed[1, :7] = False
    observed[2, :, 1] = False
    norm = InstanceNorm(torch.where(observed, past, 1e6), observed, subtract_last=True)
    for window in range(3):
        for channel in range(2):
            seen = observed[window, :, channel].nonzero().flatten().tolist()
            level = norm.level[window, 0, channel]
            assert level == (past[window, seen[-1], channel] if seen else 1e6), (window, channel)
            if seen:
                mean = past[window, seen, channel].mean().expand(seen[0])
                torch.testing.assert_close(norm.past[window, : seen[0], channel], mean)
    torch.testing.assert_close(norm.scale, InstanceNorm(past, observed).scale)


def test_the_encoder_runs_its_attentions_in_order() -> None:
    attentions = [build_attention(kind, d_model=16, num_heads=2, max_length=12) for kind in ("standard", "swa", "btt")]
    encoder = Encoder(attentions, d_ff=32, dropout=0.0).eval()
    seen = []
    for attention in attentions:
        attention.register_forward_hook(lambda module, *_: seen.append(module))
    x = torch.randn(2, 12, 16, requires_grad=True)
    out = encoder(x)
    out.square().sum().backward()
    assert seen == attentions
    assert out.shape == x.shape
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_tokens_that_come_one_by_one_are_mapped_as_all_at_once() -> None:
    kinds = ("standard", {"kind": "mlr", "align": "start"})
    attentions = [build_attention(kind, d_model=16, num_heads=2, max_length=12, causal=True) for kind in kinds]
    encoder = Encoder(attentions, d_ff=32, dropout=0.0).eval()
    x, caches = torch.randn(2, 12, 16), encoder.new_caches(2)
    steps = [encoder(x[:, step : step + 1], caches=caches) for step in range(12)]
    torch.testing.assert_close(torch.cat(steps, 1), encoder(x))
    with pytest.raises(UserError, match="caches hold plain sequences: global_tokens cannot be given with them"):
        encoder(x, global_tokens=torch.ones(12, dtype=torch.bool), caches=caches)


def test_the_head_maps_time_then_width() -> None:
    head = DirectHead(context_length=12, prediction_length=5, d_model=16, num_outputs=3)
    tokens = torch.randn(2, 12, 16)
    expected = torch.einsum("tl,bld->btd", head.time.weight, tokens) + head.time.bias[:, None]
    expected = expected @ head.value.weight.T + head.value.bias
    torch.testing.assert_close(head(tokens), expected)
