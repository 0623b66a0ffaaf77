"""Attention over the allowed pairs: the plain reference, the fused kernel of PyTorch, and forms without scores.

Without scores the values of each query's keys have equal weights, or a query gets its own value; the reference is
`full_attention_reference` with queries and keys of no component, whose logits are zero.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.masks import allowed_pairs, without_padding
from tsattn.ops.modes import is_readable, why_no_fused_derivative
from tsattn.ops.native import UNREADABLE, is_worth_native, native_attention, pair_intervals, why_not_native
from tsattn.ops.softmax import expand_heads, finite_as, fused_attention, in_widest_type, softmax_attention, wide

__all__ = [
    "UNSCORED_IMPLS",
    "full_attention",
    "full_attention_reference",
    "full_attention_sdpa",
    "is_direct",
    "mean_over_keys",
    "mean_over_pairs",
    "own_values",
    "with_heads",
]

IMPLS = ("auto", "reference", "sdpa", "native")


@in_widest_type
def full_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    key_mask: Tensor | None = None,
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
        v: `(B, G, S, E)` values. Of different types, the three are computed in the widest.
        causal: a query sees no key at a later position.
        query_positions: `(B | 1, N)` int; by default the queries' order.
        key_positions: `(B | 1, S)` int; by default the keys' order.
        key_mask: `(B, S)` bool, True at real keys. A query with no allowed key gives zeros.
        allowed: bool, broadcastable to `(B, H, N, S)`: further pairs that are forbidden where it is False.
        bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, ``native`` or ``auto``. ``native``, the kernel of this package, computes on a
            CPU, in float32 or bfloat16, and takes no `allowed`. ``auto`` takes it where it can, else ``sdpa``, except
            where a derivative may be needed that its kernel does not have, in forward mode and in nested gradients of
            `torch.func`.

    Returns:
        `(B, H, N, E)`, of v's type.

    Raises:
        UserError: if the named `impl` cannot compute this.
    """
    if impl not in IMPLS:
        raise UserError(f"unknown impl {impl!r}: full attention has {one_of(IMPLS)}")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    options: dict[str, Any] = {"bias": bias, "scale": scale, "dropout_p": dropout_p}
    if impl in ("auto", "native"):
        why_not = _why_not_native(q, k, v, query_positions, key_positions, causal, key_mask, allowed, bias)
        if why_not is None and (impl == "native" or is_worth_native(q, k)):
            intervals = pair_intervals(
                q, k, causal=causal, query_positions=query_positions, key_positions=key_positions, key_mask=key_mask
            )
            assert not isinstance(intervals, str), intervals
            return native_attention(q, k, v, intervals=intervals, ranks=[q.shape[-1]], **options)
        if impl == "native":
            raise UserError(f"impl native cannot compute this attention: {why_not}")
    if causal or key_mask is not None:
        positions = (
            torch.arange(t.shape[2], device=q.device)[None] if given is None else given
            for t, given in ((q, query_positions), (k, key_positions))
        )
        pairs = allowed_pairs(*positions, causal=causal, key_mask=key_mask)
        allowed = pairs if allowed is None or pairs is None else allowed & pairs
    reason = why_no_fused_derivative()
    if impl == "sdpa" and reason is not None:
        raise UserError(f"impl sdpa cannot compute this attention: {reason}")
    fused = impl == "sdpa" or (impl == "auto" and reason is None)
    compute = full_attention_sdpa if fused else full_attention_reference
    return compute(q, k, v, allowed=allowed, **options)


def _why_not_native(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    causal: bool,
    key_mask: Tensor | None,
    allowed: Tensor | None,
    bias: Tensor | None,
) -> str | None:
    if allowed is not None:
        return "it takes pairs by position and padding, not one by one"
    if causal and not is_readable(query_positions, key_positions):
        return UNREADABLE
    return why_not_native(q, k, v, bias, hidden=(key_mask,))


def full_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, *, allowed: Tensor | None, bias: Tensor | None, scale: float, dropout_p: float
) -> Tensor:
    """`full_attention` with every logit written out."""
    q, k, v = expand_heads(q, k, v)
    logits = wide(q) @ wide(k).transpose(-1, -2) * scale
    return softmax_attention(logits, v, allowed=allowed, bias=bias, dropout_p=dropout_p)


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
        bias = finite_as(bias, q.dtype).masked_fill(forbidden, -torch.inf)
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
