"""Dropout by the native library, as an operator of PyTorch that is its own derivative, as often as asked for."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tsattn.ops.native.kernel_problem import DropoutProblem, numbers
from tsattn.ops.native.library import load_kernels, why_no_kernels
from tsattn.ops.native.openmp import openmp_team
from tsattn.ops.native.philox import keep_threshold

__all__ = ["dropout_operator", "native_dropout_left", "takes_native_dropout"]

_is_left = False


def takes_native_dropout() -> bool:
    """Whether dropout on a CPU is computed here."""
    return not _is_left and why_no_kernels() is None


@contextlib.contextmanager
def native_dropout_left() -> Iterator[None]:
    """Within it, dropout is PyTorch's, as it was when a run was begun that goes on."""
    global _is_left
    before = _is_left
    _is_left = True
    try:
        yield
    finally:
        _is_left = before


@torch.library.custom_op("tsattn::native_dropout", mutates_args=(), device_types="cpu")
def dropout_operator(x: Tensor, residual: Tensor | None, p: float, seed: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` with numbers set to zero and the others scaled, plus the residual; the same ones whenever the seed is.

    What is dropped depends on the seed and the place of a number among those of `x`, in the order of its dimensions.

    Args:
        x: any shape, in float32 or bfloat16.
        residual: of the shape of `x`, in `dtype`; None for none.
        p: the probability of dropping a number.
        seed: `()` int64.
        dtype: of the result, float32 or bfloat16.
    """
    kernels = load_kernels()
    if kernels is None:
        raise RuntimeError(f"the native kernels have gone: {why_no_kernels()}")
    x = x.contiguous()
    out = torch.empty_like(x, dtype=dtype)
    problem = DropoutProblem(x=numbers(x, x.dtype), out=numbers(out, dtype), count=x.numel(), seed=int(seed))
    if residual is not None:
        residual = residual.contiguous()
        problem.residual = numbers(residual, dtype)
    problem.x_bfloat16, problem.out_bfloat16 = (t.dtype == torch.bfloat16 for t in (x, out))
    problem.threshold, problem.factor = keep_threshold(p)
    problem.threads, problem.parallel = torch.get_num_threads(), openmp_team()
    if kernels.tsattn_dropout(ctypes.byref(problem)):
        raise MemoryError("there is no thread more for the native dropout")
    return out


@dropout_operator.register_fake
def _(x, residual, p, seed, dtype):  # type: ignore[no-untyped-def]
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, residual, ctx.p, seed, _ = inputs
    ctx.dtype, ctx.has_residual = x.dtype, residual is not None
    ctx.save_for_backward(seed)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    of_x = dropout_operator(grad, None, ctx.p, *ctx.saved_tensors, ctx.dtype) if ctx.needs_input_grad[0] else None
    return of_x, grad if ctx.has_residual and ctx.needs_input_grad[1] else None, None, None, None


dropout_operator.register_autograd(_backward, setup_context=_save)
