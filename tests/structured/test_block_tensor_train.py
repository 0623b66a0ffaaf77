"""BTT matrices: the operator, its dense form, its special cases and its rank."""

from __future__ import annotations

import pytest
import torch

from tsattn.structured import BTT, block_sizes


def random_btt(width: int, rank: int, heads: int = 2) -> BTT:
    torch.manual_seed(width + rank)
    factors = BTT.random(width, rank, left_heads=heads, right_heads=heads)
    return BTT(factors.left.double(), factors.right.double(), rank)


@pytest.mark.parametrize(
    ("width", "sizes"),
    [(1, (1, 1, 1, 1)), (12, (3, 4, 3, 4)), (64, (8, 8, 8, 8)), (512, (16, 32, 16, 32)), (7, (1, 7, 1, 7))],
)
def test_block_sizes(width: int, sizes: tuple[int, ...]) -> None:
    assert block_sizes(width) == sizes


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 6, 7, 16, 48])
def test_every_product_is_that_of_the_dense_matrix(width: int, rank: int) -> None:
    matrix = random_btt(width, rank)
    dense = matrix.to_dense()
    x, y = torch.randn(3, 5, width, dtype=torch.float64), torch.randn(3, 4, width, dtype=torch.float64)
    torch.testing.assert_close(matrix.matmul(x), torch.einsum("hde,bne->bhnd", dense, x))
    torch.testing.assert_close(matrix.matmul_transposed(x), torch.einsum("hed,bne->bhnd", dense, x))
    two_sided = matrix.outer_transposed(x) @ matrix.inner(y).transpose(-1, -2)
    torch.testing.assert_close(two_sided, torch.einsum("bnd,hde,bme->bhnm", x, dense, y))


@pytest.mark.parametrize("width", [16, 48, 512])
def test_rank_one_factors_already_give_full_rank(width: int) -> None:
    assert torch.linalg.matrix_rank(random_btt(width, 1, heads=1).to_dense()[0]) == width


@pytest.mark.parametrize(("width", "rank"), [(64, 1), (512, 2), (48, 3)])
def test_number_of_parameters(width: int, rank: int) -> None:
    a, b, c, d = block_sizes(width)
    assert random_btt(width, rank, heads=3).num_params() == 3 * width * rank * (b + c)
    assert a * b == c * d == width


def test_equal_blocks_give_a_kronecker_product() -> None:
    left, right = torch.randn(3, 3, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    # one head; the b = 4 left blocks are all `left`, the c = 3 right blocks all `right` transposed
    matrix = BTT(left.expand(1, 4, 3, 3), right.T.expand(1, 3, 4, 4), rank=1)
    torch.testing.assert_close(matrix.to_dense()[0], torch.kron(left, right))


def test_random_factors_keep_the_scale_of_their_input() -> None:
    x = torch.randn(1, 400, 256)
    out = BTT.random(256, 2, left_heads=4, right_heads=4).matmul(x)
    assert 0.8 < out.std().item() < 1.2
