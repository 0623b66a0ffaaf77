"""Attention by the native kernel: when it can be had, its derivatives, and what it computes written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from tsattn.ops.modes import is_readable, is_vmapped, needs_plain_gradients, plain_gradients
from tsattn.ops.native.library import why_no_kernels
from tsattn.ops.native.operators import backward_operator, empty_results, forward_operator, takes_bfloat16
from tsattn.ops.native.query_intervals import Intervals
from tsattn.ops.softmax import expand_heads, finite_as, softmax_attention, wide

__all__ = [
    "UNREADABLE",
    "differentiable_attention",
    "dropout_factors",
    "is_worth_native",
    "native_attention",
    "plain_attention",
    "why_not_native",
]

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
    if is_vmapped() if traced else not all(isinstance(t, FakeTensor) or is_readable(t) for t in (q, k, v, bias)):
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


def differentiable_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    intervals: Intervals,
    ranks: Sequence[int],
    scale: float,
    level_factors: Sequence[float],
    dropout_p: float,
) -> Tensor:
    """The outputs of `forward_operator`, which describes the arguments."""
    numbers = (list(ranks), scale, list(level_factors) or None, dropout_p)
    out: Tensor = _NativeAttention.apply(q, k, v, bias, seed, numbers, *intervals.tensors)[0]  # type: ignore[no-untyped-call]
    return out


class _NativeAttention(torch.autograd.Function):
    """The outputs, and of each query the largest logit and one over the sum of its weights, which have no gradients.

    Gradients of which a graph is made, or that are asked for in batches, come from the plain form, with all logits.
    """

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seed: Tensor | None, numbers: Any, *intervals: Tensor
    ) -> Any:
        return forward_operator(q, k, v, bias, [*intervals], *numbers, seed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        q, k, v, bias, seed, ctx.numbers, *intervals = inputs
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(q, k, v, bias, seed, *output, *intervals)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        wants_bias, numbers = ctx.needs_input_grad[3], ctx.numbers
        q, k, v, bias, seed, out, peak, inverse_total, *intervals = ctx.saved_tensors
        none = [None] * (2 + len(intervals))
        if needs_plain_gradients(grad_out):

            def plain(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> Tensor:
                ranks, scale, factors, dropout_p = numbers
                cut, own_bias = Intervals.of_tensors(intervals), given[0] if given else bias
                return plain_attention(q, k, v, own_bias, cut, ranks, scale, factors, dropout_p, seed)

            inputs = (q, k, v, bias) if wants_bias else (q, k, v)
            found = plain_gradients(plain, inputs, grad_out.to(v.dtype))
            return *found, *none[: 4 - len(found)], *none
        known = (grad_out, q, k, v, bias, out, peak, inverse_total, intervals)
        *grads, of_bias = backward_operator(*known, *numbers, seed, wants_bias)
        return *(grad.to(q.dtype) for grad in grads), of_bias if wants_bias else None, *none


@torch.library.custom_op("tsattn::native_attention_traced", mutates_args=(), device_types="cpu")
def traced_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    intervals: list[Tensor],
    ranks: list[int],
    scale: float,
    level_factors: list[float] | None,
    dropout_p: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`forward_operator`, which takes the same, with its first derivative; `torch.compile` asks for no others."""
    results: tuple[Tensor, Tensor, Tensor] = forward_operator(
        q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed
    )
    return results


@traced_attention.register_fake
def _(q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed):  # type: ignore[no-untyped-def]
    return empty_results(q, v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, bias, intervals, *ctx.given = inputs
    ctx.wants_bias = bias is not None and bias.requires_grad
    ctx.save_for_backward(q, k, v, bias, *output, *intervals)


def _backward(ctx: Any, grad_out: Tensor, *_: Tensor) -> tuple[Any, ...]:
    q, *tensors = ctx.saved_tensors
    saved, intervals = tensors[:6], [*tensors[6:]]
    *grads, of_bias = backward_operator(grad_out, q, *saved, intervals, *ctx.given, ctx.wants_bias)
    of_bias = of_bias if ctx.wants_bias else None
    return *(grad.to(q.dtype) for grad in grads), of_bias, [None] * len(intervals), *[None] * len(ctx.given)


traced_attention.register_autograd(_backward, setup_context=_save)


def plain_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    intervals: Intervals,
    ranks: Sequence[int],
    scale: float,
    level_factors: Sequence[float] | None,
    dropout_p: float,
    seed: Tensor | None,
) -> Tensor:
    """`(B, H, N, E)`, from queries, keys and values in the order of the intervals; see `native_attention`."""
    q, k, v = expand_heads(q, k, v)
    N, S = q.shape[2], k.shape[2]
    rows = intervals.layout_of_row.long()
    query = torch.arange(N)[:, None]
    is_global = query >= (N - intervals.global_queries.long()[rows])[:, None, None]  # (B, N, 1)

    def within(first: Tensor, end: Tensor) -> Tensor:
        return (query >= first[rows].long()[:, None]) & (query < end[rows].long()[:, None])

    logits = torch.zeros((), dtype=wide(q).dtype)
    shared = torch.zeros((), dtype=torch.long)
    levels = zip(*(torch.split(wide(t), list(ranks), -1) for t in (q, k)), strict=True)
    for level, (q_level, k_level) in enumerate(levels):
        same = within(intervals.block_first[:, level], intervals.block_end[:, level]) | is_global
        logits = logits + (q_level @ k_level.transpose(-1, -2)).masked_fill(~same[:, None], 0.0)
        shared = shared + same
    if level_factors:
        logits = logits * torch.tensor(level_factors, dtype=logits.dtype)[shared][:, None]
    ordinary, everywhere = (within(intervals.seen_first[:, part], intervals.seen_end[:, part]) for part in (0, 1))
    allowed = torch.where(is_global, everywhere, ordinary)[:, None]
    factors = None
    if seed is not None:
        factors = dropout_factors(len(q) * q.shape[1], N, S, dropout_p, int(seed)).view(*q.shape[:2], N, S)
    return softmax_attention(logits * scale, v, allowed=allowed, bias=bias, dropout_p=0.0, factors=factors)


def dropout_factors(heads: int, queries: int, keys: int, dropout_p: float, seed: int) -> Tensor:
    """What the kernel multiplies weights by, `(heads, queries, keys)`: 0 where one is dropped. See source/scores.h."""
    narrow, wide_bits = 2**32 - 1, 2**64 - 1
    single = np.float32(dropout_p)  # as the kernel is given it

    def mixed(head: int) -> int:
        x = (seed + 0x9E3779B97F4A7C15 * (head + 1)) & wide_bits
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wide_bits
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wide_bits
        return (x ^ (x >> 31)) & narrow

    def times(x: Tensor, factor: int) -> Tensor:
        """The product of numbers of 32 bits, of which 32 bits are kept; in halves, so that 64 suffice."""
        high, low = x >> 16, x & 0xFFFF
        return (((high * factor & 0xFFFF) << 16) + low * factor) & narrow

    of_head = torch.tensor([mixed(head) for head in range(heads)])[:, None, None]
    x = (times(torch.arange(keys), 0x9E3779B1) + of_head) & narrow
    x = times(x ^ (x >> 16), 0x85EBCA6B)
    x = times(torch.arange(queries)[:, None], 0xC2B2AE35) ^ x
    x = times(x ^ (x >> 16), 0x7FEB352D)
    x = times(x ^ (x >> 15), 0x846CA68B)
    x = x ^ (x >> 16)
    kept = (x >> 8) >= int(float(single) * 2**24)
    one = np.float32(1)
    return kept.to(torch.float32) * float(one / (one - single))
