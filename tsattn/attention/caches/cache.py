"""What every cache can do: take in tokens, forget the last ones, choose sequences, be copied.

Shape letters as in `tsattn.attention.caches`.
"""

from __future__ import annotations

import operator
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tsattn.attention.caches.token_rows import NewTokens, TokenRows
from tsattn.errors import UserError, is_whole_number

__all__ = ["Cache", "own_cache"]


class Cache(ABC):
    """Keys and values of the tokens seen so far. Made by `Attention.new_cache`, filled by `Attention.forward`.

    The sequences of a batch may differ in length; padding is never stored. Storage is taken when tokens come, doubled
    when it is full, and never beyond what the pattern can use.

    Args:
        batch_size: B.
        rewind: tokens that `crop` can take back from the furthest that a sequence has been.

    Attributes:
        batch_size: B, changed by `reorder`.
        rewind: as given.
    """

    def __init__(self, batch_size: int, rewind: int = 0) -> None:
        if not is_whole_number(batch_size) or batch_size < 1:
            raise UserError(f"batch_size of a cache must be at least 1, not {batch_size!r}")
        self.batch_size = operator.index(batch_size)
        if not is_whole_number(rewind) or rewind < 0:
            raise UserError(f"rewind of a cache must be a number of tokens, 0 or more, not {rewind!r}")
        self.rewind = operator.index(rewind)
        self._lengths = (0,) * self.batch_size
        # the most that each sequence has held: what a later token has overwritten stays lost after a crop
        self._longest = self._lengths
        self._owner: weakref.ref[nn.Module] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens seen of each sequence, padding left out; its next one has this position."""
        return self._lengths

    @property
    def _furthest(self) -> tuple[int, ...]:
        """The most tokens that each sequence has held."""
        return self._longest

    @property
    def length(self) -> int:
        """Tokens seen of the longest sequence."""
        return max(self.lengths)

    @property
    def kind(self) -> str:
        """The class and what it was made with, in words: caches of one kind serve the same pattern."""
        return type(self).__name__

    @property
    def croppable(self) -> tuple[int, ...]:
        """How many tokens `crop` can take back of each sequence now.

        `rewind` of them from the furthest that the sequence has been, or more if they are held.
        """
        return tuple(now - first for now, first in zip(self.lengths, self._earliest(), strict=True))

    def belongs_to(self, attention: nn.Module) -> bool:
        """Whether it was made by this attention; one that was loaded from a file belongs to the first that asks."""
        if self._owner is None:
            self._owner = weakref.ref(attention)
        return self._owner() is attention

    def new_tokens(self, count: int, mask: Tensor | None, device: torch.device) -> NewTokens:
        """Where the next `count` tokens of each sequence stand, those of `mask (B, count)` if it is given."""
        return NewTokens.of(self.lengths, count, mask, device)

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None = None) -> None:
        """Take in the tokens that follow.

        Args:
            k: their keys `(B, G', n, W)`.
            v: their values `(B, G, n, E)`.
            mask: `(B, n)` bool, True at real tokens; the others are left out.

        Raises:
            UserError: if they do not look like those held.
        """
        self.store(k, v, self.new_tokens(k.shape[2], mask, k.device))

    def store(self, k: Tensor, v: Tensor, new: NewTokens) -> None:
        """Take in the tokens that follow, as `append` does; `new` is what `new_tokens` made of them."""
        for rows, numbers in self._written(k, v):
            rows.put(numbers, new)
        self._lengths = new.after
        self._longest = tuple(map(max, self._longest, new.after))

    def reorder(self, indices: Sequence[int] | Tensor) -> None:
        """Sequence i becomes what sequence `indices[i]` was, as beam search needs it.

        Args:
            indices: any number of them, which becomes the batch size: a sequence may be copied or dropped.

        Raises:
            UserError: an index of no sequence, or none at all.
        """
        given = indices.tolist() if isinstance(indices, Tensor | np.ndarray) else indices
        rows = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
        if not rows or not all(is_whole_number(row) and 0 <= row < self.batch_size for row in rows):
            last = self.batch_size - 1
            raise UserError(f"a cache is reordered by a list of sequences, from 0 to {last}, not by {given!r}")
        self._reorder(indices.long() if isinstance(indices, Tensor) else torch.tensor(rows), rows)

    def crop(self, lengths: int | Sequence[int] | Tensor) -> None:
        """Forget the last tokens, as speculative decoding needs it: the next ones take their positions.

        Args:
            lengths: the tokens to keep, of all sequences or of each, `(B,)`. A single negative number says how many to
                take back of each sequence instead.

        Raises:
            UserError: more tokens than a sequence has, or so few that what they see is no longer held.
        """
        kept = self._kept(lengths)
        possible = self.croppable
        for now, then, most, furthest in zip(self.lengths, kept, possible, self._furthest, strict=True):
            if now - then > most:
                raise UserError(
                    f"this cache can take back {most} of its {now} tokens, not {now - then}: "
                    f"new_cache(..., rewind={furthest - then}) keeps what that needs"
                )
        self._crop(kept)

    def _kept(self, lengths: int | Sequence[int] | Tensor) -> tuple[int, ...]:
        """The length of each sequence after a crop, checked."""
        given: Any = lengths.tolist() if isinstance(lengths, Tensor | np.ndarray) else lengths
        if is_whole_number(given):
            kept = [given] * self.batch_size if given >= 0 else [now + given for now in self.lengths]
        else:
            kept = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
        fits = all(map(is_whole_number, kept)) and len(kept) == self.batch_size
        if not fits or not all(0 <= then <= now for then, now in zip(kept, self.lengths, strict=True)):
            held = self.length if len(set(self.lengths)) == 1 else list(self.lengths)
            raise UserError(
                f"a cache is cropped to a number of tokens, or to one for each of its {self.batch_size} sequences, of "
                f"the {held} that it holds, not to {given!r}"
            )
        return tuple(kept)

    def _reorder(self, indices: Tensor, rows: Sequence[int]) -> None:
        """`reorder` by indices `rows` that are valid; `indices (B,)` are the same."""
        for storage in (*self.key_rows, *self.value_rows):
            storage.reorder(indices)
        self.batch_size = len(rows)
        self._lengths = tuple(self._lengths[row] for row in rows)
        self._longest = tuple(self._longest[row] for row in rows)

    def _crop(self, kept: tuple[int, ...]) -> None:
        """`crop` to lengths that are possible."""
        dropped = [now - then for now, then in zip(self._lengths, kept, strict=True)]
        if max(dropped):
            # zeros, as a number that is not finite would spoil even what it is multiplied by a weight of zero for
            storage = [*self.key_rows, *self.value_rows]
            device = storage[0].first(0).device
            count = torch.arange(max(dropped), device=device)
            gone = NewTokens.of(kept, max(dropped), count < torch.tensor(dropped, device=device)[:, None], device)
            for rows in storage:
                rows.clear(gone)
        self._lengths = kept

    @abstractmethod
    def _earliest(self) -> tuple[int, ...]:
        """The shortest length that each sequence can be cropped to."""

    @abstractmethod
    def _written(self, k: Tensor, v: Tensor) -> Sequence[tuple[TokenRows, Tensor]]:
        """What of new keys and values goes where."""

    @property
    @abstractmethod
    def key_rows(self) -> Sequence[TokenRows]:
        """Where keys are stored."""

    @property
    @abstractmethod
    def value_rows(self) -> Sequence[TokenRows]:
        """Where values are stored."""

    @property
    def key_nbytes(self) -> int:
        """Bytes of storage held for keys, filled or not."""
        return sum(rows.nbytes for rows in self.key_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of storage held, filled or not."""
        return self.key_nbytes + sum(rows.nbytes for rows in self.value_rows)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        other.__dict__.update({name: deepcopy(value, memo) for name, value in self.__dict__.items()})
        owner = None if self._owner is None else self._owner()
        if id(owner) in memo:  # copied together with its attention
            other._owner = weakref.ref(memo[id(owner)])
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}  # no attention outlives its process


CacheT = TypeVar("CacheT", bound=Cache)


def own_cache(cache: Cache, kind: type[CacheT]) -> CacheT:
    """The cache, as the kind that the pattern makes.

    Raises:
        UserError: if it is of another kind.
    """
    if not isinstance(cache, kind):
        raise UserError(f"this pattern decodes with a {kind.__name__}, not a {cache.kind}")
    return cache
