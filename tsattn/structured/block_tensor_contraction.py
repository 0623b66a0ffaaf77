"""The multi-level block tensor contraction (MLBTC): the sum form that contains the other classes.

Source: Kuang et al. (ICML 2025), section 3.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.structured.base import StructuredMatrix
from tsattn.structured.blocks import BlockFactor, BlockProduct
from tsattn.structured.formed_maps import applied
from tsattn.structured.level import Level, LevelShape, fit_levels

__all__ = ["MLBTC", "MultiLevel"]


class MultiLevel(StructuredMatrix):
    """A matrix that is a sum of levels: a member of the MLBTC family, whatever it stores."""

    @property
    @abstractmethod
    def levels(self) -> Sequence[Level]:
        """The levels whose sum is the matrix."""

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        return tuple(level.product for level in self.levels)

    def to_mlbtc(self) -> MLBTC:
        """The same matrix in the general form; shares the factors."""
        return MLBTC(tuple(self.levels))

    def inner(self, x: Tensor) -> Tensor:
        """`P_R diag(R^T) x` of all levels, concatenated: maps `(..., N, in)` to `(..., *heads, N, W)`.

        W is `sum_l p_l r_l` for MLR, `b c s` for BTT. The product with `outer_transposed(y)` is `y M x`, so the two
        make a key and a query.
        """
        return _applied([(level.right_factor, 1.0) for level in self.levels], x)

    def outer_transposed(self, x: Tensor) -> Tensor:
        """`alpha diag(L^T) P_L^T x` of all levels, concatenated: maps `(..., N, out)` to `(..., *heads, N, W)`."""
        return _applied([(level.left_factor.T, level.scale) for level in self.levels], x)


def _applied(factors: Sequence[tuple[BlockFactor, float]], x: Tensor) -> Tensor:
    """Each factor times its scale applied to `(..., N, D)`, one behind the other: `(..., *heads, N, W)`."""

    def by_factors(vectors: Tensor) -> Tensor:
        mapped = [(factor.matmul(vectors), scale) for factor, scale in factors]
        return concatenate([y if scale == 1 else scale * y for y, scale in mapped])

    heads = math.prod(factors[0][0].heads)
    widths = [factor.target.blocks * factor.target.size for factor, _ in factors]
    multiply_adds = heads * sum(factor.multiply_adds for factor, _ in factors)
    return applied(by_factors, x, multiply_adds, heads * sum(widths))


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Along the last axis; one part alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=-1)


@dataclass(frozen=True, eq=False)
class MLBTC(MultiLevel):
    """`M = sum_l alpha_l P_L diag(L_l,1 .. L_l,p'_l) P_R diag(R_l,1^T .. R_l,p_l^T)`.

    Kuang et al. (ICML 2025), section 3. Dense, low-rank, MLR, BTT, Monarch and Kronecker matrices are members: their
    `to_mlbtc()` says how.

    Attributes:
        terms: the levels, each with its own blocks, permutations and alpha.

    Raises:
        UserError: no terms.
    """

    terms: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.terms:
            raise UserError("at least one level is needed")

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """The terms."""
        return self.terms

    @classmethod
    def random(
        cls,
        out_features: int,
        in_features: int,
        shapes: Sequence[LevelShape],
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> MLBTC:
        """Normal factors of variance 1 / fan-in, which keep the scale of their input.

        The fan-in of a right factor is its block's input size. An output of the matrix reads the left inputs of every
        level at once, so the fan-in of the left factors is their sum: `c s` for BTT, `sum_l r_l` for MLR.

        Raises:
            UserError: blocks that do not divide the matrix.
        """
        fan_in = sum(shape.left_inputs for shape in shapes)
        levels = (
            Level.random(
                out_features,
                in_features,
                shape,
                left_fan_in=fan_in,
                left_heads=heads,
                right_heads=heads,
                generator=generator,
                dtype=dtype,
            )
            for shape in shapes
        )
        return cls(tuple(levels))

    @classmethod
    def project(
        cls,
        dense: Tensor,
        shapes: Sequence[LevelShape],
        *,
        tolerance: float = 1e-4,
        max_sweeps: int = 500,
        restarts: int = 0,
        seed: int = 0,
    ) -> MLBTC:
        """A member near `(*heads, out, in)`: the nearest for one level, else a fixed point of `fit_levels`.

        With more levels `restarts` from random levels of a `seed` may find a nearer one, and never a farther one.
        """
        levels, _ = fit_levels(dense, shapes, tolerance=tolerance, max_sweeps=max_sweeps, restarts=restarts, seed=seed)
        return cls(levels)
