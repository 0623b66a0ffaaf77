"""How the kernel cuts its work: from shapes alone, so that the same call has the same bits each time."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Chunking", "chunking_of"]

# Below this many pieces of work, the backward pass cuts the keys into parts, for the sake of machines with many cores.
MIN_PIECES = 8


@dataclass(frozen=True)
class Chunking:
    """See source/problem.h.

    Attributes:
        chunk_keys: keys whose scores are held at once.
        shared_blocks: blocks of queries that use a chunk of keys while it is in the cache, forward.
        shared_blocks_backward: the same, backward.
        key_parts: parts of the keys that the backward pass computes on their own.
    """

    chunk_keys: int
    shared_blocks: int
    shared_blocks_backward: int
    key_parts: int


def chunking_of(rows_and_heads: int, keys: int) -> Chunking:
    """The sizes for so many keys, and so many pairs of a row and a key head."""
    parts = 1 if rows_and_heads >= MIN_PIECES else max(1, min(-(-MIN_PIECES // max(1, rows_and_heads)), keys // 256))
    return Chunking(128, 8 if keys >= 2048 else 4, 4, parts)
