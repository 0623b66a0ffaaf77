"""Low-rank matrices: the structure of standard attention's `W_Q W_K^T`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.structured.block_tensor_contraction import MLBTC, MultiLevel
from tsattn.structured.level import Level, LevelShape

__all__ = ["LowRank"]


@dataclass(frozen=True, eq=False)
class LowRank(MultiLevel):
    """`M = L R^T`, of rank at most r and `(out + in) r` numbers a head.

    Attributes:
        left: `(..., out, r)`.
        right: `(..., in, r)`.
    """

    left: Tensor
    right: Tensor

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """One level of one block."""
        return (Level(self.left[..., None, :, :], self.right[..., None, :, :], shuffled=False),)

    @property
    @override
    def T(self) -> LowRank:
        """The transpose, again of low rank."""
        return LowRank(self.right, self.left)

    @classmethod
    def from_level(cls, level: Level) -> LowRank:
        """From a level of one block."""
        return cls(level.left[..., 0, :, :], level.right[..., 0, :, :])

    @classmethod
    def random(
        cls,
        out_features: int,
        in_features: int,
        rank: int,
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> LowRank:
        """Normal factors of variance 1 / fan-in: `in_features` on the right, `rank` on the left."""
        shapes = [LevelShape(rank)]
        (level,) = MLBTC.random(out_features, in_features, shapes, heads=heads, generator=generator, dtype=dtype).levels
        return cls.from_level(level)

    @classmethod
    def project(cls, dense: Tensor, rank: int) -> LowRank:
        """The nearest to `(*heads, out, in)`: its truncated SVD (Eckart and Young 1936)."""
        return cls.from_level(Level.nearest(dense, LevelShape(rank)))
