"""The classes of structured matrices: multi-level block tensor contractions (MLBTC) and their special cases.

Source: Kuang et al. (ICML 2025), section 3. Shape letters here: D = a b = c d is the width of a square matrix, s its
TT-rank. Level l has p_l blocks of rank r_l. `...` is any number of leading axes (heads).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import Unpack, override

from tsattn.errors import UserError, whole_number
from tsattn.structured.level import Fitting, Level, LevelShape, fit_levels
from tsattn.structured.linear_operators import BlockFactor, BlockProduct, Drawing, StructuredMatrix, mapped


def block_sizes(width: int, divisor: str = "below") -> tuple[int, int, int, int]:
    """The block sizes `(a, b, c, d)` of a square BTT matrix: a = c a divisor of `width`, b = d the other one.

    With this pairing the matrix reaches full rank at TT-rank 1; with a and b exchanged on one side it does not.

    Args:
        width: D.
        divisor: ``below``, the largest up to the root of D, or ``above``, the smallest above the root. With ``above``,
            a and b differ even if D is a square (except for D = 1).

    Raises:
        UserError: another `divisor`.
    """
    if divisor not in ("below", "above"):
        raise UserError(f"divisor must be one of below, above, not {divisor!r}")
    width = whole_number("width", width)
    root = math.isqrt(width)
    candidates = range(root, 0, -1) if divisor == "below" else (*range(root + 1, width + 1), width)
    a = next(n for n in candidates if width % n == 0)
    return a, width // a, a, width // a


def _square_width(dense: Tensor) -> int:
    """D of `(..., D, D)`; raises `UserError` for other shapes."""
    rows, columns = dense.shape[-2:]
    if rows != columns:
        raise UserError(f"a square matrix is needed, not {rows} x {columns}")
    return rows


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

    def inner(self, x: Tensor) -> Tensor:
        """`P_R diag(R^T) x` of all levels, concatenated: maps `(..., N, in)` to `(..., *heads, N, W)`.

        W is `sum_l p_l r_l` for MLR, `b c s` for BTT. The product with `outer_transposed(y)` is `y M x`, so the two
        make a key and a query.
        """
        return _concatenated([(level.right_factor, 1.0) for level in self.levels], x)

    def outer_transposed(self, x: Tensor) -> Tensor:
        """`alpha diag(L^T) P_L^T x` of all levels, concatenated: maps `(..., N, out)` to `(..., *heads, N, W)`."""
        return _concatenated([(level.left_factor.T, level.scale) for level in self.levels], x)


def _concatenated(factors: Sequence[tuple[BlockFactor, float]], x: Tensor) -> Tensor:
    """Each factor times its scale applied to `(..., N, D)`, concatenated: `(..., *heads, N, W)`."""

    def by_factors(vectors: Tensor) -> Tensor:
        parts = [factor.matmul(vectors) if scale == 1 else scale * factor.matmul(vectors) for factor, scale in factors]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    heads = math.prod(factors[0][0].heads)
    widths = [factor.target.blocks * factor.target.size for factor, _ in factors]
    multiply_adds = heads * sum(factor.multiply_adds for factor, _ in factors)
    return mapped(by_factors, x, multiply_adds, heads * sum(widths))


@dataclass(frozen=True, eq=False)
class MLBTC(MultiLevel):
    """`M = sum_l alpha_l P_L diag(L_l,1 .. L_l,p'_l) P_R diag(R_l,1^T .. R_l,p_l^T)`.

    Kuang et al. (ICML 2025), section 3. MLR and BTT matrices are members: their `levels` say how. So are
    Monarch matrices (BTT of TT-rank 1 with square blocks) and Kronecker products (TT-rank 1, equal blocks).

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
        """Draw normal factors of variance 1 / fan-in, which keep the scale of their input.

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
    def project(cls, dense: Tensor, shapes: Sequence[LevelShape], **fitting: Unpack[Fitting]) -> MLBTC:
        """Find a member near `(*heads, out, in)`: the nearest for one level, else a fixed point of `fit_levels`."""
        levels, _ = fit_levels(dense, shapes, **fitting)
        return cls(levels)


@dataclass(frozen=True, eq=False)
class MLR(MultiLevel):
    """`M = sum_l diag(L_l,1 R_l,1^T .. L_l,p_l R_l,p_l^T)`: `(out + in) sum_l r_l` numbers per head.

    One level of one block is a low-rank matrix, such as standard attention's `W_Q W_K^T`. Source: Parshakova et al.,
    *Factor fitting, rank allocation, and partitioning in multilevel low rank matrices* (2023); as an attention's
    bilinear form, Kuang et al.

    Attributes:
        left: one tensor per level, `(..., p_l, out/p_l, r_l)`.
        right: one tensor per level, `(..., p_l, in/p_l, r_l)`.
    """

    left: tuple[Tensor, ...]
    right: tuple[Tensor, ...]

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """The levels, coarse to fine as they are stored."""
        return tuple(Level(left, right, shuffled=False) for left, right in zip(self.left, self.right, strict=True))

    @staticmethod
    def shapes(ranks: Sequence[int], blocks: Sequence[int] | None = None) -> tuple[LevelShape, ...]:
        """The levels of ranks `r_l` and `p_l` blocks, by default `1, 2, 4 ..`; raises `UserError` if they differ."""
        blocks = [2**level for level in range(len(ranks))] if blocks is None else blocks
        if len(blocks) != len(ranks):
            raise UserError(f"blocks {list(blocks)} must have one entry for each of the {len(ranks)} ranks")
        return tuple(LevelShape(rank, p, p) for rank, p in zip(ranks, blocks, strict=True))

    @classmethod
    def from_levels(cls, levels: Sequence[Level]) -> MLR:
        """Take levels that are not shuffled and have scale 1."""
        return cls(tuple(level.left for level in levels), tuple(level.right for level in levels))

    @classmethod
    def random(
        cls,
        out_features: int,
        in_features: int,
        ranks: Sequence[int],
        blocks: Sequence[int] | None = None,
        **drawing: Unpack[Drawing],
    ) -> MLR:
        """Draw normal factors of variance 1 / fan-in: `in/p_l` on the right, `sum_l r_l` on the left.

        Raises:
            UserError: ranks and blocks that do not fit each other or the matrix.
        """
        shapes = cls.shapes(ranks, blocks)
        drawn = MLBTC.random(out_features, in_features, shapes, **drawing)
        return cls.from_levels(drawn.levels)

    @classmethod
    def project(
        cls,
        dense: Tensor,
        ranks: Sequence[int],
        blocks: Sequence[int] | None = None,
        **fitting: Unpack[Fitting],
    ) -> MLR:
        """Find a member near `(*heads, out, in)`, see `MLBTC.project`.

        Raises:
            UserError: ranks and blocks that do not fit each other or the matrix.
        """
        shapes = cls.shapes(ranks, blocks)
        levels, _ = fit_levels(dense, shapes, **fitting)
        return cls.from_levels(levels)


@dataclass(frozen=True, eq=False)
class BTT(MultiLevel):
    """`M = P_L diag(L_1 .. L_b) P_R diag(R_1^T .. R_c^T)`, a D x D matrix for each leading index.

    Two block-diagonal factors between two fixed permutations. `left` and `right` may have different heads where only
    `inner` and `outer_transposed` are used. Source: Qiu et al., *Compute Better Spent* (2024); Kuang et al.

    Attributes:
        left: `(..., b, a, c s)`, the blocks L.
        right: `(..., c, d, b s)`, the blocks R.
    """

    left: Tensor
    right: Tensor

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """One shuffled level."""
        return (Level(self.left, self.right, shuffled=True),)

    @classmethod
    def random(
        cls,
        width: int,
        rank: int,
        *,
        left_heads: int,
        right_heads: int,
        divisor: str = "below",
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> BTT:
        """Draw normal factors of variance 1 / fan-in; the fan-in of a block is its input size (d and c s)."""
        _, b, c, _ = block_sizes(width, divisor)
        level = Level.random(
            width,
            width,
            LevelShape(rank, b, c, shuffled=True),
            left_fan_in=c * rank,
            left_heads=(left_heads,),
            right_heads=(right_heads,),
            generator=generator,
            dtype=dtype,
        )
        return cls(level.left, level.right)

    @classmethod
    def project(cls, dense: Tensor, rank: int, *, divisor: str = "below") -> BTT:
        """Find the nearest to `(*heads, D, D)`, in closed form (see `Level.nearest`).

        Sorted by `(k', k)`, the entries of M fall into `b c` blocks of shape `a x d`. Block `(k', k)` is the product of
        the k-th slice of `L_k'` and the k'-th slice of `R_k`. No slice serves two blocks, and a product of the two is
        any matrix of rank at most s. So each block may be fitted alone, by its truncated SVD.

        Raises:
            UserError: the matrix is not square, the rank not positive, or another `divisor`.
        """
        _, b, c, _ = block_sizes(_square_width(dense), divisor)
        level = Level.nearest(dense, LevelShape(rank, b, c, shuffled=True))
        return cls(level.left, level.right)
