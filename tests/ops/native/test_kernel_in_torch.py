"""The native kernel as a part of PyTorch: dropout, derivatives of derivatives, compilation, threads, modes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ops.native.kernels_there import needs_kernels
from tsattn.attention import build_attention
from tsattn.errors import UserError
from tsattn.ops import executed_flops, full_attention, multilevel_attention, sliding_window_attention
from tsattn.ops.masks import RegularBlocks
from tsattn.ops.native.native_attention import (
    _NativeAttention,
    backward_operator,
    dropout_factors,
    forward_operator,
    plain_attention,
)
from tsattn.ops.native.query_intervals import regular_intervals

pytestmark = needs_kernels

REGULAR = RegularBlocks(0, 37, (1, 2, 8), None, 40)
RANKS = [3, 4, 1]


def inputs(bias: bool = True) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 37, 8), (2, 2, 37, 8), (2, 2, 37, 3), (4, 37, 37)]
    return [torch.randn(shape, generator=generator) for shape in (shapes if bias else shapes[:3])]


def both(causal: bool, dropout_p: float = 0.0, seed: Tensor | None = None) -> tuple[Callable[..., Tensor], ...]:
    intervals = regular_intervals(REGULAR, causal)
    assert not isinstance(intervals, str)
    intervals = intervals.for_rows(2)

    def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        return _NativeAttention.apply(q, k, v, bias, seed, (RANKS, 0.3, None, dropout_p), *intervals.tensors)[0]

    def plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        return plain_attention(q, k, v, bias, intervals, RANKS, 0.3, None, dropout_p, seed)

    return ours, plain


def derivatives(compute: Callable[..., Tensor], leaves: list[Tensor], order: int) -> tuple[Tensor, ...]:
    value = compute(*leaves).square().sum()
    found: tuple[Tensor, ...] = ()
    for number in range(order):
        found = torch.autograd.grad(value, leaves, create_graph=number + 1 < order)
        value = torch.stack([gradient.square().sum() for gradient in found]).sum()
    return found


@pytest.mark.parametrize(("order", "dropout_p", "causal"), [(1, 0.4, True), (2, 0.0, False), (2, 0.4, True)])
def test_dropout_and_derivatives_are_those_of_the_plain_form(order: int, dropout_p: float, causal: bool) -> None:
    seed = torch.tensor(12345678901234) if dropout_p else None
    ours, plain = both(causal, dropout_p, seed)
    found = derivatives(ours, [t.requires_grad_() for t in inputs()], order)
    expected = derivatives(plain, [t.double().requires_grad_() for t in inputs()], order)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=2e-5 * other.abs().max().item())


def test_what_is_dropped() -> None:
    """A share of the weights, other ones by head, query, key and seed, and the same ones again by the same seed."""
    for p in (0.1, 0.5, 0.9):
        kept = dropout_factors(8, 300, 200, p, 5)
        assert abs((kept == 0).double().mean().item() - p) < 0.005
        assert kept.max().item() == pytest.approx(1 / (1 - p))
        for dim in range(3):  # neighbours in a direction are no more alike than chance makes them
            alike = ((kept == 0) == (kept.roll(1, dim) == 0)).double().mean().item()
            assert abs(alike - (p**2 + (1 - p) ** 2)) < 0.01
    assert not torch.equal(dropout_factors(1, 50, 50, 0.5, 5), dropout_factors(1, 50, 50, 0.5, 6))
    q, k, v = inputs(bias=False)
    torch.manual_seed(3)
    outs = [full_attention(q, k, v, dropout_p=0.5, impl="native") for _ in range(2)]
    torch.manual_seed(3)
    assert torch.equal(full_attention(q, k, v, dropout_p=0.5, impl="native"), outs[0])
    assert not torch.equal(*outs)


def test_an_operator_as_torch_asks_for_it() -> None:
    intervals = regular_intervals(REGULAR, True)
    assert not isinstance(intervals, str)
    arguments = (*inputs(), intervals.for_rows(2).tensors, RANKS, 0.3, None, 0.0, None)
    utilities = ("test_schema", "test_faketensor")
    torch.library.opcheck(forward_operator, arguments, test_utils=utilities)
    grad_out, *kept = forward_operator(*arguments)
    torch.library.opcheck(
        backward_operator, (grad_out, *arguments[:4], grad_out, *kept, *arguments[4:], True), test_utils=utilities
    )


def row_by_row(compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.stack([torch.autograd.grad(one, leaf, retain_graph=True)[0] for one in compute(leaf)])


@pytest.mark.parametrize("wrt", [0, 3])
def test_a_jacobian_drops_what_the_forward_pass_dropped(wrt: int) -> None:
    given = inputs()

    def compute(x: Tensor) -> Tensor:
        torch.manual_seed(7)
        q, k, v, bias = [*given[:wrt], x, *given[wrt + 1 :]]
        return full_attention(q, k, v, bias=bias, dropout_p=0.5, impl="native")[:, 1, ::9].sum(-1).flatten()

    found = torch.func.jacrev(compute)(given[wrt])
    torch.testing.assert_close(found, row_by_row(compute, given[wrt]), rtol=1e-5, atol=1e-6)


def test_a_bias_of_a_batch_is_left_to_other_ways() -> None:
    q, k, v, bias = inputs()
    biases = torch.stack([bias, -bias])
    expected = torch.stack([full_attention(q, k, v, bias=one) for one in biases])
    torch.testing.assert_close(torch.func.vmap(lambda bias: full_attention(q, k, v, bias=bias))(biases), expected)
    with pytest.raises(UserError, match=r"impl native .* cannot run under torch.vmap, which reference can"):
        torch.func.vmap(lambda bias: full_attention(q, k, v, bias=bias, impl="native"))(biases)


@pytest.mark.parametrize("shape", [(1, 2, 1030), (3, 2, 70)])
def test_threads_change_no_bit(shape: tuple[int, int, int]) -> None:
    """Also where one head must be shared out among them."""
    B, heads, T = shape
    torch.manual_seed(0)
    leaves = [torch.randn(B, heads, T, 16, requires_grad=True) for _ in range(3)]
    positions = torch.arange(T)[None]
    blocks = torch.stack([positions * 0, positions * 4 // T, positions * 16 // T])

    def results() -> list[Tensor]:
        out = multilevel_attention(*leaves, ranks=[8, 4, 4], blocks=blocks, causal=True, impl="native")
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found += [results(), results()]
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(others, found[0], strict=True))


def test_what_is_kept_between_calls_is_of_no_mode() -> None:
    """Intervals made under inference, fake tensors or another device serve a training later."""
    attention = build_attention("mlr", d_model=16, num_heads=2, max_length=61)
    attention.impl = "native"
    x = torch.randn(3, 61, 16)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert attention(mode.from_tensor(x)).shape == x.shape
    with torch.inference_mode():
        inferred = attention(x)
    with torch.device("meta"):
        on_meta_by_default = attention(x)
    leaf = x.clone().requires_grad_()
    out = attention(leaf)
    out.sum().backward()
    assert torch.equal(out, inferred)
    assert torch.equal(out, on_meta_by_default)
    assert leaf.grad is not None


def test_flops_are_those_of_the_pairs() -> None:
    """Where the sizes are whole vectors: all pairs, about half of them where causal, prefixes by levels."""
    H, T, r, E = 2, 768, 16, 16
    q = torch.randn(1, H, T, r, requires_grad=True)
    pairs = H * T * T
    both_passes = executed_flops(lambda: full_attention(q, q, q, impl="native").sum().backward())
    assert both_passes == 2 * pairs * (r + E) + 2 * pairs * (3 * r + 2 * E)
    causal = executed_flops(lambda: full_attention(q, q, q, causal=True, impl="native"))
    assert pairs * (r + E) < causal < 1.2 * pairs * (r + E)
    positions = torch.arange(T)[None]
    blocks = torch.stack([positions * 0, positions * 2 // T])
    levels = executed_flops(lambda: multilevel_attention(q, q, q, ranks=[12, 4], blocks=blocks, impl="native"))
    assert levels == 2 * pairs * (12 + 4 / 2 + E)
    near = executed_flops(lambda: sliding_window_attention(q, q, q, window_size=33, impl="native"))
    assert near < pairs * (r + E) / 2, "a window's work grows with the length"
