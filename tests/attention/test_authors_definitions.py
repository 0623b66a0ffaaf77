"""The authors' definitions that are not defaults, each written here once more from the parameters."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attention.cases import D_MODEL, NUM_HEADS, each_impl
from tsattn.attention import Attention, build_attention
from tsattn.structured import BTT, block_sizes

T = 13


def build(description: dict[str, Any], d_model: int = D_MODEL, **sizes: Any) -> Attention:
    torch.manual_seed(0)
    attention = build_attention(description, d_model=d_model, num_heads=NUM_HEADS, **sizes).double().eval()
    with torch.no_grad():
        for parameter in attention.parameters():  # norms too: they are not to be the identity
            parameter.add_(0.3 * torch.randn_like(parameter))
    return attention


def output(attention: Attention, x: Tensor, logits: Tensor) -> Tensor:
    """Softmax over the logits `(B, H, T, T)`, values and output projection."""
    values = attention.value(x).unflatten(-1, (attention.num_kv_heads, attention.head_dim)).transpose(1, 2)
    values = values.repeat_interleave(NUM_HEADS // attention.num_kv_heads, 1)
    return attention.output((logits.softmax(-1) @ values).transpose(1, 2).flatten(-2))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


RANKS, BLOCKS = [2, 3, 1], [1, 2, 8]
WIDTHS = [rank * count for rank, count in zip(RANKS, BLOCKS, strict=True)]
FACTORS = {
    "level": [1 / math.sqrt(width) for width in WIDTHS],
    "mup": [1 / math.sqrt(width) for width in WIDTHS],
    "mup_language": [8 / width for width in WIDTHS],
    "head": [1 / math.sqrt(sum(WIDTHS))] * 3,
    0.5: [0.5] * 3,
}


def level_products(attention: Attention, x: Tensor, *, norms: bool) -> list[Tensor]:
    """`q_l . k_l` of each level, `(B, H, T, T)`, of normalised or of plain components."""
    products = []
    projection = attention.projection
    for level, count in enumerate(BLOCKS):
        pieces = x.unflatten(-1, (count, -1))
        left, right = projection.left[level], projection.right[level]
        q = torch.einsum("btkd,hkdr->bhtkr", pieces, left).flatten(-2)
        k = torch.einsum("btkd,hkdr->bhtkr", pieces, right).flatten(-2)
        if norms:
            query, key = attention.query_norm.norms[level], attention.key_norm.norms[level]
            q, k = layer_norm(q, query.weight, query.bias), layer_norm(k, key.weight, key.bias)
        k = k.repeat_interleave(NUM_HEADS // attention.num_kv_heads, 1)
        products.append(q @ k.transpose(-1, -2))
    return products


@pytest.mark.parametrize(
    ("scaling", "norms"), [*zip(FACTORS, (True, False, True, False, True), strict=True), ("level", False)]
)
def test_bilinear_mlr_with_a_norm_and_a_factor_for_each_level(scaling: str | float, norms: bool) -> None:
    """`sum_l f_l LN(q_l) . LN(k_l)`: the factor comes after the norm, which would take it away."""
    num_kv_heads = 2 if norms else NUM_HEADS
    description = {"kind": "bilinear_mlr", "ranks": RANKS, "blocks": BLOCKS, "scaling": scaling}
    attention = build({**description, "qk_norm": "level" if norms else False, "num_kv_heads": num_kv_heads})
    x = torch.randn(2, T, D_MODEL, dtype=torch.float64)
    products = level_products(attention, x, norms=norms)
    logits = sum(f * product for f, product in zip(FACTORS[scaling], products, strict=True))
    expected = output(attention, x, logits)
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_one_level_has_the_factors_of_standard_attention() -> None:
    for qk_norm in (False, True, "level"):
        one = build({"kind": "bilinear_mlr", "ranks": [4], "scaling": "mup_language", "qk_norm": qk_norm})
        assert one.scale == 8 / 4
        assert one.projection.level_scales == (1.0,)


@pytest.mark.parametrize(
    ("width", "below", "above"), [(64, 8, 16), (36, 6, 9), (512, 16, 32), (12, 3, 4), (7, 1, 7), (1, 1, 1)]
)
def test_the_divisors_around_the_root_of_the_width(width: int, below: int, above: int) -> None:
    """`above` is strictly above the root, also where that divides a square width."""
    assert block_sizes(width) == block_sizes(width, "below") == (below, width // below) * 2
    assert block_sizes(width, "above") == (above, width // above) * 2
    matrix = BTT.random(width, 1, left_heads=1, right_heads=1, divisor="above", dtype=torch.float64)
    assert torch.linalg.matrix_rank(matrix.to_dense()[0]) == width


def authors_scores(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """`M x` of every head, `(B, H, T, D)`: the three steps of the definition, as one contraction each.

    left `(H, b, a, c s)` and right `(H, c, d, b s)`: c pieces of x meet their blocks R, the numbers of all pieces with
    the same one of the b groups meet its block L, whose a outputs lie b apart.
    """
    b, inner, c = left.shape[1], left.shape[-1], right.shape[1]
    pieces = x.unflatten(-1, (c, -1))
    grouped = torch.einsum("btcd,hcdgs->bhtgcs", pieces, right.unflatten(-1, (b, inner // c)))
    return torch.einsum("bhtgcs,hgacs->bhtag", grouped, left.unflatten(-1, (c, inner // c))).flatten(-2)


@pytest.mark.parametrize(("width", "tt_rank", "side"), [(16, 2, "both"), (64, 2, "key"), (48, 1, "query")])
def test_weights_of_the_authors_shapes_load_and_score_as_theirs(width: int, tt_rank: int, side: str) -> None:
    """At D = 64 theirs have a = c = 16 and b = d = 4."""
    description = {"kind": "btt", "tt_rank": tt_rank, "divisor": "above", "side": side}
    attention = build({**description, "qk_norm": side == "key"}, d_model=width)
    a = {16: 8, 64: 16, 48: 8}[width]
    b = width // a
    theirs = {
        "projection.left": torch.randn(NUM_HEADS, b, a, a * tt_rank, dtype=torch.float64),
        "projection.right": torch.randn(NUM_HEADS, a, b, b * tt_rank, dtype=torch.float64),
    }
    attention.load_state_dict({**attention.state_dict(), **theirs})
    x = torch.randn(2, T, width, dtype=torch.float64)
    keys = authors_scores(x, theirs["projection.left"], theirs["projection.right"])
    if side == "key":
        keys = layer_norm(keys, attention.key_norm.weight, attention.key_norm.bias)
    logits = x[:, None] @ keys.transpose(-1, -2) / math.sqrt(width)
    torch.testing.assert_close(attention(x), output(attention, x, logits), rtol=0, atol=1e-10)
