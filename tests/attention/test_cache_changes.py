"""What may be done to a cache between steps, and sequences of a batch that differ in length or have a bias."""

import copy
import gc
import io
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, PATTERN_CASES, T, decode, decoder, tokens
from tsattn.attention import Attention
from tsattn.attention.base import MAX_STEP
from tsattn.attention.caches import Cache
from tsattn.errors import UserError

MORE: dict[str, dict[str, Any]] = {
    "swa-1": {"kind": "swa", "window_size": 1},
    "swa-wide": {"kind": "swa", "window_size": 10**9},
    "mlr-ones": {"kind": "mlr", "ranks": [2, 2], "blocks": {"lengths": [6, 1]}},
    "mlr-uneven": {"kind": "mlr", "head_dim": 6, "ranks": [2, 2, 2], "blocks": [3, 6, 18], "divide_by": "active"},
    "global_swa-near": {"kind": "global_swa", "global_rank": 2, "window_size": 3, "num_kv_heads": 2},
}


class Sequences:
    """A batch that is decoded, with all its tokens: each output is held against the full pass over its own sequence."""

    def __init__(self, attention: Attention, batch_size: int) -> None:
        self.attention = attention
        self.cache = attention.new_cache(batch_size)
        self.seen = [torch.zeros(0, D_MODEL, dtype=torch.float64) for _ in range(batch_size)]

    def append(self, x: Tensor, mask: Tensor) -> None:
        if self.cache.length:  # a padded token may hold anything
            x = x.masked_fill(~mask[..., None], torch.nan)
        out = self.attention(x, attention_mask=None if mask.all() else mask, cache=self.cache)
        for row, real in enumerate(mask):
            self.seen[row] = torch.cat([self.seen[row], x[row, real]])
            if real.any():
                expected = self.attention(self.seen[row][None])[0, -int(real.sum()) :]
                torch.testing.assert_close(out[row, real], expected, rtol=0, atol=1e-9)
        assert self.cache.lengths == tuple(map(len, self.seen))


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, int, list[tuple[str, int]]]:
    """A case, a batch size, and what is done; numbers are taken modulo what is possible."""
    kinds = st.sampled_from(["append", "append", "reorder"])
    steps = [(draw(kinds), draw(st.integers(0, 2**16))) for _ in range(draw(st.integers(2, 12)))]
    return draw(st.sampled_from([*CASES, *MORE])), draw(st.integers(1, 3)), steps


def test_any_changes_leave_what_the_full_pass_gives() -> None:
    """Append and reorder, in any order and across the edges of blocks and windows, each row on its own.

    Rows of a batch differ in length, and padding lies anywhere: as when sequences accept different numbers of the
    tokens that were proposed.
    """
    done: Counter[str] = Counter()

    @given(changes())
    @settings(derandomize=True, deadline=None, max_examples=150)
    def run(drawn: tuple[str, int, list[tuple[str, int]]]) -> None:
        done.update(change(*drawn))

    run()
    assert min(done[kind] for kind in ("append", "reorder")) >= 45, done


def change(case: str, batch_size: int, steps: list[tuple[str, int]]) -> list[str]:
    """Make the changes, compare what every append gives, and name the changes that were possible."""
    done = []
    rows = Sequences(decoder(MORE.get(case, case), length=T, rope=True), batch_size)
    with torch.no_grad():
        prompts = torch.arange(7) >= torch.arange(batch_size)[:, None] * (1 + 2 * (len(steps) % 3))  # and none
        rows.append(tokens(7, batch_size=batch_size), prompts if len(steps) % 2 else prompts.flip(1))
        for kind, seed in [*steps, ("append", 0)]:
            generator = torch.Generator().manual_seed(seed)
            size, longest = len(rows.seen), max(map(len, rows.seen))
            if kind == "reorder":
                indices = torch.randint(size, (1 + seed % 3,), generator=generator).tolist()
                rows.cache.reorder(indices)
                rows.seen = [rows.seen[index] for index in indices]
            elif longest == T:
                continue
            else:
                n = min(T - longest, [1, 1, 2, 5, 17][seed % 5])
                mask = torch.rand(size, n, generator=generator) < [1.0, 1.0, 0.6][seed % 3]
                rows.append(tokens(n, batch_size=size, seed=seed), mask)
            done.append(kind)
    return done


@pytest.mark.parametrize("case", ["global_swa-sum-grouped", "mlr-deep"])
def test_beams_are_chosen_copied_and_dropped(case: str) -> None:
    """Gradients pass through that, too."""
    attention, x = decoder(case, length=T, rope=True), tokens(T, batch_size=4).requires_grad_()
    cache = attention.new_cache(2)
    decode(attention, x[:2, :9], [4, 5], cache)
    cache.reorder([1, 0, 1, 1])  # a prompt becomes the beams that start from it
    assert cache.batch_size == 4
    seen = torch.cat([x[:2, :9][[1, 0, 1, 1]], x[:, 9:20]], 1)
    torch.testing.assert_close(decode(attention, x[:, 9:20], [1] * 11, cache), attention(seen)[:, 9:])
    cache.reorder(torch.tensor([3, 0]))
    seen = torch.cat([seen[[3, 0]], x[:2, 20:]], 1)
    found, expected = decode(attention, x[:2, 20:], [1] * 20, cache), attention(seen)[:, 20:]
    torch.testing.assert_close(found, expected)
    leaves = [x, *attention.parameters()]
    gradients = (torch.autograd.grad(out.square().sum(), leaves, allow_unused=True) for out in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_an_order_names_sequences() -> None:
    attention = decoder("swa", length=T)
    cache = attention.new_cache(2)
    cache.reorder([1, 0, 0])
    assert cache.batch_size == 3
    attention(tokens(4, batch_size=3), cache=cache)
    for indices in ([], [3], [-1, 0], [0.0, 1.0], torch.zeros(2, 2, dtype=torch.long), [True, False], 1, "01", None):
        with pytest.raises(UserError, match=r"^reorder needs a list of sequence numbers from 0 to 2, not"):
            cache.reorder(indices)
    assert cache.lengths == (4, 4, 4)


@pytest.mark.parametrize("case", ["swa", "btt-query", "mlr-active"])
def test_copies_go_their_own_way(case: str) -> None:
    """Outside `no_grad` too, where what is held has a history."""
    attention, x, other = decoder(case, length=T), tokens(T), tokens(T, seed=2)
    cache = attention.new_cache(2)
    attention(x[:, :13], cache=cache)
    branch = copy.deepcopy(cache)
    assert branch.nbytes == cache.nbytes
    for held, rest in ((branch, other), (cache, x)):
        whole = torch.cat([x[:, :13], rest[:, 13:]], 1)
        actual = decode(attention, rest[:, 13:], [1] * 27, held)
        torch.testing.assert_close(actual, attention(whole)[:, 13:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", ["swa", "global_swa", "mlr"])
def test_the_cache_of_another_layer_is_refused(case: str) -> None:
    """Of the same kind and sizes too, and of a copy: its keys were made by other weights."""
    attention, x = decoder(case, length=T), tokens(3)
    for other in (decoder(case, length=T), copy.deepcopy(attention)):
        cache = other.new_cache(2)
        for _ in range(2):
            with pytest.raises(UserError, match=r"^this cache belongs to another .*: call new_cache\(\) of each layer"):
                attention(x, cache=cache)
            other(x, cache=cache)
        with pytest.raises(UserError, match=r"^this cache belongs to another"):
            attention(x, cache=copy.deepcopy(cache))


def test_the_cache_of_a_layer_that_is_gone_is_refused() -> None:
    cache = decoder("standard", length=T).new_cache(2)
    gc.collect()
    with pytest.raises(UserError, match="this cache belongs to another"):
        decoder("standard", length=T)(tokens(3), cache=cache)


def test_a_cache_is_copied_with_its_attention_saved_and_loaded() -> None:
    attention, x = decoder("global_swa", length=T), tokens(T)
    cache, file = attention.new_cache(2), io.BytesIO()
    with torch.no_grad():
        attention(x[:, :9], cache=cache)
        both: tuple[Attention, Cache] = copy.deepcopy((attention, cache))
        torch.save(cache, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for own, held in (both, (attention, loaded)):
            torch.testing.assert_close(decode(own, x[:, 9:], [31], held), attention(x)[:, 9:])
    for held, other in ((both[1], attention), (loaded, decoder("global_swa", length=T))):
        with pytest.raises(UserError, match="this cache belongs to another"):
            other(x[:, :1], cache=held)


def test_a_first_token_that_is_padding_everywhere_is_no_token() -> None:
    attention, x = decoder("mlr", length=T), tokens(3)
    cache = attention.new_cache(2)
    attention(x[:, :1], cache=cache, attention_mask=torch.zeros(2, 1, dtype=torch.bool))
    torch.testing.assert_close(decode(attention, x, [1, 1, 1], cache), attention(x))


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
