"""Sliding-window attention: only pairs fewer than `window_size` steps apart are scored.

`reference` and `sdpa` mask the full matrix; `blocks` cuts the queries into blocks and gives each the keys of its own
neighbourhood, so that time and memory grow linearly with the length. Global tokens, which see and are seen by
everything, are computed separately: every block gets their keys as well, and their own rows are computed over the whole
sequence. `flex` visits on CUDA only the tiles that windows touch (see `tsattn.ops.sliding_window_flex`); `native` does
so on a CPU, for any positions, masks and biases (see `tsattn.ops.native`).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.full import full_attention
from tsattn.ops.masks import allowed_pairs, window_pairs, without_padding
from tsattn.ops.modes import is_readable, why_no_fused_derivative
from tsattn.ops.native import is_worth_native, native_attention, pair_intervals, why_not_native
from tsattn.ops.sliding_window_flex import sliding_window_attention_flex
from tsattn.ops.softmax import expand_heads, fused_attention, in_widest_type

__all__ = ["sliding_window_attention"]

IMPLS = ("auto", "reference", "sdpa", "blocks", "flex", "native")

# Queries of a block; smaller ones use the fused kernel badly, larger ones score more pairs outside the window.
MIN_BLOCK = 64

# With more global tokens than this share of all, the masked full matrix is no more work.
MAX_GLOBAL_SHARE = 0.25


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
    """Softmax attention of a sequence to itself over the pairs with `|i - j| < window_size`.

    Args:
        q: `(B, H | 1, T, r)` queries.
        k: `(B, G, T, r)` keys.
        v: `(B, G, T, E)` values. Of different types, the three are computed in the widest.
        window_size: keys on a side, the position itself counted (the paper's w plus one).
        positions: `(B | 1, T)` int; the order of the tokens by default.
        causal: a token sees no later position.
        key_mask: `(B, T)` bool, True at real tokens. A query with no allowed key gives zeros.
        global_tokens: `(B | 1, T)` bool: tokens inside every window.
        bias: broadcastable to `(B, H, T, T)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, ``blocks``, ``flex``, ``native`` or ``auto``. ``blocks`` needs positions that
            rise by one from token to token, and no bias; ``flex`` a CUDA device, 16 components or more, no bias and no
            dropout; ``native`` a CPU, and numbers in float32 or bfloat16. `auto` takes `native` where it can; else,
            where a window is a small part of the sequence, `flex` on CUDA and `blocks` elsewhere, if they can; else
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
    if impl in ("auto", "native"):
        why_not = why_not_native(q, k, v, bias, hidden=(positions, key_mask, global_tokens))
        if why_not is None and (impl == "native" or is_worth_native(q, k)):
            intervals = pair_intervals(
                q,
                k,
                causal=causal,
                query_positions=positions,
                key_positions=positions,
                key_mask=key_mask,
                global_tokens=global_tokens,
                window_size=window_size,
            )
            assert not isinstance(intervals, str), intervals
            return native_attention(
                q, k, v, intervals=intervals, ranks=[q.shape[-1]], scale=scale, bias=bias, dropout_p=dropout_p
            )
        if impl == "native":
            raise UserError(f"impl native cannot compute this sliding-window attention: {why_not}")
    candidates: tuple[str, ...] = (impl,)
    if impl == "auto":
        candidates = ("flex", "blocks") if _is_small(T, window_size, global_tokens) else ()
    for name in candidates:
        if name == "flex":
            reason = _why_not_flex(q, v, bias, dropout_p)
        else:
            reason = _why_not_blocks(T, positions, key_mask, global_tokens, bias) if name == "blocks" else None
        if reason is None:
            impl = name
            break
        if impl == name:
            raise UserError(f"impl {name} cannot compute this sliding-window attention: {reason}")
    if impl == "blocks":
        return _in_blocks(q, k, v, window_size, causal, key_mask, global_tokens, scale, dropout_p)
    if positions is None:
        positions = torch.arange(T, device=q.device)[None]
    if impl == "flex":
        return sliding_window_attention_flex(
            q,
            k,
            v,
            window_size=window_size,
            positions=positions,
            causal=causal,
            key_mask=key_mask,
            global_tokens=global_tokens,
            scale=scale,
        )
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


def _is_small(length: int, window_size: int, global_tokens: Tensor | None) -> bool:
    """Whether a window's neighbourhood is so small a part of the sequence that something is saved."""
    if torch.compiler.is_exporting() and not isinstance(length, int):
        return False  # a program for every length cannot choose by it
    if 3 * max(MIN_BLOCK, window_size) >= length or not is_readable(global_tokens):
        return False
    return global_tokens is None or int(global_tokens.sum(-1).amax()) <= MAX_GLOBAL_SHARE * length


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
    if bias is not None:
        return "it takes no bias"
    if torch.compiler.is_exporting() and not isinstance(length, int):
        return "it cuts a length that must be known; reference and sdpa take any in one program"
    if not is_readable(positions, key_mask if positions is not None else None, global_tokens):
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
    window_size: int,
    causal: bool,
    key_mask: Tensor | None,
    global_tokens: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    q, k, v = expand_heads(q, k, v)
    B, _, T, _ = q.shape
    E = v.shape[-1]
    whole = q, k, v
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
    k_near, v_near = (
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
    apart = None if global_tokens is None else _gather_globals(global_tokens.expand(B, -1))
    if apart is not None:
        is_global, places, is_one = apart
        # a global key is seen once: among the global ones
        near_globals = F.pad(is_global, (before, after + filled)).unfold(1, span, block)
        seen = seen & ~near_globals[:, :, None, :]
        globals_seen = is_one[:, None, None, :].expand(B, num_blocks, block, -1)
        if causal:
            globals_seen = globals_seen & (places[:, None, None, :] <= query)
        if key_mask is not None:
            globals_seen = globals_seen & key_mask.gather(1, places)[:, None, None, :]
        seen = torch.cat([seen, globals_seen], -1)
        k_near, v_near = (
            torch.cat([near, repeat(_at(t, places), "B H g W -> (B n) H g W", n=num_blocks)], 2)
            for near, t in ((k_near, k), (v_near, v))
        )
    seen = rearrange(seen, "B n c s -> (B n) 1 c s")
    empty = ~seen.any(-1, keepdim=True)
    out = fused_attention(q, k_near, v_near, mask=seen | empty, scale=scale, dropout_p=dropout_p)
    out = out.masked_fill(empty, 0.0)
    out = rearrange(out, "(B n) H c W -> B H (n c) W", B=B)[:, :, :T, :E]
    if apart is None:
        return out
    order = torch.arange(T, device=out.device)[None]
    rows = full_attention(
        _at(whole[0], places),
        *whole[1:],
        allowed=allowed_pairs(places, order, causal=causal, key_mask=key_mask),
        scale=scale,
        dropout_p=dropout_p,
        impl="sdpa",
    )
    # of each global token the number among those of its row
    number = (is_global.long().cumsum(-1) - 1).clamp(min=0)
    return torch.where(is_global[:, None, :, None], _at(rows, number), out)


def _gather_globals(global_tokens: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """The global tokens `(B, T)`, their places `(B, g)` in each row, and whether there is one: rows may have fewer."""
    most = int(global_tokens.sum(-1).amax())
    if not most:
        return None
    places = torch.argsort(~global_tokens, dim=-1, stable=True)[:, :most]
    return global_tokens, places, global_tokens.gather(1, places)


def _at(x: Tensor, places: Tensor) -> Tensor:
    """The tokens `(B, H, g, W)` of `x (B, H, T, W)` at `places (B, g)`."""
    return x.gather(2, places[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
