"""What the compiled kernels are given: the same fields in the same order as in source/problem.h."""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

__all__ = ["DropoutProblem", "KernelProblem", "StridedTensor", "numbers", "openmp_team", "strided"]


class StridedTensor(ctypes.Structure):
    """`(batch, heads, tokens, components)` with components side by side; strides are in numbers."""

    _fields_ = (
        ("at", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("head", ctypes.c_int64),
        ("token", ctypes.c_int64),
    )


class KernelProblem(ctypes.Structure):
    """See source/problem.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "heads", "key_heads", "queries", "keys")),
        *((name, ctypes.c_int64) for name in ("width", "value_width", "levels")),
        ("scale", ctypes.c_float),
        ("bfloat16", ctypes.c_int64),
        *((name, StridedTensor) for name in ("q", "k", "v", "out")),
        ("peak", ctypes.c_void_p),
        ("inverse_total", ctypes.c_void_p),
        ("ranks", ctypes.c_void_p),
        ("level_factors", ctypes.c_void_p),
        ("layouts", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("layout_of_row", "global_queries")),
        *((name, ctypes.c_void_p) for name in ("block_first", "block_end", "seen_first", "seen_end")),
        ("bias", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("bias_batch", "bias_head", "bias_query", "bias_key")),
        ("dropout", ctypes.c_float),
        ("seed", ctypes.c_uint64),
        ("chunk_keys", ctypes.c_int64),
        ("shared_blocks", ctypes.c_int64),
        *((name, StridedTensor) for name in ("grad_out", "grad_q", "grad_k", "grad_v")),
        ("grad_bias", ctypes.c_void_p),
        ("grad_bias_batch", ctypes.c_int64),
        ("key_parts", ctypes.c_int64),
        ("grad_q_part", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("parallel", ctypes.c_void_p),
    )


class DropoutProblem(ctypes.Structure):
    """See source/problem.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "residual", "out")),
        *((name, ctypes.c_int64) for name in ("count", "x_bfloat16", "out_bfloat16")),
        ("threshold", ctypes.c_uint32),
        ("factor", ctypes.c_float),
        ("seed", ctypes.c_uint64),
        ("threads", ctypes.c_int64),
        ("parallel", ctypes.c_void_p),
    )


def numbers(tensor: Tensor, dtype: torch.dtype = torch.float32, *, contiguous: bool = True) -> int:
    """Where the numbers of a tensor begin, which the kernel takes for what they should be."""
    if tensor.dtype != dtype or tensor.device.type != "cpu" or (contiguous and not tensor.is_contiguous()):
        raise TypeError(f"the kernel takes contiguous {dtype} on a CPU, not {tensor.dtype} on {tensor.device}")
    return tensor.data_ptr()


def strided(tensor: Tensor) -> StridedTensor:
    """A tensor `(B, H, T, W)` of float32 or bfloat16, whose components lie side by side."""
    if tensor.dtype not in (torch.float32, torch.bfloat16) or tensor.device.type != "cpu":
        raise TypeError(f"the kernel takes float32 and bfloat16 on a CPU, not {tensor.dtype} on {tensor.device}")
    return StridedTensor(tensor.data_ptr(), *tensor.stride()[:3])


@functools.cache
def openmp_team() -> int | None:
    """The address of `GOMP_parallel` of the OpenMP library that PyTorch has loaded; None where it has another.

    A pool of threads of the kernel's own would compete with those of PyTorch, which wait in a loop for some time.
    """
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):  # TypeError: a system without a library of the whole program
        return None
