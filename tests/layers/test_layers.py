"""The parts that backbones are built from: norms, dropout, patches, quantiles, encoders."""

import copy
import pickle
from statistics import NormalDist

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.toy_windows import toy_task, toy_windows
from tsattn.attention import build_attention
from tsattn.backbones import build_backbone
from tsattn.errors import UserError
from tsattn.layers import DirectHead, Dropout, Encoder, EncoderBlock, InstanceNorm, Patches, QuantileFan
from tsattn.layers.encoder import TOKEN_NORMS, TokenBatchNorm
from tsattn.task import Task


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


def test_tokens_that_come_one_by_one_are_mapped_as_all_at_once() -> None:
    kinds = ("standard", {"kind": "mlr", "align": "start"})
    attentions = [build_attention(kind, d_model=16, num_heads=2, max_length=12, causal=True) for kind in kinds]
    encoder = Encoder(attentions, d_ff=32, dropout=0.0).eval()
    x, caches = torch.randn(2, 12, 16), encoder.new_caches(2)
    steps = [encoder(x[:, step : step + 1], caches=caches) for step in range(12)]
    torch.testing.assert_close(torch.cat(steps, 1), encoder(x))
    with pytest.raises(UserError, match="leave out global_tokens: these do not work with caches"):
        encoder(x, global_tokens=torch.ones(12, dtype=torch.bool), caches=caches)


def test_the_head_maps_time_then_width() -> None:
    head = DirectHead(context_length=12, prediction_length=5, d_model=16, num_outputs=3)
    tokens = torch.randn(2, 12, 16)
    expected = torch.einsum("tl,bld->btd", head.time.weight, tokens) + head.time.bias[:, None]
    expected = expected @ head.value.weight.T + head.value.bias
    torch.testing.assert_close(head(tokens), expected)


def encoder() -> Encoder:
    torch.manual_seed(0)
    kinds = ("standard", {"kind": "mlr", "ranks": [4, 2, 2]}, {"kind": "swa", "window_size": 5}, "mlr")
    attentions = [build_attention(kind, d_model=16, num_heads=2, max_length=48) for kind in kinds]
    return Encoder(attentions, d_ff=64, dropout=0.3)


def value_and_gradients(model: Encoder, x: Tensor) -> tuple[list[Tensor], int]:
    """The output and the gradients of input and weights; and the bytes kept for the backward pass."""
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model(x)
    size = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return [out, *torch.autograd.grad(out.square().mean(), [x, *model.parameters()])], size


def test_blocks_computed_anew_give_the_same_gradients_from_less() -> None:
    model, x = encoder(), torch.randn(8, 48, 16)
    expected, everything = value_and_gradients(model, x)
    names = list(model.state_dict())
    model.recompute = True
    found, inputs = value_and_gradients(model, x)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other), "dropout drops the same numbers"
    # of each of the four blocks the input, and what the last normalisation keeps
    block = x.numel() * x.element_size()
    assert 4 * block <= inputs <= 7 * block
    assert inputs < everything / 4
    assert list(model.state_dict()) == names


def test_it_is_a_dropout_of_torch() -> None:
    layer = Dropout(0.25)
    assert isinstance(layer, nn.Dropout), "as those look for who drop numbers in forecasts too"
    assert repr(layer) == "Dropout(p=0.25)"
    assert not layer.state_dict()
    x = torch.randn(30, 40)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        results = []
        for one in (layer, other):
            torch.manual_seed(0)
            results.append(one(x, x))
        assert torch.equal(*results)
    layer.p = 0.0
    assert layer(x) is x
    task = Task("none", 32, 8, ("one",), "h", 24)
    for kind in ("patchtst", "transformer"):
        model = build_backbone({"kind": kind, "d_model": 8, "num_heads": 2, "num_layers": 1, "calendar": True}, task)
        layers = [module for module in model.modules() if isinstance(module, nn.Dropout)]
        assert [type(one) for one in layers] == [Dropout] * 4


def test_a_block_drops_both_branches_and_the_hidden_numbers() -> None:
    torch.manual_seed(0)
    block, x = EncoderBlock(build_attention("standard", d_model=8, num_heads=2), 16, 0.5), torch.randn(50, 7, 8)
    nn.init.zeros_(block.attention.output.weight)
    nn.init.ones_(block.attention.output.bias)
    nn.init.zeros_(block.feedforward[3].weight)
    nn.init.ones_(block.feedforward[3].bias)
    added = (block(x) - x).detach()
    # each branch is 1, and 2 or 0 after dropping
    values, shares = torch.unique(added.round(), return_counts=True)
    assert values.tolist() == [0, 2, 4]
    torch.testing.assert_close(shares / added.numel(), torch.tensor([0.25, 0.5, 0.25]), atol=0.03, rtol=0)


def test_batch_normalisation_is_over_all_tokens_of_a_batch() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 7, 5, dtype=torch.float64) * 3 + 2
    norm = TokenBatchNorm(5).double()
    with torch.no_grad():
        norm.norm.weight.normal_()
        norm.norm.bias.normal_()
    mean, variance = x.mean((0, 1)), x.var((0, 1), correction=0)
    expected = (x - mean) / (variance + 1e-5).sqrt() * norm.norm.weight + norm.norm.bias
    torch.testing.assert_close(norm(x), expected)
    running = 0.9 + 0.1 * x.var((0, 1))
    in_eval = (x - 0.1 * mean) / (running + 1e-5).sqrt() * norm.norm.weight + norm.norm.bias
    torch.testing.assert_close(norm.eval()(x), in_eval)


def test_activations_that_are_computed_anew_count_once() -> None:
    torch.manual_seed(0)
    attentions = [build_attention("standard", d_model=8, num_heads=2, max_length=6) for _ in range(2)]
    plain = Encoder(attentions, 16, 0.0, "batch").double()
    anew = copy.deepcopy(plain)
    anew.recompute = True
    for scale in (1.0, 2.0):
        x = torch.randn(4, 6, 8, dtype=torch.float64) * scale
        torch.testing.assert_close(plain(x).square().sum(), anew(x).square().sum())
        for encoder in (plain, anew):
            encoder(x).square().sum().backward()
    for (name, one), other in zip(plain.named_parameters(), anew.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, msg=name)
    for (name, one), other in zip(plain.named_buffers(), anew.buffers(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


@pytest.mark.parametrize("kind", ["patchtst", "transformer", "itransformer"])
def test_backbones_take_either(kind: str) -> None:
    task = toy_task()
    for norm in TOKEN_NORMS:
        backbone = build_backbone({"kind": kind, "d_model": 8, "num_heads": 2, "norm": norm}, task).double()
        found = {type(part).__name__ for part in backbone.modules()}
        assert ("TokenBatchNorm" in found) == (norm == "batch")
        assert backbone.eval()(toy_windows(task)).isfinite().all()
    with pytest.raises(UserError, match="norm must be one of layer, batch"):
        build_backbone({"kind": kind, "norm": "none"}, task)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int]:
    L = draw(st.integers(1, 60))
    patch_len = draw(st.integers(1, L))
    return L, patch_len, draw(st.integers(1, patch_len))


@given(sizes())
def test_no_step_is_left_out_and_the_last_patch_ends_at_the_last_step(sizes: tuple[int, int, int]) -> None:
    L, patch_len, stride = sizes
    patches = Patches(L, patch_len, stride)
    steps = torch.arange(L, dtype=torch.float32)
    cut = patches(steps[None])[0]
    assert cut.shape == (patches.count, patch_len)
    assert set(cut.flatten().tolist()) == set(steps.tolist())
    assert torch.equal(cut[-1], steps[-patch_len:])
    # in front of the first step stands the first step again
    assert torch.equal(cut.diff(dim=1).clamp(min=0), cut.diff(dim=1))
    assert torch.equal(cut[1:, -1] - cut[:-1, -1], torch.full((patches.count - 1,), float(stride)))


@given(sizes())
def test_one_more_patch_repeats_the_last_step(sizes: tuple[int, int, int]) -> None:
    L, patch_len, stride = sizes
    plain, padded = Patches(L, patch_len, stride), Patches(L, patch_len, stride, pad_end=True)
    steps = torch.arange(L, dtype=torch.float64)[None]
    cut = padded(steps)
    assert padded.count == plain.count + 1 == cut.shape[1]
    assert torch.equal(cut[:, :-1], plain(steps))
    known = steps[0, L - patch_len + stride :]
    assert torch.equal(cut[0, -1], torch.cat([known, steps[0, -1:].expand(stride)]))
    assert torch.equal(padded.ends(steps), torch.cat([plain.ends(steps), steps[:, -1:]], 1))
    assert torch.equal(padded.ends(steps), cut[..., -1])
    observed = torch.rand(1, L) > 0.3
    means, counts = padded.means(steps, observed)
    for one, other in zip((means, counts), plain.means(steps, observed), strict=True):
        assert torch.equal(one[:, :-1], other)
    seen = observed[0, L - patch_len + stride :]
    assert counts[0, -1] == seen.sum()
    assert means[0, -1] == (known[seen].mean() if seen.any() else 0)


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


def test_wrong_levels_and_probabilities_are_refused() -> None:
    for p in (-0.1, 1, float("nan")):
        with pytest.raises(UserError, match=r"dropout must lie in \[0, 1\), not "):
            Dropout(p)
    with pytest.raises(UserError, match=r"quantiles must increase, without repeats, not 0\.9, 0\.5"):
        QuantileFan((0.9, 0.5))
