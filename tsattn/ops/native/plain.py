"""What the kernel computes, with every logit written out: for derivatives of its gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tsattn.ops.native.query_intervals import Intervals
from tsattn.ops.softmax import expand_heads, softmax_attention, wide

__all__ = ["dropout_factors", "plain_attention"]


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    intervals: Intervals,
    ranks: Sequence[int],
    scale: float,
    level_factors: Sequence[float] | None,
    dropout_p: float,
    seed: Tensor | None,
) -> Tensor:
    """`(B, H, N, E)`, from queries, keys and values in the order of the intervals; see `native_attention`."""
    q, k, v = expand_heads(q, k, v)
    N, S = q.shape[2], k.shape[2]
    rows = intervals.layout_of_row.long()
    query = torch.arange(N)[:, None]
    is_global = query >= (N - intervals.global_queries.long()[rows])[:, None, None]  # (B, N, 1)

    def within(first: Tensor, end: Tensor) -> Tensor:
        return (query >= first[rows].long()[:, None]) & (query < end[rows].long()[:, None])

    logits = torch.zeros((), dtype=wide(q).dtype)
    shared = torch.zeros((), dtype=torch.long)
    levels = zip(*(torch.split(wide(t), list(ranks), -1) for t in (q, k)), strict=True)
    for level, (q_level, k_level) in enumerate(levels):
        same = within(intervals.block_first[:, level], intervals.block_end[:, level]) | is_global
        logits = logits + (q_level @ k_level.transpose(-1, -2)).masked_fill(~same[:, None], 0.0)
        shared = shared + same
    if level_factors:
        logits = logits * torch.tensor(level_factors, dtype=logits.dtype)[shared][:, None]
    ordinary, everywhere = (within(intervals.seen_first[:, part], intervals.seen_end[:, part]) for part in (0, 1))
    allowed = torch.where(is_global, everywhere, ordinary)[:, None]
    factors = None
    if seed is not None:
        factors = dropout_factors(len(q) * q.shape[1], N, S, dropout_p, int(seed)).view(*q.shape[:2], N, S)
    return softmax_attention(logits * scale, v, allowed=allowed, bias=bias, dropout_p=0.0, factors=factors)


def dropout_factors(heads: int, queries: int, keys: int, dropout_p: float, seed: int) -> Tensor:
    """What the kernel multiplies weights by, `(heads, queries, keys)`: 0 where one is dropped. See source/scores.h."""
    narrow, wide_bits = 2**32 - 1, 2**64 - 1
    single = np.float32(dropout_p)  # as the kernel is given it

    def mixed(head: int) -> int:
        x = (seed + 0x9E3779B97F4A7C15 * (head + 1)) & wide_bits
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wide_bits
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wide_bits
        return (x ^ (x >> 31)) & narrow

    def times(x: Tensor, factor: int) -> Tensor:
        """The product of numbers of 32 bits, of which 32 bits are kept; in halves, so that 64 suffice."""
        high, low = x >> 16, x & 0xFFFF
        return (((high * factor & 0xFFFF) << 16) + low * factor) & narrow

    of_head = torch.tensor([mixed(head) for head in range(heads)])[:, None, None]
    x = (times(torch.arange(keys), 0x9E3779B1) + of_head) & narrow
    x = times(x ^ (x >> 16), 0x85EBCA6B)
    x = times(torch.arange(queries)[:, None], 0xC2B2AE35) ^ x
    x = times(x ^ (x >> 16), 0x7FEB352D)
    x = times(x ^ (x >> 15), 0x846CA68B)
    x = x ^ (x >> 16)
    kept = (x >> 8) >= int(float(single) * 2**24)
    one = np.float32(1)
    return kept.to(torch.float32) * float(one / (one - single))
