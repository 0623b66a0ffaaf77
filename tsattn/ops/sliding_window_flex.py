"""Sliding-window attention on CUDA by PyTorch's FlexAttention: tiles of pairs outside every window are never visited.

Which tiles are visited is found here from the range of positions in each, so that nothing of the size T x T is formed;
FlexAttention's own search evaluates the mask of every pair.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from tsattn.ops.softmax import expand_heads

__all__ = ["TILE", "sliding_window_attention_flex", "window_block_mask"]

# Tokens on a side of a tile, the one size that FlexAttention's kernels take for all shapes.
TILE = 128


def sliding_window_attention_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window_size: int,
    positions: Tensor,
    causal: bool,
    key_mask: Tensor | None,
    global_tokens: Tensor | None,
    scale: float,
) -> Tensor:
    """`sliding_window_attention` through FlexAttention, compiled at the first call.

    Args:
        q: `(B, H | 1, T, r)` queries.
        k: `(B, G, T, r)` keys.
        v: `(B, G, T, E)` values.
        window_size: keys on a side, the position itself counted.
        positions: `(B | 1, T)` int.
        causal: a token sees no later position.
        key_mask: `(B, T)` bool, True at real tokens. A query with no allowed key gives zeros.
        global_tokens: `(B | 1, T)` bool: tokens inside every window.
        scale: factor of the logits.

    Returns:
        `(B, H, T, E)`.
    """
    q, k, v = expand_heads(q, k, v)
    mask = window_block_mask(positions, window_size, causal=causal, key_mask=key_mask, global_tokens=global_tokens)
    # off CUDA, and inside a graph that is compiled anyway, the function is taken as it stands
    as_it_stands = torch.compiler.is_compiling() or q.device.type != "cuda"
    attend: Any = flex_attention if as_it_stands else _compiled()
    out: Tensor = attend(q, k, v, block_mask=mask, scale=scale)
    return out


def window_block_mask(
    positions: Tensor,
    window_size: int,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> BlockMask:
    """The pairs that are scored, and the tiles that hold any of them.

    Args:
        positions: `(B | 1, T)` int.
        window_size: keys on a side, the position itself counted.
        causal: a token sees no later position.
        key_mask: `(B, T)` bool, True at real tokens.
        global_tokens: `(B | 1, T)` bool: tokens inside every window.
    """
    T = positions.shape[1]
    rows = max(t.shape[0] for t in (positions, key_mask, global_tokens) if t is not None)
    positions = positions.expand(rows, T)
    key_mask, global_tokens = (None if t is None else t.expand(rows, T) for t in (key_mask, global_tokens))
    low, high = _tile_extremes(positions)
    # of queries, down the rows, and of keys
    (q_low, q_high), (k_low, k_high) = ((t[:, :, None] for t in (low, high)), (t[:, None, :] for t in (low, high)))
    touched = (q_low - k_high < window_size) & (k_low - q_high < window_size)
    whole = (q_high - k_low < window_size) & (k_high - q_low < window_size)
    if global_tokens is not None:
        has_global = -_tile_extremes(-global_tokens.long())[0] > 0
        touched = touched | has_global[:, :, None] | has_global[:, None, :]
    if causal:
        touched, whole = touched & (k_low <= q_high), whole & (k_high <= q_low)
    if key_mask is not None:
        real = _tile_extremes(key_mask.long())
        touched, whole = touched & (real[1] > 0)[:, None, :], whole & (real[0] > 0)[:, None, :]
    if T % TILE:
        whole[:, -1], whole[:, :, -1] = False, False  # tiles that reach beyond the end are masked
    partly = _listed(touched & ~whole)
    fully = _listed(whole)
    seen = _pair_rule(positions, window_size, causal, key_mask, global_tokens)
    return BlockMask.from_kv_blocks(*partly, *fully, BLOCK_SIZE=TILE, mask_mod=seen, seq_lengths=(T, T))


def _pair_rule(
    positions: Tensor, window_size: int, causal: bool, key_mask: Tensor | None, global_tokens: Tensor | None
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Whether query n of row b sees key s, as FlexAttention asks it: element by element, by number."""
    rows = positions.shape[0]

    def seen(b: Tensor, h: Tensor, n: Tensor, s: Tensor) -> Tensor:
        row = b if rows > 1 else torch.zeros_like(b)
        distance = positions[row, n] - positions[row, s]
        near = distance.abs() < window_size
        if global_tokens is not None:
            near = near | global_tokens[row, n] | global_tokens[row, s]
        if causal:
            near = near & (distance >= 0)
        return near if key_mask is None else near & key_mask[row, s]

    return seen


def _tile_extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest of `x (B, T)` in each tile, `(B, tiles)`."""
    filled = -(-x.shape[1] // TILE) * TILE - x.shape[1]
    # the last token stands in for those that fill the last tile
    tiles = torch.cat([x, x[:, -1:].expand(-1, filled)], 1).view(x.shape[0], -1, TILE)
    return tiles.amin(-1), tiles.amax(-1)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The number of tiles chosen in each row of `(B, tiles, tiles)`, and their numbers first, `(B, 1, ...)` int32."""
    order = torch.argsort(~chosen, dim=-1, stable=True)
    return chosen.sum(-1, dtype=torch.int32)[:, None], order.to(torch.int32)[:, None]


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=True)
    return compiled
