"""The arguments that the attention kernels share, prepared on the host."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from tsattn.ops.multilevel_kernels.jit import is_interpreted, triton
from tsattn.ops.multilevel_kernels.problem import Problem, TileSizes, batch_stride, chunk_widths
from tsattn.ops.multilevel_kernels.tile import dot
from tsattn.ops.multilevel_kernels.walk_plan import PACK, WalkPlan

__all__ = ["constants", "shared_arguments", "strides"]


def constants(problem: Problem, q: Tensor, v: Tensor, sizes: TileSizes) -> dict[str, Any]:
    """The compile-time arguments that the three attention kernels share."""
    widths = chunk_widths(problem.ranks)
    starts = (0, *itertools.accumulate(widths))
    ends = problem.bounds[1:-1]
    cuts = sum(1 << c for c in range(len(widths)) if any(starts[c] < end < starts[c + 1] for end in ends))
    padded = (*widths, 0, 0, 0)
    return {
        "BOUNDS": problem.bounds,
        "LEVELS": len(problem.ranks),
        "CHUNKS": len(widths),
        "CUTS": cuts,
        "W0": padded[0],
        "W1": padded[1],
        "W2": padded[2],
        "W3": padded[3],
        "R": q.shape[-1],
        "E": v.shape[-1],
        "VALUES": max(16, triton.next_power_of_2(v.shape[-1])),
        "OWN": sizes.own,
        "WALKED": sizes.walked,
        "CAUSAL": problem.causal,
        "HAS_MASK": problem.key_mask is not None,
        "HAS_QUERY_POSITIONS": problem.causal and problem.query_positions is not None,
        "HAS_KEY_POSITIONS": problem.causal and problem.key_positions is not None,
        "PRECISION": _precision(q.dtype),
        "PACKING": PACK,
        "STAGES": sizes.stages,
        "num_warps": sizes.warps,
        "num_stages": sizes.stages,
        "maxnreg": sizes.registers,
    }


def _precision(dtype: torch.dtype) -> str:
    if dtype == torch.float32:
        return "ieee"  # TF32 keeps 10 bits of a float32, too few for 1e-5
    # the interpreter of Triton 3.7 multiplies the bits of bfloat16 as integers; a product in float32 is as exact
    return "widened" if is_interpreted(dot) else "tf32"


def shared_arguments(problem: Problem, q: Tensor, k: Tensor, plan: WalkPlan) -> tuple[list[Tensor], list[int]]:
    """The tensors that follow the outputs of a kernel, and the integers that follow the strides."""
    ids = problem.query_ids
    tensors = [
        plan.order,
        plan.mixes,
        plan.starts,
        problem.query_ids,
        problem.key_ids,
        ids if problem.query_positions is None else problem.query_positions,
        ids if problem.key_positions is None else problem.key_positions,
        ids if problem.key_mask is None else problem.key_mask,
    ]
    P, tiles, walked_tiles = plan.order.shape
    integers = [
        0 if P == 1 else tiles,
        tiles,
        walked_tiles,
        problem.query_ids.stride(0),
        batch_stride(problem.query_ids, 1),
        problem.key_ids.stride(0),
        batch_stride(problem.key_ids, 1),
        batch_stride(problem.query_positions),
        batch_stride(problem.key_positions),
        batch_stride(problem.key_mask),
        q.shape[1],
        q.shape[1] // k.shape[1],
        q.shape[2],
        k.shape[2],
    ]
    return tensors, integers


def strides(*tensors: Tensor) -> list[int]:
    """The strides of batch, head and row of each tensor in turn."""
    return [stride for t in tensors for stride in t.stride()[:3]]
