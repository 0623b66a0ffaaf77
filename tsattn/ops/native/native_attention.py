"""Attention by the native kernel, and when it cannot be had."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from tsattn.ops.modes import is_readable, is_vmapped
from tsattn.ops.native.derivatives import differentiable_attention
from tsattn.ops.native.library import why_no_kernels
from tsattn.ops.native.operators import takes_bfloat16
from tsattn.ops.native.query_intervals import Intervals
from tsattn.ops.native.traced import traced_attention
from tsattn.ops.softmax import finite_as

__all__ = ["UNREADABLE", "is_worth_native", "native_attention", "why_not_native"]

DTYPES = (torch.float32, torch.bfloat16)

# The kernel finds the gradient of a bias from that of the logits before their scale, which it divides by.
LEAST_SCALE = 2.0**-32

MAX_LEVELS = 255
MAX_WIDTH = 2**15


UNREADABLE = "it must look at the tokens, which a graph, torch.vmap or meta tensors hide; reference works without"
"""Why the kernel cannot be used where its inputs cannot be read."""

# Below this many queries most of a vector is idle.
MIN_QUERIES = 8


def is_worth_native(q: Tensor, k: Tensor) -> bool:
    """Whether the kernel is expected to be faster than the other ways, where it can compute what is asked for."""
    return not torch.compiler.is_exporting() and q.shape[2] >= MIN_QUERIES


def why_not_native(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    *,
    levels: int = 1,
    hidden: Sequence[Tensor | None] = (),
) -> str | None:
    """Why the kernel cannot compute attention of such tensors; None if it can.

    Args:
        q: `(B, H | 1, N, r)` queries.
        k: `(B, G, S, r)` keys.
        v: `(B, G, S, E)` values.
        bias: what is added to the logits.
        levels: of blocks.
        hidden: tensors about the tokens, whose numbers it must see.
    """
    if q.device.type != "cpu" or any(t.dtype not in DTYPES for t in (q, k, v)):
        return "it computes in float32 or bfloat16 on a CPU; reference computes elsewhere too"
    if forward_ad._current_level >= 0:
        return "it has no derivative in forward mode, which reference has"
    traced = torch.compiler.is_compiling()
    if is_vmapped() if traced else not all(isinstance(t, FakeTensor) or is_readable(t) for t in (q, k, v)):
        return "it cannot run under torch.vmap, which reference can"
    if not is_readable(*hidden):
        return UNREADABLE
    if not (v.shape[0] and v.shape[2] and q.shape[2] and v.shape[3] and q.shape[3]):
        return "there is nothing to compute"
    if q.shape[-1] > MAX_WIDTH or levels > MAX_LEVELS:
        return f"it takes at most {MAX_WIDTH} components and {MAX_LEVELS} levels"
    why_none: str | None = why_no_kernels()
    return why_none


def native_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    intervals: Intervals,
    ranks: Sequence[int],
    scale: float,
    bias: Tensor | None = None,
    level_factors: Sequence[float] = (),
    dropout_p: float = 0.0,
) -> Tensor:
    """Softmax attention in which a pair is scored with the components of the levels that it shares.

    Args:
        q: `(B, H | 1, N, r)` queries, in float32 or bfloat16.
        k: `(B, G, S, r)` keys, of the same type.
        v: `(B, G, S, E)` values, of the same type.
        intervals: which pairs share which levels, and which queries see a key.
        ranks: components of each level, coarse to fine.
        scale: factor of the logits.
        bias: broadcastable to `(B, H, N, S)`, added to the logits; -inf forbids a pair.
        level_factors: what the logits of pairs that share 0, 1, ... levels are multiplied by as well; empty for 1.
        dropout_p: probability of dropping a weight.

    Returns:
        `(B, H, N, E)`. A query that sees no key gives zeros.
    """
    dtype = v.dtype
    if dtype != torch.float32 and not takes_bfloat16(ranks, v.shape[-1]):
        q, k, v = (t.float() for t in (q, k, v))
    if abs(scale) < LEAST_SCALE:
        q, scale = q * scale, 1.0
    heads = max(t.shape[1] for t in (q, k, v))
    q = q.expand(-1, heads, -1, -1)
    if k.shape[1] != v.shape[1]:
        k, v = (t.repeat_interleave(max(k.shape[1], v.shape[1]) // t.shape[1], 1) for t in (k, v))
    if bias is not None and bias.dtype != torch.float32:
        bias = finite_as(bias, torch.float32).masked_fill(torch.isneginf(bias), -torch.inf)
    order, key_order = intervals.query_order, intervals.key_order
    if order is not None:
        q = _take(q, order)
    if key_order is not None:
        k, v = _take(k, key_order), _take(v, key_order)
    if bias is not None and (order is not None or key_order is not None):
        bias = bias.expand(q.shape[0], heads, q.shape[2], k.shape[2])
        bias = bias if order is None else _take(bias, order)
        bias = bias if key_order is None else _take(bias.transpose(2, 3), key_order).transpose(2, 3)
    seed = torch.randint(2**62, ()) if dropout_p else None
    if torch.compiler.is_compiling():
        factors = list(level_factors) or None
        out: Tensor = traced_attention(q, k, v, bias, intervals.tensors, list(ranks), scale, factors, dropout_p, seed)[
            0
        ]
    else:
        out = differentiable_attention(q, k, v, bias, seed, intervals, ranks, scale, level_factors, dropout_p)
    if order is not None:
        out = _take(out, order.argsort(1))
    return out.to(dtype)


def _take(t: Tensor, order: Tensor) -> Tensor:
    """The tokens of `(B, H, T, W)` in an order `(B | 1, T)`."""
    if len(order) == 1:
        return t.index_select(2, order[0])
    return t.gather(2, order[:, None, :, None].expand(-1, t.shape[1], -1, t.shape[3]))
