"""Attentions of this package that replace attentions of a Chronos model, with scores on the original's scale.

They have the call signature of the originals. Shape letters as in `tsattn.attention.base`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
from typing import Any, NoReturn

import torch
from einops import rearrange
from torch import Tensor, nn
from typing_extensions import override

from tsattn.attention import Attention, attention_class, build_attention
from tsattn.attention.caches import Cache
from tsattn.attention.patterns import FullPattern
from tsattn.attention.projections import LowRankProjection, rotated
from tsattn.chronos.families import AttentionSite, ChronosFamily, TokenLayout
from tsattn.descriptions import Description, keyword_arguments
from tsattn.errors import UserError
from tsattn.ops.full import full_attention

_NO_WEIGHTS = "swapped attention returns no weights; compute them with tsattn.attention.maps"


class SwappedAttention(nn.Module):
    """An attention of this package over the tokens of a Chronos model.

    `layout` describes the tokens of an encoder. In a decoder it is None, and positions count from the first token.
    `as_original` means full attention like the original: it gets exactly the original's mask.
    """

    def __init__(self, attention: Attention, layout: TokenLayout | None, *, as_original: bool) -> None:
        super().__init__()
        self.attention = attention
        self.layout = layout
        self.as_original = as_original

    def attend(self, x: Tensor, *, key_mask: Tensor | None, bias: Tensor | None) -> Tensor:
        """Attend from `x (B, N, D)` to itself; `key_mask (B, N)` is True at keys that may be seen."""
        attention, places = self.attention, {}
        placed = attention.pattern.is_local or attention.pattern.needs_max_length or attention.rotary is not None
        if placed and self.layout is not None:
            places = self.layout.places(x.shape[1], x.device)
        if key_mask is not None:
            # in a row without visible keys all tokens are equal, so seeing them all changes nothing
            key_mask = key_mask | ~key_mask.any(-1, keepdim=True)
        out: Tensor = attention(x, attention_mask=key_mask, bias=bias, **places)
        return out

    def mix(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, **places: Any) -> Tensor:
        """The output `(B, N, D)` if queries, normalised before, score every key."""
        attention = self.attention
        dropout = attention.dropout if self.training else 0.0
        mixed = full_attention(
            q, k, v, bias=bias, scale=attention.scale, dropout_p=dropout, impl=attention.impl, **places
        )
        out: Tensor = attention.output(rearrange(mixed, "B H N e -> B N (H e)"))
        return out

    def values(self, x: Tensor) -> Tensor:
        """Values `(B, G, S, e)` of tokens `(B, S, D)`."""
        values: Tensor = rearrange(self.attention.value(x), "B S (G e) -> B G S e", G=self.attention.num_kv_heads)
        return values


class DistanceBias(nn.Module):
    """A copy of the relative bias of a `T5Attention`: a number for each head and bucket of distances in tokens.

    Near distances have a bucket each, and farther distances share buckets that grow with the distance. All distances
    from `max_distance` on share the last bucket. In an encoder later tokens have half of the buckets; in a decoder they
    count as distance 0.
    """

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.num_buckets: int = original.relative_attention_num_buckets
        self.max_distance: int = original.relative_attention_max_distance
        self.both_ways = not original.is_decoder
        self.weight: Tensor = copy.deepcopy(original.relative_attention_bias.weight)

    def forward(self, queries: int, keys: int, seen: int) -> Tensor:
        """The bias `(1, H, N, S)` of `queries` tokens that follow `seen` tokens, for the first `keys` tokens."""
        # compute each distance once, from the lowest to the highest: each row is a slice of this line
        ahead = torch.arange(1 - seen - queries, keys - seen, device=self.weight.device)
        line: Tensor = self.weight[self.buckets(ahead)].T
        return line.unfold(1, keys, 1).flip(1)[None]

    def buckets(self, ahead: Tensor) -> Tensor:
        """Find the bucket of each distance; `ahead` is the position of the key minus the position of the query."""
        number, first, distance = self.num_buckets, torch.zeros_like(ahead), (-ahead).clamp(min=0)
        if self.both_ways:
            number //= 2
            first, distance = (ahead > 0).long() * number, ahead.abs()
        exact = number // 2
        # float32, as in pretraining: another precision may choose another bucket
        share = (distance.float().clamp(min=1) / exact).log() / math.log(self.max_distance / exact)
        far = exact + (share * (number - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=number - 1))


class SwappedT5Attention(SwappedAttention):
    """Replaces a self-attention `T5Attention`; copies its relative position bias if it has one."""

    def __init__(self, attention: Attention, layout: TokenLayout | None, *, as_original: bool, original: Any) -> None:
        super().__init__(attention, layout, as_original=as_original)
        self.layer = original.layer_idx
        self.relative_bias = DistanceBias(original) if original.has_relative_attention_bias else None

    @override
    def forward(
        self, hidden_states: Tensor, mask: Tensor | None = None, position_bias: Tensor | None = None, **given: Any
    ) -> tuple[Tensor, Tensor | None, None]:
        """Call as `T5Attention`: the output `(B, N, D)`, the bias for later layers, and no weights."""
        if given.get("output_attentions"):
            raise UserError(_NO_WEIGHTS)
        past_key_values: Any = given.get("past_key_values")
        cache = getattr(past_key_values, "self_attention_cache", past_key_values)
        seen = 0 if cache is None else int(cache.get_seq_length(self.layer))
        count = hidden_states.shape[1]
        if position_bias is None and self.relative_bias is not None:
            position_bias = self.relative_bias(count, seen + count, seen)
        # a mask of padding is equal for all queries
        of_keys = mask is None or mask.stride(2) == 0 or bool((mask == mask[:, :, :1]).all())
        if cache is None and self.layout is not None and not self.as_original and of_keys:
            out = self.attend(hidden_states, key_mask=real_keys(mask), bias=position_bias)
        else:
            bias, x = merged(position_bias, mask, hidden_states), hidden_states
            out = self.attend(x, key_mask=None, bias=bias) if cache is None else self._decode(x, bias, cache, seen)
        return out, position_bias, None

    def _decode(self, x: Tensor, bias: Tensor | None, cache: Any, seen: int) -> Tensor:
        """Outputs of the next decoder tokens `x (B, n, D)`; with full attention the cache has all keys and values."""
        attention = self.attention
        if type(attention.pattern) is not FullPattern:
            out: Tensor = attention(x, cache=_own_cache(cache, self.layer, attention, len(x)), bias=bias)
            return out
        q, k = attention.projection(x, x)
        k, v = cache.update(k, self.values(x), self.layer)
        at = torch.arange(seen, seen + x.shape[1], device=x.device)[None]
        q, k = attention.query_norm(q), attention.key_norm(k)
        return self.mix(q, k, v, bias, causal=x.shape[1] > 1, query_positions=at)


class SwappedCrossAttention(SwappedAttention):
    """Replaces the cross-attention of a decoder, the `T5Attention` of layer `layer`; full attention."""

    def __init__(self, attention: Attention, *, as_original: bool, layer: int) -> None:
        super().__init__(attention, None, as_original=as_original)
        self.layer = layer

    @override
    def forward(
        self, hidden_states: Tensor, mask: Tensor | None = None, position_bias: Tensor | None = None, **given: Any
    ) -> tuple[Tensor, Tensor | None, None]:
        """Call as `T5Attention`: the output `(B, N, D)`, the bias, and no weights.

        The cache keeps keys and values of the encoder's states `(B, S, D)` for all steps of the decoder.
        """
        attention, states = self.attention, given["key_value_states"]
        past_key_values: Any = given.get("past_key_values")
        cache = getattr(past_key_values, "cross_attention_cache", None)
        if cache is not None and past_key_values.is_updated.get(self.layer):
            q, _ = attention.projection(hidden_states, hidden_states[:, :0])
            k, v = cache.layers[self.layer].keys, cache.layers[self.layer].values
        else:
            q, k = attention.projection(hidden_states, states)
            k, v = attention.key_norm(k), self.values(states)
            if cache is not None:
                k, v = cache.update(k, v, self.layer)
                past_key_values.is_updated[self.layer] = True
        return self.mix(attention.query_norm(q), k, v, merged(position_bias, mask, hidden_states)), position_bias, None


class SwappedMHA(SwappedAttention):
    """Replaces an `MHA` of Chronos-2: over time, or without `layout` among B series at P places `(P, B, D)`."""

    @override
    def forward(self, hidden_states: Tensor, mask: Tensor, output_attentions: bool = False, **given: Any) -> Any:
        """Call as `MHA` with a mask `(B, 1, N, N)` that is added to scores; positions follow the tokens' order."""
        from chronos.chronos2.layers import AttentionOutput

        if output_attentions:
            raise UserError(_NO_WEIGHTS)
        if self.layout is None or self.as_original:
            return AttentionOutput(hidden_states=self.attend(hidden_states, key_mask=None, bias=mask))
        keys = real_keys(mask)
        keys = None if keys is None or bool(keys.all()) else keys
        return AttentionOutput(hidden_states=self.attend(hidden_states, key_mask=keys, bias=None))


class PairRotation(nn.Module):
    """Rotates pairs of neighbouring components; the original rotates component p together with p + r/2.

    The conversion chooses the `order (H, r/2)` of the pairs of each head.
    """

    order: Tensor

    def __init__(self, order: Tensor, base: float) -> None:
        super().__init__()
        self.base = base
        self.register_buffer("order", order.long())

    def forward(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys `(B, H, N, r)` at `positions (1, N)`.

        Angles count from the first token and are computed in float32, so that rounding is as in the original.
        """
        pairs = self.order.shape[-1]
        turns = torch.arange(pairs, device=q.device).float() * 2 / (2 * pairs)
        frequencies = 1.0 / (self.base**turns)
        angles = (positions - positions[:, :1]).float()[:, None, :, None] * frequencies[self.order][:, None]
        cos, sin = angles.cos(), angles.sin()
        return rotated(q, cos, sin), rotated(k, cos, sin)


def merged(bias: Tensor | None, mask: Tensor | None, x: Tensor) -> Tensor | None:
    """Merge a bias `(1, H, N, S)` and a mask of transformers (bool or additive) into a bias of the type of `x`."""
    if mask is None:
        return bias
    if mask.dtype != torch.bool:
        return mask if bias is None else bias + mask
    if bias is None:
        bias = x.new_zeros(())
    return torch.where(mask, bias, torch.finfo(x.dtype).min)


def real_keys(mask: Tensor | None) -> Tensor | None:
    """Convert a mask of keys to bool `(B, S)`, True at keys that all queries may see."""
    if mask is None:
        return None
    row = mask[:, 0, 0]
    return row if row.dtype == torch.bool else row == 0


class Surroundings:
    """The `original` module at a site, and the model's settings for an attention at this site.

    Attributes:
        layout: the tokens of the encoder; None for a site outside the encoder's self-attention.
        max_tokens: largest number of tokens at the site; among series, which have no limit, the number of a series.
        context_tokens: number of these tokens that have positions.
        rope_base: base of rotary positions, None without them.
    """

    def __init__(self, family: ChronosFamily, site: AttentionSite, layout: TokenLayout) -> None:
        self.family, self.site, longest = family.name, site, family.longest
        self.original: Any = family.network.get_submodule(site.path)
        self.num_heads = int(self.original.n_heads)
        self.head_dim = int(self.original.q.out_features // self.original.n_heads)
        self.layout = layout if site.stack == "encoder" else None
        self.max_tokens = longest.context_tokens + longest.special_tokens
        if site.stack == "decoder":
            self.max_tokens = family.decoder_tokens
        self.context_tokens = self.max_tokens if self.layout is None else layout.context_tokens
        self.rope_base = family.rope_base if site.is_over_time else None
        self.implementation: str = family.network.config._attn_implementation


def build_swapped(description: Description, around: Surroundings, convert: str) -> SwappedAttention:
    """Build the module for a site, with weights that a conversion replaces.

    As in the original, scores are not scaled, and queries, keys and values have no biases and no norms. Only `fresh`
    attention follows its description in this. `project` leaves rotary positions out.
    """
    fresh = convert == "fresh"
    kind, chosen = _completed(description, around, fresh)
    attention = build_attention(
        {"kind": kind, **chosen},
        d_model=around.original.d_model,
        num_heads=around.num_heads,
        # blocks by number divide the context only; tables by position need all tokens
        max_length=around.context_tokens if kind == "mlr" else around.max_tokens,
        rope=(convert != "project" and around.rope_base) or False,
        causal=around.site.stack == "decoder",
    )
    if not around.site.is_over_time and type(attention.pattern) is not FullPattern:
        why = "series of a group have no order" if around.site.stack == "group" else "keys are tokens of the encoder"
        raise UserError(
            f"attention {kind} uses positions, but in {around.site.name} {why}; valid there: standard, btt, "
            "bilinear_mlr, mlbtc"
        )
    if attention.pattern.data_blocks is not None:
        need = "change points need values"
        if not attention.pattern.reads_values:
            need = "the calendar need time stamps"
        raise UserError(f"blocks by {need}, which Chronos does not pass to its attention; give numbers or lengths")
    if not fresh:
        attention.scale = 1.0
        for part in attention.modules():
            if isinstance(part, nn.Linear):
                part.register_parameter("bias", None)
    is_low_rank = isinstance(attention.projection, LowRankProjection)
    if attention.rotary is not None and is_low_rank:
        order = attention.rotary.order.expand(around.num_heads, -1)
        attention.rotary = PairRotation(order.clone(), attention.rotary.base)  # type: ignore[assignment]
    is_full = is_low_rank and attention.pattern.sees_all(around.max_tokens)
    if is_full:
        # equal to full attention, so compute it as the original does
        attention.pattern = FullPattern()
        if "impl" not in chosen:
            attention.impl = {"sdpa": "sdpa", "eager": "reference"}[around.implementation]
    weight = around.original.q.weight
    attention.to(device=weight.device, dtype=weight.dtype)
    if around.site.stack == "cross":
        return SwappedCrossAttention(attention, as_original=is_full, layer=around.original.layer_idx)
    if around.family == "chronos2":
        return SwappedMHA(attention, around.layout, as_original=is_full)
    return SwappedT5Attention(attention, around.layout, as_original=is_full, original=around.original)


def _completed(description: Description, around: Surroundings, fresh: bool) -> tuple[str, dict[str, Any]]:
    chosen: dict[str, Any] = {"kind": description} if isinstance(description, str) else dict(description)
    kind: str = chosen.pop("kind")
    known = keyword_arguments(attention_class(kind))
    for name in ("num_kv_heads", "head_dim"):
        if name in chosen:
            raise UserError(f"{name} of attention {kind} is set by the Chronos model: leave it out")
    chosen["head_dim"] = around.head_dim
    chosen.setdefault("dropout", float(around.original.dropout))
    if not fresh:
        if chosen.setdefault("qk_norm", False):
            raise UserError(f"attention {kind} cannot have qk_norm: converted weights have none (or: convert fresh)")
        if kind not in ("mlr", "global_swa") and "scaling" in known:
            if chosen.setdefault("scaling", 1.0) not in (1, "head"):
                raise UserError(f"attention {kind} cannot have scaling: Chronos does not scale scores (or: fresh)")
            chosen["scaling"] = 1.0
    if "align" in known:
        # contexts are padded in front and end at one position; decoders start at their first token
        align = "start" if around.layout is None else "end"
        if chosen.setdefault("align", align) != align:
            raise UserError(f"attention {kind} of a Chronos {around.site.stack} needs align={align}: leave align out")
    return kind, chosen


class _Adapted:
    """Base of models that the plain class must not load: it would draw missing weights at random."""

    token_layout: TokenLayout  # shared with the swapped attentions

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _unfilled, (type(self).__mro__[2],), self.__dict__  # pickle cannot find a class made at run time

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        raise UserError("save an adapted model with AdaptedChronos.save(folder), which records its attention")

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        encode: Any = super().encode  # type: ignore[misc]
        given = inspect.signature(encode).bind(*args, **kwargs)
        given.apply_defaults()
        if "num_output_patches" in given.arguments:  # in Chronos-2, tokens of the future follow the context
            reg = int(self.chronos_config.use_reg_token)  # type: ignore[attr-defined]
            self.token_layout.special_tokens = reg + given.arguments["num_output_patches"]
        return encode(*args, **kwargs)


@functools.cache
def _adapted_class(plain: Any) -> type[Any]:
    return type(f"Adapted{plain.__name__}", (_Adapted, plain), {})


def _unfilled(plain: Any) -> Any:
    cls: Any = _adapted_class(plain)
    return cls.__new__(cls)


def mark_adapted(model: Any, family: ChronosFamily, layout: TokenLayout) -> None:
    """Change the class of a model to a subclass that is `_Adapted`; its weights stay."""
    plain: Any = type(model)
    if isinstance(model, _Adapted):
        raise UserError("this model is adapted already: call restore(), then adapt the original")
    if plain is not family.model_class():
        raise UserError(
            f"a model of class {plain.__name__} cannot be adapted; those of Chronos-T5, Chronos-Bolt and Chronos-2 can"
        )
    model.__class__, model.token_layout = _adapted_class(plain), layout


def _own_cache(cache: Any, layer: int, attention: Attention, batch_size: int) -> Cache:
    """Find the cache of this attention in a layer of a transformers cache, or make it."""
    from transformers import DynamicCache

    if not isinstance(cache, DynamicCache):
        raise UserError(f"swapped attention needs a DynamicCache of transformers, not a {type(cache).__name__}")
    while len(cache.layers) <= layer and cache.layer_class_to_replicate is not None:
        cache.layers.append(cache.layer_class_to_replicate())
    held: Any = cache.layers[layer]
    if not isinstance(held, _cache_layer()):
        if held.get_seq_length():
            raise UserError("this cache was filled by another attention: start decoding with a new cache")
        held = cache.layers[layer] = _cache_layer()(attention, batch_size)
    own: Cache = held.held
    return own


@functools.cache
def _cache_layer() -> Any:
    from transformers.cache_utils import CacheLayerMixin  # needs the extra `chronos`

    class OwnCacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
        """A layer of a `DynamicCache` that holds a cache of `attention`, in which each level keeps only its keys."""

        is_croppable = False
        supports_early_init = False

        def __init__(self, attention: Attention, batch_size: int) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.attention = attention
            self.held: Cache = attention.new_cache(batch_size)

        def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
            pass  # storage is allocated when tokens come

        def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
            raise UserError("this cache belongs to a swapped attention; give other attentions a new cache")

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            return self.held.length + query_length, 0

        def get_seq_length(self) -> int:
            return self.held.length

        def get_max_length(self) -> int:
            return -1

        def reset(self) -> None:
            self.held = self.attention.new_cache(self.held.batch_size)

        def reorder_cache(self, beam_idx: Tensor) -> None:
            self.held.reorder(beam_idx)

    return OwnCacheLayer
