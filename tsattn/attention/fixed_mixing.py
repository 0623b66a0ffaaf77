"""Fixed mixing, an ablation: no queries and keys, weights that are learned by position."""

from __future__ import annotations

from typing import Unpack

from tsattn.attention.base import Attention, AttentionOptions
from tsattn.attention.patterns import FixedMixingPattern
from tsattn.attention.projections import NoProjection
from tsattn.errors import UserError, whole_number

__all__ = ["FixedMixingAttention"]


class FixedMixingAttention(Attention):
    """A learned matrix of logits for each head, the same for every input: `softmax(R_h) V`.

    Source: the random Synthesizer of Tay et al., *Synthesizer: Rethinking Self-Attention for Transformer Models* (ICML
    2021), in its trained form.

    Args:
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        align: where a sequence of fewer than `max_length` tokens lies in the matrix. ``end``: its last token has the
            last place (encoders); ``start``: its first has the first.
        **options: what every kind takes, see `Attention`; `max_length` is needed, and there is nothing to normalise and
            to rotate.

    Raises:
        UserError: another `align`, or no `max_length`.
    """

    def __init__(
        self, d_model: int, num_heads: int, *, align: str = "end", **options: Unpack[AttentionOptions]
    ) -> None:
        max_length = options.get("max_length")
        if max_length is None:
            raise UserError("fixed_mixing attention needs max_length, the number of its places")
        projection = NoProjection(num_heads, options.get("num_kv_heads"))
        pattern = FixedMixingPattern(
            whole_number("num_heads", num_heads), whole_number("max_length", max_length), align
        )
        super().__init__(d_model, num_heads, projection=projection, pattern=pattern, **options)
