"""What stands in a Chronos model in the place of its own self-attention: an attention of this package.

Shape letters as in `tsattn.attention.base`. Each module takes and gives what the one that it replaces does.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention
from tsattn.attention.patterns import FullPattern
from tsattn.chronos.models.token_layout import TokenLayout
from tsattn.chronos.swapped.relative_bias import RelativeBias
from tsattn.errors import UserError
from tsattn.ops.full import full_attention

__all__ = ["SwappedAttention", "SwappedMHA", "SwappedT5Attention", "SwappedTimeAttention"]

_NO_WEIGHTS = "swapped attention gives no weights; tsattn.attention.maps computes those of an attention"


class SwappedAttention(nn.Module):
    """An attention of this package among the tokens of a Chronos model.

    Args:
        attention: the attention.
        layout: where the tokens of an encoder stand; None in a decoder, whose tokens count from its first.
        as_original: whether it is the full attention that it replaces, which then sees what that sees to the last bit.

    Attributes:
        is_over_time: whether its tokens are those of one series.
    """

    is_over_time: ClassVar[bool] = True

    def __init__(self, attention: Attention, layout: TokenLayout | None, *, as_original: bool) -> None:
        super().__init__()
        self.attention = attention
        self.layout = layout
        self.as_original = as_original

    def attend(self, x: Tensor, *, key_mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """`(B, N, D)` of the tokens `x (B, N, D)`; `key_mask (B, N)` is true where there is something to see."""
        attention, places = self.attention, {}
        placed = attention.pattern.is_local or attention.pattern.needs_max_length or attention.rotary is not None
        if placed and self.layout is not None:
            places = self.layout.places(x.shape[1], x.device)
        if key_mask is not None:
            # in a row without anything to see all tokens are alike, and so is what they see
            key_mask = key_mask | ~key_mask.any(-1, keepdim=True)
        out: Tensor = attention(x, attention_mask=key_mask, bias=bias, **places)
        return out


class SwappedT5Attention(SwappedAttention):
    """In the place of a `T5Attention` of Chronos-T5 or Chronos-Bolt.

    Args:
        attention: the attention.
        layout: see `SwappedAttention`.
        as_original: see `SwappedAttention`.
        original: what is replaced, whose relative position bias is copied where it has one.
    """

    def __init__(self, attention: Attention, layout: TokenLayout | None, *, as_original: bool, original: Any) -> None:
        super().__init__(attention, layout, as_original=as_original)
        self.layer = original.layer_idx
        self.relative_bias = RelativeBias(original) if original.has_relative_attention_bias else None

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
        """What `T5Attention.forward` takes; the output `(B, N, D)`, the bias for the layers to come, and no weights.

        Raises:
            UserError: for other tokens to attend to, a cache that this attention cannot decode with, or where weights
                are asked for.
        """
        if key_value_states is not None:
            raise UserError("swapped attention is self-attention: it takes no key_value_states")
        if kwargs.get("output_attentions"):
            raise UserError(_NO_WEIGHTS)
        cache = getattr(past_key_values, "self_attention_cache", past_key_values)
        seen = 0 if cache is None else int(cache.get_seq_length(self.layer))
        count = hidden_states.shape[1]
        if position_bias is None and self.relative_bias is not None:
            position_bias = self.relative_bias(count, seen + count, seen)
        if cache is not None:
            out = self._decode(hidden_states, merged(position_bias, mask, hidden_states), cache, seen)
        elif self.layout is None or self.as_original or not _of_keys(mask):
            out = self.attend(hidden_states, key_mask=None, bias=merged(position_bias, mask, hidden_states))
        else:
            out = self.attend(hidden_states, key_mask=real_keys(mask), bias=position_bias)
        return out, position_bias, None

    def _decode(self, x: Tensor, bias: Tensor | None, cache: Any, seen: int) -> Tensor:
        """The next tokens `x (B, n, D)` of a decoder, with what its cache keeps of those before.

        Where every pair is scored that is all keys and values, as the original keeps them.
        """
        attention = self.attention
        if type(attention.pattern) is not FullPattern:
            from tsattn.chronos.swapped.decoder_cache import own_layer

            own: Tensor = attention(x, cache=own_layer(cache, self.layer, attention, len(x)).held, bias=bias)
            return own
        q, k = attention.projection(x, x)
        v = rearrange(attention.value(x), "B N (G e) -> B G N e", G=attention.num_kv_heads)
        k, v = cache.update(k, v, self.layer)
        at = torch.arange(seen, seen + x.shape[1], device=x.device)[None]
        mixed = full_attention(
            attention.query_norm(q),
            attention.key_norm(k),
            v,
            causal=x.shape[1] > 1,
            query_positions=at,
            bias=bias,
            scale=attention.scale,
            dropout_p=attention.dropout if self.training else 0.0,
            impl=attention.impl,
        )
        out: Tensor = attention.output(rearrange(mixed, "B H N e -> B N (H e)"))
        return out


class SwappedMHA(SwappedAttention):
    """In the place of an `MHA` of Chronos-2."""

    @override
    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor,
        encoder_states: Tensor | None = None,
        position_ids: Tensor | None = None,
        output_attentions: bool = False,
    ) -> Any:
        """What `MHA.forward` takes, and its `AttentionOutput`; positions, where there are any, are those of the order.

        Raises:
            UserError: for other tokens to attend to, or where weights are asked for.
        """
        from chronos.chronos2.layers import AttentionOutput

        if encoder_states is not None:
            raise UserError("swapped attention is self-attention: it takes no encoder_states")
        if output_attentions:
            raise UserError(_NO_WEIGHTS)
        return AttentionOutput(hidden_states=self.seen(hidden_states, mask))

    @abstractmethod
    def seen(self, x: Tensor, mask: Tensor) -> Tensor:
        """What tokens `x (B, N, D)` see by a mask `(B, 1, N, N)` that is added to scores."""


class SwappedTimeAttention(SwappedMHA):
    """In the place of the `MHA` of Chronos-2 that attends over time."""

    @override
    def seen(self, x: Tensor, mask: Tensor) -> Tensor:
        key_mask, bias = real_keys(mask), None
        if key_mask is None or self.as_original or bool(key_mask.all()):
            key_mask, bias = None, mask if self.as_original else None
        return self.attend(x, key_mask=key_mask, bias=bias)


def merged(bias: Tensor | None, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """A bias and a mask as one bias, broadcastable to `(B, H, N, S)`, with the numbers of the original's.

    Args:
        bias: `(1, H, N, S)`.
        mask: as transformers gives it: bool, true at pairs that are seen, or numbers to add.
        x: of the type that the bias is for.
    """
    if mask is None:
        return bias
    if mask.dtype != torch.bool:
        return mask if bias is None else bias + mask
    if bias is None:
        bias = x.new_zeros(())
    return torch.where(mask, bias, torch.finfo(x.dtype).min)


def _of_keys(mask: Tensor | None) -> bool:
    """Whether a mask `(B, 1, N, S)` says the same of every query, as that of padding does."""
    return mask is None or mask.shape[2] == 1 or mask.stride(2) == 0 or bool((mask == mask[:, :, :1]).all())


def real_keys(mask: Tensor | None) -> Tensor | None:
    """Which keys `(B, S)` a mask of keys lets all queries see."""
    if mask is None:
        return None
    row = mask[:, 0, 0]
    return row if row.dtype == torch.bool else row == 0
