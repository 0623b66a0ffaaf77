"""Multi-level low-rank (MLR) matrices.

Source: Parshakova et al., *Factor fitting, rank allocation, and partitioning in multilevel low rank matrices* (2023);
as an attention's bilinear form, Kuang et al. (ICML 2025), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.structured.block_tensor_contraction import MLBTC, MultiLevel
from tsattn.structured.level import Level, LevelShape, fit_levels

__all__ = ["MLR"]


@dataclass(frozen=True, eq=False)
class MLR(MultiLevel):
    """`M = sum_l diag(L_l,1 R_l,1^T .. L_l,p_l R_l,p_l^T)`: `(out + in) sum_l r_l` numbers a head.

    Attributes:
        left: one tensor a level, `(..., p_l, out/p_l, r_l)`.
        right: one tensor a level, `(..., p_l, in/p_l, r_l)`.

    Raises:
        UserError: not as many left as right factors, or none.
    """

    left: tuple[Tensor, ...]
    right: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        if not self.left or len(self.left) != len(self.right):
            raise UserError(f"{len(self.left)} left and {len(self.right)} right factors do not make levels")

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """The levels, coarse to fine as they are stored."""
        return tuple(Level(left, right, shuffled=False) for left, right in zip(self.left, self.right, strict=True))

    @property
    @override
    def T(self) -> MLR:
        """The transpose, again MLR."""
        return MLR(self.right, self.left)

    @staticmethod
    def shapes(ranks: Sequence[int], blocks: Sequence[int] | None = None) -> tuple[LevelShape, ...]:
        """The levels of ranks `r_l` and `p_l` blocks, by default `1, 2, 4 ..`; raises `UserError` if they differ."""
        blocks = [2**level for level in range(len(ranks))] if blocks is None else blocks
        if len(blocks) != len(ranks):
            raise UserError(f"{len(ranks)} ranks need as many numbers of blocks, not {len(blocks)}")
        return tuple(LevelShape(rank, p, p) for rank, p in zip(ranks, blocks, strict=True))

    @classmethod
    def from_levels(cls, levels: Sequence[Level]) -> MLR:
        """From levels that are not shuffled and have scale 1."""
        return cls(tuple(level.left for level in levels), tuple(level.right for level in levels))

    @classmethod
    def random(
        cls,
        out_features: int,
        in_features: int,
        ranks: Sequence[int],
        blocks: Sequence[int] | None = None,
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> MLR:
        """Normal factors of variance 1 / fan-in: `in/p_l` on the right, `sum_l r_l` on the left.

        Args:
            out_features: rows.
            in_features: columns.
            ranks: `r_l`.
            blocks: `p_l`, by default `1, 2, 4 ..`; each divides rows and columns.
            heads: the leading axes.
            generator: of the random numbers.
            dtype: of the factors.

        Raises:
            UserError: ranks and blocks that do not fit each other or the matrix.
        """
        shapes = cls.shapes(ranks, blocks)
        return cls.from_levels(
            MLBTC.random(out_features, in_features, shapes, heads=heads, generator=generator, dtype=dtype).levels
        )

    @classmethod
    def project(
        cls,
        dense: Tensor,
        ranks: Sequence[int],
        blocks: Sequence[int] | None = None,
        *,
        tolerance: float = 1e-4,
        max_sweeps: int = 500,
        restarts: int = 0,
        seed: int = 0,
    ) -> MLR:
        """A member near `(*heads, out, in)`, by the block coordinate descent of `fit_levels`.

        It is the nearest for one level. With more, `restarts` from random levels of a `seed` may find a nearer one, and
        never a farther one.

        Raises:
            UserError: ranks and blocks that do not fit each other or the matrix.
        """
        levels, _ = fit_levels(
            dense,
            cls.shapes(ranks, blocks),
            tolerance=tolerance,
            max_sweeps=max_sweeps,
            restarts=restarts,
            seed=seed,
        )
        return cls.from_levels(levels)
