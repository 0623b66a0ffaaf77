"""What may be done to a cache between steps: taking tokens back, choosing sequences, copying; and whose it is."""

from __future__ import annotations

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

from tests.attention.cases import CASES, D_MODEL, PATTERN_CASES
from tests.attention.decoding import T, decode, decoder, key_numbers, tokens
from tsattn.attention import Attention
from tsattn.attention.caches import Cache
from tsattn.attention.cost import closed_form, measured_key_bytes
from tsattn.errors import UserError

patterns = pytest.mark.parametrize("case", PATTERN_CASES)

MORE: dict[str, dict[str, Any]] = {
    "swa-1": {"kind": "swa", "window_size": 1},
    "swa-wide": {"kind": "swa", "window_size": 10**9},
    "mlr-ones": {"kind": "mlr", "ranks": [2, 2], "blocks": {"lengths": [6, 1]}},
    "mlr-uneven": {"kind": "mlr", "head_dim": 6, "ranks": [2, 2, 2], "blocks": [3, 6, 18], "divide_by": "active"},
    "global_swa-near": {"kind": "global_swa", "global_rank": 2, "window_size": 3, "num_kv_heads": 2},
}


class Sequences:
    """A batch that is decoded, with all its tokens: each output is held against the full pass over its own sequence."""

    def __init__(self, attention: Attention, batch_size: int, rewind: int) -> None:
        self.attention = attention
        self.cache = attention.new_cache(batch_size, rewind=rewind)
        self.seen = [torch.zeros(0, D_MODEL, dtype=torch.float64) for _ in range(batch_size)]
        self.longest = [0] * batch_size  # that each has been

    def append(self, x: Tensor, mask: Tensor) -> None:
        out = self.attention(x, attention_mask=None if mask.all() else mask, cache=self.cache)
        for row, real in enumerate(mask):
            self.seen[row] = torch.cat([self.seen[row], x[row, real]])
            if real.any():
                expected = self.attention(self.seen[row][None])[0, -int(real.sum()) :]
                torch.testing.assert_close(out[row, real], expected, rtol=0, atol=1e-9)
        self.longest = list(map(max, self.longest, self.lengths))

    @property
    def lengths(self) -> list[int]:
        return [len(seen) for seen in self.seen]

    def crop(self, lengths: list[int]) -> None:
        self.cache.crop(lengths)
        self.seen = [seen[:length] for seen, length in zip(self.seen, lengths, strict=True)]

    def reorder(self, indices: list[int]) -> None:
        self.cache.reorder(indices)
        self.seen, self.longest = ([rows[index] for index in indices] for rows in (self.seen, self.longest))


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, int, int, list[tuple[str, Any]]]:
    """A case, a batch size, a rewind, and what is done; numbers are taken modulo what is possible."""
    kinds = st.sampled_from(["append", "append", "crop", "reorder"])
    steps = [(draw(kinds), draw(st.integers(0, 2**16))) for _ in range(draw(st.integers(2, 12)))]
    return draw(st.sampled_from([*CASES, *MORE])), draw(st.integers(1, 3)), draw(st.integers(0, 9)), steps


def test_any_changes_leave_what_the_full_pass_gives() -> None:
    """Append, crop, append, reorder, in any order and across the edges of blocks and windows, each row on its own."""
    done: Counter[str] = Counter()

    @given(changes())
    @settings(derandomize=True, deadline=None, max_examples=150)
    def run(drawn: tuple[str, int, int, list[tuple[str, Any]]]) -> None:
        done.update(change(*drawn))

    run()
    assert min(done[kind] for kind in ("append", "crop", "reorder")) >= 100, done


def change(case: str, batch_size: int, rewind: int, steps: list[tuple[str, Any]]) -> list[str]:
    """Make the changes, compare what every append gives, and name the changes that were possible."""
    done = []
    attention = decoder(MORE.get(case, case), length=T, rope=True)
    rows = Sequences(attention, batch_size, rewind)
    with torch.no_grad():
        rows.append(tokens(7, batch_size=batch_size), torch.ones(batch_size, 7, dtype=torch.bool))
        for kind, seed in steps:
            generator = torch.Generator().manual_seed(seed)
            size, longest = len(rows.seen), max(rows.lengths)
            assert rows.cache.lengths == tuple(rows.lengths)
            if kind == "append" and longest < T:
                n = min(T - longest, [1, 1, 2, 5, 17][seed % 5])
                mask = torch.rand(size, n, generator=generator) < [1.0, 1.0, 0.6][seed % 3]
                rows.append(tokens(n, batch_size=size, seed=seed), mask)
            elif kind == "append":
                continue
            elif kind == "crop":
                promised = [max(0, most - rewind) for most in rows.longest]
                assert all(
                    first >= length - taken
                    for first, length, taken in zip(promised, rows.lengths, rows.cache.croppable, strict=True)
                )
                rows.crop(
                    [
                        length - int(torch.randint(taken + 1, (), generator=generator))
                        for length, taken in zip(rows.lengths, rows.cache.croppable, strict=True)
                    ]
                )
            elif kind == "reorder":
                rows.reorder(torch.randint(size, (1 + seed % 3,), generator=generator).tolist())
            done.append(kind)
        n = min(2, T - max(rows.lengths))
        if n:
            rows.append(tokens(n, batch_size=len(rows.seen)), torch.ones(len(rows.seen), n, dtype=torch.bool))
    return done


@patterns
@pytest.mark.parametrize("rewind", [1, 4, 100])
def test_tokens_are_taken_back_one_by_one(case: str, rewind: int) -> None:
    """At every length, as many as the cache was made for."""
    attention, x = decoder(case, length=T, rope=True), tokens(T)
    with torch.no_grad():
        expected = attention(x)
        for start in range(2, T + 1, 3):
            cache = attention.new_cache(2, rewind=rewind)
            decode(attention, x[:, :start], [start - 1, 1], cache)
            back = min(rewind, start)
            cache.crop(start - back)
            assert cache.lengths == (start - back,) * 2
            rest = x[:, start - back :]
            schedule = [1, *[rest.shape[1] - 1] * (rest.shape[1] > 1)]
            actual = decode(attention, rest, schedule, cache)
            torch.testing.assert_close(actual, expected[:, start - back :], rtol=0, atol=1e-10)


def test_ways_to_say_how_many_are_kept() -> None:
    attention, x = decoder("standard", length=T), tokens(T)
    for lengths in (30, -10, [30, 30], torch.tensor([30, 30])):
        cache = attention.new_cache(2)
        with torch.no_grad():
            attention(x, cache=cache)
            cache.crop(lengths)
            assert cache.lengths == (30, 30)
            torch.testing.assert_close(decode(attention, x[:, 30:], [4, 6], cache), attention(x)[:, 30:])
    with torch.no_grad():
        cache.crop([3, 7])
    assert cache.lengths == (3, 7)
    assert cache.length == 7
    for lengths in (8, -4, [3], [3, 7, 7], [3, 8], "30", 2.0, True, [True, 2], torch.tensor([1.0, 2.0]), None):
        with pytest.raises(UserError, match=r"^a cache is cropped to a number of tokens, or to one for each of its 2"):
            cache.crop(lengths)  # type: ignore[arg-type]
    assert cache.lengths == (3, 7)
    cache.crop(0)
    assert cache.lengths == (0, 0)
    attention.new_cache(2).crop(0)


@pytest.mark.parametrize(
    ("description", "rewind", "possible"),
    [
        ({"kind": "swa", "window_size": 5}, 0, 1),  # the key that the next token would take the place of
        ({"kind": "swa", "window_size": 5}, 4, 4),
        ({"kind": "swa", "window_size": 50}, 0, T),  # nothing has been dropped
        ({"kind": "global_swa", "global_rank": 2, "window_size": 5}, 3, 3),
        ({"kind": "mlr", "ranks": [2, 2], "blocks": [1, 4]}, 0, 10),
        ({"kind": "mlr", "ranks": [2, 2], "blocks": {"lengths": [48, 12]}}, 2, 4),  # to 36, where the block begins
        ({"kind": "standard"}, 0, T),
    ],
    ids=str,
)
def test_what_is_no_longer_held_is_not_taken_back(description: dict[str, Any], rewind: int, possible: int) -> None:
    attention, x = decoder(description, length=T), tokens(T)
    cache = attention.new_cache(2, rewind=rewind)
    with torch.no_grad():
        decode(attention, x, [7, *[1] * (T - 7)], cache)
        assert cache.croppable == (possible, possible)
        if possible < T:
            message = (
                rf"^this cache can take back {possible} of its 40 tokens, not {possible + 1}: "
                rf"new_cache\(..., rewind={possible + 1}\) keeps what that needs$"
            )
            with pytest.raises(UserError, match=message):
                cache.crop(T - possible - 1)
            with pytest.raises(UserError, match=rf"can take back {possible} of"):
                cache.crop([T, 0])
        assert cache.lengths == (T, T)
        cache.crop(T - possible)
        actual = decode(attention, x[:, T - possible :], [1] * possible, cache)
        torch.testing.assert_close(actual, attention(x)[:, T - possible :], rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("description", "places"),
    [
        ({"kind": "standard", "num_kv_heads": 2}, lambda k: T * 4 * 2),
        ({"kind": "swa", "window_size": 5}, lambda k: min(T, 5 + max(k - 1, 0)) * 16),
        ({"kind": "btt", "side": "query"}, lambda k: T * 16),
        (
            {"kind": "mlr", "ranks": [2, 1, 1], "blocks": [1, 4, 20]},
            lambda k: (T * 2 + sum(min(T, n + max(k - 1, 0)) for n in (10, 2))) * 4,
        ),
        (
            {"kind": "global_swa", "global_rank": 1, "window_size": 5},
            lambda k: (T * 1 + min(T, 5 + max(k - 1, 0)) * 3) * 4,
        ),
    ],
    ids=["standard", "swa", "btt", "mlr", "global_swa"],
)
def test_the_keys_kept_for_it_are_counted(description: dict[str, Any], places: Any) -> None:
    attention = decoder(description, length=T)
    for rewind in (0, 1, 2, 7, 60):
        cache = attention.new_cache(1, rewind=rewind)
        with torch.no_grad():
            decode(attention, tokens(T, batch_size=1), [1] * T, cache)
        assert key_numbers(cache) == places(rewind)
        assert measured_key_bytes(attention, T, torch.float64, rewind=rewind) == cache.key_nbytes
        assert closed_form(attention, T, rewind=rewind).cached_key_bytes(torch.float64) == cache.key_nbytes


def test_a_rewind_is_a_number_of_tokens() -> None:
    attention = decoder("swa", length=T)
    for rewind in (-1, 1.5, "2", True, None):
        with pytest.raises(UserError, match=r"^rewind of a cache must be a number of tokens, 0 or more, not"):
            attention.new_cache(2, rewind=rewind)  # type: ignore[arg-type]


@patterns
def test_numbers_that_are_not_finite_go_with_their_tokens(case: str) -> None:
    attention, x = decoder(case, length=T, rope=True), tokens(T)
    bad = torch.full_like(x[:, :3], torch.nan)
    with torch.no_grad():
        cache = attention.new_cache(2, rewind=3)
        decode(attention, x[:, :9], [9], cache)
        attention(bad, cache=cache)
        cache.crop([9, 11])
        cache.crop([9, 9])
        actual = decode(attention, x[:, 9:], [1] * 31, cache)
        torch.testing.assert_close(actual, attention(x)[:, 9:], rtol=0, atol=1e-10)


@patterns
def test_beams_are_chosen_copied_and_dropped(case: str) -> None:
    attention, x = decoder(case, length=T, rope=True), tokens(T, batch_size=4)
    with torch.no_grad():
        cache = attention.new_cache(2)
        attention(x[:2, :9], cache=cache)
        cache.reorder([1, 0, 1, 1])  # a prompt becomes the beams that start from it
        assert cache.batch_size == 4
        seen = torch.cat([x[:2, :9][[1, 0, 1, 1]], x[:, 9:20]], 1)
        torch.testing.assert_close(decode(attention, x[:, 9:20], [1] * 11, cache), attention(seen)[:, 9:])
        cache.reorder(torch.tensor([3, 0]))
        seen = torch.cat([seen[[3, 0]], x[:2, 20:]], 1)
        torch.testing.assert_close(decode(attention, x[:2, 20:], [1] * 20, cache), attention(seen)[:, 20:])


def test_an_order_names_sequences() -> None:
    attention = decoder("swa", length=T)
    cache = attention.new_cache(2)
    cache.reorder([1, 0, 0])
    assert cache.batch_size == 3
    attention(tokens(4, batch_size=3), cache=cache)
    for indices in ([], [3], [-1, 0], [0.0, 1.0], torch.zeros(2, 2, dtype=torch.long), [True, False], 1, "01", None):
        with pytest.raises(UserError, match=r"^a cache is reordered by a list of sequences, from 0 to 2, not by"):
            cache.reorder(indices)  # type: ignore[arg-type]
    assert cache.batch_size == 3
    assert cache.lengths == (4, 4, 4)


@patterns
def test_gradients_pass_through_changes(case: str) -> None:
    attention, x = decoder(case, length=T), tokens(T).requires_grad_()
    leaves = [x, *attention.parameters()]
    whole = torch.cat([x[:, :20][[1, 1]], x[:, 20:]], 1)
    expected = torch.autograd.grad(attention(whole)[:, 20:].square().sum(), leaves, allow_unused=True)
    cache = attention.new_cache(2, rewind=4)
    decode(attention, x[:, :24], [9, 15], cache)
    cache.crop(20)
    cache.reorder([1, 1])
    steps = decode(attention, x[:, 20:], [1] * 20, cache)
    actual = torch.autograd.grad(steps.square().sum(), leaves, allow_unused=True)
    for want, got in zip(expected, actual, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@patterns
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


@pytest.mark.parametrize("case", ["standard", "swa", "global_swa", "mlr"])
def test_the_cache_of_another_layer_is_refused(case: str) -> None:
    """Of the same kind and sizes too, and of a copy: its keys were made by other weights."""
    attention, x = decoder(case, length=T), tokens(3)
    for other in (decoder(case, length=T), copy.deepcopy(attention)):
        cache = other.new_cache(2)
        for _ in range(2):
            with pytest.raises(UserError, match=r"^this cache is of another .*: each layer decodes with its own"):
                attention(x, cache=cache)
            other(x, cache=cache)
        with pytest.raises(UserError, match=r"^this cache is of another"):
            attention(x, cache=copy.deepcopy(cache))


def test_the_cache_of_a_layer_that_is_gone_is_refused() -> None:
    cache = decoder("standard", length=T).new_cache(2)
    gc.collect()
    with pytest.raises(UserError, match="this cache is of another"):
        decoder("standard", length=T)(tokens(3), cache=cache)


def test_a_cache_that_is_copied_with_its_attention_stays_its_own() -> None:
    attention, x = decoder("mlr", length=T), tokens(T)
    cache = attention.new_cache(2)
    with torch.no_grad():
        attention(x[:, :9], cache=cache)
        both: tuple[Attention, Cache] = copy.deepcopy((attention, cache))
        torch.testing.assert_close(decode(both[0], x[:, 9:], [31], both[1]), attention(x)[:, 9:])
    with pytest.raises(UserError, match="this cache is of another"):
        attention(x[:, :1], cache=both[1])


def test_a_cache_is_saved_and_loaded() -> None:
    attention, x = decoder("global_swa", length=T), tokens(T)
    cache, file = attention.new_cache(2), io.BytesIO()
    with torch.no_grad():
        attention(x[:, :9], cache=cache)
        torch.save(cache, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        torch.testing.assert_close(decode(attention, x[:, 9:], [31], loaded), attention(x)[:, 9:])
    with pytest.raises(UserError, match="this cache is of another"):
        decoder("global_swa", length=T)(x[:, :1], cache=loaded)
