"""How the kernel cuts its work: by shapes and caches alone, so that equal calls have equal bits.

`tsattn kernels --tune` measures other sizes and keeps the best for this machine; a resumed run takes the sizes that it
began with.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tsattn.ops.native.library import CacheError, cache_folder

# Below this many pieces of work, the backward pass cuts the keys into parts, for the sake of machines with many cores.
MIN_PIECES = 8

# Cache sizes in bytes, if the system does not report them.
LEVEL_1, LEVEL_2 = 2**15, 2**20

# Queries of a block with the widest vectors; narrower vectors leave more room.
BLOCK = 32


@dataclass(frozen=True)
class ChunkSizes:
    """Sizes that decide what stays in which cache, see source/problem.h.

    Attributes:
        chunk_keys: keys whose scores are held at once, at least 8.
        shared_blocks: blocks of queries that use a chunk of keys while it is in the cache.
        shared_blocks_long: the same in the forward pass, if keys and values of a head exceed `long_bytes`.
        long_bytes: size of the keys and values of a head above which they are long.
    """

    chunk_keys: int
    shared_blocks: int
    shared_blocks_long: int
    long_bytes: int

    def __post_init__(self) -> None:
        values = asdict(self)
        if any(not isinstance(value, int) or value < 1 for value in values.values()) or self.chunk_keys < 8:
            raise ValueError(f"no sizes of chunks: {values}")

    def forward(self, key_bytes: int) -> int:
        """The blocks of queries that share a chunk in the forward pass."""
        return self.shared_blocks_long if key_bytes > self.long_bytes else self.shared_blocks


def sizes_by_caches() -> ChunkSizes:
    """Choose sizes by the caches: a chunk's scores take a third of the first; long keys exceed the second."""
    first, second = _cache_bytes("SC_LEVEL1_DCACHE_SIZE", LEVEL_1), _cache_bytes("SC_LEVEL2_CACHE_SIZE", LEVEL_2)
    chunk = first // 3 // (4 * BLOCK) // 8 * 8
    return ChunkSizes(min(max(chunk, 32), 256), 4, 8, second - 1)


def _cache_bytes(name: str, otherwise: int) -> int:
    try:
        found = os.sysconf(name)
    except (ValueError, OSError, AttributeError):
        return otherwise
    return found if found > 0 else otherwise


def tuned_file() -> Path | None:
    """The file of sizes measured on this machine; None without a home folder."""
    try:
        return cache_folder() / "sizes.json"
    except CacheError:
        return None


_taken: ChunkSizes | None = None


def chunk_sizes() -> ChunkSizes:
    """The sizes in use: from the resumed run, else measured on this machine, else by its caches."""
    return _taken or _found()


@functools.cache
def _found() -> ChunkSizes:
    path = tuned_file()
    try:
        return sizes_by_caches() if path is None else ChunkSizes(**json.loads(path.read_text())["sizes"])
    except (OSError, ValueError, TypeError, KeyError):  # it is not there, or was cut short
        return sizes_by_caches()


forget_sizes = _found.cache_clear
"""Read the measured sizes again at the next call."""


@contextlib.contextmanager
def sizes_taken(sizes: ChunkSizes | None) -> Iterator[None]:
    """Use these sizes; None leaves the choice as it is."""
    global _taken
    before = _taken
    _taken = sizes or before
    try:
        yield
    finally:
        _taken = before


def key_parts(rows_and_heads: int, keys: int) -> int:
    """How many parts of the keys the backward pass computes separately, given the pairs of a row and a key head."""
    if rows_and_heads >= MIN_PIECES:
        return 1
    return max(1, min(-(-MIN_PIECES // max(1, rows_and_heads)), keys // 256))
