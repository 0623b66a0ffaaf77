"""Multi-level attention over the tiles of each row of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tsattn.ops.multilevel_tiles.gradients import Cut, tiled_attention
from tsattn.ops.multilevel_tiles.kernel_inputs import one_width, positive_scale, scales_of_levels
from tsattn.ops.tiling import BlockLayout

__all__ = ["multilevel_attention_tiles"]


def multilevel_attention_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    layouts: Sequence[BlockLayout],
    causal: bool,
    scale: float,
    divide_by_active: bool = False,
) -> Tensor:
    """Multi-level attention of a sequence to itself, with memory linear in its length.

    Args:
        q: `(B, H, T, r)` queries.
        k: `(B, H, T, r)` keys.
        v: `(B, H, T, E)` values.
        ranks: components of each level, coarse to fine.
        layouts: how the rows are cut, see `find_layouts`.
        causal: a token sees no later one.
        scale: factor of the logits.
        divide_by_active: divide the logits of a pair by the number of levels that it shares, the same all over a tile.

    Returns:
        `(B, H, T, E)`; zeros at tokens that are not real.
    """
    H, T, r = q.shape[1:]
    E = v.shape[-1]
    q, scale = positive_scale(q, scale)
    padded = one_width(q, k, v)
    width = max(r, E)
    scales = scales_of_levels(len(ranks), scale, divide_by_active)
    outs: list[Tensor] = []
    for layout in layouts:
        parts = padded if layout.rows is None else [t[list(layout.rows)] for t in padded]
        num_rows = parts[0].shape[0]
        index = None if layout.order is None else torch.tensor(layout.order, dtype=torch.long, device=q.device)
        if index is not None:
            parts = [t.index_select(2, index) for t in parts]
        length = parts[0].shape[2]
        out = parts[2].new_zeros(num_rows, H, T, width)
        if length:
            flat = [t.reshape(num_rows * H, length, width) for t in parts]
            tiled = tiled_attention(flat[0], flat[1], flat[2], Cut(layout, tuple(ranks), causal, scales))
            tiled = tiled.view(num_rows, H, length, width)
        else:
            tiled = parts[0] + parts[1] + parts[2]  # no token is real: nothing, but of the inputs' graph
        out = tiled if index is None else out.index_copy(2, index, tiled)
        outs.append(out)
    if layouts[0].rows is None:
        return outs[0][..., :E]
    back = torch.tensor([row for layout in layouts for row in layout.rows or ()], device=q.device).argsort()
    return torch.cat(outs)[back][..., :E]
