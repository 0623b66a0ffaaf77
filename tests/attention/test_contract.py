"""What every attention must keep, whatever its kind and implementation (values, gradients, masks, positions)."""

import copy
import itertools
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from tests.attention.cases import (
    BOUND_TO_LENGTH,
    CASES,
    D_MODEL,
    NO_BIAS,
    NO_DROPOUT,
    NO_ORDER,
    NUM_HEADS,
    PATTERN_CASES,
    PATTERN_PAIRS,
    build,
    each_impl,
    fast_impls,
)
from tsattn.attention import KINDS, Attention
from tsattn.attention.patterns import (
    FixedMixingPattern,
    FullPattern,
    GlobalSlidingWindowPattern,
    PatternCall,
    SlidingWindowPattern,
    Tokens,
)
from tsattn.ops.masks import real_positions

# where windows and blocks are cut in more ways than at short lengths; at 720, blocks may be too large for one leaf
LONG = [(case, 336) for case in PATTERN_CASES if case.startswith(("swa", "global_swa", "mlr"))]
LONGER = [(case, 720) for case in ("mlr", "mlr-deep", "mlr-active")]
PAIRWISE = [(False, False, False), (False, True, True), (True, False, True), (True, True, False)]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 5e-3}

cases = pytest.mark.parametrize("case", CASES)
patterns = pytest.mark.parametrize("case", PATTERN_CASES)
pairs = pytest.mark.parametrize(("case", "causal"), PATTERN_PAIRS)


def test_every_kind_has_a_case() -> None:
    assert {case["kind"] for case in CASES.values()} == set(KINDS)


def inputs(length: int, dtype: torch.dtype, padded: bool, biased: bool, seed: int = 1) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, length, D_MODEL, generator=generator, dtype=torch.float64)
    bias = torch.randn(1, NUM_HEADS, length, length, generator=generator, dtype=torch.float64)
    mask = torch.ones(2, length, dtype=torch.bool)
    if length > 2:
        mask[0, : length // 3] = False
        mask[1, -(length // 4) :] = length < 4
    return {
        "x": x.to(dtype).requires_grad_(),
        "bias": bias.to(dtype).requires_grad_() if biased else None,
        "attention_mask": mask if padded else None,
    }


def value_and_gradients(attention: Attention, impl: str, arguments: dict[str, Any]) -> dict[str, Tensor]:
    attention.impl = impl
    attention.zero_grad()
    leaves = {
        name: value for name, value in arguments.items() if isinstance(value, Tensor) and value.is_floating_point()
    }
    for leaf in leaves.values():
        leaf.grad = None
    out = attention(**arguments)
    if arguments["attention_mask"] is not None:
        out = out * arguments["attention_mask"][..., None]
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (out * weight.to(out.dtype)).sum().backward()
    named = {**dict(attention.named_parameters()), **leaves}
    gradients = {f"gradient of {name}": leaf.grad.clone() for name, leaf in named.items() if leaf.grad is not None}
    return {"value": out.detach(), **gradients}


def assert_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float, **context: Any) -> None:
    assert actual.keys() == expected.keys()
    for name, want in expected.items():
        largest = want.abs().max().item()
        if name != "value":  # some exact gradients are zero, as that of a key bias: rounding is that of the others
            largest = max(largest, 0.1 * max(t.abs().max().item() for t in expected.values()))
        worst = (actual[name].double() - want.double()).abs().max().item()
        assert worst <= tolerance * largest, f"{name} off by {worst:.2e} of {largest:.2e} for {context}"


def check_fast_paths(case: str, length: int, dtype: torch.dtype, settings: Iterable[tuple[bool, bool, bool]]) -> None:
    for causal, padded, biased in settings:
        attention = build(case, length=length, dtype=dtype, causal=causal)
        arguments = inputs(length, dtype, padded, biased)
        expected = value_and_gradients(attention, "reference", arguments)
        for impl in fast_impls(attention, without=NO_BIAS if biased else ()):
            actual = value_and_gradients(attention, impl, arguments)
            assert_close(actual, expected, TOLERANCE[dtype], causal=causal, padded=padded, bias=biased, impl=impl)


@cases
def test_fast_paths_equal_the_reference_in_float64(case: str) -> None:
    check_fast_paths(case, 97, torch.float64, PAIRWISE)


@patterns
def test_fast_paths_equal_the_reference_at_small_lengths_and_in_float32(case: str) -> None:
    for length in (1, 3, 7):
        check_fast_paths(case, length, torch.float64, itertools.product((False, True), repeat=3))
    for length in (7, 336):
        check_fast_paths(case, length, torch.float32, [(False, True, False), (True, False, False)])


@pytest.mark.parametrize(("case", "length"), [*LONG, *(pytest.param(*x, marks=pytest.mark.slow) for x in LONGER)])
def test_fast_paths_equal_the_reference_at_great_lengths(case: str, length: int) -> None:
    check_fast_paths(case, length, torch.float64, PAIRWISE)


@pairs
def test_low_precision_patterns_equal_the_float32_reference(case: str, causal: bool) -> None:
    """The scores and their softmax, on the numbers that the low precision can hold."""
    length, dtype = 97, torch.bfloat16 if causal else torch.float16
    attention = build(case, length=length, dtype=torch.float32)
    mask = inputs(length, torch.float32, True, biased=False)["attention_mask"]
    positions = real_positions(mask, align=attention.pattern.align, max_length=length)
    tokens = Tokens(positions, positions, mask, max_length=length)
    x = torch.randn(2, length, D_MODEL)
    q, k = attention.projection(x, x)
    v = torch.randn(2, attention.num_kv_heads, length, attention.head_dim)
    rounded = [(0.5 * t).detach().to(dtype) for t in (q, k, v)]

    def run(impl: str, dtype: torch.dtype, causal: bool) -> dict[str, Tensor]:
        leaves = [t.clone().to(dtype).requires_grad_() for t in rounded]
        out = attention.pattern(*leaves, PatternCall(tokens, attention.projection.scale, causal, impl=impl))
        out = out * mask[:, None, :, None]
        (out * torch.linspace(-1, 1, out.shape[-1], dtype=dtype)).sum().backward()
        gradients = zip(("q", "k", "v"), leaves, strict=True)
        return {"value": out.detach(), **{f"gradient of {name}": leaf.grad for name, leaf in gradients if leaf.numel()}}

    expected = run("reference", torch.float32, causal)
    for impl in ("reference", *fast_impls(attention, dtype=dtype)):
        assert_close(run(impl, dtype, causal), expected, TOLERANCE[dtype], causal=causal, impl=impl)


@pytest.mark.parametrize(("case", "causal"), PATTERN_PAIRS[::2])
def test_gradcheck(case: str, causal: bool) -> None:
    attention = build(case, length=7, causal=causal)
    x = torch.randn(1, 7, D_MODEL, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 5 + [False] * 2])
    for _ in each_impl(attention):
        # tokens that are not real give outputs that mean nothing
        assert torch.autograd.gradcheck(lambda x: attention(x, attention_mask=mask)[:, :5], (x,), fast_mode=True)


@patterns
def test_a_causal_output_ignores_later_tokens(case: str) -> None:
    attention = build(case, length=20, causal=True)
    x = torch.randn(2, 20, D_MODEL, dtype=torch.float64)
    changed = x.clone()
    changed[:, 12:] = torch.randn(2, 8, D_MODEL, dtype=torch.float64)
    for _ in each_impl(attention):
        before, after = attention(x), attention(changed)
        torch.testing.assert_close(before[:, :12], after[:, :12], rtol=0, atol=1e-12)
        assert (before[:, 12:] - after[:, 12:]).abs().max() > 1e-3


@pairs
def test_padding_changes_nothing(case: str, causal: bool) -> None:
    """Neither what stands in padded places, as no number, nor how many of them there are; in gradients neither."""
    attention = build(case, length=24, causal=causal)
    x = torch.randn(1, 10, D_MODEL, dtype=torch.float64, requires_grad=True)
    leaves = [x, *attention.parameters()]
    for _ in each_impl(attention):
        alone = attention(x)
        gradients = torch.autograd.grad(alone.square().sum(), leaves)
        for before, after in [(0, 5), (5, 0), (3, 6)]:
            mask = pad(torch.ones(1, 10, dtype=torch.bool), (before, after))
            out = attention(pad(x, (0, 0, before, after), value=torch.nan), attention_mask=mask)
            out = out[:, before : before + 10]
            torch.testing.assert_close(out, alone, rtol=0, atol=1e-12)
            for one, other in zip(torch.autograd.grad(out.square().sum(), leaves), gradients, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@patterns
def test_a_token_without_keys_gives_zeros(case: str) -> None:
    attention = build(case, length=6)
    x = torch.randn(2, 6, D_MODEL, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0] = False
    forbidding = torch.zeros(1, 1, 6, 6, dtype=torch.float64)
    forbidding[:, :, 3] = -torch.inf
    for given, rows, without in (
        ({"attention_mask": mask}, (0, slice(None)), ()),
        ({"bias": forbidding}, (slice(None), 3), NO_BIAS),
    ):
        for _ in each_impl(attention, without=without):
            out = attention(x, **given)
            assert torch.equal(out[rows], attention.output.bias.expand_as(out[rows]))
            (gradient,) = torch.autograd.grad(out.square().sum(), x)
            assert gradient.isfinite().all()


@patterns
def test_order_comes_from_positions_not_from_place(case: str) -> None:
    """Explicit positions in order are those that are counted."""
    attention = build(case, length=15, causal=True, rope=True)
    x, counted, order = torch.randn(2, 15, D_MODEL, dtype=torch.float64), torch.arange(15), torch.randperm(15)
    for impl in each_impl(attention):
        expected = attention(x)
        for positions in (counted, counted.expand(2, -1)):
            torch.testing.assert_close(attention(x, positions=positions), expected, rtol=0, atol=1e-12)
        if impl not in NO_ORDER:
            shuffled = attention(x[:, order], positions=order)
            torch.testing.assert_close(shuffled, expected[:, order], rtol=0, atol=1e-12)


@pairs
def test_global_tokens_lift_windows_and_levels(case: str, causal: bool) -> None:
    """With every token global, a pattern is the full one; with one, its row and column are."""
    length = 14
    attention = build(case, length=length, causal=causal)
    x = torch.randn(2, length, D_MODEL, dtype=torch.float64)
    every = torch.ones(length, dtype=torch.bool)
    one = torch.zeros(2, length, dtype=torch.bool)
    one[0, 4] = one[1, 9] = True
    full = _as_full(attention, case)
    without = ("blocks",)  # takes no global tokens
    for _ in each_impl(attention, without=without):
        torch.testing.assert_close(attention(x, global_tokens=every), full(x), rtol=0, atol=1e-10)
        mixed = attention(x, global_tokens=one)
        torch.testing.assert_close(mixed[0, 4], full(x)[0, 4], rtol=0, atol=1e-10)
        torch.testing.assert_close(mixed[1, 9], full(x)[1, 9], rtol=0, atol=1e-10)
    arguments: dict[str, Any] = {"x": x.requires_grad_(), "attention_mask": None, "global_tokens": one}
    expected = value_and_gradients(attention, "reference", arguments)
    for impl in fast_impls(attention, without=without):
        assert_close(value_and_gradients(attention, impl, arguments), expected, 1e-10, impl=impl)


def _as_full(attention: Attention, case: str) -> Attention:
    """The same weights with the full pattern, or with a window over all where the pattern has a part of its own."""
    full = copy.deepcopy(attention)
    if isinstance(full.pattern, GlobalSlidingWindowPattern):
        full.pattern.window_part = SlidingWindowPattern(1000)
    elif not isinstance(full.pattern, FixedMixingPattern):  # which is a full one
        full.pattern = _LevelsInFull(CASES[case]) if case.startswith("mlr") else FullPattern()
    return full


class _LevelsInFull(FullPattern):
    """Every pair with all components, each level's scaled as the description says."""

    def __init__(self, description: dict[str, Any]) -> None:
        ranks, scaling = description["ranks"], description.get("scaling", "head")
        factors = {
            "head": [sum(ranks) ** -0.5] * len(ranks),
            "level": [r**-0.5 for r in ranks],
            "mup": [1 / r for r in ranks],
        }
        divisor = {"none": 1, "both": len(ranks) ** 2}.get(description.get("divide_by", "none"), len(ranks))
        self.factors = [f / divisor for f, rank in zip(factors[scaling], ranks, strict=True) for _ in range(rank)]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, call: PatternCall) -> Tensor:
        return super().__call__(q * q.new_tensor(self.factors), k, v, call.scaled(1 / call.scale))


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep", "uniform-grouped"])
def test_dropout_acts_in_training_only(case: str) -> None:
    torch.manual_seed(0)
    attention = build(case, length=12)
    attention.dropout = 0.5
    x = torch.randn(2, 12, D_MODEL, dtype=torch.float64)
    for _ in each_impl(attention, without=NO_DROPOUT):
        attention.eval()
        assert torch.equal(attention(x), attention(x))
        attention.train()
        assert not torch.equal(attention(x), attention(x))


def test_state_dict_holds_no_positions() -> None:
    """Weights trained at one length load at another."""
    for case in PATTERN_CASES:
        if case not in BOUND_TO_LENGTH:
            state = build(case, length=12, rope=True).state_dict()
            longer = build(case, length=96, rope=True, seed=1)
            longer.load_state_dict(state)
            assert all(torch.equal(value, state[name]) for name, value in longer.state_dict().items()), case
