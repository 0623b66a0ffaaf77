"""The classes against formulas that do not go through the family's own code."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from tests.structured.cases import CASES, Case, factors_of, generator, normal
from tsattn.attention import build_attention
from tsattn.errors import UserError
from tsattn.ops import executed_flops
from tsattn.structured import BTT, MLBTC, MLR, Level, LevelShape, MultiLevel, block_sizes, linear_operators


def transposition(rows: int, columns: int) -> torch.Tensor:
    """The permutation matrix that turns a flat `rows x columns` array into its transpose."""
    order = torch.arange(rows * columns).reshape(rows, columns).T.flatten()
    return torch.eye(rows * columns, dtype=torch.float64)[order]


def test_mlr_is_a_sum_of_block_diagonal_matrices() -> None:
    matrix = MLR.random(12, 6, (2, 1), (1, 3), dtype=torch.float64, generator=generator(0))
    blocks = [left @ right.T for left, right in zip(matrix.left[1], matrix.right[1], strict=True)]
    expected = matrix.left[0][0] @ matrix.right[0][0].T + torch.block_diag(*blocks)
    torch.testing.assert_close(matrix.to_dense(), expected)


def test_monarch_is_two_block_diagonals_between_transpositions() -> None:
    for a, b in ((2, 3), (1, 7)):
        left, right = normal(b, a, a), normal(a, b, b, seed=1)
        first = transposition(a, b) @ torch.block_diag(*right.transpose(1, 2))
        expected = transposition(b, a) @ torch.block_diag(*left) @ first
        torch.testing.assert_close(BTT(left, right).to_dense(), expected)


def test_a_kronecker_product_is_a_shuffled_level_of_equal_blocks() -> None:
    for left, right in (((3, 3), (4, 4)), ((2, 3), (6, 1))):
        one, other = normal(*left), normal(*right, seed=1)
        level = Level(one.expand(right[0], -1, -1), other.T.expand(left[1], -1, -1), shuffled=True)
        torch.testing.assert_close(MLBTC((level,)).to_dense(), torch.kron(one, other))


def test_the_pairing_of_block_sizes_decides_the_rank() -> None:
    assert block_sizes(512) == (16, 32, 16, 32)
    good = BTT.random(512, 1, left_heads=1, right_heads=1, generator=generator(0), dtype=torch.float64)
    assert good.rank_bound == 512
    assert torch.linalg.matrix_rank(good.to_dense()).item() == 512
    # (a, b, c, d) = (32, 16, 16, 32)
    poor = MLBTC.random(512, 512, [LevelShape(1, 16, 16, shuffled=True)], generator=generator(0), dtype=torch.float64)
    assert poor.rank_bound == 256
    assert torch.linalg.matrix_rank(poor.to_dense()).item() == 256


def test_the_fourier_transform_is_a_butterfly_a_product_of_such_factors() -> None:
    fourier = torch.fft.fft(torch.eye(16, dtype=torch.complex128))
    reverse = torch.tensor([int(f"{n:04b}"[::-1], 2) for n in range(16)])
    whole = BTT.project(fourier[:, reverse], 1)
    for dense in (fourier[:, reverse], whole.left, whole.right.mT):
        torch.testing.assert_close(BTT.project(dense, 1).to_dense(), dense, rtol=0, atol=1e-12)


def test_grouped_heads_of_the_two_sided_form() -> None:
    left = BTT.random(12, 2, left_heads=4, right_heads=2, generator=generator(0), dtype=torch.float64)
    keys = left.inner(normal(1, 5, 12))
    assert keys.shape == (1, 2, 5, 4 * 3 * 2)
    queries = left.outer_transposed(normal(1, 6, 12))
    whole = BTT(left.left, left.right.repeat_interleave(2, dim=0))
    expected = torch.einsum("bnd,hde,bme->bhnm", normal(1, 6, 12), whole.to_dense(), normal(1, 5, 12))
    torch.testing.assert_close(queries @ keys.repeat_interleave(2, dim=1).mT, expected)


def test_a_factor_shared_by_all_heads_is_applied_once() -> None:
    shared = BTT.random(12, 1, left_heads=4, right_heads=1, generator=generator(0), dtype=torch.float64)
    assert shared.heads == (4,)
    assert shared.num_params() == shared.left.numel() + shared.right.numel()
    assert shared.flops(5) == 2 * 5 * shared.num_params()


@pytest.mark.parametrize("case", CASES[::2], ids=lambda case: case.name)
def test_a_query_and_a_key_give_the_bilinear_form_which_mlbtc_contains(case: Case) -> None:
    matrix = case.random((3,), generator(0))
    assert isinstance(matrix, MultiLevel)
    x, y = normal(2, 5, matrix.shape[-2]), normal(2, 4, matrix.shape[-1], seed=1)
    scores = torch.einsum("bnd,hde,bme->bhnm", x, matrix.to_dense(), y)
    torch.testing.assert_close(matrix.outer_transposed(x) @ matrix.inner(y).mT, scores)
    general = MLBTC(tuple(matrix.levels))
    torch.testing.assert_close(general.to_dense(), matrix.to_dense(), rtol=0, atol=1e-14)
    assert general.rank_bound >= matrix.rank_bound


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: MLR.random(6, 6, (1, 1, 1)), "6 numbers does not split into 4"),
    (lambda: MLR.random(6, 6, (1, 1), (1, 2, 3)), r"blocks \[1, 2, 3\] must have one entry for each of the 2 ranks"),
    (lambda: MLR.random(6, 6, ()), "at least one level"),
    (lambda: MLR.random(6, 6, (0,)), "at least 1"),
    (lambda: MLR((normal(1, 6, 2),), (normal(1, 6, 3),)).to_dense(), "do not make a level"),
    (lambda: LevelShape(1, 2, 3), "as many left as right"),
    (lambda: Level(normal(2, 3, 4), normal(3, 2, 2), shuffled=True), "do not make a level"),
    (lambda: MLBTC(()), "at least one level"),
    (lambda: MLBTC.project(normal(6, 6), ()), "at least one level"),
    (lambda: BTT.project(normal(6, 7), 1), "square matrix is needed, not 6 x 7"),
]


def test_mistakes_are_named() -> None:
    for mistake, message in MISTAKES:
        with pytest.raises(UserError, match=message):
            mistake()


HEADS = [(), (3,), (2, 3)]
NAMES = ("matmul", "inner", "matmul_transposed", "outer_transposed")
# each class by one of the maps
TURNS = [(case, NAMES[turn], HEADS[turn % 3]) for turn, case in enumerate(CASES[::2])]


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
