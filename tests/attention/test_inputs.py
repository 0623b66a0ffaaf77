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
from tsattn.attention import BTTAttention, StandardAttention, build_attention
from tsattn.errors import UserError

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


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep", "mlr-active"])
def test_a_bias_may_be_narrower_or_wider_than_the_tokens(case: str) -> None:
    is_wider = case == "mlr-deep"
    x_type = torch.bfloat16 if case in ("swa", "mlr-active") else torch.float32
    bias_type = torch.float64 if is_wider else torch.float16
    attention = build(case, length=T, dtype=x_type)
    bias = torch.randn(NUM_HEADS, T, T).to(bias_type)
    bias[:, 2, 5] = -torch.inf
    expected = build(case, length=T)(tokens(), bias=bias.double())
    for _ in each_impl(attention, without=("tiles", "blocks")):
        out = attention(tokens().to(x_type), bias=bias)
        assert out.dtype == x_type
        tolerance = 0.1 if x_type == torch.bfloat16 else 1e-4
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


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


def row(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"bias": row(torch.bool, T, T)}, r"bias must hold floating-point numbers.*, not torch.bool; -inf"),
    ({"bias": row(torch.float32, 3, 1, T, T)}, r"bias must be broadcastable to \(1, 4, 12, 12\), not of shape \(3, 1"),
    ({"positions": row(torch.long, 3, T)}, r"positions must be whole numbers of shape \(12,\) or \(1, 12\)"),
    ({"positions": row(torch.double, T)}, "positions must be whole numbers .*, not torch.float64"),
    ({"global_tokens": row(torch.bool, 3, T)}, r"global_tokens must be bool of shape .*, not .*\(3, 12"),
    ({"blocks": row(torch.long, 2, 3, T)}, r"blocks must be whole numbers of shape \(levels, 1, 12\)"),
    ({"blocks": row(torch.float32, 2, 1, T)}, "blocks must be whole numbers .*, not torch.float32"),
    ({"attention_mask": row(torch.bool, 3, T)}, "attention_mask must be bool of shape"),
    ({"x": tokens()[0]}, r"x must be of shape \(batch, tokens, 16\), not \(12, 16\)"),
    ({"x": tokens()[..., :7]}, r"x must be of shape \(batch, tokens, 16\), not \(2, 12, 7\)"),
    ({"x": tokens().float()}, "x must be torch.float64 as this attention's weights are, not torch.float32"),
    ({"x": tokens().long()}, "x must hold floating-point numbers, not torch.int64"),
]


def test_what_is_of_another_shape_or_type_is_refused() -> None:
    for more, message in UNFIT:
        for case in ("mlr", *(() if "blocks" in more else ("standard", "swa", "global_swa"))):
            attention = build(case, length=T, rope=True)
            for _ in each_impl(attention):
                with pytest.raises(UserError, match=message):
                    attention(**{"x": tokens(1), **more})
    for case, context, message in (
        ("standard", tokens().float(), "context must be torch.float64"),
        ("standard", tokens(3), "context must hold as many rows as x, 2, not 3"),
        *((case, tokens(), "cannot attend to a context") for case in OF_ONE_SEQUENCE),
    ):
        with pytest.raises(UserError, match=message):
            build(case, length=T)(tokens(2), context=context)
    with pytest.raises(UserError, match="takes no blocks"):
        build("swa", length=T)(tokens(), blocks=row(torch.long, 2, 1, T))
    attention = build("mlr", length=T, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which may convert
        assert attention(tokens().to(torch.bfloat16)).dtype == torch.bfloat16


def test_sizes_are_checked_without_a_description_too() -> None:
    for kind, more, message in (
        (StandardAttention, {"d_model": 16.5}, "d_model must be a whole number, not 16.5"),
        (BTTAttention, {"num_heads": -1}, "num_heads must be at least 1"),
        (StandardAttention, {"max_length": True}, "max_length must be a whole number, not True"),
        (StandardAttention, {"num_kv_heads": 2.0}, "num_kv_heads 2.0 must divide num_heads 4"),
    ):
        with pytest.raises(UserError, match=message):
            kind(**{"d_model": 16, "num_heads": 4, **more})  # type: ignore[arg-type]
    assert StandardAttention(np.int64(16), np.int32(4)).d_model == 16
