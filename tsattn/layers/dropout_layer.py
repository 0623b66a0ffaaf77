"""Dropout as a layer of a network."""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import override

from tsattn.errors import UserError
from tsattn.ops.dropout import dropout

__all__ = ["Dropout"]


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` by `tsattn.ops.dropout`, which costs a fraction of it on a CPU.

    Args:
        p: the probability of dropping a number in training, in [0, 1).

    Raises:
        UserError: for another p.
    """

    def __init__(self, p: float) -> None:
        if not 0 <= p < 1:
            raise UserError(f"dropout must lie in [0, 1), not {p}")
        super().__init__(p)

    @override
    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """Drop numbers of `input`, of any shape; the residual is added to what comes out, in the same pass."""
        return dropout(input, self.p, self.training, residual=residual)

    @override
    def extra_repr(self) -> str:
        return f"p={self.p}"
