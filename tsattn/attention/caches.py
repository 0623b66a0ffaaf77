"""What attention keeps of the tokens it has seen, so that the next one is computed without them.

Keys are kept as they are scored (after normalisation and rotation), and no longer than the pattern can score them:
whole, over a window, or level by level over the running block (Kuang et al., section 4).

Shape letters as in `tsattn.attention.base`; G' the heads of a key (1 where all heads share it), W its components, E
those of a value, n new tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from tsattn.errors import UserError

__all__ = ["Cache", "FullCache", "MultiLevelCache", "SplitCache", "WindowCache", "own_cache"]

_FIRST_ROWS = 16


class Cache(ABC):
    """Keys and values of the tokens seen so far. Made by `Attention.new_cache`, filled by `Attention.forward`.

    Storage is taken when tokens come, doubled when it is full, and never beyond what the pattern can use. While
    gradients are recorded, every call writes into a copy, so that a backward pass finds what its step saw.

    Attributes:
        batch_size: B.
    """

    def __init__(self, batch_size: int) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size of a cache must be at least 1, not {batch_size}")
        self.batch_size = batch_size
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens seen; the next one has this position."""
        return self._length

    @property
    def kind(self) -> str:
        """The class and what it was made with, in words: caches of one kind serve the same pattern."""
        return type(self).__name__

    @abstractmethod
    def append(self, k: Tensor, v: Tensor) -> None:
        """Take in the keys `(B, G', n, W)` and values `(B, G, n, E)` of the tokens that follow.

        Raises:
            UserError: if they do not look like those held.
        """

    @property
    @abstractmethod
    def key_rows(self) -> Sequence[Rows]:
        """Where keys are stored."""

    @property
    @abstractmethod
    def value_rows(self) -> Sequence[Rows]:
        """Where values are stored."""

    @property
    def key_nbytes(self) -> int:
        """Bytes of storage held for keys, filled or not."""
        return sum(rows.nbytes for rows in self.key_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of storage held, filled or not."""
        return self.key_nbytes + sum(rows.nbytes for rows in self.value_rows)


CacheT = TypeVar("CacheT", bound=Cache)


def own_cache(cache: Cache, kind: type[CacheT]) -> CacheT:
    """The cache, as the kind that the pattern makes.

    Raises:
        UserError: if it is of another kind.
    """
    if not isinstance(cache, kind):
        raise UserError(f"this pattern decodes with a {kind.__name__}, not a {cache.kind}")
    return cache


class FullCache(Cache):
    """Every key and value: `T W` key numbers a head.

    Args:
        batch_size: B.
        max_length: tokens up to which no more is stored than these; more may come.
    """

    def __init__(self, batch_size: int, max_length: int | None = None) -> None:
        super().__init__(batch_size)
        self._keys, self._values = Rows((max_length,)), Rows((max_length,))

    @property
    def key_rows(self) -> Sequence[Rows]:
        """See `Cache`."""
        return (self._keys,)

    @property
    def value_rows(self) -> Sequence[Rows]:
        """See `Cache`."""
        return (self._values,)

    def append(self, k: Tensor, v: Tensor) -> None:
        """See `Cache`."""
        self.extend(k, v)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Take in new tokens; all keys `(B, G', length, W)` and values `(B, G, length, E)`, theirs included."""
        self._keys.put(self.length, k)
        self._values.put(self.length, v)
        self._length += k.shape[2]
        return self._keys.first(self.length), self._values.first(self.length)


class WindowCache(Cache):
    """The last `window_size` keys and values, in a ring: `min(T, w) W` key numbers a head.

    Args:
        batch_size: B.
        window_size: keys that a token sees, its own counted.
        max_length: tokens up to which no more is stored than these; more may come.
    """

    def __init__(self, batch_size: int, window_size: int, max_length: int | None = None) -> None:
        super().__init__(batch_size)
        self.window_size = window_size
        self._keys, self._values = (Rows((max_length, window_size)) for _ in range(2))

    @property
    def kind(self) -> str:
        """See `Cache`."""
        return f"WindowCache of {self.window_size}"

    @property
    def key_rows(self) -> Sequence[Rows]:
        """See `Cache`."""
        return (self._keys,)

    @property
    def value_rows(self) -> Sequence[Rows]:
        """See `Cache`."""
        return (self._values,)

    def append(self, k: Tensor, v: Tensor) -> None:
        """See `Cache`."""
        n = k.shape[2]
        kept = min(n, self.window_size)
        at = (self.length + n - kept) % self.window_size
        before_the_end = min(kept, self.window_size - at)
        for rows, new in ((self._keys, k), (self._values, v)):
            new = new[:, :, n - kept :]
            rows.put(at, new[:, :, :before_the_end])
            if before_the_end < kept:
                rows.put(0, new[:, :, before_the_end:])
        self._length += n

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take in new tokens, and what they may see, in the order of the ring.

        Returns:
            keys `(B, G', S, W)`, values `(B, G, S, E)` and positions `(1, S)`. A single token sees all of them; of
            several, each must leave out what is not in its window.
        """
        if k.shape[2] == 1:
            self.append(k, v)
            return self._held(k.device)
        # the last of the new tokens overwrite what the first of them see
        seen = k, v, torch.arange(self.length, self.length + k.shape[2], device=k.device)[None]
        if self.length:
            keys, values, positions = self._held(k.device)
            seen = torch.cat([keys, k], 2), torch.cat([values, v], 2), torch.cat([positions, seen[2]], 1)
        self.append(k, v)
        return seen

    def _held(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        count, last = min(self.length, self.window_size), self.length - 1
        slots = torch.arange(count, device=device)[None]
        return self._keys.first(count), self._values.first(count), last - (last - slots) % self.window_size


class MultiLevelCache(Cache):
    """Of each level, the keys of the running block only; every value: `T sum r_l / p_l` key numbers a head.

    When a block is full its keys are dropped and the next one takes their storage: no later token shares the block.

    Args:
        batch_size: B.
        ranks: components of each level, coarse to fine.
        blocks: `(number, span)` of each level: `number` blocks in every `span` positions, so that a position lies in
            block `position * number // span`.
        max_length: tokens up to which no more is stored than these; more may come.
    """

    def __init__(
        self,
        batch_size: int,
        ranks: Sequence[int],
        blocks: Sequence[tuple[int, int]],
        max_length: int | None = None,
    ) -> None:
        super().__init__(batch_size)
        self.ranks = list(ranks)
        self.blocks = tuple(blocks)
        self._levels = [Rows((max_length, -(-span // number))) for number, span in blocks]
        self._values = Rows((max_length,))

    @property
    def kind(self) -> str:
        """See `Cache`."""
        blocks = ", ".join(f"{number}/{span}" for number, span in self.blocks)
        return f"MultiLevelCache of ranks {self.ranks} and blocks {blocks}"

    @property
    def key_rows(self) -> Sequence[Rows]:
        """See `Cache`; one for each level."""
        return self._levels

    @property
    def value_rows(self) -> Sequence[Rows]:
        """See `Cache`."""
        return (self._values,)

    def append(self, k: Tensor, v: Tensor) -> None:
        """See `Cache`."""
        self.extend(k, v)

    def extend(self, k: Tensor, v: Tensor) -> tuple[list[tuple[int, Tensor]], Tensor]:
        """Take in new tokens, and what they may see.

        Returns:
            For each level the position `start` where the first new token's block begins and the keys
            `(B, G', length - start, r_l)` from there on; and all values `(B, G, length, E)`. A single token shares
            the block of all of them; of several, each must leave out what is not in its block.
        """
        n = k.shape[2]
        seen = []
        for level, (rows, new) in enumerate(zip(self._levels, torch.split(k, self.ranks, -1), strict=True)):
            start, last_start = self._start(level, self.length), self._start(level, self.length + n - 1)
            held = self.length - start
            if start == last_start:
                rows.put(held, new)
                keys = rows.first(held + n)
            else:
                keys = torch.cat([rows.first(held), new], 2) if held else new
                rows.put(0, keys[:, :, last_start - start :])
            seen.append((start, keys))
        self._values.put(self.length, v)
        self._length += n
        return seen, self._values.first(self.length)

    def _start(self, level: int, position: int) -> int:
        """Where the block of a position begins."""
        number, span = self.blocks[level]
        return -(-(position * number // span) * span // number)


class SplitCache(Cache):
    """A cache for each part of the components, where each part is scored by a pattern of its own.

    Args:
        batch_size: B.
        parts: the number of components and the cache of each part, in the order of the components.
    """

    def __init__(self, batch_size: int, parts: Sequence[tuple[int, Cache]]) -> None:
        super().__init__(batch_size)
        self.widths = [width for width, _ in parts]
        self.parts = [part for _, part in parts]

    @property
    def kind(self) -> str:
        """See `Cache`."""
        parts = zip(self.widths, self.parts, strict=True)
        return "SplitCache of " + ", ".join(f"{width} components in a {part.kind}" for width, part in parts)

    @property
    def length(self) -> int:
        """Tokens seen."""
        return self.parts[0].length

    @property
    def key_rows(self) -> Sequence[Rows]:
        """See `Cache`; those of every part."""
        return [rows for part in self.parts for rows in part.key_rows]

    @property
    def value_rows(self) -> Sequence[Rows]:
        """See `Cache`; those of every part."""
        return [rows for part in self.parts for rows in part.value_rows]

    def append(self, k: Tensor, v: Tensor) -> None:
        """See `Cache`."""
        for part, components in zip(self.parts, self.split(k), strict=True):
            part.append(components, v)

    def split(self, components: Tensor) -> tuple[Tensor, ...]:
        """The parts of queries or keys `(B, heads, n, W)`."""
        return tuple(torch.split(components, self.widths, -1))


class Rows:
    """Growing storage of a row for each token: `(B, heads, capacity, width)`, of the first rows' type and device.

    Args:
        limits: numbers of rows that the capacity is not doubled past while they suffice; None for no limit.
    """

    def __init__(self, limits: Iterable[int | None]) -> None:
        self._limits = sorted(limit for limit in limits if limit is not None)
        self._data: Tensor | None = None
        self._recorded = False

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return 0 if self._data is None else self._data.untyped_storage().nbytes()

    def first(self, count: int) -> Tensor:
        """A view of the first rows, `(B, heads, count, width)`."""
        assert self._data is not None, "nothing has been put here"
        return self._data[:, :, :count]

    def put(self, at: int, new: Tensor) -> None:
        """Write the rows `new (B, heads, n, width)` from place `at` on.

        Raises:
            UserError: if they differ from those held in more than their number.
        """
        data, end = self._data, at + new.shape[2]
        if data is None:
            data = new.new_empty((*new.shape[:2], self._capacity(end), new.shape[-1]))
        elif _looks(data) != _looks(new):
            raise UserError(
                f"this cache holds {_looks(data)}, not {_looks(new)}: make a new one when the attention has changed"
            )
        elif end > data.shape[2]:
            more = self._capacity(end) - data.shape[2]
            data = torch.cat([data, data.new_empty((*data.shape[:2], more, data.shape[-1]))], 2)
        elif self._recorded or (data.is_inference() and not torch.is_inference_mode_enabled()):
            data = data.clone()
        data[:, :, at:end] = new
        self._data, self._recorded = data, torch.is_grad_enabled()

    def _capacity(self, needed: int) -> int:
        roomy = max(needed, _FIRST_ROWS if self._data is None else 2 * self._data.shape[2])
        return min([roomy, *(limit for limit in self._limits if limit >= needed)])


def _looks(rows: Tensor) -> str:
    B, heads, _, width = rows.shape
    return f"{B} x {heads} heads of {width} {str(rows.dtype).removeprefix('torch.')} on {rows.device}"
