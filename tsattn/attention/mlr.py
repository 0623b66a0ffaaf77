"""Multi-level low-rank (MLR) attention: low-rank projection, multi-level pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions, head_size
from tsattn.attention.patterns import MultiLevelPattern
from tsattn.attention.projections import LowRankProjection
from tsattn.errors import UserError

__all__ = ["MLRAttention"]


class MLRAttention(Attention):
    """Softmax attention that spends more components on near pairs (Kuang et al., section 4).

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        ranks: components of each level, coarse to fine; they sum to the head size. Four levels by default: half of the
            components for every pair, the rest shared by the finer levels.
        blocks: the blocks of each level, coarse to fine: a list of numbers of blocks (1, 2, 4, ... by default), or
            ``{lengths: [...]}``, steps in a block.
        align: ``end``: the last token closes the last block (encoders); ``start``: the first opens the first one.
        scaling: factor of the products of a level's r_l components: ``head``, `1 / sqrt(r)` for all of them, so that
            one level is standard attention; ``level``, `1 / sqrt(r_l)`; ``mup``, `1 / r_l`, as the authors train.
        divide_by: what the logits are divided by as well: ``none``; ``levels``, the number of levels; ``active``, pair
            by pair the number of levels in which the two tokens share a block, as in the authors' language models.
        **options: what every kind takes, see `Attention`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        ranks: Sequence[int] | None = None,
        blocks: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
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
        kind, sizes = _blocks(blocks, len(ranks))
        pattern = MultiLevelPattern(
            ranks,
            numbers=sizes if kind == "numbers" else None,
            lengths=sizes if kind == "lengths" else None,
            align=align,
            scaling=scaling,
            divide_by=divide_by,
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


def _blocks(blocks: Sequence[int] | Mapping[str, Sequence[int]] | None, num_levels: int) -> tuple[str, list[int]]:
    """The way blocks are given, ``numbers`` or ``lengths``, and one size a level."""
    if blocks is None:
        return "numbers", [2**level for level in range(num_levels)]
    kind, sizes = "numbers", blocks
    if isinstance(blocks, Mapping):
        if len(blocks) != 1 or next(iter(blocks)) not in ("numbers", "lengths"):
            raise UserError(
                f"blocks must be a list of numbers, or {{numbers: [...]}} or {{lengths: [...]}}, not {blocks}"
            )
        kind, sizes = next(iter(blocks.items()))
    if isinstance(sizes, str) or not isinstance(sizes, Sequence) or not all(is_count(size) for size in sizes):
        raise UserError(f"blocks must be positive whole numbers, coarse to fine, not {sizes!r}")
    if len(sizes) != num_levels:
        raise UserError(f"blocks {list(sizes)} must have one entry for each of the {num_levels} ranks")
    return kind, list(sizes)


def is_count(value: object) -> bool:
    """Whether this is a positive whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
