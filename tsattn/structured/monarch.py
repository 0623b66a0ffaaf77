"""Monarch matrices: BTT matrices of TT-rank 1 with square blocks.

Source: Dao et al., *Monarch: Expressive Structured Matrices for Efficient and Accurate Training* (2022), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.structured.block_tensor_contraction import MLBTC, MultiLevel
from tsattn.structured.block_tensor_train import BTT, block_sizes, square_width
from tsattn.structured.level import Level, LevelShape

__all__ = ["Monarch"]


@dataclass(frozen=True, eq=False)
class Monarch(MultiLevel):
    """`M = P_L diag(L_1 .. L_b) P_R diag(R_1^T .. R_a^T)` of width `D = a b`: `D (a + b)` numbers a head.

    Attributes:
        left: `(..., b, a, a)`, the blocks L.
        right: `(..., a, b, b)`, the blocks R.

    Raises:
        UserError: the blocks are not square or do not fit each other.
    """

    left: Tensor
    right: Tensor

    def __post_init__(self) -> None:
        (b, *square_left), (a, *square_right) = self.left.shape[-3:], self.right.shape[-3:]
        if square_left != [a, a] or square_right != [b, b]:
            raise UserError(
                f"Monarch blocks are (b, a, a) and (a, b, b), "
                f"not {tuple(self.left.shape[-3:])} and {tuple(self.right.shape[-3:])}"
            )

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """One shuffled level of rank 1."""
        return (Level(self.left, self.right, shuffled=True),)

    def to_btt(self) -> BTT:
        """The same matrix as BTT; shares the factors."""
        return BTT(self.left, self.right, rank=1)

    @staticmethod
    def level_shape(width: int, block_size: int | None = None) -> LevelShape:
        """The level with left blocks of a x a, by default as near to square root of the width as it can be divided.

        Raises:
            UserError: `block_size` does not divide the width.
        """
        a = block_sizes(width)[0] if block_size is None else block_size
        if a < 1 or width % a:
            raise UserError(f"block_size must divide the width {width}, and {a} does not")
        return LevelShape(1, width // a, a, shuffled=True)

    @classmethod
    def random(
        cls,
        width: int,
        block_size: int | None = None,
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> Monarch:
        """Normal factors of variance 1 / fan-in, b on the right and `a = block_size` on the left."""
        shapes = [cls.level_shape(width, block_size)]
        (level,) = MLBTC.random(width, width, shapes, heads=heads, generator=generator, dtype=dtype).levels
        return cls(level.left, level.right)

    @classmethod
    def project(cls, dense: Tensor, block_size: int | None = None) -> Monarch:
        """The nearest to `(*heads, D, D)`: the best rank-1 approximation of each block (see `BTT.project`).

        Raises:
            UserError: the matrix is not square, or `block_size` does not divide D.
        """
        level = Level.nearest(dense, cls.level_shape(square_width(dense), block_size))
        return cls(level.left, level.right)
