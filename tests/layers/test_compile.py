"""`torch.compile`: a block is one graph for every length, and the code for a CPU computes what eager execution does."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from tests.attention.cases import CASES
from tests.ops.native.kernels_there import needs_kernels
from tsattn.attention import build_attention
from tsattn.layers import EncoderBlock
from tsattn.ops import calendar_block_ids, change_point_block_ids, level_block_ids
from tsattn.ops.masks import floor_divide

LENGTHS = (97, 33)
# projections by structured matrices, and every pattern and implementation that is compiled in a way of its own
WAYS = [
    *(("swa", "auto", False), ("mlbtc-grouped", "auto", False), ("mlr-active", "tiles", False)),
    pytest.param("mlr", "native", True, marks=needs_kernels),
]


def value_and_gradients(run: object, block: EncoderBlock, x: Tensor) -> list[Tensor]:
    assert callable(run)
    x = x.clone().requires_grad_()
    out = run(x)
    return [out, *torch.autograd.grad(out.square().mean(), [x, *block.parameters()], allow_unused=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "impl", "causal"), WAYS)
def test_a_block_compiles_whole_and_once_for_all_lengths(case: str, impl: str, causal: bool) -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    # blocks by number must divide alike for every length; what is longer than max_length is refused
    attention = build_attention(CASES[case], d_model=16, num_heads=4, max_length=max(LENGTHS), causal=causal)
    attention.impl = impl
    block = EncoderBlock(attention, d_ff=32, dropout=0.0)
    # backward passes are traced of what has operators or a choice of its own; the others are products of matrices
    backend = "eager" if case == "mlbtc-grouped" else "aot_eager"
    compiled = torch.compile(block, backend=backend, dynamic=True, fullgraph=True)
    for length in LENGTHS:
        x = torch.randn(2, length, 16)
        found, expected = (value_and_gradients(run, block, x) for run in (compiled, block))
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None)
            if one is not None:
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 if impl == "native" else 1e-6)
    # a window shorter than a third of the sequence is computed another way
    assert counters["stats"]["unique_graphs"] <= (2 if case == "swa" else 1)


def test_the_operator_keeps_the_rules_of_operators() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 40, 8, requires_grad=True) for _ in range(3))
    positions = torch.arange(40)[None]
    blocks = torch.stack([torch.zeros_like(positions), positions // 20])
    arguments = (q, k, v, blocks, positions, [4, 4], True, [0.3, 0.3, 0.3])
    torch.library.opcheck(
        torch.ops.tsattn.multilevel_tiles.default,
        arguments,
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


@pytest.mark.slow
def test_floor_division_of_every_rest() -> None:
    """Compiled, `torch.div(..., rounding_mode="floor")` of whole numbers leaves entries unwritten."""
    torch._dynamo.reset()
    compiled = torch.compile(floor_divide, dynamic=True, fullgraph=True)
    for length in (1, 7, 300):
        numbers = torch.arange(length) * 4 - 1000
        for by in (1, 3, 97, 1024):
            expected = torch.div(numbers, by, rounding_mode="floor")
            assert torch.equal(compiled(numbers, by), expected)
    large = torch.tensor([2**52 - 1, -(2**52) + 1, 3 * 1024**4 - 1, 3 * 1024**4])
    assert torch.equal(compiled(large, 1024), torch.div(large, 1024, rounding_mode="floor"))


@pytest.mark.slow
def test_blocks_by_number_length_calendar_and_change_points() -> None:
    torch.manual_seed(0)
    positions, values, counts = torch.arange(300)[None], torch.randn(1, 50, 2), torch.randint(0, 3, (1, 50, 2))

    def blocks(positions: torch.Tensor) -> list[torch.Tensor]:
        return [
            level_block_ids(positions, numbers=[1, 4, 16], max_length=1024),
            level_block_ids(positions, lengths=[96, 24]),
            calendar_block_ids(positions * 5003 - 777_777, ["year", "month", "week", "day", "hour"]),
            change_point_block_ids(values, [1, 3], counts),
        ]

    for one, other in zip(torch.compile(blocks, fullgraph=True)(positions), blocks(positions), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_a_decoding_module_compiled_equals_itself() -> None:
    torch.manual_seed(0)
    mlr = {"kind": "mlr", "align": "start", "impl": "reference", "ranks": [2, 2]}
    attention = build_attention(mlr, causal=True, d_model=16, num_heads=4, max_length=1024)
    x = torch.randn(1, 300, 16)
    out = torch.compile(attention, fullgraph=True)(x)
    torch.testing.assert_close(out, attention(x), rtol=1e-4, atol=1e-5)
