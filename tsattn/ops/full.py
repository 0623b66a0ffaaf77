"""Attention over the allowed pairs: the plain reference, the fused kernel of PyTorch, and the native kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.masks import allowed_pairs
from tsattn.ops.modes import is_readable, why_no_fused_derivative
from tsattn.ops.native import UNREADABLE, Intervals, is_worth_native, native_attention, pair_intervals, why_not_native
from tsattn.ops.softmax import expand_heads, finite_as, fused_attention, in_widest_type, softmax_attention, wide

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
    """Compute `softmax(scale q k^T + bias) v` over the allowed pairs (Kuang et al., equation 1).

    Args:
        q: `(B, H | 1, N, r)` queries.
        k: `(B, G, S, r)` keys.
        v: `(B, G, S, E)` values. Types may differ: attention is computed in the widest.
        causal: a query sees no key at a later position.
        query_positions: `(B | 1, N)` int; by default the queries' order.
        key_positions: `(B | 1, S)` int; by default the keys' order.
        key_mask: `(B, S)` bool, True at real keys. A query with no allowed key gives zeros.
        allowed: bool, broadcastable to `(B, H, N, S)`; False forbids further pairs.
        bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, ``native`` or ``auto``. ``native``, the kernel of this package, needs a CPU,
            float32 or bfloat16, and no `allowed`. ``auto`` takes ``native`` where possible, else ``sdpa``. Where a
            derivative may be needed that the kernel of ``sdpa`` lacks (forward mode, nested gradients of `torch.func`),
            it takes ``reference``.

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
        found: Intervals | str | None = why_not_native(q, k, v, bias, hidden=(key_mask,))
        if causal and not is_readable(query_positions, key_positions):
            found = UNREADABLE
        if allowed is not None:
            found = "it takes pairs by position and padding, not one by one"
        if found is None and (impl == "native" or is_worth_native(q)):
            places: dict[str, Any] = {"query_positions": query_positions, "key_positions": key_positions}
            found = pair_intervals(q, k, causal=causal, key_mask=key_mask, **places)
            if not isinstance(found, str):
                return native_attention(q, k, v, intervals=found, ranks=[q.shape[-1]], **options)
        if impl == "native":
            raise UserError(f"impl native cannot compute this attention: {found}")
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
        # SDPA has its own result for a row without keys: let this row see everything, and zero it here
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
