"""The ways of computing an attention that are compared, and whether each computes what its reference does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tsattn.ops import full_attention, level_block_ids, multilevel_attention, sliding_window_attention
from tsattn.ops.masks import RegularBlocks
from tsattn.ops.multilevel_triton import multilevel_attention_triton

HEADS = 8
WINDOW = 64
SDPA = "sdpa"  # whose time is 1
BATCHES = {63: 64, 127: 64, 256: 16, 512: 4, 1024: 2, 2048: 1, 4096: 1}  # by length
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}  # of `check`


@dataclass(frozen=True)
class Problem:
    """Shapes of queries, keys and values (tokens, sequences, components of a head), and the levels of MLR."""

    T: int
    batch: int = 1
    width: int = 64
    causal: bool = False
    heads: int = HEADS

    @property
    def ranks(self) -> tuple[int, ...]:
        """Components of each level, coarse to fine: down to blocks of one token at 63 and 127 tokens, less far at 8."""
        if self.width == 8:
            return (4, 2, 2)
        if self.width == 128:
            return (64, 16, 12, 8, 8, 8, 8, 4)
        return (32, 8, 8, 8, 4, 4) if self.T < 64 else (32, 8, 6, 4, 4, 4, 4, 2)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(2**level for level in range(len(self.ranks)))


@cache
def blocks_of(problem: Problem, device: torch.device) -> Tensor:
    """The blocks of every token at every level, which are given to an attention."""
    positions = torch.arange(problem.T, device=device)[None]
    return level_block_ids(positions, numbers=problem.numbers, max_length=problem.T)


Attend = Callable[[Problem, Tensor, Tensor, Tensor], Tensor]


def sdpa(problem: Problem, q: Tensor, k: Tensor, v: Tensor, chosen: bool = False) -> Tensor:
    """PyTorch's fused kernel; on a GPU the one called flash, if it takes the numbers, unless PyTorch chooses."""
    flash = q.is_cuda and q.dtype != torch.float32 and not chosen
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if flash else contextlib.nullcontext():
        return F.scaled_dot_product_attention(q, k, v, is_causal=problem.causal)


def standard(impl: str) -> Attend:
    return lambda problem, q, k, v: full_attention(q, k, v, causal=problem.causal, impl=impl)


def mlr(impl: str) -> Attend:
    def attend(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        regular = RegularBlocks(0, problem.T, numbers=problem.numbers, max_length=problem.T)
        blocks = {"blocks": blocks_of(problem, q.device), "regular": regular}
        return multilevel_attention(q, k, v, ranks=problem.ranks, causal=problem.causal, impl=impl, **blocks)

    return attend


def mlr_triton(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """By its own function, which Triton's interpreter runs on a CPU too."""
    blocks = blocks_of(problem, q.device)
    regular = RegularBlocks(0, problem.T, numbers=problem.numbers, max_length=problem.T)
    more: dict[str, Any] = {"query_blocks": blocks, "key_blocks": blocks, "regular": regular}
    return multilevel_attention_triton(q, k, v, ranks=problem.ranks, causal=problem.causal, **more)


def swa(impl: str, window_size: int = WINDOW) -> Attend:
    return lambda problem, q, k, v: sliding_window_attention(
        q, k, v, window_size=window_size, causal=problem.causal, impl=impl
    )


def global_swa(impl: str) -> Attend:
    """Half of the components for every pair, half for near pairs, as the pattern of that kind combines them."""

    def attend(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (q_all, q_near), (k_all, k_near) = q.chunk(2, -1), k.chunk(2, -1)
        return (standard(impl)(problem, q_all, k_all, v) + swa(impl)(problem, q_near, k_near, v)) / 2

    return attend


@dataclass(frozen=True)
class Contender:
    """A way of computing an attention, its plain reference, and where, at which lengths and widths it runs."""

    compute: Attend
    exact: Attend
    device: str | None = "cpu"
    lengths: tuple[int, int] = (1, 2**20)
    widths: tuple[int, ...] = (8, 64)

    def takes(self, problem: Problem) -> bool:
        return self.lengths[0] <= problem.T <= self.lengths[1] and problem.width in self.widths


LONG = (1024, 4096)

CONTENDERS = {
    SDPA: Contender(sdpa, standard("reference"), device=None, widths=(8, 64, 128)),
    "sdpa as PyTorch chooses": Contender(
        partial(sdpa, chosen=True), standard("reference"), device="cuda", widths=(64, 128)
    ),
    "mlr native": Contender(mlr("native"), mlr("reference")),
    "standard native": Contender(standard("native"), standard("reference")),
    "swa native": Contender(swa("native"), swa("reference")),
    "global_swa native": Contender(global_swa("native"), global_swa("reference"), widths=(64,)),
    "mlr tiles": Contender(mlr("tiles"), mlr("reference"), lengths=LONG, widths=(64,)),
    "swa blocks": Contender(swa("blocks"), swa("reference"), lengths=LONG, widths=(64,)),
    "mlr triton": Contender(mlr_triton, mlr("reference"), device="cuda", widths=(64, 128)),
    "swa flex": Contender(swa("flex"), swa("reference"), device="cuda", widths=(64, 128)),
    "swa flex, 256": Contender(swa("flex", 256), swa("reference", 256), device="cuda", widths=(64, 128)),
}


def inputs(problem: Problem, dtype: torch.dtype, device: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(problem.T)
    shape = (problem.batch, problem.heads, problem.T, problem.width)
    return [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)]


def check(contender: Contender, problem: Problem, dtype: torch.dtype, device: str) -> float:
    """The largest difference from the reference in value and gradients, over the largest number of each.

    The reference computes with the same numbers in float64; in float32 on a GPU.
    """
    tensors = inputs(problem, dtype, device)
    wide = torch.float32 if device == "cuda" else torch.float64
    results = []
    for attend, leaves in (
        (contender.compute, tensors),
        (contender.exact, [t.detach().to(wide).requires_grad_() for t in tensors]),
    ):
        out = attend(problem, *leaves)
        generator = torch.Generator().manual_seed(1)
        weights = torch.randn(out.shape, generator=generator).to(device, dtype).to(out.dtype)
        results.append([out, *torch.autograd.grad(out, leaves, weights)])
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*results, strict=True))
