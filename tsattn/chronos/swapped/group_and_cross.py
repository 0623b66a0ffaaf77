"""What stands in a Chronos model in the place of attention that is not over time: among series, and to the encoder.

Shape letters as in `tsattn.attention.base`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from einops import rearrange
from torch import Tensor
from typing_extensions import override

from tsattn.attention import Attention
from tsattn.chronos.swapped.swapped_attention import SwappedAttention, SwappedMHA, merged
from tsattn.errors import UserError
from tsattn.ops.full import full_attention

__all__ = ["SwappedCrossAttention", "SwappedGroupAttention"]


class SwappedGroupAttention(SwappedMHA):
    """In the place of the `MHA` of Chronos-2 that attends over the series of a group, at each place in time.

    Its tokens are `(P, B, D)`, those of B series at P places, and its mask says which series are of one group and have
    something there.
    """

    is_over_time: ClassVar[bool] = False

    @override
    def seen(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attend(x, key_mask=None, bias=mask)


class SwappedCrossAttention(SwappedAttention):
    """In the place of the `T5Attention` by which a decoder sees the states of its encoder.

    Args:
        attention: the attention, of every pair.
        as_original: see `SwappedAttention`.
        layer: the number of the decoder's layer, by which its cache finds keys and values again.
    """

    def __init__(self, attention: Attention, *, as_original: bool, layer: int) -> None:
        super().__init__(attention, None, as_original=as_original)
        self.layer = layer

    @override
    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        key_value_states: Tensor | None = None,
        position_bias: Tensor | None = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None, None]:
        """What `T5Attention.forward` takes; the output `(B, N, D)`, the bias as it came, and no weights.

        Keys and values of the encoder's states `(B, S, D)` are made once for all steps of a decoder, where it has a
        cache.

        Raises:
            UserError: without states of an encoder.
        """
        attention = self.attention
        if key_value_states is None:
            raise UserError("swapped cross-attention needs key_value_states: the states of an encoder")
        cache = getattr(past_key_values, "cross_attention_cache", None)
        if cache is not None and past_key_values.is_updated.get(self.layer):
            q, _ = attention.projection(hidden_states, hidden_states[:, :0])
            k, v = cache.layers[self.layer].keys, cache.layers[self.layer].values
        else:
            q, k = attention.projection(hidden_states, key_value_states)
            k = attention.key_norm(k)
            v = rearrange(attention.value(key_value_states), "B S (G e) -> B G S e", G=attention.num_kv_heads)
            if cache is not None:
                k, v = cache.update(k, v, self.layer)
                past_key_values.is_updated[self.layer] = True
        mixed = full_attention(
            attention.query_norm(q),
            k,
            v,
            bias=merged(position_bias, mask, hidden_states),
            scale=attention.scale,
            dropout_p=attention.dropout if self.training else 0.0,
            impl=attention.impl,
        )
        out: Tensor = attention.output(rearrange(mixed, "B H N e -> B N (H e)"))
        return out, position_bias, None
