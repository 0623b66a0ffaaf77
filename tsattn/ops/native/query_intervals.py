"""Intervals of queries: which queries share blocks with a key, and which see it, for rows of a batch.

Queries are ordered by position. So the queries of a block, of a window, and all that causality lets see a key are
consecutive. Global tokens, which share every level with every token, come last.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from tsattn.ops.masks import RegularBlocks, distinct_rows, level_block_ids
from tsattn.ops.modes import as_if_alone, is_fake

NEVER = 2**30  # start of an interval without queries


@dataclass(frozen=True)
class Intervals:
    """The pairs as intervals of queries, from a first to an end; rows with the same pairs share a layout.

    Attributes:
        layout_of_row: `(B)` int32, the layout of each row.
        global_queries: `(layouts)` int32, how many of the queries, the last ones, are global.
        block_first: `(layouts, L, S)` int32: which ordinary queries share a block with each key, at each level.
        block_end: the ends of these intervals.
        seen_first: `(layouts, 2, S)` int32: which ordinary queries, and which global ones, see each key.
        seen_end: the ends of these intervals.
        query_order: `(B | 1, N)`, the original place of each ordered query, if queries are not in order.
        key_order: `(B | 1, S)`, the same for keys.
    """

    TENSORS: ClassVar = ("layout_of_row", "global_queries", "block_first", "block_end", "seen_first", "seen_end")

    layout_of_row: Tensor
    global_queries: Tensor
    block_first: Tensor
    block_end: Tensor
    seen_first: Tensor
    seen_end: Tensor
    query_order: Tensor | None = None
    key_order: Tensor | None = None

    def for_rows(self, batch: int) -> Intervals:
        """The intervals of one layout for all rows of a batch."""
        if torch.compiler.is_compiling():
            return replace(self, layout_of_row=torch.zeros(batch, dtype=torch.int32))
        return replace(self, layout_of_row=_first_layout(batch))

    @property
    def tensors(self) -> list[Tensor]:
        """The arguments of the kernel, for queries and keys in order."""
        return [getattr(self, name) for name in self.TENSORS]


@functools.lru_cache(maxsize=256)
def _first_layout(batch: int) -> Tensor:
    with as_if_alone():
        return torch.zeros(batch, dtype=torch.int32)


@functools.lru_cache(maxsize=256)
def every_pair(queries: int, keys: int) -> Intervals:
    """One level, in which every query shares a block with every key and sees it."""
    with as_if_alone():
        none = torch.zeros(1, dtype=torch.int32)
        blocked, seen = torch.zeros(1, 1, keys, dtype=torch.int32), torch.zeros(1, 2, keys, dtype=torch.int32)
        return Intervals(none, none, blocked, blocked + queries, seen, seen + queries)


@functools.lru_cache(maxsize=256)
def regular_intervals(regular: RegularBlocks, causal: bool, window_size: int | None = None) -> Intervals | str:
    """`find_intervals` for ordered tokens without padding: one layout, for a batch of one row."""
    with as_if_alone():
        positions = torch.arange(regular.first, regular.first + regular.length)[None]
        blocks = None
        if regular.numbers is not None or regular.lengths is not None:
            blocks = level_block_ids(
                positions, numbers=regular.numbers, lengths=regular.lengths, max_length=regular.max_length
            )
        return find_intervals(positions, positions, blocks=blocks, causal=causal, window_size=window_size)


def find_intervals(
    query_positions: Tensor,
    key_positions: Tensor,
    *,
    batch: int = 1,
    blocks: Tensor | None = None,
    causal: bool = False,
    window_size: int | None = None,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> Intervals | str:
    """The intervals of the rows of a batch, or the reason why their pairs are not intervals.

    `multilevel_attention` and `sliding_window_attention` describe the arguments; without blocks there is one level,
    which all share. Blocks and global tokens need a sequence that attends to itself.
    """
    N, S = query_positions.shape[1], key_positions.shape[1]
    same = query_positions is key_positions or torch.equal(query_positions, key_positions)
    if (global_tokens is not None or blocks is not None) and not same:
        return "blocks and global tokens are those of a sequence that attends to itself"
    levels = None if blocks is None else blocks.movedim(0, 1)
    (queries, keys, ids, real, everywhere), which = distinct_rows(
        query_positions, key_positions, levels, key_mask, global_tokens
    )
    if everywhere is not None and real is not None:
        everywhere = everywhere & real
    distinct = len(queries)

    query_order = key_order = None
    ordered = _order(queries, everywhere)
    if ordered is not None:
        query_order, queries = ordered, queries.gather(1, ordered)
        if same:
            key_order = ordered
            keys, real, everywhere = (None if t is None else t.gather(1, ordered) for t in (keys, real, everywhere))
            ids = None if ids is None else ids.gather(2, ordered[:, None].expand_as(ids))
    count = torch.zeros(distinct, dtype=torch.long) if everywhere is None else everywhere.sum(1)

    if ids is None:
        first = torch.zeros(distinct, 1, S, dtype=torch.long)
        end = (N - count)[:, None, None].expand(-1, 1, S)
    else:
        ordinary = torch.ones(distinct, S, dtype=torch.bool) if everywhere is None else ~everywhere
        found = _runs(ids, ordinary if real is None else ordinary & real, ordinary)
        if isinstance(found, str):
            return found
        first, end = found
        if everywhere is not None:  # a global key shares every level
            first = first.masked_fill(everywhere[:, None], 0)
            end = torch.where(everywhere[:, None], (N - count)[:, None, None], end)
    pairs = (first, end, *_seen(queries, keys, count, causal, window_size, real, everywhere))
    layout_of_row = which if len(which) == batch else which.expand(batch)
    made = Intervals(*(t.int().contiguous() for t in (layout_of_row, count, *pairs)))
    return replace(made, query_order=_for_rows(query_order, which), key_order=_for_rows(key_order, which))


def _for_rows(order: Tensor | None, which: Tensor) -> Tensor | None:
    return order if order is None or len(order) == 1 else order[which]


def _order(positions: Tensor, everywhere: Tensor | None) -> Tensor | None:
    """An order `(R, N)` of tokens by position, global tokens last; None if they are in order, padding aside.

    Padded tokens may stand anywhere within blocks: they see whatever their place allows.
    """
    last = torch.zeros_like(positions) if everywhere is None else everywhere.long()
    steps = last.diff(dim=1)
    rising = (positions.diff(dim=1) >= 0) | (steps > 0)
    if bool((steps >= 0).all()) and bool(rising.all()):
        return None
    by_position = positions.argsort(dim=1, stable=True)
    return by_position.gather(1, last.gather(1, by_position).argsort(dim=1, stable=True))


def _runs(ids: Tensor, counted: Tensor, ordinary: Tensor) -> tuple[Tensor, Tensor] | str:
    """For each token, where the run of tokens of its block begins and ends, at each level `(R, L, S)`.

    Args:
        ids: `(R, L, S)`, blocks of the tokens in order.
        counted: `(R, S)`, tokens that are real and not global; others belong to the block before them.
        ordinary: `(R, S)`, tokens that are not global.
    """
    R, L, S = ids.shape
    place = torch.arange(S).expand(R, L, S)
    valid = counted[:, None].expand_as(ids)
    if not bool(counted.all()):
        # the place of the last counted token up to each token; at the start, the place of the first
        known = torch.where(valid, place, -1).cummax(-1).values
        first_known = torch.where(valid, place, S).amin(-1, keepdim=True).clamp(max=S - 1)
        ids = ids.gather(-1, torch.where(known < 0, first_known, known))
    changes = torch.cat([torch.ones(R, L, 1, dtype=torch.bool), ids.diff(dim=-1) != 0], -1)
    if bool((changes[:, :-1] & ~changes[:, 1:])[:, :, 1:].any()):
        return "the blocks are not nested"
    ordered = ids.sort(-1).values
    if bool(((ordered.diff(dim=-1) != 0).sum(-1) + 1 != changes.sum(-1)).any()):
        return "the blocks are not nested"  # a block that occurs again later
    first = torch.where(changes, place, 0).cummax(-1).values
    starts_after = torch.cat([changes[..., 1:], torch.ones(R, L, 1, dtype=torch.bool)], -1)
    end = torch.where(starts_after, place + 1, S + 1).flip(-1).cummin(-1).values.flip(-1)
    return first, torch.minimum(end, ordinary.sum(1)[:, None, None])


def _seen(
    queries: Tensor,
    keys: Tensor,
    count: Tensor,
    causal: bool,
    window_size: int | None,
    real: Tensor | None,
    everywhere: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Which ordinary and which global queries see each key, `(R, 2, S)`; see `find_intervals`."""
    R, N = queries.shape
    S = keys.shape[1]
    ordinary = (N - count)[:, None].expand(R, S)
    first = torch.stack([torch.zeros_like(ordinary), ordinary], 1)
    end = torch.stack([ordinary, torch.full_like(ordinary, N)], 1)
    if causal or window_size is not None:
        beyond = torch.iinfo(torch.int64).max
        place = torch.arange(N)
        is_ordinary = place < ordinary[:, :1]
        times = queries.masked_fill(~is_ordinary, beyond).contiguous()
        if causal:
            global_times = queries.masked_fill(is_ordinary, -beyond).contiguous()
            first = torch.stack(
                [torch.searchsorted(times, keys.contiguous()), torch.searchsorted(global_times, keys.contiguous())], 1
            )
            first[:, 1] = torch.maximum(first[:, 1], ordinary)
        if window_size is not None:
            reach = min(window_size - 1, 2**62)  # so that no sum is beyond int64
            near = torch.searchsorted(times, (keys - reach).contiguous())
            last = torch.searchsorted(times, (keys + reach).contiguous(), right=True)
            if everywhere is not None:
                near, last = near.masked_fill(everywhere, 0), torch.where(everywhere, ordinary, last)
            first[:, 0] = torch.maximum(first[:, 0], near)
            end[:, 0] = torch.minimum(last, ordinary)
    if real is not None:
        first = first.masked_fill(~real[:, None], NEVER)
        end = end.masked_fill(~real[:, None], 0)
    return first, end


def pair_intervals(
    q: Tensor,
    k: Tensor,
    *,
    causal: bool = False,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
    window_size: int | None = None,
    blocks: Tensor | None = None,
    regular: RegularBlocks | None = None,
) -> Intervals | str:
    """`find_intervals` of queries `(B, H, N, r)` and keys `(B, G, S, r)`, cached for ordered tokens without padding.

    Positions are the order of the tokens by default. `regular` describes tokens and blocks, if they are regular.
    """
    B, N, S = q.shape[0], q.shape[2], k.shape[2]
    whole = key_mask is None and global_tokens is None
    if whole and regular is None and query_positions is None and key_positions is None and blocks is None and N == S:
        regular = RegularBlocks(0, N)
    traced = torch.compiler.is_compiling() or is_fake(q)
    if whole and blocks is None and not causal and window_size is None and not traced:
        return every_pair(N, S).for_rows(B)
    if whole and regular is not None and not traced:
        intervals = regular_intervals(regular, causal, window_size)
        return intervals if isinstance(intervals, str) else intervals.for_rows(B)
    query_positions = torch.arange(N)[None] if query_positions is None else query_positions
    key_positions = torch.arange(S)[None] if key_positions is None else key_positions
    if traced:
        pairs = _traced_intervals(query_positions, key_positions, blocks, causal, window_size)
        return Intervals(torch.zeros(B, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), *pairs)
    return find_intervals(
        query_positions,
        key_positions,
        batch=B,
        blocks=blocks,
        causal=causal,
        window_size=window_size,
        key_mask=key_mask,
        global_tokens=global_tokens,
    )


@torch.library.custom_op("tsattn::native_intervals", mutates_args=())
def _traced_intervals(
    query_positions: Tensor, key_positions: Tensor, blocks: Tensor | None, causal: bool, window_size: int | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The intervals of one row without padding, as one node of a compiled graph that is computed when it runs."""
    found = find_intervals(query_positions, key_positions, blocks=blocks, causal=causal, window_size=window_size)
    if isinstance(found, str):
        raise ValueError(f"no intervals: {found}")
    return found.block_first, found.block_end, found.seen_first, found.seen_end


@_traced_intervals.register_fake
def _(query_positions, key_positions, blocks, causal, window_size):  # type: ignore[no-untyped-def]
    S = key_positions.shape[1]
    levels = 1 if blocks is None else blocks.shape[0]
    blocked, seen = ((1, levels, S), (1, 2, S))
    return tuple(key_positions.new_empty(shape, dtype=torch.int32) for shape in (blocked, blocked, seen, seen))
