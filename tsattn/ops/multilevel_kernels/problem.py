"""What attention is computed over: levels, blocks, positions and masks, as the host hands them to the kernels."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch import Tensor

__all__ = ["EVERYWHERE", "Problem", "batch_stride"]

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
