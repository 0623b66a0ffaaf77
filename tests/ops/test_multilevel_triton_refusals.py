"""What the Triton kernel of multi-level attention refuses, where it cannot run, and into what pieces it cuts."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from tests.ops.triton_cases import DEVICE, EIGHT, needs_triton
from tsattn.ops import multilevel_triton
from tsattn.ops.multilevel_triton import TileSizes, chunk_widths, multilevel_attention_triton


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
