"""Caches of keys and values, so that the next token is computed without the earlier tokens.

A cache keeps keys after normalisation and rotation, and only as long as the pattern can score them. It keeps them all,
over a window, or level by level over the current block (Kuang et al., section 4). The cache of a pattern is in the
file of the pattern. Sequences of a batch may differ in length; padding is never stored.

Shape letters as in `tsattn.attention.base`; G' key heads (1 if all heads share a key), W components of a
key, E components of a value, n new tokens.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from tsattn.errors import UserError, is_whole_number

FIRST_ROWS = 16  # rows of a new storage


class Cache:
    """Keys and values of the tokens seen so far. `Attention.new_cache` makes it, and `Attention.forward` fills it.

    The sequences of a batch may differ in length; padding is never stored. Storage is allocated when tokens come,
    doubled when it is full, and never larger than the pattern can use.

    Args:
        batch_size: B, changed by `reorder`.
        key_rows: storage for each part of a key, see `split`.
        value_rows: storage for values.
    """

    def __init__(self, batch_size: int, key_rows: Sequence[TokenRows], value_rows: Sequence[TokenRows]) -> None:
        self._lengths = (0,) * batch_size
        self.key_rows, self.value_rows = key_rows, value_rows
        self._owner: weakref.ref[nn.Module] | None = None

    @property
    def batch_size(self) -> int:
        """B."""
        return len(self.lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens seen of each sequence, without padding; this is also the position of its next token."""
        return self._lengths

    @property
    def length(self) -> int:
        """Tokens seen of the longest sequence."""
        return max(self.lengths)

    @property
    def kind(self) -> str:
        """The class and its sizes, in words: a pattern accepts only caches of its kind."""
        return type(self).__name__

    def belongs_to(self, attention: nn.Module) -> bool:
        """Whether this attention made the cache, or claimed it after it was loaded."""
        return self._owner is not None and self._owner() is attention

    def claim(self, attention: nn.Module) -> bool:
        """Let the cache belong to an attention; False if it belongs to another."""
        if self._owner is None:
            self._owner = weakref.ref(attention)
        return self.belongs_to(attention)

    def new_tokens(self, count: int, mask: Tensor | None, device: torch.device) -> NewTokens:
        """Positions of the next `count` tokens of each sequence; `mask (B, count)` is False at padding."""
        return NewTokens.of(self.lengths, count, mask, device)

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None = None) -> None:
        """Take in the next tokens.

        Args:
            k: their keys `(B, G', n, W)`.
            v: their values `(B, G, n, E)`.
            mask: `(B, n)` bool, True at real tokens; padded tokens are not stored.

        Raises:
            UserError: if their shape, type or device differs from the stored keys and values.
        """
        self.store(k, v, self.new_tokens(k.shape[2], mask, k.device))

    @torch._disable_dynamo  # type: ignore[attr-defined]  # else growing storage is compiled at every size
    def store(self, k: Tensor, v: Tensor, new: NewTokens) -> None:
        """Take in the next tokens, see `append`; `new` is the result of `new_tokens` for them."""
        for rows, part in zip(self.key_rows, self.split(k), strict=True):
            rows.put(part, new)
        for rows in self.value_rows:
            rows.put(v, new)
        self.advance(new.after)

    def advance(self, lengths: tuple[int, ...]) -> None:
        """Set the number of tokens of each sequence."""
        self._lengths = lengths

    def reorder(self, indices: Sequence[int] | Tensor) -> None:
        """Replace sequence i by a copy of sequence `indices[i]`, for example in beam search.

        Args:
            indices: any number of indices. Their number becomes the batch size; a sequence may be copied or dropped.

        Raises:
            UserError: for an index without a sequence, or no indices.
        """
        given = indices.tolist() if isinstance(indices, Tensor | np.ndarray) else indices
        rows = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
        if not rows or not all(is_whole_number(row) and 0 <= row < self.batch_size for row in rows):
            last = self.batch_size - 1
            raise UserError(f"reorder needs a list of sequence numbers from 0 to {last}, not {given!r}")
        places = indices.long() if isinstance(indices, Tensor) else torch.tensor(rows)
        for storage in (*self.key_rows, *self.value_rows):
            storage.reorder(places)
        self.advance(tuple(self.lengths[row] for row in rows))

    def split(self, components: Tensor) -> Sequence[Tensor]:
        """Split keys or queries `(B, heads, n, W)` into the parts that are stored separately."""
        return (components,)

    @property
    def key_nbytes(self) -> int:
        """Bytes of storage for keys, used or not."""
        return sum(rows.nbytes for rows in self.key_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of storage for keys and values, used or not."""
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
        return {**self.__dict__, "_owner": None}  # the attention does not exist in the process that loads


@dataclass(frozen=True)
class NewTokens:
    """Positions of the new tokens of one call.

    Attributes:
        before: tokens of each of the B sequences before the call.
        after: tokens of each sequence after the call.
        positions: `(1 | B, n)` int64. A padded token has the position of the real token before it, or -1.
        mask: `(B, n)` bool, True at real tokens; None where all are real.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    positions: Tensor
    mask: Tensor | None

    @classmethod
    def of(cls, before: Sequence[int], count: int, mask: Tensor | None, device: torch.device) -> NewTokens:
        """The next `count` tokens of each sequence; `mask (B, count)` is False at padding."""
        counts = [count] * len(before) if mask is None else mask.sum(-1).tolist()
        after = tuple(old + new for old, new in zip(before, counts, strict=True))
        if min(counts) == count:
            mask = None
        places = torch.arange(count, device=device) if mask is None else mask.long().cumsum(-1) - 1
        return cls(tuple(before), after, positions_from(before, device) + places, mask)

    @functools.cached_property
    def even(self) -> bool:
        """Whether all sequences continue at the same position, without padding."""
        return self.mask is None and len(set(self.before)) == 1

    @property
    def count(self) -> int:
        """n."""
        return self.positions.shape[1]

    @property
    def key_positions(self) -> Tensor:
        """Positions `(1 | B, n)`; padded tokens have a position after all real tokens."""
        return self.positions if self.mask is None else self.positions.masked_fill(~self.mask, max(self.after))

    def without_padding(self, rows: Tensor) -> Tensor:
        """Replace the rows `(B, heads, n, width)` of padded tokens by zeros."""
        return rows if self.mask is None else rows.masked_fill(~self.mask[:, None, :, None], 0.0)


def positions_from(lengths: Sequence[int], device: torch.device) -> Tensor:
    """The position after each sequence: `(B, 1)` int64, or `(1, 1)` if all have equal lengths."""
    if len(set(lengths)) == 1:
        return torch.full((1, 1), lengths[0], dtype=torch.int64, device=device)  # no copy from the host
    return torch.tensor(lengths, dtype=torch.int64, device=device)[:, None]


class TokenRows:
    """Growing storage of a row for each token: `(B, heads, capacity, width)`, with the first rows' type and device.

    Storage is doubled when it is full. While gradients are recorded, every write goes into a copy, so that the
    backward pass of an earlier step still finds its values.

    Args:
        size: number of last positions to keep; position p is stored at index `p % size`. None keeps all positions.
        max_length: the capacity is not doubled beyond this until there are more positions.
    """

    def __init__(self, size: int | None = None, max_length: int | None = None) -> None:
        self.size = size
        self._limits = sorted(limit for limit in (size, max_length) if limit is not None)
        self._data: Tensor | None = None
        self._recorded = False

    @property
    def nbytes(self) -> int:
        """Bytes of storage."""
        return 0 if self._data is None else self._data.untyped_storage().nbytes()

    def first(self, count: int) -> Tensor:
        """A view of the first `count` rows, `(B, heads, count, width)`."""
        if self._data is None:
            raise RuntimeError("nothing has been put here")
        return self._data[:, :, :count]

    def put(self, rows: Tensor, new: NewTokens) -> None:
        """Write the rows `(B, heads, n, width)` of new tokens, without padded tokens.

        Raises:
            UserError: if batch, heads, width, type or device differ from the stored rows.
        """
        data = self._writable(rows, self._places(max(new.after)))
        if new.even:
            # slices suffice: a step writes one row, and a prompt at most two runs of rows in the ring
            count = rows.shape[2] if self.size is None else min(rows.shape[2], self.size)
            rows = rows[:, :, rows.shape[2] - count :]
            at = self._place(new.after[0] - count)
            before_the_end = count if self.size is None else min(count, self.size - at)
            data[:, :, at : at + before_the_end] = rows[:, :, :before_the_end]
            if before_the_end < count:
                data[:, :, : count - before_the_end] = rows[:, :, before_the_end:]
        else:
            keep, positions = new.mask, new.positions
            places = positions if self.size is None else positions % self.size
            if self.size is not None and new.count > self.size:
                last = positions >= positions_from(new.after, rows.device) - self.size
                keep = last if keep is None else keep & last
            if keep is None:
                sequence = torch.arange(len(rows), device=rows.device)[:, None]
                data[sequence, :, places] = rows.transpose(1, 2)
            else:
                sequence, token = keep.nonzero(as_tuple=True)
                data[sequence, :, places[sequence, token]] = rows[sequence, :, token]
        self._data, self._recorded = data, torch.is_grad_enabled()

    def span(self, start: int, end: int) -> Tensor:
        """The rows `(B, heads, end - start, width)` of positions `start` to `end - 1`, of sequences of equal length.

        This is a view, unless the rows wrap around the end of the ring.
        """
        at = self._place(start)
        if self.size is None or at + end - start <= self.size:
            return self.first(at + end - start)[:, :, at:]
        return torch.cat([self.first(self.size)[:, :, at:], self.first(at + end - start - self.size)], 2)

    def held(self, lengths: Sequence[int], later: int) -> tuple[Tensor, Tensor]:
        """All stored rows, in the order of storage, and their positions.

        Args:
            lengths: tokens seen of each sequence.
            later: the position to return for an unused row.

        Returns:
            `(B, heads, S, width)` and positions `(1 | B, S)`.
        """
        rows = self.first(self._places(max(lengths)))
        last = positions_from(lengths, rows.device) - 1
        places = torch.arange(rows.shape[2], device=rows.device)[None]
        positions = last - (last - places) % (self.size or max(1, *lengths))
        return rows, positions.masked_fill(positions < 0, later)

    def reorder(self, indices: Tensor) -> None:
        """Replace sequence i by a copy of sequence `indices[i]`."""
        if self._data is not None:
            self._data, self._recorded = self._data.index_select(0, indices.to(self._data.device)), False

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # deepcopy refuses a tensor with a history of gradients
        other = type(self)()
        memo[id(self)] = other
        other.__dict__.update(self.__dict__)
        other._data = None if self._data is None else self._data.clone()
        return other

    def _place(self, position: int) -> int:
        return position if self.size is None else position % self.size

    def _places(self, length: int) -> int:
        """Number of rows that `length` tokens need."""
        return length if self.size is None else min(length, self.size)

    def _writable(self, rows: Tensor, places: int) -> Tensor:
        """Storage of at least `places` rows that may be overwritten: no backward pass reads it."""
        data = self._data
        if data is None:
            return rows.new_zeros((*rows.shape[:2], self._capacity(places), rows.shape[-1]))
        if _kind_of(data) != _kind_of(rows):
            raise UserError(
                f"this cache holds {_looks(data)}, not {_looks(rows)}: make a new one when the attention has changed"
            )
        if places > data.shape[2]:
            more = self._capacity(places) - data.shape[2]
            return torch.cat([data, data.new_zeros((*data.shape[:2], more, data.shape[-1]))], 2)
        if self._recorded or (data.is_inference() and not torch.is_inference_mode_enabled()):
            return data.clone()
        return data

    def _capacity(self, needed: int) -> int:
        roomy = max(needed, FIRST_ROWS if self._data is None else 2 * self._data.shape[2])
        return min([roomy, *(limit for limit in self._limits if limit >= needed)])


def _kind_of(rows: Tensor) -> tuple[Any, ...]:
    return rows.shape[:2], rows.shape[3], rows.dtype, rows.device


def _looks(rows: Tensor) -> str:
    B, heads, _, width = rows.shape
    return f"{B} x {heads} heads of {width} {str(rows.dtype).removeprefix('torch.')} on {rows.device}"
