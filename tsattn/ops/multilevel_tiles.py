"""Multi-level attention without the T x T matrix: disjoint tiles, each attention over a prefix of the components.

Where every level's blocks refine those of the level before, two tokens share levels 1 .. l and no finer one, so their
score is a product of the first `r_1 + .. + r_l` components. The pairs fall into rectangles: in each block, the pairs of
different child blocks; at the finest level, the square blocks of the diagonal. Each rectangle goes through PyTorch's
flash kernel, which returns the log-sum-exp of its rows, and the results are merged by it; backward, the kernel's own
backward, given the merged output and log-sum-exp, yields exactly the tile's share of every gradient (as in ring
attention, Liu et al. 2023). Queries are zeroed after the prefix, level by level in one buffer; keys and values stay
where they are. The finest levels, whose tiles would be too small for the kernel, are computed in one square block with
their components spread over one slot a sub-block.

Kuang et al. (ICML 2025), section 4, leave open whether multi-level scores go together with FlashAttention: they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tsattn.ops.modes import needs_plain_gradients, plain_gradients
from tsattn.ops.tiling import BlockLayout, LeafGroup, TileGroup, TilePlan, find_layouts, plan_tiles

__all__ = ["multilevel_attention_tiles", "multilevel_attention_traced"]

LEAF_TOKENS = 16384  # tokens of all rows whose leaves are computed at once


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

    Gives the output and the log-sum-exp of the logits of each query, which has no gradient of its own. Gradients of
    which a graph is made, or that are asked for in batches, come from the plain form, in memory quadratic in T.
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
        cut = ctx.cut
        q, k, v, out, lse = ctx.saved_tensors
        if needs_plain_gradients(grad_out):
            plain = plain_gradients(lambda q, k, v: _plain(q, k, v, cut), (q, k, v), grad_out)
            return *plain, None
        return *tiled_backward(grad_out, q, k, v, out, lse, cut.plan, cut.ranks, cut.causal, cut.scales), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """A call of more rows."""
        *tensors, cut = inputs
        moved = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip(tensors, in_dims, strict=False)
        )
        outputs = _TiledAttention.apply(*(t.flatten(0, 1) for t in moved), cut)  # type: ignore[no-untyped-call]
        return tuple(torch.unflatten(t, 0, (info.batch_size, -1)) for t in outputs), (0, 0)


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

    `blocks (L, 1, T)` are nested, and `positions (1, T)` rise; the other arguments are the same.
    """
    E = v.shape[-1]
    q, scale = positive_scale(q, scale)
    flat = [t.flatten(0, 1).contiguous() for t in one_width(q, k, v)]
    scales = scales_of_levels(len(ranks), scale, divide_by_active)
    out: Tensor = _operator(*flat, blocks, positions, list(ranks), causal, list(scales))[0]
    return out.view(*v.shape[:3], -1)[..., :E]


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


def one_width(*tensors: Tensor) -> list[Tensor]:
    """The tensors as the kernel takes them, which checks nothing: contiguous components, the same number in each."""
    width = max(t.shape[-1] for t in tensors)
    padded = [F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in tensors]
    return [t if t.stride(-1) == 1 else t.contiguous() for t in padded]


def positive_scale(q: Tensor, scale: float) -> tuple[Tensor, float]:
    """Queries and a scale of the same logits; the kernel multiplies what causality forbids, minus infinity, by it."""
    if scale > 0:
        return q, scale
    return (-q, -scale) if scale < 0 else (q * 0, 1.0)


def scales_of_levels(num_levels: int, scale: float, divide_by_active: bool) -> tuple[float, ...]:
    """Factor of the logits of pairs that share 0, 1, ... levels."""
    return tuple(scale / max(1, shared) if divide_by_active else scale for shared in range(num_levels + 1))


def take(t: Tensor, starts: Sequence[int], length: int) -> Tensor:
    """The blocks of `t (Z, T, W)` that begin at `starts`, `(Z, n, length, W)`: a view where they are evenly spaced."""
    step = even_step(starts)
    if step is None:
        rows = torch.tensor(starts, device=t.device)[:, None] + torch.arange(length, device=t.device)
        return t[:, rows]
    z, s, w = t.stride()
    return t.as_strided(
        (t.shape[0], len(starts), length, t.shape[2]), (z, step * s, s, w), t.storage_offset() + starts[0] * s
    )


def put(t: Tensor, starts: Sequence[int], length: int, values: Tensor) -> None:
    """Write `values (Z, n, length, W)` into the blocks of `t (Z, T, W)` that begin at `starts`."""
    if even_step(starts) is not None:
        take(t, starts, length).copy_(values)
    else:
        for i, start in enumerate(starts):
            t[:, start : start + length] = values[:, i]


def add(t: Tensor, starts: Sequence[int], values: Tensor) -> None:
    """Add `values (Z, n, length, W)` to the blocks of `t (Z, T, W)` that begin at `starts`."""
    length = values.shape[2]
    if even_step(starts) is not None:
        take(t, starts, length).add_(values)
    else:
        for i, start in enumerate(starts):
            t[:, start : start + length] += values[:, i]


def even_step(starts: Sequence[int]) -> int | None:
    """The distance of evenly spaced starts; None if they are not."""
    if len(starts) == 1:
        return 1
    step = starts[1] - starts[0]
    return step if all(b - a == step for a, b in pairwise(starts)) else None


def flash(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Output `(Z, n, N, W)` and log-sum-exp `(Z, n, N)` of `q (Z, n, N, W)`, `k` and `v (Z, n, S, W)`."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return out, lse


def flash_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `q`, `k` and `v`, given output and log-sum-exp of all keys of a query, other calls' too."""
    grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, q, k, v, out, lse, 0.0, causal, scale=scale
    )
    return grads
