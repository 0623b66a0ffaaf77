"""Other sizes and types than an attention takes, nothing at all, and padding that holds no numbers."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, PATTERN_CASES, build, each_impl
from tsattn.attention import build_attention
from tsattn.errors import UserError
from tsattn.ops import multilevel_attention, sliding_window_attention

T = 12
OF_ONE_SEQUENCE = ("swa", "global_swa", "mlr", "identity", "fixed_mixing")


def tokens(rows: int = 2, length: int = T) -> Tensor:
    return torch.randn(rows, length, D_MODEL, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("align", ["start", "end"])
def test_blocks_are_those_of_the_length_that_holds_now(align: str) -> None:
    """A pattern that two modules share, or whose module is given another length, keeps nothing of the other."""
    description = {"kind": "mlr", "ranks": [2, 2], "blocks": [1, 4], "align": align}
    sizes: dict[str, Any] = {"d_model": D_MODEL, "num_heads": NUM_HEADS}
    long, short = (build_attention(description, **sizes, max_length=length).double() for length in (96, 40))
    x = tokens(1, 40)
    expected = [attention.eval()(x) for attention in (long, short)]
    shared = long.pattern
    short.pattern = shared
    for impl in ("auto", "tiles", "reference"):
        long.impl = short.impl = impl
        for attention, one in zip((long, short), expected, strict=True):
            torch.testing.assert_close(attention(x), one, rtol=0, atol=1e-12)
    long.max_length = 40
    fresh = copy.deepcopy(long)
    torch.testing.assert_close(long(x), fresh(x), rtol=0, atol=0)
    long.impl = "reference"
    torch.testing.assert_close(long(x), fresh(x), rtol=0, atol=1e-12)


def test_operations_themselves_ignore_what_stands_in_padding() -> None:
    q, k, v = (torch.randn(2, 2, T, 4) for _ in range(3))
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[:, -3:] = False
    blocks = torch.stack([torch.zeros(T).long(), torch.arange(T) // 4])[:, None]
    spoilt = [t.masked_fill(~mask[:, None, :, None], torch.nan) for t in (q, k, v)]
    for impl in ("reference", "sdpa", "tiles"):
        options: dict[str, Any] = {"ranks": [2, 2], "blocks": blocks, "key_mask": mask, "impl": impl}
        expected = multilevel_attention(q, k, v, **options)[:, :, :-3]
        assert torch.equal(multilevel_attention(*spoilt, **options)[:, :, :-3], expected)
    for impl in ("reference", "sdpa", "blocks"):
        options = {"window_size": 3, "key_mask": mask, "impl": impl}
        expected = sliding_window_attention(q, k, v, **options)[:, :, :-3]
        assert torch.equal(sliding_window_attention(*spoilt, **options)[:, :, :-3], expected)


@pytest.mark.parametrize("case", PATTERN_CASES[::2])
def test_nothing_in_is_nothing_out(case: str) -> None:
    attention = build(case, length=T)
    for _, (rows, length) in itertools.product(each_impl(attention), [(0, T), (2, 0), (0, 0)]):
        x = tokens(rows, length).requires_grad_()
        for more in ({}, {"attention_mask": torch.ones(rows, length, dtype=torch.bool)}):
            out = attention(x, **more)
            assert out.shape == x.shape
            out.sum().backward()


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep", "mlr-lengths"])
def test_whole_numbers_of_any_width_are_positions_and_blocks(case: str) -> None:
    """Products of narrow ones would overflow."""
    attention = build(case, length=9000, causal=True, rope=True)
    x, positions = tokens(1, 300), torch.arange(7300, 7600)
    expected = attention(x, positions=positions)
    for dtype in (torch.int16, torch.int32):
        torch.testing.assert_close(attention(x, positions=positions.to(dtype)), expected, rtol=0, atol=1e-12)
    if attention.pattern.takes_blocks:
        levels = len(CASES[case]["ranks"])
        blocks = torch.stack([torch.arange(300) // 100 * (level > 0) for level in range(levels)])[:, None]
        torch.testing.assert_close(attention(x, blocks=blocks.to(torch.uint8)), attention(x, blocks=blocks))


@pytest.mark.parametrize(
    ("case", "x_type", "bias_type"),
    [
        ("standard-grouped", torch.float32, torch.bfloat16),
        ("standard-grouped", torch.float32, torch.float64),
        ("swa", torch.bfloat16, torch.float16),
        ("mlr-deep", torch.float32, torch.float64),
        ("mlr-active", torch.bfloat16, torch.float16),
    ],
)
def test_a_bias_may_be_narrower_or_wider_than_the_tokens(
    case: str, x_type: torch.dtype, bias_type: torch.dtype
) -> None:
    attention = build(case, length=T, dtype=x_type)
    bias = torch.randn(NUM_HEADS, T, T).to(bias_type)
    bias[:, 2, 5] = -torch.inf
    expected = build(case, length=T)(tokens(), bias=bias.double())
    for _ in each_impl(attention, without=("tiles", "blocks")):
        out = attention(tokens().to(x_type), bias=bias)
        assert out.dtype == x_type
        tolerance = 0.1 if x_type == torch.bfloat16 else 1e-4
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"bias": torch.ones(T, T, dtype=torch.bool)}, r"bias must hold floating-point numbers.*, not torch.bool; -inf"),
    ({"bias": torch.ones(T, T, dtype=torch.long)}, "bias must hold floating-point numbers"),
    ({"bias": torch.zeros(3, 1, T, T)}, r"bias must be broadcastable to \(1, 4, 12, 12\), not of shape \(3, 1"),
    ({"bias": torch.zeros(1, 1, 1, 1, 1)}, "bias must be broadcastable to"),
    ({"positions": torch.arange(T).expand(3, -1)}, r"positions must be whole numbers of shape \(12,\) or \(1, 12\)"),
    ({"positions": torch.arange(T).double()}, "positions must be whole numbers .*, not torch.float64"),
    ({"positions": torch.ones(T, dtype=torch.bool)}, "positions must be whole numbers .*, not torch.bool"),
    ({"positions": torch.arange(T - 1)}, r"positions must be .* not torch.int64 of shape \(11,\)"),
    ({"global_tokens": torch.ones(3, T, dtype=torch.bool)}, r"global_tokens must be bool of shape .*, not .*\(3, 12"),
    ({"global_tokens": torch.ones(T)}, "global_tokens must be bool"),
    ({"blocks": torch.zeros(2, 3, T).long()}, r"blocks must be whole numbers of shape \(levels, 1, 12\)"),
    ({"blocks": torch.zeros(2, 1, T)}, "blocks must be whole numbers .*, not torch.float32"),
    ({"blocks": torch.zeros(2, T).long()}, "blocks must be whole numbers"),
    ({"attention_mask": torch.ones(3, T, dtype=torch.bool)}, "attention_mask must be bool of shape"),
]


def test_what_is_of_more_rows_or_of_another_type_is_refused() -> None:
    for more, message in UNFIT:
        for case in ("mlr", *(() if "blocks" in more else ("standard", "swa", "global_swa"))):
            attention = build(case, length=T, rope=True)
            for _ in each_impl(attention):
                with pytest.raises(UserError, match=message):
                    attention(tokens(1), **more)


NO_TOKENS: list[tuple[Tensor, str]] = [
    (tokens()[0], r"x must be of shape \(batch, tokens, 16\), not \(12, 16\)"),
    (tokens()[..., :7], r"x must be of shape \(batch, tokens, 16\), not \(2, 12, 7\)"),
    (tokens()[None], "x must be of shape"),
    (tokens().float(), "x must be torch.float64 as this attention's weights are, not torch.float32"),
    (torch.zeros(2, T, D_MODEL).long(), "x must hold floating-point numbers, not torch.int64"),
]


def test_tokens_of_another_shape_or_type_are_refused() -> None:
    attention = build("mlr", length=T, causal=True)
    for x, message in NO_TOKENS:
        with pytest.raises(UserError, match=message):
            attention(x)
        with pytest.raises(UserError, match=message.replace("x must", "context must")):
            build("standard", length=T)(tokens(), context=x)
    with pytest.raises(UserError, match="context must hold as many rows as x, 2, not 3"):
        build("standard", length=T)(tokens(2), context=tokens(3))
    with pytest.raises(UserError, match="takes no blocks"):
        build("swa", length=T)(tokens(), blocks=torch.zeros(2, 1, T, dtype=torch.long))


def test_autocast_may_convert() -> None:
    attention = build("mlr", length=T, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention(tokens().to(torch.bfloat16)).dtype == torch.bfloat16


def test_sizes_are_checked_without_a_description_too() -> None:
    from tsattn.attention import BTTAttention, GlobalSlidingWindowAttention, SlidingWindowAttention, StandardAttention

    for kind, more, message in (
        (StandardAttention, {"d_model": 16.5}, "d_model must be a whole number, not 16.5"),
        (BTTAttention, {"num_heads": -1}, "num_heads must be at least 1"),
        (StandardAttention, {"max_length": True}, "max_length must be a whole number, not True"),
        (SlidingWindowAttention, {"window_size": 2.5}, "window_size must be a whole number, not 2.5"),
        (GlobalSlidingWindowAttention, {"global_rank": 1.5}, "global_rank must be from 1 to 4, .* not 1.5"),
        (BTTAttention, {"tt_rank": 1.5}, "tt_rank must be a whole number, not 1.5"),
        (StandardAttention, {"head_dim": 0}, "head_dim must be at least 1, not 0"),
        (StandardAttention, {"num_kv_heads": 2.0}, "num_kv_heads 2.0 must divide num_heads 4"),
    ):
        with pytest.raises(UserError, match=message):
            kind(**{"d_model": 16, "num_heads": 4, **more})  # type: ignore[arg-type]
    assert StandardAttention(np.int64(16), np.int32(4)).d_model == 16


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["kind"] not in OF_ONE_SEQUENCE and "-" in case])
def test_cross_attention(case: str) -> None:
    attention = build(case, length=20)
    x, context = torch.randn(2, 5, D_MODEL, dtype=torch.float64), torch.randn(2, 9, D_MODEL, dtype=torch.float64)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 6:] = False
    attention.impl = "reference"
    expected = attention(x, context, attention_mask=mask)
    torch.testing.assert_close(expected[:1], attention(x[:1], context[:1, :6]), rtol=0, atol=1e-12)
    context = context.masked_fill(~mask[..., None], torch.nan)  # padding holds no number
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x, context, attention_mask=mask), expected, rtol=0, atol=1e-12)


def test_patterns_of_one_sequence_refuse_a_context() -> None:
    x = torch.randn(1, 5, D_MODEL, dtype=torch.float64)
    for case in OF_ONE_SEQUENCE:
        with pytest.raises(UserError, match="cannot attend to a context"):
            build(case, length=5)(x, x)
