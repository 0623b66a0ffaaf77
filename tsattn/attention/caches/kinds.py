"""The caches of the patterns: every key, those of a window, those of the running blocks, or parts of these.

Shape letters as in `tsattn.attention.caches`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import override

from tsattn.attention.caches.cache import Cache
from tsattn.attention.caches.token_rows import NewTokens, TokenRows

__all__ = ["FullCache", "MultiLevelCache", "SplitCache", "WindowCache", "places_for"]


def places_for(seen: int, rewind: int) -> int:
    """Places for the keys of the last tokens, where a token sees up to `seen`, its own counted.

    A new token overwrites the oldest key. It does not see that key itself, but an earlier token may.
    """
    return seen + max(rewind - 1, 0)


class FullCache(Cache):
    """Every key and value: `T W` key numbers a head. Any number of tokens can be taken back.

    Args:
        batch_size: B.
        max_length: while there are no more tokens than this, storage is not doubled past it; more may come.
        rewind: see `Cache`.
    """

    def __init__(self, batch_size: int, max_length: int | None = None, rewind: int = 0) -> None:
        super().__init__(batch_size, rewind)
        self._keys, self._values = TokenRows(None, max_length), TokenRows(None, max_length)

    @property
    @override
    def key_rows(self) -> Sequence[TokenRows]:
        return (self._keys,)

    @property
    @override
    def value_rows(self) -> Sequence[TokenRows]:
        return (self._values,)

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[Tensor, Tensor]:
        """Take in new tokens; keys `(B, G', length, W)` and values `(B, G, length, E)` by position, theirs included."""
        self.store(k, v, new)
        return self._keys.first(self.length), self._values.first(self.length)

    @override
    def _earliest(self) -> tuple[int, ...]:
        return (0,) * self.batch_size

    @override
    def _written(self, k: Tensor, v: Tensor) -> Sequence[tuple[TokenRows, Tensor]]:
        return (self._keys, k), (self._values, v)


class WindowCache(Cache):
    """The last `window_size` keys and values, in a ring: `min(T, w) W` key numbers a head.

    To take back k tokens, k - 1 more are kept.

    Args:
        batch_size: B.
        window_size: keys that a token sees, its own counted.
        max_length: while there are no more tokens than this, storage is not doubled past it; more may come.
        rewind: k, see `Cache`.
    """

    def __init__(self, batch_size: int, window_size: int, max_length: int | None = None, rewind: int = 0) -> None:
        super().__init__(batch_size, rewind)
        self.window_size = window_size
        self._size = places_for(window_size, rewind)
        self._keys, self._values = (TokenRows(self._size, max_length) for _ in range(2))

    @property
    @override
    def kind(self) -> str:
        return f"WindowCache of {self.window_size}"

    @property
    @override
    def key_rows(self) -> Sequence[TokenRows]:
        return (self._keys,)

    @property
    @override
    def value_rows(self) -> Sequence[TokenRows]:
        return (self._values,)

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[Tensor, Tensor, Tensor, bool]:
        """Take in new tokens, and what they may see, in the order of the ring.

        Returns:
            keys `(B, G', S, W)`, values `(B, G, S, E)` and positions `(1 | B, S)`, of which each token must leave out
            those that are later or not in its window, unless a single one sees all, as is said last.
        """
        later = max(new.after)
        if new.count == 1:
            self.store(k, v, new)
            keys, positions = self._keys.held(new.after, later)
            sees_all = new.even and self._size == self.window_size
            return keys, self._values.first(keys.shape[2]), positions, sees_all
        # the last of the new tokens overwrite what the first of them see
        seen = new.without_padding(k), new.without_padding(v), new.key_positions
        if max(new.before):
            keys, positions = self._keys.held(new.before, later)
            positions, at = (t.expand(max(len(positions), len(seen[2])), -1) for t in (positions, seen[2]))
            seen = (
                torch.cat([keys, seen[0]], 2),
                torch.cat([self._values.first(keys.shape[2]), seen[1]], 2),
                torch.cat([positions, at], 1),
            )
        self.store(k, v, new)
        return *seen, False

    @override
    def _earliest(self) -> tuple[int, ...]:
        # the first token to come sees the `window_size - 1` before it
        lost = (max(0, most - self._size) for most in self._longest)
        return tuple(first and first + self.window_size - 1 for first in lost)

    @override
    def _written(self, k: Tensor, v: Tensor) -> Sequence[tuple[TokenRows, Tensor]]:
        return (self._keys, k), (self._values, v)


class MultiLevelCache(Cache):
    """Of each level, the keys of the running block only; every value: `T sum r_l / p_l` key numbers a head.

    When a block is full the keys of the next one take their storage: no later token shares the block. To take back k
    tokens, k - 1 more keys are kept of each level.

    Args:
        batch_size: B.
        ranks: components of each level, coarse to fine.
        blocks: `(number, span)` of each level: `number` blocks in every `span` positions, so that a position lies in
            block `position * number // span`.
        max_length: while there are no more tokens than this, storage is not doubled past it; more may come.
        rewind: k, see `Cache`.
    """

    def __init__(
        self,
        batch_size: int,
        ranks: Sequence[int],
        blocks: Sequence[tuple[int, int]],
        max_length: int | None = None,
        rewind: int = 0,
    ) -> None:
        super().__init__(batch_size, rewind)
        self.ranks = list(ranks)
        self.blocks = tuple(blocks)
        self._sizes = [places_for(-(-span // number), rewind) for number, span in blocks]
        self._levels = [TokenRows(size, max_length) for size in self._sizes]
        self._values = TokenRows(None, max_length)

    @property
    @override
    def kind(self) -> str:
        blocks = ", ".join(f"{number}/{span}" for number, span in self.blocks)
        return f"MultiLevelCache of ranks {self.ranks} and blocks {blocks}"

    @property
    @override
    def key_rows(self) -> Sequence[TokenRows]:
        """One for each level."""
        return self._levels

    @property
    @override
    def value_rows(self) -> Sequence[TokenRows]:
        return (self._values,)

    def extend(self, k: Tensor, v: Tensor, new: NewTokens) -> tuple[list[tuple[Tensor, Tensor | None]], Tensor]:
        """Take in new tokens, and what they may see.

        Returns:
            For each level keys `(B, G', S, r_l)` and their positions `(B, S)`, of which each token must leave out those
            that are later or not in its block; and all values `(B, G, length, E)`. Where the sequences are even there
            are no positions: the keys are the last S, from the first new token's block on, so that a single token
            shares the block of all of them.
        """
        parts = torch.split(k, self.ranks, -1)
        seen = []
        if new.count == 1:
            self.store(k, v, new)
            seen = [self._seen(level, new, new.after, max(new.after)) for level in range(len(parts))]
            return seen, self._values.first(self.length)
        for level, part in enumerate(parts):
            keys, positions = new.without_padding(part), None if new.even else new.key_positions
            if max(new.before):
                held, at = self._seen(level, new, new.before, max(new.after))
                keys = torch.cat([held, keys], 2)
                if at is not None and positions is not None:
                    at, positions = (t.expand(self.batch_size, -1) for t in (at, positions))
                    positions = torch.cat([at, positions], 1)
            seen.append((keys, positions))
        self.store(k, v, new)
        return seen, self._values.first(self.length)

    def _seen(self, level: int, new: NewTokens, lengths: Sequence[int], later: int) -> tuple[Tensor, Tensor | None]:
        """The held keys of a level for new tokens, and their positions; see `extend`."""
        if new.even:
            return self._levels[level].span(self._start(level, new.before[0]), lengths[0]), None
        return self._levels[level].held(lengths, later)

    def _start(self, level: int, position: int) -> int:
        """Where the block of a position begins."""
        number, span = self.blocks[level]
        return -(-(position * number // span) * span // number)

    @override
    def _earliest(self) -> tuple[int, ...]:
        # the first token to come sees its blocks from their beginning
        return tuple(max(self._next_start(level, most) for level in range(len(self.ranks))) for most in self._longest)

    def _next_start(self, level: int, most: int) -> int:
        """The first beginning of a block of which every key is held, when `most` tokens have come."""
        lost = most - self._sizes[level]
        if lost <= 0:
            return 0
        number, span = self.blocks[level]
        return -(-((lost - 1) * number // span + 1) * span // number)

    @override
    def _written(self, k: Tensor, v: Tensor) -> Sequence[tuple[TokenRows, Tensor]]:
        return [*zip(self._levels, torch.split(k, self.ranks, -1), strict=True), (self._values, v)]


class SplitCache(Cache):
    """A cache for each part of the components, where each part is scored by a pattern of its own.

    Args:
        parts: the number of components and the cache of each part, in the order of the components.
    """

    def __init__(self, parts: Sequence[tuple[int, Cache]]) -> None:
        self.widths = [width for width, _ in parts]
        self.parts = [part for _, part in parts]
        super().__init__(self.parts[0].batch_size, self.parts[0].rewind)

    @property
    @override
    def kind(self) -> str:
        parts = zip(self.widths, self.parts, strict=True)
        return "SplitCache of " + ", ".join(f"{width} components in a {part.kind}" for width, part in parts)

    @property
    @override
    def lengths(self) -> tuple[int, ...]:
        return self.parts[0].lengths

    @property
    @override
    def _furthest(self) -> tuple[int, ...]:
        return self.parts[0]._furthest

    @property
    @override
    def key_rows(self) -> Sequence[TokenRows]:
        """Those of every part."""
        return [rows for part in self.parts for rows in part.key_rows]

    @property
    @override
    def value_rows(self) -> Sequence[TokenRows]:
        """Those of every part."""
        return [rows for part in self.parts for rows in part.value_rows]

    @override
    def store(self, k: Tensor, v: Tensor, new: NewTokens) -> None:
        for part, components in zip(self.parts, self.split(k), strict=True):
            part.store(components, v, new)

    def split(self, components: Tensor) -> tuple[Tensor, ...]:
        """The parts of queries or keys `(B, heads, n, W)`."""
        return tuple(torch.split(components, self.widths, -1))

    @override
    def _reorder(self, indices: Tensor, rows: Sequence[int]) -> None:
        for part in self.parts:
            part._reorder(indices, rows)
        self.batch_size = len(rows)

    @override
    def _crop(self, kept: tuple[int, ...]) -> None:
        for part in self.parts:
            part._crop(kept)

    @override
    def _earliest(self) -> tuple[int, ...]:
        return tuple(map(max, zip(*(part._earliest() for part in self.parts), strict=True)))

    @override
    def _written(self, k: Tensor, v: Tensor) -> Sequence[tuple[TokenRows, Tensor]]:
        parts = zip(self.parts, self.split(k), strict=True)
        return [written for part, components in parts for written in part._written(components, v)]
