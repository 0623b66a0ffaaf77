"""The tiles as one operator of PyTorch, for `torch.compile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tsattn.ops.multilevel_tiles.kernel_inputs import one_width, positive_scale, scales_of_levels
from tsattn.ops.multilevel_tiles.passes import tiled_backward, tiled_forward
from tsattn.ops.tiling import TilePlan, find_layouts, plan_tiles

__all__ = ["multilevel_attention_traced"]


@torch.library.custom_op("tsattn::multilevel_tiles", mutates_args=())
def _operator(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    positions: Tensor,
    ranks: list[int],
    causal: bool,
    scales: list[float],
) -> tuple[Tensor, Tensor]:
    """`tiled_forward` as one node of a compiled graph. The cutting depends on the length and is done when it runs."""
    return tiled_forward(q, k, v, _plan_at(blocks, positions, ranks, causal, scales), ranks, causal, scales)


@torch.library.custom_op("tsattn::multilevel_tiles_backward", mutates_args=())
def _operator_backward(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    blocks: Tensor,
    positions: Tensor,
    ranks: list[int],
    causal: bool,
    scales: list[float],
) -> tuple[Tensor, Tensor, Tensor]:
    plan = _plan_at(blocks, positions, ranks, causal, scales)
    return tiled_backward(grad_out, q, k, v, out, lse, plan, ranks, causal, scales)


@_operator.register_fake
def _(q, k, v, blocks, positions, ranks, causal, scales):  # type: ignore[no-untyped-def]
    lse = v.new_empty(v.shape[:2], dtype=torch.promote_types(v.dtype, torch.float32))
    return torch.empty_like(v), lse


@_operator_backward.register_fake
def _(grad_out, q, k, v, out, lse, blocks, positions, ranks, causal, scales):  # type: ignore[no-untyped-def]
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ranks, causal, scales = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.given = ranks, causal, scales


def _backward_of_operator(ctx: Any, grad_out: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, blocks, positions, out, lse = ctx.saved_tensors
    grads = _operator_backward(grad_out, q, k, v, out, lse, blocks, positions, *ctx.given)
    return (*grads, None, None, None, None, None)


_operator.register_autograd(_backward_of_operator, setup_context=_save)


def _plan_at(
    blocks: Tensor, positions: Tensor, ranks: Sequence[int], causal: bool, scales: Sequence[float]
) -> TilePlan:
    """How one row of whole, ordered tokens is cut."""
    layouts = find_layouts(blocks, positions)
    assert not isinstance(layouts, str), layouts
    return plan_tiles(layouts[0].blocks, tuple(ranks), causal, (), len(set(scales)) == 1)


def multilevel_attention_traced(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    blocks: Tensor,
    positions: Tensor,
    causal: bool,
    scale: float,
    divide_by_active: bool = False,
) -> Tensor:
    """`multilevel_attention_tiles` for `torch.compile`: one operator, in one graph for every length.

    Args:
        q: `(B, H, T, r)` queries.
        k: `(B, H, T, r)` keys.
        v: `(B, H, T, E)` values.
        ranks: components of each level, coarse to fine.
        blocks: `(L, 1, T)` int, nested.
        positions: `(1, T)` int, rising.
        causal: a token sees no later one.
        scale: factor of the logits.
        divide_by_active: divide the logits of a pair by the number of levels that it shares.

    Returns:
        `(B, H, T, E)`.
    """
    E = v.shape[-1]
    q, scale = positive_scale(q, scale)
    flat = [t.flatten(0, 1).contiguous() for t in one_width(q, k, v)]
    scales = scales_of_levels(len(ranks), scale, divide_by_active)
    out: Tensor = _operator(*flat, blocks, positions, list(ranks), causal, list(scales))[0]
    return out.view(*v.shape[:3], -1)[..., :E]
