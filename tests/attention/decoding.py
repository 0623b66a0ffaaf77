"""Decoding step by step, as the tests of the caches do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS
from tsattn.attention import Attention, build_attention
from tsattn.attention.caches import Cache

T = 40


def decoder(
    case: str | dict[str, Any], *, length: int | None, dtype: torch.dtype = torch.float64, **sizes: Any
) -> Attention:
    """The causal attention of a case, its positions counted from the start."""
    description = CASES[case] if isinstance(case, str) else case
    if description["kind"] in ("mlr", "fixed_mixing"):
        description = {**description, "align": "start"}
    torch.manual_seed(0)
    sizes = {"d_model": D_MODEL, "num_heads": NUM_HEADS, "causal": True, **sizes}
    attention = build_attention(description, max_length=length, **sizes)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.mul_(1.5)
    return attention.to(dtype).eval()


def tokens(length: int, dtype: torch.dtype = torch.float64, batch_size: int = 2, seed: int = 1) -> Tensor:
    x = torch.randn(batch_size, length, D_MODEL, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype)


def decode(attention: Attention, x: Tensor, schedule: Sequence[int], cache: Cache | None = None) -> Tensor:
    cache = attention.new_cache(len(x)) if cache is None else cache
    return torch.cat([attention(part, cache=cache) for part in torch.split(x, list(schedule), 1)], 1)


def key_numbers(cache: Cache, dtype: torch.dtype = torch.float64) -> int:
    return cache.key_nbytes // dtype.itemsize
