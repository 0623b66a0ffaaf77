"""Softmax in the tiles of a score, where it is cut and what it refuses."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tsattn.errors import UserError
from tsattn.ops import full_attention, multilevel_attention, sliding_window_attention
from tsattn.ops.masks import RegularBlocks
from tsattn.ops.softmax import softmax_attention
from tsattn.ops.tiling import TilePlan, plan_tiles, regular_layout

T = 20
LEAST = torch.finfo(torch.float32).min


def least_in(*rows: int) -> Tensor:
    """A bias `(1, 1, T, T)` that is the least number in some rows, as some libraries write "forbidden"."""
    bias = torch.zeros(1, 1, T, T)
    bias[..., rows, :] = LEAST
    return bias


def multilevel(*qkv: Tensor, **more: object) -> Tensor:
    positions = torch.arange(T)[None]
    return multilevel_attention(*qkv, ranks=[2, 2], blocks=torch.stack([positions * 0, positions // 5]), **more)


def windowed(*qkv: Tensor, **more: object) -> Tensor:
    return sliding_window_attention(*qkv, window_size=T, **more)


@pytest.mark.parametrize(
    ("attend", "impl"),
    [
        (full_attention, "reference"),
        (windowed, "sdpa"),
        (multilevel, "sdpa"),
        pytest.param(full_attention, "native", marks=needs_kernels),
        pytest.param(multilevel, "native", marks=needs_kernels),
    ],
)
def test_the_least_bias_of_a_row_leaves_its_allowed_keys_equal(attend: Callable[..., Tensor], impl: str) -> None:
    q, k, v = torch.randn(3, 2, 2, T, 4).unbind()
    real = torch.ones(2, T, dtype=torch.bool)
    real[1, 9:] = False
    out = attend(q, k, v, causal=True, key_mask=real, bias=least_in(5, 12), impl=impl)
    for row, query, keys in ((0, 5, 6), (1, 5, 6), (0, 12, 13), (1, 12, 9)):
        torch.testing.assert_close(out[row, :, query], v[row, :, :keys].mean(1), rtol=1e-5, atol=1e-6)


def test_rows_without_keys_have_derivatives_of_zero() -> None:
    """Also where what stands at the forbidden pairs is no number."""
    logits = torch.randn(1, 1, 4, 6, dtype=torch.float64)
    allowed = torch.ones(4, 6, dtype=torch.bool).tril()
    allowed[2] = False
    logits[0, 0, 2, 3], logits[0, 0, 0, 5] = torch.nan, torch.inf
    leaf, v = logits.requires_grad_(), torch.randn(1, 1, 6, 2, dtype=torch.float64)

    def first(leaf: Tensor) -> Tensor:
        out = softmax_attention(leaf, v, allowed=allowed, bias=None, dropout_p=0.0)
        (found,) = torch.autograd.grad(out.square().sum(), leaf, create_graph=True)
        return found

    gradient = first(leaf)
    (second,) = torch.autograd.grad(gradient.square().sum(), leaf)
    for found in (gradient, second):
        assert not found[~allowed[None, None]].any()
        assert found[0, 0, 3, :4].abs().min() > 0
        assert found.isfinite().all()


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


N = 12
Q, K, V = (torch.randn(2, 2, N, 4) for _ in range(3))
BLOCKS = torch.stack([torch.arange(N) // 6, torch.arange(N) // 3])[:, None]
HOLE = torch.tensor([[True] * 4 + [False] * 2 + [True] * 6] * 2)


def mlr(impl: str, **more: Any) -> torch.Tensor:
    return multilevel_attention(Q, K, V, **{"ranks": [2, 2], "blocks": BLOCKS, "impl": impl, **more})


def swa(impl: str, **more: Any) -> torch.Tensor:
    return sliding_window_attention(Q, K, V, window_size=3, impl=impl, **more)


def test_unknown_names_and_kernels_of_another_device_are_refused() -> None:
    for attend, impl in ((mlr, "triton"), (swa, "flex")):
        with pytest.raises(UserError, match=rf"impl {impl} cannot compute this .*: it runs on a CUDA device"):
            attend(impl)
    with pytest.raises(UserError, match=r"^unknown impl 'other': full attention has "):
        full_attention(Q, K, V, impl="other")
    with pytest.raises(UserError, match="multi-level attention has auto, reference, sdpa, tiles, triton"):
        mlr("fast")
    with pytest.raises(UserError, match="sliding-window attention has auto, reference, sdpa, blocks, flex"):
        swa("tiles")


@pytest.mark.parametrize("impl", ["sdpa", "triton"])
def test_division_by_the_active_levels_is_not_done_by_each(impl: str) -> None:
    with pytest.raises(UserError, match=f"impl {impl} cannot compute this .*: it cannot divide the logits of a pair"):
        mlr(impl, divide_by_active=True)
    bias = torch.randn(N, N)
    for more in ({}, {"bias": bias}):
        torch.testing.assert_close(
            mlr("auto", divide_by_active=True, **more), mlr("reference", divide_by_active=True, **more)
        )


def test_the_dense_matrix_is_never_formed() -> None:
    """At 8192 tokens, the score matrix of one head alone would take 256 MiB."""
    length = 8192
    q, k, v = (torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3))
    blocks = torch.stack([torch.arange(length) * n // length for n in (1, 2, 4, 8, 16, 32)])[:, None]
    with torch.profiler.profile(profile_memory=True) as profile:
        multilevel_attention(q, k, v, ranks=[3, 1, 1, 1, 1, 1], blocks=blocks, impl="tiles").sum().backward()
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest < 0.05 * 4 * length**2


REFUSED: list[tuple[Any, str, dict[str, Any], str]] = [
    (mlr, "tiles", {"bias": torch.zeros(N, N)}, "it takes no bias and no dropout"),
    (mlr, "tiles", {"blocks": torch.stack([torch.arange(N) // 4, torch.arange(N) // 6])[:, None]}, "are not nested"),
    (mlr, "tiles", {"blocks": torch.stack([0 * torch.arange(N), torch.arange(N) % 2])[:, None]}, "are not nested"),
    (mlr, "tiles", {"positions": torch.zeros(1, N).long()}, "two tokens have the same position"),
    (swa, "blocks", {"bias": torch.zeros(N, N)}, "it takes no bias"),
    (swa, "blocks", {"positions": 2 * torch.arange(N)[None]}, "positions do not rise by one"),
    (swa, "blocks", {"positions": torch.arange(N)[None], "key_mask": HOLE}, "padding lies between real tokens"),
]


def test_tiles_and_blocks_say_why_not_and_auto_computes_it() -> None:
    for attend, impl, more, reason in REFUSED:
        with pytest.raises(UserError, match=reason):
            attend(impl, **more)
        torch.testing.assert_close(attend("auto", **more), attend("reference", **more))
    with pytest.raises(UserError, match="it takes no bias and no dropout"):
        mlr("tiles", dropout_p=0.5)
