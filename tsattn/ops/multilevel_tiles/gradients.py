"""The tiles as functions of autograd: differentiable as often as asked for, in batches of `torch.vmap` too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from tsattn.ops.modes import under_vmap
from tsattn.ops.multilevel_tiles.passes import tiled_backward, tiled_forward
from tsattn.ops.tiling import BlockLayout, TilePlan, plan_tiles

__all__ = ["Cut", "tiled_attention"]


@dataclass(frozen=True)
class Cut:
    """How a sequence is cut, and what its logits are.

    Attributes:
        layout: its blocks and global tokens.
        ranks: components of each level.
        causal: a token sees no later one.
        scales: factor of the logits of pairs that share 0, 1, ... levels.
    """

    layout: BlockLayout
    ranks: tuple[int, ...]
    causal: bool
    scales: tuple[float, ...]

    @property
    def plan(self) -> TilePlan:
        """The tiles; a leaf holds several levels where their factors are alike."""
        alike = len(set(self.scales)) == 1
        return plan_tiles(self.layout.blocks, self.ranks, self.causal, self.layout.globals_at, alike)

    def block_ids(self, device: torch.device) -> Tensor:
        """The block of each token at each level, `(L, T)`; -1 at global tokens."""
        num_global = len(self.layout.globals_at)
        rows = [
            [number for number, (start, end) in enumerate(pairwise(starts)) for _ in range(end - start)]
            for starts in self.layout.blocks
        ]
        return torch.tensor([row + [-1] * num_global for row in rows], dtype=torch.long, device=device)

    def order(self, device: torch.device) -> Tensor:
        """Numbers `(T,)` that rise in time, of the tokens of the blocks and the global ones after them."""
        before = self.layout.globals_at
        times = [2 * token + 1 for token in range(self.layout.blocks[0][-1])]
        # of the global tokens before the same token, the first comes first
        places = [2 * count * (len(before) + 1) + number for number, count in enumerate(before)]
        return torch.tensor([time * (len(before) + 1) for time in times] + places, dtype=torch.long, device=device)


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, cut: Cut) -> Tensor:
    """The output `(batch x heads, T, width)` of queries, keys and values of that shape."""
    out: Tensor = _TiledAttention.apply(q, k, v, cut)[0]  # type: ignore[no-untyped-call]
    return out


class _TiledAttention(torch.autograd.Function):
    """Forward and backward over the tiles of a plan; tensors are `(batch x heads, T, width)`.

    Gives the output and the log-sum-exp of the logits of each query, which has no gradient of its own.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, cut: Cut) -> tuple[Tensor, Tensor]:
        return tiled_forward(q, k, v, cut.plan, cut.ranks, cut.causal, cut.scales)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Cut], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.cut = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor, ...] = under_vmap(_TiledGradients.apply, grad_out, *ctx.saved_tensors, ctx.cut)
        return *gradients, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _as_more_rows(_TiledAttention, info.batch_size, in_dims, inputs)


class _TiledGradients(torch.autograd.Function):
    """The gradients of `tiled_attention`, whose own derivatives come from the plain form, in memory quadratic in T."""

    @staticmethod
    def forward(
        grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, cut: Cut
    ) -> tuple[Tensor, Tensor, Tensor]:
        return tiled_backward(grad_out, q, k, v, out, lse, cut.plan, cut.ranks, cut.causal, cut.scales)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        grad_out, q, k, v, _, _, ctx.cut = inputs
        ctx.save_for_backward(grad_out, q, k, v)

    @staticmethod
    def backward(ctx: Any, *second: Tensor) -> tuple[Tensor | None, ...]:
        def gradients(grad_out: Tensor, *tensors: Tensor) -> Any:
            return torch.func.vjp(lambda q, k, v: _plain(q, k, v, ctx.cut), *tensors)[1](grad_out)

        def pulled_back(grad_out: Tensor, *second: Tensor) -> tuple[Tensor, ...]:
            given: tuple[Tensor, ...] = torch.func.vjp(gradients, grad_out, *ctx.saved_tensors[1:])[1](second)
            return given

        # what depends on the output and the log-sum-exp is counted with the queries, keys and values
        return *under_vmap(pulled_back, ctx.saved_tensors[0], *second), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _as_more_rows(_TiledGradients, info.batch_size, in_dims, inputs)


def _as_more_rows(
    function: type[torch.autograd.Function], batch_size: int, in_dims: Sequence[int | None], inputs: Sequence[Any]
) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """A function of rows, each on its own, over one dimension more: that of `torch.vmap`."""
    *tensors, cut = inputs
    moved = [
        t.expand(batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip(tensors, in_dims, strict=False)
    ]
    outputs: tuple[Tensor, ...] = function.apply(*(t.flatten(0, 1) for t in moved), cut)  # type: ignore[no-untyped-call]
    return tuple(torch.unflatten(t, 0, (batch_size, -1)) for t in outputs), (0,) * len(outputs)


def _plain(q: Tensor, k: Tensor, v: Tensor, cut: Cut) -> Tensor:
    """What `tiled_attention` gives, with every logit written out."""
    exact = torch.promote_types(q.dtype, torch.float32)
    logits = q.new_zeros((), dtype=exact)
    shared = torch.zeros((), dtype=torch.long, device=q.device)
    parts = (torch.split(t[..., : sum(cut.ranks)].to(exact), list(cut.ranks), -1) for t in (q, k))
    for ids, q_level, k_level in zip(cut.block_ids(q.device), *parts, strict=True):
        same = (ids[:, None] == ids) | (ids < 0) | (ids < 0)[:, None]
        logits = logits + (q_level @ k_level.transpose(-1, -2)).masked_fill(~same, 0.0)
        shared = shared + same
    logits = logits * torch.tensor(cut.scales, dtype=exact, device=q.device)[shared]
    if cut.causal:
        order = cut.order(q.device)
        logits = logits.masked_fill(order[:, None] < order, -torch.inf)
    return (logits.softmax(-1) @ v.to(exact)).to(v.dtype)
