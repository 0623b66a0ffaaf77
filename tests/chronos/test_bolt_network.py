"""The Bolt-shaped network computes what chronos-forecasting computes from the same weights, with any attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.chronos.bolt_models import chronos_bolt, ours, renamed, theirs
from tsattn.attention import KINDS
from tsattn.backbones import build_backbone, complete_backbone
from tsattn.batch import Batch
from tsattn.chronos.bolt.bolt_file import bolt_config
from tsattn.chronos.bolt.bolt_network import ChronosBolt, WindowScale
from tsattn.errors import UserError
from tsattn.task import Output, Task


def contexts(length: int, rows: int = 5) -> tuple[Tensor, Tensor]:
    """Series of unequal lengths, padded at the front, with gaps of single steps and of whole patches; NaN is missing.

    The first is whole.
    """
    generator = torch.Generator().manual_seed(length)
    series = 40 + 3 * torch.randn(rows, length, generator=generator).cumsum(-1)
    gone = torch.rand(rows, length, generator=generator) < 0.15
    for row in range(rows):
        gone[row, : row * length // 6] = True
    gone[2, length // 2 : length // 2 + 9] = True
    gone[0] = False
    gone[:, -1] = False
    return series.masked_fill(gone, torch.nan), ~gone


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        *(({}, length) for length in (1, 3, 4, 48)),
        ({"reg_token": False}, 17),
        ({"feed_forward": "gated-gelu", "num_layers": 1, "num_decoder_layers": 1}, 31),
        ({"stride": 2, "feed_forward": "gated-silu"}, 17),
    ],
)
@torch.no_grad()
def test_it_computes_what_chronos_forecasting_does(changes: dict[str, Any], length: int) -> None:
    model = theirs(**changes)
    backbone = ours(model, **changes)
    series, observed = contexts(length)
    expected = model(series).quantile_preds
    found = backbone.quantiles_of(series.nan_to_num(777.0), observed)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * 40)
    whole = series[:1]
    torch.testing.assert_close(backbone.quantiles_of(whole), model(whole).quantile_preds, rtol=1e-5, atol=4e-4)


def test_gradients_are_those_of_chronos_forecasting() -> None:
    model = theirs()
    backbone = ours(model)
    series, observed = contexts(31)
    model(series).quantile_preds.square().mean().backward()
    backbone.quantiles_of(series.nan_to_num(), observed).square().mean().backward()
    expected = renamed({name: part.grad for name, part in model.named_parameters()}, backbone)
    # one key of one token: no other weight than one, whatever the query
    idle = ("decoder", ".attention.projection.")
    for name, part in backbone.named_parameters():
        assert part.grad is not None, name
        scale = 1e-12 + expected[name].abs().max()
        assert (part.grad - expected[name]).abs().max() <= 1e-3 * scale + 1e-6, name
        is_idle = all(word in name for word in idle) or name == "decoder.relative_bias.weight"
        assert is_idle == (not part.grad.any()), name


@pytest.mark.parametrize(("length", "stride"), [(3, 5), (16, 7), (60, 5), (60, 16)])
def test_the_last_patch_ends_at_the_last_step_whatever_the_stride(length: int, stride: int) -> None:
    backbone = build_backbone({"kind": "chronos_bolt", "stride": stride}, Task("toy", length, 3, ("a",), "h", 24))
    assert isinstance(backbone, ChronosBolt)
    patches, seen = backbone._patches(torch.arange(float(length))[None], None)
    assert patches.shape[1] == backbone.max_patches
    *ends, window = backbone.token_ends(backbone.max_patches + 1) or []
    assert window == "window"
    assert patches[0, :, -1].tolist() == [length - 1 + int(end) for end in ends]
    assert {*patches[seen].tolist()} == {*map(float, range(length))}, "every step is in a patch"
    assert seen.any(-1).all(), "and no patch is empty"


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_attention_is_taken_and_padding_changes_nothing(kind: str) -> None:
    task = Task("toy", 40, 3, ("a", "b"), "h", 24)
    torch.manual_seed(0)
    backbone = build_backbone(
        {"kind": "chronos_bolt", "patch_len": 4, "d_model": 16, "attention": kind}, task, Output((0.2, 0.5))
    ).eval()
    short = 3 + torch.randn(3, 20, 2)
    padded = torch.cat([torch.full((3, 20, 2), 1e6), short], 1)
    observed = torch.arange(40).expand(3, 40)[..., None].expand(3, 40, 2) >= 20
    torch.testing.assert_close(backbone(Batch(padded, past_observed=observed)), backbone(Batch(short)))
    far = short.clone()
    far[:, 0] += 1
    assert not torch.equal(backbone(Batch(far)), backbone(Batch(short)))


@torch.no_grad()
def test_quantiles_are_put_in_order_in_eval_mode_alone() -> None:
    backbone = ours(theirs())
    batch = Batch(torch.randn(6, 48, 1))
    raw = backbone.quantiles_of(batch.past[..., 0]).transpose(1, 2)
    assert (raw.diff(dim=-1) < 0).any(), "these weights make some cross"
    torch.testing.assert_close(backbone(batch)[:, :, 0], raw.sort(-1).values)
    for part in backbone.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    torch.testing.assert_close(backbone.train()(batch)[:, :, 0], raw)


def test_sizes_out_of_range_are_refused() -> None:
    task = Task("toy", 40, 3, ("a",), "h", 24)
    for wrong, message in (
        ({"stride": 17}, "stride must be from 1 to patch_len 16"),
        ({"patch_len": 0}, "patch_len must be at least 1"),
        ({"num_heads": 5}, "num_heads 5 must divide d_model 64, or give head_dim"),
        ({"feed_forward": "gated-tanh"}, "feed_forward must be one of relu, gelu, gelu_tanh, silu, gated-relu"),
        ({"num_buckets": 3}, "num_buckets must be an even number from 4 on, not 3"),
        ({"max_distance": 8}, "max_distance must be above 8 with 32 buckets"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            build_backbone({"kind": "chronos_bolt", **wrong}, task)
    with pytest.raises(UserError, match="where the stride divides patch_len 16, not 12"):
        bolt_config(complete_backbone({"kind": "chronos_bolt", "stride": 12}), 64, 4, (0.5,))


def test_the_scale_of_a_window_is_that_of_chronos() -> None:
    series, observed = contexts(17)
    norm = chronos_bolt.InstanceNorm(use_arcsinh=True)
    expected, known = norm(series)
    scale = WindowScale(series.nan_to_num(), observed, arcsinh=True)
    torch.testing.assert_close(scale.normalised()[observed], expected[observed])
    forecast = torch.randn(5, 3)
    torch.testing.assert_close(scale.restore(forecast), norm.inverse(forecast, known))


def test_a_network_starts_with_its_eyes_on_the_last_patches() -> None:
    task = Task("toy", 64, 4, ("a",), "h", 24)
    description = {"kind": "chronos_bolt", "patch_len": 4, "d_model": 32, "num_heads": 4, "num_buckets": 64}
    backbone = build_backbone({**description, "num_layers": 1}, task, Output((0.1, 0.5, 0.9))).double().eval()
    out = backbone(Batch(torch.randn(3, 64, 1, dtype=torch.float64)))
    # one direction for all quantiles of a step
    assert out.std(-1).mean() < 0.2 * out[..., 1].std()
    tokens = torch.randn(1, 17, 32, dtype=torch.float64, requires_grad=True)
    (seen,) = torch.autograd.grad(backbone.encoder(tokens)[:, -1].square().sum(), tokens)
    size = seen[0].square().sum(-1).sqrt()
    assert size[12:16].min() > 2 * size[:12].max(), "one head for each of four patches"
