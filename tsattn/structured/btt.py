"""Block tensor-train (BTT) matrices: two block-diagonal factors between two fixed permutations.

Source: Qiu et al., *Compute Better Spent* (2024); Kuang et al. (ICML 2025), section 3.

Shape letters here: D = a b = c d the width of the matrix, s its TT-rank, `...` any number of leading axes (heads).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

__all__ = ["BTT", "block_sizes"]


def block_sizes(width: int) -> tuple[int, int, int, int]:
    """The block sizes `(a, b, c, d)` of a square BTT matrix: a = c the largest divisor of `width` up to its root.

    With this pairing the matrix reaches full rank at TT-rank 1; with a and b exchanged it does not.
    """
    a = next(n for n in range(math.isqrt(width), 0, -1) if width % n == 0)
    return a, width // a, a, width // a


@dataclass(frozen=True)
class BTT:
    """`M = P_L diag(L_1 .. L_b) P_R diag(R_1^T .. R_c^T)`, a D x D matrix for each leading index.

    Attributes:
        left: `(..., b, a, c s)`, the blocks L.
        right: `(..., c, d, b s)`, the blocks R.
        rank: the TT-rank s.
    """

    left: Tensor
    right: Tensor
    rank: int

    @classmethod
    def random(
        cls, width: int, rank: int, *, left_heads: int, right_heads: int, generator: torch.Generator | None = None
    ) -> BTT:
        """Normal factors of variance 1 / fan-in, the fan-in of a block being its own input size (d and c s)."""
        a, b, c, d = block_sizes(width)
        left = torch.randn(left_heads, b, a, c * rank, generator=generator) / math.sqrt(c * rank)
        right = torch.randn(right_heads, c, d, b * rank, generator=generator) / math.sqrt(d)
        return cls(left, right, rank)

    def num_params(self) -> int:
        """Numbers stored: `D s (b + c)` for each leading index."""
        return self.left.numel() + self.right.numel()

    def inner(self, x: Tensor) -> Tensor:
        """`P_R diag(R^T) x`: maps `(B, N, D)` to `(B, heads, N, b c s)`."""
        c, d = self.right.shape[-3:-1]
        pieces = rearrange(x, "B N (c d) -> B N c d", c=c, d=d)
        mapped = torch.einsum("bncd,hcde->bhnce", pieces, self.right)
        return rearrange(mapped, "B h N c (b s) -> B h N (b c s)", s=self.rank)

    def outer_transposed(self, x: Tensor) -> Tensor:
        """`diag(L^T) P_L^T x`: maps `(B, N, D)` to `(B, heads, N, b c s)`; its product with `inner` is `x M x'`."""
        b, a = self.left.shape[-3:-1]
        pieces = rearrange(x, "B N (a b) -> B N b a", a=a, b=b)
        return rearrange(torch.einsum("bnka,hkae->bhnke", pieces, self.left), "B h N k e -> B h N (k e)")

    def matmul(self, x: Tensor) -> Tensor:
        """`M x`: maps `(B, N, D)` to `(B, heads, N, D)`."""
        b = self.left.shape[-3]
        groups = rearrange(self.inner(x), "B h N (b e) -> B h N b e", b=b)
        return rearrange(torch.einsum("bhnke,hkae->bhnak", groups, self.left), "B h N a b -> B h N (a b)")

    def matmul_transposed(self, x: Tensor) -> Tensor:
        """`M^T x`: maps `(B, N, D)` to `(B, heads, N, D)`."""
        c = self.right.shape[-3]
        inner = rearrange(self.outer_transposed(x), "B h N (b c s) -> B h N c (b s)", c=c, s=self.rank)
        return rearrange(torch.einsum("bhnce,hcde->bhncd", inner, self.right), "B h N c d -> B h N (c d)")

    def to_dense(self) -> Tensor:
        """M itself, `(heads, D, D)`."""
        width = self.right.shape[-3] * self.right.shape[-2]
        eye = torch.eye(width, dtype=self.left.dtype, device=self.left.device)
        return self.matmul(eye[None])[0].transpose(-1, -2)
