"""MLBTC attention: projection by a multi-level block tensor contraction, full pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from tsattn.attention.base import Attention, AttentionOptions, head_size
from tsattn.attention.mlr import is_count
from tsattn.attention.patterns import FullPattern
from tsattn.attention.projections import MLBTCProjection
from tsattn.errors import UserError, one_of
from tsattn.structured import LevelShape, block_sizes

__all__ = ["MLBTCAttention"]

_ENTRIES = ("rank", "left_blocks", "right_blocks", "shuffled")


class MLBTCAttention(Attention):
    """Softmax attention whose bilinear form is a multi-level block tensor contraction (Kuang et al., section 3).

    The two-sided form: each query head has the left factors, each key head the right ones, and the score is
    `x M x' / sqrt(D)`. A level in one block is a low-rank form, levels that are not shuffled make a bilinear MLR form,
    and one shuffled level a BTT form.

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        levels: for each level a mapping ``{rank: 4, left_blocks: 2, right_blocks: 2, shuffled: true}``, of which only
            `rank` must be given; the blocks are 1 and the level is not shuffled by default. Each number of blocks
            divides D; a level that is not shuffled has as many left as right ones. `p` right blocks take `p rank`
            components of a query, shuffled with `p'` left blocks `p p' rank`. By default a low-rank level of the head
            size, and a BTT level of rank 1.
        scaling: factor of the logits: ``head``, `1 / sqrt(D)`; ``mup``, `1 / D`, as the authors train BTT under muP; or
            a number.
        **options: what every kind takes, see `Attention`; `qk_norm` normalises the components of all levels together,
            ``level`` those of each.

    Raises:
        UserError: levels that mean nothing or do not fit D.
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
        elif isinstance(levels, str) or not isinstance(levels, Sequence) or not levels:
            raise UserError(f"levels of mlbtc attention must be a list of at least one level, not {levels!r}")
        else:
            shapes = [_shape(level, d_model) for level in levels]
        projection = MLBTCProjection(d_model, num_heads, options.get("num_kv_heads"), shapes)
        super().__init__(d_model, num_heads, projection=projection, pattern=FullPattern(), scaling=scaling, **options)


def _shape(level: Mapping[str, Any], d_model: int) -> LevelShape:
    """The level that a mapping describes, checked."""
    if not isinstance(level, Mapping) or "rank" not in level:
        raise UserError(f"a level of mlbtc attention must be a mapping like {{rank: 4}}, not {level!r}")
    for name, value in level.items():
        if name not in _ENTRIES:
            raise UserError(f"a level of mlbtc attention has no entry {name!r}; valid: {one_of(_ENTRIES)}")
        if name == "shuffled":
            if not isinstance(value, bool):
                raise UserError(f"shuffled of a level of mlbtc attention must be true or false, not {value!r}")
        elif not is_count(value):
            raise UserError(f"{name} of a level of mlbtc attention must be a positive whole number, not {value!r}")
        elif name != "rank" and d_model % value:
            raise UserError(f"{name} of a level of mlbtc attention must divide d_model {d_model}, and {value} does not")
    return LevelShape(**level)
