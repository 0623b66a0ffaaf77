"""Multi-level attention without the T x T matrix: disjoint tiles, each attention over a prefix of the components.

Where every level's blocks refine the level before, two tokens share levels 1 .. l and no finer one. Their score is then
a product of the first `r_1 + .. + r_l` components. The pairs fall into rectangles: in each block, the pairs of
different child blocks; at the finest level, the square blocks of the diagonal. Each rectangle goes through PyTorch's
flash kernel, whose log-sum-exp by row serves to merge the results. Backward, the kernel's own backward gets the merged
output and log-sum-exp. It yields exactly the tile's share of every gradient (as in ring attention, Liu et al. 2023).
Queries are zeroed after the prefix, level by level in one buffer; keys and values stay in place. The tiles of the
finest levels would be too small for the kernel. One square block computes them, with their components spread over one
slot per sub-block.

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

from tsattn.ops.masks import allowed_pairs
from tsattn.ops.modes import needs_plain_gradients, plain_gradients
from tsattn.ops.multilevel_plain import multilevel_attention_reference
from tsattn.ops.softmax import positive_scale
from tsattn.ops.tiling import BlockLayout, LeafGroup, TileGroup, TilePlan, find_layouts, plan_tiles

LEAF_TOKENS = 16384  # tokens of all rows whose leaves are computed at once

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
# takes the output and log-sum-exp over all keys of a query, including keys of other calls
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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
    """Compute `multilevel_attention` with memory linear in the length, on the tiles of `find_layouts`.

    Queries, keys and values have the same number of heads. Tokens that are not real get zeros.
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
        if length:
            flat = [t.reshape(num_rows * H, length, width) for t in parts]
            cut = Cut(layout, tuple(ranks), causal, scales)
            out = _TiledAttention.apply(*flat, cut)[0].view(num_rows, H, length, width)  # type: ignore[no-untyped-call]
        else:
            out = parts[0] + parts[1] + parts[2]  # no real token: an empty output in the inputs' graph
        if index is not None:
            out = parts[2].new_zeros(num_rows, H, T, width).index_copy(2, index, out)
        outs.append(out)
    if layouts[0].rows is None:
        return outs[0][..., :E]
    back = torch.tensor([row for layout in layouts for row in layout.rows or ()], device=q.device).argsort()
    return torch.cat(outs)[back][..., :E]


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
    """Compute `multilevel_attention_tiles` for `torch.compile`: one operator, in one graph for every length.

    `blocks (L, 1, T)` are nested, and `positions (1, T)` rise; the other arguments are the same.
    """
    q, scale = positive_scale(q, scale)
    flat = [t.flatten(0, 1).contiguous() for t in one_width(q, k, v)]
    scales = scales_of_levels(len(ranks), scale, divide_by_active)
    out: Tensor = _operator(*flat, blocks, positions, list(ranks), causal, list(scales))[0]
    return out.view(*v.shape[:3], -1)[..., : v.shape[-1]]


def one_width(*tensors: Tensor) -> list[Tensor]:
    """Give all tensors one width and contiguous components, which the kernel needs but does not check."""
    width = max(t.shape[-1] for t in tensors)
    padded = [F.pad(t, (0, width - t.shape[-1])) if t.shape[-1] < width else t for t in tensors]
    return [t if t.stride(-1) == 1 else t.contiguous() for t in padded]


def scales_of_levels(num_levels: int, scale: float, divide_by_active: bool) -> tuple[float, ...]:
    """Factor of the logits of pairs that share 0, 1, ... levels."""
    return tuple(scale / max(1, shared) if divide_by_active else scale for shared in range(num_levels + 1))


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
        """The tiles; a leaf holds several levels where their factors are equal."""
        one_factor = len(set(self.scales)) == 1
        return plan_tiles(self.layout.blocks, self.ranks, self.causal, self.layout.globals_at, one_factor)

    def plainly(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The output of queries, keys and values `(batch x heads, T, width)`, with every logit written out."""
        before = self.layout.globals_at
        starts = [pairwise(level) for level in self.layout.blocks]
        rows = [[number for number, (start, end) in enumerate(level) for _ in range(start, end)] for level in starts]
        ids = torch.tensor([row + [-1] * len(before) for row in rows], dtype=torch.long, device=q.device)
        # times: global tokens lie between other tokens; several before the same token keep their order
        unit = len(before) + 1
        times = [(2 * token + 1) * unit for token in range(self.layout.blocks[0][-1])]
        times += [2 * count * unit + number for number, count in enumerate(before)]
        order, everywhere = torch.tensor([times], device=q.device), ids[:1] < 0
        pairs: dict[str, Any] = {"query_blocks": ids[:, None], "key_blocks": ids[:, None]}
        pairs |= {"global_queries": everywhere, "global_keys": everywhere, "scale": self.scales[0]}
        pairs |= {"allowed": allowed_pairs(order, order, causal=self.causal), "bias": None, "dropout_p": 0.0}
        q, k = (t[..., : sum(self.ranks)] for t in (q, k))
        divide = len(set(self.scales)) > 1
        out = multilevel_attention_reference(
            *(t[:, None] for t in (q, k, v)), ranks=self.ranks, divide_by_active=divide, **pairs
        )
        return out[:, 0]


class _TiledAttention(torch.autograd.Function):
    """Forward and backward over the tiles of a `Cut`; tensors are `(batch x heads, T, width)`.

    Returns the output, and the log-sum-exp of the logits of each query, which has no gradient. Second derivatives and
    batched gradients come from the plain form, in memory quadratic in T.
    """

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, cut: Cut) -> tuple[Tensor, Tensor]:
        return tiled_forward(q, k, v, cut)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Cut], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.cut = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        if needs_plain_gradients(grad_out):
            return *plain_gradients(ctx.cut.plainly, (q, k, v), grad_out), None
        return *tiled_backward(grad_out, q, k, v, out, lse, ctx.cut), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Compute one call with more rows."""
        *tensors, cut = inputs
        moved = (
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip(tensors, in_dims, strict=False)
        )
        outputs = _TiledAttention.apply(*(t.flatten(0, 1) for t in moved), cut)  # type: ignore[no-untyped-call]
        return tuple(torch.unflatten(t, 0, (info.batch_size, -1)) for t in outputs), (0, 0)


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
    return tiled_forward(q, k, v, _cut_of_row(blocks, positions, ranks, causal, scales))


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
    return tiled_backward(grad_out, q, k, v, out, lse, _cut_of_row(blocks, positions, ranks, causal, scales))


@_operator.register_fake
def _(q, k, v, blocks, positions, ranks, causal, scales):  # type: ignore[no-untyped-def]
    lse = v.new_empty(v.shape[:2], dtype=torch.promote_types(v.dtype, torch.float32))
    return torch.empty_like(v), lse


@_operator_backward.register_fake
def _(grad_out, q, k, v, *others):  # type: ignore[no-untyped-def]
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


def _cut_of_row(blocks: Tensor, positions: Tensor, ranks: Sequence[int], causal: bool, scales: Sequence[float]) -> Cut:
    """The cut of one row of ordered tokens without padding."""
    layouts = find_layouts(blocks, positions)
    if isinstance(layouts, str):
        raise ValueError(f"no tiles: {layouts}")
    return Cut(layouts[0], tuple(ranks), causal, tuple(scales))


def tiled_forward(q: Tensor, k: Tensor, v: Tensor, cut: Cut) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of the logits of each query."""
    out = torch.empty_like(v, dtype=torch.promote_types(v.dtype, torch.float32))
    lse = torch.empty(v.shape[:2], dtype=out.dtype, device=v.device)
    plan, scales = cut.plan, cut.scales
    for leaf in plan.leaves:
        for part in pieces(len(q), leaf):
            leaf_inputs = _leaf_inputs(q[part], k[part], v[part], leaf, plan.leaf_level, cut.ranks)
            partial, partial_lse = _flash(*leaf_inputs, 0.0, cut.causal, scale=scales[-1])
            put(out[part], leaf.starts, leaf.length, partial[..., : v.shape[-1]])
            put(lse[part, :, None], leaf.starts, leaf.length, partial_lse[..., None])
    q_prefix = q.clone()
    for tile in plan.tiles:
        q_prefix[..., tile.prefix :] = 0
        queries = take(q_prefix, tile.query_starts, tile.num_queries)
        keys, values = (take(t, tile.key_starts, tile.num_keys) for t in (k, v))
        _merge(out, lse, tile, *_flash(queries, keys, values, 0.0, False, scale=scales[tile.levels]))
    return out.to(v.dtype), lse


def tiled_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, cut: Cut
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `q`, `k` and `v`, from the results of `tiled_forward`."""
    grad_out = grad_out.contiguous()
    exact = torch.promote_types(q.dtype, torch.float32)
    dq, dk, dv = (torch.empty_like(t, dtype=exact) for t in (q, k, v))
    plan, scales = cut.plan, cut.scales
    for leaf in plan.leaves:
        for part in pieces(len(q), leaf):
            known = tuple(t[part] for t in (grad_out, q, k, v, out, lse))
            _leaf_backward(known, leaf, plan.leaf_level, cut, (dq[part], dk[part], dv[part]))
    q_prefix = q.clone()
    for tile in plan.tiles:
        q_prefix[..., tile.prefix :] = 0
        grad_tile, queries, out_tile, lse_tile = (
            take(t, tile.query_starts, tile.num_queries) for t in (grad_out, q_prefix, out, lse[..., None])
        )
        keys, values = (take(t, tile.key_starts, tile.num_keys) for t in (k, v))
        grads = _flash_backward(
            grad_tile, queries, keys, values, out_tile, lse_tile[..., 0], 0.0, False, scale=scales[tile.levels]
        )
        add(dq[..., : tile.prefix], tile.query_starts, grads[0][..., : tile.prefix])
        add(dk[..., : tile.prefix], tile.key_starts, grads[1][..., : tile.prefix])
        add(dv, tile.key_starts, grads[2])
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


def _merge(out: Tensor, lse: Tensor, tile: TileGroup, partial: Tensor, partial_lse: Tensor) -> None:
    """Merge a tile's outputs `(Z, n, length, W)` and log-sum-exps `(Z, n, length)` into the results of its queries."""
    if even_step(tile.query_starts) is None:
        for i, start in enumerate(tile.query_starts):
            end = start + tile.num_queries
            _merge_into(out[:, start:end], lse[:, start:end], partial[:, i], partial_lse[:, i])
    else:
        here, lse_here = (take(t, tile.query_starts, tile.num_queries) for t in (out, lse[..., None]))
        _merge_into(here, lse_here[..., 0], partial, partial_lse)


def _merge_into(out: Tensor, lse: Tensor, partial: Tensor, partial_lse: Tensor) -> None:
    # the mean weighted by exp(lse), written so that nothing overflows
    partial_lse = partial_lse.to(lse.dtype)
    out.lerp_(partial.to(out.dtype), torch.sigmoid(partial_lse - lse)[..., None])
    lse.copy_(torch.logaddexp(lse, partial_lse))


def pieces(rows: int, leaf: LeafGroup) -> list[slice]:
    """Slices of a few rows of a batch: spread components of all rows together would need much memory."""
    step = max(1, LEAF_TOKENS // (len(leaf.starts) * leaf.length))
    return [slice(start, start + step) for start in range(0, rows, step)]


def _leaf_inputs(
    q: Tensor, k: Tensor, v: Tensor, leaf: LeafGroup, level: int, ranks: Sequence[int]
) -> tuple[Tensor, ...]:
    """The leaf blocks, with the components of the levels inside spread over one slot per sub-block."""
    q, k, v = (take(t, leaf.starts, leaf.length) for t in (q, k, v))
    if not leaf.slots:
        return q, k, v
    q, k = (_spread(t, leaf, level, ranks) for t in (q, k))
    width = max(q.shape[-1], v.shape[-1])
    return tuple(F.pad(t, (0, width - t.shape[-1])) for t in (q, k, v))


def _leaf_backward(
    known: tuple[Tensor, ...], leaf: LeafGroup, level: int, cut: Cut, grads: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Write the leaves' share of the gradients; `known` are the first six arguments of `tiled_backward`."""
    grad_out, q, k, v, out, lse = known
    leaf_inputs = _leaf_inputs(q, k, v, leaf, level, cut.ranks)
    pad = leaf_inputs[2].shape[-1] - v.shape[-1]
    grad_leaf, out_leaf = (F.pad(take(t, leaf.starts, leaf.length), (0, pad)) for t in (grad_out, out))
    lse_leaf = take(lse[..., None], leaf.starts, leaf.length)[..., 0]
    dq, dk, dv = _flash_backward(grad_leaf, *leaf_inputs, out_leaf, lse_leaf, 0.0, cut.causal, scale=cut.scales[-1])
    if leaf.slots:
        dq, dk = (_gather_spread(t, leaf, level, cut.ranks, q.shape[-1]) for t in (dq, dk))
        dv = dv[..., : v.shape[-1]]
    for total, share in zip(grads, (dq, dk, dv), strict=True):
        put(total, leaf.starts, leaf.length, share)


def _slots(leaf: LeafGroup, t: Tensor) -> list[Tensor]:
    """For each level inside a leaf, the 0/1 membership of its tokens in the sub-blocks, `(length, p, 1)`."""
    return [
        F.one_hot(torch.tensor(slots, device=t.device), max(slots) + 1).to(t.dtype)[..., None] for slots in leaf.slots
    ]


def _spread(t: Tensor, leaf: LeafGroup, level: int, ranks: Sequence[int]) -> Tensor:
    base = sum(ranks[: level + 1])
    parts = [t[..., :base]]
    for slots, rank in zip(_slots(leaf, t), ranks[level + 1 :], strict=True):
        parts.append((t[..., None, base : base + rank] * slots).flatten(-2))
        base += rank
    return torch.cat(parts, -1)


def _gather_spread(grad: Tensor, leaf: LeafGroup, level: int, ranks: Sequence[int], width: int) -> Tensor:
    """The transpose of `_spread`."""
    place = sum(ranks[: level + 1])
    parts = [grad[..., :place]]
    for slots, rank in zip(_slots(leaf, grad), ranks[level + 1 :], strict=True):
        p = slots.shape[1]
        parts.append((torch.unflatten(grad[..., place : place + p * rank], -1, (p, rank)) * slots).sum(-2))
        place += p * rank
    joined = torch.cat(parts, -1)
    return F.pad(joined, (0, width - joined.shape[-1]))


def take(t: Tensor, starts: Sequence[int], length: int) -> Tensor:
    """The blocks of `t (Z, T, W)` that begin at `starts`, `(Z, n, length, W)`: a view if they are evenly spaced."""
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
