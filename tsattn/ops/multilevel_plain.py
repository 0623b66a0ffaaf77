"""Multi-level attention with all scores written out, and as plain attention with wider queries and keys.

Queries and keys may be different tokens here, unlike in `multilevel_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.ops.full import full_attention_sdpa
from tsattn.ops.softmax import expand_heads, softmax_attention, wide


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
    divide_by_active: bool = False,
) -> Tensor:
    """`multilevel_attention` with every level's score matrix written out; queries and keys may be different tokens."""
    q, k, v = expand_heads(q, k, v)
    levels = zip(*(torch.split(wide(t), list(ranks), -1) for t in (q, k)), query_blocks, key_blocks, strict=True)
    logits = torch.zeros((), dtype=wide(q).dtype, device=q.device)
    active = torch.zeros((), dtype=wide(q).dtype, device=q.device)
    for q_level, k_level, query_block, key_block in levels:
        same = query_block[:, :, None] == key_block[:, None, :]
        if global_queries is not None and global_keys is not None:
            same = same | global_queries[:, :, None] | global_keys[:, None, :]
        logits = logits + (q_level @ k_level.transpose(-1, -2)).masked_fill(~same[:, None], 0.0)
        if divide_by_active:
            active = active + same[:, None]
    if divide_by_active:
        logits = logits / active.clamp(min=1)
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
    num_blocks: Sequence[int] | None = None,
) -> Tensor:
    """`multilevel_attention` as plain attention, with components spread over one slot per block.

    With `num_blocks`, ids count from 0; ids outside belong to padded tokens.
    """
    q_wide, k_wide = [], []
    counts = count_blocks(query_blocks, key_blocks) if num_blocks is None else num_blocks
    levels = zip(*(torch.split(t, list(ranks), -1) for t in (q, k)), query_blocks, key_blocks, counts, strict=True)
    for q_level, k_level, query_ids, key_ids, count in levels:
        if count > 1:
            if num_blocks is None:
                query_slots, key_slots = _slots(query_ids, key_ids, count)
            else:
                every = torch.arange(count, device=q.device)
                query_slots, key_slots = ((t[..., None] == every).long() for t in (query_ids, key_ids))
            if global_queries is not None and global_keys is not None:
                query_slots, key_slots = _add_global_slots(query_slots, key_slots, global_queries, global_keys)
            q_level, k_level = _spread(q_level, query_slots), _spread(k_level, key_slots)
        q_wide.append(q_level)
        k_wide.append(k_level)
    pairs: dict[str, Any] = {"allowed": allowed, "bias": bias, "scale": scale, "dropout_p": dropout_p}
    return full_attention_sdpa(torch.cat(q_wide, -1), torch.cat(k_wide, -1), v, **pairs)


def _slots(query_ids: Tensor, key_ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The 0/1 membership of queries and keys in blocks; their ids span `count` numbers."""
    both = torch.cat([query_ids.flatten(), key_ids.flatten()])
    if count > both.numel():  # sparse ids: one slot for each id that occurs
        both = torch.unique(both, return_inverse=True)[1]
    slots = F.one_hot(both - both.min())
    queries, keys = torch.split(slots, [query_ids.numel(), key_ids.numel()])
    return torch.unflatten(queries, 0, query_ids.shape), torch.unflatten(keys, 0, key_ids.shape)


def count_blocks(query_blocks: Tensor, key_blocks: Tensor) -> list[int]:
    """The span of the block ids of each level: the highest minus the lowest, plus one."""
    low = torch.minimum(query_blocks.amin((1, 2)), key_blocks.amin((1, 2)))
    high = torch.maximum(query_blocks.amax((1, 2)), key_blocks.amax((1, 2)))
    return [last - first + 1 for first, last in zip(low.tolist(), high.tolist(), strict=True)]


def _add_global_slots(
    query_slots: Tensor, key_slots: Tensor, global_queries: Tensor, global_keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Add two slots, by which a pair with a global token matches exactly once.

    The slots of a query and a key are `(0, 1)` and `(1, 0)` for ordinary tokens, `(1, 0)` and `(1, 1)` for global
    tokens, whose block slots are cleared.
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
