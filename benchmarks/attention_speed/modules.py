"""What whole attention modules cost: over standard attention, over a bare module, and token by token in decoding."""

from __future__ import annotations

import statistics
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_speed.contenders import HEADS
from attention_speed.rows import Row, rows_beside
from attention_speed.timing import Timing, cpu_clock, take_turns
from tsattn.attention import Attention, MLRAttention, build_attention
from tsattn.ops import executed_flops

__all__ = ["MODULE_SIZES", "bare_rows", "decoding_rows", "module_rows"]

KINDS = ("mlr", "global_swa", "swa", "btt", "bilinear_mlr", "mlbtc")
MODULE_SIZES = ((63, 16, 4, 224), (127, 64, 8, 112), (512, 512, 8, 8))  # tokens, width, heads, batch
STANDARD = "standard by sdpa"


def module_rows(sizes: tuple[tuple[int, int, int, int], ...], timing: Timing) -> list[Row]:
    """Forward and backward passes of whole modules over those of `standard` through PyTorch's kernel.

    `flops_ratio` is that of the flops that both execute.
    """
    rows = []
    for T, d_model, heads, batch in sizes:
        sizes_of_it = {"d_model": d_model, "num_heads": heads, "max_length": T}
        torch.manual_seed(0)
        modules = {STANDARD: build_attention({"kind": "standard", "impl": "sdpa"}, **sizes_of_it)}
        modules |= {kind: build_attention(kind, **sizes_of_it) for kind in KINDS}
        x = torch.randn(batch, T, d_model)
        runs = {name: partial(train, module, x) for name, module in modules.items()}
        medians, turns = take_turns(runs, timing, cpu_clock)
        flops = {name: executed_flops(run) for name, run in runs.items()}
        shape = {"T": T, "batch": batch, "heads": heads, "width": d_model // heads}
        beside = dict.fromkeys(KINDS, STANDARD)
        rows += rows_beside("modules", medians, beside, turns, **shape, which="forward+backward", flops=flops)
    return rows


def train(module: Attention, x: Tensor) -> None:
    module.zero_grad()
    out = module(x.detach().requires_grad_())
    out.backward(torch.ones_like(out))


class BareAttention(nn.Module):
    """What standard attention costs at the least: three projections, SDPA, one more projection."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


def bare_rows(timing: Timing) -> list[Row]:
    """`MLRAttention` with one level over the bare module, forward, T = 96, batch 8."""
    width, T, batch = 64, 96, 8
    d_model = HEADS * width
    modules = {
        "mlr, one level": MLRAttention(d_model, HEADS, ranks=[width], max_length=T),
        "bare module": BareAttention(d_model),
    }
    x = torch.randn(batch, T, d_model)
    with torch.no_grad():
        medians, turns = take_turns({name: partial(module, x) for name, module in modules.items()}, timing, cpu_clock)
    beside = {"mlr, one level": "bare module"}
    shape = {"T": T, "batch": batch, "heads": HEADS, "width": width}
    return rows_beside("bare", medians, beside, turns, **shape, which="forward")


def decoding_rows(tokens: int, turns: int = 30) -> list[Row]:
    """The last of `tokens` tokens, decoded one by one, and the most bytes of keys that were held, over `standard`'s."""
    width = 64
    kinds = {
        "standard": {"kind": "standard"},
        "swa": {"kind": "swa", "window_size": width + 1},
        "mlr": {"kind": "mlr", "ranks": [width // 8] * 8, "align": "start"},
    }
    sizes = {"d_model": HEADS * width, "num_heads": HEADS, "max_length": tokens}
    medians, held = {}, {}
    with torch.no_grad():
        for name, description in kinds.items():
            attention = build_attention(description, causal=True, **sizes).eval()
            cache, peak, times = attention.new_cache(1), 0, []
            for _ in range(tokens):
                x = torch.randn(1, 1, HEADS * width)
                times.append(cpu_clock(partial(attention, x, cache=cache)))
                peak = max(peak, cache.key_nbytes)
            medians[name], held[name] = statistics.median(times[-turns:]), peak
    beside = dict.fromkeys(("swa", "mlr"), "standard")
    shape = {"T": tokens, "batch": 1, "heads": HEADS, "width": width, "causal": True}
    return rows_beside(
        "decoding", medians, beside, turns, **shape, which="one token", peak_bytes=held, compare_memory=True
    )
