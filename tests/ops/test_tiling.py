"""Cutting a sequence into tiles: every pair is in one of them, and many blocks take no time."""

from __future__ import annotations

import random
import time

import pytest
import torch

from tsattn.ops.masks import RegularBlocks
from tsattn.ops.tiling import TilePlan, plan_tiles, regular_layout

RANKS = (4, 2, 3)


def prefixes(plan: TilePlan, length: int) -> torch.Tensor:
    """`(T, T)`, the components that the plan scores each pair with; no pair twice."""
    found = torch.full((length, length), -1)
    for tile in plan.tiles:
        for query, key in zip(tile.query_starts, tile.key_starts, strict=True):
            part = found[query : query + tile.num_queries, key : key + tile.num_keys]
            assert (part == -1).all()
            part[:] = tile.prefix
    for leaf in plan.leaves:
        for start in leaf.starts:
            part = found[start : start + leaf.length, start : start + leaf.length]
            assert (part == -1).all()
            part[:] = sum(RANKS[: plan.leaf_level + 1])
            for slots, rank in zip(leaf.slots, RANKS[plan.leaf_level + 1 :], strict=True):
                ids = torch.tensor(slots)
                part += rank * (ids[:, None] == ids)
    return found


@pytest.mark.parametrize("merge_levels", [True, False])
def test_every_pair_is_scored_with_what_its_blocks_share(merge_levels: bool) -> None:
    draw = random.Random(0)
    for _ in range(20):
        length = draw.randint(1, 90)
        inner: set[int] = set()
        levels = []
        for share in (0.02, 0.1, 0.3):
            inner |= {token for token in range(1, length) if draw.random() < share}
            levels.append((0, *sorted(inner), length))
        ids = [torch.searchsorted(torch.tensor(starts), torch.arange(length), right=True) for starts in levels]
        expected = torch.stack([rank * (own[:, None] == own) for rank, own in zip(RANKS, ids, strict=True)]).sum(0)
        found = prefixes(plan_tiles(tuple(levels), RANKS, False, (), merge_levels), length)
        assert torch.equal(found, expected)


def test_many_blocks_are_cut_in_a_moment() -> None:
    """Not in a time that grows with the product of their numbers at two levels, seconds here."""
    layout = regular_layout(RegularBlocks(0, 16384, (1, 4096, 8192), None, 16384))
    start = time.process_time()
    plan = plan_tiles(layout.blocks, RANKS, True)
    assert time.process_time() - start < 1
    assert plan.leaf_level == 1
