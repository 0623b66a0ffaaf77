"""The attentions that the contract is tested on. A new kind adds its descriptions here and inherits every test."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tsattn.attention import Attention, build_attention
from tsattn.attention.caches import Cache
from tsattn.ops.native.library import why_no_kernels

D_MODEL, NUM_HEADS = 16, 4

TWO_PARTS = {"kind": "global_swa", "head_dim": 6, "global_rank": 2}
PIECES = {"kind": "bilinear_mlr"}
LEVELS = {"kind": "mlr", "head_dim": 8, "ranks": [4, 2, 2]}
SQUARE = {"rank": 1, "left_blocks": 4, "right_blocks": 4}
MIXED = [{"rank": 2}, SQUARE, {"rank": 2, "left_blocks": 2, "right_blocks": 4, "shuffled": True}]

CASES: dict[str, dict[str, Any]] = {
    "standard": {"kind": "standard"},
    "standard-grouped": {"kind": "standard", "num_kv_heads": 2},
    "standard-qk_norm": {"kind": "standard", "qk_norm": True, "head_dim": 6},
    "swa": {"kind": "swa", "window_size": 5},
    "swa-grouped": {"kind": "swa", "window_size": 33, "num_kv_heads": 1},
    "global_swa": {"kind": "global_swa", "window_size": 5},
    "global_swa-sum-grouped": {**TWO_PARTS, "window_size": 33, "combine": "sum", "num_kv_heads": 2},
    "btt": {"kind": "btt"},
    "btt-query": {"kind": "btt", "side": "query", "tt_rank": 2},
    "btt-both-grouped": {"kind": "btt", "side": "both", "num_kv_heads": 2},
    "btt-above": {"kind": "btt", "divisor": "above", "tt_rank": 2},
    "bilinear_mlr": {"kind": "bilinear_mlr"},
    "bilinear_mlr-grouped": {"kind": "bilinear_mlr", "ranks": [2, 1, 2], "blocks": [1, 2, 8], "num_kv_heads": 2},
    "bilinear_mlr-norms": {**PIECES, "ranks": [8, 4], "blocks": [1, 4], "num_kv_heads": 2, "qk_norm": "level"},
    "mlbtc": {"kind": "mlbtc"},
    "mlbtc-grouped": {"kind": "mlbtc", "levels": MIXED, "num_kv_heads": 2, "qk_norm": True},
    "mlr": {"kind": "mlr", "ranks": [2, 2]},
    "mlr-deep": {"kind": "mlr", "head_dim": 12, "ranks": [4, 4, 2, 2], "blocks": [1, 3, 6, 12], "num_kv_heads": 2},
    "mlr-mup": {**LEVELS, "blocks": [1, 3, 12], "scaling": "mup", "divide_by": "levels", "num_kv_heads": 2},
    "mlr-active": {**LEVELS, "blocks": [1, 2, 12], "scaling": "level", "divide_by": "active"},
    "mlr-lengths": {"kind": "mlr", "ranks": [2, 2], "blocks": {"lengths": [48, 12]}, "align": "start"},
    "identity": {"kind": "identity"},
    "identity-grouped": {"kind": "identity", "num_kv_heads": 2, "head_dim": 6},
    "uniform-grouped": {"kind": "uniform", "num_kv_heads": 2, "head_dim": 6},
    "fixed_mixing": {"kind": "fixed_mixing"},
    "fixed_mixing-grouped": {"kind": "fixed_mixing", "num_kv_heads": 2, "head_dim": 6, "align": "start"},
}

# whose weights are those of places, so many as it is built for
BOUND_TO_LENGTH = ("fixed_mixing", "fixed_mixing-grouped")

# whose tokens make no scores
UNSCORED = tuple(case for case in CASES if case.startswith(("identity", "uniform", "fixed_mixing")))

# One case of each pattern, and two that differ in the layout of queries and keys. What depends on the projection alone
# is tested on every case; what patterns and caches do is tested on these.
PATTERN_CASES = [
    *("standard-grouped", "swa", "global_swa-sum-grouped", "btt-query", "mlr-deep", "mlr-active", "mlr-lengths"),
    *("identity-grouped", "uniform-grouped", "fixed_mixing-grouped"),
]
# each of them with or without causality, and each pattern with both
PATTERN_PAIRS = [
    (case, case in ("swa", "btt-query", "mlr-deep", "mlr-lengths", "uniform-grouped")) for case in PATTERN_CASES
]
PATTERN_PAIRS += [("swa", False), ("standard-grouped", True)]


def build(
    case: Any, *, length: int | None, dtype: torch.dtype = torch.float64, seed: int = 0, **sizes: Any
) -> Attention:
    """The attention of a case or description, in eval mode, with weights large enough for scores to matter."""
    torch.manual_seed(seed)
    sizes = {"d_model": D_MODEL, "num_heads": NUM_HEADS, "max_length": length, **sizes}
    attention = build_attention(CASES[case] if isinstance(case, str) else case, **sizes)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.mul_(1.5)
    return attention.to(dtype).eval()


def each_impl(attention: Attention, *, without: tuple[str, ...] = ()) -> Iterator[str]:
    """Switch the attention to each of its implementations in turn, except those that cannot compute what is tested."""
    for impl in ("auto", "reference", *fast_impls(attention)):
        if impl not in without:
            attention.impl = impl
            yield impl


def fast_impls(attention: Attention, *, without: tuple[str, ...] = (), dtype: torch.dtype | None = None) -> list[str]:
    """The ways of computing it beside the reference, except those that cannot compute what is tested."""
    elsewhere = [*ELSEWHERE]
    if (dtype or attention.value.weight.dtype) not in NATIVE_DTYPES or why_no_kernels() is not None:
        elsewhere.append("native")
    return [impl for impl in attention.pattern.impls if impl not in ("auto", "reference", *elsewhere, *without)]


# what runs on CUDA has tests of its own: under Triton's interpreter, and with FlexAttention as it stands
ELSEWHERE = ("triton", "flex")

# the native kernel has no other: what is tested in float64 here is tested of it in tests/ops/native
NATIVE_DTYPES = (torch.float32, torch.bfloat16)

# what the fast paths refuse, and `auto` therefore computes otherwise
NO_BIAS = ("tiles", "blocks", "direct")
NO_CROSSING = ("tiles",)
NO_DROPOUT = ("tiles", "direct")
NO_ORDER = ("blocks",)


T = 40


def decoder(
    case: str | dict[str, Any], *, length: int | None, dtype: torch.dtype = torch.float64, **sizes: Any
) -> Attention:
    """The causal attention of a case, its positions counted from the start."""
    description = CASES[case] if isinstance(case, str) else case
    if description["kind"] in ("mlr", "fixed_mixing"):
        description = {**description, "align": "start"}
    return build(description, length=length, dtype=dtype, **{"causal": True, **sizes})


def tokens(length: int, dtype: torch.dtype = torch.float64, batch_size: int = 2, seed: int = 1) -> Tensor:
    x = torch.randn(batch_size, length, D_MODEL, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype)


def decode(attention: Attention, x: Tensor, schedule: Sequence[int], cache: Cache | None = None) -> Tensor:
    cache = attention.new_cache(len(x)) if cache is None else cache
    return torch.cat([attention(part, cache=cache) for part in torch.split(x, list(schedule), 1)], 1)


def key_numbers(cache: Cache, dtype: torch.dtype = torch.float64) -> int:
    return cache.key_nbytes // dtype.itemsize
