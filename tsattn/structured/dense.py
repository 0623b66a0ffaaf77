"""Dense matrices: the member of the family without structure, against which the others are held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.structured.block_tensor_contraction import MultiLevel
from tsattn.structured.blocks import AxisSplit, BlockFactor, BlockProduct, normal
from tsattn.structured.level import Level

__all__ = ["Dense"]


@dataclass(frozen=True, eq=False)
class Dense(MultiLevel):
    """Any matrix.

    Attributes:
        weight: `(..., out, in)`.
    """

    weight: Tensor

    @property
    @override
    def products(self) -> Sequence[BlockProduct]:
        """One block; the identity of the MLBTC form is not multiplied by."""
        out_features, in_features = self.weight.shape[-2:]
        source, target = AxisSplit.neighbours(1, in_features), AxisSplit.neighbours(1, out_features)
        return (BlockProduct((BlockFactor(self.weight[..., None, :, :], source, target),)),)

    @property
    @override
    def levels(self) -> Sequence[Level]:
        """One level of one block, whose right side is the identity."""
        eye = torch.eye(self.weight.shape[-1], dtype=self.weight.dtype, device=self.weight.device)
        # as many leading axes as the weight, so that `inner` has a head axis too
        eye = eye[(*[None] * (self.weight.ndim - 1), ...)]
        return (Level(self.weight[..., None, :, :], eye, shuffled=False),)

    @property
    @override
    def T(self) -> Dense:
        """The transpose, again dense."""
        return Dense(self.weight.transpose(-1, -2))

    @classmethod
    def random(
        cls,
        out_features: int,
        in_features: int,
        *,
        heads: Sequence[int] = (),
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> Dense:
        """Normal of variance `1 / in_features`."""
        return cls(normal(*heads, out_features, in_features, fan_in=in_features, generator=generator, dtype=dtype))

    @classmethod
    def project(cls, dense: Tensor) -> Dense:
        """The matrix itself."""
        return cls(dense.detach())
