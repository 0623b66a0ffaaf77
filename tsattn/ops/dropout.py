"""Dropout; on a CPU by a generator of this package, in one pass over memory, with no mask kept for the backward pass.

PyTorch draws each number of a mask from one sequential generator, writes the mask, and multiplies by it. Here each call
draws one seed from PyTorch's generator, so a seed, a saved state, or a recomputed pass repeats it. The mask is a
function of this seed and of the place of each number. So the backward pass computes it again, and it is the same for
any number of threads and any instruction set.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from tsattn.ops.modes import function_of, is_forward_mode
from tsattn.ops.native.kernel_problem import DropoutProblem, keep_threshold, kept_numbers, numbers, openmp_team
from tsattn.ops.native.library import load_kernels, why_no_kernels

_DTYPES = (torch.float32, torch.bfloat16)
_KINDS = (Tensor, nn.Parameter, FakeTensor)


def dropout(x: Tensor, p: float, training: bool = True, *, residual: Tensor | None = None) -> Tensor:
    """Set each number of `x` to zero with probability `p`, and divide the others by `1 - p`.

    The kernel takes float32 and bfloat16 on a CPU, in compiled graphs too. All else is `torch.nn.functional.dropout`:
    other devices and types, the transformations of `torch.func`, derivatives in forward mode, `torch.export`, and a
    machine without kernels.
    Where the kernel computes, p is rounded to a multiple of 2^-32.

    Args:
        x: any shape.
        p: a probability in [0, 1).
        training: if false, or p is 0, nothing is dropped, and `x` itself is the result.
        residual: broadcastable with `x`, added to the result.

    Raises:
        ValueError: for another p.
    """
    if not 0 <= p < 1:
        raise ValueError(f"the probability of dropping must lie in [0, 1), not {p}")
    if not training or p == 0:
        return x if residual is None else residual + x
    if not _is_native(x):
        dropped = F.dropout(x, p)
        return dropped if residual is None else residual + dropped
    seed = torch.randint(2**62, (), device="cpu")
    if residual is None:
        out: Tensor = _dropped(x, None, p, seed, x.dtype)
    elif residual.shape == x.shape and residual.device == x.device and residual.dtype in _DTYPES:
        dtype = torch.promote_types(x.dtype, residual.dtype)
        out = _dropped(x, residual.to(dtype), p, seed, dtype)
    else:
        out = residual + _dropped(x, None, p, seed, x.dtype)
    return out


def _is_native(x: Tensor) -> bool:
    if x.device.type != "cpu" or x.dtype not in _DTYPES or type(x) not in _KINDS or x.layout != torch.strided:
        return False
    if torch.compiler.is_exporting() or is_forward_mode():
        return False
    if not torch.compiler.is_compiling() and torch._C._functorch.maybe_current_level() is not None:
        return False
    return takes_native_dropout()


def dropout_reference(x: Tensor, p: float, seed: int, residual: Tensor | None = None) -> Tensor:
    """The result of the kernel from a seed, with the mask written out; see `dropout`."""
    kept = torch.from_numpy(kept_numbers(seed, x.numel(), p)).view(x.shape)
    factors = kept.to(torch.float32) * keep_threshold(p)[1]
    dropped = x.to(torch.promote_types(x.dtype, torch.float32)) * factors
    if residual is None:
        return dropped.to(x.dtype)
    return (residual + dropped).to(torch.promote_types(x.dtype, residual.dtype))


_is_left = False


def takes_native_dropout() -> bool:
    """Whether the native kernel computes dropout on a CPU."""
    return not _is_left and why_no_kernels() is None


@contextlib.contextmanager
def native_dropout_left() -> Iterator[None]:
    """Leave dropout to PyTorch, as a run did that is resumed."""
    global _is_left
    before = _is_left
    _is_left = True
    try:
        yield
    finally:
        _is_left = before


@torch.library.custom_op("tsattn::native_dropout", mutates_args=(), device_types="cpu")
def dropout_operator(x: Tensor, residual: Tensor | None, p: float, seed: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` with numbers set to zero and the others scaled, plus the residual, in `dtype`.

    `x` and `dtype` are float32 or bfloat16, the residual is of the shape of `x` and in `dtype`, the seed `()` int64.
    The seed and the place of a number in `x`, in the order of its dimensions, decide if it is dropped.
    """
    kernels = load_kernels()
    if kernels is None:
        raise RuntimeError(f"the native kernels are no longer available: {why_no_kernels()}")
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
        raise MemoryError("no thread is free for the native dropout; lower OMP_NUM_THREADS")
    return out


@dropout_operator.register_fake
def _(x, residual, p, seed, dtype):  # type: ignore[no-untyped-def]
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, residual, ctx.p, seed, _ = inputs
    ctx.dtype, ctx.has_residual = x.dtype, residual is not None
    ctx.save_for_backward(seed)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    of_x = _dropped(grad, None, ctx.p, *ctx.saved_tensors, ctx.dtype) if ctx.needs_input_grad[0] else None
    return of_x, grad if ctx.has_residual and ctx.needs_input_grad[1] else None, None, None, None


dropout_operator.register_autograd(_backward, setup_context=_save)


class _Dropout(torch.autograd.Function):
    """The function of `dropout_operator` with its derivatives."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        out: Tensor = dropout_operator._init_fn(*inputs)
        _save(ctx, inputs, out)
        return out

    backward = staticmethod(_backward)


def _dropped(x: Tensor, residual: Tensor | None, *others: Any) -> Tensor:
    compute: Any = function_of(dropout_operator, x, residual)
    compute = dropout_operator if compute is dropout_operator else _Dropout.apply
    return compute(x, residual, *others)  # type: ignore[no-any-return]
