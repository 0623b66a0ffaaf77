"""Square blocks of the diagonal, whose finest levels are spread over one slot a sub-block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.ops.multilevel_tiles.flash import flash_backward
from tsattn.ops.multilevel_tiles.strips import put, take
from tsattn.ops.tiling import LeafGroup

__all__ = ["leaf_backward", "leaf_inputs", "pieces"]

LEAF_TOKENS = 16384  # tokens of all rows whose leaves are computed at once


def pieces(rows: int, leaf: LeafGroup) -> list[slice]:
    """The rows of a batch, a few at a time: the spread components of all of them at once would need much memory."""
    step = max(1, LEAF_TOKENS // (len(leaf.starts) * leaf.length))
    return [slice(start, start + step) for start in range(0, rows, step)]


def leaf_inputs(
    q: Tensor, k: Tensor, v: Tensor, leaf: LeafGroup, level: int, ranks: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """The leaf blocks, with the components of the levels inside spread over one slot a sub-block."""
    parts = [take(t, leaf.starts, leaf.length) for t in (q, k, v)]
    if not leaf.slots:
        return parts[0], parts[1], parts[2]
    q_leaf, k_leaf = (_spread(t, leaf, level, ranks) for t in parts[:2])
    width = max(q_leaf.shape[-1], v.shape[-1])
    q_leaf, k_leaf, v_leaf = (F.pad(t, (0, width - t.shape[-1])) for t in (q_leaf, k_leaf, parts[2]))
    return q_leaf, k_leaf, v_leaf


def _slots(leaf: LeafGroup, t: Tensor) -> list[Tensor]:
    """For each level inside a leaf, the 0/1 membership of its tokens in the sub-blocks, `(length, p, 1)`."""
    return [
        F.one_hot(torch.tensor(slots, device=t.device), max(slots) + 1).to(t.dtype)[..., None] for slots in leaf.slots
    ]


def _spread(t: Tensor, leaf: LeafGroup, level: int, ranks: Sequence[int]) -> Tensor:
    base = sum(ranks[: level + 1])
    pieces = [t[..., :base]]
    for slots, rank in zip(_slots(leaf, t), ranks[level + 1 :], strict=True):
        pieces.append((t[..., None, base : base + rank] * slots).flatten(-2))
        base += rank
    return torch.cat(pieces, -1)


def _gather_spread(grad: Tensor, leaf: LeafGroup, level: int, ranks: Sequence[int], width: int) -> Tensor:
    """The transpose of `_spread`."""
    base = sum(ranks[: level + 1])
    pieces, place = [grad[..., :base]], base
    for slots, rank in zip(_slots(leaf, grad), ranks[level + 1 :], strict=True):
        p = slots.shape[1]
        pieces.append((torch.unflatten(grad[..., place : place + p * rank], -1, (p, rank)) * slots).sum(-2))
        place += p * rank
    joined = torch.cat(pieces, -1)
    return F.pad(joined, (0, width - joined.shape[-1]))


def leaf_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    leaf: LeafGroup,
    level: int,
    ranks: Sequence[int],
    causal: bool,
    scale: float,
    grads: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Write the leaves' share of the gradients."""
    q_leaf, k_leaf, v_leaf = leaf_inputs(q, k, v, leaf, level, ranks)
    pad = v_leaf.shape[-1] - v.shape[-1]
    grad_leaf, out_leaf = (F.pad(take(t, leaf.starts, leaf.length), (0, pad)) for t in (grad_out, out))
    lse_leaf = take(lse[..., None], leaf.starts, leaf.length)[..., 0]
    dq, dk, dv = flash_backward(grad_leaf, q_leaf, k_leaf, v_leaf, out_leaf, lse_leaf, causal, scale)
    if leaf.slots:
        dq, dk = (_gather_spread(t, leaf, level, ranks, q.shape[-1]) for t in (dq, dk))
        dv = dv[..., : v.shape[-1]]
    for total, share in zip(grads, (dq, dk, dv), strict=True):
        put(total, leaf.starts, leaf.length, share)
