"""Attention by the native kernel: when it is available, its passes as PyTorch operators, and its derivatives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tsattn.ops.modes import (
    as_if_alone,
    function_of,
    is_forward_mode,
    is_readable,
    is_vmapped,
    needs_plain_gradients,
    plain_gradients,
)
from tsattn.ops.native.chunking import chunk_sizes, key_parts
from tsattn.ops.native.kernel_problem import KernelProblem, numbers, openmp_team, strided
from tsattn.ops.native.library import load_kernels, why_no_kernels
from tsattn.ops.native.query_intervals import Intervals
from tsattn.ops.softmax import expand_heads, finite_as, softmax_attention, wide

DTYPES = (torch.float32, torch.bfloat16)

# The kernel computes the gradient of a bias from the gradient of the unscaled logits, divided by the scale.
LEAST_SCALE = 2.0**-32

MAX_LEVELS = 255
MAX_WIDTH = 2**15

UNREADABLE = "it must look at the tokens, which a graph, torch.vmap or meta tensors hide; reference works without"
"""Why the kernel cannot be used where its inputs cannot be read."""

# Below this many queries most of a vector is idle.
MIN_QUERIES = 8


def is_worth_native(q: Tensor) -> bool:
    """Whether the kernel is expected to be faster than other implementations, if it can compute the call."""
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
    """Why the kernel cannot compute attention of these tensors; None if it can.

    `levels` counts levels of blocks; `hidden` are tensors about the tokens, whose values it must read.
    """
    if q.device.type != "cpu" or any(t.dtype not in DTYPES for t in (q, k, v)):
        return "it computes in float32 or bfloat16 on a CPU; reference computes elsewhere too"
    if is_forward_mode():
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
    """Compute softmax attention in which a pair is scored with the components of the levels that it shares.

    Queries `(B, H | 1, N, r)`, keys `(B, G, S, r)` and values `(B, G, S, E)` are all in float32 or all in bfloat16. The
    logits of pairs that share 0, 1, ... levels are multiplied by `level_factors`, if there are any. A query that sees
    no key gives zeros.
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
    if bias is not None and (order is not None or key_order is not None):
        bias = _take(bias.expand(q.shape[0], heads, q.shape[2], k.shape[2]), order)
        bias = _take(bias.transpose(2, 3), key_order).transpose(2, 3)
    q, k, v = _take(q, order), _take(k, key_order), _take(v, key_order)
    seed = torch.randint(2**62, ()) if dropout_p else None
    scoring = (list(ranks), scale, list(level_factors) or None, dropout_p)
    if torch.compiler.is_compiling():  # compiled graphs need no second derivatives
        out: Tensor = forward_operator(q, k, v, bias, intervals.tensors, *scoring, seed)[0]
    else:
        out = _NativeAttention.apply(q, k, v, bias, seed, scoring, *intervals.tensors)[0]  # type: ignore[no-untyped-call]
    return _take(out, None if order is None else order.argsort(1)).to(dtype)


def _take(t: Tensor, order: Tensor | None) -> Tensor:
    """Reorder the tokens of `(B, H, T, W)` by `(B | 1, T)`; None leaves them as they are."""
    if order is None:
        return t
    if len(order) == 1:
        return t.index_select(2, order[0])
    return t.gather(2, order[:, None, :, None].expand(-1, t.shape[1], -1, t.shape[3]))


def takes_bfloat16(ranks: Sequence[int], value_width: int) -> bool:
    """Whether the kernel computes in bfloat16 with these numbers of components, which must be even."""
    kernels = load_kernels()
    even = value_width % 2 == 0 and all(rank % 2 == 0 for rank in ranks)
    return even and kernels is not None and bool(kernels.tsattn_takes_bfloat16())


class _NativeAttention(torch.autograd.Function):
    """`forward_operator` with derivatives of any order of its outputs.

    Second derivatives and batched gradients come from the plain form, with all logits written out.
    """

    @staticmethod
    def forward(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seed: Tensor | None, scoring: Any, *intervals: Tensor
    ) -> Any:
        return function_of(forward_operator, q, k, v, bias)(q, k, v, bias, [*intervals], *scoring, seed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        q, k, v, bias, seed, ctx.scoring, *intervals = inputs
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(q, k, v, bias, seed, *output, *intervals)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        wants_bias, scoring = ctx.needs_input_grad[3], ctx.scoring
        q, k, v, bias, seed, out, peak, inverse_total, *intervals = ctx.saved_tensors
        none = [None] * (2 + len(intervals))
        if needs_plain_gradients(grad_out):

            def plain(q: Tensor, k: Tensor, v: Tensor, *given: Tensor) -> Tensor:
                ranks, scale, factors, dropout_p = scoring
                cut, own_bias = Intervals(*intervals), given[0] if given else bias
                return plain_attention(q, k, v, own_bias, cut, ranks, scale, factors, dropout_p, seed)

            inputs = (q, k, v, bias) if wants_bias else (q, k, v)
            found = plain_gradients(plain, inputs, grad_out.to(v.dtype))
            return *found, *none[: 4 - len(found)], *none
        known = (grad_out, q, k, v, bias, out, peak, inverse_total, intervals)
        *grads, of_bias = function_of(backward_operator, *known[:5])(*known, *scoring, seed, wants_bias)
        return *(grad.to(q.dtype) for grad in grads), of_bias if wants_bias else None, *none


@torch.library.custom_op("tsattn::native_attention", mutates_args=(), device_types="cpu")
def forward_operator(
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
    """Outputs, and for each query its largest logit and one over the sum of its weights: see `native_attention`.

    A compiled graph differentiates it. Queries, keys and values are in float32, or in bfloat16 where `takes_bfloat16`.
    The bias is in float32; `intervals` are `Intervals.tensors`; the seed of dropout is `()` int64.
    """
    q, k, v = (_as_words(t) for t in (q, k, v))
    problem, kept = _problem(q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed)
    out, peak, inverse_total = empty_results(q, v)
    problem.out = strided(out)
    problem.peak, problem.inverse_total = numbers(peak), numbers(inverse_total)
    _run("tsattn_forward", problem)
    del kept
    return out, peak, inverse_total


@torch.library.custom_op("tsattn::native_attention_backward", mutates_args=(), device_types="cpu")
def backward_operator(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    peak: Tensor,
    inverse_total: Tensor,
    intervals: list[Tensor],
    ranks: list[int],
    scale: float,
    level_factors: list[float] | None,
    dropout_p: float,
    seed: Tensor | None,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values, and the bias (empty if not wanted)."""
    q, k, v, grad_out = (_as_words(t) for t in (q, k, v, grad_out.to(q.dtype)))
    problem, kept = _problem(q, k, v, bias, intervals, ranks, scale, level_factors, dropout_p, seed)
    (B, H, N, r), (_, G, S, E) = q.shape, v.shape
    parts = key_parts(B * G, S)
    problem.shared_blocks = chunk_sizes().shared_blocks
    single = torch.float32  # whatever the default type is
    grad_q = q.new_empty(parts, B, N, H, r, dtype=single).transpose(2, 3)
    grad_k, grad_v = (q.new_empty(B, S, G, width, dtype=single).transpose(1, 2) for width in (r, E))
    grad_bias = q.new_empty(0, dtype=single)
    peak, inverse_total = peak.contiguous(), inverse_total.contiguous()  # torch.vmap repeats rows without a copy
    problem.out, problem.grad_out = strided(out), strided(grad_out)
    problem.peak, problem.inverse_total = numbers(peak), numbers(inverse_total)
    problem.grad_q, problem.grad_q_part, problem.key_parts = strided(grad_q[0]), grad_q.stride(0), parts
    problem.grad_k, problem.grad_v = strided(grad_k), strided(grad_v)
    if wants_bias and bias is not None:
        own_rows = bias.dim() == 4 and bias.shape[0] > 1
        grad_bias = q.new_zeros(B if own_rows else 1, H, N, S, dtype=single)
        problem.grad_bias, problem.grad_bias_batch = numbers(grad_bias), H * N * S if own_rows else 0
    _run("tsattn_backward", problem)
    del kept
    if wants_bias and bias is not None:
        grad_bias = grad_bias.sum_to_size(bias.shape)
    if parts > 1:  # in the layout of one part, on which a compiled graph relies
        return grad_q.sum(0).transpose(1, 2).contiguous().transpose(1, 2), grad_k, grad_v, grad_bias
    return grad_q[0], grad_k, grad_v, grad_bias


def _run(name: str, problem: KernelProblem) -> None:
    kernels = load_kernels()
    if kernels is None:
        raise RuntimeError(f"the native kernel is no longer available: {why_no_kernels()}")
    code = getattr(kernels, name)(ctypes.byref(problem))
    if code == 1:
        raise MemoryError("the native attention kernel lacks memory or a free thread; lower OMP_NUM_THREADS")
    assert not code, f"{name} does not take this problem"


def _problem(
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
) -> tuple[KernelProblem, list[Any]]:
    """The problem of a call, and the objects that must live as long as the problem."""
    problem, kept = _pairs(q, k, v, intervals, ranks)
    problem.scale, problem.bfloat16 = scale, q.dtype == torch.bfloat16
    problem.q, problem.k, problem.v = strided(q), strided(k), strided(v)
    if level_factors:
        kept.append(torch.tensor(level_factors, dtype=torch.float32))
        problem.level_factors = numbers(kept[-1])
    if bias is not None:
        spread = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        problem.bias = numbers(bias, contiguous=False)
        problem.bias_batch, problem.bias_head, problem.bias_query, problem.bias_key = spread.stride()
    problem.dropout, problem.seed = dropout_p, 0 if seed is None else int(seed)
    sizes = chunk_sizes()
    key_bytes = k.shape[2] * (k.shape[3] + v.shape[3]) * k.element_size()
    problem.chunk_keys, problem.shared_blocks = sizes.chunk_keys, sizes.forward(key_bytes)
    problem.threads, problem.parallel = torch.get_num_threads(), openmp_team()
    return problem, kept


def _pairs(
    q: Tensor, k: Tensor, v: Tensor, intervals: list[Tensor], ranks: list[int]
) -> tuple[KernelProblem, list[Any]]:
    """The part of a problem that says which pairs are scored with how many components."""
    problem = KernelProblem()
    (B, H, N, r), (_, G, S, E) = q.shape, v.shape
    problem.batch, problem.heads, problem.key_heads, problem.queries, problem.keys = B, H, G, N, S
    problem.width, problem.value_width, problem.levels = r, E, len(ranks)
    kept: list[Any] = [torch.tensor(ranks, dtype=torch.int32), [t.contiguous() for t in intervals]]
    problem.ranks = numbers(kept[0], torch.int32)
    for name, tensor in zip(Intervals.TENSORS, kept[1], strict=True):
        setattr(problem, name, numbers(tensor, torch.int32))
    problem.layouts = len(kept[1][1])
    return problem, kept


def _as_words(t: Tensor) -> Tensor:
    """The tensor with contiguous components; in bfloat16, pairs of components lie in aligned words of 4 bytes."""
    per_word = 4 // t.element_size()
    whole = t.data_ptr() % 4 == 0 and all(stride % per_word == 0 for stride in t.stride()[:-1])
    return t if whole and t.stride(-1) == 1 else t.contiguous()


def empty_results(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Tensors of the shapes and types that `forward_operator` gives; the heads of a token follow each other."""
    B, H, N, _ = q.shape
    out = q.new_empty(B, N, H, v.shape[-1], dtype=torch.float32).transpose(1, 2)
    return out, q.new_empty(B, H, N, dtype=torch.float32), q.new_empty(B, H, N, dtype=torch.float32)


@forward_operator.register_fake
def _(q, k, v, *others):  # type: ignore[no-untyped-def]
    return empty_results(q, v)


@backward_operator.register_fake
def _(grad_out, q, k, v, bias, *others):  # type: ignore[no-untyped-def]
    shapes = [(t.shape[0], t.shape[2], t.shape[1], t.shape[3]) for t in (q, k, v)]
    grads = [q.new_empty(shape, dtype=torch.float32).transpose(1, 2) for shape in shapes]
    return (*grads, q.new_empty(bias.shape if others[-1] and bias is not None else 0, dtype=torch.float32))


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


forward_operator.register_autograd(_backward, setup_context=_save)


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
    """`(B, H, N, E)`, from queries, keys and values in the order of the intervals, with every logit written out."""
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
    """The kernel's factors of weights, `(heads, queries, keys)`: 0 for a dropped weight. See source/scores.h."""
    narrow, wide_bits = 2**32 - 1, 2**64 - 1
    single = np.float32(dropout_p)  # as the kernel is given it

    def mixed(head: int) -> int:
        x = (seed + 0x9E3779B97F4A7C15 * (head + 1)) & wide_bits
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & wide_bits
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & wide_bits
        return (x ^ (x >> 31)) & narrow

    def times(x: Tensor, factor: int) -> Tensor:
        """The lower 32 bits of a product of 32-bit numbers; computed in halves, so that 64 bits suffice."""
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


def _work(backward: bool) -> Callable[..., int]:
    """The formula of a pass for PyTorch's counter of flops: the kernel's own count."""

    def count(*arguments: Any, out_val: Any = None, **_: Any) -> int:
        q, k, v = arguments[1:4] if backward else arguments[:3]
        with as_if_alone():
            problem, kept = _pairs(q, k, v, *(arguments[8:10] if backward else arguments[4:6]))
        kernels = load_kernels()
        work = 0 if kernels is None else int(kernels.tsattn_work(ctypes.byref(problem), int(backward)))
        del kept
        return work

    count._get_raw = True  # type: ignore[attr-defined]  # the tensors themselves, not their shapes alone
    return count


FLOP_FORMULAS = {
    torch.ops.tsattn.native_attention: _work(backward=False),
    torch.ops.tsattn.native_attention_backward: _work(backward=True),
}
