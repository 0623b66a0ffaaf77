"""Attention without scores of the tokens: the values of each query's keys with equal weights, or its own value.

The plain reference is `full_attention_reference` with queries and keys of no component, whose logits are zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.errors import UserError
from tsattn.ops.masks import without_padding
from tsattn.ops.softmax import wide

__all__ = ["UNSCORED_IMPLS", "is_direct", "mean_over_keys", "mean_over_pairs", "own_values", "with_heads"]

UNSCORED_IMPLS = ("auto", "reference", "direct")


def is_direct(impl: str, *, bias: bool, dropout: bool) -> bool:
    """Whether the values are mixed directly, not by the plain reference.

    Args:
        impl: one of `UNSCORED_IMPLS`.
        bias: whether there is a bias that the direct form does not take.
        dropout: whether weights are dropped.

    Raises:
        UserError: if ``direct`` is named and cannot compute this.
    """
    reason = "bias" if bias else "dropout of weights" if dropout else None
    if impl == "direct" and reason is not None:
        raise UserError(f"impl direct cannot compute this attention: it takes no {reason}, which reference does")
    return impl != "reference" and reason is None


def own_values(v: Tensor, heads: int, key_mask: Tensor | None = None) -> Tensor:
    """The value of each token itself, zeros at tokens that are not real: v `(B, G, N, E)` to `(B, H, N, E)`."""
    return with_heads(without_padding(key_mask, v)[0], heads)


def mean_over_keys(
    v: Tensor, heads: int, num_queries: int, *, causal: bool = False, key_mask: Tensor | None = None
) -> Tensor:
    """The mean of the values of all real keys; causal: of those up to the query, where keys are in their order.

    Args:
        v: `(B, G, S, E)` values.
        heads: H.
        num_queries: N; as many as keys where `causal` is true.
        causal: a query sees no later key.
        key_mask: `(B, S)` bool, True at real keys; not with `causal`. A query without any gets zeros.

    Returns:
        `(B, H, N, E)`.
    """
    exact = wide(v)
    if causal:
        count = torch.arange(1, v.shape[2] + 1, device=v.device, dtype=exact.dtype)[:, None]
        return with_heads((exact.cumsum(2) / count).to(v.dtype), heads)
    if key_mask is None:
        mean = exact.mean(2, keepdim=True)
    else:
        count = key_mask.sum(-1).clamp(min=1)[:, None, None, None]
        mean = without_padding(key_mask, exact)[0].sum(2, keepdim=True) / count
    return with_heads(mean.to(v.dtype), heads).expand(-1, -1, num_queries, -1)


def mean_over_pairs(v: Tensor, heads: int, allowed: Tensor) -> Tensor:
    """The mean of the values of the allowed keys of each query, zeros for one without any.

    Args:
        v: `(B, G, S, E)` values.
        heads: H.
        allowed: `(B | 1, 1, N, S)` bool.

    Returns:
        `(B, H, N, E)`.
    """
    weights = allowed.to(wide(v).dtype) / allowed.sum(-1, keepdim=True).clamp(min=1)
    return with_heads((weights @ wide(v)).to(v.dtype), heads)


def with_heads(mixed: Tensor, heads: int) -> Tensor:
    """What the value heads gave `(B, G, N, E)`, for each of the H query heads that share them."""
    groups = heads // mixed.shape[1]
    return mixed if groups == 1 else mixed.repeat_interleave(groups, dim=1)
