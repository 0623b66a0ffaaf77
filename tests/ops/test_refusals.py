"""A named implementation runs or says why it cannot; it never falls back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tsattn.errors import UserError
from tsattn.ops import multilevel_attention, sliding_window_attention

T = 12
Q, K, V = (torch.randn(2, 2, T, 4) for _ in range(3))
BLOCKS = torch.stack([torch.arange(T) // 6, torch.arange(T) // 3])[:, None]
HOLE = torch.tensor([[True] * 4 + [False] * 2 + [True] * 6] * 2)


def mlr(impl: str, **more: Any) -> torch.Tensor:
    return multilevel_attention(Q, K, V, **{"ranks": [2, 2], "blocks": BLOCKS, "impl": impl, **more})


def swa(impl: str, **more: Any) -> torch.Tensor:
    return sliding_window_attention(Q, K, V, window_size=3, impl=impl, **more)


TILES: list[tuple[dict[str, Any], str]] = [
    ({"bias": torch.zeros(T, T)}, "it takes no bias and no dropout"),
    ({"dropout_p": 0.5}, "it takes no bias and no dropout"),
    ({"blocks": torch.stack([torch.arange(T) // 4, torch.arange(T) // 6])[:, None]}, "the blocks are not nested"),
    ({"blocks": torch.stack([torch.zeros(T).long(), torch.arange(T) % 2])[:, None]}, "the blocks are not nested"),
    ({"positions": torch.zeros(1, T).long()}, "two tokens have the same position"),
]


def test_tiles_say_why_not() -> None:
    for more, reason in TILES:
        with pytest.raises(UserError, match=reason):
            mlr("tiles", **more)
        if "dropout_p" not in more:
            torch.testing.assert_close(mlr("auto", **more), mlr("reference", **more))


BLOCKED: list[tuple[dict[str, Any], str]] = [
    ({"bias": torch.zeros(T, T)}, "it takes no bias"),
    ({"positions": 2 * torch.arange(T)[None]}, "positions do not rise by one"),
    ({"positions": torch.arange(T)[None], "key_mask": HOLE}, "padding lies between real tokens"),
]


def test_blocks_say_why_not() -> None:
    for more, reason in BLOCKED:
        with pytest.raises(UserError, match=reason):
            swa("blocks", **more)
        torch.testing.assert_close(swa("auto", **more), swa("reference", **more))


def test_unknown_names_and_kernels_of_another_device_are_refused() -> None:
    for attend, impl in ((mlr, "triton"), (swa, "flex")):
        with pytest.raises(UserError, match=rf"impl {impl} cannot compute this .*: it runs on a CUDA device"):
            attend(impl)
    with pytest.raises(UserError, match="multi-level attention has auto, reference, sdpa, tiles, triton"):
        mlr("fast")
    with pytest.raises(UserError, match="sliding-window attention has auto, reference, sdpa, blocks, flex"):
        swa("tiles")


@pytest.mark.parametrize("impl", ["sdpa", "triton"])
def test_division_by_the_active_levels_is_not_done_by_each(impl: str) -> None:
    with pytest.raises(UserError, match=f"impl {impl} cannot compute this .*: it cannot divide the logits of a pair"):
        mlr(impl, divide_by_active=True)
    bias = torch.randn(T, T)
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
