"""The native kernel beside the plain forms in float64: values and gradients, at odd sizes, with all that it takes."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tsattn.ops import full_attention, multilevel_attention, sliding_window_attention
from tsattn.ops.native.native_attention import takes_bfloat16

pytestmark = needs_kernels

# of the largest element
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
B, H = 3, 4
RANKS, WIDTH, VALUE_WIDTH = [3, 4, 1], 8, 5

Options = dict[str, Any]


def compare(
    compute: Callable[..., Tensor], tensors: Sequence[Tensor], options: Options, dtype: torch.dtype = torch.float32
) -> None:
    """Values and all gradients of impl native, in `dtype`, with those of impl reference in float64."""
    ours = [t.detach().to(dtype if number < 3 else t.dtype).requires_grad_() for number, t in enumerate(tensors)]
    theirs = [t.detach().double().requires_grad_() for t in ours]
    mask = options.get("key_mask")
    is_self = tensors[0].shape[2] == tensors[1].shape[2]
    real = (
        mask[:, None, :, None] if mask is not None and is_self else torch.tensor(1.0)
    )  # nothing is said of the others

    def run(inputs: Sequence[Tensor], impl: str) -> Tensor:
        more = {"bias": inputs[3]} if len(inputs) > 3 else {}
        return compute(*inputs[:3], impl=impl, scale=0.3, **options, **more) * real.to(inputs[0].dtype)

    found, expected = run(ours, "native"), run(theirs, "reference")
    assert found.dtype == dtype
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    found.backward(weight)
    expected.backward(weight.double())
    pairs = [(found, expected), *((one.grad, other.grad) for one, other in zip(ours, theirs, strict=True))]
    largest = max(other.abs().max().item() for _, other in pairs[1:])
    for name, (one, other) in zip(("value", "q", "k", "v", "bias"), pairs, strict=False):
        assert one is not None
        assert other is not None
        worst = (one.double() - other).abs().max().item()
        allowed = TOLERANCE[dtype] * max(other.abs().max().item(), 0.1 * largest if name != "value" else 1e-3)
        assert worst <= allowed, f"{name} off by {worst:.1e}, allowed {allowed:.1e}: {options}"


def tensors(T: int, G: int, S: int | None = None, width: int = WIDTH, value_width: int = VALUE_WIDTH) -> list[Tensor]:
    S = T if S is None else S
    return [torch.randn(B, H, T, width), torch.randn(B, G, S, width), torch.randn(B, G, S, value_width)]


def said_of_tokens(case: str, T: int) -> Options:
    mask = torch.ones(B, T, dtype=torch.bool)
    mask[1, : T // 2] = False
    mask[2, T // 3 :] = False
    everywhere = torch.rand(B, T) < 0.2
    return {
        "nothing": {},
        "padding": {"key_mask": mask},
        "global tokens": {"global_tokens": everywhere[:1]},
        "global tokens by row": {"global_tokens": everywhere, "key_mask": mask},
        "last tokens global": {"global_tokens": torch.arange(T)[None] >= T - 3},
        "no order": {"positions": torch.stack([torch.randperm(T) for _ in range(B)])},
        "places with gaps": {"positions": torch.arange(T)[None] * 3 // 2},
    }[case]


SAID = (
    "nothing",
    "padding",
    "global tokens",
    "global tokens by row",
    "last tokens global",
    "no order",
    "places with gaps",
)


def blocks_at(positions: Tensor) -> Tensor:
    return torch.stack([positions * 0, positions // 20, positions // 5])


@pytest.mark.parametrize(
    ("T", "case", "causal"),
    [
        *((T, "nothing", T % 2 == 0) for T in (1, 2, 7, 63)),
        *((33, case, turn % 2 == 0) for turn, case in enumerate(SAID)),
        *((100, case, turn % 2 == 1) for turn, case in enumerate(SAID[1:4:2])),
    ],
)
def test_levels(T: int, case: str, causal: bool) -> None:
    torch.manual_seed(T)
    said = {"positions": torch.arange(T)[None], **said_of_tokens(case, T)}
    for G, divide in ((1, False), (2, True), (4, False)):
        options = {**said, "causal": causal, "divide_by_active": divide, "ranks": RANKS}
        compare(multilevel_attention, tensors(T, G), {**options, "blocks": blocks_at(said["positions"])})


@pytest.mark.parametrize(
    ("T", "case", "window_size"),
    [
        *((T, "nothing", 3) for T in (1, 7)),
        *((63, "nothing", window_size) for window_size in (1, 50, 1000)),
        *((63, case, 3) for case in SAID[::2]),
        *((100, case, 50) for case in SAID[1::2]),
    ],
)
def test_windows(T: int, case: str, window_size: int) -> None:
    torch.manual_seed(T)
    for G, causal in ((1, True), (4, False)):
        options = {**said_of_tokens(case, T), "causal": causal, "window_size": window_size}
        compare(sliding_window_attention, tensors(T, G), options)


@pytest.mark.parametrize(("N", "S"), [(1, 9), (5, 40), (40, 5), (17, 17), (70, 133)])
def test_queries_and_keys_of_two_sequences(N: int, S: int) -> None:
    torch.manual_seed(N)
    mask = torch.rand(B, S) < 0.6
    mask[0] = False  # a row without any key
    late = {"causal": True, "query_positions": torch.arange(S, S + N)[None] - N // 2, "key_positions": None}
    for options, G in itertools.product(({}, {"key_mask": mask}, late), (1, 2, 4)):
        compare(full_attention, tensors(N, G, S), options)


@pytest.mark.parametrize(
    ("shape", "spread"),
    [
        ((B, H), (True, True)),
        ((1, H), (False, True)),
        ((B, 1), (True, False)),
        ((1, 1), (True, True)),
        ((B, 1), (False, True)),
        ((1, H), (True, False)),
    ],
)
def test_biases_and_their_gradients(shape: tuple[int, int], spread: tuple[bool, bool]) -> None:
    torch.manual_seed(0)
    for T, G in ((1, 4), (37, 2), (70, 1)):
        bias = torch.randn(*shape, *(T if whole else 1 for whole in spread))
        given = [*tensors(T, G), bias]
        compare(full_attention, given, {"causal": True})
        blocks = blocks_at(torch.arange(T)[None])
        compare(multilevel_attention, given, {"blocks": blocks, "ranks": RANKS, "divide_by_active": True})
    bias = torch.randn(T, T)
    compare(full_attention, [*tensors(T, 4), bias], {})


def test_a_bias_that_forbids_pairs() -> None:
    torch.manual_seed(0)
    q, k, v = tensors(50, 2)
    bias = torch.randn(1, H, 50, 50).masked_fill(torch.rand(1, H, 50, 50) < 0.3, -torch.inf)
    bias[:, :, 7] = -torch.inf
    compare(full_attention, [q, k, v, bias], {})
    assert (full_attention(q, k, v, bias=bias, impl="native")[:, :, 7] == 0).all()


@pytest.mark.parametrize("T", [300, 1030])
def test_long_sequences(T: int) -> None:
    torch.manual_seed(0)
    positions = torch.arange(T)[None]
    blocks = torch.stack([positions * 2**level // T for level in range(6)])
    given = [torch.randn(1, 2, T, 40), torch.randn(1, 1, T, 40), torch.randn(1, 1, T, 24)]
    for causal in (False, True):
        options = {"causal": causal, "blocks": blocks, "ranks": [16, 8, 4, 4, 4, 4]}
        compare(multilevel_attention, given, options)


def test_tensors_that_are_no_more_than_views() -> None:
    """Heads cut from one tensor, one query head for all, a negated bias, components that do not lie side by side."""
    torch.manual_seed(0)
    joint = torch.randn(B, 30, 3 * H * 8)
    q, k, v = (part.unflatten(-1, (H, 8)).transpose(1, 2) for part in joint.chunk(3, -1))
    compare(full_attention, [q, k, v], {"causal": True, "bias": torch._neg_view(torch.randn(30, 30))})
    compare(full_attention, [q[:, :1].expand(-1, H, -1, -1), k, v], {})
    compare(full_attention, [torch.randn(B, 1, 30, 8), k, v], {})
    compare(full_attention, [torch.randn(B, H, 8, 30).transpose(2, 3), k, v[..., ::2]], {})


@pytest.mark.parametrize("case", ["padding", "global tokens by row", "no order"])
def test_bfloat16(case: str) -> None:
    """Also where the CPU has no products of it, or ranks are odd: then it computes in float32."""
    torch.manual_seed(0)
    for T, ranks, causal in (
        (7, [4, 2, 2], False),
        (33, [4, 2, 2], True),
        (100, [4, 3, 1], True),
        (100, [4, 2, 2], False),
    ):
        said = {"positions": torch.arange(T)[None], **said_of_tokens(case, T)}
        options = {**said, "causal": causal, "blocks": blocks_at(said["positions"]), "ranks": ranks}
        for G in (1, 4):
            given = tensors(T, G, value_width=6)
            compare(multilevel_attention, given, options, torch.bfloat16)
            compare(multilevel_attention, [*given, torch.randn(1, H, T, T)], options, torch.bfloat16)
    assert not takes_bfloat16([4, 3, 1], 6)


def test_a_window_without_an_end_is_none() -> None:
    """The largest number of 64 bits is "no window"; positions far from 0 do not matter."""
    torch.manual_seed(0)
    q, k, v = tensors(33, 2)
    for causal, positions in itertools.product((False, True), (None, torch.arange(33)[None] - 2**40)):
        whole = full_attention(q, k, v, causal=causal, impl="native")
        found = sliding_window_attention(
            q, k, v, window_size=2**63 - 1, positions=positions, causal=causal, impl="native"
        )
        assert torch.equal(found, whole)


def test_sizes_of_heads() -> None:
    torch.manual_seed(0)
    for width, value_width in ((1, 65), (5, 3), (16, 16), (130, 65)):
        compare(full_attention, tensors(45, 2, width=width, value_width=value_width), {"causal": True})


def test_great_logits_and_what_is_no_number() -> None:
    """Finite ones stay finite, and one that is far the largest takes all the weight, in gradients too."""
    q, k, v = (t.requires_grad_() for t in tensors(40, 4))
    for factor in (1e4, 1e15):
        out = full_attention(q * factor, k * factor, v, impl="native")
        expected = full_attention((q * factor).double(), (k * factor).double(), v.double(), impl="reference")
        torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-4)
        assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))
    spoilt = k.detach().clone()
    spoilt[1, 2, 13, 3] = torch.nan
    out = full_attention(q, spoilt, v, impl="native")
    assert out[1, 2].isnan().all()
    assert out[0].isfinite().all()
    assert out[1, [0, 1, 3]].isfinite().all()


def test_drawn_blocks_of_each_row() -> None:
    """Nested blocks of any sizes, different in each row."""
    draw = random.Random(0)
    for number in range(12):
        torch.manual_seed(number)
        T = draw.randint(1, 90)
        rows = []
        for _ in range(B):
            edges = torch.zeros(3, T, dtype=torch.long)
            for level in range(3):
                edges[level, 1:] = torch.rand(T - 1) < (0.02, 0.1, 0.4)[level]
            rows.append((edges.cumsum(0) > 0).long().cumsum(1))
        options = {"blocks": torch.stack(rows, 1), "ranks": RANKS, "causal": bool(number % 2)}
        compare(multilevel_attention, tensors(T, draw.choice((1, 2, 4))), options)
