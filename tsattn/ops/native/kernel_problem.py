"""The arguments of the compiled kernels, and a small problem that a library must solve before it is used.

The records have the fields of source/problem.h in the same order. Random bits are the same as in source/philox.h:
Philox4x32-10 of Salmon, Moraes, Dror and Shaw (SC 2011), section 3.3.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


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
    """The address of a tensor's numbers, after a check of their type: the kernel does not check it."""
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
    """The address of `GOMP_parallel` in the OpenMP library that PyTorch has loaded; None if it uses another.

    A separate pool of threads would compete with PyTorch's threads, which wait in a loop for some time.
    """
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):  # TypeError: a system without a library of the whole program
        return None


# in bfloat16, weights and their slopes are rounded to 8 bits
_TOLERANCES = {False: 1e-4, True: 5e-2}

Numbers = npt.NDArray[Any]


def what_is_wrong(library: ctypes.CDLL) -> str | None:
    """Check outputs and gradients of a library, in a millisecond: None if they are right, else a clause."""
    if not all(_drops(library, bfloat16) for bfloat16 in (False, True)):
        return "its dropout is wrong"
    for bfloat16 in (False, True) if library.tsattn_takes_bfloat16() else (False,):
        ranks, value_width = ((4, 2), 6) if bfloat16 else ((3, 2), 7)
        for queries in (3, 37):  # one vector of queries and two, with a rest in each
            for name, found, wanted in _solved(library, bfloat16, queries, 21, ranks, value_width):
                if not np.allclose(found, wanted, rtol=_TOLERANCES[bfloat16], atol=_TOLERANCES[bfloat16]):
                    return f"its {name} are wrong{' in bfloat16' if bfloat16 else ''}"
    return None


def _drops(library: ctypes.CDLL, bfloat16: bool) -> bool:
    """Whether the library's dropout is right, with a residual added."""
    count, p, seed = 77, 0.3, 2**62 - 3
    threshold, factor = keep_threshold(p)
    # whole numbers below 2^7, of which bfloat16 keeps all digits
    x, residual = np.arange(1, count + 1, dtype=np.float32), np.full(count, 3, np.float32)
    wanted = np.where(kept_numbers(seed, count, p), np.float32(factor) * x, 0) + residual
    given = [(array.view(np.uint32) >> 16).astype(np.uint16) if bfloat16 else array for array in (x, residual)]
    out = np.zeros_like(given[0])
    problem = DropoutProblem(*(array.ctypes.data for array in (*given, out)), count, bfloat16, bfloat16, threshold)
    problem.factor, problem.seed, problem.threads = factor, seed, 1
    if library.tsattn_dropout(ctypes.byref(problem)):
        return False
    found = (out.astype(np.uint32) << 16).view(np.float32) if bfloat16 else out
    return np.allclose(found, wanted, rtol=_TOLERANCES[bfloat16])


def _solved(
    library: ctypes.CDLL, bfloat16: bool, queries: int, keys: int, ranks: tuple[int, ...], value_width: int
) -> list[tuple[str, Numbers, Numbers]]:
    """Outputs and gradients of causal attention with two levels, from the library and from plain NumPy."""
    width, scale = sum(ranks), 0.5
    rng = np.random.default_rng(0)
    q, k, v, grad_out = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in ((queries, width), (keys, width), (keys, value_width), (queries, value_width))
    )
    out, grad_q, grad_k, grad_v = (np.full_like(like, np.nan) for like in (grad_out, q, k, v))
    given = [q, k, v, grad_out]
    if bfloat16:
        given = [(array.view(np.uint32) >> 16).astype(np.uint16) for array in given]
        q, k, v, grad_out = ((half.astype(np.uint32) << 16).view(np.float32) for half in given)
    peak, inverse_total = (np.full(queries, np.nan, np.float32) for _ in range(2))
    key = np.arange(keys, dtype=np.int32)
    # all pairs share the first level; pairs in blocks of four tokens, the second; all queries see the first key
    first = np.minimum(np.stack([0 * key, key // 4 * 4]), queries).astype(np.int32)
    end = np.minimum(np.stack([0 * key + queries, key // 4 * 4 + 4]), queries).astype(np.int32)
    seen_first = np.minimum(np.stack([key, key]), queries).astype(np.int32)
    seen_end = np.full((2, keys), queries, np.int32)
    layout_of_row, global_queries, held_ranks = np.zeros(1, np.int32), np.zeros(1, np.int32), np.array(ranks, np.int32)

    problem = KernelProblem(batch=1, heads=1, key_heads=1, queries=queries, keys=keys, width=width, levels=len(ranks))
    problem.value_width, problem.scale, problem.layouts, problem.threads = value_width, scale, 1, 1
    problem.bfloat16 = bfloat16
    problem.chunk_keys, problem.shared_blocks, problem.key_parts = 16, 2, 1
    tensors = dict(zip(("q", "k", "v", "grad_out"), given, strict=True))
    tensors |= {"out": out, "grad_q": grad_q, "grad_k": grad_k, "grad_v": grad_v}
    name: str
    array: Numbers
    for name, array in tensors.items():
        setattr(problem, name, StridedTensor(array.ctypes.data, array.size, array.size, array.shape[1]))
    pointed = {"block_first": first, "block_end": end, "seen_first": seen_first, "seen_end": seen_end, "peak": peak}
    pointed |= {"inverse_total": inverse_total, "ranks": held_ranks, "layout_of_row": layout_of_row}
    pointed["global_queries"] = global_queries
    for name, array in pointed.items():
        setattr(problem, name, array.ctypes.data)
    if library.tsattn_forward(ctypes.byref(problem)) or library.tsattn_backward(ctypes.byref(problem)):
        return [("results", np.full(1, np.nan, np.float32), np.zeros(1))]

    query = np.arange(queries)[:, None]
    shares = [(first[level] <= query) & (query < end[level]) for level in range(len(ranks))]
    parts = np.split(np.arange(width), np.cumsum(ranks)[:-1])
    Q, K, V, G = (array.astype(np.float64) for array in (q, k, v, grad_out))
    logits = scale * sum(share * (Q[:, part] @ K[:, part].T) for share, part in zip(shares, parts, strict=True))
    weights = np.exp(np.where(seen_first[0] <= query, logits, -np.inf))
    weights /= weights.sum(1, keepdims=True)
    wanted = weights @ V
    slopes = scale * weights * (G @ V.T - (G * wanted).sum(1, keepdims=True))
    slopes_of = [slopes * share for share in shares]
    wanted_q = np.concatenate([slope @ K[:, part] for slope, part in zip(slopes_of, parts, strict=True)], 1)
    wanted_k = np.concatenate([slope.T @ Q[:, part] for slope, part in zip(slopes_of, parts, strict=True)], 1)
    return [
        ("outputs", out, wanted),
        ("gradients of queries", grad_q, wanted_q),
        ("gradients of keys", grad_k, wanted_k),
        ("gradients of values", grad_v, weights.T @ G),
    ]


_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_GROUP = 8  # counters


def philox(seed: int, counters: npt.NDArray[np.unsignedinteger[Any]]) -> npt.NDArray[np.uint32]:
    """128 random bits `(n, 4)` for each of the counters `(n, 4)`, words of 32 bits, the lowest first."""
    x = [*counters.astype(np.uint64).T]
    keys = [seed & (2**32 - 1), seed >> 32 & (2**32 - 1)]
    for _ in range(10):
        products = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [
            products[1] >> _HALF ^ x[1] ^ np.uint64(keys[0]),
            products[1] & _LOW,
            products[0] >> _HALF ^ x[3] ^ np.uint64(keys[1]),
            products[0] & _LOW,
        ]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack(x, 1).astype(np.uint32)


def keep_threshold(p: float) -> tuple[int, float]:
    """The threshold of random bits, below which numbers are dropped, and the factor of the kept numbers.

    The probability is rounded to a multiple of 2^-32; the factor is one over the probability of being kept.
    """
    threshold = min(round(p * 2**32), 2**32 - 1)
    return threshold, 1 / (1 - threshold / 2**32)


def kept_numbers(seed: int, count: int, p: float) -> npt.NDArray[np.bool_]:
    """Which of `count` numbers in a row the kernel of dropout keeps, `(count,)`, at probability `p` of dropping one."""
    number = np.arange(-(-count // (4 * _GROUP)) * _GROUP, dtype=np.uint64)
    words = philox(seed, np.stack([number & _LOW, number >> _HALF, 0 * number, 0 * number], 1))
    # of 8 counters words 0 and 1 come first, then words 2 and 3
    in_order = words.reshape(-1, _GROUP, 2, 2).transpose(0, 2, 1, 3).reshape(-1)[:count]
    kept: npt.NDArray[np.bool_] = in_order >= keep_threshold(p)[0]
    return kept
