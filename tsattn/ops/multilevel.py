"""Multi-level low-rank (MLR) attention: near pairs are scored with more components than far pairs.

`S[j, j'] = scale * sum over the levels l in which j and j' share a block of q_l[j] . k_l[j']`
(Kuang et al., section 4): the r components are cut into levels, and each level cuts the sequence into blocks.

Three ways to the same numbers: `reference` writes every level's score matrix out; `sdpa` spreads each level's
components over one slot for each of its blocks, so that a plain product of wider vectors is the multi-level score
and a fused kernel computes it; `auto` takes `sdpa` while that width stays small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.ops.full import expand_heads, full_attention_sdpa, softmax_attention, wide

__all__ = ["multilevel_attention", "multilevel_attention_reference", "multilevel_attention_sdpa"]

# Beyond this width the kernel's extra multiplications cost more than the score matrices that it saves: forward and
# backward cross over near 300, for 3 and 4 levels of 8 and 64 components at 512 tokens on one core.
MAX_SPREAD_WIDTH = 256


def multilevel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    global_queries: Tensor | None = None,
    global_keys: Tensor | None = None,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    impl: str = "auto",
) -> Tensor:
    """Softmax attention with multi-level scores.

    Args:
        q: `(B, H | 1, N, r)` queries.
        k: `(B, G, S, r)` keys.
        v: `(B, G, S, E)` values.
        ranks: components of each level, coarse to fine; they sum to r.
        query_blocks: `(L, B | 1, N)` int, the block of every query at every level; blocks need not be nested.
        key_blocks: `(L, B | 1, S)` int.
        global_queries: `(B | 1, N)` bool: queries that share every level with every key.
        global_keys: `(B | 1, S)` bool, given whenever `global_queries` is.
        allowed: bool, broadcastable to `(B, H, N, S)`; None allows every pair. A query with no allowed key gives zeros.
        bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa`` or ``auto``.

    Returns:
        `(B, H, N, E)`.
    """
    if sum(ranks) != q.shape[-1] or len(ranks) != query_blocks.shape[0]:
        raise ValueError(f"ranks {list(ranks)} do not fit {q.shape[-1]} components and {query_blocks.shape[0]} levels")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    functions = {"reference": multilevel_attention_reference, "sdpa": multilevel_attention_sdpa}
    if impl == "auto":
        spread = sum(n * r for n, r in zip(_num_blocks(query_blocks, key_blocks), ranks, strict=True))
        impl = "sdpa" if spread <= MAX_SPREAD_WIDTH else "reference"
    if impl not in functions:
        raise ValueError(f"unknown impl {impl!r}: multi-level attention has auto, reference, sdpa")
    return functions[impl](
        q,
        k,
        v,
        ranks=ranks,
        query_blocks=query_blocks,
        key_blocks=key_blocks,
        global_queries=global_queries,
        global_keys=global_keys,
        allowed=allowed,
        bias=bias,
        scale=scale,
        dropout_p=dropout_p,
    )


def multilevel_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    global_queries: Tensor | None,
    global_keys: Tensor | None,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """`multilevel_attention` with every level's score matrix written out."""
    q, k, v = expand_heads(q, k, v)
    levels = zip(
        torch.split(wide(q), list(ranks), -1),
        torch.split(wide(k), list(ranks), -1),
        query_blocks,
        key_blocks,
        strict=True,
    )
    logits = torch.zeros((), dtype=wide(q).dtype, device=q.device)
    for q_level, k_level, query_block, key_block in levels:
        same = query_block[:, :, None] == key_block[:, None, :]
        if global_queries is not None and global_keys is not None:
            same = same | global_queries[:, :, None] | global_keys[:, None, :]
        logits = logits + (q_level @ k_level.transpose(-1, -2)).masked_fill(~same[:, None], 0.0)
    return softmax_attention(logits * scale, v, allowed=allowed, bias=bias, dropout_p=dropout_p)


def multilevel_attention_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    global_queries: Tensor | None,
    global_keys: Tensor | None,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """`multilevel_attention` as plain attention over components spread over one slot a block."""
    q_wide, k_wide = [], []
    num_blocks = _num_blocks(query_blocks, key_blocks)
    for level, (q_level, k_level) in enumerate(
        zip(torch.split(q, list(ranks), -1), torch.split(k, list(ranks), -1), strict=True)
    ):
        if num_blocks[level] == 1:
            q_wide.append(q_level)
            k_wide.append(k_level)
            continue
        offset = torch.minimum(query_blocks[level].min(), key_blocks[level].min())
        query_slots = F.one_hot(query_blocks[level] - offset, num_blocks[level])
        key_slots = F.one_hot(key_blocks[level] - offset, num_blocks[level])
        if global_queries is not None and global_keys is not None:
            query_slots, key_slots = _add_global_slots(query_slots, key_slots, global_queries, global_keys)
        q_wide.append(_spread(q_level, query_slots))
        k_wide.append(_spread(k_level, key_slots))
    return full_attention_sdpa(
        torch.cat(q_wide, -1),
        torch.cat(k_wide, -1),
        v,
        allowed=allowed,
        bias=bias,
        scale=scale,
        dropout_p=dropout_p,
    )


def _num_blocks(query_blocks: Tensor, key_blocks: Tensor) -> list[int]:
    low = torch.minimum(query_blocks.amin((1, 2)), key_blocks.amin((1, 2)))
    high = torch.maximum(query_blocks.amax((1, 2)), key_blocks.amax((1, 2)))
    return [int(n) for n in (high - low + 1).tolist()]


def _add_global_slots(
    query_slots: Tensor, key_slots: Tensor, global_queries: Tensor, global_keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Two more slots, such that a pair with a global token matches exactly once.

    The slots of (query, key) are (0, 1), (1, 0) for ordinary tokens; (1, 0), (1, 1) for global ones, whose own
    block is cleared.
    """
    B = max(query_slots.shape[0], global_queries.shape[0])
    query_slots, key_slots = query_slots.expand(B, -1, -1), key_slots.expand(B, -1, -1)
    q_global, k_global = (t.long()[..., None].expand(B, -1, -1) for t in (global_queries, global_keys))
    queries = torch.cat([query_slots * (1 - q_global), q_global, 1 - q_global], -1)
    keys = torch.cat([key_slots * (1 - k_global), torch.ones_like(k_global), k_global], -1)
    return queries, keys


def _spread(components: Tensor, slots: Tensor) -> Tensor:
    """`(B, H, S, r)` components and `(B | 1, S, p)` slots to `(B, H, S, p r)`."""
    return (components[..., None, :] * slots[:, None, :, :, None].to(components.dtype)).flatten(-2)
