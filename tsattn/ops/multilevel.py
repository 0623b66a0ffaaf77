"""Multi-level low-rank (MLR) attention: near pairs are scored with more components than far pairs.

`S[j, j'] = scale * sum over the levels l in which j and j' share a block of q_l[j] . k_l[j']`
(Kuang et al., section 4): the r components are cut into levels, and each level cuts the sequence into blocks.

Five ways to the same numbers: `reference` writes every level's score matrix out; `sdpa` spreads each level's
components over one slot for each of its blocks, so that a plain product of wider vectors is the multi-level score
and a fused kernel computes it; `tiles` cuts the pairs into rectangles of one prefix each and never forms a matrix of
scores (see `tsattn.ops.multilevel_tiles`); `triton` does the same in one kernel on a CUDA device. `auto` takes `triton`
on CUDA; on a CPU `reference` while the scores fit into its cache, then `tiles`; where these cannot, `sdpa` while its
width stays small, else `reference`. Where the logits are divided by the levels that a pair shares, `reference` and
`tiles` compute it: a tile has one number of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from tsattn.errors import UserError, one_of
from tsattn.ops.full import full_attention_sdpa
from tsattn.ops.masks import RegularBlocks, allowed_pairs, without_padding
from tsattn.ops.modes import is_readable, is_vmapped, why_no_fused_derivative
from tsattn.ops.multilevel_tiles import multilevel_attention_tiles, multilevel_attention_traced
from tsattn.ops.native import UNREADABLE, Intervals, is_worth_native, native_attention, pair_intervals, why_not_native
from tsattn.ops.softmax import expand_heads, in_widest_type, softmax_attention, wide
from tsattn.ops.tiling import BlockLayout, find_layouts, regular_layout

__all__ = ["multilevel_attention", "multilevel_attention_reference", "multilevel_attention_sdpa"]

# Beyond this width the kernel's extra multiplications cost more than the score matrices that it saves: forward and
# backward cross over near 300, for 3 and 4 levels of 8 and 64 components at 512 tokens on one core.
MAX_SPREAD_WIDTH = 256

# Up to this width the fused kernel is bound by its exponentials, not its products, and one call beats many tiles.
NARROW_SPREAD_WIDTH = 32

# While the scores of all heads are no more bytes than this, they stay in the cache of a CPU, and a few large products
# beat many small calls of the fused kernel: measured at 21 to 256 tokens and 2 to 8 levels on one core.
CACHED_SCORES = 2**22

IMPLS = ("auto", "reference", "sdpa", "tiles", "triton", "native")

# those that can divide the logits of a pair by the levels that it shares
DIVIDING_IMPLS = ("auto", "reference", "tiles", "native")
CANNOT_DIVIDE = "it cannot divide the logits of a pair by its active levels, which reference, tiles and native can"


@in_widest_type
def multilevel_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    blocks: Tensor,
    positions: Tensor | None = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    divide_by_active: bool = False,
    dropout_p: float = 0.0,
    impl: str = "auto",
    num_blocks: Sequence[int] | None = None,
    regular: RegularBlocks | None = None,
) -> Tensor:
    """Softmax attention of a sequence to itself with multi-level scores.

    Args:
        q: `(B, H | 1, T, r)` queries.
        k: `(B, G, T, r)` keys.
        v: `(B, G, T, E)` values. Of different types, the three are computed in the widest.
        ranks: components of each level, coarse to fine; they sum to r.
        blocks: `(L, B | 1, T)` int, the block of every token at every level.
        positions: `(B | 1, T)` int; the order of the tokens by default.
        causal: a token sees no later position.
        key_mask: `(B, T)` bool, True at real tokens. A query with no allowed key gives zeros.
        global_tokens: `(B | 1, T)` bool: tokens that share every level with every token.
        bias: broadcastable to `(B, H, T, T)`, added to the logits; -inf forbids a pair.
        scale: factor of the logits; `1 / sqrt(r)` by default.
        divide_by_active: divide the logits of a pair by the number of levels in which its tokens share a block, the
            language-model form of Kuang et al. (ICML 2025). `sdpa` and `triton` cannot.
        dropout_p: probability of dropping a weight. The caller gates it on training.
        impl: ``reference``, ``sdpa``, ``tiles``, ``triton``, ``native`` or ``auto``. ``tiles`` needs nested blocks, no
            bias and no dropout; ``triton`` a CUDA device, no bias and no dropout; ``native`` a CPU, nested blocks, and
            numbers in float32 or bfloat16.
        num_blocks: for each level, a number that is known to be above the ids of all blocks of real tokens, if there is
            one. `sdpa` needs it where the blocks cannot be looked at, see `is_readable`.
        regular: the tokens and their blocks, where these are known to be nested and to serve the whole batch. Under
            `torch.compile` on a CPU, where the tokens cannot be looked at, `auto` then takes the kernel or the tiles,
            else the reference, in one graph for every length.

    Returns:
        `(B, H, T, E)`, of v's type.

    Raises:
        UserError: if the named `impl` cannot compute this.
    """
    if sum(ranks) != q.shape[-1] or len(ranks) != blocks.shape[0]:
        raise ValueError(f"ranks {list(ranks)} do not fit {q.shape[-1]} components and {blocks.shape[0]} levels")
    if impl not in IMPLS:
        raise UserError(f"unknown impl {impl!r}: multi-level attention has {one_of(IMPLS)}")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    q, k, v = without_padding(key_mask, q, k, v)
    if positions is None:
        positions = torch.arange(q.shape[2], device=q.device)[None]
    if not (v.shape[0] and v.shape[2]):
        impl = "reference"  # no pair to score, which the kernels do not take
    if key_mask is not None or global_tokens is not None:
        regular = None
    tokens = _Tokens(blocks, positions, key_mask, global_tokens, regular)
    if impl in ("auto", "native"):
        found = _native_intervals(q, k, v, bias, tokens, causal)
        if not isinstance(found, str) and (impl == "native" or is_worth_native(q, k)):
            factors = [1 / max(1, shared) for shared in range(len(ranks) + 1)] if divide_by_active else ()
            more: dict[str, Any] = {"bias": bias, "level_factors": factors, "dropout_p": dropout_p}
            return native_attention(q, k, v, intervals=found, ranks=ranks, scale=scale, **more)
        if impl == "native":
            raise UserError(f"impl native cannot compute this multi-level attention: {found}")
    layouts: Sequence[BlockLayout] | str | None = None
    if regular is not None and q.shape[2] and not torch.compiler.is_compiling():
        layouts = [regular_layout(regular)]
    readable = layouts is not None or is_readable(*tokens.tensors)
    nested: dict[str, Any] = {"ranks": ranks, "causal": causal, "scale": scale, "divide_by_active": divide_by_active}
    whole = bias is None and not dropout_p and forward_ad._current_level < 0
    traced = torch.compiler.is_compiling() and q.device.type == "cpu" and regular is not None
    if traced and impl in ("auto", "tiles") and whole and not is_vmapped():
        return multilevel_attention_traced(*expand_heads(q, k, v), blocks=blocks, positions=positions, **nested)
    if readable and layouts is None and whole and (impl == "tiles" or (impl == "auto" and q.device.type == "cpu")):
        layouts = find_layouts(blocks, positions, key_mask=key_mask, global_tokens=global_tokens)
    why_not: dict[str, str | None] = {
        "reference": None,
        "sdpa": _why_not_sdpa(divide_by_active, num_blocks is not None or is_readable(blocks)),
        "tiles": _why_not_tiles(layouts, bias is None and not dropout_p),
        "triton": CANNOT_DIVIDE if divide_by_active else _why_not_triton(q, v, bias, dropout_p),
    }
    if impl == "auto":
        score_bytes = v.shape[0] * max(q.shape[1], v.shape[1]) * q.shape[2] ** 2 * wide(q).element_size()
        fits = [name for name, reason in why_not.items() if reason is None]
        if readable:
            impl = _choose(fits, q.device, layouts, blocks, ranks, score_bytes)
        else:  # it is not known how wide the components would be spread
            impl = "triton" if "triton" in fits else "reference"
    elif why_not[impl] is not None:
        raise UserError(f"impl {impl} cannot compute this multi-level attention: {why_not[impl]}")
    if impl == "tiles" and layouts is not None and not isinstance(layouts, str):
        return multilevel_attention_tiles(*expand_heads(q, k, v), layouts=layouts, **nested)
    pairs: dict[str, Any] = {
        "ranks": ranks,
        "query_blocks": blocks,
        "key_blocks": blocks,
        "global_queries": global_tokens,
        "global_keys": global_tokens,
        "scale": scale,
    }
    if impl == "triton":
        from tsattn.ops.multilevel_triton import multilevel_attention_triton

        q = q.expand(-1, max(t.shape[1] for t in (q, k, v)), -1, -1)
        pairs |= {"query_positions": positions, "key_positions": positions, "key_mask": key_mask}
        return multilevel_attention_triton(q, k, v, causal=causal, **pairs)
    allowed = allowed_pairs(positions, positions, causal=causal, key_mask=key_mask)
    pairs |= {"allowed": allowed, "bias": bias, "dropout_p": dropout_p}
    if impl == "sdpa":
        return multilevel_attention_sdpa(q, k, v, **pairs, num_blocks=None if is_readable(blocks) else num_blocks)
    return multilevel_attention_reference(q, k, v, **pairs, divide_by_active=divide_by_active)


@dataclass(frozen=True)
class _Tokens:
    """What `multilevel_attention` is told about the tokens."""

    blocks: Tensor
    positions: Tensor
    key_mask: Tensor | None
    global_tokens: Tensor | None
    regular: RegularBlocks | None

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        return self.blocks, self.positions, self.key_mask, self.global_tokens


def _native_intervals(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, tokens: _Tokens, causal: bool
) -> Intervals | str:
    """The pairs as the kernel takes them, or the reason why it cannot compute this."""
    hidden = tokens.tensors if tokens.regular is None else ()
    why_not = why_not_native(q, k, v, bias, levels=len(tokens.blocks), hidden=hidden)
    if why_not is not None:
        return why_not
    return pair_intervals(
        q,
        k,
        causal=causal,
        query_positions=tokens.positions,
        key_positions=tokens.positions,
        key_mask=tokens.key_mask,
        global_tokens=tokens.global_tokens,
        blocks=tokens.blocks,
        regular=tokens.regular,
    )


def _choose(
    fits: Sequence[str],
    device: torch.device,
    layouts: Sequence[BlockLayout] | str | None,
    blocks: Tensor,
    ranks: Sequence[int],
    score_bytes: int,
) -> str:
    """The implementation of `fits` that `auto` takes; `score_bytes` are those of all scores, written out."""
    if "triton" in fits:
        return "triton"
    if device.type == "cpu" and score_bytes <= CACHED_SCORES and len(ranks) > 1:
        return "reference"
    if device.type == "cpu" and "tiles" in fits and layouts is not None and not isinstance(layouts, str):
        narrow = _spread_width(layouts, ranks) <= NARROW_SPREAD_WIDTH
        return "sdpa" if narrow and "sdpa" in fits else "tiles"
    if "sdpa" not in fits or not is_readable(blocks):
        return "reference"
    spread = sum(n * r for n, r in zip(count_blocks(blocks, blocks), ranks, strict=True))
    return "sdpa" if spread <= MAX_SPREAD_WIDTH else "reference"


def _why_not_sdpa(divide_by_active: bool, counts_blocks: bool) -> str | None:
    if divide_by_active:
        return CANNOT_DIVIDE
    return why_no_fused_derivative() if counts_blocks else UNREADABLE


def _why_not_tiles(layouts: Sequence[BlockLayout] | str | None, plain: bool) -> str | None:
    if not plain:
        return "it takes no bias and no dropout"
    if forward_ad._current_level >= 0:
        return why_no_fused_derivative()
    if layouts is None:
        return UNREADABLE
    return layouts if isinstance(layouts, str) else None


def _why_not_triton(q: Tensor, v: Tensor, bias: Tensor | None, dropout_p: float) -> str | None:
    if q.device.type != "cuda":
        return "it runs on a CUDA device"
    if is_vmapped() if torch.compiler.is_compiling() else not is_readable(q, v):
        return "it has no rule for torch.func and fake tensors; reference has"
    from tsattn.ops.multilevel_triton import triton_available

    if bias is not None or dropout_p:
        return "it takes no bias and no dropout"
    if q.dtype == torch.float64 or max(q.shape[-1], v.shape[-1]) > 256:
        return "it takes at most 256 components of 16 or 32 bits"
    return None if triton_available() else "Triton is not installed; the extra `triton` brings it"


def _spread_width(layouts: Sequence[BlockLayout], ranks: Sequence[int]) -> int:
    """Components of the widest row of a batch when each level's are spread over one slot a block."""
    return max(
        sum((len(starts) - 1) * rank for starts, rank in zip(layout.blocks, ranks, strict=True)) for layout in layouts
    )


def multilevel_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    global_queries: Tensor | None,
    global_keys: Tensor | None,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
    divide_by_active: bool = False,
) -> Tensor:
    """`multilevel_attention` with every level's score matrix written out; queries and keys may differ."""
    q, k, v = expand_heads(q, k, v)
    levels = zip(
        torch.split(wide(q), list(ranks), -1),
        torch.split(wide(k), list(ranks), -1),
        query_blocks,
        key_blocks,
        strict=True,
    )
    logits = torch.zeros((), dtype=wide(q).dtype, device=q.device)
    active = torch.zeros((), dtype=wide(q).dtype, device=q.device)
    for q_level, k_level, query_block, key_block in levels:
        same = query_block[:, :, None] == key_block[:, None, :]
        if global_queries is not None and global_keys is not None:
            same = same | global_queries[:, :, None] | global_keys[:, None, :]
        logits = logits + (q_level @ k_level.transpose(-1, -2)).masked_fill(~same[:, None], 0.0)
        if divide_by_active:
            active = active + same[:, None]
    if divide_by_active:
        logits = logits / active.clamp(min=1)
    return softmax_attention(logits * scale, v, allowed=allowed, bias=bias, dropout_p=dropout_p)


def multilevel_attention_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    global_queries: Tensor | None,
    global_keys: Tensor | None,
    allowed: Tensor | None,
    bias: Tensor | None,
    scale: float,
    dropout_p: float,
    num_blocks: Sequence[int] | None = None,
) -> Tensor:
    """`multilevel_attention` as plain attention over components spread over one slot a block; queries may differ.

    With `num_blocks`, ids are taken as they stand, from 0, and those outside are of padded tokens.
    """
    q_wide, k_wide = [], []
    counted = num_blocks is None
    num_blocks = count_blocks(query_blocks, key_blocks) if num_blocks is None else num_blocks
    for level, (q_level, k_level) in enumerate(
        zip(torch.split(q, list(ranks), -1), torch.split(k, list(ranks), -1), strict=True)
    ):
        if num_blocks[level] == 1:
            q_wide.append(q_level)
            k_wide.append(k_level)
            continue
        ids = [query_blocks[level], key_blocks[level]]
        if counted:
            if num_blocks[level] > sum(t.numel() for t in ids):  # far apart: one slot for each that is there
                present, numbers = torch.unique(torch.cat([t.flatten() for t in ids]), return_inverse=True)
                query_slots, key_slots = (
                    F.one_hot(part.view_as(t), len(present))
                    for part, t in zip(numbers.split([t.numel() for t in ids]), ids, strict=True)
                )
            else:
                offset = torch.minimum(ids[0].min(), ids[1].min())
                query_slots, key_slots = (F.one_hot(t - offset, num_blocks[level]) for t in ids)
        else:
            every = torch.arange(num_blocks[level], device=q.device)
            query_slots, key_slots = ((t[..., None] == every).long() for t in ids)
        if global_queries is not None and global_keys is not None:
            query_slots, key_slots = _add_global_slots(query_slots, key_slots, global_queries, global_keys)
        q_wide.append(_spread(q_level, query_slots))
        k_wide.append(_spread(k_level, key_slots))
    return full_attention_sdpa(
        torch.cat(q_wide, -1),
        torch.cat(k_wide, -1),
        v,
        allowed=allowed,
        bias=bias,
        scale=scale,
        dropout_p=dropout_p,
    )


def count_blocks(query_blocks: Tensor, key_blocks: Tensor) -> list[int]:
    """How many numbers the blocks of each level lie between."""
    low = torch.minimum(query_blocks.amin((1, 2)), key_blocks.amin((1, 2)))
    high = torch.maximum(query_blocks.amax((1, 2)), key_blocks.amax((1, 2)))
    return [last - first + 1 for first, last in zip(low.tolist(), high.tolist(), strict=True)]


def _add_global_slots(
    query_slots: Tensor, key_slots: Tensor, global_queries: Tensor, global_keys: Tensor
) -> tuple[Tensor, Tensor]:
    """Two more slots, such that a pair with a global token matches exactly once.

    The slots of (query, key) are (0, 1), (1, 0) for ordinary tokens; (1, 0), (1, 1) for global ones, whose own
    block is cleared.
    """
    B = max(query_slots.shape[0], global_queries.shape[0])
    query_slots, key_slots = query_slots.expand(B, -1, -1), key_slots.expand(B, -1, -1)
    q_global, k_global = (t.long()[..., None].expand(B, -1, -1) for t in (global_queries, global_keys))
    queries = torch.cat([query_slots * (1 - q_global), q_global, 1 - q_global], -1)
    keys = torch.cat([key_slots * (1 - k_global), torch.ones_like(k_global), k_global], -1)
    return queries, keys


def _spread(components: Tensor, slots: Tensor) -> Tensor:
    """`(B, H, S, r)` components and `(B | 1, S, p)` slots to `(B, H, S, p r)`."""
    return (components[..., None, :] * slots[:, None, :, :, None].to(components.dtype)).flatten(-2)
