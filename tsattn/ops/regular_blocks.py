"""Blocks of tokens that are whole and in order: what a batch without padding has, found without a tensor."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RegularBlocks"]


@dataclass(frozen=True)
class RegularBlocks:
    """Nested blocks of tokens at the positions `first`, `first + 1`, ...: the same for all rows of a batch.

    Attributes:
        first: position of the first token.
        length: number of tokens.
        numbers: see `tsattn.ops.masks.level_block_ids`. Without them and `lengths`, all tokens share the only block.
        lengths: see there.
        max_length: see there.
    """

    first: int
    length: int
    numbers: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None
    max_length: int | None = None
