"""The Triton kernels within a compiled graph, and compiled for a GPU without one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from tests.ops.triton_cases import DEVICE, make_blocks, needs_triton
from tsattn.ops import multilevel_triton
from tsattn.ops.multilevel_triton import TileSizes, multilevel_attention_triton


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
