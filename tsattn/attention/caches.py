"""Keys and values that attention keeps of the tokens it has seen, to compute the next one without them.

Keys are kept as they are scored (after normalisation and rotation), and no longer than the pattern can score them:
whole, over a window, or level by level over the running block (Kuang et al., section 4). The cache of a pattern is in
the file of the pattern. Sequences of a batch may differ in length; padding is never stored.

Shape letters as in `tsattn.attention.base`; G' the heads of a key (1 where all heads share it), W its components, E
the components of a value, n new tokens.
"""

from __future__ import annotations

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
    """Keys and values of the tokens seen so far. Made by `Attention.new_cache`, filled by `Attention.forward`.

    The sequences of a batch may differ in length; padding is never stored. Storage is taken when tokens come, doubled
    when it is full, and never beyond what the pattern can use.

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
        """Tokens seen of each sequence, padding left out; its next one has this position."""
        return self._lengths

    @property
    def length(self) -> int:
        """Tokens seen of the longest sequence."""
        return max(self.lengths)

    @property
    def kind(self) -> str:
        """The class and its sizes, in words: caches of one kind serve the same pattern."""
        return type(self).__name__

    def belongs_to(self, attention: nn.Module) -> bool:
        """Whether it was made by this attention; one that was loaded from a file belongs to the first that asks."""
        if self._owner is None:
            self._owner = weakref.ref(attention)
        return self._owner() is attention

    def new_tokens(self, count: int, mask: Tensor | None, device: torch.device) -> NewTokens:
        """Positions of the next `count` tokens of each sequence, where `mask (B, count)` may leave some out."""
        return NewTokens.of(self.lengths, count, mask, device)

    def append(self, k: Tensor, v: Tensor, mask: Tensor | None = None) -> None:
        """Take in the next tokens.

        Args:
            k: their keys `(B, G', n, W)`.
            v: their values `(B, G, n, E)`.
            mask: `(B, n)` bool, True at real tokens; the others are left out.

        Raises:
            UserError: if they do not look like those held.
        """
        self.store(k, v, self.new_tokens(k.shape[2], mask, k.device))

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
        """Replace sequence i by a copy of sequence `indices[i]`, as beam search needs it.

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
        places = indices.long() if isinstance(indices, Tensor) else torch.tensor(rows)
        for storage in (*self.key_rows, *self.value_rows):
            storage.reorder(places)
        self.advance(tuple(self.lengths[row] for row in rows))

    def split(self, components: Tensor) -> Sequence[Tensor]:
        """The parts of keys or queries `(B, heads, n, W)` that are stored apart."""
        return (components,)

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


@dataclass(frozen=True)
class NewTokens:
    """The tokens of one call, by their places in the sequences.

    Attributes:
        before: of each of the B sequences, the tokens before.
        after: of each sequence, the tokens with these.
        positions: `(1 | B, n)` int64. A padded token has the position of the real one before it, or -1.
        mask: `(B, n)` bool, True at real tokens; None where all are real.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    positions: Tensor
    mask: Tensor | None

    @classmethod
    def of(cls, before: Sequence[int], count: int, mask: Tensor | None, device: torch.device) -> NewTokens:
        """`count` tokens of each sequence, where `mask (B, count)` may leave some out."""
        counts = [count] * len(before) if mask is None else mask.sum(-1).tolist()
        after = tuple(old + new for old, new in zip(before, counts, strict=True))
        if min(counts) == count:
            mask = None
        places = torch.arange(count, device=device) if mask is None else mask.long().cumsum(-1) - 1
        return cls(tuple(before), after, positions_from(before, device) + places, mask)

    @property
    def even(self) -> bool:
        """Whether all sequences continue at the same position, without padding."""
        return self.mask is None and len(set(self.before)) == 1

    @property
    def count(self) -> int:
        """n."""
        return self.positions.shape[1]

    @property
    def key_positions(self) -> Tensor:
        """`(1 | B, n)`: the positions; a padded token has one later than every real token."""
        return self.positions if self.mask is None else self.positions.masked_fill(~self.mask, max(self.after))

    def without_padding(self, rows: Tensor) -> Tensor:
        """`(B, heads, n, width)` with zeros at padded tokens, whatever they hold."""
        return rows if self.mask is None else rows.masked_fill(~self.mask[:, None, :, None], 0.0)


def positions_from(lengths: Sequence[int], device: torch.device) -> Tensor:
    """The position that follows each sequence: `(B, 1)` int64, `(1, 1)` where all are of one length."""
    if len(set(lengths)) == 1:
        return torch.full((1, 1), lengths[0], dtype=torch.int64, device=device)  # no copy from the host
    return torch.tensor(lengths, dtype=torch.int64, device=device)[:, None]


class TokenRows:
    """Growing storage of a row for each token: `(B, heads, capacity, width)`, of the first rows' type and device.

    Storage is doubled when it is full. While gradients are recorded, every write goes into a copy, so that a backward
    pass finds what its step saw.

    Args:
        size: position p lies in place `p % size`, so that the last `size` positions are held; None for all of them.
        max_length: while there are no more positions than this, the capacity is not doubled past it.
    """

    def __init__(self, size: int | None = None, max_length: int | None = None) -> None:
        self.size = size
        self._limits = sorted(limit for limit in (size, max_length) if limit is not None)
        self._data: Tensor | None = None
        self._recorded = False

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return 0 if self._data is None else self._data.untyped_storage().nbytes()

    def first(self, count: int) -> Tensor:
        """A view of the first places, `(B, heads, count, width)`."""
        if self._data is None:
            raise RuntimeError("nothing has been put here")
        return self._data[:, :, :count]

    @torch._disable_dynamo  # type: ignore[attr-defined]  # else growing storage is compiled at every size
    def put(self, rows: Tensor, new: NewTokens) -> None:
        """Write the rows `(B, heads, n, width)` of new tokens, and leave out padded ones.

        Raises:
            UserError: if they differ from those held in more than their number.
        """
        data = self._writable(rows, self._places(max(new.after)))
        if new.even:
            # slices, as a step has one place and a prompt at most two runs of them
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
        """The rows of positions `start` to `end - 1`, `(B, heads, end - start, width)`, of sequences of one length.

        A view, except where the run continues at the first place.
        """
        at = self._place(start)
        if self.size is None or at + end - start <= self.size:
            return self.first(at + end - start)[:, :, at:]
        return torch.cat([self.first(self.size)[:, :, at:], self.first(at + end - start - self.size)], 2)

    def held(self, lengths: Sequence[int], later: int) -> tuple[Tensor, Tensor]:
        """Everything held, in the order of the places.

        Args:
            lengths: of each sequence, the tokens seen.
            later: the position to give for an empty place.

        Returns:
            `(B, heads, S, width)` and positions `(1 | B, S)`.
        """
        rows = self.first(self._places(max(lengths)))
        last = positions_from(lengths, rows.device) - 1
        places = torch.arange(rows.shape[2], device=rows.device)[None]
        positions = last - (last - places) % (self.size or max(1, *lengths))
        return rows, positions.masked_fill(positions < 0, later)

    def reorder(self, indices: Tensor) -> None:
        """Sequence i becomes a copy of what was sequence `indices[i]`."""
        if self._data is not None:
            self._data, self._recorded = self._data.index_select(0, indices.to(self._data.device)), False

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # a tensor that has a history cannot be copied otherwise
        other = type(self)()
        memo[id(self)] = other
        other.__dict__.update(self.__dict__)
        other._data = None if self._data is None else self._data.clone()
        return other

    def _place(self, position: int) -> int:
        return position if self.size is None else position % self.size

    def _places(self, length: int) -> int:
        """Places that `length` tokens take."""
        return length if self.size is None else min(length, self.size)

    def _writable(self, rows: Tensor, places: int) -> Tensor:
        """Storage of at least so many places, which nothing else reads."""
        data = self._data
        if data is None:
            return rows.new_zeros((*rows.shape[:2], self._capacity(places), rows.shape[-1]))
        if _looks(data) != _looks(rows):
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


def _looks(rows: Tensor) -> str:
    B, heads, _, width = rows.shape
    return f"{B} x {heads} heads of {width} {str(rows.dtype).removeprefix('torch.')} on {rows.device}"
