"""Sliding-window attention: only pairs fewer than `window_size` steps apart are scored.

`reference` and `sdpa` mask the full matrix; `blocks` cuts the queries into blocks and gives each the keys of its own
neighbourhood, so that time and memory grow linearly with the length.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.full import expand_heads, full_attention
from tsattn.ops.masks import allowed_pairs, window_pairs

__all__ = ["sliding_window_attention"]

IMPLS = ("auto", "reference", "sdpa", "blocks")

# Queries of a block; smaller ones use the fused kernel badly, larger ones score more pairs outside the window.
MIN_BLOCK = 64


def sliding_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window_size: int,
    positions: Tensor | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    impl: str = "auto",
) -> Tensor:
    """Softmax attention of a sequence to itself over the pairs with `|i - j| < window_size`.

    Args:
        q: `(B, H | 1, T, r)` queries.
        k: `(B, G, T, r)` keys.
        v: `(B, G, T, E)` values.
        window_size: keys on a side, the position itself counted (the paper's w plus one).
        positions: `(B | 1, T)` int; the order of the tokens by default.
        causal: a token sees no later position.
        key_mask: `(B, T)` bool, True at real tokens. A query with no allowed key gives zeros.
        global_tokens: `(B | 1, T)` bool: tokens inside every window.
        bias: broadcastable to `(B, H, T, T)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, ``blocks`` or ``auto``. ``blocks`` needs positions that rise by one from token to
            token, no bias and no global tokens.

    Returns:
        `(B, H, T, E)`.

    Raises:
        UserError: if the named `impl` cannot compute this.
    """
    if impl not in IMPLS:
        raise UserError(f"unknown impl {impl!r}: sliding-window attention has {one_of(IMPLS)}")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    T = q.shape[2]
    if impl in ("auto", "blocks"):
        reason = _why_not_blocks(positions, key_mask, global_tokens, bias)
        if impl == "blocks" and reason is not None:
            raise UserError(f"impl blocks cannot compute this sliding-window attention: {reason}")
        # where a block's neighbourhood is most of the sequence, nothing is saved
        if impl == "blocks" or (reason is None and 3 * max(MIN_BLOCK, window_size) < T):
            return _in_blocks(q, k, v, window_size, causal, key_mask, scale, dropout_p)
    if positions is None:
        positions = torch.arange(T, device=q.device)[None]
    near = window_pairs(positions, positions, window_size, global_queries=global_tokens, global_keys=global_tokens)
    allowed = allowed_pairs(positions, positions, causal=causal, key_mask=key_mask)
    return full_attention(
        q,
        k,
        v,
        allowed=near if allowed is None else near & allowed,
        bias=bias,
        scale=scale,
        dropout_p=dropout_p,
        impl=impl,
    )


def _why_not_blocks(
    positions: Tensor | None, key_mask: Tensor | None, global_tokens: Tensor | None, bias: Tensor | None
) -> str | None:
    if bias is not None:
        return "it takes no bias"
    if global_tokens is not None:
        return "it takes no global tokens"
    if positions is None:
        return None
    step = positions.diff(dim=-1)
    if key_mask is not None:  # what stands between padded places is of no matter
        step = step.expand(len(key_mask), -1)[key_mask[:, 1:] & key_mask[:, :-1]]
        gaps = (key_mask[:, 1:] & ~key_mask[:, :-1]).sum(-1) + key_mask[:, 0]
        if (gaps > 1).any():
            return "padding lies between real tokens"
    return None if bool((step == 1).all()) else "positions do not rise by one from token to token"


def _in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window_size: int,
    causal: bool,
    key_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    q, k, v = expand_heads(q, k, v)
    B, _, T, _ = q.shape
    E = v.shape[-1]
    width = max(q.shape[-1], E)
    q, k, v = (F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in (q, k, v))
    window_size = min(window_size, T)
    block = max(MIN_BLOCK, window_size - 1)
    num_blocks = -(-T // block)
    before, after = window_size - 1, 0 if causal else window_size - 1
    filled = num_blocks * block - T
    span = before + block + after
    # (B, H, T, W) -> (B num_blocks, H, block | span, W): a block of queries and its neighbourhood of keys
    q = rearrange(F.pad(q, (0, 0, 0, filled)), "B H (n c) W -> (B n) H c W", c=block)
    k, v = (
        rearrange(F.pad(t, (0, 0, before, after + filled)).unfold(2, span, block), "B H n W s -> (B n) H s W")
        for t in (k, v)
    )
    query = torch.arange(num_blocks * block, device=q.device).view(num_blocks, block, 1)
    key = (
        torch.arange(span, device=q.device) + torch.arange(num_blocks, device=q.device)[:, None, None] * block - before
    )
    seen = ((query - key).abs() < window_size) & (key >= 0) & (key < T)
    if causal:
        seen = seen & (key <= query)
    seen = repeat(seen, "n c s -> B n c s", B=B)
    if key_mask is not None:
        real = F.pad(key_mask, (before, after + filled)).unfold(1, span, block)
        seen = seen & real[:, :, None, :]
    seen = rearrange(seen, "B n c s -> (B n) 1 c s")
    empty = ~seen.any(-1, keepdim=True)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen | empty, dropout_p=dropout_p, scale=scale)
    out = out.masked_fill(empty, 0.0)
    return rearrange(out, "(B n) H c W -> B H (n c) W", B=B)[:, :, :T, :E]
