"""Kronecker products of two matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.structured.block_tensor_contraction import MultiLevel
from tsattn.structured.blocks import AxisSplit, BlockFactor, BlockProduct, normal, piece
from tsattn.structured.level import Level, truncated_svd

__all__ = ["Kronecker"]


@dataclass(frozen=True, eq=False)
class Kronecker(MultiLevel):
    """`M = A (x) B`: the BTT matrix of TT-rank 1 whose left blocks are all A and whose right blocks are all `B^T`.

    Attributes:
        left: `(..., a, c)`, A.
        right: `(..., b, d)`, B.
    """

    left: Tensor
    right: Tensor

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        """B along the minor axis of the input, then A along the major one."""
        (a, c), (b, d) = self.left.shape[-2:], self.right.shape[-2:]
        minor = BlockFactor(self.right[..., None, :, :], AxisSplit.neighbours(c, d), AxisSplit.neighbours(c, b))
        major = BlockFactor(self.left[..., None, :, :], AxisSplit.strided(b, c), AxisSplit.strided(b, a))
        return (BlockProduct((minor, major)),)

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """One shuffled level of rank 1; its equal blocks are expanded views."""
        (a, c), (b, d) = self.left.shape[-2:], self.right.shape[-2:]
        left = self.left[..., None, :, :].expand(*self.left.shape[:-2], b, a, c)
        right = self.right.transpose(-1, -2)[..., None, :, :].expand(*self.right.shape[:-2], c, d, b)
        return (Level(left, right, shuffled=True),)

    @property
    @override
    def rank_bound(self) -> int:
        """The product of the factors' ranks; equal blocks do not reach the bound of unequal ones."""
        return min(self.left.shape[-2:]) * min(self.right.shape[-2:])

    @property
    @override
    def T(self) -> Kronecker:
        """`A^T (x) B^T`."""
        return Kronecker(self.left.transpose(-1, -2), self.right.transpose(-1, -2))

    @classmethod
    def random(
        cls,
        left_shape: tuple[int, int],
        right_shape: tuple[int, int],
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> Kronecker:
        """Normal factors of variance 1 / fan-in, the columns of A `(a, c)` and of B `(b, d)`."""
        left = normal(*heads, *left_shape, fan_in=left_shape[1], generator=generator, dtype=dtype)
        right = normal(*heads, *right_shape, fan_in=right_shape[1], generator=generator, dtype=dtype)
        return cls(left, right)

    @classmethod
    def project(cls, dense: Tensor, left_shape: tuple[int, int]) -> Kronecker:
        """The nearest `A (x) B` to `(*heads, a b, c d)`, A of shape `left_shape`.

        With entry `((i, k), (j, l))` moved to `((i, j), (k, l))`, a Kronecker product becomes the outer product of
        the entries of A and of B, so the nearest is the best rank-1 approximation of the rearranged matrix (Van Loan
        and Pitsianis 1993).

        Raises:
            UserError: `left_shape` does not divide the matrix.
        """
        a, c = left_shape
        b = piece(dense.shape[-2], a)
        piece(dense.shape[-1], c)
        left, right = truncated_svd(rearrange(dense, "... (a b) (c d) -> ... (a c) (b d)", a=a, c=c), 1)
        return cls(rearrange(left, "... (a c) 1 -> ... a c", a=a), rearrange(right, "... (b d) 1 -> ... b d", b=b))
