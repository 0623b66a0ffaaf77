"""Attention under PyTorch's transformations: `torch.func`, second derivatives, graphs, tensors without numbers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, grad, jvp, vmap

from tests.attention.cases import D_MODEL, build, each_impl, fast_impls
from tsattn.attention import Attention
from tsattn.errors import UserError

FEW = (
    "standard-grouped",
    "swa",
    "global_swa",
    "btt-query",
    "mlr-deep",
    "mlr-active",
    "uniform-grouped",
    "fixed_mixing-grouped",
)
# short, where `auto` writes scores out, and long, where it takes a fused path
LENGTHS = (24, 300)

cases = pytest.mark.parametrize("case", FEW)
LONG = ("swa", "mlr-deep")  # whose fused paths differ from those of short sequences
lengths = pytest.mark.parametrize(
    ("case", "length"), [*((case, LENGTHS[0]) for case in FEW), *((case, LENGTHS[1]) for case in LONG)]
)


def padding(length: int) -> Tensor:
    mask = torch.ones(2, length, dtype=torch.bool)
    mask[0, :5] = False
    return mask


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, D_MODEL, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def attempt(compute: Callable[[], Tensor], error: type[Exception] = UserError) -> Tensor | str:
    try:
        return compute()
    except error as refusal:
        return str(refusal)


def refused_or_close(attention: Attention, compute: Callable[[], Tensor], expected: Tensor) -> None:
    """A named implementation computes it or names one that does; `auto` and `reference` always compute it."""
    found = attempt(compute)
    if isinstance(found, str):
        assert attention.impl not in ("auto", "reference"), found
        assert "reference" in found
    else:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@lengths
def test_vmap_is_a_loop_and_gradients_are_those_of_autograd(case: str, length: int) -> None:
    causal = length == LENGTHS[0]
    attention = build(case, length=length, causal=causal, rope=case != "btt-query")
    rows, mask = tokens(2, 2, length), padding(length).expand(2, -1, -1).clone()
    parameters = dict(attention.named_parameters())
    mask[1, 1, -3:] = False
    seen = mask[..., None]
    for impl in each_impl(attention):
        leaves = [rows.clone().requires_grad_(), *parameters.values()]
        expected = torch.stack([attention(x) for x in leaves[0]])
        gradients = torch.autograd.grad(expected.square().sum(), leaves)
        torch.testing.assert_close(vmap(attention)(rows), expected, rtol=1e-9, atol=1e-9)
        found = [vmap(grad(lambda x: attention(x).square().sum()))(rows)]
        loss = lambda own: sum(functional_call(attention, own, (x,)).square().sum() for x in rows)  # noqa: E731
        found += grad(loss)(parameters).values()
        for one, other in zip(found, gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        masked = torch.stack([attention(x, attention_mask=m) for x, m in zip(rows, mask, strict=True)]) * seen
        compute = vmap(lambda x, m: attention(x, attention_mask=m))
        refused_or_close(attention, lambda compute=compute: compute(rows, mask) * seen, masked)
        if impl not in ("tiles", "blocks"):
            torch.testing.assert_close(compute(rows, mask) * seen, masked, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("case", "length"), [(case, LENGTHS[case == "swa"]) for case in FEW])
def test_forward_mode_and_derivatives_of_derivatives(case: str, length: int) -> None:
    attention = build(case, length=length)
    x, direction = tokens(2, length), tokens(2, length).flip(1)
    one = torch.ones((), dtype=torch.float64)

    def loss(size: Tensor) -> Tensor:
        total: Tensor = attention(size * x).square().sum()
        return total

    attention.impl = "reference"
    step = 1e-6
    numeric = (attention(x + step * direction) - attention(x - step * direction)) / (2 * step)
    expected = jvp(attention, (x,), (direction,))[1]
    torch.testing.assert_close(expected, numeric, rtol=1e-5, atol=1e-6)
    curvature = torch.func.hessian(loss)(one)
    for _ in each_impl(attention):
        refused_or_close(attention, lambda: jvp(attention, (x,), (direction,))[1], expected)
        refused_or_close(attention, lambda: torch.func.hessian(loss)(one), curvature)
        refused_or_close(attention, lambda: grad(grad(loss))(one), curvature)


@pytest.mark.parametrize(("case", "padded"), [(case, case in LONG) for case in (*FEW, "mlr")])
def test_shapes_without_numbers(case: str, padded: bool) -> None:
    """On the device `meta` and in fake tensors, by which tools plan memory and devices."""
    attention = build(case, length=40, dtype=torch.float32)
    x, mask = torch.randn(2, 40, D_MODEL), padding(40)
    hollow = copy.deepcopy(attention).to("meta")
    for impl in each_impl(attention):
        hollow.impl = impl

        def on_meta() -> Tensor:
            return hollow(x.to("meta"), attention_mask=mask.to("meta") if padded else None)

        def fake() -> Tensor:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                return copy.deepcopy(attention)(
                    mode.from_tensor(x), attention_mask=mode.from_tensor(mask) if padded else None
                )

        for compute in (on_meta, fake):
            out = attempt(compute)
            if isinstance(out, str):
                if impl == "native":  # not for lack of numbers alone
                    assert padded or compute is on_meta
                else:
                    assert padded
                    assert impl in ("tiles", "blocks")
                assert "reference" in out
            else:
                assert (out.shape, out.dtype) == (x.shape, x.dtype)
    attention.impl = "auto"
    torch.testing.assert_close(attention(x), build(case, length=40, dtype=torch.float32)(x))


@pytest.mark.parametrize(("case", "length"), [*((case, 24) for case in FEW), ("mlr-deep", 300)])
def test_second_derivatives(case: str, length: int) -> None:
    """All terms of them, where some weights are reached by the second derivative alone; of padded tokens for MLR."""
    attention, mask = build(case, length=length, causal=True), padding(length)
    more: dict[str, Any] = {"attention_mask": mask} if case == "mlr-deep" else {}

    def second(impl: str) -> tuple[Tensor, ...]:
        attention.impl = impl
        x = tokens(2, length).requires_grad_()
        out = attention(x, **more) * (mask[..., None] if more else 1.0)
        (gradient,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, attention.value.weight, attention.output.weight])

    expected = second("reference")
    for impl in ("auto", *fast_impls(attention)):
        for one, other in zip(second(impl), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-7)
