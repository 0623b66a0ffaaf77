"""One comparison of the Triton kernel of multi-level attention with the reference, in values and gradients."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tsattn.ops import multilevel_triton
from tsattn.ops.masks import RegularBlocks
from tsattn.ops.multilevel_plain import multilevel_attention_reference
from tsattn.ops.multilevel_triton import TileSizes, multilevel_attention_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


needs_triton = pytest.mark.skipif(
    not multilevel_triton.triton_available(), reason="Triton is not installed, so its multi-level kernel is not tested"
)


def patch_once() -> None:
    """Let Triton's interpreter patch its language once for each inner function, not in each of its calls.

    A kernel patches it and restores it; what it calls patches the same again and restores nothing. That is most of the
    time of these kernels, which call some dozen functions a tile.
    """
    from triton.runtime import interpreter

    patch, inner = interpreter._patch_lang, interpreter.InterpretedFunction.rewritten_fn
    done = set()

    def quick(function: object) -> object:
        if function in done:
            return None
        if function in inner:
            done.add(function)
        return patch(function)

    interpreter._patch_lang = quick


if DEVICE == "cpu" and multilevel_triton.triton_available():
    patch_once()


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
    regular: RegularBlocks | None = None,
    tensors: tuple[Tensor, Tensor, Tensor] | None = None,
    tolerance: float | None = None,
) -> tuple[Tensor, ...]:
    """Hold values and gradients against the reference in float32; return what the kernel gave."""
    if monkeypatch is not None:
        sizes = TileSizes(*case.tiles, warps=4, stages=2, parts=case.tiles[1] // 16)
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
    shared: dict[str, Any] = {"ranks": case.ranks, "query_blocks": query_blocks, "key_blocks": key_blocks}
    for name, marked in (("global_queries", global_queries), ("global_keys", global_keys)):
        shared[name] = None if marked is None else marked.to(DEVICE)
    out = multilevel_attention_triton(
        *leaves,
        **shared,
        causal=case.causal,
        query_positions=None if query_positions is None else query_positions.to(DEVICE),
        key_positions=None if key_positions is None else key_positions.to(DEVICE),
        key_mask=key_mask,
        scale=case.scale,
        regular=regular,
    )
    expected = multilevel_attention_reference(*exact, **shared, allowed=allowed, bias=None, scale=scale, dropout_p=0.0)
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
