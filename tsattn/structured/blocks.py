"""Products of block-diagonal factors and permutations: what every matrix of the family is a sum of.

Shape letters here: k blocks, o outputs and i inputs of a block, `...` any number of leading axes (heads).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from tsattn.errors import UserError

__all__ = ["AxisSplit", "BlockFactor", "BlockProduct", "broadcast", "normal", "piece", "with_head_axes"]


def piece(size: int, pieces: int) -> int:
    """The length of one of `pieces` equal pieces of an axis; raises `UserError` where there is no such length."""
    if pieces < 1 or size % pieces:
        raise UserError(f"an axis of {size} numbers does not split into {pieces} equal blocks")
    return size // pieces


def normal(*shape: int, fan_in: int, generator: torch.Generator | None, dtype: torch.dtype | None) -> Tensor:
    """Normal numbers of variance `1 / fan_in`, on the generator's device."""
    device = None if generator is None else generator.device
    return torch.randn(shape, generator=generator, dtype=dtype, device=device) / math.sqrt(fan_in)


def with_head_axes(x: Tensor, count: int) -> Tensor:
    """`(..., N, D)` to `(..., 1 .. 1, N, D)`."""
    return x[(..., *[None] * count, slice(None), slice(None))]


def broadcast(shapes: Iterable[Sequence[int]]) -> torch.Size:
    """The shape that all broadcast to."""
    return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


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
        """Each block takes `size` numbers in runs of `run`, each run `blocks * run` after the one before."""
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
        blocks: `(..., k, o, i)`, or `(..., 1, o, i)` for one block that is used k times.
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
    def rank_bound(self) -> int:
        """`k min(o, i)`."""
        return self.source.blocks * min(self.blocks.shape[-2:])

    @property
    def multiply_adds(self) -> int:
        """`k o i`, of one head and one vector."""
        return self.source.blocks * self.blocks.shape[-2] * self.blocks.shape[-1]

    @property
    def T(self) -> BlockFactor:
        """The transpose."""
        return BlockFactor(self.blocks.transpose(-1, -2), self.target, self.source)

    def apply(self, x: Tensor) -> Tensor:
        """`(..., N, k i)` to `(..., N, k o)`; the leading axes of `x` broadcast with those of the blocks."""
        return self.target.join(torch.einsum("...nki,...koi->...nko", self.source.split(x), self.blocks))

    def matmul(self, x: Tensor) -> Tensor:
        """`(..., N, k i)` to `(..., *heads, N, k o)`: each head is applied to the same vectors."""
        return self.apply(with_head_axes(x, len(self.heads)))


@dataclass(frozen=True, eq=False)
class BlockProduct:
    """`scale * factors[-1] ... factors[1] factors[0]`: the factors in the order in which they meet a vector."""

    factors: Sequence[BlockFactor]
    scale: float = 1.0

    @property
    def heads(self) -> torch.Size:
        """The leading axes of all factors, broadcast."""
        return broadcast(factor.heads for factor in self.factors)

    @property
    def rank_bound(self) -> int:
        """The least of the factors' bounds."""
        return min(factor.rank_bound for factor in self.factors)

    @property
    def T(self) -> BlockProduct:
        """The transpose."""
        return BlockProduct(tuple(factor.T for factor in reversed(self.factors)), self.scale)

    def num_params(self) -> int:
        """Numbers stored."""
        return sum(factor.blocks.numel() for factor in self.factors)

    def flops(self, num_vectors: int) -> int:
        """Of the block products; a factor with fewer heads than those after it is applied before it is broadcast."""
        heads = torch.Size()
        total = 0
        for factor in self.factors:
            heads = broadcast((heads, factor.heads))
            total += 2 * num_vectors * math.prod(heads) * factor.multiply_adds
        return total

    def apply(self, x: Tensor) -> Tensor:
        """`(..., N, in)` to `(..., N, out)`; the leading axes of `x` broadcast with the heads."""
        for factor in self.factors:
            x = factor.apply(x)
        return x if self.scale == 1 else self.scale * x
