"""The pattern of blocks on several levels, and its cache: near pairs are scored with more components than far pairs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches import Cache, NewTokens, TokenRows
from tsattn.attention.patterns.pattern import (
    DecodingStep,
    Pattern,
    PatternCall,
    PatternCost,
    TokenOrigin,
    Tokens,
    pair_scores,
)
from tsattn.errors import UserError, one_of
from tsattn.ops.data_blocks import calendar_block_ids, change_point_block_ids
from tsattn.ops.masks import RegularBlocks, default_positions, first_position, floor_divide, level_block_ids
from tsattn.ops.multilevel import DIVIDING_IMPLS, IMPLS, multilevel_attention
from tsattn.ops.softmax import expand_heads, wide


class MultiLevelPattern(Pattern):
    """Every pair, with the components of the levels in which the two tokens share a block.

    Args:
        ranks: components of each level, coarse to fine.
        numbers: blocks that `max_length` is cut into at each level; each number divides the next.
        lengths: instead of `numbers`, steps in a block at each level; each length is a multiple of the next.
        calendar: instead, units of the calendar at each level, see `calendar_block_ids`. The blocks come from the time
            stamps of the tokens, not from their positions. Levels may fail to nest, as weeks in months: then a pair is
            scored with all levels that it shares, and `tiles` refuses.
        change_points: instead, numbers of blocks at each level, never falling, see `change_point_block_ids`. The
            blocks come from the values of the tokens, row by row.
        align: ``end`` (encoders: the last token closes the last block) or ``start`` (decoding).
        scaling: factor of the products of a level with r_l of the W components. ``head``: the `scale` of the call for
            all levels; ``level``: `scale sqrt(W / r_l)`; ``mup``: `scale sqrt(W) / r_l` (the authors' factor). Under a
            low-rank projection these are `1 / sqrt(r)`, `1 / sqrt(r_l)` and `1 / r_l`.
        divide_by: an extra divisor of the logits: ``none``, ``levels`` (their number L), ``active`` or ``both``.
            ``active`` is, for each pair, the number of levels in which both tokens share a block (the authors'
            language models). A pair without a shared block scores 0; a global token shares all levels.

    Raises:
        UserError: for an invalid size, `align`, `scaling` or `divide_by`.
    """

    SCALINGS = ("head", "level", "mup")
    DIVISORS = ("none", "levels", "active", "both")

    impls: tuple[str, ...] = IMPLS
    takes_blocks = True
    is_local = True

    def __init__(
        self,
        ranks: Sequence[int],
        *,
        numbers: Sequence[int] | None = None,
        lengths: Sequence[int] | None = None,
        calendar: Sequence[str] | None = None,
        change_points: Sequence[int] | None = None,
        align: str = "end",
        scaling: str = "head",
        divide_by: str = "none",
    ) -> None:
        for name, value, valid in (("scaling", scaling, self.SCALINGS), ("divide_by", divide_by, self.DIVISORS)):
            if value not in valid:
                raise UserError(f"{name} must be one of {one_of(valid)}, not {value!r}")
        if align not in ("start", "end"):
            raise UserError(f"align must be start or end, not {align!r}")
        if calendar is not None:
            calendar_block_ids(torch.zeros(1, 1, dtype=torch.long), calendar)
        elif change_points is not None:
            if any(fine < coarse for coarse, fine in itertools.pairwise(change_points)):
                raise UserError(f"change_points must be numbers, none below the one before, not {list(change_points)}")
        else:
            _check_nested(numbers, lengths)
        self.ranks = tuple(ranks)
        self.numbers = None if numbers is None else tuple(numbers)
        self.lengths = None if lengths is None else tuple(lengths)
        self.calendar = None if calendar is None else tuple(calendar)
        self.change_points = None if change_points is None else tuple(change_points)
        self.reads_values = change_points is not None
        if self.reads_values or self.calendar is not None:
            self.data_blocks = "change points" if self.calendar is None else ", ".join(self.calendar)
            self.block_choice = self.calendar, self.change_points
        # blocks that come from the data need positions only for the order of the tokens
        self.align = align if self.data_blocks is None else "start"
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
        # factors relative to the first level: equal ranks need no product, and powers of two round nothing under mup
        power = {"head": 0.0, "level": 0.5, "mup": 1.0}[scaling]
        self._factors = [(first / rank) ** power for rank in self.ranks]

    def _find_blocks(self, tokens: Tokens) -> Tensor:
        """The blocks `(levels, B | 1, S)` that the caller gave, else blocks from the positions."""
        if tokens.blocks is not None:
            if tokens.blocks.shape[0] != len(self.ranks):
                raise UserError(f"blocks must have {len(self.ranks)} levels, not {tokens.blocks.shape[0]}")
            return tokens.blocks
        if self.data_blocks is not None:
            source = "values of the series" if self.reads_values else "tokens' time stamps"
            raise UserError(f"blocks by {self.data_blocks} come from the {source}, which are not given here")
        return level_block_ids(
            tokens.key_positions, numbers=self.numbers, lengths=self.lengths, max_length=tokens.max_length
        )

    def _num_blocks(self, tokens: Tokens, length: int) -> Sequence[int] | None:
        """The largest number of blocks of each level for counted positions; None if blocks come from the data."""
        if self.lengths is None:
            return self.numbers
        last = tokens.max_length if self.align == "end" and tokens.max_length is not None else length
        # while exporting, the length is a symbol, not a number
        return [-(-last // size) for size in self.lengths] if isinstance(last, int) else None

    @override
    def blocks_of(self, origin: TokenOrigin) -> Tensor | None:
        if self.change_points is not None:
            if origin.values is None:
                raise UserError("attention with blocks by change points needs the values of its tokens")
            return change_point_block_ids(origin.values, self.change_points, origin.counts)
        if self.calendar is None:
            return None
        if origin.time is None:
            raise UserError(f"attention with blocks by {self.data_blocks} needs data with time stamps")
        return calendar_block_ids(origin.time, self.calendar)

    @override
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        tokens = call.tokens
        blocks = self._find_blocks(tokens)
        regular = None
        if tokens.by_default and self.data_blocks is None:
            length = q.shape[2]
            first = first_position(length, align=self.align, max_length=tokens.max_length)
            regular = RegularBlocks(first, length, self.numbers, self.lengths, tokens.max_length)
        q, scale = self._scaled(q, call.scale)
        return multilevel_attention(
            q,
            k,
            v,
            ranks=self.ranks,
            blocks=blocks,
            positions=tokens.key_positions,
            causal=call.causal,
            key_mask=tokens.mask,
            global_tokens=tokens.global_tokens,
            bias=call.bias,
            scale=scale,
            divide_by_active=self._by_active,
            dropout_p=call.dropout_p,
            impl=call.impl,
            num_blocks=self._num_blocks(tokens, q.shape[2]) if tokens.counted else None,
            regular=regular,
        )

    @override
    def new_cache(self, batch_size: int, max_length: int | None) -> MultiLevelCache:
        if self.data_blocks is not None:
            unknown = "later change points" if self.reads_values else "time stamps"
            raise UserError(f"blocks by {self.data_blocks} cannot decode step by step: a cache has no {unknown}")
        blocks = RegularBlocks(0, 0, self.numbers, self.lengths, max_length).levels
        return MultiLevelCache(batch_size, self.ranks, blocks, max_length)

    @override
    def decode(self, q: Tensor, k: Tensor, v: Tensor, step: DecodingStep) -> Tensor:
        """Each level scores only the keys of its current block."""
        cache, new = step.cache, step.new
        q, scale = self._scaled(q, step.scale)
        levels, v = cache.extend(k, v, new)
        queries, every = new.positions, torch.arange(v.shape[2], device=v.device)[None]
        logits = wide(q).new_zeros(len(q), max(q.shape[1], k.shape[1]), q.shape[2], v.shape[2])
        for (k_level, keys), q_level, block in zip(
            levels, torch.split(q * scale, list(self.ranks), -1), cache.blocks, strict=True
        ):
            scores = pair_scores(q_level, k_level)
            if keys is None:
                start = v.shape[2] - k_level.shape[2]
                if new.count > 1:
                    scores = scores.masked_fill(~_share(queries, every[:, start:], block), 0.0)
                logits[..., start:].add_(scores)
            else:
                seen = _share(queries, keys, block) & (keys[:, None, :] <= queries[:, :, None])[:, None]
                at = keys.clamp(max=v.shape[2] - 1)[:, None, None, :].expand_as(scores)
                # under autocast the scores may have a narrower type
                logits = logits.scatter_add(-1, at, scores.masked_fill(~seen, 0.0).to(logits.dtype))
        if self._by_active:
            shared = torch.stack([_share(queries, every, block) for block in cache.blocks]).sum(0)
            logits = logits / shared.clamp(min=1)
        return step.mixed(logits, v, step.seen(every), step.bias)

    @override
    def level_scores(self, q: Tensor, k: Tensor, call: PatternCall) -> Tensor:
        """See `Pattern.level_scores`; pairs that share no block of the level have 0."""
        same = self._shared(call.tokens)
        q, scale = self._scaled(wide(q), call.scale)
        q, k, _ = expand_heads(q, wide(k), wide(k))
        levels = zip(torch.split(q, list(self.ranks), -1), torch.split(k, list(self.ranks), -1), same, strict=True)
        scores = torch.stack([(one @ other.mT).masked_fill(~near[:, None], 0.0) for one, other, near in levels])
        if self._by_active:
            scores = scores / same.sum(0).clamp(min=1)[:, None]
        return scores * scale

    @override
    def zones(self, call: PatternCall) -> dict[str, Tensor]:
        """Whole blocks, even if the pattern is causal and scores only the lower half of each block."""
        zones = {}
        for level, (rank, same) in enumerate(zip(self.ranks, self._shared(call.tokens), strict=True)):
            unit = "" if self.calendar is None else f" ({self.calendar[level]})"
            zones[f"level {level + 1}{unit}: {rank} component{'s' if rank > 1 else ''}"] = same
        return zones

    @override
    def cost(self, width: int, tokens: int, *, causal: bool, max_length: int) -> PatternCost:
        """`T^2 sum r_l / p_l` multiply-adds and `T sum r_l / p_l` keys if `p_l` equal blocks cut the T tokens.

        In general, level l scores the pairs of each block, and its cache has room for the keys of the largest block.
        """
        if self.change_points is not None:
            raise UserError(
                "the cost of blocks by change points depends on the values of the data; for the lowest cost, "
                f"count equal blocks: {list(self.change_points)}"
            )
        if self.data_blocks is not None:
            raise UserError(f"the cost of blocks by {self.data_blocks} depends on the time stamps of the data")
        at = default_positions(tokens, align=self.align, max_length=max_length)
        blocks = level_block_ids(at, numbers=self.numbers, lengths=self.lengths, max_length=max_length)
        multiply_adds = held = 0
        for rank, ids in zip(self.ranks, blocks[:, 0], strict=True):
            sizes = torch.unique_consecutive(ids, return_counts=True)[1]
            multiply_adds += rank * int((sizes**2).sum())
            held += rank * min(tokens, int(sizes.max()))
        return PatternCost(multiply_adds, held)

    @override
    def sees_all(self, tokens: int) -> bool:
        alone = len(self.ranks) == 1 and self.scaling != "mup"
        plain = len(self.ranks) > 1 and self.scaling == "head" and self.divide_by == "none"
        return (alone or plain) and all(self.whole_levels(tokens))

    def whole_levels(self, tokens: int) -> list[bool]:
        """For each level, whether one block holds the positions 0 to `tokens - 1`; never if blocks come from data."""
        if self.numbers is not None:
            return [number == 1 for number in self.numbers]
        return [length >= tokens for length in self.lengths or [0] * len(self.ranks)]

    def _shared(self, tokens: Tokens) -> Tensor:
        """Pairs `(levels, B | 1, N, N)` that share a block or include a global token."""
        blocks, special = self._find_blocks(tokens), tokens.global_tokens
        same = blocks[..., :, None] == blocks[..., None, :]
        return same if special is None else same | special[:, :, None] | special[:, None, :]

    def _scaled(self, q: Tensor, scale: float) -> tuple[Tensor, float]:
        """Scaled queries, and the scale common to all levels: together they apply the factor of each level."""
        if any(factor != 1 for factor in self._factors):
            levels = zip(torch.split(q, list(self.ranks), -1), self._factors, strict=True)
            q = torch.cat([q_level * factor for q_level, factor in levels], -1)
        return q, scale * self._scale


class MultiLevelCache(Cache):
    """The keys of the current block of each level, and all values. A level has `number` blocks in a `span` of steps."""

    def __init__(
        self,
        batch_size: int,
        ranks: Sequence[int],
        blocks: Sequence[tuple[int, int]],
        max_length: int | None = None,
    ) -> None:
        self.ranks = list(ranks)
        self.blocks = tuple(blocks)
        self._levels = [TokenRows(-(-span // number), max_length) for number, span in blocks]
        self._values = TokenRows(None, max_length)
        super().__init__(batch_size, self._levels, (self._values,))

    @property
    @override
    def kind(self) -> str:
        blocks = ", ".join(f"{number}/{span}" for number, span in self.blocks)
        return f"MultiLevelCache of ranks {self.ranks} and blocks {blocks}"

    @override
    def split(self, components: Tensor) -> Sequence[Tensor]:
        return torch.split(components, self.ranks, -1)

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[list[tuple[Tensor, Tensor | None]], Tensor]:
        """Add tokens. Return keys and positions of each level (None if all share the block), and all values."""
        parts = self.split(k)
        seen = []
        if new.count == 1:
            self.store(k, v, new)
            seen = [self._seen(level, new, new.after, max(new.after)) for level in range(len(parts))]
            return seen, self._values.first(self.length)
        for level, part in enumerate(parts):
            keys, positions = new.without_padding(part), None if new.even else new.key_positions
            if max(new.before):
                held, at = self._seen(level, new, new.before, max(new.after))
                keys = torch.cat([held, keys], 2)
                if at is not None and positions is not None:
                    at, positions = (t.expand(self.batch_size, -1) for t in (at, positions))
                    positions = torch.cat([at, positions], 1)
            seen.append((keys, positions))
        self.store(k, v, new)
        return seen, self._values.first(self.length)

    def _seen(self, level: int, new: NewTokens, lengths: Sequence[int], later: int) -> tuple[Tensor, Tensor | None]:
        """The stored keys of a level that new tokens may see, and their positions; see `extend`."""
        if new.even:
            return self._levels[level].span(self._start(level, new.before[0]), lengths[0]), None
        return self._levels[level].held(lengths, later)

    def _start(self, level: int, position: int) -> int:
        """The first position of the block that holds `position`."""
        number, span = self.blocks[level]
        return -(-(position * number // span) * span // number)


def _check_nested(numbers: Sequence[int] | None, lengths: Sequence[int] | None) -> None:
    """Refuse numbers or lengths of blocks if a level does not refine the level before."""
    sizes, what = (lengths or (), "lengths") if numbers is None else (numbers, "numbers")
    for coarse, fine in itertools.pairwise(sizes):
        whole, part = (coarse, fine) if numbers is None else (fine, coarse)
        if whole % part:
            raise UserError(f"block {what} must nest: {part} does not divide {whole} in {list(sizes)}")


def _share(queries: Tensor, keys: Tensor, block: tuple[int, int]) -> Tensor:
    """`(1 | B, 1, n, S)`: whether positions `(1 | B, n)` and `(1 | B, S)` share one of `number` blocks in a `span`."""
    number, span = block
    query_blocks, key_blocks = (floor_divide(positions * number, span) for positions in (queries, keys))
    return (key_blocks[:, None, :] == query_blocks[:, :, None])[:, None]
