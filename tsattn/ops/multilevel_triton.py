# mypy: allow-untyped-calls
"""Multi-level low-rank (MLR) attention by Triton kernels: exact, and without the matrix of scores.

`S[j, j'] = scale * sum over the levels l in which j and j' share a block of q_l[j] . k_l[j']`
(Kuang et al., section 4), under a softmax with running maximum, for CUDA devices and for Triton's interpreter. This is
the host's side; `multilevel_kernels` says how the kernels work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tsattn.ops.multilevel_kernels.backward_keys import keys_kernel
from tsattn.ops.multilevel_kernels.backward_queries import queries_kernel
from tsattn.ops.multilevel_kernels.forward import forward_kernel
from tsattn.ops.multilevel_kernels.jit import is_interpreted, triton_available
from tsattn.ops.multilevel_kernels.kernel_arguments import constants, shared_arguments, strides
from tsattn.ops.multilevel_kernels.problem import (
    EVERYWHERE,
    MAX_LEVELS,
    MAX_WIDTH,
    Problem,
    TileSizes,
    chunk_widths,
    tile_sizes,
)
from tsattn.ops.multilevel_kernels.walk_plan import WalkPlan, plan_walk

__all__ = ["TileSizes", "chunk_widths", "multilevel_attention_triton", "triton_available"]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LOG2_E = 1.4426950408889634


def multilevel_attention_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    causal: bool = False,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    key_mask: Tensor | None = None,
    global_queries: Tensor | None = None,
    global_keys: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Softmax attention with multi-level scores, by Triton kernels, forward and backward (Kuang et al., section 4).

    Equals `multilevel_attention_reference`; extra memory is linear in the tokens, except for the plans of the two
    walks: 8 bytes a pair of tiles each, for all heads at once, which in half precision is 2^-10 bytes a pair of tokens.
    Blocks that nest and are runs of tokens are fast; any others are exact and slower.

    Args:
        q: `(B, H, N, r)` float32, bfloat16 or float16; r at most 256.
        k: `(B, G, S, r)`, G dividing H: H/G query heads share a key head.
        v: `(B, G, S, E)`, E at most 256.
        ranks: components of each level, coarse to fine; they sum to r. At most 31 levels.
        query_blocks: `(L, B | 1, N)` int, the block of every query at every level.
        key_blocks: `(L, B | 1, S)` int.
        causal: a query sees only keys whose position is not after its own.
        query_positions: `(B | 1, N)` int; the index by default. Read only if causal.
        key_positions: `(B | 1, S)` int; the index by default. Read only if causal.
        key_mask: `(B | 1, S)` bool, True for a real key; None takes all. A query with no allowed key gives zeros.
        global_queries: `(B | 1, N)` bool: queries that share every level with every key.
        global_keys: `(B | 1, S)` bool: keys that share every level with every query. The tiles of global tokens are
            masked, and slower.
        scale: factor of the logits; `1 / sqrt(r)` by default.

    Returns:
        `(B, H, N, E)`, of q's type; sums are in float32.

    Raises:
        RuntimeError: Triton is not installed, or the tensors are on the CPU and Triton does not interpret; and, from
            autograd, when a gradient of the gradient is asked for.
        TypeError: the types of q, k and v differ or are none of the three.
        ValueError: too many components or levels.
    """
    _check(q, k, v, ranks)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    if scale <= 0:
        # the kernels take the maximum before they scale
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    if 0 in (*q.shape, *k.shape, *v.shape):
        # nothing to launch; keep the graph, so that gradients are zeros
        shape = (q.shape[0], q.shape[1], q.shape[2], v.shape[3])
        return q.new_zeros(shape) + 0 * (q.sum() + k.sum() + v.sum())
    problem = Problem(
        tuple(int(rank) for rank in ranks),
        causal,
        scale,
        _unit_stride(_ids(query_blocks, global_queries)),
        _unit_stride(_ids(key_blocks, global_keys)),
        None if query_positions is None else _unit_stride(query_positions),
        None if key_positions is None else _unit_stride(key_positions),
        None if key_mask is None else _unit_stride(key_mask).view(torch.uint8),
    )
    q, k, v = _unit_stride(q), _unit_stride(k), _unit_stride(v)
    if torch.compiler.is_compiling():
        traced: Tensor = _operator(q, k, v, *problem.tensors, list(problem.ranks), causal, scale)[0]
        return traced
    with torch.cuda.device_of(q):
        out: Tensor = _MultilevelAttention.apply(q, k, v, problem)
    return out


def _forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> tuple[Tensor, Tensor, WalkPlan, TileSizes]:
    """The output, the log-sum-exp of the logits of each query to base 2, and how the queries walked."""
    sizes = tile_sizes("forward", q.dtype, q.shape[-1], v.shape[-1])
    plan = plan_walk(problem, sizes, own_keys=False)
    out, lse = _new_outputs(q, v)
    tensors, integers = shared_arguments(problem, q, k, plan)
    forward_kernel[(plan.order.shape[1] * q.shape[0] * q.shape[1],)](
        q, k, v, out, lse, *tensors, *strides(q, k, v, out), *integers, problem.scale * _LOG2_E,
        **constants(problem, q, v, sizes),
    )  # fmt: skip
    return out, lse, plan, sizes


def _backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    problem: Problem,
    walked: Sequence[Any] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v; `walked` is the plan and the sizes of the forward pass, if known."""
    grad_out = _unit_stride(grad_out)
    grad_q, grad_k, grad_v = (_new_like(t, t.shape[-1]) for t in (q, k, v))
    delta = torch.empty_like(lse)
    factor = problem.scale * _LOG2_E

    sizes = tile_sizes("queries", q.dtype, q.shape[-1], v.shape[-1])
    if walked is not None and (sizes.own, sizes.walked) == (walked[1].own, walked[1].walked):
        plan = walked[0]
    else:
        plan = plan_walk(problem, sizes, own_keys=False)
    tensors, integers = shared_arguments(problem, q, k, plan)
    queries_kernel[(plan.order.shape[1] * q.shape[0] * q.shape[1],)](
        q, k, v, out, grad_out, lse, delta, grad_q, *tensors, *strides(q, k, v, out, grad_out, grad_q),
        *integers, factor, problem.scale, **constants(problem, q, v, sizes),
    )  # fmt: skip

    sizes = tile_sizes("keys", q.dtype, q.shape[-1], v.shape[-1])
    plan = plan_walk(problem, sizes, own_keys=True)
    tensors, integers = shared_arguments(problem, q, k, plan)
    keys_kernel[(plan.order.shape[1] * k.shape[0] * k.shape[1],)](
        q, k, v, grad_out, lse, delta, grad_k, grad_v, *tensors, *strides(q, k, v, grad_out, grad_k, grad_v),
        *integers, factor, problem.scale, **constants(problem, q, v, sizes),
    )  # fmt: skip
    return grad_q, grad_k, grad_v


class _MultilevelAttention(torch.autograd.Function):
    """The kernels as one differentiable step; their gradient has no gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
        out, lse, *ctx.walked = _forward(q, k, v, problem)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.problem = problem
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        return *_backward(grad_out, q, k, v, out, lse, ctx.problem, ctx.walked), None


@torch.library.custom_op("tsattn::multilevel_triton", mutates_args=())
def _operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_ids: Tensor,
    key_ids: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    key_mask: Tensor | None,
    ranks: list[int],
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """The kernels as one node of a compiled graph."""
    problem = Problem(tuple(ranks), causal, scale, query_ids, key_ids, query_positions, key_positions, key_mask)
    with torch.cuda.device_of(q):
        return _forward(q, k, v, problem)[:2]


@torch.library.custom_op("tsattn::multilevel_triton_backward", mutates_args=())
def _operator_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    query_ids: Tensor,
    key_ids: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    key_mask: Tensor | None,
    ranks: list[int],
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    problem = Problem(tuple(ranks), causal, scale, query_ids, key_ids, query_positions, key_positions, key_mask)
    with torch.cuda.device_of(q):
        return _backward(grad_out, q, k, v, out, lse, problem, None)


@_operator.register_fake
def _(q, k, v, *rest):  # type: ignore[no-untyped-def]
    return _new_outputs(q, v)


@_operator_backward.register_fake
def _(grad_out, q, k, v, *rest):  # type: ignore[no-untyped-def]
    return tuple(_new_like(t, t.shape[-1]) for t in (q, k, v))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.given = inputs[8:]


def _backward_of_operator(ctx: Any, grad_out: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, *problem, out, lse = ctx.saved_tensors
    return (*_operator_backward(grad_out, q, k, v, out, lse, *problem, *ctx.given), *[None] * 8)


_operator.register_autograd(_backward_of_operator, setup_context=_save)


def _check(q: Tensor, k: Tensor, v: Tensor, ranks: Sequence[int]) -> None:
    if not triton_available():
        raise RuntimeError("the Triton kernel of multi-level attention needs Triton, which is not installed here")
    if q.device.type != "cuda" and not is_interpreted(forward_kernel):
        raise RuntimeError(
            f"the Triton kernel of multi-level attention runs on a CUDA device, not on {q.device.type!r}: move the "
            "tensors there, take another impl, or set TRITON_INTERPRET=1 before the program starts"
        )
    if q.dtype not in _DTYPES or not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v are {q.dtype}, {k.dtype}, {v.dtype}; all must be one of {[*map(str, _DTYPES)]}")
    r = q.shape[-1]
    if max(r, v.shape[-1]) > MAX_WIDTH or len(ranks) > MAX_LEVELS:
        raise ValueError(
            f"{r} components, values of {v.shape[-1]} and {len(ranks)} levels: the kernel takes {MAX_WIDTH}, "
            f"{MAX_WIDTH} and {MAX_LEVELS}"
        )


def _ids(blocks: Tensor, global_tokens: Tensor | None) -> Tensor:
    return blocks if global_tokens is None else blocks.long().masked_fill(global_tokens, EVERYWHERE)


def _unit_stride(t: Tensor) -> Tensor:
    """The tensor with its last axis dense, as the kernels read it."""
    return t if t.stride(-1) == 1 else t.contiguous()


def _new_outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return _new_like(q, v.shape[-1]), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _new_like(t: Tensor, width: int) -> Tensor:
    """An empty `(B, H, N, width)` whose heads and tokens lie in memory in the order of t's."""
    B, H, N, _ = t.shape
    if t.stride(1) < t.stride(2):
        return t.new_empty(B, N, H, width).transpose(1, 2)
    return t.new_empty(B, H, N, width)
