"""The pattern slot: which pairs of tokens are scored, and with how many of the components.

Shape letters as in `tsattn.attention.base`; r components of a query or key, E of a value.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from tsattn.attention.caches import (
    Cache,
    FullCache,
    MultiLevelCache,
    NewTokens,
    SplitCache,
    WindowCache,
    own_cache,
)
from tsattn.errors import UserError, is_whole_number, one_of, whole_number
from tsattn.ops.calendar import calendar_block_ids
from tsattn.ops.full import full_attention, softmax_attention, wide
from tsattn.ops.masks import allowed_pairs, floor_divide, level_block_ids, window_pairs
from tsattn.ops.multilevel import DIVIDING_IMPLS, multilevel_attention
from tsattn.ops.multilevel import IMPLS as MULTILEVEL_IMPLS
from tsattn.ops.sliding_window import IMPLS as WINDOW_IMPLS
from tsattn.ops.sliding_window import sliding_window_attention
from tsattn.ops.tiling import regular_layout

__all__ = [
    "FullPattern",
    "GlobalSlidingWindowPattern",
    "MultiLevelPattern",
    "Pattern",
    "SlidingWindowPattern",
    "Tokens",
]


@dataclass(frozen=True)
class Tokens:
    """What is known about the tokens of one call.

    Attributes:
        query_positions: `(B | 1, N)` int.
        key_positions: `(B | 1, S)` int.
        mask: `(B, S)` bool, True at real keys.
        global_tokens: `(B | 1, S)` bool.
        blocks: `(levels, B | 1, S)` int.
        max_length: the length that blocks by number divide.
        by_default: whether nothing was said of the tokens: one row without padding, positions counted, blocks found.
        counted: whether positions are counted over the real tokens, and blocks found from them.
    """

    query_positions: Tensor
    key_positions: Tensor
    mask: Tensor | None = None
    global_tokens: Tensor | None = None
    blocks: Tensor | None = None
    max_length: int | None = None
    by_default: bool = False
    counted: bool = False


class Pattern(ABC):
    """Scores queries against keys and mixes the values.

    Attributes:
        impls: the valid values of `impl`.
        align: where positions are counted from, see `tsattn.ops.masks.real_positions`.
        takes_context: whether queries may attend to another sequence.
        takes_blocks: whether explicit blocks may be handed in.
        needs_max_length: whether `max_length` must be known.
        component_groups: sizes of the groups that the r components fall into, or None for one group.
    """

    impls: tuple[str, ...] = ("auto", "reference", "sdpa")
    align: str = "start"
    takes_context: bool = False
    takes_blocks: bool = False
    needs_max_length: bool = False
    component_groups: tuple[int, ...] | None = None

    def blocks_at(self, time: Tensor | None) -> Tensor | None:
        """The blocks `(levels, B, S)` that this pattern finds from the time stamps of the tokens, or None.

        Args:
            time: `(B, S)` int64, seconds since 1970-01-01; None where there are none.

        Raises:
            UserError: if it needs time stamps and there are none.
        """
        return None

    @abstractmethod
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        """Map q `(B, H | 1, N, r)`, k `(B, G | H, S, r)`, v `(B, G, S, E)` to `(B, H, N, E)`."""

    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> Cache:
        """What `decode` keeps of the tokens before. A pattern that is to decode overrides both.

        Args:
            batch_size: B.
            max_length: tokens that are expected at most, where that is known.
            rewind: tokens that `Cache.crop` can take back at any time.

        Raises:
            UserError: if the pattern cannot decode.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, *, new: NewTokens, cache: Cache, scale: float, dropout_p: float
    ) -> Tensor:
        """Attend causally from n new tokens to those in the cache and themselves, and add them to it.

        Args:
            q: `(B, H | 1, n, r)` queries of the new tokens.
            k: `(B, G', n, r)` their keys.
            v: `(B, G, n, E)` their values.
            new: where they stand: what `cache.new_tokens` made.
            cache: what `new_cache` made.
            scale: factor of the logits.
            dropout_p: probability of dropping a weight.

        Returns:
            `(B, H, n, E)`, what `__call__` gives for these tokens at the end of the whole sequence.

        Raises:
            UserError: if the pattern cannot decode, or the cache is another's.
        """
        raise UserError(f"{type(self).__name__} has no cache: it cannot decode step by step")


class FullPattern(Pattern):
    """Every pair, with all components: ordinary softmax attention."""

    takes_context = True

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        """See `Pattern`."""
        allowed = allowed_pairs(tokens.query_positions, tokens.key_positions, causal=causal, key_mask=tokens.mask)
        return full_attention(q, k, v, allowed=allowed, bias=bias, scale=scale, dropout_p=dropout_p, impl=impl)

    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> FullCache:
        """See `Pattern`."""
        return FullCache(batch_size, max_length, rewind)

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, *, new: NewTokens, cache: Cache, scale: float, dropout_p: float
    ) -> Tensor:
        """See `Pattern`."""
        k, v = own_cache(cache, FullCache).extend(k, v, new)
        allowed = _seen_by(new, torch.arange(k.shape[2], device=k.device)[None])
        return _mix(_scores(q, k) * scale, v, allowed=allowed, dropout_p=dropout_p)


class SlidingWindowPattern(Pattern):
    """Pairs at most `window_size - 1` steps apart, with all components.

    Args:
        window_size: keys on a side, the position itself counted (the paper's w plus one).
    """

    impls = WINDOW_IMPLS

    def __init__(self, window_size: int) -> None:
        self.window_size = whole_number("window_size", window_size)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        """See `Pattern`."""
        return sliding_window_attention(
            q,
            k,
            v,
            window_size=self.window_size,
            positions=None if tokens.by_default else tokens.key_positions,
            causal=causal,
            key_mask=tokens.mask,
            global_tokens=tokens.global_tokens,
            bias=bias,
            scale=scale,
            dropout_p=dropout_p,
            impl=impl,
        )

    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> WindowCache:
        """See `Pattern`."""
        return WindowCache(batch_size, self.window_size, max_length, rewind)

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, *, new: NewTokens, cache: Cache, scale: float, dropout_p: float
    ) -> Tensor:
        """See `Pattern`."""
        k, v, keys = own_cache(cache, WindowCache).extend(k, v, new)
        allowed = None
        if keys is not None:
            near = window_pairs(new.positions, keys, self.window_size)
            allowed = near & (keys[:, None, :] <= new.positions[:, :, None])[:, None]
        return _mix(_scores(q, k) * scale, v, allowed=allowed, dropout_p=dropout_p)


class GlobalSlidingWindowPattern(Pattern):
    """Every pair with the first components, near pairs with the rest, each part with a softmax of its own.

    The outputs of the two parts are combined, which is to combine their probabilities (Kuang et al., ICML 2025). A part
    of r of the W components has logits scaled by `scale sqrt(W / r)`: by `1 / sqrt(r)`, its own rank, under a low-rank
    projection. A bias is added to the logits of both parts, and a part in which a query sees no key adds zeros.

    Args:
        width: W, components of a query or key.
        global_rank: components of the global part; all W of them leave no window part.
        window_size: keys on a side, the position itself counted (the paper's w plus one).
        combine: ``mean`` of the two parts, whose weights sum to 1, or ``sum`` (the authors' form), whose weights sum
            to 2.
        scaling: ``head``, as said; ``mup``: `8 sqrt(W) / r` times the scale, `8 / r` under a low-rank projection.

    Raises:
        UserError: a `global_rank`, `window_size`, `combine` or `scaling` that means nothing, or queries of another
            width.
    """

    COMBINATIONS = ("mean", "sum")
    SCALINGS = ("head", "mup")

    def __init__(
        self, width: int, global_rank: int, window_size: int, *, combine: str = "mean", scaling: str = "head"
    ) -> None:
        if scaling not in self.SCALINGS:
            raise UserError(f"scaling must be one of {', '.join(self.SCALINGS)}, not {scaling!r}")
        if not is_whole_number(global_rank) or not 1 <= global_rank <= width:
            raise UserError(f"global_rank must be from 1 to {width}, the components of a head, not {global_rank}")
        if combine not in self.COMBINATIONS:
            raise UserError(f"combine must be one of {', '.join(self.COMBINATIONS)}, not {combine!r}")
        self.width = width
        self.global_rank = global_rank
        self.window_rank = width - global_rank
        self.combine = combine
        self.scaling = scaling
        self.global_part = FullPattern()
        self.window_part = SlidingWindowPattern(window_size)
        self.takes_context = not self.window_rank
        self.component_groups = (global_rank, self.window_rank)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        """See `Pattern`."""
        if q.shape[-1] != self.width:
            raise UserError(f"queries must have {self.width} components, not {q.shape[-1]}")

        def part(pattern: Pattern, components: slice, rank: int) -> Tensor:
            return pattern(
                q[..., components],
                k[..., components],
                v,
                tokens=tokens,
                causal=causal,
                bias=bias,
                scale=scale * self._factor(rank),
                dropout_p=dropout_p,
                impl=impl,
            )

        everywhere = part(self.global_part, slice(None, self.global_rank), self.global_rank)
        if not self.window_rank:
            return everywhere
        both = everywhere + part(self.window_part, slice(self.global_rank, None), self.window_rank)
        return both / 2 if self.combine == "mean" else both

    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> SplitCache:
        """See `Pattern`. The values of the window are kept by both parts."""
        everywhere = self.global_part.new_cache(batch_size, max_length, rewind)
        parts: list[tuple[int, Cache]] = [(self.global_rank, everywhere)]
        if self.window_rank:
            parts.append((self.window_rank, self.window_part.new_cache(batch_size, max_length, rewind)))
        return SplitCache(parts)

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, *, new: NewTokens, cache: Cache, scale: float, dropout_p: float
    ) -> Tensor:
        """See `Pattern`."""
        cache = own_cache(cache, SplitCache)
        patterns = (self.global_part, self.window_part)
        parts = zip(patterns, cache.parts, cache.split(q), cache.split(k), strict=False)
        outputs = [
            pattern.decode(q, k, v, new=new, cache=part, scale=scale * self._factor(q.shape[-1]), dropout_p=dropout_p)
            for pattern, part, q, k in parts
        ]
        if len(outputs) == 1:
            return outputs[0]
        both = outputs[0] + outputs[1]
        return both / 2 if self.combine == "mean" else both

    def _factor(self, rank: int) -> float:
        """What the scale of all components is multiplied by for a part of `rank` of them."""
        return 8 * math.sqrt(self.width) / rank if self.scaling == "mup" else math.sqrt(self.width / rank)


class MultiLevelPattern(Pattern):
    """Every pair, with the components of the levels in which the two tokens share a block.

    Args:
        ranks: components of each level, coarse to fine.
        numbers: blocks that `max_length` is cut into at each level, each dividing the next.
        lengths: steps in a block at each level instead, each divided by the next.
        calendar: units of the calendar at each level instead, see `calendar_block_ids`. The blocks then come from the
            time stamps of the tokens, not from their positions; where they do not nest, as weeks in months, a pair is
            scored with the set of levels that it shares, and `tiles` refuses.
        align: ``end`` (encoders: the last token closes the last block) or ``start`` (decoding).
        scaling: what a level of r_l of the W components multiplies its products by. ``head``: the `scale` of the call
            for all levels alike; ``level``: that times `sqrt(W / r_l)`; ``mup``: that times `sqrt(W) / r_l` (the
            authors'). Under a low-rank projection these are `1 / sqrt(r)`, `1 / sqrt(r_l)` and `1 / r_l`.
        divide_by: what the logits are divided by as well: ``none``, ``levels`` (their number L), ``active``, pair by
            pair the number of levels in which the two tokens share a block (the authors' language models), or ``both``.
            A pair that shares none scores 0; one with a global token shares all.

    Raises:
        UserError: a size, `align`, `scaling` or `divide_by` that means nothing.
    """

    SCALINGS = ("head", "level", "mup")
    DIVISORS = ("none", "levels", "active", "both")

    impls: tuple[str, ...] = MULTILEVEL_IMPLS
    takes_blocks = True

    def __init__(
        self,
        ranks: Sequence[int],
        *,
        numbers: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        calendar: Sequence[str] | None = None,
        align: str = "end",
        scaling: str = "head",
        divide_by: str = "none",
    ) -> None:
        for name, value, valid in (("scaling", scaling, self.SCALINGS), ("divide_by", divide_by, self.DIVISORS)):
            if value not in valid:
                raise UserError(f"{name} must be one of {one_of(valid)}, not {value!r}")
        if align not in ("start", "end"):
            raise UserError(f"align must be start or end, not {align!r}")
        levels = next((given for given in (numbers, lengths, calendar) if given is not None), None)
        if levels is None or len(levels) != len(ranks):
            raise UserError(f"blocks must have one entry for each of the {len(ranks)} ranks, not {levels}")
        if calendar is None:
            _check_nested(numbers, lengths)
        else:
            calendar_block_ids(torch.zeros(1, 1, dtype=torch.long), calendar)
        self.ranks = tuple(ranks)
        self.numbers = None if numbers is None else tuple(numbers)
        self.lengths = None if lengths is None else tuple(lengths)
        self.calendar = None if calendar is None else tuple(calendar)
        # where the calendar makes the blocks, positions only order the tokens
        self.align = align if calendar is None else "start"
        self.needs_max_length = numbers is not None or self.align == "end"
        self.component_groups = self.ranks
        self.scaling = scaling
        self.divide_by = divide_by
        self._by_active = divide_by in ("active", "both")
        if self._by_active:
            self.impls = DIVIDING_IMPLS
        width, first = sum(self.ranks), self.ranks[0]
        self._scale = {"head": 1.0, "level": math.sqrt(width / first), "mup": math.sqrt(width) / first}[scaling]
        if divide_by in ("levels", "both"):
            self._scale /= len(self.ranks)
        # of each level, relative to the first: equal ranks cost nothing, and halved ones under mup are not rounded
        power = {"head": 0.0, "level": 0.5, "mup": 1.0}[scaling]
        self._factors = [(first / rank) ** power for rank in self.ranks]

    def _find_blocks(self, tokens: Tokens) -> Tensor:
        """The blocks `(levels, B | 1, S)` that were handed in, else those of the positions."""
        if tokens.blocks is not None:
            if tokens.blocks.shape[0] != len(self.ranks):
                raise UserError(f"blocks must have {len(self.ranks)} levels, not {tokens.blocks.shape[0]}")
            return tokens.blocks
        if self.calendar is not None:
            raise UserError(
                f"blocks by {', '.join(self.calendar)} come from the tokens' time stamps, which are not given here"
            )
        return level_block_ids(
            tokens.key_positions, numbers=self.numbers, lengths=self.lengths, max_length=tokens.max_length
        )

    def _num_blocks(self, tokens: Tokens, length: int) -> Sequence[int] | None:
        """The most blocks of each level that counted positions can lie in; None where the calendar makes them."""
        if self.lengths is None:
            return self.numbers
        last = tokens.max_length if self.align == "end" and tokens.max_length is not None else length
        return [-(-last // size) for size in self.lengths]

    def blocks_at(self, time: Tensor | None) -> Tensor | None:
        """See `Pattern`."""
        if self.calendar is None:
            return None
        if time is None:
            raise UserError(f"attention with blocks by {', '.join(self.calendar)} needs data with time stamps")
        return calendar_block_ids(time, self.calendar)

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        tokens: Tokens,
        causal: bool,
        bias: Tensor | None,
        scale: float,
        dropout_p: float,
        impl: str,
    ) -> Tensor:
        """See `Pattern`."""
        blocks = self._find_blocks(tokens)
        regular = tokens.by_default and self.calendar is None
        layouts = None
        if regular and not torch.compiler.is_compiling() and q.shape[2]:
            length = q.shape[2]
            first = 0 if self.align == "start" or tokens.max_length is None else tokens.max_length - length
            given = {"numbers": self.numbers, "lengths": self.lengths, "max_length": tokens.max_length}
            layouts = [regular_layout(first, length, **given)]
        q, scale = self._scaled(q, scale)
        return multilevel_attention(
            q,
            k,
            v,
            ranks=self.ranks,
            blocks=blocks,
            positions=tokens.key_positions,
            causal=causal,
            key_mask=tokens.mask,
            global_tokens=tokens.global_tokens,
            bias=bias,
            scale=scale,
            divide_by_active=self._by_active,
            dropout_p=dropout_p,
            impl=impl,
            layouts=layouts,
            num_blocks=self._num_blocks(tokens, q.shape[2]) if tokens.counted else None,
            regular=regular,
        )

    def new_cache(self, batch_size: int, max_length: int | None, rewind: int = 0) -> MultiLevelCache:
        """See `Pattern`."""
        if self.calendar is not None:
            raise UserError(
                f"blocks by {', '.join(self.calendar)} cannot decode step by step: a cache knows no time stamps"
            )
        if self.lengths is not None:
            blocks = [(1, length) for length in self.lengths]
        else:
            assert self.numbers is not None
            assert max_length is not None, "Attention sees to it, see needs_max_length"
            blocks = [(number, max_length) for number in self.numbers]
        return MultiLevelCache(batch_size, self.ranks, blocks, max_length, rewind)

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, *, new: NewTokens, cache: Cache, scale: float, dropout_p: float
    ) -> Tensor:
        """See `Pattern`. Each level scores the keys of its running block alone."""
        cache = own_cache(cache, MultiLevelCache)
        q, scale = self._scaled(q, scale)
        levels, v = cache.extend(k, v, new)
        queries, every = new.positions, torch.arange(v.shape[2], device=v.device)[None]
        logits = wide(q).new_zeros(len(q), max(q.shape[1], k.shape[1]), q.shape[2], v.shape[2])
        for (k_level, keys), q_level, block in zip(
            levels, torch.split(q * scale, list(self.ranks), -1), cache.blocks, strict=True
        ):
            scores = _scores(q_level, k_level)
            if keys is None:
                start = v.shape[2] - k_level.shape[2]
                if new.count > 1:
                    scores = scores.masked_fill(~_share(queries, every[:, start:], block), 0.0)
                logits[..., start:] += scores
            else:
                seen = _share(queries, keys, block) & (keys[:, None, :] <= queries[:, :, None])[:, None]
                at = keys.clamp(max=v.shape[2] - 1)[:, None, None, :].expand_as(scores)
                # autocast may have made the scores in a narrower type
                logits = logits.scatter_add(-1, at, scores.masked_fill(~seen, 0.0).to(logits.dtype))
        if self._by_active:
            shared = torch.stack([_share(queries, every, block) for block in cache.blocks]).sum(0)
            logits = logits / shared.clamp(min=1)
        return _mix(logits, v, allowed=_seen_by(new, every), dropout_p=dropout_p)

    def _scaled(self, q: Tensor, scale: float) -> tuple[Tensor, float]:
        """Queries and the one scale whose logits have the factor of each level."""
        if any(factor != 1 for factor in self._factors):
            levels = zip(torch.split(q, list(self.ranks), -1), self._factors, strict=True)
            q = torch.cat([q_level * factor for q_level, factor in levels], -1)
        return q, scale * self._scale


def _check_nested(numbers: Sequence[int] | None, lengths: Sequence[int] | None) -> None:
    """Refuse numbers or lengths of blocks of which one level does not refine the one before."""
    sizes, what = (lengths or (), "lengths") if numbers is None else (numbers, "numbers")
    if any(size < 1 for size in sizes):
        raise UserError(f"block {what} must be at least 1, not {list(sizes)}")
    for coarse, fine in itertools.pairwise(sizes):
        whole, part = (coarse, fine) if numbers is None else (fine, coarse)
        if whole % part:
            raise UserError(f"block {what} must nest: {part} does not divide {whole} in {list(sizes)}")


def _seen_by(new: NewTokens, keys: Tensor) -> Tensor | None:
    """`(1 | B, 1, n, S)`: which new tokens may see which positions `(1, S)`; None where a single one sees all."""
    return None if new.even and new.count == 1 else allowed_pairs(new.positions, keys, causal=True)


def _share(queries: Tensor, keys: Tensor, block: tuple[int, int]) -> Tensor:
    """`(1 | B, 1, n, S)`: which positions `(1 | B, n)` and `(1 | B, S)` lie in one of `number` blocks in a `span`."""
    number, span = block
    query_blocks, key_blocks = (floor_divide(positions * number, span) for positions in (queries, keys))
    return (key_blocks[:, None, :] == query_blocks[:, :, None])[:, None]


def _scores(q: Tensor, k: Tensor) -> Tensor:
    """`q k^T (B, H, n, S)` of q `(B, H | 1, n, r)` and k `(B, G', S, r)`, which no head that shares it copies."""
    heads = max(q.shape[1], k.shape[1])
    grouped = rearrange(q, "B (G h) n r -> B G (h n) r", G=min(q.shape[1], k.shape[1]))
    return (wide(grouped) @ wide(k).transpose(-1, -2)).reshape(q.shape[0], heads, q.shape[2], k.shape[2])


def _mix(logits: Tensor, v: Tensor, *, allowed: Tensor | None, dropout_p: float) -> Tensor:
    """Softmax of the logits `(B, H, n, S)` over the allowed pairs `(1 | B, 1, n, S)`, times v `(B, G, S, E)`."""
    heads, groups = logits.shape[1], v.shape[1]
    grouped = rearrange(logits, "B (G h) n S -> B G (h n) S", G=groups)
    if allowed is not None:
        allowed = allowed.repeat(1, 1, heads // groups, 1)
    mixed = softmax_attention(grouped, v, allowed=allowed, bias=None, dropout_p=dropout_p)
    return rearrange(mixed, "B G (h n) E -> B (G h) n E", h=heads // groups)
