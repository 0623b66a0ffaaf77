"""What whole attention modules cost: compared with a bare one, and token by token in decoding."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_speed.contenders import HEADS, WIDTH, WINDOW
from tsattn.attention import MLRAttention, build_attention

__all__ = ["decoding", "module_overhead"]


class BareAttention(nn.Module):
    """What standard attention costs at the least: three projections, SDPA, one more projection."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def module_overhead(turns: int = 200) -> float:
    """Time of `MLRAttention` with one level over the bare module, T = 96, batch 8."""
    d_model = HEADS * WIDTH
    modules = [MLRAttention(d_model, HEADS, ranks=[WIDTH], max_length=96), BareAttention(d_model)]
    x = torch.randn(8, 96, d_model)
    times: list[list[float]] = [[], []]
    with torch.no_grad():
        for _ in range(turns):
            for module, spent in zip(modules, times, strict=True):
                start = time.perf_counter()
                module(x)
                spent.append(time.perf_counter() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


def decoding(tokens: int = 4096, turns: int = 30) -> dict[str, dict[str, float]]:
    """Decode time of the last of `tokens` tokens, and the most bytes of keys that were held, of each kind."""
    kinds: dict[str, dict[str, Any]] = {
        "standard": {"kind": "standard"},
        "swa": {"kind": "swa", "window_size": WINDOW},
        "mlr": {"kind": "mlr", "ranks": [WIDTH // 8] * 8, "align": "start"},
    }
    d_model = HEADS * WIDTH
    figures = {}
    with torch.no_grad():
        for name, description in kinds.items():
            sizes = {"d_model": d_model, "num_heads": HEADS, "max_length": tokens}
            attention = build_attention(description, causal=True, **sizes).eval()
            cache, peak, times = attention.new_cache(1), 0, []
            for _ in range(tokens):
                x = torch.randn(1, 1, d_model)
                start = time.perf_counter()
                attention(x, cache=cache)
                times.append(time.perf_counter() - start)
                peak = max(peak, cache.key_nbytes)
            times = times[-turns:]
            figures[name] = {"ms_a_token": round(1e3 * statistics.median(times), 3), "peak_key_bytes": peak}
    return figures
