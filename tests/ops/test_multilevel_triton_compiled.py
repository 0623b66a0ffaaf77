"""The Triton kernels within a compiled graph and compiled for a GPU without one; what they refuse, and their pieces."""

import itertools
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ops.triton_cases import DEVICE, EIGHT, make_blocks, needs_triton
from tsattn.ops import multilevel_triton
from tsattn.ops.modes import is_fake, kept_by_stream
from tsattn.ops.multilevel_triton import TileSizes, chunk_widths, multilevel_attention_triton


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
        for tokens in (40, 33):
            wide = torch.randn(3, 1, tokens, 2, 12, device=DEVICE).transpose(2, 3)  # heads inside tokens
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
assert not multilevel_triton.is_interpreted(multilevel_triton.forward_kernel)
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
    kernels = ("ranges_kernel", "plan_kernel", "forward_kernel", "queries_kernel", "keys_kernel")
    for kernel in kernels:
        assert done.stdout.count(f"{kernel} True") >= 2
    assert "False" not in done.stdout


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
        multilevel_attention_triton(q, k, v, **{"ranks": [4], "query_blocks": a, "key_blocks": b, **changes})

    with pytest.raises(TypeError, match="float64"):
        call(q.double(), k.double(), k.double())
    with pytest.raises(TypeError, match=r"torch\.float32, torch\.float16"):
        call(q, k.half(), k)
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


def test_without_triton_the_module_imports_and_the_kernel_says_what_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], capture_output=True, text=True, check=False)
    assert "RuntimeError: the Triton kernel of multi-level attention needs Triton" in done.stderr


@needs_triton
def test_on_the_cpu_without_the_interpreter_the_kernel_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "is_interpreted", lambda kernel: False)
    q, ids = torch.ones(1, 1, 3, 4), torch.zeros(1, 1, 3, dtype=torch.long)
    with pytest.raises(RuntimeError, match="set TRITON_INTERPRET=1"):
        multilevel_attention_triton(q, q, q, ranks=[4], query_blocks=ids, key_blocks=ids)


CUDA = torch.device("cuda")


def test_what_is_kept_is_of_one_stream_and_real(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, capturing = SimpleNamespace(cuda_stream=1), [False]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])

    @kept_by_stream
    def find(length: int, device: torch.device) -> Tensor:
        return torch.arange(length)

    with FakeTensorMode():
        assert is_fake(find(3, CUDA)) or type(find(3, CUDA)) is not Tensor
    with torch.inference_mode():
        first = find(3, CUDA)
    assert type(first) is Tensor
    assert not first.is_inference()
    assert find(3, CUDA) is first
    assert find(4, CUDA) is not first
    capturing[0] = True
    assert find(3, CUDA) is not first
    capturing[0], stream.cuda_stream = False, 2
    assert find(3, CUDA) is not first
    assert find(3, torch.device("cpu")) is not find(3, torch.device("cpu"))
