"""The Triton kernel of multi-level attention, under Triton's interpreter, or on a CUDA device where there is one."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

from tsattn.ops import multilevel_triton
from tsattn.ops.multilevel import multilevel_attention_reference
from tsattn.ops.multilevel_triton import TileSizes, chunk_widths, multilevel_attention_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(
    not multilevel_triton.triton_available(), reason="Triton is not installed, so its multi-level kernel is not tested"
)
EIGHT = (32, 8, 6, 4, 4, 4, 4, 2)
DOUBLING = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Case:
    """Shapes and options of one comparison; `tiles` are tokens in a tile of the program and in those it walks."""

    tokens: int
    keys: int | None = None
    ranks: tuple[int, ...] = EIGHT
    counts: tuple[int, ...] = DOUBLING
    max_length: int | None = None
    batch: int = 1
    heads: int = 1
    groups: int = 1
    width: int = 24
    causal: bool = False
    padded: bool = False
    tiles: tuple[int, int] = (32, 16)
    dtype: torch.dtype = torch.float32
    scale: float | None = None

    @property
    def sources(self) -> int:
        return self.tokens if self.keys is None else self.keys


def make_blocks(counts: tuple[int, ...], positions: Tensor, max_length: int) -> Tensor:
    """`(L, B, T)` blocks by number from `(B, T)` positions."""
    return torch.stack([positions * count // max_length for count in counts])


def check_case(
    case: Case,
    monkeypatch: pytest.MonkeyPatch | None = None,
    *,
    query_blocks: Tensor | None = None,
    key_blocks: Tensor | None = None,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    key_mask: Tensor | None = None,
    global_queries: Tensor | None = None,
    global_keys: Tensor | None = None,
    tensors: tuple[Tensor, Tensor, Tensor] | None = None,
    tolerance: float | None = None,
) -> tuple[Tensor, ...]:
    """Hold values and gradients against the reference in float32; return what the kernel gave."""
    if monkeypatch is not None:
        sizes = TileSizes(*case.tiles, warps=4, stages=2)
        monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: sizes)
    generator = torch.Generator().manual_seed(case.tokens)
    B, H, G, N, S, r = case.batch, case.heads, case.groups, case.tokens, case.sources, sum(case.ranks)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(DEVICE, case.dtype)

    q, k, v = tensors or (draw(B, H, N, r), draw(B, G, S, r), draw(B, G, S, case.width))
    longest = case.max_length or max(N, S)
    if query_blocks is None:
        query_blocks = make_blocks(case.counts, torch.arange(N)[None], longest)
    if key_blocks is None:
        key_blocks = make_blocks(case.counts, torch.arange(S)[None], longest)
    query_blocks, key_blocks = query_blocks.to(DEVICE), key_blocks.to(DEVICE)
    if case.padded:
        first = torch.tensor([S // 3, *range(B - 1)])
        key_mask = torch.arange(S)[None] >= first[:, None]
    key_mask = None if key_mask is None else key_mask.to(DEVICE)
    scale = r**-0.5 if case.scale is None else case.scale

    allowed = None if key_mask is None else key_mask[:, None, None]
    if case.causal:
        rows = torch.arange(N)[None] if query_positions is None else query_positions
        columns = torch.arange(S)[None] if key_positions is None else key_positions
        past = (columns[:, None] <= rows[:, :, None])[:, None].to(DEVICE)
        allowed = past if allowed is None else allowed & past
    leaves = [t.detach().requires_grad_() for t in (q, k, v)]
    exact = [t.detach().float().requires_grad_() for t in (q, k, v)]
    out = multilevel_attention_triton(
        leaves[0],
        leaves[1],
        leaves[2],
        ranks=case.ranks,
        query_blocks=query_blocks,
        key_blocks=key_blocks,
        causal=case.causal,
        query_positions=None if query_positions is None else query_positions.to(DEVICE),
        key_positions=None if key_positions is None else key_positions.to(DEVICE),
        key_mask=key_mask,
        global_queries=None if global_queries is None else global_queries.to(DEVICE),
        global_keys=None if global_keys is None else global_keys.to(DEVICE),
        scale=case.scale,
    )
    expected = multilevel_attention_reference(
        exact[0],
        exact[1],
        exact[2],
        ranks=case.ranks,
        query_blocks=query_blocks,
        key_blocks=key_blocks,
        global_queries=None if global_queries is None else global_queries.to(DEVICE),
        global_keys=None if global_keys is None else global_keys.to(DEVICE),
        allowed=allowed,
        bias=None,
        scale=scale,
        dropout_p=0.0,
    )
    assert out.dtype == case.dtype
    assert out.shape == (B, H, N, v.shape[-1])
    weights = draw(*out.shape)
    got = (out.detach(), *torch.autograd.grad(out, leaves, weights))
    want = (expected.detach(), *torch.autograd.grad(expected, exact, weights.float()))
    tolerance = tolerance or (1e-5 if case.dtype == torch.float32 else 2e-2)
    for name, mine, right in zip(("out", "grad q", "grad k", "grad v"), got, want, strict=True):
        # what is exactly zero (the gradient of q for one key) is a difference of numbers of order one
        largest = max(float(right.abs().max()), 0.5)
        assert torch.isfinite(mine).all(), name
        assert float((mine.float() - right).abs().max()) <= tolerance * largest, name
    return got


@needs_triton
@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 33, 96, 97])
@pytest.mark.parametrize(("causal", "padded"), [(False, False), (True, False), (False, True), (True, True)])
def test_equals_the_reference_at_every_length(
    tokens: int, causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, counts = (((8, 6, 4, 2), (1, 2, 6, 12)), ((12,), (1,)))[tokens == 33]
    case = Case(tokens, ranks=ranks, counts=counts, causal=causal, padded=padded, batch=1 + padded)
    check_case(case, monkeypatch)


@needs_triton
@pytest.mark.parametrize(("causal", "padded"), [(False, False), (True, True)])
@pytest.mark.parametrize("tiles", [(32, 16), (16, 32)])
def test_eight_levels_use_every_kind_of_tile(
    tiles: tuple[int, int], causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_case(Case(130, causal=causal, padded=padded, tiles=tiles, max_length=160), monkeypatch)


@needs_triton
def test_the_sizes_used_in_earnest_are_exact_too() -> None:
    check_case(Case(130, causal=True))
    check_case(Case(140, dtype=torch.bfloat16))


@needs_triton
@pytest.mark.parametrize(
    ("ranks", "counts"),
    [
        ((20,), (1,)),
        ((5, 3, 4), (2, 6, 18)),
        ((16, 16), (3, 9)),
        ((3,) * 8, DOUBLING),
        ((40, 20, 10), (1, 3, 6)),
        ((2, 30), (1, 4)),
        ((16, 16, 16, 16), (1, 2, 4, 8)),
    ],
)
def test_ranks_and_blocks(ranks: tuple[int, ...], counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(Case(50, ranks=ranks, counts=counts, causal=len(ranks) == 3), monkeypatch)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision(dtype: torch.dtype, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(Case(65, dtype=dtype, causal=causal, padded=causal, ranks=(8, 6, 4), counts=(1, 2, 4)), monkeypatch)


@needs_triton
@pytest.mark.parametrize(("tokens", "keys"), [(40, 70), (70, 40), (1, 50)])
def test_more_keys_or_more_queries(tokens: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tokens, keys, ranks=(8, 4), counts=(1, 2), causal=True)
    check_case(case, monkeypatch, query_positions=torch.arange(tokens)[None] + max(0, keys - tokens))


@needs_triton
def test_grouped_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(Case(40, heads=6, groups=2, ranks=(8, 4), counts=(1, 2)), monkeypatch)
    check_case(Case(40, heads=2, groups=2, ranks=(8, 4), counts=(1, 2)), monkeypatch)


@needs_triton
def test_rows_with_blocks_and_positions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = torch.tensor([[0], [13]])
    positions = torch.arange(50)[None] + shift
    blocks = make_blocks((1, 3, 9), positions, 90)
    case = Case(50, ranks=(8, 6, 4), counts=(1, 3, 9), causal=True, padded=True, batch=2)
    check_case(
        case, monkeypatch, query_blocks=blocks, key_blocks=blocks, query_positions=positions, key_positions=positions
    )
    check_case(case, monkeypatch, query_blocks=blocks, key_blocks=blocks[:, 1:], query_positions=positions)


@needs_triton
def test_positions_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = torch.randperm(50, generator=torch.Generator().manual_seed(0))[None]
    case = Case(50, ranks=(8, 6, 4), counts=(1, 3, 9), causal=True)
    blocks = make_blocks(case.counts, positions, 50)
    check_case(
        case, monkeypatch, query_blocks=blocks, key_blocks=blocks, query_positions=positions, key_positions=positions
    )


@needs_triton
def test_blocks_that_do_not_nest_and_ids_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    time = torch.arange(50)
    blocks = torch.stack([time // 30, time // 7, time % 2])[:, None]
    check_case(Case(50, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=blocks, key_blocks=blocks)
    far = blocks + 2**40
    check_case(Case(33, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=far[..., :33],
            key_blocks=far[..., :33])  # fmt: skip
    narrow = blocks.to(torch.int32)
    check_case(Case(33, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=narrow[..., :33],
            key_blocks=narrow[..., :33])  # fmt: skip


@needs_triton
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 2])
def test_global_tokens_share_every_level(rows: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(70, ranks=(8, 6, 4), counts=(2, 4, 12), batch=2, causal=causal, padded=True)
    everywhere = torch.zeros(rows, 70, dtype=torch.bool)
    everywhere[0, [3, 40]] = True
    everywhere[-1, 16:32] = True  # a whole tile
    check_case(case, monkeypatch, global_queries=everywhere, global_keys=everywhere)
    check_case(case, monkeypatch, global_queries=everywhere, global_keys=torch.zeros_like(everywhere))


@needs_triton
def test_a_query_without_keys_gives_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[0] = False
    mask[1, :9] = False
    case = Case(40, ranks=(8, 4), counts=(1, 2), causal=True, batch=2)
    out, grad_q, grad_k, grad_v = check_case(case, monkeypatch, key_mask=mask)
    for t in (out, grad_q, grad_k, grad_v):
        assert not t[0].any()
        assert not t[1, :, :9].any()


@needs_triton
@pytest.mark.parametrize("causal", [False, True])
def test_logits_of_ten_thousand_stay_finite(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (100 * torch.randn(1, 1, 40, 12, generator=generator).to(DEVICE) for _ in range(2))
    v = torch.randn(1, 1, 40, 8, generator=generator).to(DEVICE)
    case = Case(40, ranks=(8, 4), counts=(1, 2), width=8, causal=causal, scale=1.0)
    # such weights are 0 or 1, so that only rounding is left of the gradients of q and k, times 100
    check_case(case, monkeypatch, tensors=(q, k, v), tolerance=2e-2)


@needs_triton
@pytest.mark.parametrize("scale", [0.3, 0.0, -0.5])
def test_any_scale(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(Case(33, ranks=(8, 4), counts=(1, 2), scale=scale), monkeypatch)


@needs_triton
def test_inputs_that_are_views(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    case = Case(40, ranks=(8, 4), counts=(1, 2), batch=2, heads=2, groups=2, width=12)
    wide = torch.randn(2, 40, 3, 2, 12, generator=generator).to(DEVICE)
    q, k, v = wide.permute(2, 0, 3, 1, 4)  # heads inside tokens, all three in one tensor
    check_case(case, monkeypatch, tensors=(q, k, v))
    turned = torch.randn(2, 2, 12, 40, generator=generator).to(DEVICE).transpose(-1, -2)
    one = torch.randn(1, 1, 40, 12, generator=generator).to(DEVICE).expand(2, 2, 40, 12)
    every_other = torch.randn(4, 2, 40, 12, generator=generator).to(DEVICE)[::2]
    check_case(case, monkeypatch, tensors=(turned, one, every_other))


@needs_triton
def test_an_expanded_output_gradient_and_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(16, 16, 4, 2))
    q, k, v = (torch.ones(1, 1, 20, 4, device=DEVICE, requires_grad=True) for _ in range(3))
    ids = torch.zeros(1, 1, 20, dtype=torch.long, device=DEVICE)
    multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids).sum().backward()
    assert v.grad is not None
    torch.testing.assert_close(v.grad, torch.ones_like(v))
    with torch.no_grad():
        assert not multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids).requires_grad


@needs_triton
def test_the_same_twice_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(40, ranks=(8, 6, 4), counts=(1, 2, 4), heads=2, groups=1, causal=True)
    for first, second in zip(check_case(case, monkeypatch), check_case(case, monkeypatch), strict=True):
        assert torch.equal(first, second)


@needs_triton
def test_compiled_whole_for_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(32, 16, 4, 2))

    def attend(q: Tensor, k: Tensor, v: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        return multilevel_attention_triton(
            q, k, v, ranks=(8, 4), query_blocks=ids, key_blocks=ids, causal=True, key_mask=mask, scale=0.3
        )

    torch._dynamo.reset()
    compiled = torch.compile(attend, backend="aot_eager", dynamic=True, fullgraph=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for tokens in (40, 33, 65):
            wide = torch.randn(3, 2, tokens, 2, 12, device=DEVICE).transpose(2, 3)  # heads inside tokens
            ids = make_blocks((1, 4), torch.arange(tokens)[None], tokens).to(DEVICE)
            mask = (torch.arange(tokens) > 2)[None].to(DEVICE)
            results = []
            for run in (compiled, attend):
                leaves = [t.detach().requires_grad_() for t in wide]
                out = run(*leaves, ids, mask)
                results.append([out.detach(), *torch.autograd.grad(out.square().sum(), leaves)])
            for one, other in zip(*results, strict=True):
                torch.testing.assert_close(one, other)


OFFLINE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

class Hopper:
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_current_device = staticmethod(lambda: 0)
    get_current_stream = staticmethod(lambda device=0: 0)

driver.set_active(Hopper())
from tsattn.ops import multilevel_triton

run = JITFunction.run

def compile_only(self, *arguments, grid, warmup, **options):
    kernel = run(self, *arguments, grid=grid, warmup=True, **options)
    print(self.__name__, "cubin" in kernel.asm)
    return kernel

JITFunction.run = compile_only
multilevel_triton._check = lambda *_: None  # which wants tensors on a GPU
for dtype in (torch.bfloat16, torch.float32):
    q, k, v = (torch.zeros(1, 2, 256, 64, dtype=dtype, requires_grad=True) for _ in range(3))
    ids = torch.zeros(8, 1, 256, dtype=torch.long)
    mask = torch.ones(1, 256, dtype=torch.bool)
    out = multilevel_triton.multilevel_attention_triton(
        q, k, v, ranks=(32, 8, 6, 4, 4, 4, 4, 2), query_blocks=ids, key_blocks=ids, causal=True, key_mask=mask,
        global_queries=mask, global_keys=mask
    )
    out.sum().backward()
"""


@needs_triton
@pytest.mark.slow
def test_every_kernel_compiles_for_hopper() -> None:
    """Without a GPU: what the interpreter runs may still not compile."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", OFFLINE], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    kernels = ("_ranges_kernel", "_plan_kernel", "forward_kernel", "queries_kernel", "keys_kernel")
    for kernel in kernels:
        assert done.stdout.count(f"{kernel} True") >= 2
    assert "False" not in done.stdout


@needs_triton
def test_no_tokens() -> None:
    q = torch.ones(1, 1, 3, 4, device=DEVICE, requires_grad=True)
    empty = torch.ones(1, 1, 0, 4, device=DEVICE)
    ids = torch.zeros(1, 1, 3, dtype=torch.long, device=DEVICE)
    out = multilevel_attention_triton(q, empty, empty, ranks=[4], query_blocks=ids, key_blocks=ids[..., :0])
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


@needs_triton
def test_a_second_derivative_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(16, 16, 4, 2))
    q, k, v = (torch.randn(1, 1, 4, 4, device=DEVICE, requires_grad=True) for _ in range(3))
    ids = torch.zeros(1, 1, 4, dtype=torch.long, device=DEVICE)
    out = multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids)
    (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@needs_triton
def test_what_does_not_fit_is_refused() -> None:
    q, k = torch.ones(1, 2, 3, 4, device=DEVICE), torch.ones(1, 2, 5, 4, device=DEVICE)
    a, b = (torch.zeros(1, 1, n, dtype=torch.long, device=DEVICE) for n in (3, 5))

    def call(q: Tensor = q, k: Tensor = k, v: Tensor = k, **changes: object) -> None:
        multilevel_attention_triton(
            q,
            k,
            v,
            **{"ranks": [4], "query_blocks": a, "key_blocks": b, **changes},  # type: ignore[arg-type]
        )

    with pytest.raises(TypeError, match="float64"):
        call(q.double(), k.double(), k.double())
    with pytest.raises(TypeError, match=r"torch\.float32, torch\.float16"):
        call(q, k.half(), k)
    with pytest.raises(ValueError, match="do not fit 4 components"):
        call(ranks=[3])
    with pytest.raises(ValueError, match="do not fit"):
        call(q.expand(1, 2, 3, 4)[:, [0, 1, 0]])
    with pytest.raises(ValueError, match="axes"):
        call(q[0])
    with pytest.raises(ValueError, match="key_blocks"):
        call(key_blocks=a)
    with pytest.raises(ValueError, match="key_mask"):
        call(key_mask=torch.ones(5, dtype=torch.bool, device=DEVICE))
    with pytest.raises(TypeError, match="key_mask"):
        call(key_mask=torch.ones(1, 5, device=DEVICE))
    wide = torch.ones(1, 1, 3, 300, device=DEVICE)
    with pytest.raises(ValueError, match="the kernel takes 256"):
        call(wide, wide, wide, ranks=[300], key_blocks=a)


def test_chunks_cover_the_components_with_few_and_cheap_pieces() -> None:
    assert chunk_widths(EIGHT) == (32, 16, 16)
    assert chunk_widths((64,)) == (64,)
    assert chunk_widths((2,)) == (16,)
    for ranks in itertools.chain(((n,) * 4 for n in range(1, 65)), ((1, 255), (255, 1), (200, 3, 50))):
        widths = chunk_widths(ranks)
        assert sum(widths) >= sum(ranks)
        assert len(widths) <= 4
        assert all(width >= 16 and width & (width - 1) == 0 for width in widths)


def test_tiles_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="divides"):
        TileSizes(48, 32, 4, 2)
    with pytest.raises(ValueError, match="at least 16"):
        TileSizes(8, 16, 4, 2)


MISSING = """
import sys
sys.modules["triton"] = None
import torch
from tsattn.ops.multilevel_triton import multilevel_attention_triton, triton_available
assert not triton_available()
ids = torch.zeros(1, 1, 3, dtype=torch.long)
q = torch.ones(1, 1, 3, 4)
multilevel_attention_triton(q, q, q, ranks=[4], query_blocks=ids, key_blocks=ids)
"""


def run_python(code: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    return done.stderr


def test_without_triton_the_module_imports_and_the_kernel_says_what_is_missing() -> None:
    assert "RuntimeError: the Triton kernel of multi-level attention needs Triton" in run_python(MISSING)


@needs_triton
def test_on_the_cpu_without_the_interpreter_the_kernel_says_what_to_do() -> None:
    code = MISSING.replace('sys.modules["triton"] = None', "").replace("assert not", "assert")
    assert "set TRITON_INTERPRET=1" in run_python(code)


@needs_triton
@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1000, 1024, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_long_sequences_on_the_gpu(tokens: int, dtype: torch.dtype, causal: bool) -> None:
    check_case(Case(tokens, dtype=dtype, causal=causal, padded=causal, batch=2, heads=4, groups=2, width=64))


@needs_triton
@pytest.mark.gpu
def test_memory_on_the_gpu_is_linear() -> None:
    T = 16384
    q, k, v = (torch.randn(1, 8, T, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ids = make_blocks(DOUBLING, torch.arange(T)[None], T).cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    multilevel_attention_triton(q, k, v, ranks=EIGHT, query_blocks=ids, key_blocks=ids).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 0.05 * 8 * T * T * 2
