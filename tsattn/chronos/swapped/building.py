"""Building the attention that takes the place of one of a Chronos model, with scores on the original's scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tsattn.attention import attention_class, build_attention
from tsattn.attention.patterns import FullPattern
from tsattn.attention.projections import LowRankProjection
from tsattn.chronos.bolt.t5_layers import without_biases
from tsattn.chronos.models.families import AttentionSite, ChronosFamily
from tsattn.chronos.models.token_layout import TokenLayout
from tsattn.chronos.swapped.group_and_cross import SwappedCrossAttention, SwappedGroupAttention
from tsattn.chronos.swapped.pair_rotation import PairRotation
from tsattn.chronos.swapped.swapped_attention import SwappedAttention, SwappedT5Attention, SwappedTimeAttention
from tsattn.descriptions import Description, keyword_arguments
from tsattn.errors import UserError

__all__ = ["Surroundings", "build_swapped"]

SET_BY_MODEL = ("num_kv_heads", "head_dim")


@dataclass(frozen=True)
class Surroundings:
    """What a model says about the attention at a site.

    Attributes:
        site: where it lies.
        original: the module there.
        layout: the tokens of the encoder, None for a site that is not in its self-attention.
        max_tokens: the most tokens that it sees; among series, as many as of a series, as any number of them goes.
        rope_base: of rotary positions, None without.
        implementation: how the original computes attention, ``sdpa`` or ``eager``.
    """

    site: AttentionSite
    original: Any
    layout: TokenLayout | None
    max_tokens: int
    rope_base: float | None
    implementation: str

    @classmethod
    def of(cls, family: ChronosFamily, model: Any, site: AttentionSite, layout: TokenLayout) -> Surroundings:
        """Those of a site of a model, whose encoder shares a layout."""
        in_encoder = site.stack == "encoder"
        longest = family.layout(model)
        return cls(
            site,
            model.get_submodule(site.path),
            layout if in_encoder else None,
            family.decoder_tokens(model)
            if site.stack == "decoder"
            else longest.context_tokens + longest.special_tokens,
            family.rope_base(model) if site.is_over_time else None,
            model.config._attn_implementation,
        )

    @property
    def num_heads(self) -> int:
        """H."""
        return int(self.original.n_heads)

    @property
    def head_dim(self) -> int:
        """r, the components of a query, key or value head."""
        return int(self.original.q.out_features // self.original.n_heads)


def build_swapped(
    description: Description, around: Surroundings, *, fresh: bool, position_free: bool
) -> SwappedAttention:
    """The module for a site, with weights of its own that a conversion replaces.

    Scores are not scaled, as the original's are not, and queries, keys and values have no biases and no norms; where
    weights are to be `fresh`, the attention is as its description says.

    Args:
        description: of the attention.
        around: what the model says.
        fresh: whether the weights stay as they are drawn here.
        position_free: whether rotary positions are left out.

    Raises:
        UserError: for a description that does not go with the model.
    """
    kind, chosen = completed(description, around, fresh)
    rope = around.rope_base is not None and not position_free
    attention = build_attention(
        {"kind": kind, **chosen},
        d_model=around.original.d_model,
        num_heads=around.num_heads,
        max_length=_block_length(kind, around),
        rope=rope,
        causal=around.site.stack == "decoder",
    )
    if not around.site.is_over_time and type(attention.pattern) is not FullPattern:
        why = "series of a group have no order" if around.site.stack == "group" else "keys are tokens of the encoder"
        raise UserError(
            f"attention {kind} of {around.site.name} would go by positions, and {why}; valid there: standard, btt, "
            "bilinear_mlr, mlbtc"
        )
    if attention.pattern.data_blocks is not None:
        if attention.pattern.reads_values:
            raise UserError(
                "blocks by change points need the values of the tokens, which Chronos does not hand to its attention; "
                "give numbers or lengths"
            )
        raise UserError("blocks by the calendar need time stamps, which Chronos does not know; give numbers or lengths")
    if not fresh:
        attention.scale = 1.0
        without_biases(attention)
    if attention.rotary is not None and around.rope_base is not None:
        if isinstance(attention.projection, LowRankProjection):
            order = attention.rotary.order.expand(around.num_heads, -1)
            attention.rotary = PairRotation(order.clone(), around.rope_base)  # type: ignore[assignment]
        else:
            attention.rotary.base = around.rope_base
    is_full = isinstance(attention.projection, LowRankProjection) and attention.pattern.sees_all(around.max_tokens)
    if is_full:
        # the same pairs with the same components: computed as the original computes them
        attention.pattern = FullPattern()
        if "impl" not in chosen:
            attention.impl = {"sdpa": "sdpa", "eager": "reference"}[around.implementation]
    weight = around.original.q.weight
    attention.to(device=weight.device, dtype=weight.dtype)
    if around.site.stack == "group":
        return SwappedGroupAttention(attention, None, as_original=is_full)
    if around.site.stack == "cross":
        return SwappedCrossAttention(attention, as_original=is_full, layer=around.original.layer_idx)
    if around.rope_base is not None:
        return SwappedTimeAttention(attention, around.layout, as_original=is_full)
    return SwappedT5Attention(attention, around.layout, as_original=is_full, original=around.original)


def completed(description: Description, around: Surroundings, fresh: bool) -> tuple[str, dict[str, Any]]:
    """The kind of a description and its arguments, with what the model decides; see `build_swapped` for errors."""
    chosen: dict[str, Any] = {"kind": description} if isinstance(description, str) else dict(description)
    kind: str = chosen.pop("kind")
    cls = attention_class(kind)
    for name in SET_BY_MODEL:
        if name in chosen:
            raise UserError(f"{name} of attention {kind} is the Chronos model's own: leave it out")
    chosen["head_dim"] = around.head_dim
    chosen.setdefault("dropout", float(around.original.dropout))
    if not fresh:
        if chosen.setdefault("qk_norm", False):
            raise UserError(f"attention {kind} cannot have qk_norm: converted weights fit scores without (or: fresh)")
        if kind not in ("mlr", "global_swa") and "scaling" in keyword_arguments(cls):
            if chosen.setdefault("scaling", 1.0) not in (1, "head"):
                raise UserError(f"attention {kind} cannot have scaling: Chronos does not scale scores (or: fresh)")
            chosen["scaling"] = 1.0
    if "align" in keyword_arguments(cls):
        # contexts end at one place and are padded in front; decoders go on from their first token
        align = "start" if around.layout is None else "end"
        if chosen.setdefault("align", align) != align:
            raise UserError(f"attention {kind} of a Chronos {around.site.stack} has align={align}: leave it out")
    return kind, chosen


def _block_length(kind: str, around: Surroundings) -> int:
    """The length that blocks by number divide: the context; tables by position hold every token."""
    if kind == "mlr" and around.layout is not None:
        return around.layout.context_tokens
    return around.max_tokens
