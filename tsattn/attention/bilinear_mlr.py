"""Bilinear MLR attention: projection by a multi-level low-rank matrix of the features, full pattern."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions, check_scaling, head_size
from tsattn.attention.mlr import is_count
from tsattn.attention.patterns import FullPattern
from tsattn.attention.projections import BilinearMLRProjection
from tsattn.errors import UserError

__all__ = ["BilinearMLRAttention"]


class BilinearMLRAttention(Attention):
    """Softmax attention whose bilinear form is a multi-level low-rank matrix of the features (Kuang et al., section 3).

    Level l cuts the D features of a token into `p_l` pieces and compares each piece of a query's token with the same
    piece of a key's, by a form of rank `r_l`; the score is `sum_l q_l . k_l / sqrt(p_l r_l)`. Its rank is up to
    `sum_l p_l r_l`, from `2 D sum_l r_l` parameters a head. One level in one piece is standard attention without
    biases. (`mlr` cuts the sequence instead, and takes fewer components for far pairs.)

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        ranks: `r_l`, coarse to fine. Equal ranks that sum to the head size by default, over as many levels as `blocks`
            has, else over at most four.
        blocks: `p_l`, pieces that the features are cut into at each level, each a divisor of D; 1, 2, 4, .. by default.
        scaling: factor of the products of a level: ``level``, `1 / sqrt(p_l r_l)`; ``mup``, the same, which is what the
            authors train with under muP; ``mup_language``, `8 / (p_l r_l)`, that of their language models; ``head``,
            `1 / sqrt(sum_l p_l r_l)` for all levels alike; or a number for all levels alike.
        **options: what every kind takes, see `Attention`; `qk_norm` normalises the components of all levels together,
            ``level`` those of each, before the level's factor.

    Raises:
        UserError: ranks and blocks that do not fit each other or D, or another `scaling`.
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
            if counts is not None and not (_is_list(counts) and counts and all(is_count(count) for count in counts)):
                raise UserError(f"{name} must be a list of positive whole numbers, coarse to fine, not {counts!r}")
        if ranks is None:
            ranks = _equal_ranks(d_model, head_size(d_model, num_heads, options.get("head_dim")), blocks)
        if blocks is None:
            blocks = [2**level for level in range(len(ranks))]
        if len(blocks) != len(ranks):
            raise UserError(f"blocks {list(blocks)} must have one entry for each of the {len(ranks)} ranks")
        for count in blocks:
            if d_model % count:
                raise UserError(f"blocks {list(blocks)} must each divide d_model {d_model}, and {count} does not")
        check_scaling(scaling, self.SCALINGS)
        of_levels = {"mup": "level", "level": "level", "mup_language": "mup_language"}.get(str(scaling), "head")
        projection = BilinearMLRProjection(
            d_model, num_heads, options.get("num_kv_heads"), ranks, blocks, scaling=of_levels
        )
        scale = "head" if isinstance(scaling, str) else scaling  # what is left to scale once the levels are
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scale, **options)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _equal_ranks(d_model: int, head_dim: int, blocks: Sequence[int] | None) -> list[int]:
    """Equal ranks that sum to `head_dim`: one for each entry of `blocks`, else over the most levels up to four.

    Those keep the ranks of an even head even, for rotary positions, and let 1, 2, 4, .. pieces divide `d_model`.
    """
    if blocks is not None:
        if head_dim % len(blocks):
            raise UserError(f"ranks must be given: {len(blocks)} levels do not share the head size {head_dim} equally")
        return [head_dim // len(blocks)] * len(blocks)
    unit = 2 if head_dim % 2 == 0 else 1
    levels = next(n for n in (4, 3, 2, 1) if head_dim % (unit * n) == 0 and d_model % 2 ** (n - 1) == 0)
    return [head_dim // levels] * levels
