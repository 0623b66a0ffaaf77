"""BTT attention: block tensor-train projection, full pattern."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions
from tsattn.attention.patterns import FullPattern
from tsattn.attention.projections import BTTProjection

__all__ = ["BTTAttention"]


class BTTAttention(Attention):
    """Softmax attention whose bilinear form is a block tensor-train matrix of full rank (Kuang et al., section 3).

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        tt_rank: s, the TT-rank; 1 already reaches full rank.
        side: ``key``, ``query`` or ``both``, see `BTTProjection`.
        divisor: of D, which makes the blocks: ``below``, the largest up to its root; ``above``, the smallest above it,
            which is the authors' where D is a square, so that their weights load.
        scaling: factor of the logits: ``head``, `1 / sqrt(D)`; ``mup``, `1 / D`, as the authors train under muP; or a
            number.
        **options: what every kind takes, see `Attention`; `qk_norm` is on by default and normalises what is mapped.
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
