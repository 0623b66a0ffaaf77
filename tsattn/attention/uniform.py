"""Uniform attention, an ablation: no queries and keys, every allowed key with the same weight."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions
from tsattn.attention.patterns import UniformPattern
from tsattn.attention.projections import NoProjection

__all__ = ["UniformAttention"]


class UniformAttention(Attention):
    """Each token gets the mean of the values of all keys that it may see: mixing without a choice.

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        **options: what every kind takes, see `Attention`; there is nothing to normalise and to rotate.
    """

    def __init__(self, d_model: int, num_heads: int, **options: Unpack[AttentionOptions]) -> None:
        projection = NoProjection(num_heads, options.get("num_kv_heads"))
        super().__init__(d_model, num_heads, projection=projection, pattern=UniformPattern(), **options)
