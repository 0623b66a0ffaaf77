"""A bias goes with a cache: its columns are positions, as in the full causal pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.attention.cases import NUM_HEADS, PATTERN_CASES
from tests.attention.decoding import T, decoder, tokens
from tsattn.attention import Attention
from tsattn.attention.base import MAX_STEP

ONE_BY_ONE, AFTER_A_PROMPT, UNEVEN, AT_ONCE = [1] * T, [5, *[1] * (T - 5)], [3, 9, 1, 20, 1, 6], [T]
SHAPES = {
    (2, NUM_HEADS, T, T): (ONE_BY_ONE, AFTER_A_PROMPT, UNEVEN, AT_ONCE),
    (1, NUM_HEADS, T, T): (UNEVEN,),
    (T, T): (UNEVEN, AT_ONCE),
    (2, 1, 1, T): (AFTER_A_PROMPT, UNEVEN),
    (2, 1, T, 1): (UNEVEN, AT_ONCE),
    (T,): (UNEVEN,),
    (): (AFTER_A_PROMPT, UNEVEN),
}


def random_bias(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    bias = torch.randn(shape, generator=generator, dtype=torch.float64)
    return bias.masked_fill(torch.rand(shape, generator=generator) < 0.2, -torch.inf)


def decode_with(attention: Attention, x: Tensor, bias: Tensor, schedule: list[int]) -> Tensor:
    cache, outputs, at = attention.new_cache(len(x)), [], 0
    for count in schedule:
        columns = bias[..., : at + count] if bias.shape[-1:] > (1,) else bias
        rows = columns[..., at : at + count, :] if bias.shape[-2:-1] > (1,) else columns
        outputs.append(attention(x[:, at : at + count], cache=cache, bias=rows))
        at += count
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("case", PATTERN_CASES[::2])
def test_decoding_with_a_bias_equals_the_full_pass(case: str) -> None:
    attention, x = decoder(case, length=T, rope=True), tokens(T)
    for shape, schedules in SHAPES.items():
        bias = random_bias(*shape)
        with torch.no_grad():
            expected = attention(x, bias=bias)
            for schedule in schedules:
                torch.testing.assert_close(decode_with(attention, x, bias, schedule), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", ["standard", "swa", "mlr"])
def test_a_bias_learns_step_by_step_as_in_the_full_pass(case: str) -> None:
    attention, x = decoder(case, length=T), tokens(T)
    one, other = (torch.randn(1, NUM_HEADS, T, T, dtype=torch.float64).mul(0).add(0.3).requires_grad_() for _ in "ab")
    attention(x, bias=one).square().sum().backward()
    decode_with(attention, x, other, AFTER_A_PROMPT).square().sum().backward()
    assert one.grad is not None
    assert other.grad is not None
    assert one.grad.abs().max() > 0
    torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=1e-10)


def test_many_tokens_at_once_take_their_rows_of_the_bias() -> None:
    length = MAX_STEP + 20
    attention, x = decoder("mlr", length=length), tokens(length)
    bias = random_bias(1, NUM_HEADS, length, length)
    with torch.no_grad():
        found = decode_with(attention, x, bias, [3, length - 3])
        torch.testing.assert_close(found, attention(x, bias=bias), rtol=0, atol=1e-10)
