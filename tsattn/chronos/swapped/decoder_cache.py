"""Decoding with this package's caches inside the cache of transformers, so that a level keeps only its own keys."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import CacheLayerMixin

from tsattn.attention import Attention
from tsattn.attention.caches import Cache
from tsattn.errors import UserError

__all__ = ["OwnCacheLayer", "own_layer"]


class OwnCacheLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """A layer of a `DynamicCache` that holds a cache of this package instead of all keys and values.

    Args:
        attention: what decodes with it.
        batch_size: B.
    """

    is_croppable = False
    supports_early_init = False

    def __init__(self, attention: Attention, batch_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.attention = attention
        self.held: Cache = attention.new_cache(batch_size)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: storage is taken when tokens come."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: `Attention.forward` fills the cache."""
        raise UserError("this layer holds what its own attention keeps; another cannot use it")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Tokens with the next `query_length` ones, and where the first stands."""
        return self.held.length + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens seen."""
        return self.held.length

    def get_max_length(self) -> int:
        """No most."""
        return -1

    def reset(self) -> None:
        """Forget every token."""
        self.held = self.attention.new_cache(self.held.batch_size)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequence i becomes what `beam_idx[i]` was."""
        self.held.reorder(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every sequence so many times."""
        self.held.reorder(torch.arange(self.held.batch_size).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Only these sequences."""
        self.held.reorder(torch.arange(self.held.batch_size)[indices.cpu()])


def own_layer(cache: Any, layer: int, attention: Attention, batch_size: int) -> OwnCacheLayer:
    """The layer of a cache of transformers that holds this attention's own, which it makes when it is new.

    Raises:
        UserError: for a cache of fixed size, or one that was filled by another attention.
    """
    if not isinstance(cache, DynamicCache):
        raise UserError(f"swapped attention decodes with a DynamicCache of transformers, not a {type(cache).__name__}")
    while len(cache.layers) <= layer and cache.layer_class_to_replicate is not None:
        cache.layers.append(cache.layer_class_to_replicate())
    held: Any = cache.layers[layer]
    if not isinstance(held, OwnCacheLayer):
        if held.get_seq_length():
            raise UserError("this cache was filled by another attention: decoding starts with a new one")
        held = cache.layers[layer] = OwnCacheLayer(attention, batch_size)
    own: OwnCacheLayer = held
    return own
