"""Multi-level low-rank (MLR) attention: near pairs are scored with more components than far pairs.

`S[j, j'] = scale * sum over the levels l in which j and j' share a block of q_l[j] . k_l[j']`
(Kuang et al., section 4): the r components are cut into levels, and each level cuts the sequence into blocks.

All implementations compute the same numbers. `reference` writes out every level's score matrix. `sdpa` spreads each
level's components over one slot per block: a fused kernel then gets multi-level scores from a plain product. `tiles`
cuts the pairs into rectangles of one prefix each, without a matrix of scores (see `tsattn.ops.multilevel_tiles`).
`triton` does this in one kernel on a CUDA device, `native` on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tsattn.errors import UserError, one_of
from tsattn.ops.masks import RegularBlocks, allowed_pairs, without_padding
from tsattn.ops.modes import is_forward_mode, is_readable, is_vmapped, why_no_fused_derivative
from tsattn.ops.multilevel_plain import count_blocks, multilevel_attention_reference, multilevel_attention_sdpa
from tsattn.ops.multilevel_tiles import multilevel_attention_tiles, multilevel_attention_traced
from tsattn.ops.native import UNREADABLE, Intervals, is_worth_native, native_attention, pair_intervals, why_not_native
from tsattn.ops.softmax import expand_heads, in_widest_type, wide
from tsattn.ops.tiling import BlockLayout, find_layouts, regular_layout

# Beyond this width the kernel's extra multiplications cost more than the score matrices that it saves: forward and
# backward cross over near 300, for 3 and 4 levels of 8 and 64 components at 512 tokens on one core.
MAX_SPREAD_WIDTH = 256

# Up to this width the fused kernel is bound by its exponentials, not its products, and one call beats many tiles.
NARROW_SPREAD_WIDTH = 32

# While the scores of all heads are no more bytes than this, they stay in the cache of a CPU, and a few large products
# beat many small calls of the fused kernel: measured at 21 to 256 tokens and 2 to 8 levels on one core.
CACHED_SCORES = 2**22

IMPLS = ("auto", "reference", "sdpa", "tiles", "triton", "native")

# implementations that can divide the logits of a pair by the levels that it shares
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
    """Compute softmax attention of a sequence to itself with multi-level scores.

    Args:
        q: `(B, H | 1, T, r)` queries.
        k: `(B, G, T, r)` keys.
        v: `(B, G, T, E)` values. Types may differ: attention is computed in the widest.
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
            numbers in float32 or bfloat16. ``auto`` takes a kernel where possible. Else a CPU takes ``reference`` while
            the scores fit into its cache, then ``tiles``; last is ``sdpa``, if narrow enough.
        num_blocks: for each level, a number above all block ids of real tokens, if known. `sdpa` needs it where the
            blocks cannot be read (`is_readable`).
        regular: description of the blocks, if they nest and hold for the whole batch. Under `torch.compile` on a CPU
            `auto` then takes the kernel or the tiles, in one graph for every length.

    Returns:
        `(B, H, T, E)`, of v's type.

    Raises:
        UserError: if the named `impl` cannot compute this.
    """
    if sum(ranks) != q.shape[-1] or len(ranks) != blocks.shape[0]:
        raise ValueError(f"ranks {list(ranks)} do not fit {q.shape[-1]} components and {blocks.shape[0]} levels")
    if impl not in IMPLS:
        raise UserError(f"unknown impl {impl!r}: multi-level attention has {one_of(IMPLS)}")
    q, k, v = without_padding(key_mask, q, k, v)
    positions = torch.arange(q.shape[2], device=q.device)[None] if positions is None else positions
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    regular = regular if key_mask is None and global_tokens is None else None
    call = _Call(
        *(q, k, v, ranks, blocks, positions, causal, key_mask, global_tokens),
        *(bias, scale, divide_by_active, dropout_p, num_blocks, regular),
    )
    if not (v.shape[0] and v.shape[2]):
        return call.by_reference()  # no pair to score, which the kernels do not take
    if impl in ("auto", "native"):
        found: Intervals | str | None = call.why_not_native
        if found is None and (impl == "native" or is_worth_native(q)):
            found = call.intervals()
            if not isinstance(found, str):
                return call.by_native(found)
        if impl == "native":
            raise UserError(f"impl native cannot compute this multi-level attention: {found}")
    if impl in ("auto", "tiles") and call.is_traced:
        shared: dict[str, Any] = {"blocks": blocks, "positions": positions, **call.logits}
        return multilevel_attention_traced(*expand_heads(q, k, v), **shared)
    layouts = call.layouts(impl)
    why_not = call.why_not(layouts)
    if impl == "auto":
        impl = call.choose([name for name, reason in why_not.items() if reason is None], layouts)
    elif why_not[impl] is not None:
        raise UserError(f"impl {impl} cannot compute this multi-level attention: {why_not[impl]}")
    if impl == "tiles" and isinstance(layouts, list):
        return multilevel_attention_tiles(*expand_heads(q, k, v), layouts=layouts, **call.logits)
    return {"sdpa": call.by_sdpa, "triton": call.by_triton}.get(impl, call.by_reference)()


@dataclass(frozen=True)
class _Call:
    """A call of `multilevel_attention`, with its arguments: which implementations can compute it, and how."""

    q: Tensor
    k: Tensor
    v: Tensor
    ranks: Sequence[int]
    blocks: Tensor
    positions: Tensor
    causal: bool
    key_mask: Tensor | None
    global_tokens: Tensor | None
    bias: Tensor | None
    scale: float
    divide_by_active: bool
    dropout_p: float
    num_blocks: Sequence[int] | None
    regular: RegularBlocks | None

    @property
    def tokens(self) -> tuple[Tensor | None, ...]:
        """The tensors that describe the tokens."""
        return self.blocks, self.positions, self.key_mask, self.global_tokens

    @property
    def logits(self) -> dict[str, Any]:
        """The arguments of the tiles that shape scores."""
        names = ("ranks", "causal", "scale", "divide_by_active")
        return {name: getattr(self, name) for name in names}

    @property
    def is_whole(self) -> bool:
        """Whether the tiles take the call: no bias, no dropout, no forward-mode derivative."""
        return self.bias is None and not self.dropout_p and not is_forward_mode()

    @property
    def is_traced(self) -> bool:
        """Whether the tiles can be one node of a graph for a CPU."""
        traced = torch.compiler.is_compiling() and self.q.device.type == "cpu" and self.regular is not None
        return traced and self.is_whole and not is_vmapped()

    @property
    def why_not_native(self) -> str | None:
        """Why the native kernel cannot compute this, for any blocks."""
        hidden = self.tokens if self.regular is None else ()
        return why_not_native(self.q, self.k, self.v, self.bias, levels=len(self.blocks), hidden=hidden)

    def intervals(self) -> Intervals | str:
        """The pairs as the native kernel takes them, or the reason why it cannot."""
        places: dict[str, Any] = {"query_positions": self.positions, "key_positions": self.positions}
        names = ("causal", "key_mask", "global_tokens", "blocks", "regular")
        return pair_intervals(self.q, self.k, **places, **{name: getattr(self, name) for name in names})

    def layouts(self, impl: str) -> list[BlockLayout] | str | None:
        """How rows are cut into tiles, or why they cannot be; None if not asked for, or if nothing can be read."""
        if self.regular is not None and self.q.shape[2] and not torch.compiler.is_compiling():
            return [regular_layout(self.regular)]
        asked = impl == "tiles" or (impl == "auto" and self.q.device.type == "cpu")
        if not (asked and self.is_whole and is_readable(*self.tokens)):
            return None
        return find_layouts(self.blocks, self.positions, key_mask=self.key_mask, global_tokens=self.global_tokens)

    def why_not(self, layouts: list[BlockLayout] | str | None) -> dict[str, str | None]:
        """For each implementation except `native`, why it cannot compute this; None if it can."""
        if self.bias is not None or self.dropout_p:
            tiles: str | None = "it takes no bias and no dropout"
        elif is_forward_mode():
            tiles = why_no_fused_derivative()
        else:
            tiles = UNREADABLE if layouts is None else layouts if isinstance(layouts, str) else None
        counts_blocks = self.num_blocks is not None or is_readable(self.blocks)
        sdpa = why_no_fused_derivative() if counts_blocks else UNREADABLE
        cannot = CANNOT_DIVIDE if self.divide_by_active else None
        return {"reference": None, "sdpa": cannot or sdpa, "tiles": tiles, "triton": cannot or self._why_not_triton()}

    def _why_not_triton(self) -> str | None:
        q, v = self.q, self.v
        if q.device.type != "cuda":
            return "it runs on a CUDA device"
        if is_vmapped() if torch.compiler.is_compiling() else not is_readable(q, v):
            return "it has no rule for torch.func and fake tensors; reference has"
        from tsattn.ops.multilevel_triton import MAX_LEVELS, MAX_WIDTH, triton_available

        if self.bias is not None or self.dropout_p:
            return "it takes no bias and no dropout"
        if q.dtype == torch.float64 or max(q.shape[-1], v.shape[-1]) > MAX_WIDTH or len(self.ranks) > MAX_LEVELS:
            return f"it takes at most {MAX_WIDTH} components of 16 or 32 bits, and {MAX_LEVELS} levels"
        return None if triton_available() else "Triton is not installed; the extra `triton` brings it"

    def choose(self, fits: Sequence[str], layouts: list[BlockLayout] | str | None) -> str:
        """The implementation that `auto` takes among those that fit."""
        if "triton" in fits:
            return "triton"
        if not isinstance(layouts, list) and not is_readable(*self.tokens):
            return "reference"  # it is not known how wide the components would be spread
        on_cpu = self.q.device.type == "cpu"
        heads, T = max(self.q.shape[1], self.v.shape[1]), self.q.shape[2]
        score_bytes = self.v.shape[0] * heads * T**2 * wide(self.q).element_size()
        if on_cpu and score_bytes <= CACHED_SCORES and len(self.ranks) > 1:
            return "reference"
        if on_cpu and "tiles" in fits and isinstance(layouts, list):
            narrow = _spread_width(layouts, self.ranks) <= NARROW_SPREAD_WIDTH
            return "sdpa" if narrow and "sdpa" in fits else "tiles"
        if "sdpa" not in fits or not is_readable(self.blocks):
            return "reference"
        spread = sum(n * r for n, r in zip(count_blocks(self.blocks, self.blocks), self.ranks, strict=True))
        return "sdpa" if spread <= MAX_SPREAD_WIDTH else "reference"

    @property
    def _shared(self) -> dict[str, Any]:
        """The arguments about shared levels, for the functions with separate queries and keys."""
        both: dict[str, Any] = {"query_blocks": self.blocks, "key_blocks": self.blocks}
        both |= {"global_queries": self.global_tokens, "global_keys": self.global_tokens}
        return {"ranks": self.ranks, "scale": self.scale, **both}

    @property
    def _seen(self) -> dict[str, Any]:
        allowed = allowed_pairs(self.positions, self.positions, causal=self.causal, key_mask=self.key_mask)
        return {"allowed": allowed, "bias": self.bias, "dropout_p": self.dropout_p}

    def by_reference(self) -> Tensor:
        more = {**self._shared, **self._seen, "divide_by_active": self.divide_by_active}
        return multilevel_attention_reference(self.q, self.k, self.v, **more)

    def by_sdpa(self) -> Tensor:
        num_blocks = None if is_readable(self.blocks) else self.num_blocks
        return multilevel_attention_sdpa(self.q, self.k, self.v, **self._shared, **self._seen, num_blocks=num_blocks)

    def by_triton(self) -> Tensor:
        from tsattn.ops.multilevel_triton import multilevel_attention_triton

        q = self.q.expand(-1, max(t.shape[1] for t in (self.q, self.k, self.v)), -1, -1)
        seen: dict[str, Any] = {"query_positions": self.positions, "key_positions": self.positions}
        seen |= {"key_mask": self.key_mask, "causal": self.causal, "regular": self.regular}
        return multilevel_attention_triton(q, self.k, self.v, **self._shared, **seen)

    def by_native(self, intervals: Intervals) -> Tensor:
        factors = [1 / max(1, shared) for shared in range(len(self.ranks) + 1)] if self.divide_by_active else ()
        pairs: dict[str, Any] = {"intervals": intervals, "ranks": self.ranks, "level_factors": factors}
        more: dict[str, Any] = {"bias": self.bias, "scale": self.scale, "dropout_p": self.dropout_p}
        return native_attention(self.q, self.k, self.v, **pairs, **more)


def _spread_width(layouts: Sequence[BlockLayout], ranks: Sequence[int]) -> int:
    """Components of the widest row of a batch, each level's components spread over one slot per block."""
    return max(
        sum((len(starts) - 1) * rank for starts, rank in zip(layout.blocks, ranks, strict=True)) for layout in layouts
    )
