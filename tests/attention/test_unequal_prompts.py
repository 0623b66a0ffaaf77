"""Sequences of a batch that differ in length, or have a bias: each is decoded as if it were alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.attention.cases import NUM_HEADS, PATTERN_CASES
from tests.attention.decoding import T, decode, decoder, tokens
from tsattn.attention import Attention
from tsattn.attention.base import MAX_STEP

PROMPT = 14
REAL = (14, 5, 0, 9, 1)  # tokens of each prompt


def masks() -> dict[str, Tensor]:
    """Where the tokens of `REAL` lie in prompts of one width."""
    places, real = torch.arange(PROMPT), torch.tensor(REAL)[:, None]
    generator = torch.Generator().manual_seed(0)
    return {
        "left": places >= PROMPT - real,
        "right": places < real,
        "between": torch.stack([torch.randperm(PROMPT, generator=generator) < count for count in REAL]),
    }


def alone(attention: Attention, prompt: Tensor, mask: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """What the full pass gives for each sequence without its padding: at its prompt's tokens, and after them."""
    at_prompt, after = torch.zeros_like(prompt), []
    for row in range(len(prompt)):
        whole = torch.cat([prompt[row, mask[row]], rest[row]])[None]
        out = attention(whole)[0]
        at_prompt[row, mask[row]] = out[: len(out) - len(rest[row])]
        after.append(out[len(out) - len(rest[row]) :])
    return at_prompt, torch.stack(after)


@pytest.mark.parametrize("case", PATTERN_CASES[1::2])
def test_gradients_of_unequal_prompts_are_those_of_each_alone(case: str) -> None:
    attention, mask = decoder(case, length=T, rope=True), masks()["left"]
    x = tokens(T, batch_size=len(REAL)).requires_grad_()
    leaves = [x, *attention.parameters()]

    def gradients(at_prompt: Tensor, after: Tensor) -> tuple[Tensor | None, ...]:
        loss = (at_prompt * mask[..., None]).square().sum() + after.square().sum()
        return torch.autograd.grad(loss, leaves, allow_unused=True)

    expected = gradients(*alone(attention, x[:, :PROMPT], mask, x[:, PROMPT:]))
    cache = attention.new_cache(len(REAL))
    at_prompt = attention(x[:, :PROMPT], attention_mask=mask, cache=cache)
    actual = gradients(at_prompt, decode(attention, x[:, PROMPT:], [5, *[1] * 15, 6], cache))
    for want, got in zip(expected, actual, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep"])
def test_padding_is_not_stored(case: str) -> None:
    """The longest sequence decides the storage, which is that of a batch in which all are as long."""
    attention = decoder(case, length=30)
    x = tokens(30, batch_size=2)
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[:, :4] = False
    mask[1, :15] = False

    def held(unequal: bool) -> list[tuple[int, int]]:
        cache = attention.new_cache(2)
        found = []
        with torch.no_grad():
            if unequal:
                attention(x[:, :20], attention_mask=mask, cache=cache)
            else:
                attention(x[:, 4:20], cache=cache)
            for step in range(20, 30):
                attention(x[:, step : step + 1], cache=cache)
                found.append((cache.key_nbytes, cache.nbytes))
        return found

    assert held(unequal=True) == held(unequal=False)


def test_long_masked_parts_are_taken_bit_by_bit() -> None:
    x, length = tokens(2 * MAX_STEP + 40), 2 * MAX_STEP + 40
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, 3 : MAX_STEP + 9] = False
    for case in ("standard", "swa", "mlr-deep"):
        attention = decoder(case, length=length)
        with torch.no_grad():
            cache = attention.new_cache(2)
            first = attention(x[:, :2], attention_mask=mask[:, :2], cache=cache)
            out = torch.cat([first, attention(x[:, 2:], attention_mask=mask[:, 2:], cache=cache)], 1)
            for row in range(2):
                expected = attention(x[row, mask[row]][None])[0]
                torch.testing.assert_close(out[row, mask[row]], expected, rtol=0, atol=1e-10)


# A bias goes with a cache: its columns are positions, as in the full causal pass.


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
