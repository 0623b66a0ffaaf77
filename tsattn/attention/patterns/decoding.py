"""Attention of a few new tokens to what a cache keeps, as each pattern decodes."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor

from tsattn.attention.caches import NewTokens
from tsattn.ops.masks import allowed_pairs
from tsattn.ops.softmax import finite_as, softmax_attention, wide

__all__ = ["bias_at", "mix", "pair_scores", "seen_by"]


def seen_by(new: NewTokens, keys: Tensor) -> Tensor | None:
    """`(1 | B, 1, n, S)`: which new tokens may see which positions `(1, S)`; None where a single one sees all."""
    return None if new.even and new.count == 1 else allowed_pairs(new.positions, keys, causal=True)


def pair_scores(q: Tensor, k: Tensor) -> Tensor:
    """`q k^T (B, H, n, S)` of q `(B, H | 1, n, r)` and k `(B, G', S, r)`, which no head that shares it copies."""
    heads = max(q.shape[1], k.shape[1])
    grouped = rearrange(q, "B (G h) n r -> B G (h n) r", G=min(q.shape[1], k.shape[1]))
    return (wide(grouped) @ wide(k).transpose(-1, -2)).reshape(q.shape[0], heads, q.shape[2], k.shape[2])


def bias_at(bias: Tensor | None, keys: Tensor) -> Tensor | None:
    """The columns of a bias, one number or `(.. n, length | 1)`, by position for keys at positions `(1 | B, S)`."""
    if bias is None or not bias.dim() or bias.shape[-1] == 1:
        return bias
    keys = keys.clamp(0, bias.shape[-1] - 1)  # empty places have later positions, which no token sees
    if len(keys) == 1:
        return bias[..., keys[0]]
    bias = bias.expand(len(keys), *([1] * (3 - bias.dim())), *bias.shape[-3 if bias.dim() > 2 else -2 :])
    return bias.gather(-1, keys[:, None, None, :].expand(*bias.shape[:-1], -1))


def mix(logits: Tensor, v: Tensor, *, allowed: Tensor | None, dropout_p: float, bias: Tensor | None = None) -> Tensor:
    """Softmax of the logits `(B, H, n, S)` over the allowed pairs `(1 | B, 1, n, S)`, times v `(B, G, S, E)`.

    A bias, broadcastable to the logits, is added; -inf forbids a pair.
    """
    heads, groups = logits.shape[1], v.shape[1]
    if bias is not None:
        logits = logits + finite_as(bias, logits.dtype)
        finite = ~torch.isneginf(bias)
        allowed = (finite if allowed is None else finite & allowed).expand_as(logits)
    grouped = rearrange(logits, "B (G h) n S -> B G (h n) S", G=groups)
    if allowed is not None:
        if allowed.shape[1] == heads > 1:
            allowed = rearrange(allowed, "B (G h) n S -> B G (h n) S", G=groups)
        else:
            allowed = allowed.repeat(1, 1, heads // groups, 1)
    mixed = softmax_attention(grouped, v, allowed=allowed, bias=None, dropout_p=dropout_p)
    return rearrange(mixed, "B G (h n) E -> B (G h) n E", h=heads // groups)
