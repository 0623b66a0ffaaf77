"""What the kernels are given (levels, blocks, positions, masks), and in which pieces they take it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

__all__ = [
    "EVERYWHERE",
    "MAX_LEVELS",
    "MAX_WIDTH",
    "Problem",
    "TileSizes",
    "batch_stride",
    "chunk_widths",
    "tile_sizes",
]

# The block of a global token at every level (the kernels write the number out).
EVERYWHERE = -(2**62)


@dataclass(frozen=True)
class Problem:
    """What every kernel is given besides q, k and v; ids are blocks, or `EVERYWHERE`."""

    ranks: tuple[int, ...]
    causal: bool
    scale: float
    query_ids: Tensor
    key_ids: Tensor
    query_positions: Tensor | None
    key_positions: Tensor | None
    key_mask: Tensor | None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors, in the order of the fields."""
        return self.query_ids, self.key_ids, self.query_positions, self.key_positions, self.key_mask

    @property
    def bounds(self) -> tuple[int, ...]:
        """Where each level begins among the components, and where the last one ends."""
        return (0, *itertools.accumulate(self.ranks))

    @property
    def plan_batch(self) -> int:
        """1 where every row of the batch walks the same tiles."""
        sizes = [self.query_ids.shape[1], self.key_ids.shape[1]]
        if self.causal:
            sizes += [t.shape[0] for t in (self.query_positions, self.key_positions) if t is not None]
        if self.key_mask is not None:
            sizes.append(self.key_mask.shape[0])
        return max(sizes)


def batch_stride(t: Tensor | None, dim: int = 0) -> int:
    """The stride of an axis, 0 where every row of the batch reads the same."""
    return 0 if t is None or t.shape[dim] == 1 else t.stride(dim)


MAX_WIDTH = 256  # components, and widths of values: a tile of more does not fit the registers
MAX_LEVELS = 31  # the levels that a tile shares in part are the bits of an int32
MAX_CHUNKS = 4


@dataclass(frozen=True)
class TileSizes:
    """Tokens in a program's own tile and in the tiles it walks, and how the kernel is compiled.

    `registers` bounds those of a thread; None leaves them to the compiler.
    """

    own: int
    walked: int
    warps: int
    stages: int
    registers: int | None = None

    def __post_init__(self) -> None:
        if min(self.own, self.walked) < 16 or max(self.own, self.walked) % min(self.own, self.walked):
            raise ValueError(f"tiles of {self.own} and {self.walked} tokens: at least 16, and one divides the other")


# {kernel: (sizes, sizes where a width is above 64 components)}. Chosen for Hopper from what the compiler reports for
# sm_90 (registers, spills inside the loops, shared memory), not yet from timings: 128 registers let two programs of 8
# warps share a multiprocessor. float32 is multiplied exactly, outside the matrix unit: smaller tiles.
_HALF = {
    "forward": (TileSizes(128, 64, 8, 3, 128), TileSizes(128, 64, 8, 2)),
    "queries": (TileSizes(128, 64, 8, 2, 128), TileSizes(64, 64, 8, 2)),
    "keys": (TileSizes(128, 64, 8, 2), TileSizes(64, 64, 8, 2)),
}
_SINGLE = {
    "forward": (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2)),
    "queries": (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2)),
    "keys": (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2)),
}


def tile_sizes(kernel: str, dtype: torch.dtype, width: int, value_width: int) -> TileSizes:
    """The sizes for ``forward``, ``queries`` (dQ) or ``keys`` (dK and dV)."""
    table = _SINGLE if dtype == torch.float32 else _HALF
    narrow, broad = table[kernel]
    return narrow if max(width, value_width) <= 64 else broad


@lru_cache(maxsize=256)
def chunk_widths(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Widths of the chunks that the components are loaded in: powers of two from 16, at most four, covering all.

    The choice costs least, in components loaded a pair, when each level halves the blocks of the one before: a pair
    shares l of L levels with frequency 2^-l, and loads whole chunks up to the end of level l.
    """
    total = sum(ranks)
    ends = list(itertools.accumulate(ranks))
    weights = [2.0 ** -min(level + 1, len(ranks) - 1) for level in range(len(ranks))]
    best: tuple[float, tuple[int, ...]] | None = None
    for count in range(1, MAX_CHUNKS + 1):
        for widths in itertools.product((16, 32, 64, 128, 256), repeat=count):
            borders = list(itertools.accumulate(widths))
            if borders[-1] < total or (count > 1 and borders[-2] >= total):
                continue
            loaded = (next(border for border in borders if border >= end) for end in ends)
            # each chunk is one more product to issue, which is counted as one component a pair
            cost = sum(w * n for w, n in zip(weights, loaded, strict=True)) + count
            if best is None or cost < best[0]:
                best = (cost, widths)
    if best is None:
        raise ValueError(f"{total} components are more than {MAX_WIDTH}")
    return best[1]
