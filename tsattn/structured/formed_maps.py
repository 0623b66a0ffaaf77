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

__all__ = ["applied", "by_factors"]

_LEAST_VECTORS = 4
"""Vectors beside the length of one, from which on forming a matrix costs next to nothing."""

_MOST_FLOPS = 4.0
"""Flops of the formed matrix over those of its factors up to which it is formed: on one thread of an Intel Xeon with
AVX-512 its product came to 7 to 10 times as many flops a second, forward and backward."""

_by_factors: ContextVar[bool] = ContextVar("by_factors", default=False)


@contextlib.contextmanager
def by_factors() -> Iterator[None]:
    """Apply factor by factor inside: what is counted there are the flops of the structure."""
    token = _by_factors.set(True)
    try:
        yield
    finally:
        _by_factors.reset(token)


def applied(apply: Callable[[Tensor], Tensor], x: Tensor, multiply_adds: int, outputs: int) -> Tensor:
    """`apply(x)`, by whichever way takes less time.

    Args:
        apply: a linear map of vectors `(..., N, D)` to `(..., *heads, N, W)`, factor by factor.
        x: `(..., N, D)`.
        multiply_adds: of that for one vector, all heads together.
        outputs: heads times W.
    """
    D = x.shape[-1]
    if D * outputs > _MOST_FLOPS * multiply_adds:
        return apply(x)
    # a graph is one for any number of vectors, and cannot ask for a context variable
    if not torch.compiler.is_compiling() and (_by_factors.get() or x.shape[:-1].numel() < _LEAST_VECTORS * D):
        return apply(x)
    formed = apply(torch.eye(D, dtype=x.dtype, device=x.device))  # (*heads, D, W)
    y = x @ formed.movedim(-2, 0).reshape(D, outputs)
    return y.reshape(*x.shape[:-1], *formed.shape[:-2], formed.shape[-1]).movedim(x.dim() - 2, -2)
