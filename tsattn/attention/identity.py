"""Identity attention, an ablation: no queries and keys, each token with itself alone."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions
from tsattn.attention.patterns import IdentityPattern
from tsattn.attention.projections import NoProjection

__all__ = ["IdentityAttention"]


class IdentityAttention(Attention):
    """Each token gets its own value: what is left of a model whose tokens do not see each other.

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        **options: what every kind takes, see `Attention`; there is nothing to normalise and to rotate.
    """

    def __init__(self, d_model: int, num_heads: int, **options: Unpack[AttentionOptions]) -> None:
        projection = NoProjection(num_heads, options.get("num_kv_heads"))
        super().__init__(d_model, num_heads, projection=projection, pattern=IdentityPattern(), **options)
