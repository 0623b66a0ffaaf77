"""Dropout: what is dropped, its derivatives, and where PyTorch's own stands for the kernel."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import BaseTorchFunctionMode

from tests.ops.native.kernels_there import needs_kernels
from tsattn.ops.dropout import dropout, dropout_operator, dropout_reference, native_dropout_left
from tsattn.ops.modes import function_of
from tsattn.ops.native.kernel_compiler import sets_of_this_cpu
from tsattn.ops.native.kernel_problem import kept_numbers, philox
from tsattn.ops.native.library import kernels_taken
from tsattn.ops.native.record import kernels_as_noted, kernels_in_use

DTYPES = (torch.float32, torch.bfloat16)
FEW = (0, 1, 31, 33, 100)
MANY = ((2**15 + 33, *DTYPES, True), (70001, *DTYPES[::-1], False))


def mask(seed: int, count: int, p: float) -> Tensor:
    out: Tensor = dropout_operator(torch.ones(count), None, p, torch.tensor(seed), torch.float32)
    return out != 0


# of Random123, by the authors of the source
KNOWN = [
    (0, [0, 0, 0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (2**64 - 1, [2**32 - 1] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        0x299F31D0A4093822,
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_the_generator_gives_the_known_answers() -> None:
    for seed, counter, words in KNOWN:
        assert philox(seed, np.array([counter], dtype=np.uint32)).tolist() == [words]


@needs_kernels
@pytest.mark.parametrize("name", [one.name for one in sets_of_this_cpu()])
def test_every_instruction_set_is_as_the_reference(name: str) -> None:
    torch.manual_seed(0)
    with kernels_taken(name):
        for count, dtype, out_dtype, added in (*product(FEW, DTYPES, DTYPES, (False, True)), *MANY):
            x, seed = torch.randn(count).to(dtype), torch.randint(2**62, ())
            residual = torch.randn(count).to(out_dtype) if added else None
            found = dropout_operator(x, residual, 0.3, seed, out_dtype)
            expected = dropout_reference(x.float(), 0.3, int(seed), None if residual is None else residual.float())
            assert found.dtype == out_dtype
            torch.testing.assert_close(found, expected.to(out_dtype), rtol=None, atol=None)
            if not added:
                assert torch.equal(found != 0, expected != 0)


@needs_kernels
def test_any_number_of_threads_drops_the_same() -> None:
    x, seed = torch.randn(200_001), torch.tensor(3)
    expected = dropout_operator(x, None, 0.3, seed, torch.float32)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert torch.equal(dropout_operator(x, None, 0.3, seed, torch.float32), expected)
    finally:
        torch.set_num_threads(before)


@needs_kernels
@pytest.mark.parametrize("p", [0.05, 0.999])
def test_as_many_are_dropped_as_should_be(p: float) -> None:
    count = 2**20
    kept = int(mask(11, count, p).sum())
    deviation = (kept - count * (1 - p)) / (count * p * (1 - p)) ** 0.5
    assert abs(deviation) < 4
    # by place in what a vector holds, and by stretch
    by_place = mask(12, count, p).view(-1, 32).float().mean(0)
    assert float((by_place - (1 - p)).abs().max()) < 5 * (p * (1 - p) / (count / 32)) ** 0.5


def independent(one: Tensor, other: Tensor) -> float:
    """The probability of a table of two masks that is as far from independence, or further, by chi-square."""
    table = torch.bincount(2 * one.long() + other.long(), minlength=4).view(2, 2)
    return float(stats.chi2_contingency(table.numpy(), correction=False).pvalue)


@needs_kernels
def test_what_is_dropped_here_says_nothing_of_what_is_dropped_there() -> None:
    count, p = 2**18, 0.5
    kept = mask(5, count, p)
    apart = {
        distance: independent(kept[:-distance], kept[distance:]) for distance in (1, 2, 3, 8, 16, 32, 33, 64, 4096)
    }
    # of calls whose seeds are neighbours, differ in one high bit, or are what torch draws one after the other
    torch.manual_seed(0)
    seeds = [6, 5 + 2**31, 5 + 2**32, 5 + 2**61, *torch.randint(2**62, (4,)).tolist()]
    calls = {seed: independent(kept, mask(seed, count, p)) for seed in seeds}
    probabilities = [*apart.values(), *calls.values()]
    assert min(probabilities) > 1e-3 / len(probabilities), (apart, calls)


def derivatives(run: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, the gradient for random ones of the outputs over these, and the derivative of that for them."""
    x = x.clone().requires_grad_()
    out = run(x)
    grad_out = torch.rand_like(out).add_(1).requires_grad_()
    (grad,) = torch.autograd.grad(out, x, grad_out, create_graph=True)
    (second,) = torch.autograd.grad(grad, grad_out, torch.ones_like(grad))
    return out.detach(), (grad / grad_out).detach(), second


@needs_kernels
@pytest.mark.parametrize(("shape", "dtype"), [*zip([(), (1,), (3, 5), (2, 33, 31)], DTYPES * 2, strict=True)])
def test_derivatives_drop_what_the_outputs_drop(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.rand(shape) + 1).to(dtype)
    out, grad, second = derivatives(lambda x: dropout(x, 0.4), x)
    factors = (out != 0) / 0.6
    rtol = 1e-6 if dtype == torch.float32 else 2e-2
    for found, expected in ((out, x * factors), (grad, factors), (second, factors)):
        assert found.dtype == dtype
        assert found.shape == shape
        torch.testing.assert_close(found.float(), expected.float(), rtol=rtol, atol=0)


@needs_kernels
@pytest.mark.parametrize(
    ("dtype", "of_residual", "shape"),
    [*zip(DTYPES * 2, (*DTYPES, *DTYPES[::-1]), [(7, 41), (41,), (1, 41), (3, 7, 41)], strict=True)],
)
def test_a_residual_is_added(dtype: torch.dtype, of_residual: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(7, 41).to(dtype).requires_grad_()
    residual = torch.randn(shape).to(of_residual).requires_grad_()
    torch.manual_seed(1)
    out = dropout(x, 0.3, residual=residual)
    torch.manual_seed(1)
    expected = residual + dropout(x, 0.3)
    assert out.dtype == expected.dtype
    torch.testing.assert_close(out, expected, rtol=1e-6 if out.dtype == torch.float32 else 1e-2, atol=1e-2)
    grad = torch.randn(out.shape).to(out.dtype)
    for found, wanted in zip(*(torch.autograd.grad(t, (x, residual), grad) for t in (out, expected)), strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted)


@needs_kernels
def test_how_numbers_lie_in_memory_changes_nothing() -> None:
    x = torch.randn(6, 5, 40)
    spread = torch.randn(1, 1, 40).expand(6, 5, 40)
    for dense, strided in ((x, x.permute(2, 0, 1).contiguous().permute(1, 2, 0)), (spread.contiguous(), spread)):
        assert not strided.is_contiguous()
        found = []
        for t in (dense, strided):
            torch.manual_seed(2)
            leaf = t.detach().requires_grad_()
            out = dropout(leaf, 0.3, residual=leaf)
            # a gradient that is one number, spread
            found.append((out.detach(), *torch.autograd.grad(out.sum(), leaf)))
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@needs_kernels
def test_no_mask_is_kept() -> None:
    kept: list[Tensor] = []
    x, residual = (torch.randn(100, 100, requires_grad=True) for _ in range(2))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        dropout(x, 0.3, residual=residual)
    assert sum(t.nbytes for t in kept) == 8, "the seed alone"


@pytest.mark.parametrize("kernels", ["auto", "off"])
def test_without_dropping_it_is_what_came_in(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSATTN_KERNELS", kernels)
    x, state = torch.randn(5, requires_grad=True), torch.get_rng_state()
    assert dropout(x, 0.0) is x
    assert dropout(x, 0.5, training=False) is x
    assert torch.equal(dropout(x, 0.0, residual=x), x + x)
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn"
    for wrong in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"must lie in \[0, 1\)"):
            dropout(x, wrong)


def of_torch(x: Tensor) -> Tensor:
    torch.manual_seed(4)
    return F.dropout(x, 0.3)


def ours(x: Tensor) -> Tensor:
    torch.manual_seed(4)
    return dropout(x, 0.3)


@needs_kernels
def test_a_run_from_before_resumes_with_that_of_torch() -> None:
    x = torch.randn(100)
    noted = kernels_in_use()
    assert noted["dropout"] is True
    with kernels_as_noted(noted):
        assert not torch.equal(ours(x), of_torch(x))
    del noted["dropout"]
    for before in (noted, {"set": "off"}, None):
        with kernels_as_noted(before):
            assert torch.equal(ours(x), of_torch(x))
    for other in (x.double(), x.half()):  # other types are left to torch
        assert torch.equal(ours(other), of_torch(other))
    with kernels_as_noted(noted):
        assert kernels_in_use()["dropout"] is False
    assert not torch.equal(ours(x), of_torch(x))


def test_under_transformations_it_is_that_of_torch() -> None:
    x = torch.randn(4, 50)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(lambda x: dropout(x, 0.3))(x)
    different = torch.func.vmap(lambda x: dropout(x, 0.3), randomness="different")(torch.ones(4, 50))
    assert not torch.equal(different[0], different[1])
    same = torch.func.vmap(lambda x: dropout(x, 0.3), randomness="same")(torch.ones(4, 50))
    assert torch.equal(same[0], same[1])
    beside = torch.func.vmap(lambda y: dropout(x[0], 0.3) + 0 * y.sum(), randomness="different")(x)
    assert beside.shape == (4, 50)
    assert torch.equal(torch.func.grad(lambda x: ours(x).sum())(x), (of_torch(x) != 0) / (1 - 0.3))
    tangent = torch.func.jvp(ours, (x,), (x,))[1]
    assert torch.equal(tangent, of_torch(x))


def test_fake_and_meta_tensors_have_its_shape() -> None:
    assert dropout(torch.empty(3, 4, device="meta"), 0.3).shape == (3, 4)
    with torch.device("meta"):  # says where new tensors are
        assert dropout(torch.ones(3, device="cpu"), 0.3).device.type == "cpu"
    with FakeTensorMode():
        x = torch.randn(4, 3).T.requires_grad_()
        out = dropout(x, 0.3, residual=x)
        assert isinstance(out, FakeTensor)
        assert out.shape == (3, 4)
        assert torch.autograd.grad(out.sum(), x)[0].shape == (3, 4)


@needs_kernels
def test_a_mode_that_looks_on_and_gradients_in_batches_change_no_number() -> None:
    x, residual, grads = torch.randn(4, 33, requires_grad=True), torch.randn(4, 33), torch.randn(3, 4, 33)

    def run(sign: int = 1) -> Tensor:
        torch.manual_seed(1)
        out = dropout(x, 0.3, residual=residual if sign > 0 else torch._neg_view(-residual))
        each = [torch.autograd.grad(out, x, grad, retain_graph=True)[0] for grad in grads]
        assert torch.equal(torch.stack(each), torch.autograd.grad(out, x, grads, is_grads_batched=True)[0])
        return torch.stack([out, *each])

    given = (None, residual, grads.as_subclass(type("Other", (Tensor,), {})))
    assert [function_of(dropout_operator, x, one) is dropout_operator for one in given] == [False, False, True]
    with BaseTorchFunctionMode():
        assert function_of(dropout_operator, x) is dropout_operator
        seen = run()
    assert all(torch.equal(seen, run(sign)) for sign in (1, -1))


@needs_kernels
def test_the_operator_of_dropout_keeps_the_rules_of_operators() -> None:
    x, seed = torch.randn(5, 7, requires_grad=True), torch.tensor(5)
    for residual, dtype in ((None, torch.float32), (x.detach().bfloat16().requires_grad_(), torch.bfloat16)):
        torch.library.opcheck(dropout_operator, (x, residual, 0.3, seed, dtype))


@needs_kernels
@pytest.mark.slow
def test_it_is_a_node_of_a_compiled_graph() -> None:
    torch._dynamo.reset()
    counters.clear()

    def run(x: Tensor, residual: Tensor) -> Tensor:
        return dropout(x.exp(), 0.3, residual=residual).square()

    compiled = torch.compile(run, dynamic=True, fullgraph=True)
    for length in (40, 70):
        x, residual = (torch.rand(length, 9, requires_grad=True) for _ in range(2))
        out = compiled(x, residual)
        grad, of_residual = torch.autograd.grad(out.sum(), (x, residual))
        kept = grad != 0
        assert 0.5 < float(kept.float().mean()) < 0.9
        inner = residual + kept * x.exp() / 0.7
        for found, expected in ((out, inner**2), (of_residual, 2 * inner), (grad, 2 * inner * kept * x.exp() / 0.7)):
            torch.testing.assert_close(found, expected)
    assert counters["stats"]["unique_graphs"] == 1
    assert not torch.equal(compiled(x, residual), compiled(x, residual))


@needs_kernels
def test_dropout_left_to_torch_comes_back() -> None:
    x = torch.ones(200)
    with native_dropout_left():
        assert torch.equal(ours(x), of_torch(x))
    torch.manual_seed(4)
    seed = int(torch.randint(2**62, ()))
    assert torch.equal(ours(x) != 0, torch.from_numpy(kept_numbers(seed, 200, 0.3)))
