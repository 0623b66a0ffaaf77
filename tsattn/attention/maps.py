"""Maps of an attention on given tokens: probabilities, scores of each level, favoured pairs.

All form matrices of every pair of tokens; training and forecasting never do.
"""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor

from tsattn.attention.base import Attention
from tsattn.attention.patterns import (
    FullPattern,
    GlobalSlidingWindowPattern,
    IdentityPattern,
    MultiLevelPattern,
    Pattern,
    SlidingWindowPattern,
    Tokens,
)
from tsattn.attention.projections import MLBTCProjection
from tsattn.errors import UserError
from tsattn.ops.masks import allowed_pairs, window_pairs
from tsattn.ops.softmax import expand_heads, wide

__all__ = ["attention_levels", "attention_map", "attention_zones", "pattern_zones"]


@torch.no_grad()
def attention_map(
    attention: Attention,
    x: Tensor,
    context: Tensor | None = None,
    attention_mask: Tensor | None = None,
    bias: Tensor | None = None,
    positions: Tensor | None = None,
    blocks: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> Tensor:
    """The probabilities with which queries mix the values of keys, by the plain reference.

    They are read off its output for values that mark the key they belong to, so that they are what any kind computes,
    with its scaling, normalisation, rotary positions, masks and blocks; dropout is left out. Global + sliding window is
    shown as its two parts together: their mean, or with ``combine: sum`` their sum.

    Args:
        attention: a built attention.
        x: `(B, N, D)`.
        context: `(B, S, D)`, see `Attention.forward`, as for all that follow.
        attention_mask: `(B, S)` bool.
        bias: broadcastable to `(B, H, N, S)`.
        positions: `(N,)` or `(B, N)` int.
        blocks: `(levels, B, S)` int.
        global_tokens: `(S,)` or `(B, S)` bool.

    Returns:
        `(B, H, N, S)`, at least in float32. A row sums to 1 (to 2 under ``combine: sum``), or to 0 where a query may
        see no key.

    Raises:
        UserError: for arguments that the attention does not take.
    """
    tokens, q, k, v = attention.prepare(x, context, attention_mask, bias, positions, blocks, global_tokens)
    which_key = torch.eye(k.shape[2], dtype=wide(q).dtype, device=q.device).expand(*v.shape[:2], -1, -1)
    return attention.pattern(
        q,
        k,
        which_key,
        tokens=tokens,
        causal=attention.causal,
        bias=bias,
        scale=attention.scale,
        dropout_p=0.0,
        impl="reference",
    )


@torch.no_grad()
def attention_levels(
    attention: Attention,
    x: Tensor,
    context: Tensor | None = None,
    attention_mask: Tensor | None = None,
    bias: Tensor | None = None,
    positions: Tensor | None = None,
    blocks: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> dict[str, Tensor]:
    """What each level adds to the score of each pair: levels of blocks of tokens (``mlr``), or of features.

    The scores, before a bias and the softmax, are the sum over the levels.

    Args:
        attention: a built attention.
        x: `(B, N, D)`; the other arguments as for `attention_map`.
        context: `(B, S, D)`.
        attention_mask: `(B, S)` bool.
        bias: as for `attention_map`; it belongs to no level.
        positions: `(N,)` or `(B, N)` int.
        blocks: `(levels, B, S)` int.
        global_tokens: `(S,)` or `(B, S)` bool.

    Returns:
        `(B, H, N, S)` by name, ``level 1`` (the coarsest), ``level 2``, ..., at least in float32; 0 at pairs that share
        no block of the level, or of which a query may not see the key. Nothing for an attention without levels.

    Raises:
        UserError: for arguments that the attention does not take.
    """
    pattern, projection = attention.pattern, attention.projection
    tokens, q, k, _ = attention.prepare(x, context, attention_mask, bias, positions, blocks, global_tokens)
    if isinstance(pattern, MultiLevelPattern):
        scores = pattern.level_scores(q, k, tokens=tokens, scale=attention.scale)
    elif isinstance(projection, MLBTCProjection):
        q, k, _ = expand_heads(wide(q), wide(k), wide(k))
        widths = projection.level_widths
        levels = zip(torch.split(q, widths, -1), torch.split(k, widths, -1), strict=True)
        scores = torch.stack([one @ other.mT for one, other in levels]) * attention.scale
    else:
        return {}
    seen = allowed_pairs(tokens.query_positions, tokens.key_positions, causal=attention.causal, key_mask=tokens.mask)
    if seen is not None:
        scores = scores.masked_fill(~seen, 0.0)
    return {f"level {number}": level for number, level in enumerate(scores, 1)}


def attention_zones(
    attention: Attention,
    x: Tensor,
    attention_mask: Tensor | None = None,
    positions: Tensor | None = None,
    blocks: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> dict[str, Tensor]:
    """The pairs that the pattern of an attention favours, by name: those of a window, or of a block at each level.

    Args:
        attention: a built attention.
        x: `(B, N, D)`; the other arguments as for `attention_map`.
        attention_mask: `(B, N)` bool.
        positions: `(N,)` or `(B, N)` int.
        blocks: `(levels, B, N)` int.
        global_tokens: `(N,)` or `(B, N)` bool.

    Returns:
        `(B | 1, N, N)` bool by name, coarse to fine; nothing for a pattern that treats all pairs alike.

    Raises:
        UserError: for arguments that the attention does not take, or a pattern that has registered no zones.
    """
    tokens, *_ = attention.prepare(x, None, attention_mask, None, positions, blocks, global_tokens)
    return pattern_zones(attention.pattern, tokens, attention.causal)


@singledispatch
def pattern_zones(pattern: Pattern, tokens: Tokens, causal: bool) -> dict[str, Tensor]:
    """The pairs that a pattern favours, by name, see `attention_zones`; a class of your own registers its own."""
    raise UserError(f"the zones of {type(pattern).__name__} are not known; register them with pattern_zones")


@pattern_zones.register
def _(pattern: FullPattern, tokens: Tokens, causal: bool) -> dict[str, Tensor]:
    return {}


@pattern_zones.register
def _(pattern: IdentityPattern, tokens: Tokens, causal: bool) -> dict[str, Tensor]:
    return {"each token itself": pattern.pairs(tokens, causal)[:, 0]}


@pattern_zones.register
def _(pattern: SlidingWindowPattern, tokens: Tokens, causal: bool) -> dict[str, Tensor]:
    queries, keys = tokens.query_positions, tokens.key_positions
    special = tokens.global_tokens
    near = window_pairs(queries, keys, pattern.window_size, global_queries=special, global_keys=special)
    earlier = allowed_pairs(queries, keys, causal=causal)
    return {f"window of {pattern.window_size}": (near if earlier is None else near & earlier)[:, 0]}


@pattern_zones.register
def _(pattern: GlobalSlidingWindowPattern, tokens: Tokens, causal: bool) -> dict[str, Tensor]:
    return pattern_zones(pattern.window_part, tokens, causal) if pattern.window_rank else {}


@pattern_zones.register
def _(pattern: MultiLevelPattern, tokens: Tokens, causal: bool) -> dict[str, Tensor]:
    """Whole blocks, also of a causal pattern, which scores the lower half of each."""
    zones = {}
    for level, ids in enumerate(pattern._find_blocks(tokens)):
        same = ids[:, :, None] == ids[:, None, :]
        if tokens.global_tokens is not None:
            same = same | tokens.global_tokens[:, :, None] | tokens.global_tokens[:, None, :]
        unit = "" if pattern.calendar is None else f" ({pattern.calendar[level]})"
        rank = pattern.ranks[level]
        zones[f"level {level + 1}{unit}: {rank} component{'s' if rank > 1 else ''}"] = same
    return zones
