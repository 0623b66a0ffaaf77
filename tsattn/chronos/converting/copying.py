"""Conversion by copying: queries, keys, values and outputs stay as they were trained."""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.attention.projections import LowRankProjection, NoProjection
from tsattn.chronos.swapped.building import Surroundings
from tsattn.chronos.swapped.pair_rotation import PairRotation
from tsattn.chronos.swapped.swapped_attention import SwappedAttention
from tsattn.errors import UserError

__all__ = ["copy_scores", "copy_values", "paired"]


@torch.no_grad()
def copy_values(around: Surroundings, swapped: SwappedAttention) -> None:
    """Give an attention the values and outputs of the original at its site."""
    swapped.attention.value.weight.copy_(around.original.v.weight)
    swapped.attention.output.weight.copy_(around.original.o.weight)


@torch.no_grad()
def copy_scores(around: Surroundings, swapped: SwappedAttention) -> None:
    """Give an attention the queries and keys of the original at its site.

    Rotary pairs, which are halves apart in the original, are brought side by side, in the order of the attention.

    Raises:
        UserError: for an attention whose queries and keys are made otherwise.
    """
    projection = swapped.attention.projection
    if isinstance(projection, NoProjection):
        return
    if not isinstance(projection, LowRankProjection):
        raise UserError(
            "copy keeps queries and keys, which this attention makes otherwise: convert it by project or fresh"
        )
    for layer, source in ((projection.query, around.original.q), (projection.key, around.original.k)):
        weight = source.weight.view(around.num_heads, around.head_dim, -1)
        if isinstance(swapped.attention.rotary, PairRotation):
            weight = paired(weight, swapped.attention.rotary.order)
        layer.weight.copy_(weight.flatten(0, 1))


def paired(weight: Tensor, order: Tensor) -> Tensor:
    """Rows `(H, r, D)` of rotary pairs (p, p + r/2) as pairs (2p, 2p + 1), for each head in an order `(H, r/2)`."""
    halves = torch.stack([order, order + weight.shape[1] // 2], -1).flatten(1)
    return weight.gather(1, halves[..., None].expand(-1, -1, weight.shape[2]))
