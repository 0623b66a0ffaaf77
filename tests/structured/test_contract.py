"""What every structured matrix must do, whatever its class."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.structured.cases import CASES, Case, factors_of, generator
from tsattn.structured import StructuredMatrix

pytestmark = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def member(case: Case, heads: tuple[int, ...] = ()) -> StructuredMatrix:
    return case.random(heads, generator(0))


def vectors(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator(1))


def test_products_transposes_numbers_and_ranks_are_those_of_the_dense_matrix(case: Case) -> None:
    heads = (2, 3)
    matrix = member(case, heads)
    dense = matrix.to_dense()
    assert dense.shape == matrix.shape
    assert matrix.shape[:-2] == heads
    rows, columns = matrix.shape[-2:]
    for lead in ((), (2,)):
        x, y = vectors(*lead, 5, columns), vectors(*lead, 5, rows)
        at = (..., None, None, slice(None), slice(None))
        torch.testing.assert_close(matrix.matmul(x), x[at] @ dense.mT)
        torch.testing.assert_close(matrix.matmul_transposed(y), y[at] @ dense)
    own = vectors(*heads, 4, columns)
    torch.testing.assert_close(matrix.apply(own), own @ dense.mT)
    assert matrix.num_params() == sum(factor.numel() for factor in factors_of(matrix)) == 6 * case.params
    assert matrix.rank_bound == case.rank
    assert torch.linalg.matrix_rank(dense).unique().tolist() == [case.rank]
    transposed = matrix.T
    assert isinstance(transposed, StructuredMatrix)
    torch.testing.assert_close(transposed.to_dense(), matrix.to_dense().mT)
    torch.testing.assert_close(transposed.T.to_dense(), matrix.to_dense())
    assert transposed.num_params() == matrix.num_params()
    assert transposed.rank_bound == matrix.rank_bound


def test_flops_are_those_that_the_counter_sees_and_scales_are_kept(case: Case) -> None:
    matrix, batch = member(case, (3,)), 2
    x = vectors(batch, 500, matrix.shape[-1])  # so many that it is formed where nothing counts
    with FlopCounterMode(display=False) as counter:
        matrix.matmul(x)
    # einsum multiplies blocks of one input elementwise, and the counter counts matrix products only
    factors = [factor for product in matrix.products for factor in product.factors]
    uncounted = sum(factor.multiply_adds for factor in factors if factor.blocks.shape[-1] == 1)
    assert matrix.flops(batch * 500) == counter.get_total_flops() + 2 * batch * 500 * 3 * uncounted
    # two a number and use
    uses = sum(f.source.blocks * f.blocks[0, 0].numel() for f in factors)
    assert matrix.flops(7) == 3 * 7 * 2 * uses
    matrix = case.random((2000,), generator(2))
    x = vectors(20, matrix.shape[-1])
    assert 0.9 < (matrix.matmul(x).square().mean() / x.square().mean()).item() < 1.1


def test_gradients_heads_and_shapes(case: Case) -> None:
    heads = (2,)
    factors = [factor.clone().requires_grad_() for factor in factors_of(member(case, heads))]
    x = vectors(1, 2, member(case).shape[-1]).requires_grad_()

    def through(x: torch.Tensor, *factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        matrix = case.rebuild(*factors)
        return matrix.matmul(x), matrix.T.to_dense()

    torch.testing.assert_close(case.rebuild(*factors).to_dense(), member(case, heads).to_dense())
    # fast mode: random projections of the Jacobian, so that wide members take no longer than narrow ones
    assert torch.autograd.gradcheck(through, (x, *factors), fast_mode=True)

    # no head sees another, and shapes are right without numbers
    factors = factors_of(member(case, (3,)))
    whole = case.rebuild(*factors).to_dense()
    torch.testing.assert_close(whole[1], case.rebuild(*(factor[1] for factor in factors)).to_dense())
    matrix = case.rebuild(*(factor.to("meta") for factor in factors))
    x = torch.empty(2, 4, matrix.shape[-1], device="meta", dtype=torch.float64)
    assert matrix.matmul(x).shape == (2, 3, 4, matrix.shape[-2])
