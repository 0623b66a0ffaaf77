"""Cuts the pairs of a sequence into the tiles of nested multi-level blocks: geometry only, found on the host.

Shape letters as in `tsattn.ops`.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from tsattn.ops.masks import RegularBlocks, distinct_rows

# Square blocks of at most this many tokens hold several levels, if their spread components stay this narrow: measured
# at 1024 to 4096 tokens of 64 components on one CPU core.
MAX_LEAF_LENGTH = 256
MAX_LEAF_WIDTH = 128


@dataclass(frozen=True)
class TileGroup:
    """Tiles of one shape that are computed in one call; no two share a query, no two share a key."""

    prefix: int  # components that their pairs share
    levels: int  # levels that their pairs share
    query_starts: tuple[int, ...]  # first query of each tile
    key_starts: tuple[int, ...]
    num_queries: int  # of a tile
    num_keys: int


@dataclass(frozen=True)
class LeafGroup:
    """Square diagonal blocks of one length and one inner structure."""

    starts: tuple[int, ...]  # first token of each block
    length: int  # tokens of a block
    slots: tuple[tuple[int, ...], ...]  # for each level inside, the number of the sub-block of every token of a block


@dataclass(frozen=True)
class TilePlan:
    """How a sequence is cut: leaves first, then tiles from fine to coarse."""

    leaves: tuple[LeafGroup, ...]  # the diagonal blocks
    leaf_level: int  # the level whose blocks the leaves are; finer levels lie inside them
    tiles: tuple[TileGroup, ...]  # finest prefix first


@functools.lru_cache(maxsize=256)
def plan_tiles(
    blocks: tuple[tuple[int, ...], ...],
    ranks: tuple[int, ...],
    causal: bool,
    globals_at: tuple[int, ...] = (),
    merge_levels: bool = True,
) -> TilePlan:
    """Plan the tiles of a sequence.

    Args:
        blocks: for each level, coarse to fine, the first token of every block and, last, the number of tokens. The
            starts of each level are starts of the next level.
        ranks: components of each level.
        causal: leave out keys after their query's block.
        globals_at: for each global token, which shares every level with every token, the number of ordinary tokens
            before it in time; rising. Global tokens come after the blocks.
        merge_levels: whether a leaf may hold several levels; otherwise the tokens of a leaf share every level.
    """
    length, num_global = blocks[0][-1], len(globals_at)
    if not length:
        return TilePlan((LeafGroup((0,), num_global, ()),), len(ranks) - 1, ())
    prefixes = [0, *itertools.accumulate(ranks)]
    # level -1 is the whole sequence, whose tokens may share nothing
    levels = [(0, length), *blocks]
    leaf = _leaf_level(blocks, ranks) if merge_levels else len(ranks) - 1
    groups: dict[tuple[int, bool, int, int], list[tuple[int, int]]] = {}
    for level in range(leaf + 1):
        parents, children = levels[level], levels[level + 1]
        parent = 0
        for start, end in pairwise(children):
            while parents[parent + 1] <= start:
                parent += 1
            first, last = parents[parent], parents[parent + 1]
            if start > first:
                groups.setdefault((level, True, end - start, start - first), []).append((start, first))
            if last > end and not causal:
                groups.setdefault((level, False, end - start, last - end), []).append((start, end))
    tiles = [
        TileGroup(
            prefixes[level], level, tuple(q for q, _ in places), tuple(k for _, k in places), num_queries, num_keys
        )
        for (level, _, num_queries, num_keys), places in groups.items()
    ]
    # if causal, only later tokens see a global token, and it sees only earlier tokens
    for first, count, before in _runs(globals_at) if causal else [(0, num_global, 0)] * (num_global > 0):
        own, unseen = length + first, length - before
        if unseen:
            tiles.append(TileGroup(prefixes[-1], len(ranks), (before,), (own,), unseen, count))
        seen = before if causal else length
        if seen:
            tiles.append(TileGroup(prefixes[-1], len(ranks), (own,), (0,), count, seen))
    tiles.sort(key=lambda tile: -tile.prefix)
    leaves: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for start, end in pairwise(blocks[leaf]):
        inner = tuple(_sub_blocks(finer, start, end) for finer in blocks[leaf + 1 :])
        leaves.setdefault((tuple(range(end - start)), *inner), []).append(start)
    groups_of_leaves = [LeafGroup(tuple(starts), len(key[0]), key[1:]) for key, starts in leaves.items()]
    if num_global:
        groups_of_leaves.append(LeafGroup((length,), num_global, ()))
    return TilePlan(tuple(groups_of_leaves), leaf, tuple(tiles))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Where each run of equal numbers begins, how long it is, and its number."""
    runs = [(place, len([*members])) for place, members in itertools.groupby(numbers)]
    ends = itertools.accumulate(count for _, count in runs)
    return [(end - count, count, place) for end, (place, count) in zip(ends, runs, strict=True)]


def _leaf_level(blocks: Sequence[Sequence[int]], ranks: Sequence[int]) -> int:
    """The coarsest level whose blocks can hold all finer ones; the finest if none can."""
    for level in range(len(ranks)):
        starts = blocks[level]
        if max(end - start for start, end in pairwise(starts)) > MAX_LEAF_LENGTH:
            continue
        width = sum(ranks[: level + 1])
        for finer in range(level + 1, len(ranks)):
            most = max(last - first for first, last in pairwise(bisect_left(blocks[finer], start) for start in starts))
            width += most * ranks[finer]
        if width <= max(MAX_LEAF_WIDTH, sum(ranks)):
            return level
    return len(ranks) - 1


def _sub_blocks(starts: Sequence[int], first: int, end: int) -> tuple[int, ...]:
    before = bisect_left(starts, first)
    return tuple(bisect_right(starts, token) - 1 - before for token in range(first, end))


@dataclass(frozen=True)
class BlockLayout:
    """Rows of a batch with the same tiles.

    Attributes:
        rows: numbers of the rows; None for all of them.
        order: numbers of their real tokens by position, global tokens last; None for all tokens as they stand.
        blocks: for each level, coarse to fine, the first ordered token of every block and, last, the number of ordinary
            tokens.
        globals_at: for each global token, at the end of the order, the number of ordinary tokens before it in time.
    """

    rows: tuple[int, ...] | None
    order: tuple[int, ...] | None
    blocks: tuple[tuple[int, ...], ...]
    globals_at: tuple[int, ...] = ()


@functools.lru_cache(maxsize=256)
def regular_layout(regular: RegularBlocks) -> BlockLayout:
    """The layout of rows of ordered tokens without padding."""
    blocks = []
    for number, span in regular.levels:
        ids = [place * number // span for place in range(regular.first, regular.first + regular.length)]
        starts = (i + 1 for i, (one, other) in enumerate(pairwise(ids)) if one != other)
        blocks.append((0, *starts, regular.length))
    return BlockLayout(None, None, tuple(blocks))


def find_layouts(
    blocks: Tensor,
    positions: Tensor,
    *,
    key_mask: Tensor | None = None,
    global_tokens: Tensor | None = None,
) -> list[BlockLayout] | str:
    """How the rows of a batch can be cut into tiles, or the reason why they cannot; see `multilevel_attention`."""
    T = positions.shape[-1]
    parts, which = distinct_rows(positions, blocks.movedim(0, 1), key_mask, global_tokens)
    every, none = torch.ones(T, dtype=torch.bool), torch.zeros(T, dtype=torch.bool)
    layouts = []
    for number, (place, ids) in enumerate(zip(*parts[:2], strict=True)):
        real = every if parts[2] is None else parts[2][number]
        everywhere = none if parts[3] is None else parts[3][number] & real
        order = place.argsort(stable=True)
        order = order[real[order]]  # padding may stand between two real tokens of one position
        if (place[order].diff() <= 0).any():
            return "two tokens have the same position"
        ordinary, globals_last = order[~everywhere[order]], order[everywhere[order]]
        starts = _block_starts(ids[:, ordinary])
        if starts is None:
            return "the blocks are not nested"
        tokens = tuple(torch.cat([ordinary, globals_last]).tolist())
        layouts.append(
            BlockLayout(
                rows=None if len(parts[0]) == 1 else tuple(torch.nonzero(which == number).flatten().tolist()),
                order=None if tokens == tuple(range(T)) else tokens,
                blocks=starts,
                globals_at=tuple((~everywhere)[order].cumsum(0)[everywhere[order]].tolist()),
            )
        )
    return layouts


def _block_starts(ids: Tensor) -> tuple[tuple[int, ...], ...] | None:
    """For each level the starts of the blocks of ordered tokens, and their number; None if levels are not nested."""
    T = ids.shape[1]
    changes = ids[:, 1:] != ids[:, :-1]
    # a block must be one run of tokens, and a boundary of a level is a boundary of every finer level
    if any(int(change.sum()) + 1 != len(level.unique()) for change, level in zip(changes, ids, strict=True) if T):
        return None
    if (changes[:-1] & ~changes[1:]).any():
        return None
    return tuple((0, *(torch.nonzero(change).flatten() + 1).tolist(), T) if T else (0, 0) for change in changes)
