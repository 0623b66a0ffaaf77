"""The intervals of a call: known beforehand where the tokens are whole and in order, else found from them."""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.ops.modes import is_fake
from tsattn.ops.native.query_intervals import Intervals, every_pair, find_intervals, regular_intervals
from tsattn.ops.regular_blocks import RegularBlocks

__all__ = ["pair_intervals"]


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
    """The intervals of the pairs of queries `(B, H, N, r)` and keys `(B, G, S, r)`, or the reason why there are none.

    Args:
        q: the queries.
        k: the keys.
        causal: a query sees no key at a later position.
        query_positions: `(B | 1, N)` int; the order of the queries by default.
        key_positions: `(B | 1, S)` int; the order of the keys by default.
        key_mask: `(B, S)` bool, True at real keys.
        global_tokens: `(B | 1, S)` bool, tokens that share every level with every token, and are in every window.
        window_size: keys on a side that a query sees, itself counted; None for all.
        blocks: `(L, B | 1, S)` int, the block of every token at every level; None for one level that all share.
        regular: the tokens and their blocks, where they are whole and in order.
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
        return Intervals.of_tensors([torch.zeros(B, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), *pairs])
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
    """The intervals of one row of whole, ordered tokens, as one node of a compiled graph: found when it runs."""
    found = find_intervals(query_positions, key_positions, blocks=blocks, causal=causal, window_size=window_size)
    assert not isinstance(found, str), found
    return found.block_first, found.block_end, found.seen_first, found.seen_end


@_traced_intervals.register_fake
def _(query_positions, key_positions, blocks, causal, window_size):  # type: ignore[no-untyped-def]
    S = key_positions.shape[1]
    levels = 1 if blocks is None else blocks.shape[0]
    blocked, seen = ((1, levels, S), (1, 2, S))
    return tuple(key_positions.new_empty(shape, dtype=torch.int32) for shape in (blocked, blocked, seen, seen))
