"""A matrix that is formed first maps as its factors do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.structured.cases import CASES, SUMS, Case, factors_of, generator
from tsattn.attention import build_attention
from tsattn.ops import executed_flops
from tsattn.structured import linear_operators

HEADS = [(), (3,), (2, 3)]
NAMES = ("matmul", "inner", "matmul_transposed", "outer_transposed")
# each class by one of the maps, each map by several classes
TURNS = [
    (case, NAMES[turn % (4 if case in SUMS else 2) * (1 if case in SUMS else 2)], HEADS[turn % 3])
    for turn, case in enumerate(CASES[::3])
]


@pytest.mark.parametrize(("case", "name", "heads"), TURNS, ids=lambda one: getattr(one, "name", None) or str(one))
def test_both_ways_give_the_same_values_and_gradients(
    case: Case, name: str, heads: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = [factor.requires_grad_() for factor in factors_of(case.random(heads, generator(0)))]
    matrix = case.rebuild(*factors)
    width = matrix.shape[-2 if name in ("matmul_transposed", "outer_transposed") else -1]
    x = torch.randn(5, 9, width, dtype=torch.float64, generator=generator(1), requires_grad=True)
    inputs = [x, *factors]

    def found(formed: bool) -> list[Tensor]:
        monkeypatch.setattr(linear_operators, "is_formed", lambda *sizes: formed)
        y = getattr(matrix, name)(x)
        weights = torch.linspace(0, 1, y.numel(), dtype=torch.float64).view(y.shape)
        gradients = torch.autograd.grad((weights * y).sum(), inputs, allow_unused=True, materialize_grads=True)
        return [y, *gradients]

    torch.testing.assert_close(found(True), found(False))


def test_small_maps_of_many_vectors_are_formed() -> None:
    calls = []

    def apply(x: Tensor) -> Tensor:
        calls.append(x.shape)
        return x.unsqueeze(-3).expand(*x.shape[:-2], 2, *x.shape[-2:])

    many, few = torch.randn(8, 4, 6), torch.randn(5, 4, 6)
    for x, multiply_adds, shape in ((many, 18, (6, 6)), (many, 17, many.shape), (few, 18, few.shape)):
        assert torch.equal(linear_operators.mapped(apply, x, multiply_adds, 12), apply(x))
        assert calls.pop(0) == shape
        calls.clear()


def test_what_is_counted_are_the_flops_of_the_factors() -> None:
    attention = build_attention({"kind": "btt", "tt_rank": 2}, d_model=16, num_heads=4)
    x = torch.randn(4, 32, 16)

    def project() -> Tensor:
        q, k = attention.projection(x, x)
        return q.sum() + k.sum()

    assert executed_flops(project) == attention.projection.matrix.flops(4 * 32)
    with FlopCounterMode(display=False) as counter:
        project()
    assert counter.get_total_flops() == attention.projection.matrix.flops(4 * 32), "as any counter sees it"
