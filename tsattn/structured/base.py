"""What every structured matrix can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.structured.blocks import BlockProduct, broadcast, with_head_axes
from tsattn.structured.formed_maps import applied

__all__ = ["StructuredMatrix", "Transposed"]


class StructuredMatrix(ABC):
    """An `out x in` matrix for each leading index ("head"), kept as factors and never formed unless asked to.

    A class of the family stores its factors and names the `products` of block-diagonal factors whose sum it is; all
    else follows. Each class also has two constructors, whose arguments are its own: `random`, with normal factors of
    variance 1 / fan-in (muP), the fan-in of a block-diagonal factor being what one of its outputs reads; and
    `project`, a member near a dense matrix in the Frobenius norm, with no gradient. Where the nearest member is known
    in closed form, `project` gives it, and its docstring says so.
    """

    @property
    @abstractmethod
    def products(self) -> Sequence[BlockProduct]:
        """The products of block-diagonal factors whose sum is the matrix."""

    @property
    def heads(self) -> torch.Size:
        """The leading axes."""
        return broadcast(product.heads for product in self.products)

    @property
    def shape(self) -> torch.Size:
        """`(*heads, out, in)`."""
        target, source = self.products[0].factors[-1].target, self.products[0].factors[0].source
        return torch.Size([*self.heads, target.blocks * target.size, source.blocks * source.size])

    @property
    def rank_bound(self) -> int:
        """The largest rank that a head can have; random factors reach it."""
        rows, columns = self.shape[-2:]
        return min(rows, columns, sum(product.rank_bound for product in self.products))

    @property
    def T(self) -> StructuredMatrix:
        """The transpose of each head."""
        return Transposed(self)

    def matmul(self, x: Tensor) -> Tensor:
        """`M x` for every head: maps `(..., N, in)` to `(..., *heads, N, out)`."""
        axes = max(len(factor.heads) for product in self.products for factor in product.factors)

        def by_factors(vectors: Tensor) -> Tensor:
            return self.apply(with_head_axes(vectors, axes))

        return applied(by_factors, x, self.flops(1) // 2, math.prod(self.heads) * self.shape[-2])

    def matmul_transposed(self, x: Tensor) -> Tensor:
        """`M^T x` for every head: maps `(..., N, out)` to `(..., *heads, N, in)`."""
        return self.T.matmul(x)

    def apply(self, x: Tensor) -> Tensor:
        """`M x` where each head has its own vectors: maps `(..., *heads, N, in)` to `(..., *heads, N, out)`."""
        first, *others = self.products
        total = first.apply(x)
        for product in others:
            total = total + product.apply(x)
        return total

    def to_dense(self) -> Tensor:
        """M itself, `(*heads, out, in)`."""
        blocks = self.products[0].factors[0].blocks
        eye = torch.eye(self.shape[-1], dtype=blocks.dtype, device=blocks.device)
        return self.matmul(eye).transpose(-1, -2)

    def num_params(self) -> int:
        """Numbers stored, all heads together."""
        return sum(product.num_params() for product in self.products)

    def flops(self, num_vectors: int) -> int:
        """Flops of the matrix products in applying every head to `num_vectors` vectors; a multiply-add is 2."""
        return sum(product.flops(num_vectors) for product in self.products)


@dataclass(frozen=True, eq=False)
class Transposed(StructuredMatrix):
    """The transpose of a matrix whose class is not closed under transposition."""

    matrix: StructuredMatrix

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        return tuple(product.T for product in self.matrix.products)

    @property
    @override
    def rank_bound(self) -> int:
        return self.matrix.rank_bound

    @property
    @override
    def T(self) -> StructuredMatrix:
        """The matrix itself."""
        return self.matrix
