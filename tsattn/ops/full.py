"""Softmax attention over the allowed pairs: the plain reference, and the fused kernel of PyTorch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.fused import fused_attention
from tsattn.ops.modes import why_no_fused_derivative

__all__ = ["expand_heads", "full_attention", "full_attention_reference", "full_attention_sdpa", "softmax_attention"]

IMPLS = ("auto", "reference", "sdpa")

_LOW_PRECISION = (torch.float16, torch.bfloat16)


def full_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    allowed: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    impl: str = "auto",
) -> Tensor:
    """`softmax(scale q k^T + bias) v` over the allowed pairs (Kuang et al., equation 1).

    Args:
        q: `(B, H | 1, N, r)` queries.
        k: `(B, G, S, r)` keys.
        v: `(B, G, S, E)` values.
        allowed: bool, broadcastable to `(B, H, N, S)`; None allows every pair. A query with no allowed key gives zeros.
        bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, or ``auto``: ``sdpa``, except where a derivative may be needed that its kernel
            does not have, in forward mode and in nested gradients of `torch.func`.

    Returns:
        `(B, H, N, E)`.

    Raises:
        UserError: if the named `impl` cannot compute this.
    """
    if impl not in IMPLS:
        raise UserError(f"unknown impl {impl!r}: full attention has {one_of(IMPLS)}")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    reason = why_no_fused_derivative()
    if impl == "sdpa" and reason is not None:
        raise UserError(f"impl sdpa cannot compute this attention: {reason}")
    fused = impl == "sdpa" or (impl == "auto" and reason is None)
    compute = full_attention_sdpa if fused else full_attention_reference
    return compute(q, k, v, allowed=allowed, bias=bias, scale=scale, dropout_p=dropout_p)


def full_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, *, allowed: Tensor | None, bias: Tensor | None, scale: float, dropout_p: float
) -> Tensor:
    """`full_attention` with every logit written out."""
    q, k, v = expand_heads(q, k, v)
    logits = wide(q) @ wide(k).transpose(-1, -2) * scale
    return softmax_attention(logits, v, allowed=allowed, bias=bias, dropout_p=dropout_p)


def softmax_attention(
    logits: Tensor, v: Tensor, *, allowed: Tensor | None, bias: Tensor | None, dropout_p: float
) -> Tensor:
    """`softmax(logits + bias) v` over the allowed pairs; logits `(B, H, N, S)`, v `(B, H, S, E)`."""
    if bias is not None:
        logits = logits + _finite_as(bias, logits.dtype)
        finite = ~torch.isneginf(bias)
        allowed = finite if allowed is None else allowed & finite
    if allowed is not None:
        # a finite fill keeps rows without any allowed key, and their gradients, free of NaN
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
    weights = logits.softmax(-1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    return (F.dropout(weights, dropout_p) @ wide(v)).to(v.dtype)


def _finite_as(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """A bias in another type, in which a large finite one must not become infinite by rounding; -inf becomes finite."""
    exact = bias.to(torch.promote_types(bias.dtype, dtype))
    largest = torch.finfo(dtype).max
    return exact.clamp(-largest, largest).to(dtype)


def full_attention_sdpa(
    q: Tensor, k: Tensor, v: Tensor, *, allowed: Tensor | None, bias: Tensor | None, scale: float, dropout_p: float
) -> Tensor:
    """`full_attention` through `scaled_dot_product_attention`."""
    q, k, v = expand_heads(q, k, v)
    value_width, width = v.shape[-1], max(q.shape[-1], v.shape[-1])
    q, k, v = (F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in (q, k, v))
    empty = None
    mask = allowed
    if bias is not None:
        forbidden = torch.isneginf(bias)
        bias = _finite_as(bias, q.dtype).masked_fill(forbidden, -torch.inf)
        if allowed is not None:
            bias = bias.masked_fill(~allowed, -torch.inf)
        empty = torch.isneginf(bias).all(-1, keepdim=True)
        # SDPA's answer for a row without keys is its own: such a row sees everything and is then zeroed here
        mask = bias.masked_fill(empty, 0.0)
    elif allowed is not None:
        empty = ~allowed.any(-1, keepdim=True)
        mask = allowed | empty
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], q.shape[-2], k.shape[-2])
    out = fused_attention(q, k, v, mask=mask, scale=scale, dropout_p=dropout_p)
    if width > value_width:
        out = out[..., :value_width]
    return out if empty is None else out.masked_fill(empty, 0.0)


def expand_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with one head for each query head; a single head is a view of itself."""
    heads = max(t.shape[1] for t in (q, k, v))
    expanded = []
    for t in (q, k, v):
        if t.shape[1] == 1 and heads > 1:
            t = t.expand(-1, heads, -1, -1)
        elif t.shape[1] < heads:
            t = t.repeat_interleave(heads // t.shape[1], dim=1)
        expanded.append(t)
    return expanded[0], expanded[1], expanded[2]


def wide(t: Tensor) -> Tensor:
    """The tensor in float32 if its own type is too narrow to sum in."""
    return t.float() if t.dtype in _LOW_PRECISION else t
