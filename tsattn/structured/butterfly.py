"""Butterfly matrices: products of block factors, one for each radix of the width.

Source: Dao et al., *Learning Fast Algorithms for Linear Transforms Using Butterfly Factorizations* (2019); Dao et al.
(2022), section 3, for their relation to Monarch matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.structured.base import StructuredMatrix
from tsattn.structured.block_tensor_train import square_width
from tsattn.structured.blocks import AxisSplit, BlockFactor, BlockProduct, normal
from tsattn.structured.level import Level, LevelShape

__all__ = ["Butterfly", "prime_factors"]


def prime_factors(number: int) -> tuple[int, ...]:
    """The primes whose product is `number`, smallest first; `(1,)` for 1."""

    def primes(rest: int) -> Iterator[int]:
        divisor = 2
        while rest > 1:
            if divisor * divisor > rest:
                divisor = rest
            if rest % divisor:
                divisor += 1
            else:
                yield divisor
                rest //= divisor

    return tuple(primes(number)) or (1,)


@dataclass(frozen=True, eq=False)
class Butterfly(StructuredMatrix):
    """`M = F_1 F_2 .. F_k` of width `D = n_1 n_2 .. n_k`: `D sum_j n_j` numbers a head, `2 D log2 D` for a power of 2.

    With the D numbers as an `n_1 x .. x n_k` array, `F_j` mixes axis j, with a matrix of its own for each index of the
    other axes. Two radices `(a, b)` make a Monarch matrix.

    Attributes:
        factors: for each j `(..., D/n_j, n_j, n_j)`, the blocks in the order of the other axes.

    Raises:
        UserError: the factors are not of one width.
    """

    factors: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        width = math.prod(self.radices)
        for factor in self.factors:
            count, rows, columns = factor.shape[-3:]
            if rows != columns or count * rows != width:
                raise UserError(
                    f"a butterfly factor of width {width} has {width // rows} blocks of {rows} x {rows}, "
                    f"not {count} of {rows} x {columns}"
                )

    @property
    def radices(self) -> tuple[int, ...]:
        """`n_1 .. n_k`."""
        return tuple(factor.shape[-1] for factor in self.factors)

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        """One product, of one factor a radix."""
        factors = []
        for index, (blocks, radix) in enumerate(zip(self.factors, self.radices, strict=True)):
            axis = AxisSplit(math.prod(self.radices[:index]), radix, math.prod(self.radices[index + 1 :]), 1)
            factors.append(BlockFactor(blocks, axis, axis))
        return (BlockProduct(tuple(reversed(factors))),)

    @classmethod
    def random(
        cls,
        radices: Sequence[int],
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> Butterfly:
        """Normal factors of variance `1 / n_j`; `prime_factors(width)` are the finest radices of a width."""
        width = math.prod(radices)
        return cls(tuple(normal(*heads, width // n, n, n, fan_in=n, generator=generator, dtype=dtype) for n in radices))

    @classmethod
    def project(cls, dense: Tensor, radices: Sequence[int]) -> Butterfly:
        """A member near `(*heads, D, D)`: the radices are split off one by one, each split the nearest.

        `F_1` times the product of the others is a Monarch matrix, whose right blocks are in turn butterflies of the
        other radices. A member is recovered exactly and two radices give the nearest member (see `BTT.project`); with
        more the splits are the best one at a time, not together (Le et al., *Fast learning of fast transforms, with
        guarantees*, 2022).

        Raises:
            UserError: the matrix is not square or the radices do not multiply to D.
        """
        width = square_width(dense)
        if math.prod(radices) != width:
            raise UserError(f"the radices {tuple(radices)} do not multiply to the width {width}")
        rest = dense.detach()[..., None, :, :]
        factors = []
        for radix in radices[:-1]:
            others = rest.shape[-1] // radix
            level = Level.nearest(rest, LevelShape(1, others, radix, shuffled=True))
            factors.append(level.left.flatten(-4, -3))
            rest = level.right.transpose(-1, -2).flatten(-4, -3)
        return cls((*factors, rest))
