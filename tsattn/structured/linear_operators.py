"""Structured matrices as linear operators: sums of products of block-diagonal factors between permutations.

Shape letters here: k blocks, o outputs and i inputs of a block, `...` any number of leading axes (heads).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch
from einops import rearrange
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from typing_extensions import override

from tsattn.errors import UserError

_LEAST_VECTORS = 4
"""Vectors per component of a vector, from which on forming the matrix costs next to nothing."""

_MOST_FLOPS = 4.0
"""Most flops of the formed matrix, as a multiple of its factors' flops, for which it is formed. On one thread of an
Intel Xeon with AVX-512 it took .2 to .7 of the factors' time up to here. It took .75 at 5.4, and as long at 8."""


def piece(size: int, pieces: int) -> int:
    """The length of one of `pieces` equal pieces of an axis; raises `UserError` if they do not divide it."""
    if pieces < 1 or size % pieces:
        raise UserError(f"an axis of {size} numbers does not split into {pieces} equal blocks")
    return size // pieces


class Drawing(TypedDict, total=False):
    """Options of every `random`: the leading axes, and the generator (on whose device) and type of the numbers."""

    heads: Sequence[int]
    generator: torch.Generator | None
    dtype: torch.dtype | None


def normal(
    *shape: int,
    fan_in: int,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Draw normal numbers of variance `1 / fan_in`."""
    device = None if generator is None else generator.device
    return torch.randn(shape, generator=generator, dtype=dtype, device=device) / math.sqrt(fan_in)


def mapped(by_factors: Callable[[Tensor], Tensor], x: Tensor, multiply_adds: int, outputs: int) -> Tensor:
    """Apply a linear map to vectors: factor by factor, or as one product with the formed matrix where that is faster.

    A factor is many small products, and the permutations between factors are copies. Where a matrix is small compared
    with the number of vectors, one large product takes less time, though more flops.

    Args:
        by_factors: the map of vectors `(..., N, D)` to `(..., *heads, N, W)`, factor by factor.
        x: `(..., N, D)`.
        multiply_adds: of `by_factors` for one vector, all heads together.
        outputs: heads times W.
    """
    D = x.shape[-1]
    if not is_formed(x, D * outputs, multiply_adds):
        return by_factors(x)
    formed = by_factors(torch.eye(D, dtype=x.dtype, device=x.device))  # (*heads, D, W)
    y = x @ formed.movedim(-2, 0).reshape(D, outputs)
    return y.reshape(*x.shape[:-1], *formed.shape[:-2], formed.shape[-1]).movedim(x.dim() - 2, -2)


def is_formed(x: Tensor, formed: int, by_factors: int) -> bool:
    """Whether `mapped` forms the matrix for vectors `x (..., N, D)`, given the multiply-adds of either way."""
    is_small = formed <= _MOST_FLOPS * by_factors
    if torch.compiler.is_compiling():  # one graph serves any number of vectors
        return is_small
    # a counter of flops counts the structure's flops
    return is_small and x.shape[:-1].numel() >= _LEAST_VECTORS * x.shape[-1] and not is_in_torch_dispatch_mode()


def _broadcast(shapes: Iterable[Sequence[int]]) -> torch.Size:
    return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _with_head_axes(x: Tensor, count: int) -> Tensor:
    """`(..., N, D)` to `(..., 1 .. 1, N, D)`."""
    return x[(..., *[None] * count, slice(None), slice(None))]


@dataclass(frozen=True)
class AxisSplit:
    """How a flat axis is dealt out to blocks: `(outer major inner minor)` is read as `(outer inner) (major minor)`.

    Every permutation of the family is of this form. Blocks of neighbours have `major = inner = 1`.
    """

    outer: int
    major: int
    inner: int
    minor: int

    @classmethod
    def neighbours(cls, blocks: int, size: int) -> AxisSplit:
        """Each block takes `size` numbers that lie side by side."""
        return cls(blocks, 1, 1, size)

    @classmethod
    def strided(cls, blocks: int, size: int, run: int = 1) -> AxisSplit:
        """Each block takes `size` numbers in runs of `run`, each run `blocks * run` after the run before."""
        return cls(1, size // run, blocks, run)

    @property
    def blocks(self) -> int:
        """k."""
        return self.outer * self.inner

    @property
    def size(self) -> int:
        """Numbers in a block."""
        return self.major * self.minor

    def split(self, x: Tensor) -> Tensor:
        """`(..., k size)` to `(..., k, size)`."""
        return rearrange(x, "... (g i h j) -> ... (g h) (i j)", g=self.outer, i=self.major, h=self.inner)

    def join(self, x: Tensor) -> Tensor:
        """`(..., k, size)` to `(..., k size)`."""
        return rearrange(x, "... (g h) (i j) -> ... (g i h j)", g=self.outer, i=self.major, h=self.inner, j=self.minor)


@dataclass(frozen=True, eq=False)
class BlockFactor:
    """A block-diagonal factor between two permutations.

    Attributes:
        blocks: `(..., k, o, i)`.
        source: how the input is dealt out to the blocks.
        target: how the blocks' outputs are put together.
    """

    blocks: Tensor
    source: AxisSplit
    target: AxisSplit

    @property
    def heads(self) -> torch.Size:
        """The leading axes."""
        return self.blocks.shape[:-3]

    @property
    def multiply_adds(self) -> int:
        """`k o i`, of one head and one vector."""
        return self.source.blocks * self.blocks.shape[-2] * self.blocks.shape[-1]

    @property
    def T(self) -> BlockFactor:
        """The transpose."""
        return BlockFactor(self.blocks.transpose(-1, -2), self.target, self.source)

    def apply(self, x: Tensor) -> Tensor:
        """`(..., N, k i)` to `(..., N, k o)`; the leading axes of `x` broadcast with the leading axes of the blocks."""
        return self.target.join(torch.einsum("...nki,...koi->...nko", self.source.split(x), self.blocks))

    def matmul(self, x: Tensor) -> Tensor:
        """`(..., N, k i)` to `(..., *heads, N, k o)`: each head is applied to the same vectors."""
        return self.apply(_with_head_axes(x, len(self.heads)))


@dataclass(frozen=True, eq=False)
class BlockProduct:
    """`scale * factors[-1] ... factors[1] factors[0]`: the factors in the order in which they meet a vector."""

    factors: Sequence[BlockFactor]
    scale: float = 1.0

    @property
    def heads(self) -> torch.Size:
        """The leading axes of all factors, broadcast."""
        return _broadcast(factor.heads for factor in self.factors)

    @property
    def rank_bound(self) -> int:
        """The least rank bound of a factor, `k min(o, i)`."""
        return min(factor.source.blocks * min(factor.blocks.shape[-2:]) for factor in self.factors)

    @property
    def T(self) -> BlockProduct:
        """The transpose."""
        return BlockProduct(tuple(factor.T for factor in reversed(self.factors)), self.scale)

    def num_params(self) -> int:
        """Numbers stored."""
        return sum(factor.blocks.numel() for factor in self.factors)

    def flops(self, num_vectors: int) -> int:
        """Flops of the block products; a factor with fewer heads than later ones is applied before it is broadcast."""
        heads = torch.Size()
        total = 0
        for factor in self.factors:
            heads = _broadcast((heads, factor.heads))
            total += 2 * num_vectors * math.prod(heads) * factor.multiply_adds
        return total

    def apply(self, x: Tensor) -> Tensor:
        """`(..., N, in)` to `(..., N, out)`; the leading axes of `x` broadcast with the heads."""
        for factor in self.factors:
            x = factor.apply(x)
        return x if self.scale == 1 else self.scale * x


class StructuredMatrix(ABC):
    """An `out x in` matrix for each leading index ("head"), kept as factors.

    A class stores its factors and names the `products` of block-diagonal factors whose sum it is; all else follows.
    Each class also has two constructors, with its own arguments:

    - `random` draws normal factors of variance 1 / fan-in (muP); the fan-in is what one output of a block reads;
    - `project` finds a member near a dense matrix in the Frobenius norm, without gradient. Its docstring says whether
      it is the nearest member.
    """

    @property
    @abstractmethod
    def products(self) -> Sequence[BlockProduct]:
        """The products of block-diagonal factors whose sum is the matrix."""

    @property
    def heads(self) -> torch.Size:
        """The leading axes."""
        return _broadcast(product.heads for product in self.products)

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
        return _Transposed(self)

    def matmul(self, x: Tensor) -> Tensor:
        """`M x` for every head: maps `(..., N, in)` to `(..., *heads, N, out)`."""
        axes = max(len(factor.heads) for product in self.products for factor in product.factors)
        outputs = math.prod(self.heads) * self.shape[-2]
        return mapped(lambda vectors: self.apply(_with_head_axes(vectors, axes)), x, self.flops(1) // 2, outputs)

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
        """Flops of applying every head to `num_vectors` vectors factor by factor; a multiply-add is 2."""
        return sum(product.flops(num_vectors) for product in self.products)


@dataclass(frozen=True, eq=False)
class _Transposed(StructuredMatrix):
    """The transpose of a matrix."""

    matrix: StructuredMatrix

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        return tuple(product.T for product in self.matrix.products)

    @property
    @override
    def T(self) -> StructuredMatrix:
        return self.matrix
