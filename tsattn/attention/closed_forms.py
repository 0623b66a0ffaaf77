"""Closed forms of the cost of each projection and pattern (Kuang et al., ICML 2025, sections 3 and 4).

Each is attached to the class of a projection (`projection_cost`) or of a pattern (`pattern_cost`), so that every
combination of the two has its cost; a class of your own registers its own::

    @pattern_cost.register
    def _(pattern: MyPattern, *, width: int, tokens: int, **sizes: int) -> PatternCost: ...

Symbols as in `tsattn.attention.cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import torch

from tsattn.attention.caches import places_for
from tsattn.attention.patterns import (
    FixedMixingPattern,
    FullPattern,
    GlobalSlidingWindowPattern,
    IdentityPattern,
    MultiLevelPattern,
    Pattern,
    SlidingWindowPattern,
)
from tsattn.attention.projections import (
    BTTProjection,
    LowRankProjection,
    MLBTCProjection,
    NoProjection,
    Projection,
)
from tsattn.errors import UserError
from tsattn.ops.masks import level_block_ids, real_positions
from tsattn.structured import block_sizes

__all__ = ["PatternCost", "ProjectionCost", "pattern_cost", "projection_cost"]


@dataclass(frozen=True)
class ProjectionCost:
    """What making queries and keys takes.

    Attributes:
        params_per_head: numbers in the bilinear form of one head, biases left out.
        params: numbers of all heads together; with grouped heads fewer than H times those of one.
        key_heads: heads that the keys have, each of which is cached.
    """

    params_per_head: int
    params: int
    key_heads: int


@dataclass(frozen=True)
class PatternCost:
    """What a pattern costs for one head's queries and keys.

    Attributes:
        multiply_adds: multiplications, each with its addition, that form the scores of T tokens.
        cached_keys: key numbers held at the peak while T tokens are generated one by one.
        params: numbers that the pattern itself learns.
    """

    multiply_adds: int
    cached_keys: int
    params: int = 0


@singledispatch
def projection_cost(projection: Projection, d_model: int) -> ProjectionCost:
    """Parameters and key heads of a projection of tokens of width D (Kuang et al., section 3)."""
    raise UserError(f"the cost of {type(projection).__name__} is not known; register it with projection_cost")


@projection_cost.register
def _(projection: LowRankProjection, d_model: int) -> ProjectionCost:
    """`2 D r` a head: `W_Q` and `W_K`."""
    side = d_model * projection.width
    heads, key_heads = projection.num_heads, projection.num_kv_heads
    return ProjectionCost(2 * side, side * (heads + key_heads), key_heads)


@projection_cost.register
def _(projection: BTTProjection, d_model: int) -> ProjectionCost:
    """`D s (b + c)` a head: `D s c` in the blocks L, `D s b` in the blocks R; about `2 D^1.5 s`."""
    _, b, c, _ = block_sizes(d_model, projection.divisor)
    left, right = d_model * projection.tt_rank * c, d_model * projection.tt_rank * b
    left_heads, right_heads = projection.left.shape[0], projection.right.shape[0]
    key_heads = 1 if projection.side == "query" else right_heads
    return ProjectionCost(left + right, left * left_heads + right * right_heads, key_heads)


@projection_cost.register
def _(projection: MLBTCProjection, d_model: int) -> ProjectionCost:
    """A head: `2 D r` a level, of bilinear MLR too (`2 D sum r_l`); `D r (p + p')` where a level is shuffled."""
    shapes = projection.shapes
    left = d_model * sum(shape.rank * (shape.right_blocks if shape.shuffled else 1) for shape in shapes)
    right = d_model * sum(shape.rank * (shape.left_blocks if shape.shuffled else 1) for shape in shapes)
    left_heads, right_heads = projection.left[0].shape[0], projection.right[0].shape[0]
    return ProjectionCost(left + right, left * left_heads + right * right_heads, right_heads)


@projection_cost.register
def _(projection: NoProjection, d_model: int) -> ProjectionCost:
    """Nothing is made."""
    return ProjectionCost(0, 0, projection.num_kv_heads)


@singledispatch
def pattern_cost(
    pattern: Pattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0
) -> PatternCost:
    """Multiply-adds and cached key numbers of a pattern, for one head (Kuang et al., section 4).

    Args:
        pattern: which pairs are scored, with how many of the components.
        width: W, components of a query or key.
        tokens: T.
        causal: whether tokens see no later ones.
        max_length: the length that blocks by number and `align="end"` refer to, at least T.
        rewind: tokens that can be taken back while T are generated.
    """
    raise UserError(f"the cost of {type(pattern).__name__} is not known; register it with pattern_cost")


@pattern_cost.register
def _(pattern: FullPattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0) -> PatternCost:
    """`T^2 W`, and every key is kept."""
    return PatternCost(tokens**2 * width, tokens * width)


@pattern_cost.register
def _(
    pattern: FixedMixingPattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0
) -> PatternCost:
    """No product of tokens is formed; a head learns the table of all places."""
    return PatternCost(0, 0, params=pattern.num_params() // len(pattern.table))


@pattern_cost.register
def _(
    pattern: IdentityPattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0
) -> PatternCost:
    """Nothing is scored."""
    return PatternCost(0, 0)


@pattern_cost.register
def _(
    pattern: SlidingWindowPattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0
) -> PatternCost:
    """`T (2 w - 1) W`, causal `T w W`, never more than all pairs; w keys are kept, k - 1 more to rewind by k."""
    window = pattern.window_size
    keys = min(tokens, window if causal else 2 * window - 1)
    return PatternCost(tokens * keys * width, min(tokens, places_for(window, rewind)) * width)


@pattern_cost.register
def _(
    pattern: GlobalSlidingWindowPattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0
) -> PatternCost:
    """The costs of the two parts, each of its own components."""
    everywhere, near = (
        pattern_cost(part, width=rank, tokens=tokens, causal=causal, max_length=max_length, rewind=rewind)
        for part, rank in ((pattern.global_part, pattern.global_rank), (pattern.window_part, pattern.window_rank))
    )
    return PatternCost(
        everywhere.multiply_adds + near.multiply_adds,
        everywhere.cached_keys + near.cached_keys,
    )


@pattern_cost.register
def _(
    pattern: MultiLevelPattern, *, width: int, tokens: int, causal: bool, max_length: int, rewind: int = 0
) -> PatternCost:
    """`T^2 sum r_l / p_l` and `T sum r_l / p_l` where `p_l` blocks cut the T tokens evenly; else what they hold.

    Level l scores the pairs of each block; generating, it has places for the keys of the largest one, and of k - 1 more
    to rewind by k.
    """
    if pattern.change_points is not None:
        raise UserError(
            "the cost of blocks by change points depends on the values of the data; as many of equal length cost the "
            f"least: {list(pattern.change_points)}"
        )
    if pattern.data_blocks is not None:
        raise UserError(f"the cost of blocks by {pattern.data_blocks} depends on the time stamps of the data")
    every = torch.ones(1, tokens, dtype=torch.bool)
    positions = real_positions(every, align=pattern.align, max_length=max_length)
    blocks = level_block_ids(positions, numbers=pattern.numbers, lengths=pattern.lengths, max_length=max_length)
    multiply_adds = held = 0
    for rank, ids in zip(pattern.ranks, blocks[:, 0], strict=True):
        sizes = torch.unique_consecutive(ids, return_counts=True)[1]
        multiply_adds += rank * int((sizes**2).sum())
        held += rank * min(tokens, places_for(int(sizes.max()), rewind))
    return PatternCost(multiply_adds, held)
