"""Step-by-step decoding equals the full causal pass, and its cache holds as much as the closed forms give."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, PATTERN_CASES, T, decode, decoder, key_numbers, tokens
from tsattn.attention import Attention
from tsattn.attention.base import MAX_STEP
from tsattn.attention.cost import closed_form, measured_key_bytes
from tsattn.errors import UserError
from tsattn.structured import block_sizes

cases = pytest.mark.parametrize("case", CASES)
patterns = pytest.mark.parametrize("case", PATTERN_CASES)

# how many tokens come at a time: longer than windows and blocks, across their boundaries and upon them
SCHEDULES = [[1] * T, [T], *([n, *[1] * (T - n)] for n in (2, 5, 7, 12, 36)), [3, 9, 1, 20, 1, 6]]


@cases
def test_decoding_equals_the_full_pass(case: str) -> None:
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        attention, x = decoder(case, length=T, dtype=dtype, rope=True), tokens(T, dtype)
        with torch.no_grad():
            expected = attention(x)
            for schedule in SCHEDULES if dtype == torch.float64 and case in PATTERN_CASES else SCHEDULES[-1:]:
                worst = (decode(attention, x, schedule) - expected).abs().max()
                assert worst <= tolerance * expected.abs().max()


@pytest.mark.parametrize("case", ["swa", "mlr-deep", "mlr-active", "mlr-lengths", "fixed_mixing-grouped"])
def test_blocks_of_unequal_size_and_histories_shorter_than_the_most(case: str) -> None:
    for length, max_length in [(1, 1), (2, 2), (7, 7), (25, 25), (24, 24), (13, 48), (30, 97)]:
        attention, x = decoder(case, length=max_length), tokens(length)
        with torch.no_grad():
            expected = attention(x)
            for prompt in sorted({1, 2, length // 2, length} & {*range(1, length + 1)}):
                schedule = [prompt, *[1] * (length - prompt)]
                torch.testing.assert_close(decode(attention, x, schedule), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", ["standard-grouped", "mlr-deep", "fixed_mixing-grouped"])
def test_more_tokens_than_expected(case: str) -> None:
    """`max_length` limits the tokens only where blocks divide it."""
    attention, x = decoder(case, length=T // 2), tokens(T)
    if attention.pattern.needs_max_length:
        cache = attention.new_cache(2)
        with pytest.raises(UserError, match="21 tokens are more than max_length 20: give a larger max_length"):
            decode(attention, x, [1] * T, cache)
        assert cache.length == T // 2
    else:
        torch.testing.assert_close(decode(attention, x, [1] * T), attention(x), rtol=0, atol=1e-10)


def peak_keys(attention: Attention, length: int, dtype: torch.dtype = torch.float64) -> int:
    """Most key numbers held while a sequence is generated token by token."""
    cache, peak = attention.new_cache(1), 0
    x = tokens(1, dtype, batch_size=1)
    with torch.no_grad():
        for step in range(length):
            assert cache.length == step
            attention(x, cache=cache)
            peak = max(peak, key_numbers(cache, dtype))
    return peak


HEAD_DIM = D_MODEL // NUM_HEADS
_, B_BLOCKS, C_BLOCKS, _ = block_sizes(D_MODEL)


@pytest.mark.parametrize(
    ("description", "numbers"),
    [
        ({"kind": "standard", "num_kv_heads": 2}, T * HEAD_DIM * 2),
        ({"kind": "swa", "window_size": 5}, 5 * HEAD_DIM * NUM_HEADS),
        ({"kind": "swa", "window_size": T + 3}, T * HEAD_DIM * NUM_HEADS),
        ({"kind": "btt"}, T * D_MODEL * NUM_HEADS),
        ({"kind": "btt", "side": "query", "tt_rank": 2}, T * D_MODEL),
        ({"kind": "btt", "side": "both", "num_kv_heads": 2}, T * B_BLOCKS * C_BLOCKS * 2),
        ({"kind": "mlr", "ranks": [2, 2]}, (T * 2 + T // 2 * 2) * NUM_HEADS),
        ({"kind": "mlr", "ranks": [2, 1, 1], "blocks": [2, 4, 20]}, (20 * 2 + 10 + 2) * NUM_HEADS),
        ({"kind": "mlr", "ranks": [2, 2], "blocks": {"lengths": [20, 5]}, "num_kv_heads": 2}, (20 * 2 + 5 * 2) * 2),
        ({"kind": "mlr", "ranks": [2, 2], "blocks": {"lengths": [10**9, 1]}}, (T * 2 + 2) * NUM_HEADS),
        ({"kind": "global_swa", "global_rank": 1, "window_size": 5}, (T * 1 + 5 * 3) * NUM_HEADS),
        ({"kind": "bilinear_mlr", "ranks": [2, 1], "blocks": [1, 2]}, T * (2 + 2) * NUM_HEADS),
        ({"kind": "mlr", "ranks": [2, 1, 1], "blocks": [5, 10, 20]}, (8 * 2 + 4 + 2) * NUM_HEADS),
    ],
    ids=str,
)
def test_peak_keys_are_those_of_the_closed_forms(description: dict[str, Any], numbers: int) -> None:
    attention = decoder(description, length=T)
    assert peak_keys(attention, T) == numbers
    for dtype in (torch.float32, torch.float16):
        assert measured_key_bytes(attention, T, dtype) == closed_form(attention, T).cached_key_bytes(dtype)
        assert closed_form(attention, T).cached_key_bytes(dtype) == numbers * dtype.itemsize


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "global_swa-sum-grouped", "mlr-deep"])
def test_bytes_are_those_of_the_storage(case: str) -> None:
    attention = decoder(case, length=T)
    cache = attention.new_cache(2)
    assert cache.nbytes == cache.key_nbytes == cache.length == 0
    with torch.no_grad():
        for part in torch.split(tokens(T), [7, *[1] * (T - 7)], 1):
            attention(part, cache=cache)
            keys, values = ([rows.first(0).untyped_storage() for rows in r] for r in (cache.key_rows, cache.value_rows))
            assert len({storage.data_ptr() for storage in (*keys, *values)}) == len(keys) + len(values)
            assert cache.key_nbytes == sum(storage.nbytes() for storage in keys)
            assert cache.nbytes == sum(storage.nbytes() for storage in (*keys, *values))


def test_a_step_of_mlr_scores_the_running_blocks_only() -> None:
    """The flops of a step are `2 r_l` a key held at level l, and those of mixing all values: no key is scored twice."""
    ranks, numbers, length = [1, 1, 2], [1, 4, 8], 64
    attention = decoder({"kind": "mlr", "ranks": ranks, "blocks": numbers}, length=length)
    linear = 4 * 2 * D_MODEL * D_MODEL  # queries, keys, values and output
    cache = attention.new_cache(1)
    x = tokens(length, batch_size=1)
    with torch.no_grad():
        for step in range(length):
            with FlopCounterMode(display=False) as counter:
                attention(x[:, step : step + 1], cache=cache)
            scored = sum(rank * (step % (length // number) + 1) for rank, number in zip(ranks, numbers, strict=True))
            expected = linear + 2 * NUM_HEADS * (scored + (step + 1) * HEAD_DIM)
            assert counter.get_total_flops() == expected, step


class LargestTensor(TorchDispatchMode):
    """Records the most numbers that any result, or what it is a view of, holds."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for t in result if isinstance(result, tuple | list) else (result,):
            if isinstance(t, Tensor):
                self.numbers = max(self.numbers, t.untyped_storage().nbytes() // t.itemsize)
        return result


@pytest.mark.parametrize("case", ["standard", "global_swa", "mlr-deep"])
def test_a_step_after_4096_tokens_touches_no_matrix_of_scores(case: str) -> None:
    length = 4097
    attention = decoder(case, length=length, dtype=torch.float32)
    x = tokens(length, torch.float32, batch_size=1)
    cache = attention.new_cache(1)
    with torch.no_grad():
        for part in torch.split(x[:, :-1], MAX_STEP, 1):
            attention(part, cache=cache)
        with LargestTensor() as largest:
            attention(x[:, -1:], cache=cache)
    per_token = max(attention.projection.width, attention.head_dim) * NUM_HEADS
    assert 0 < largest.numbers <= 2 * length * per_token < length**2 / 16


@patterns
def test_gradients_are_those_of_the_full_pass(case: str) -> None:
    attention, x = decoder(case, length=T, rope=True), tokens(T).requires_grad_()
    leaves = [x, *attention.parameters()]
    expected = torch.autograd.grad(attention(x).square().sum(), leaves, allow_unused=True)
    for schedule in ([1] * T, [3, 9, 1, 20, 1, 6]):
        actual = torch.autograd.grad(decode(attention, x, schedule).square().sum(), leaves, allow_unused=True)
        for want, got in zip(expected, actual, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep", "mlr-lengths"])
def test_modes_may_change_on_the_way(case: str) -> None:
    """A later step leaves what an earlier one recorded; storage made in inference mode can be written outside it."""
    attention, x = decoder(case, length=T), tokens(T)
    expected = attention(x)
    cache = attention.new_cache(2)
    outputs = []
    modes = [torch.inference_mode(), torch.no_grad(), torch.enable_grad(), torch.no_grad(), torch.inference_mode()]
    for part, mode in zip(torch.split(x, [20, 1, 1, 1, 17], 1), modes, strict=True):
        with mode:
            outputs.append(attention(part, cache=cache))
    outputs[2].square().sum().backward()
    torch.testing.assert_close(torch.cat([out.detach() for out in outputs], 1), expected, rtol=0, atol=1e-10)


def refusals() -> Iterator[tuple[dict[str, Any], str]]:
    every = torch.ones(2, 3, dtype=torch.bool)
    yield {"context": tokens(3)}, "leave out context: "
    yield {"attention_mask": every[:1]}, r"must be bool of shape \(2, 3\), .* not torch.bool of shape \(1, 3\)"
    yield {"attention_mask": every.long()}, r"attention_mask must be bool .* not torch.int64 of shape"
    yield {"bias": torch.zeros(3, 4)}, r"bias must be broadcastable to \(2, \d, 3, 3\)"
    padded = {"bias": torch.zeros(3, 3), "attention_mask": every}
    yield padded, "bias and attention_mask do not work together"
    yield {"positions": torch.arange(3)}, "leave out positions: "
    yield {"blocks": every[None]}, "leave out blocks: "
    yield {"global_tokens": every, "blocks": every[None]}, "leave out blocks, global_tokens: "


def test_arguments_that_no_cache_goes_with() -> None:
    attention = decoder("mlr", length=T)
    cache = attention.new_cache(2)
    for arguments, message in refusals():
        with pytest.raises(UserError, match=message):
            attention(tokens(3), cache=cache, **arguments)
        assert cache.length == 0


def test_attention_that_sees_later_tokens_or_counts_blocks_from_the_end_cannot_decode() -> None:
    cache = decoder("mlr", length=T).new_cache(2)
    both_ways = decoder("mlr", length=T, causal=False)
    from_the_end = decoder("mlr", length=T)
    from_the_end.pattern.align = "end"
    for attention, message in (
        (both_ways, r"Attention cannot decode step by step: it needs causal=True$"),
        (from_the_end, r"MLRAttention cannot decode .* align=end, .* give align=start$"),
    ):
        with pytest.raises(UserError, match=message):
            attention.new_cache(2)
        with pytest.raises(UserError, match=message):
            attention(tokens(3), cache=cache)


def test_caches_that_do_not_fit() -> None:
    standard, swa = decoder("standard", length=T), decoder("swa", length=T)
    with pytest.raises(UserError, match="batch_size of a cache must be at least 1, not 0"):
        standard.new_cache(0)
    with pytest.raises(UserError, match="new tokens of the cache's 3 sequences, not 2 x 5 tokens"):
        standard(tokens(5), cache=standard.new_cache(3))
    with pytest.raises(UserError, match="not 2 x 0 tokens"):
        standard(tokens(0), cache=standard.new_cache(2))
    for n in (1, 5):
        with pytest.raises(UserError, match=r"needs a WindowCache of 5 from its own new_cache\(\), not a FullCache"):
            swa(tokens(n), cache=standard.new_cache(2))
        with pytest.raises(UserError, match=r"not a WindowCache of 33$"):
            swa(tokens(n), cache=decoder("swa-grouped", length=T).new_cache(2))
        with pytest.raises(UserError, match=r"ranks \[2, 2\] and blocks 1/40, 2/40 .*, not a .* blocks 1/48, 1/12$"):
            decoder("mlr", length=T)(tokens(n), cache=decoder("mlr-lengths", length=T).new_cache(2))
        split = decoder({"kind": "global_swa", "global_rank": 1, "window_size": 5}, length=T)
        with pytest.raises(UserError, match=r"SplitCache of 1 components in a FullCache, 3 components in a Window"):
            standard(tokens(n), cache=split.new_cache(2))
    cache = standard.new_cache(2)
    standard(tokens(5), cache=cache)
    with pytest.raises(UserError, match="float64 on cpu, not 2 x 4 heads of 4 float32 on cpu"):
        standard.float()(tokens(1).float(), cache=cache)
