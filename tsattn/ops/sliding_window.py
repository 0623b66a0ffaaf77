"""Sliding-window attention: only pairs fewer than `window_size` steps apart are scored.

`reference` and `sdpa` mask the full matrix. `blocks` cuts the queries into blocks and gives each the keys near it: time
and memory grow linearly with the length. `flex` visits only the tiles that windows touch, by PyTorch's FlexAttention on
CUDA. `native` does so on a CPU, for any positions, masks and biases (see `tsattn.ops.native`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from tsattn.errors import UserError, one_of
from tsattn.ops.full import full_attention
from tsattn.ops.masks import allowed_pairs, window_pairs, without_padding
from tsattn.ops.modes import is_readable, kept_by_stream, why_no_fused_derivative
from tsattn.ops.native import Intervals, is_worth_native, native_attention, pair_intervals, why_not_native
from tsattn.ops.softmax import expand_heads, fused_attention, in_widest_type

IMPLS = ("auto", "reference", "sdpa", "blocks", "flex", "native")

# Queries of a block; smaller ones use the fused kernel badly, larger ones score more pairs outside the window.
MIN_BLOCK = 64

# Tokens on a side of a tile, the one size that FlexAttention's kernels take for all shapes.
TILE = 128


@in_widest_type
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
    """Compute softmax attention of a sequence to itself over the pairs with `|i - j| < window_size`.

    Args:
        q: `(B, H | 1, T, r)` queries.
        k: `(B, G, T, r)` keys.
        v: `(B, G, T, E)` values. Types may differ: attention is computed in the widest.
        window_size: keys on a side, including the position itself (the paper's w plus one).
        positions: `(B | 1, T)` int; the order of the tokens by default.
        causal: a token sees no later position.
        key_mask: `(B, T)` bool, True at real tokens. A query with no allowed key gives zeros.
        global_tokens: `(B | 1, T)` bool: tokens inside every window.
        bias: broadcastable to `(B, H, T, T)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, ``blocks``, ``flex``, ``native`` or ``auto``. ``blocks`` needs positions that
            rise by one per token, no bias and no global tokens. ``flex`` needs a CUDA device, 16 components or more, no
            bias and no dropout. ``native`` needs a CPU, and numbers in float32 or bfloat16. `auto` takes `native` where
            possible. Else, if a window is a small part of the sequence, it takes `flex` on CUDA or `blocks`; else
            `sdpa`.

    Returns:
        `(B, H, T, E)`, of v's type.

    Raises:
        UserError: if the named `impl` cannot compute this.
    """
    if impl not in IMPLS:
        raise UserError(f"unknown impl {impl!r}: sliding-window attention has {one_of(IMPLS)}")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = without_padding(key_mask, q, k, v)
    T = q.shape[2]
    if not (v.shape[0] and v.shape[2]):
        impl = "reference"  # no pair to score, which the kernels do not take
    seen: dict[str, Any] = {"causal": causal, "key_mask": key_mask}
    window: dict[str, Any] = {**seen, "window_size": window_size, "global_tokens": global_tokens}
    weights: dict[str, Any] = {"scale": scale, "dropout_p": dropout_p}
    if impl in ("auto", "native"):
        found: Intervals | str | None = why_not_native(q, k, v, bias, hidden=(positions, key_mask, global_tokens))
        if found is None and (impl == "native" or is_worth_native(q)):
            found = pair_intervals(q, k, query_positions=positions, key_positions=positions, **window)
            if not isinstance(found, str):
                return native_attention(q, k, v, intervals=found, ranks=[q.shape[-1]], bias=bias, **weights)
        if impl == "native":
            raise UserError(f"impl native cannot compute this sliding-window attention: {found}")
    why_no: dict[str, Callable[[], str | None]] = {
        "flex": lambda: _why_not_flex(q, v, bias, dropout_p),
        "blocks": lambda: _why_not_blocks(T, positions, key_mask, global_tokens, bias),
    }
    if impl in why_no and (reason := why_no[impl]()) is not None:
        raise UserError(f"impl {impl} cannot compute this sliding-window attention: {reason}")
    if impl == "auto" and _is_small(T, window_size):
        impl = next((name for name, reason_of in why_no.items() if reason_of() is None), "auto")
    if impl == "blocks":
        return _in_blocks(q, k, v, window_size=window_size, **seen, **weights)
    if impl == "flex":
        return sliding_window_attention_flex(q, k, v, positions=positions, scale=scale, **window)
    positions = torch.arange(T, device=q.device)[None] if positions is None else positions
    near = window_pairs(positions, positions, window_size, global_queries=global_tokens, global_keys=global_tokens)
    allowed = allowed_pairs(positions, positions, **seen)
    near = near if allowed is None else near & allowed
    return full_attention(q, k, v, allowed=near, bias=bias, impl=impl, **weights)


def _is_small(length: int, window_size: int) -> bool:
    """Whether a window's neighbourhood is small enough, compared with the sequence, to save work."""
    if torch.compiler.is_exporting() and not isinstance(length, int):
        return False  # a program for every length cannot choose by it
    return 3 * max(MIN_BLOCK, window_size) < length


def _why_not_flex(q: Tensor, v: Tensor, bias: Tensor | None, dropout_p: float) -> str | None:
    if q.device.type != "cuda":
        return "it runs on a CUDA device"
    if bias is not None or dropout_p:
        return "it takes no bias and no dropout"
    if min(q.shape[-1], v.shape[-1]) < 16:
        return "its kernel takes no fewer than 16 components"
    return "it takes numbers of 16 or 32 bits" if q.dtype == torch.float64 else None


def _why_not_blocks(
    length: int, positions: Tensor | None, key_mask: Tensor | None, global_tokens: Tensor | None, bias: Tensor | None
) -> str | None:
    if bias is not None or global_tokens is not None:
        return "it takes no bias and no global tokens"
    if torch.compiler.is_exporting() and not isinstance(length, int):
        return "it cuts a length that must be known; reference and sdpa take any in one program"
    if not is_readable(positions, key_mask if positions is not None else None):
        return "it must look at the tokens, which a graph, torch.vmap or meta tensors hide; reference and sdpa need not"
    reason = why_no_fused_derivative()
    if positions is None or reason is not None:
        return reason
    step = positions.diff(dim=-1)
    if key_mask is not None:  # steps between padded places do not matter
        step = step.expand(len(key_mask), -1)[key_mask[:, 1:] & key_mask[:, :-1]]
        gaps = (key_mask[:, 1:] & ~key_mask[:, :-1]).sum(-1) + key_mask[:, 0]
        if (gaps > 1).any():
            return "padding lies between real tokens"
    return None if bool((step == 1).all()) else "positions do not rise by one from token to token"


def _in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window_size: int,
    causal: bool,
    key_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    q, k, v = expand_heads(q, k, v)
    (B, _, T, r), E = q.shape, v.shape[-1]
    q, k, v = (F.pad(t, (0, max(r, E) - t.shape[-1])) if t.shape[-1] < max(r, E) else t for t in (q, k, v))
    window_size = min(window_size, T)
    block = max(MIN_BLOCK, window_size - 1)
    num_blocks = -(-T // block)
    before, after = window_size - 1, 0 if causal else window_size - 1
    filled = num_blocks * block - T
    span = before + block + after
    # (B, H, T, W) -> (B num_blocks, H, block | span, W): a block of queries and its neighbourhood of keys
    q = rearrange(F.pad(q, (0, 0, 0, filled)), "B H (n c) W -> (B n) H c W", c=block)
    k_near, v_near = (
        rearrange(F.pad(t, (0, 0, before, after + filled)).unfold(2, span, block), "B H n W s -> (B n) H s W")
        for t in (k, v)
    )
    query = torch.arange(num_blocks * block, device=q.device).view(num_blocks, block, 1)
    key = query[:, :1, 0][:, None] + torch.arange(span, device=q.device) - before
    seen = ((query - key).abs() < window_size) & (key >= 0) & (key < T)
    if causal:
        seen = seen & (key <= query)
    seen = repeat(seen, "n c s -> B n c s", B=B)
    if key_mask is not None:
        seen = seen & F.pad(key_mask, (before, after + filled)).unfold(1, span, block)[:, :, None, :]
    seen = rearrange(seen, "B n c s -> (B n) 1 c s")
    empty = ~seen.any(-1, keepdim=True)
    out = fused_attention(q, k_near, v_near, mask=seen | empty, scale=scale, dropout_p=dropout_p)
    out = out.masked_fill(empty, 0.0)
    return rearrange(out, "(B n) H c W -> B H (n c) W", B=B)[:, :, :T, :E]


def sliding_window_attention_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window_size: int,
    positions: Tensor | None,
    causal: bool,
    key_mask: Tensor | None,
    global_tokens: Tensor | None,
    scale: float,
) -> Tensor:
    """Compute `sliding_window_attention` through FlexAttention, compiled at the first call.

    The range of positions in each tile decides which tiles of pairs are visited, so nothing of the size T x T is
    formed. FlexAttention's own search would evaluate the mask of every pair. Without positions, masks and global tokens
    the tiles are cached: finding them takes as long as attending to a few thousand tokens.
    """
    q, k, v = expand_heads(q, k, v)
    T, hidden = q.shape[2], torch.compiler.is_compiling()
    if positions is None and key_mask is None and global_tokens is None and not hidden:
        mask = _ordered_mask(T, window_size, causal, q.device)
    else:
        at = torch.arange(T, device=q.device)[None] if positions is None else positions
        mask = window_block_mask(at, window_size, causal=causal, key_mask=key_mask, global_tokens=global_tokens)
    # off CUDA, and inside a graph that is compiled anyway, the function is not compiled here
    as_it_stands = hidden or q.device.type != "cuda"
    attend: Any = flex_attention if as_it_stands else _compiled()
    out: Tensor = attend(q, k, v, block_mask=mask, scale=scale)
    return out


@kept_by_stream
def _ordered_mask(length: int, window_size: int, causal: bool, device: torch.device) -> BlockMask:
    return window_block_mask(torch.arange(length, device=device)[None], window_size, causal=causal, in_order=True)


def window_block_mask(
    positions: Tensor,
    window_size: int,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
    in_order: bool = False,
) -> BlockMask:
    """The scored pairs, and the tiles that hold any of them; `in_order` says that tokens have positions 0, 1, ..."""
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
    seen = _pair_rule(None if in_order else positions, window_size, causal, key_mask, global_tokens)
    return BlockMask.from_kv_blocks(*partly, *fully, BLOCK_SIZE=TILE, mask_mod=seen, seq_lengths=(T, T))


def _pair_rule(
    positions: Tensor | None, window_size: int, causal: bool, key_mask: Tensor | None, global_tokens: Tensor | None
) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Whether query n of row b sees key s, as FlexAttention asks it: element by element, by number."""
    if positions is None:  # nothing to load
        if causal:
            return lambda b, h, n, s: (n - s < window_size) & (s <= n)
        return lambda b, h, n, s: (n - s).abs() < window_size
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
    # copies of the last token fill the last tile
    tiles = torch.cat([x, x[:, -1:].expand(-1, filled)], 1).view(x.shape[0], -1, TILE)
    return tiles.amin(-1), tiles.amax(-1)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many tiles are chosen in each row of `(B, tiles, tiles)`; tile numbers, chosen first, `(B, 1, ...)` int32."""
    order = torch.argsort(~chosen, dim=-1, stable=True)
    return chosen.sum(-1, dtype=torch.int32)[:, None], order.to(torch.int32)[:, None]


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=True)
    return compiled
