"""The forward and the backward pass over the tiles of a plan, merged by their log-sum-exp."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tsattn.ops.multilevel_tiles.flash import flash, flash_backward
from tsattn.ops.multilevel_tiles.leaves import leaf_backward, leaf_inputs, pieces
from tsattn.ops.multilevel_tiles.strips import add, even_step, put, take
from tsattn.ops.tiling import TileGroup, TilePlan

__all__ = ["tiled_backward", "tiled_forward"]


def tiled_forward(
    q: Tensor, k: Tensor, v: Tensor, plan: TilePlan, ranks: Sequence[int], causal: bool, scales: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of the logits of each query."""
    out = torch.empty_like(v, dtype=torch.promote_types(v.dtype, torch.float32))
    lse = torch.empty(v.shape[:2], dtype=out.dtype, device=v.device)
    for leaf in plan.leaves:
        for part in pieces(len(q), leaf):
            q_leaf, k_leaf, v_leaf = leaf_inputs(q[part], k[part], v[part], leaf, plan.leaf_level, ranks)
            partial, partial_lse = flash(q_leaf, k_leaf, v_leaf, causal, scales[-1])
            put(out[part], leaf.starts, leaf.length, partial[..., : v.shape[-1]])
            put(lse[part, :, None], leaf.starts, leaf.length, partial_lse[..., None])
    q_prefix = q.clone()
    for tile in plan.tiles:
        q_prefix[..., tile.prefix :] = 0
        partial, partial_lse = flash(
            take(q_prefix, tile.query_starts, tile.num_queries),
            take(k, tile.key_starts, tile.num_keys),
            take(v, tile.key_starts, tile.num_keys),
            False,
            scales[tile.levels],
        )
        _merge(out, lse, tile, partial, partial_lse)
    return out.to(v.dtype), lse


def tiled_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    plan: TilePlan,
    ranks: Sequence[int],
    causal: bool,
    scales: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `q`, `k` and `v`, given what `tiled_forward` gave."""
    grad_out = grad_out.contiguous()
    exact = torch.promote_types(q.dtype, torch.float32)
    dq, dk, dv = (torch.empty_like(t, dtype=exact) for t in (q, k, v))
    for leaf in plan.leaves:
        for part in pieces(len(q), leaf):
            known = (grad_out[part], q[part], k[part], v[part], out[part], lse[part])
            sought = (dq[part], dk[part], dv[part])
            leaf_backward(*known, leaf, plan.leaf_level, ranks, causal, scales[-1], sought)
    q_prefix = q.clone()
    for tile in plan.tiles:
        q_prefix[..., tile.prefix :] = 0
        grads = flash_backward(
            take(grad_out, tile.query_starts, tile.num_queries),
            take(q_prefix, tile.query_starts, tile.num_queries),
            take(k, tile.key_starts, tile.num_keys),
            take(v, tile.key_starts, tile.num_keys),
            take(out, tile.query_starts, tile.num_queries),
            take(lse[..., None], tile.query_starts, tile.num_queries)[..., 0],
            False,
            scales[tile.levels],
        )
        add(dq[..., : tile.prefix], tile.query_starts, grads[0][..., : tile.prefix])
        add(dk[..., : tile.prefix], tile.key_starts, grads[1][..., : tile.prefix])
        add(dv, tile.key_starts, grads[2])
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def _merge(out: Tensor, lse: Tensor, tile: TileGroup, partial: Tensor, partial_lse: Tensor) -> None:
    """Merge a tile's outputs `(Z, n, length, W)` and log-sum-exps `(Z, n, length)` into those of its queries."""
    if even_step(tile.query_starts) is None:
        for i, start in enumerate(tile.query_starts):
            end = start + tile.num_queries
            _merge_into(out[:, start:end], lse[:, start:end], partial[:, i], partial_lse[:, i])
    else:
        _merge_into(
            take(out, tile.query_starts, tile.num_queries),
            take(lse[..., None], tile.query_starts, tile.num_queries)[..., 0],
            partial,
            partial_lse,
        )


def _merge_into(out: Tensor, lse: Tensor, partial: Tensor, partial_lse: Tensor) -> None:
    # the mean weighted by exp(lse), written so that nothing overflows
    partial_lse = partial_lse.to(lse.dtype)
    out.lerp_(partial.to(out.dtype), torch.sigmoid(partial_lse - lse)[..., None])
    lse.copy_(torch.logaddexp(lse, partial_lse))
