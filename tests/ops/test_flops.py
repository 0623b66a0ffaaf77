"""What the fast paths execute, counted."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tsattn.ops import executed_flops, full_attention, level_block_ids, multilevel_attention, sliding_window_attention

H, T, W = 2, 512, 16
RANKS = (8, 4, 2, 2)


def tensors(length: int = T) -> list[Tensor]:
    return [torch.randn(1, H, length, W, requires_grad=True) for _ in range(3)]


def mlr(length: int, impl: str) -> Callable[[], Tensor]:
    blocks = level_block_ids(torch.arange(length)[None], numbers=[1, 2, 4, 8], max_length=length)
    q, k, v = tensors(length)
    return lambda: multilevel_attention(q, k, v, ranks=RANKS, blocks=blocks, impl=impl)


@pytest.mark.parametrize("impl", ["reference", "sdpa"])
def test_full_attention_executes_two_products(impl: str) -> None:
    q, k, v = tensors()
    forward = 4 * H * T * T * W
    assert executed_flops(lambda: full_attention(q, k, v, impl=impl)) == forward
    both = executed_flops(lambda: full_attention(q, k, v, impl=impl).sum().backward())
    # the fused kernel forms the scores again
    assert both == forward + {"reference": 2, "sdpa": 2.5}[impl] * forward


def test_tiles_execute_less_than_a_matrix_a_level_and_no_less_than_the_pattern() -> None:
    mixing = 2 * H * T * T * W
    pattern = 2 * H * T * T * sum(rank / number for rank, number in zip(RANKS, (1, 2, 4, 8), strict=True))
    tiles, reference = (executed_flops(mlr(T, impl)) for impl in ("tiles", "reference"))
    assert reference == mixing + 2 * H * T * T * W
    assert pattern + mixing < tiles <= 1.5 * reference


def test_a_window_executes_flops_in_proportion_to_the_length() -> None:
    def count(length: int) -> int:
        q, k, v = tensors(length)
        return executed_flops(lambda: sliding_window_attention(q, k, v, window_size=65, impl="blocks"))

    # 64 queries of a block see 192 keys
    assert count(512) == 4 * H * 512 * 192 * W
    assert count(4096) == 8 * count(512)
