"""Kinds of attention, and building one from its description.

A description is plain data: a kind's name, ``{kind: mlr, ranks: [32, 16, 16]}``, or a list of these, one per layer.
To add a kind, write a subclass of `Attention` in a file of this folder, as in `kinds`, and enter it in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from tsattn import descriptions
from tsattn.descriptions import Description
from tsattn.errors import UserError, whole_number

if TYPE_CHECKING:
    from tsattn.attention.base import Attention, AttentionOptions

__all__ = [
    "KINDS",
    "Attention",
    "AttentionOptions",
    "attention_arguments",
    "attention_class",
    "attention_kind",
    "attention_per_layer",
    "build_attention",
    "complete_attention",
]

KINDS = {
    "standard": "tsattn.attention.kinds.StandardAttention",
    "swa": "tsattn.attention.kinds.SlidingWindowAttention",
    "global_swa": "tsattn.attention.kinds.GlobalSlidingWindowAttention",
    "btt": "tsattn.attention.kinds.BTTAttention",
    "bilinear_mlr": "tsattn.attention.kinds.BilinearMLRAttention",
    "mlbtc": "tsattn.attention.kinds.MLBTCAttention",
    "mlr": "tsattn.attention.kinds.MLRAttention",
    "identity": "tsattn.attention.kinds.IdentityAttention",
    "uniform": "tsattn.attention.kinds.UniformAttention",
    "fixed_mixing": "tsattn.attention.kinds.FixedMixingAttention",
}
"""Import path of each kind, imported on first use. Each class can also be imported from this package."""

# arguments that the surrounding model sets for all its attentions
_SET_BY_MODEL = ("d_model", "num_heads", "max_length", "rope", "causal")


def build_attention(
    description: Description,
    *,
    d_model: int,
    num_heads: int,
    max_length: int | None = None,
    rope: bool | float = False,
    causal: bool = False,
) -> Attention:
    """Build an attention from its description, for a model of the given sizes.

    Args:
        description: a kind's name, or ``{kind: ..., argument: value, ...}``.
        d_model: D, the width of the tokens.
        num_heads: H, the number of heads.
        max_length: the largest number of tokens in a sequence.
        rope: whether to use rotary positions, or their base.
        causal: whether each token sees only itself and earlier tokens.

    Raises:
        UserError: for a wrong kind, argument or value; the message lists the valid ones.
    """
    from tsattn.attention.base import AttentionOptions

    kind, cls, chosen = _parse(description)
    d_model, num_heads = whole_number("d_model", d_model), whole_number("num_heads", num_heads)
    types = {**get_type_hints(AttentionOptions), **get_type_hints(cls.__init__)}
    descriptions.check_types(chosen, types, f"attention {kind}")
    return cls(d_model, num_heads, max_length=max_length, rope=rope, causal=causal, **chosen)


def attention_per_layer(description: Description | Sequence[Description], num_layers: int) -> list[Description]:
    """One description for each layer. A single description is repeated; a list must have an entry for each layer."""
    if isinstance(description, Sequence) and not isinstance(description, str):
        if len(description) != num_layers:
            raise UserError(f"attention lists {len(description)} kinds for {num_layers} layers; give one per layer")
        layers = list(description)
    else:
        layers = [description] * num_layers
    for layer in layers:
        _parse(layer)
    return layers


def complete_attention(description: Description) -> dict[str, object]:
    """The description with the defaults of its kind written out."""
    kind, cls, chosen = _parse(description)
    return {"kind": kind, **descriptions.defaults(cls), **chosen}


def attention_class(kind: str) -> type[Attention]:
    """The class of a kind or at an import path.

    Raises:
        UserError: for an unknown kind; the message lists the valid kinds.
    """
    from tsattn.attention.base import Attention

    return descriptions.class_of(kind, Attention, what="attention", table=KINDS)


def attention_kind(attention: Attention) -> str:
    """The kind of a built attention, or the name of its class if `KINDS` has no kind for it, as for your classes."""
    path = f"{type(attention).__module__}.{type(attention).__qualname__}"
    return next((kind for kind, own in KINDS.items() if own == path), type(attention).__name__)


def attention_arguments(kind: type[Attention]) -> list[str]:
    """The arguments that a description of this kind may name."""
    from tsattn.attention.base import AttentionOptions

    names = [*descriptions.keyword_arguments(kind), *AttentionOptions.__annotations__]
    return [name for name in names if name not in _SET_BY_MODEL]


def _parse(description: Description) -> tuple[str, type[Attention], dict[str, Any]]:
    kind, chosen = descriptions.named(description, what="attention", table=KINDS)
    cls = attention_class(kind)
    descriptions.check_names(chosen, attention_arguments(cls), f"attention {kind}")
    return kind, cls, chosen


_BASE = ("tsattn.attention.base.Attention", "tsattn.attention.base.AttentionOptions")
__getattr__ = descriptions.late(__name__, (*KINDS.values(), *_BASE))


def __dir__() -> list[str]:
    return __all__
