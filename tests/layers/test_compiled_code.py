"""Code that inductor makes for a CPU computes what eager execution does, also where blocks do not divide lengths."""

from __future__ import annotations

import pytest
import torch

from tsattn.attention import build_attention
from tsattn.ops import calendar_block_ids, level_block_ids
from tsattn.ops.masks import floor_divide

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


def test_floor_division_of_every_rest() -> None:
    """Compiled, `torch.div(..., rounding_mode="floor")` of whole numbers leaves entries unwritten."""
    compiled = torch.compile(floor_divide, dynamic=True, fullgraph=True)
    for length in (1, 7, 300):
        numbers = torch.arange(length) * 4 - 1000
        for by in (1, 3, 97, 1024):
            expected = torch.div(numbers, by, rounding_mode="floor")
            assert torch.equal(compiled(numbers, by), expected)
    large = torch.tensor([2**52 - 1, -(2**52) + 1, 3 * 1024**4 - 1, 3 * 1024**4])
    assert torch.equal(compiled(large, 1024), torch.div(large, 1024, rounding_mode="floor"))


def test_blocks_by_number_length_and_calendar() -> None:
    positions = torch.arange(300)[None]

    def blocks(positions: torch.Tensor) -> list[torch.Tensor]:
        return [
            level_block_ids(positions, numbers=[1, 4, 16], max_length=1024),
            level_block_ids(positions, lengths=[96, 24]),
            calendar_block_ids(positions * 5003 - 777_777, ["year", "month", "week", "day", "hour"]),
        ]

    for one, other in zip(torch.compile(blocks, fullgraph=True)(positions), blocks(positions), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("impl", "length", "sizes"),
    [
        ("auto", 1500, {"d_model": 64, "num_heads": 2, "max_length": 4096}),
        ("reference", 300, {"d_model": 16, "num_heads": 4, "max_length": 1024}),
    ],
)
def test_a_decoding_module_compiled_equals_itself(impl: str, length: int, sizes: dict[str, int]) -> None:
    torch.manual_seed(0)
    attention = build_attention({"kind": "mlr", "align": "start", "impl": impl}, causal=True, **sizes)
    x = torch.randn(1, length, sizes["d_model"])
    out = torch.compile(attention, fullgraph=True)(x)
    torch.testing.assert_close(out, attention(x), rtol=1e-4, atol=1e-5)
