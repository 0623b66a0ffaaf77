"""Multi-level low-rank (MLR) attention: low-rank projection, multi-level pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from tsattn.attention.base import Attention, AttentionOptions, head_size
from tsattn.attention.patterns import MultiLevelPattern
from tsattn.attention.projections import LowRankProjection
from tsattn.errors import UserError, one_of
from tsattn.ops.calendar_blocks import CALENDAR_UNITS

__all__ = ["MLRAttention"]

WAYS = ("numbers", "lengths", "calendar", "change_points")  # in which blocks are given


class MLRAttention(Attention):
    """Softmax attention that spends more components on near pairs (Kuang et al., section 4).

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        ranks: components of each level, coarse to fine; they sum to the head size. Four levels by default: half of the
            components for every pair, the rest shared by the finer levels.
        blocks: the blocks of each level, coarse to fine: a list of numbers of blocks (1, 2, 4, ... by default);
            ``{lengths: [...]}``, steps in a block; or ``{calendar: [month, day]}``, units of the calendar, of ``all``
            (one block), ``year``, ``quarter``, ``month``, ``week`` (from Monday), ``day`` and ``hour``; or
            ``{change_points: [1, 4]}``, numbers of blocks that are cut, window by window, where the level of the
            context changes most. These need the whole context, so that no token can be causal.
        align: of blocks by number or length. ``end``: the last token closes the last block (encoders); ``start``: the
            first opens the first one.
        scaling: factor of the products of a level's r_l components: ``head``, `1 / sqrt(r)` for all of them, so that
            one level is standard attention; ``level``, `1 / sqrt(r_l)`; ``mup``, `1 / r_l`, as the authors train.
        divide_by: what the logits are divided by as well: ``none``; ``levels``, the number of levels; ``active``, pair
            by pair the number of levels in which the two tokens share a block, as in the authors' language models;
            ``both``, one after the other.
        **options: what every kind takes, see `Attention`.
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
        head_dim = head_size(d_model, num_heads, options.get("head_dim"))
        ranks = default_ranks(head_dim) if ranks is None else ranks
        if not isinstance(ranks, Sequence) or isinstance(ranks, str) or not all(is_count(rank) for rank in ranks):
            raise UserError(f"ranks must be a list of positive whole numbers, coarse to fine, not {ranks!r}")
        if sum(ranks) != head_dim:
            raise UserError(f"ranks {list(ranks)} sum to {sum(ranks)}, but must sum to the head size {head_dim}")
        pattern = MultiLevelPattern(
            ranks,
            **_blocks(blocks, len(ranks)),
            align=align,
            scaling=scaling,
            divide_by=divide_by,
        )
        if pattern.reads_values and options.get("causal"):
            raise UserError(
                "blocks by change points are found from the whole context, later tokens too, which causal attention "
                "must not see; give numbers, lengths or calendar"
            )
        projection = LowRankProjection(d_model, num_heads, options.get("num_kv_heads"), head_dim)
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, **options)


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
    """One entry a level, by the way that they are given: numbers, lengths or calendar."""
    if blocks is None:
        return {"numbers": [2**level for level in range(num_levels)]}
    way: str = "numbers"
    levels: Any = blocks
    if isinstance(blocks, Mapping):
        if len(blocks) != 1 or next(iter(blocks)) not in WAYS:
            *ways, last = (f"{{{way}: [...]}}" for way in WAYS)
            raise UserError(f"blocks must be a list of numbers, {', '.join(ways)} or {last}, not {blocks}")
        way, levels = next(iter(blocks.items()))
    is_list = isinstance(levels, Sequence) and not isinstance(levels, str)
    if way == "calendar" and not (is_list and all(isinstance(unit, str) for unit in levels)):
        raise UserError(f"calendar blocks must be a list of {one_of(CALENDAR_UNITS)}, coarse to fine, not {levels!r}")
    if way != "calendar" and not (is_list and all(is_count(size) for size in levels)):
        raise UserError(f"blocks must be positive whole numbers, coarse to fine, not {levels!r}")
    if len(levels) != num_levels:
        raise UserError(f"blocks {list(levels)} must have one entry for each of the {num_levels} ranks")
    return {way: list(levels)}


def is_count(value: object) -> bool:
    """Whether this is a positive whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
