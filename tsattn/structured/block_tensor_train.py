"""Block tensor-train (BTT) matrices: two block-diagonal factors between two fixed permutations.

Source: Qiu et al., *Compute Better Spent* (2024); Kuang et al. (ICML 2025), section 3.

Shape letters here: D = a b = c d the width of the matrix, s its TT-rank, `...` any number of leading axes (heads).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.errors import UserError, whole_number
from tsattn.structured.block_tensor_contraction import MultiLevel
from tsattn.structured.level import Level, LevelShape

__all__ = ["BTT", "DIVISORS", "block_sizes", "square_width"]

DIVISORS = ("below", "above")
"""Which divisor of the width makes the blocks, as seen from its root."""


def block_sizes(width: int, divisor: str = "below") -> tuple[int, int, int, int]:
    """The block sizes `(a, b, c, d)` of a square BTT matrix: a = c a divisor of `width`, b = d the other one.

    With this pairing the matrix reaches full rank at TT-rank 1; with a and b exchanged on one side it does not.

    Args:
        width: D.
        divisor: ``below``, the largest up to the root of D; ``above``, the smallest that is larger than the root, so
            that a and b differ where D is a square too (1, where D is 1).

    Raises:
        UserError: another `divisor`.
    """
    if divisor not in DIVISORS:
        raise UserError(f"divisor must be one of {', '.join(DIVISORS)}, not {divisor!r}")
    width = whole_number("width", width)
    root = math.isqrt(width)
    candidates = range(root, 0, -1) if divisor == "below" else (*range(root + 1, width + 1), width)
    a = next(n for n in candidates if width % n == 0)
    return a, width // a, a, width // a


def square_width(dense: Tensor) -> int:
    """D of `(..., D, D)`; raises `UserError` for other shapes."""
    rows, columns = dense.shape[-2:]
    if rows != columns:
        raise UserError(f"a square matrix is needed, not {rows} x {columns}")
    return rows


@dataclass(frozen=True, eq=False)
class BTT(MultiLevel):
    """`M = P_L diag(L_1 .. L_b) P_R diag(R_1^T .. R_c^T)`, a D x D matrix for each leading index.

    `left` and `right` may have different heads where only `inner` and `outer_transposed` are used.

    Attributes:
        left: `(..., b, a, c s)`, the blocks L.
        right: `(..., c, d, b s)`, the blocks R.
        rank: the TT-rank s.
    """

    left: Tensor
    right: Tensor
    rank: int

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
        """Normal factors of variance 1 / fan-in, the fan-in of a block being its own input size (d and c s)."""
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
        return cls(level.left, level.right, rank)

    @classmethod
    def project(cls, dense: Tensor, rank: int, *, divisor: str = "below") -> BTT:
        """The nearest to `(*heads, D, D)`, in closed form (see `Level.nearest`).

        Sorted by `(k', k)`, the entries of M fall into `b c` blocks of shape `a x d`, block `(k', k)` being the
        product of the k-th slice of `L_k'` and the k'-th slice of `R_k`. No slice serves two blocks, and a product of
        the two is any matrix of rank at most s; so each block may be fitted alone, by its truncated SVD.

        Raises:
            UserError: the matrix is not square, the rank not positive, or another `divisor`.
        """
        _, b, c, _ = block_sizes(square_width(dense), divisor)
        level = Level.nearest(dense, LevelShape(rank, b, c, shuffled=True))
        return cls(level.left, level.right, rank)
