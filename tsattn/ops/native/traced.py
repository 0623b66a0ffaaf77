"""The kernel as one differentiable node of a compiled graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tsattn.ops.native.operators import backward_operator, empty_results, forward_operator

__all__ = ["traced_attention"]


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
