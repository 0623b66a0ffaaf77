"""Every implementation equals its reference, in value and gradient, for whatever shapes, blocks and masks are drawn."""

import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tsattn.errors import UserError
from tsattn.ops import full_attention, multilevel_attention, multilevel_tiles, sliding_window_attention
from tsattn.ops.multilevel_tiles import multilevel_attention_traced

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2}

deterministic = settings(derandomize=True, deadline=None, max_examples=100)


@st.composite
def inputs(draw: st.DrawFn, *, longest: int = 70) -> dict[str, Any]:
    """Queries, keys and values, and what is known of the tokens."""
    B, G, T = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, longest))
    H = G * draw(st.integers(1, 2))
    r, E = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    length = draw(st.sampled_from([0.3, 1.0, 4.0]))  # of queries: nearly even weights, or nearly a single one

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    key_mask = draw(st.sampled_from(["none", "start", "end", "row"]))
    mask = torch.ones(B, T, dtype=torch.bool)
    for row in range(B):
        padded = draw(st.integers(0, T))
        if key_mask == "start":
            mask[row, :padded] = False
        elif key_mask == "end":
            mask[row, T - padded :] = False
    if key_mask == "row":
        mask[0] = False
    globals_share = draw(st.sampled_from([None, None, 0.1, 1.0]))
    is_global = torch.rand(draw(st.sampled_from([1, B])), T, generator=generator) < (globals_share or 0)
    return {
        "q": length * numbers(B, draw(st.sampled_from([1, H])), T, r),
        "k": numbers(B, G if draw(st.booleans()) else H, T, r),
        "v": numbers(B, H, T, E),
        "causal": draw(st.booleans()),
        "key_mask": None if key_mask == "none" else mask,
        "global_tokens": None if globals_share is None else is_global,
        "dtype": draw(st.sampled_from(list(TOLERANCE))),
    }


def value_and_gradients(attend: Callable[..., Tensor], drawn: dict[str, Any], dtype: torch.dtype) -> list[Tensor]:
    """The output at real tokens, and the gradients of q, k and v."""
    arguments = {name: value for name, value in drawn.items() if name != "dtype"}
    leaves = [arguments.pop(name).to(dtype).requires_grad_() for name in "qkv"]
    out = attend(*leaves, **arguments)
    assert out.dtype == dtype
    if drawn["key_mask"] is not None:
        out = out * drawn["key_mask"][:, None, :, None]
    weights = torch.cos(torch.arange(out.numel(), dtype=torch.float64)).view_as(out).to(dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]


def moved_by_rounding(
    attend: Callable[..., Tensor], rounded: dict[str, Any], expected: list[Tensor], exact: torch.dtype
) -> list[float]:
    """How far the reference goes where q, k and v are four units in the last place of bfloat16 off, by each result.

    What rounds logits, probabilities and their gradients, as PyTorch's own kernel does in bfloat16, is as far off.
    """
    most = [0.0] * len(expected)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        nearly = dict(rounded)
        for name in "qkv":
            signs = torch.randint(0, 2, rounded[name].shape, generator=generator) * 2 - 1
            nearly[name] = rounded[name] * (1 + signs * 2.0**-6)
        found = value_and_gradients(lambda *x, **more: attend(*x, **more, impl="reference"), nearly, exact)
        far = [float((one - other).abs().max()) for one, other in zip(found, expected, strict=True)]
        most = [max(pair) for pair in zip(most, far, strict=True)]
    return most


def check(attend: Callable[..., Tensor], drawn: dict[str, Any], impls: tuple[str, ...]) -> list[str]:
    """Each implementation is the reference, or says that it cannot; those that were compared."""
    compared = []
    dtype = drawn["dtype"]
    exact = torch.float32 if dtype == torch.bfloat16 else dtype
    rounded = {name: v.to(dtype).to(exact) if name in "qkv" else v for name, v in drawn.items()}
    expected = value_and_gradients(lambda *x, **more: attend(*x, **more, impl="reference"), rounded, exact)
    is_coarse = dtype == torch.bfloat16
    moved = moved_by_rounding(attend, rounded, expected, exact) if is_coarse else [0.0] * len(expected)
    for impl in impls:
        try:
            found = value_and_gradients(lambda *x, impl=impl, **more: attend(*x, **more, impl=impl), drawn, dtype)
        except UserError:
            assert impl != "auto"  # a named one may refuse, which test_refusals.py looks into
            continue
        # a gradient may vanish by cancellation, as that of q does before a single key: rounding goes by the largest
        largest = max(float(other.abs().max()) for other in expected)
        for one, other, conditioned in zip(found, expected, moved, strict=True):
            assert torch.isfinite(one).all(), impl
            assert float((one.to(exact) - other).abs().max()) <= TOLERANCE[dtype] * largest + conditioned, impl
        compared.append(impl)
    return compared


def test_sliding_window() -> None:
    impls = ("sdpa", "blocks", "auto")
    compared: Counter[str] = Counter()

    @deterministic
    @given(inputs(longest=300), st.integers(1, 80))
    def run(drawn: dict[str, Any], window_size: int) -> None:
        def attend(*tensors: Tensor, **more: Any) -> Tensor:
            return sliding_window_attention(*tensors, window_size=window_size, **more)

        compared.update(check(attend, drawn, impls))

    run()
    assert min(compared[impl] for impl in impls) >= 20, compared


@st.composite
def levels(draw: st.DrawFn, T: int, r: int, B: int) -> tuple[list[int], Tensor]:
    """Ranks that sum to r, and blocks: nested from coarse to fine, or of any kind; one row for all, or one each."""
    count = draw(st.integers(1, min(4, r)))
    cuts = sorted(draw(st.sets(st.integers(1, r - 1), min_size=count - 1, max_size=count - 1))) if count > 1 else []
    ranks = [b - a for a, b in zip([0, *cuts], [*cuts, r], strict=True)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    rows = draw(st.sampled_from([1, B]))
    borders = torch.zeros(rows, T, dtype=torch.long)
    blocks, nested = [], draw(st.booleans())
    for level in range(count):
        new = (torch.rand(rows, T, generator=generator) < 0.04 * 2**level).long()
        borders = torch.maximum(borders, new) if nested else new
        blocks.append(borders.cumsum(-1))
    return ranks, torch.stack(blocks)


def test_multilevel() -> None:
    impls = ("sdpa", "tiles", "auto")
    compared: Counter[str] = Counter()

    @deterministic
    @given(st.data())
    def run(data: st.DataObject) -> None:
        drawn = data.draw(inputs())
        B, _, T, r = drawn["q"].shape
        ranks, blocks = data.draw(levels(T, r, B))
        divide = data.draw(st.booleans())

        def attend(*tensors: Tensor, **more: Any) -> Tensor:
            return multilevel_attention(*tensors, ranks=ranks, blocks=blocks, divide_by_active=divide, **more)

        compared.update(check(attend, drawn, impls))

    run()
    assert min(compared[impl] for impl in impls) >= 20, compared


def blocks_of_ten() -> Tensor:
    return torch.stack([torch.zeros(1, 70), torch.arange(70)[None] // 10]).long()


def full(*tensors: Tensor, impl: str, causal: bool = False) -> Tensor:
    allowed = torch.ones(70, 70, dtype=torch.bool).tril()[None, None] if causal else None
    return full_attention(*tensors, allowed=allowed, impl=impl)


def window(*tensors: Tensor, impl: str, causal: bool = False) -> Tensor:
    return sliding_window_attention(*tensors, window_size=9, causal=causal, impl=impl)


def multilevel(*tensors: Tensor, impl: str, causal: bool = False, divide: bool = False) -> Tensor:
    return multilevel_attention(
        *tensors, ranks=[4, 4], blocks=blocks_of_ten(), causal=causal, divide_by_active=divide, impl=impl
    )


LARGE = [
    pytest.param(full, ("reference", "sdpa"), id="full"),
    pytest.param(window, ("reference", "sdpa", "blocks"), id="sliding window"),
    pytest.param(multilevel, ("reference", "sdpa", "tiles"), id="multi-level"),
    pytest.param(partial(multilevel, divide=True), ("reference", "tiles"), id="multi-level, divided"),
]


@pytest.mark.parametrize(("attend", "impls"), LARGE)
def test_very_large_logits_stay_finite(attend: Callable[..., Tensor], impls: tuple[str, ...]) -> None:
    for impl, causal, dtype in itertools.product(impls, (False, True), (torch.float32, torch.bfloat16)):
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, 2, 70, 8, generator=generator).to(dtype) for _ in range(3))
        q = 1e4 * q
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = attend(*leaves, impl=impl, causal=causal)
        out.float().square().sum().backward()
        assert torch.isfinite(out).all(), impl
        assert all(leaf.grad is not None and torch.isfinite(leaf.grad).all() for leaf in leaves), impl


@pytest.mark.parametrize("causal", [False, True])
def test_long_views_are_as_good_as_copies(causal: bool) -> None:
    """Components that do not lie side by side, which the kernel under the tiles would misread at lengths like these."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 64, 512, generator=generator).mT for _ in range(2))
    v = torch.randn(1, 2, 512, 1, generator=generator).expand(-1, -1, -1, 64)
    blocks = torch.stack([torch.zeros(1, 512), torch.arange(512)[None] // 128]).long()
    found = []
    for impl in ("reference", "tiles"):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        out = multilevel_attention(*leaves, ranks=[32, 32], blocks=blocks, causal=causal, impl=impl)
        found.append([out, *torch.autograd.grad((out * out).sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_leaves_are_computed_a_few_rows_at_a_time(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(3, 2, 70, 8, generator=generator, dtype=torch.float64) for _ in range(3)]
    results = []
    for most in (1000, 150):  # tokens: all six rows of heads, or two of them
        monkeypatch.setattr(multilevel_tiles, "LEAF_TOKENS", most)
        inputs = [x.clone().requires_grad_() for x in tensors]
        out = multilevel(*inputs, impl="tiles", causal=causal)
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


T = 40
POSITIONS = torch.arange(T)[None]
BLOCKS = torch.stack([POSITIONS * 0, POSITIONS // 9])


def leaves() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, T, 4, generator=generator, requires_grad=True) for _ in range(3)]


def of_two_levels(impl: str, scale: float, causal: bool) -> tuple[Tensor, ...]:
    q, k, v = leaves()
    options: dict[str, Any] = {"ranks": [1, 3], "blocks": BLOCKS, "scale": scale, "causal": causal}
    if impl == "traced":
        out = multilevel_attention_traced(q, k, v, positions=POSITIONS, **options)
    else:
        out = multilevel_attention(q, k, v, impl=impl, **options)
    return out, *torch.autograd.grad(out.square().sum(), (q, k, v))


@pytest.mark.parametrize("impl", ["sdpa", "tiles", "traced", pytest.param("native", marks=needs_kernels)])
def test_a_scale_that_is_not_positive(impl: str) -> None:
    for scale, causal in ((-0.5, False), (-0.5, True), (0.0, True)):
        expected = of_two_levels("reference", scale, causal)
        for one, other in zip(of_two_levels(impl, scale, causal), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("apart", [-(10**9), 2**59])
def test_ids_far_apart_take_no_more_slots_than_blocks(apart: int) -> None:
    q, k, v = leaves()
    given: dict[str, Any] = {"ranks": [1, 3], "impl": "sdpa"}
    blocks = torch.stack([POSITIONS * 0 + 7, (POSITIONS // 9 * 3 - 6) * apart])
    expected = multilevel_attention(q, k, v, blocks=BLOCKS, **given)
    torch.testing.assert_close(multilevel_attention(q, k, v, blocks=blocks, **given), expected, rtol=1e-5, atol=1e-6)
