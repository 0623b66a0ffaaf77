"""The classes of structured matrices: multi-level block tensor contractions (MLBTC), their special cases, butterflies.

Source: Kuang et al. (ICML 2025), section 3. Shape letters here: D = a b = c d is the width of a square matrix, s its
TT-rank. Level l has p_l blocks of rank r_l. `...` is any number of leading axes (heads).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor
from typing_extensions import Unpack, override

from tsattn.errors import UserError, whole_number
from tsattn.structured.level import Fitting, Level, LevelShape, fit_levels, truncated_svd
from tsattn.structured.linear_operators import (
    AxisSplit,
    BlockFactor,
    BlockProduct,
    Drawing,
    StructuredMatrix,
    mapped,
    normal,
    piece,
)


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

    def to_mlbtc(self) -> MLBTC:
        """This matrix in the general form, with the same factors."""
        return MLBTC(tuple(self.levels))

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

    Kuang et al. (ICML 2025), section 3. Low-rank, MLR, BTT, Monarch and Kronecker matrices are members: their
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
class LowRank(MultiLevel):
    """`M = L R^T`, of rank at most r, `(out + in) r` numbers per head: standard attention's `W_Q W_K^T`.

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

    @classmethod
    def random(cls, out_features: int, in_features: int, rank: int, **drawing: Unpack[Drawing]) -> LowRank:
        """Draw normal factors of variance 1 / fan-in: `in_features` on the right, `rank` on the left."""
        shapes = [LevelShape(rank)]
        (level,) = MLBTC.random(out_features, in_features, shapes, **drawing).levels
        return cls(level.left[..., 0, :, :], level.right[..., 0, :, :])

    @classmethod
    def project(cls, dense: Tensor, rank: int) -> LowRank:
        """Find the nearest to `(*heads, out, in)`: its truncated SVD (Eckart and Young 1936)."""
        level = Level.nearest(dense, LevelShape(rank))
        return cls(level.left[..., 0, :, :], level.right[..., 0, :, :])


@dataclass(frozen=True, eq=False)
class MLR(MultiLevel):
    """`M = sum_l diag(L_l,1 R_l,1^T .. L_l,p_l R_l,p_l^T)`: `(out + in) sum_l r_l` numbers per head.

    Source: Parshakova et al., *Factor fitting, rank allocation, and partitioning in multilevel low rank matrices*
    (2023); as an attention's bilinear form, Kuang et al.

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


@dataclass(frozen=True, eq=False)
class Monarch(MultiLevel):
    """`M = P_L diag(L_1 .. L_b) P_R diag(R_1^T .. R_a^T)` of width `D = a b`: `D (a + b)` numbers a head.

    BTT matrices of TT-rank 1 with square blocks. Source: Dao et al., *Monarch: Expressive Structured Matrices for
    Efficient and Accurate Training* (2022), section 3.

    Attributes:
        left: `(..., b, a, a)`, the blocks L.
        right: `(..., a, b, b)`, the blocks R.
    """

    left: Tensor
    right: Tensor

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """One shuffled level of rank 1."""
        return (Level(self.left, self.right, shuffled=True),)

    @classmethod
    def random(cls, width: int, block_size: int | None = None, **drawing: Unpack[Drawing]) -> Monarch:
        """Draw normal factors of variance 1 / fan-in, b on the right and `a = block_size` on the left.

        By default a is the largest divisor of the width up to its root.

        Raises:
            UserError: `block_size` does not divide the width.
        """
        shapes = [_monarch_shape(width, block_size)]
        (level,) = MLBTC.random(width, width, shapes, **drawing).levels
        return cls(level.left, level.right)

    @classmethod
    def project(cls, dense: Tensor, block_size: int | None = None) -> Monarch:
        """Find the nearest to `(*heads, D, D)`: the best rank-1 approximation of each block (see `BTT.project`).

        Raises:
            UserError: the matrix is not square, or `block_size` does not divide D.
        """
        level = Level.nearest(dense, _monarch_shape(_square_width(dense), block_size))
        return cls(level.left, level.right)


def _monarch_shape(width: int, block_size: int | None) -> LevelShape:
    a = block_sizes(width)[0] if block_size is None else block_size
    if a < 1 or width % a:
        raise UserError(f"block_size must divide the width {width}, and {a} does not")
    return LevelShape(1, width // a, a, shuffled=True)


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

    @classmethod
    def random(
        cls,
        left_shape: tuple[int, int],
        right_shape: tuple[int, int],
        **drawing: Unpack[Drawing],
    ) -> Kronecker:
        """Draw normal factors of variance 1 / fan-in, the columns of A `(a, c)` and of B `(b, d)`."""
        left = normal(*left_shape, fan_in=left_shape[1], **drawing)
        right = normal(*right_shape, fan_in=right_shape[1], **drawing)
        return cls(left, right)

    @classmethod
    def project(cls, dense: Tensor, left_shape: tuple[int, int]) -> Kronecker:
        """Find the nearest `A (x) B` to `(*heads, a b, c d)`, A of shape `left_shape`.

        With entry `((i, k), (j, l))` moved to `((i, j), (k, l))`, a Kronecker product becomes the outer product of the
        entries of A and of B. So the nearest is the best rank-1 approximation of the rearranged matrix (Van Loan and
        Pitsianis 1993).

        Raises:
            UserError: `left_shape` does not divide the matrix.
        """
        a, c = left_shape
        b = piece(dense.shape[-2], a)
        piece(dense.shape[-1], c)
        left, right = truncated_svd(rearrange(dense, "... (a b) (c d) -> ... (a c) (b d)", a=a, c=c), 1)
        return cls(rearrange(left, "... (a c) 1 -> ... a c", a=a), rearrange(right, "... (b d) 1 -> ... b d", b=b))


@dataclass(frozen=True, eq=False)
class Butterfly(StructuredMatrix):
    """`M = F_1 F_2 .. F_k` of width `D = n_1 n_2 .. n_k`: `D sum_j n_j` numbers a head, `2 D log2 D` for a power of 2.

    With the D numbers as an `n_1 x .. x n_k` array, `F_j` mixes axis j, with another matrix for each index of the other
    axes. Two radices `(a, b)` make a Monarch matrix. Source: Dao et al., *Learning Fast Algorithms for Linear
    Transforms Using Butterfly Factorizations* (2019); Dao et al. (2022), section 3, for their relation to Monarch.

    Attributes:
        factors: for each j `(..., D/n_j, n_j, n_j)`, the blocks in the order of the other axes.
    """

    factors: tuple[Tensor, ...]

    @property
    def radices(self) -> tuple[int, ...]:
        """`n_1 .. n_k`."""
        return tuple(factor.shape[-1] for factor in self.factors)

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        """One product, with one factor per radix."""
        factors = []
        for index, (blocks, radix) in enumerate(zip(self.factors, self.radices, strict=True)):
            axis = AxisSplit(math.prod(self.radices[:index]), radix, math.prod(self.radices[index + 1 :]), 1)
            factors.append(BlockFactor(blocks, axis, axis))
        return (BlockProduct(tuple(reversed(factors))),)

    @classmethod
    def random(cls, radices: Sequence[int], **drawing: Unpack[Drawing]) -> Butterfly:
        """Draw normal factors of variance `1 / n_j`; `prime_factors(width)` are the finest radices of a width."""
        width = math.prod(radices)
        return cls(tuple(normal(width // n, n, n, fan_in=n, **drawing) for n in radices))

    @classmethod
    def project(cls, dense: Tensor, radices: Sequence[int]) -> Butterfly:
        """Find a member near `(*heads, D, D)`: the radices are split off one by one, and each split is the nearest.

        `F_1` times the product of the others is a Monarch matrix, whose right blocks are in turn butterflies of the
        other radices. A member is recovered exactly, and two radices give the nearest member (see `BTT.project`). With
        more radices, the splits are the best one at a time, not together (Le et al., *Fast learning of fast transforms,
        with guarantees*, 2022).

        Raises:
            UserError: the matrix is not square or the radices do not multiply to D.
        """
        width = _square_width(dense)
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
