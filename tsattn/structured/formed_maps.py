"""Two ways to apply a structured matrix: factor by factor, or formed once and multiplied by.

A factor is many small products, and the permutations between factors are copies. Where a matrix is small beside the
number of vectors it meets, one large product of the formed matrix takes less time, though more flops.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

__all__ = ["applied", "by_factors", "by_formed_maps"]

_LEAST_VECTORS = 4
"""Vectors beside the length of one, from which on forming a matrix costs next to nothing."""

_MOST_FLOPS = 4.0
"""Flops of the formed matrix over those of its factors up to which it is formed. On one thread of an Intel Xeon with
AVX-512 it took .2 to .7 of their time up to here, .75 at 5.4 and as long at 8 (`benchmarks/structured_maps.py`)."""

_formed: ContextVar[bool | None] = ContextVar("formed", default=None)  # None: by whichever way takes less time


@contextlib.contextmanager
def _each_formed(formed: bool) -> Iterator[None]:
    token = _formed.set(formed)
    try:
        yield
    finally:
        _formed.reset(token)


def by_factors() -> contextlib.AbstractContextManager[None]:
    """Apply factor by factor inside: what is counted there are the flops of the structure."""
    return _each_formed(False)


def by_formed_maps() -> contextlib.AbstractContextManager[None]:
    """Form every matrix inside, whatever its size."""
    return _each_formed(True)


def applied(apply: Callable[[Tensor], Tensor], x: Tensor, multiply_adds: int, outputs: int) -> Tensor:
    """`apply(x)`, by whichever way takes less time.

    Args:
        apply: a linear map of vectors `(..., N, D)` to `(..., *heads, N, W)`, factor by factor.
        x: `(..., N, D)`.
        multiply_adds: of that for one vector, all heads together.
        outputs: heads times W.
    """
    D = x.shape[-1]
    if not _is_formed(x, multiply_adds, outputs):
        return apply(x)
    formed = apply(torch.eye(D, dtype=x.dtype, device=x.device))  # (*heads, D, W)
    y = x @ formed.movedim(-2, 0).reshape(D, outputs)
    return y.reshape(*x.shape[:-1], *formed.shape[:-2], formed.shape[-1]).movedim(x.dim() - 2, -2)


def _is_formed(x: Tensor, multiply_adds: int, outputs: int) -> bool:
    D = x.shape[-1]
    is_small = D * outputs <= _MOST_FLOPS * multiply_adds
    if torch.compiler.is_compiling():  # a graph is one for any number of vectors, and cannot ask for a context variable
        return is_small
    if (formed := _formed.get()) is not None:
        return formed
    return is_small and x.shape[:-1].numel() >= _LEAST_VECTORS * D
