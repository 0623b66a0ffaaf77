"""Subclasses of models and caches of the extra `chronos`, which importing this module needs."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

import torch
from chronos.chronos2 import Chronos2Model
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from torch import Tensor
from transformers import DynamicCache, T5ForConditionalGeneration
from transformers.cache_utils import CacheLayerMixin

from tsattn.attention import Attention
from tsattn.attention.caches import Cache
from tsattn.chronos.families import TokenLayout
from tsattn.errors import UserError

__all__ = ["mark_adapted", "own_cache"]

_ENCODE = inspect.signature(Chronos2Model.encode)


class _Adapted:
    """A model that the plain class must not load: it would take what fits and draw the rest at random."""

    token_layout: TokenLayout  # shared with the swapped attentions

    def get_input_embeddings(self) -> Any:
        # of special tokens; peft asks for them
        return self.shared  # type: ignore[attr-defined]

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        raise UserError("an adapted model is saved by AdaptedChronos.save(folder), which records its attention")


class _T5(_Adapted, T5ForConditionalGeneration):  # type: ignore[no-untyped-call]
    pass


class _Bolt(_Adapted, ChronosBoltModelForForecasting):  # type: ignore[misc]
    pass


class _Chronos2(_Adapted, Chronos2Model):  # type: ignore[misc]
    def encode(self, *args: Any, **kwargs: Any) -> Any:
        # how many tokens of the future follow the context
        given = _ENCODE.bind(self, *args, **kwargs)
        given.apply_defaults()
        reg = int(self.chronos_config.use_reg_token)
        self.token_layout.special_tokens = reg + given.arguments["num_output_patches"]
        return super().encode(*args, **kwargs)


_CLASSES: dict[type[Any], type[Any]] = {
    T5ForConditionalGeneration: _T5,
    ChronosBoltModelForForecasting: _Bolt,
    Chronos2Model: _Chronos2,
}


def mark_adapted(model: Any, layout: TokenLayout) -> None:
    """Make a model one of the classes above; its weights stay.

    Raises:
        UserError: for another class of model.
    """
    if isinstance(model, _Adapted):
        raise UserError("this model is adapted already: adapt its original, which restore() gives")
    if type(model) not in _CLASSES:
        raise UserError(
            f"a model of class {type(model).__name__} cannot be adapted; those of Chronos-T5, Chronos-Bolt and "
            "Chronos-2 can"
        )
    model.__class__ = _CLASSES[type(model)]
    model.token_layout = layout


class _OwnCacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """A layer of a `DynamicCache` with a cache of `attention`, in which a level keeps only its own keys."""

    is_croppable = False
    supports_early_init = False

    def __init__(self, attention: Attention, batch_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.attention = attention
        self.held: Cache = attention.new_cache(batch_size)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        pass  # tokens take their storage when they come

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise UserError("this layer holds what its own attention keeps; another cannot use it")

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

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.held.reorder(torch.arange(self.held.batch_size).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.held.reorder(torch.arange(self.held.batch_size)[indices.cpu()])


def own_cache(cache: Any, layer: int, attention: Attention, batch_size: int) -> Cache:
    """Find this attention's own cache in a layer of a cache of transformers, or make it in a new one.

    Raises:
        UserError: for a cache of fixed size, or one that was filled by another attention.
    """
    if not isinstance(cache, DynamicCache):
        raise UserError(f"swapped attention decodes with a DynamicCache of transformers, not a {type(cache).__name__}")
    while len(cache.layers) <= layer and cache.layer_class_to_replicate is not None:
        cache.layers.append(cache.layer_class_to_replicate())
    held: Any = cache.layers[layer]
    if not isinstance(held, _OwnCacheLayer):
        if held.get_seq_length():
            raise UserError("this cache was filled by another attention: decoding starts with a new one")
        held = cache.layers[layer] = _OwnCacheLayer(attention, batch_size)
    own: Cache = held.held
    return own
