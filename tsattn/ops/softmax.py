"""What every plain form of attention is made of: logits in, mixed values out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["expand_heads", "finite_as", "in_widest_type", "softmax_attention", "wide"]

Operator = TypeVar("Operator", bound=Callable[..., Tensor])

_LOW_PRECISION = (torch.float16, torch.bfloat16)


def softmax_attention(
    logits: Tensor,
    v: Tensor,
    *,
    allowed: Tensor | None,
    bias: Tensor | None,
    dropout_p: float,
    factors: Tensor | None = None,
) -> Tensor:
    """`softmax(logits + bias) v` over the allowed pairs; logits `(B, H, N, S)`, v `(B, H, S, E)`.

    `factors`, of the shape of the logits, multiply the weights, as dropout does.
    """
    if bias is not None:
        logits = logits + finite_as(bias, logits.dtype)
        finite = ~torch.isneginf(bias)
        allowed = finite if allowed is None else allowed & finite
    if allowed is not None:
        # a finite fill keeps rows without any allowed key, and their gradients, free of NaN; in others it would count
        # beside allowed pairs whose bias is as low
        fill = torch.zeros((), dtype=logits.dtype, device=logits.device)
        fill = fill.masked_fill(allowed.any(-1, keepdim=True), -torch.inf)
        logits = torch.where(allowed, logits, fill)
    weights = logits.softmax(-1)
    if allowed is not None:
        weights = weights.masked_fill(~allowed, 0.0)
    weights = F.dropout(weights, dropout_p) if factors is None else weights * factors
    return (weights @ wide(v)).to(v.dtype)


def finite_as(bias: Tensor, dtype: torch.dtype) -> Tensor:
    """A bias in another type, in which a large finite one must not become infinite by rounding; -inf becomes finite."""
    exact = bias.to(torch.promote_types(bias.dtype, dtype))
    largest = torch.finfo(dtype).max
    return exact.clamp(-largest, largest).to(dtype)


def in_widest_type(attend: Operator) -> Operator:
    """Let an operator take queries, keys and values of different types: computed in the widest, given in that of v."""

    @functools.wraps(attend)
    def attend_in_widest(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        if q.dtype == k.dtype == v.dtype:
            return attend(q, k, v, **options)
        widest = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
        return attend(q.to(widest), k.to(widest), v.to(widest), **options).to(v.dtype)

    return cast("Operator", attend_in_widest)


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
