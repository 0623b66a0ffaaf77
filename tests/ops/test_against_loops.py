"""Every implementation beside plain loops over the pairs in float64: values and gradients, of what is easily missed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tests.ops.triton_cases import needs_triton
from tsattn.errors import UserError
from tsattn.ops import full_attention, multilevel_attention, sliding_window_attention
from tsattn.ops.masks import without_padding
from tsattn.ops.multilevel_triton import multilevel_attention_triton
from tsattn.ops.native.library import why_no_kernels
from tsattn.ops.sliding_window import sliding_window_attention_flex

SCALE = 0.4
RANKS = (2, 1, 1)
LARGEST = torch.finfo(torch.float32).max

KINDS: dict[str, dict[str, Any]] = {"full": {}, "levels": {"has_levels": True}, "window": {"window_size": 3}}
IMPLS = {
    "full": ("reference", "sdpa", "native"),
    "levels": ("reference", "sdpa", "tiles", "native", "triton"),
    "window": ("reference", "sdpa", "blocks", "native", "flex"),
}
MARKS = {"native": needs_kernels, "triton": needs_triton}


def ways(*left_out: str) -> list[Any]:
    """Each kind of attention by each implementation that a CPU can run."""
    return [
        pytest.param(kind, impl, id=f"{kind}-{impl}", marks=MARKS.get(impl, ()))
        for kind, impls in IMPLS.items()
        for impl in impls
        if impl not in left_out
    ]


@dataclass(frozen=True)
class Pairs:
    """Which tokens of one sequence see each other and what they share: T tokens, of one row for all."""

    positions: Tensor
    causal: bool
    real: Tensor
    everywhere: Tensor
    bias: Tensor | None = None  # (T, T)
    window_size: int | None = None
    has_levels: bool = False

    @property
    def blocks(self) -> Tensor:
        """Of three levels where there are levels, else one that all share."""
        spans = (20, 6, 2) if self.has_levels else (10**9,)
        return torch.stack([self.positions // span for span in spans])

    def sees(self, query: int, key: int) -> bool:
        ahead = int(self.positions[key] - self.positions[query])
        is_far = self.window_size is not None and abs(ahead) >= self.window_size and not self.is_joined(query, key)
        is_forbidden = self.bias is not None and self.bias[query, key] == -torch.inf
        return bool(self.real[key]) and not (self.causal and ahead > 0) and not is_far and not is_forbidden

    def is_joined(self, query: int, key: int) -> bool:
        return bool(self.everywhere[query] or self.everywhere[key])


def loops(pairs: Pairs, tensors: Sequence[Tensor], grad_out: Tensor) -> list[Tensor]:
    """The value `(B, H, T, E)` and the gradients of q, k and v, pair by pair; heads are not grouped."""
    q, k, v, g = (t.detach().double().numpy() for t in (*tensors, grad_out))
    out, dq, dk, dv = np.zeros_like(g), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    level = np.repeat(np.arange(3), RANKS) if pairs.has_levels else np.zeros(q.shape[-1], int)
    blocks = pairs.blocks.numpy()
    for at in np.ndindex(q.shape[:3]):
        row, query = at[:2], at[2]
        keys = [key for key in range(k.shape[2]) if pairs.sees(query, key)]
        if not keys:
            continue
        shared = [(blocks[:, query] == blocks[:, key]) | pairs.is_joined(query, key) for key in keys]
        used = np.array(shared)[:, level]  # of each key the components
        bias = np.zeros(len(keys)) if pairs.bias is None else pairs.bias[query, keys].clamp(max=LARGEST).numpy()
        with np.errstate(invalid="ignore"):
            logits = SCALE * np.where(used, q[at] * k[row][keys], 0).sum(1) + bias
            weights = np.exp(logits - logits.max())
            weights /= weights.sum()
            out[at] = weights @ v[row][keys]
            slopes = SCALE * weights * (v[row][keys] @ g[at] - g[at] @ out[at])
            dq[at] = slopes @ np.where(used, k[row][keys], 0)
            dk[row][keys] += slopes[:, None] * np.where(used, q[at], 0)
            dv[row][keys] += weights[:, None] * g[at]
    return [torch.from_numpy(t) for t in (out, dq, dk, dv)]


def computed(pairs: Pairs, impl: str, tensors: Sequence[Tensor]) -> Tensor:
    """What an implementation makes of the same.

    Raises:
        UserError: if it cannot.
    """
    rows = len(tensors[0])
    mask = None if pairs.real.all() else pairs.real.expand(rows, -1)
    everywhere = pairs.everywhere[None] if pairs.everywhere.any() else None
    place = pairs.positions[None]
    more: dict[str, Any] = {"causal": pairs.causal, "key_mask": mask, "scale": SCALE}
    if impl in ("triton", "flex"):  # which on a CPU are not taken by name
        if pairs.bias is not None:
            raise UserError("it takes no bias")
        tensors = without_padding(mask, *tensors)
    elif pairs.bias is not None:
        more["bias"] = pairs.bias.to(tensors[0].dtype)
    if pairs.has_levels:
        ids = pairs.blocks[:, None]
        if impl == "triton":
            both = {"query_positions": place, "key_positions": place, "query_blocks": ids, "key_blocks": ids}
            both |= {"global_queries": everywhere, "global_keys": everywhere}
            return multilevel_attention_triton(*tensors, ranks=RANKS, **both, **more)
        more |= {"positions": place, "global_tokens": everywhere, "ranks": RANKS, "blocks": ids, "impl": impl}
        return multilevel_attention(*tensors, **more)
    if pairs.window_size is not None:
        more |= {"positions": place, "global_tokens": everywhere, "window_size": pairs.window_size}
        if impl == "flex":
            return sliding_window_attention_flex(*(t.detach() for t in tensors), **more)
        return sliding_window_attention(*tensors, **more, impl=impl)
    return full_attention(*tensors, query_positions=place, key_positions=place, **more, impl=impl)


def drawn(seed: int, kind: str) -> tuple[Pairs, list[Tensor], Tensor]:
    """Tokens with padding anywhere; real ones that share a position stand beside each other, or padding is between."""
    rng = np.random.default_rng(seed)
    T = int(rng.choice([5, 13, 30]))
    numbers = torch.from_numpy(rng.standard_normal((4, 2, 2, T, 4)))
    real = torch.from_numpy(rng.random(T) < rng.choice([0.6, 0.9, 1.0]))
    positions = torch.from_numpy(rng.integers(0, 3, T).cumsum())
    if seed % 3 == 0:
        positions, real = torch.arange(T) // 3, real & (torch.arange(T) % 3 != seed % 2 + 1)
    if seed % 3 == 1:  # which `tiles` and `blocks` take
        positions, real = torch.arange(T), torch.arange(T) >= rng.integers(0, T)
    if seed % 4 == 0:
        order = torch.from_numpy(rng.permutation(T))
        positions, real = positions[order], real[order]
    everywhere = torch.from_numpy(rng.random(T) < rng.choice([0.0, 0.2])) & real
    bias = None
    if seed % 5 == 0:
        bias = torch.from_numpy(rng.choice([-np.inf, -1.0, 0.0, 2.0], (T, T)))
        bias[torch.arange(T), torch.from_numpy(rng.integers(0, T, T))] = torch.inf
    everywhere = everywhere & (kind != "full")
    pairs = Pairs(positions, bool(rng.integers(2)), real, everywhere, bias, **KINDS[kind])
    return pairs, [*numbers[:3]], numbers[3] * real[:, None]


@cache
def by_loops(seed: int, kind: str) -> list[Tensor]:
    return loops(*drawn(seed, kind))


def off(found: Tensor, expected: Tensor) -> float:
    """The largest difference as a share of the largest number; infinite for what is no number on one side alone."""
    if not torch.equal(found.isfinite(), expected.isfinite()):
        return torch.inf
    far = (found.double() - expected).nan_to_num(0).abs().max()
    return float(far / expected.nan_to_num(0).abs().max().clamp(min=1))


@pytest.mark.parametrize(("kind", "impl"), ways())
def test_padding_shared_positions_and_biases(kind: str, impl: str) -> None:
    dtype = torch.float32 if impl in ("native", "triton", "flex") else torch.float64
    compared = 0
    for seed in range({"triton": 6, "flex": 8}.get(impl, 30)):  # which are slow on a CPU
        pairs, tensors, grad_out = drawn(seed, kind)
        given = [t.to(dtype).requires_grad_() for t in tensors]
        try:
            out = computed(pairs, impl, given)
        except UserError:
            continue
        found = [out * pairs.real[:, None]]
        if impl != "flex":  # which has no gradients on a CPU
            found += torch.autograd.grad(out, given, grad_out.to(dtype))
        expected = [by_loops(seed, kind)[0] * pairs.real[:, None], *by_loops(seed, kind)[1:]]
        for name, one, other in zip(("value", "q", "k", "v"), found, expected, strict=False):
            assert off(one.detach(), other) < (1e-10 if dtype == torch.float64 else 1e-5), (name, seed, pairs)
        compared += 1
    assert compared > 2


@cache
def infinite(seed: int, kind: str) -> tuple[Pairs, list[Tensor], Tensor]:
    """What is drawn, with one infinite number, and its value."""
    pairs, tensors, grad_out = drawn(seed, kind)
    tensors = [t.float() for t in tensors]
    tensors[min(seed % 3, 1)][0, 0, seed % 5, seed % 4] = (-1) ** seed * torch.inf
    return pairs, tensors, loops(pairs, tensors, grad_out)[0]


@pytest.mark.parametrize(("kind", "impl"), ways("sdpa", "tiles", "blocks", "flex"))
def test_infinities_do_not_become_numbers(kind: str, impl: str) -> None:
    """Where all logits of a query are minus infinity it is no number; without a key it is zero.

    The kernels of PyTorch, which the other implementations use, give zero for both.
    """
    for seed in range(6 if impl == "triton" else 30):
        pairs, tensors, expected = infinite(seed, kind)
        try:
            found = computed(pairs, impl, tensors)
        except UserError:
            continue
        found, expected = (t[..., pairs.real, :] for t in (found, expected))
        if impl == "triton":  # it multiplies components that a pair does not share by zero
            expected = expected.where(found.isfinite(), torch.nan)
        assert off(found, expected) < 1e-5, (seed, pairs)


@pytest.mark.parametrize(
    ("kind", "length", "narrow"), [("full", 7, "q"), ("levels", 8, "k"), ("window", 8, "v"), ("full", 8, "v")]
)
def test_types_that_differ(kind: str, length: int, narrow: str) -> None:
    """The widest computes and that of v comes out, below and above the length from which `auto` takes the kernel."""
    every = torch.ones(length, dtype=torch.bool)
    pairs = Pairs(torch.arange(length), True, every, ~every, **KINDS[kind])
    generator = torch.Generator().manual_seed(0)
    given = {name: torch.randn(1, 2, length, 4, generator=generator) for name in "qkv"}
    given[narrow] = given[narrow].bfloat16()
    tensors = [*given.values()]
    expected = loops(pairs, tensors, torch.zeros(1, 2, length, 4))[0]
    left_out = ("triton", "flex", *(() if why_no_kernels() is None else ("native",)))
    for name in ("auto", *(impl for impl in IMPLS[kind] if impl not in left_out)):
        found = computed(pairs, name, tensors)
        assert found.dtype == given["v"].dtype
        assert off(found, expected) < (1e-2 if narrow == "v" else 1e-5)
