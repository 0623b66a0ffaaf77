"""The kinds of attention: short classes that fill the two slots, a projection and a pattern.

All kinds take `d_model` (D, the width of the tokens), `num_heads` (H) and the options of `Attention`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from tsattn.attention.base import Attention, AttentionOptions, check_scaling, head_size
from tsattn.attention.patterns import (
    FixedMixingPattern,
    FullPattern,
    GlobalSlidingWindowPattern,
    IdentityPattern,
    MultiLevelPattern,
    SlidingWindowPattern,
    UniformPattern,
)
from tsattn.attention.projections import (
    BilinearMLRProjection,
    BTTProjection,
    LowRankProjection,
    MLBTCProjection,
    NoProjection,
)
from tsattn.errors import UserError, one_of, whole_number
from tsattn.ops.data_blocks import CALENDAR_UNITS
from tsattn.structured import MLR, LevelShape, block_sizes

_LEVEL_ENTRIES = ("rank", "left_blocks", "right_blocks", "shuffled")  # keys of a level of mlbtc
_WAYS = ("numbers", "lengths", "calendar", "change_points")  # ways to give the blocks of mlr


class StandardAttention(Attention):
    """Softmax attention with `q = x W_Q`, `k = x W_K` over every pair (Kuang et al., equation 1).

    Args:
        scaling: factor of the logits: ``head``, `1 / sqrt(r)`; ``mup``, `8 / r` (the authors'); or a number.
        **options: see `Attention`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, scaling: str | float = "head", **options: Unpack[AttentionOptions]
    ) -> None:
        projection = _low_rank(d_model, num_heads, options)
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scaling, **options)


class SlidingWindowAttention(Attention):
    """Softmax attention over the pairs with `|i - j| < window_size` (causal: `0 <= i - j < window_size`).

    Args:
        window_size: keys on each side, the token itself included.
        scaling: factor of the logits: ``head``, `1 / sqrt(r)`; ``mup``, `8 / r` (the authors'); or a number.
        **options: see `Attention`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        window_size: int = 32,
        scaling: str | float = "head",
        **options: Unpack[AttentionOptions],
    ) -> None:
        projection, pattern = _low_rank(d_model, num_heads, options), SlidingWindowPattern(window_size)
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, scaling=scaling, **options)


class GlobalSlidingWindowAttention(Attention):
    """Softmax attention with two parts: some components score every pair, the rest score near pairs only.

    Each part has its softmax; Kuang et al. (ICML 2025) compare with this attention. The global part scores every pair
    by `q . k / sqrt(global_rank)`, with the first components of a head. The window part scores the pairs with
    `|i - j| < window_size` (causal: `0 <= i - j < window_size`) by `q . k / sqrt(head size - global_rank)`, with the
    other components.

    Args:
        window_size: keys on each side, the token itself included.
        global_rank: components of the global part, from 1 to the head size; half of them by default. With all of them
            there is no window part: standard attention.
        combine: ``mean``: the mean of the weights of both parts, which sum to 1. ``sum``: their sum, which sums to 2
            (the authors' form).
        scaling: ``head``: the logits above. ``mup``: the products `q . k` of a part of rank r times `8 / r` instead of
            `1 / sqrt(r)`.
        **options: see `Attention`.

    Raises:
        UserError: for an invalid `global_rank`, `window_size`, `combine` or `scaling`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        window_size: int = 32,
        global_rank: int | None = None,
        combine: str = "mean",
        scaling: str = "head",
        **options: Unpack[AttentionOptions],
    ) -> None:
        projection = _low_rank(d_model, num_heads, options)
        width = projection.width
        if global_rank is None:  # half, rounded up, and to an even number if both parts of an even head can be even
            global_rank = -(-width // 2)
            if global_rank % 2 and width % 2 == 0 and width > 2:
                global_rank += 1
        pattern = GlobalSlidingWindowPattern(width, global_rank, window_size, combine=combine, scaling=scaling)
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, **options)


class BTTAttention(Attention):
    """Softmax attention whose bilinear form is a block tensor-train matrix of full rank (Kuang et al., section 3).

    Args:
        tt_rank: s, the TT-rank; 1 already reaches full rank.
        side: ``key``, ``query`` or ``both``, see `BTTProjection`.
        divisor: the divisor of D that makes the blocks: ``below``, the largest up to `sqrt(D)`; ``above``, the smallest
            above `sqrt(D)`. If D is a square, the authors use ``above``, so that their weights load.
        scaling: factor of the logits: ``head``, `1 / sqrt(D)`; ``mup``, `1 / D` (the authors'); or a number.
        **options: see `Attention`; `qk_norm` is on by default and normalises the mapped side or sides.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        tt_rank: int = 1,
        side: str = "key",
        divisor: str = "below",
        scaling: str | float = "head",
        **options: Unpack[AttentionOptions],
    ) -> None:
        options.setdefault("qk_norm", True)
        projection = BTTProjection(d_model, num_heads, options.get("num_kv_heads"), tt_rank, side, divisor)
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scaling, **options)


class BilinearMLRAttention(Attention):
    """Softmax attention whose bilinear form is a multi-level low-rank matrix of the features (Kuang et al., section 3).

    Level l cuts the D features of a token into `p_l` pieces. A form of rank `r_l` compares each piece of the query's
    token with the same piece of the key's token. The score is `sum_l q_l . k_l / sqrt(p_l r_l)`. The bilinear form has
    rank up to `sum_l p_l r_l`, from `2 D sum_l r_l` parameters a head. One level in one piece is standard attention
    without biases. (`mlr` cuts the sequence instead, and uses fewer components for far pairs.)

    Args:
        ranks: `r_l`, coarse to fine. By default equal ranks that sum to the head size: one for each entry of `blocks`,
            or at most four without `blocks`.
        blocks: `p_l`, number of pieces at each level, each a divisor of D; powers of two from 1 by default.
        scaling: factor of the products of a level. ``level`` and ``mup`` (the authors'): `1 / sqrt(p_l r_l)`;
            ``mup_language`` (their language models'): `8 / (p_l r_l)`; ``head``: `1 / sqrt(sum_l p_l r_l)` for all
            levels; or a number for all levels.
        **options: see `Attention`; `qk_norm` normalises the components of all levels together, and ``level`` the
            components of each level, before the level's factor.

    Raises:
        UserError: for ranks and blocks that do not fit each other or D, or an unknown `scaling`.
    """

    SCALINGS = ("level", "mup", "mup_language", "head")

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        ranks: Sequence[int] | None = None,
        blocks: Sequence[int] | None = None,
        scaling: str | float = "level",
        **options: Unpack[AttentionOptions],
    ) -> None:
        for name, counts in (("ranks", ranks), ("blocks", blocks)):
            if counts is not None and not (_is_list(counts) and counts and all(map(_is_count, counts))):
                raise UserError(f"{name} must be a list of positive whole numbers, coarse to fine, not {counts!r}")
        if ranks is None:
            ranks = _equal_ranks(d_model, head_size(d_model, num_heads, options.get("head_dim")), blocks)
        blocks = [shape.left_blocks for shape in MLR.shapes(ranks, blocks)]
        for count in blocks:
            if d_model % count:
                raise UserError(f"blocks {blocks} must each divide d_model {d_model}, and {count} does not")
        check_scaling(scaling, self.SCALINGS)
        of_levels = {"mup": "level", "level": "level", "mup_language": "mup_language"}.get(str(scaling), "head")
        projection = BilinearMLRProjection(
            d_model, num_heads, options.get("num_kv_heads"), ranks, blocks, scaling=of_levels
        )
        scale = "head" if isinstance(scaling, str) else scaling  # the remaining factor, common to all levels
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scale, **options)


class MLBTCAttention(Attention):
    """Softmax attention whose bilinear form is a multi-level block tensor contraction (Kuang et al., section 3).

    The form is two-sided: query heads have the left factors, key heads the right factors, and the score is
    `x M x' / sqrt(D)`. A level with one block is a low-rank form. Levels that are not shuffled make a bilinear MLR
    form, and one shuffled level makes a BTT form.

    Args:
        levels: for each level a mapping ``{rank: 4, left_blocks: 2, right_blocks: 2, shuffled: true}``. Only `rank` is
            required; by default the blocks are 1 and the level is not shuffled. Each number of blocks divides D. A
            level that is not shuffled has equal numbers of left and right blocks. `p` right blocks take `p rank`
            components of a query; a shuffled level with `p'` left blocks takes `p p' rank`. The default is a low-rank
            level of the head size and a BTT level of rank 1.
        scaling: factor of the logits: ``head``, `1 / sqrt(D)`; ``mup``, `1 / D`, as for BTT; or a number.
        **options: see `Attention`; `qk_norm` normalises the components of all levels together, and ``level`` the
            components of each level.

    Raises:
        UserError: for invalid levels, or levels that do not fit D.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        levels: Sequence[Mapping[str, object]] | None = None,
        scaling: str | float = "head",
        **options: Unpack[AttentionOptions],
    ) -> None:
        if levels is None:
            _, left_blocks, right_blocks, _ = block_sizes(d_model)
            shapes = [
                LevelShape(head_size(d_model, num_heads, options.get("head_dim"))),
                LevelShape(1, left_blocks, right_blocks, shuffled=True),
            ]
        elif not _is_list(levels) or not levels:
            raise UserError(f"levels of mlbtc attention must be a list of at least one level, not {levels!r}")
        else:
            shapes = [_shape(level, d_model) for level in levels]
        projection = MLBTCProjection(d_model, num_heads, options.get("num_kv_heads"), shapes)
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scaling, **options)


class MLRAttention(Attention):
    """Softmax attention that spends more components on near pairs (Kuang et al., section 4).

    Args:
        ranks: components of each level, coarse to fine; they sum to the head size. By default there are up to four
            levels: the first has half of the components and scores every pair; the finer levels share the rest.
        blocks: the blocks of each level, coarse to fine. A list holds numbers of blocks (powers of two by default).
            ``{lengths: [...]}`` holds steps in a block. ``{calendar: [month, day]}`` holds units of the calendar:
            ``all`` (one block), ``year``, ``quarter``, ``month``, ``week`` (from Monday), ``day`` or ``hour``.
            ``{change_points: [1, 4]}`` holds numbers of blocks, cut in each context where its mean level changes most.
            Change points need the whole context, so they exclude causal attention.
        align: alignment of blocks by number or length. ``end``: the last token closes the last block (encoders).
            ``start``: the first token opens the first block.
        scaling: factor of the products of a level's r_l components. ``head``: `1 / sqrt(r)` for all levels, so that
            one level is standard attention. ``level``: `1 / sqrt(r_l)`. ``mup``: `1 / r_l`, as the authors train.
        divide_by: an extra divisor of the logits. ``none``: no divisor. ``levels``: the number of levels. ``active``:
            for each pair, the number of levels in which both tokens share a block (the authors' language models).
            ``both``: the product of both numbers.
        **options: see `Attention`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        ranks: Sequence[int] | None = None,
        blocks: Sequence[int] | Mapping[str, Sequence[int | str]] | None = None,
        align: str = "end",
        scaling: str = "head",
        divide_by: str = "none",
        **options: Unpack[AttentionOptions],
    ) -> None:
        projection = _low_rank(d_model, num_heads, options)
        head_dim = projection.width
        ranks = default_ranks(head_dim) if ranks is None else ranks
        if not _is_list(ranks) or not all(map(_is_count, ranks)):
            raise UserError(f"ranks must be a list of positive whole numbers, coarse to fine, not {ranks!r}")
        if sum(ranks) != head_dim:
            raise UserError(f"ranks {list(ranks)} sum to {sum(ranks)}, but must sum to the head size {head_dim}")
        ways = _blocks(blocks, len(ranks))
        pattern = MultiLevelPattern(ranks, **ways, align=align, scaling=scaling, divide_by=divide_by)
        if pattern.reads_values and options.get("causal"):
            raise UserError(
                "blocks by change points use the whole context, also later tokens, which causal attention "
                "must not see; give numbers, lengths or calendar"
            )
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, **options)


class IdentityAttention(Attention):
    """Each token gets its own value, so that tokens do not see each other: a baseline for other kinds.

    Args:
        **options: see `Attention`; without queries and keys, `rope` has no effect and `qk_norm` is refused.
    """

    def __init__(self, d_model: int, num_heads: int, **options: Unpack[AttentionOptions]) -> None:
        projection = NoProjection(num_heads, options.get("num_kv_heads"))
        super().__init__(d_model, num_heads, projection=projection, pattern=IdentityPattern(), **options)


class UniformAttention(Attention):
    """Each token gets the mean value of all keys that it may see: a baseline without learned weights.

    Args:
        **options: see `Attention`; without queries and keys, `rope` has no effect and `qk_norm` is refused.
    """

    def __init__(self, d_model: int, num_heads: int, **options: Unpack[AttentionOptions]) -> None:
        projection = NoProjection(num_heads, options.get("num_kv_heads"))
        super().__init__(d_model, num_heads, projection=projection, pattern=UniformPattern(), **options)


class FixedMixingAttention(Attention):
    """A learned matrix of logits for each head, the same for every input: `softmax(R_h) V`.

    Source: the random Synthesizer of Tay et al., *Synthesizer: Rethinking Self-Attention for Transformer Models* (ICML
    2021), in its trained form.

    Args:
        align: where a sequence of fewer than `max_length` tokens lies in the matrix. ``end``: its last token has the
            last position (encoders). ``start``: its first token has the first position.
        **options: see `Attention`; `max_length` is required. Without queries and keys, `rope` has no effect
            and `qk_norm` is refused.

    Raises:
        UserError: for an unknown `align`, or without `max_length`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, align: str = "end", **options: Unpack[AttentionOptions]
    ) -> None:
        max_length = options.get("max_length")
        if max_length is None:
            raise UserError("fixed_mixing attention needs max_length, the number of its places")
        projection = NoProjection(num_heads, options.get("num_kv_heads"))
        pattern = FixedMixingPattern(projection.num_heads, whole_number("max_length", max_length), align)
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, **options)


def _low_rank(d_model: int, num_heads: int, options: AttentionOptions) -> LowRankProjection:
    head_dim = head_size(d_model, num_heads, options.get("head_dim"))
    return LowRankProjection(d_model, num_heads, options.get("num_kv_heads"), head_dim)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _equal_ranks(d_model: int, head_dim: int, blocks: Sequence[int] | None) -> list[int]:
    """Equal ranks that sum to `head_dim`: one for each of `blocks`, or up to four; even ranks if `head_dim` is even."""
    if blocks is not None:
        if head_dim % len(blocks):
            raise UserError(f"give ranks: the head size {head_dim} is not divisible by {len(blocks)} levels")
        return [head_dim // len(blocks)] * len(blocks)
    unit = 2 if head_dim % 2 == 0 else 1
    levels = next(n for n in (4, 3, 2, 1) if head_dim % (unit * n) == 0 and d_model % 2 ** (n - 1) == 0)
    return [head_dim // levels] * levels


def _shape(level: Mapping[str, Any], d_model: int) -> LevelShape:
    """The level that a mapping describes, checked."""
    if not isinstance(level, Mapping) or "rank" not in level:
        raise UserError(f"a level of mlbtc attention must be a mapping like {{rank: 4}}, not {level!r}")
    for name, value in level.items():
        if name not in _LEVEL_ENTRIES:
            raise UserError(f"a level of mlbtc attention has no entry {name!r}; valid: {one_of(_LEVEL_ENTRIES)}")
        if name == "shuffled":
            if not isinstance(value, bool):
                raise UserError(f"shuffled of a level of mlbtc attention must be true or false, not {value!r}")
        elif not _is_count(value):
            raise UserError(f"{name} of a level of mlbtc attention must be a positive whole number, not {value!r}")
        elif name != "rank" and d_model % value:
            raise UserError(f"{name} of a level of mlbtc attention must divide d_model {d_model}, and {value} does not")
    return LevelShape(**level)


def default_ranks(head_dim: int) -> list[int]:
    """Half of the components on the coarsest level and the rest halved again, in even ranks, over up to four levels.

    For example `32 | 16 | 8 | 8` for 64 components and `4 | 2 | 2` for 8.
    """
    ranks: list[int] = []
    left = head_dim
    while len(ranks) < 3 and left > 2 and left % 4 == 0:
        ranks.append(left // 2)
        left -= ranks[-1]
    return [*ranks, left]


def _blocks(blocks: Sequence[int] | Mapping[str, Sequence[int | str]] | None, num_levels: int) -> dict[str, Any]:
    """The blocks as arguments of `MultiLevelPattern`: numbers, lengths, calendar or change points of each level."""
    if blocks is None:
        return {"numbers": [2**level for level in range(num_levels)]}
    way: str = "numbers"
    levels: Any = blocks
    if isinstance(blocks, Mapping):
        if len(blocks) != 1 or next(iter(blocks)) not in _WAYS:
            *ways, last = (f"{{{way}: [...]}}" for way in _WAYS)
            raise UserError(f"blocks must be a list of numbers, {', '.join(ways)} or {last}, not {blocks}")
        way, levels = next(iter(blocks.items()))
    is_list = _is_list(levels)
    if way == "calendar" and not (is_list and all(isinstance(unit, str) for unit in levels)):
        raise UserError(f"calendar blocks must be a list of {one_of(CALENDAR_UNITS)}, coarse to fine, not {levels!r}")
    if way != "calendar" and not (is_list and all(map(_is_count, levels))):
        raise UserError(f"blocks must be positive whole numbers, coarse to fine, not {levels!r}")
    if len(levels) != num_levels:
        raise UserError(f"blocks {list(levels)} must have one entry for each of the {num_levels} ranks")
    return {way: list(levels)}
