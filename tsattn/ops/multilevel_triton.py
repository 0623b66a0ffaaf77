# mypy: allow-untyped-calls
"""Multi-level low-rank (MLR) attention by Triton kernels: exact, and without the matrix of scores.

`S[j, j'] = scale * sum over the levels l in which j and j' share a block of q_l[j] . k_l[j']`
(Kuang et al., section 4), under a softmax with running maximum, for CUDA devices and for Triton's interpreter. This is
the host's side; `triton_kernels` says how the kernels work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tsattn.ops.masks import RegularBlocks, floor_divide
from tsattn.ops.modes import kept_by_stream
from tsattn.ops.softmax import positive_scale
from tsattn.ops.triton_kernels import forward_kernel, keys_kernel, queries_kernel
from tsattn.ops.triton_tiles import dot, is_interpreted, plan_kernel, ranges_kernel, triton

EVERYWHERE = -(2**62)  # the block of a global token at every level (the kernels write the number out)
MAX_WIDTH = 256  # components, and widths of values: a wider tile does not fit the registers
MAX_LEVELS = 31  # the levels that a tile shares in part are the bits of an int32
MAX_CHUNKS = 4
PACK = 1024  # an entry of a plan is tile * PACK + components, in an int32

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LOG2_E = 1.4426950408889634


def triton_available() -> bool:
    """Whether Triton is installed, so that `multilevel_attention_triton` can run at all."""
    return triton is not None


def multilevel_attention_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    causal: bool = False,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    key_mask: Tensor | None = None,
    global_queries: Tensor | None = None,
    global_keys: Tensor | None = None,
    scale: float | None = None,
    regular: RegularBlocks | None = None,
) -> Tensor:
    """Compute `multilevel_attention_reference` by Triton kernels, forward and backward.

    `regular` describes the blocks and positions of both queries and keys, without masks and global tokens. Then these
    tensors are not read, and the plans are cached between calls (a few MiB).

    Types are float32, bfloat16 and float16, with at most 256 components of queries and of values, and at most 31
    levels. Extra memory is linear in the tokens, except for the plans of the two walks. Each plan takes 8 bytes per
    pair of tiles, for all heads together; in half precision, tiles have at least 64 tokens. Blocks that nest and are
    runs of tokens are fast; other blocks, and tiles with a global token, are exact but slower.

    Raises:
        RuntimeError: Triton is not installed, or the tensors are on the CPU and Triton does not interpret; and, from
            autograd, if a second derivative is asked for.
        TypeError: the types of q, k and v differ or are not supported.
        ValueError: too many components or levels.
    """
    _check(q, k, v, ranks)
    # the kernels take the maximum before they scale
    q, scale = positive_scale(q, 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale))
    if 0 in (*q.shape, *k.shape, *v.shape):
        # nothing to launch; keep the graph, so that gradients are zeros
        return q.new_zeros(*q.shape[:3], v.shape[3]) + 0 * (q.sum() + k.sum() + v.sum())
    levels = tuple(int(rank) for rank in ranks)
    tracing = torch.compiler.is_compiling()
    plain = key_mask is global_queries is global_keys is None
    if regular is not None and not (plain and regular.length == q.shape[2] == k.shape[2] and regular.levels):
        regular = None
    if regular is not None and not tracing:
        problem = _regular_problem(levels, causal, scale, regular, q.device)
    else:
        if regular is not None:
            query_blocks, query_positions = query_blocks.int(), None
            key_blocks, key_positions = query_blocks, None
        problem = Problem(
            levels,
            causal,
            scale,
            _unit_stride(_ids(query_blocks, global_queries)),
            _unit_stride(_ids(key_blocks, global_keys)),
            None if query_positions is None else _unit_stride(query_positions),
            None if key_positions is None else _unit_stride(key_positions),
            None if key_mask is None else _unit_stride(key_mask).view(torch.uint8),
            global_queries is not None or global_keys is not None,
            () if regular is None else _lengths(regular),
        )
    q, k, v = _unit_stride(q), _unit_stride(k), _unit_stride(v)
    if tracing:
        facts = (causal, scale, problem.has_global, list(problem.lengths))
        traced: Tensor = _operator(q, k, v, *problem.tensors, list(levels), *facts)[0]
        return traced
    with torch.cuda.device_of(q):
        out: Tensor = _MultilevelAttention.apply(q, k, v, problem)
    return out


def _check(q: Tensor, k: Tensor, v: Tensor, ranks: Sequence[int]) -> None:
    if not triton_available():
        raise RuntimeError("the Triton kernel of multi-level attention needs Triton, which is not installed here")
    if q.device.type != "cuda" and not is_interpreted(forward_kernel):
        raise RuntimeError(
            f"the Triton kernel of multi-level attention runs on a CUDA device, not on {q.device.type!r}: move the "
            "tensors there, take another impl, or set TRITON_INTERPRET=1 before the program starts"
        )
    if q.dtype not in _DTYPES or not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v are {q.dtype}, {k.dtype}, {v.dtype}; all must be one of {[*map(str, _DTYPES)]}")
    r = q.shape[-1]
    if max(r, v.shape[-1]) > MAX_WIDTH or len(ranks) > MAX_LEVELS:
        raise ValueError(
            f"{r} components, values of {v.shape[-1]} and {len(ranks)} levels: the kernel takes {MAX_WIDTH}, "
            f"{MAX_WIDTH} and {MAX_LEVELS}"
        )


def _ids(blocks: Tensor, global_tokens: Tensor | None) -> Tensor:
    return blocks if global_tokens is None else blocks.long().masked_fill(global_tokens, EVERYWHERE)


def _unit_stride(t: Tensor) -> Tensor:
    """The tensor with its last axis dense, as the kernels read it."""
    return t if t.stride(-1) == 1 else t.contiguous()


@dataclass(frozen=True)
class TileSizes:
    """Tokens in a program's own tile and in the tiles it walks, and how the kernel is compiled.

    `registers` is the limit for a thread; None leaves it to the compiler. A walked tile that needs masks is split into
    `parts`, which fit the registers.
    """

    own: int
    walked: int
    warps: int
    stages: int
    registers: int | None = None
    parts: int = 1

    def __post_init__(self) -> None:
        if min(self.own, self.walked) < 16 or max(self.own, self.walked) % min(self.own, self.walked):
            raise ValueError(f"tiles of {self.own} and {self.walked} tokens: at least 16, and one divides the other")


# {kernel: (sizes, sizes where a width is above 64 components)}: the fastest sizes that
# `benchmarks/attention.py --device cuda --parts tiles` measures on an H200, at 2,048 or 16,384 tokens. float32 is
# multiplied exactly, outside the matrix unit, so its tiles are smaller.
_HALF = {
    "forward": (TileSizes(64, 64, 4, 3, 128, 4), TileSizes(64, 64, 4, 3, parts=4)),
    "queries": (TileSizes(64, 64, 4, 3, 168, 4), TileSizes(64, 64, 4, 2, parts=4)),
    "keys": (TileSizes(64, 64, 4, 3, parts=4), TileSizes(64, 64, 4, 2, parts=2)),
}
_LONG = (TileSizes(64, 128, 4, 2, 168, 8), TileSizes(128, 64, 8, 2, 128, 4))  # forward, from LONG tokens on
_SINGLE = (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2))
LONG = 8192


def tile_sizes(kernel: str, dtype: torch.dtype, tokens: int, width: int) -> TileSizes:
    """Tile sizes for ``forward``, ``queries`` (dQ) or ``keys`` (dK and dV) of heads of at most `width` components."""
    if dtype == torch.float32:
        return _SINGLE[width > 64]
    return (_LONG if kernel == "forward" and tokens >= LONG else _HALF[kernel])[width > 64]


@lru_cache(maxsize=256)
def chunk_widths(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Widths of the chunks that the components are loaded in: powers of two from 16, at most four, covering all.

    The widths load the fewest components per pair if each level halves the blocks of the level before. Then a pair
    shares l levels with frequency 2^-l, and loads whole chunks up to the end of level l.
    """
    total, ends = sum(ranks), list(accumulate(ranks))
    weights = [2.0 ** -min(level + 1, len(ranks) - 1) for level in range(len(ranks))]
    costs: dict[tuple[int, ...], float] = {}
    for count in range(1, MAX_CHUNKS + 1):
        for widths in product((16, 32, 64, 128, 256), repeat=count):
            borders = list(accumulate(widths))
            if borders[-1] >= total and (count == 1 or borders[-2] < total):
                loaded = (next(border for border in borders if border >= end) for end in ends)
                # each chunk is one more product to issue, which counts as one component per pair
                costs[widths] = sum(w * n for w, n in zip(weights, loaded, strict=True)) + count
    return min(costs, key=costs.__getitem__)


@dataclass(frozen=True)
class Problem:
    """The arguments of every kernel except q, k and v; ids are blocks, or `EVERYWHERE` in int64.

    The blocks of the first levels nest and begin at multiples of `lengths` tokens.
    `plans` caches planned walks, by the tile sizes and by whether the owned tiles are keys.
    """

    ranks: tuple[int, ...]
    causal: bool
    scale: float
    query_ids: Tensor
    key_ids: Tensor
    query_positions: Tensor | None
    key_positions: Tensor | None
    key_mask: Tensor | None
    has_global: bool = False
    lengths: tuple[int, ...] = ()
    plans: dict[tuple[int, int, bool], WalkPlan] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors, in the order of the fields."""
        return self.query_ids, self.key_ids, self.query_positions, self.key_positions, self.key_mask

    @property
    def bounds(self) -> tuple[int, ...]:
        """The first component of each level, and the end of the last level."""
        return (0, *accumulate(self.ranks))

    @property
    def plan_batch(self) -> int:
        """The number of plans: 1 if every row of the batch walks the same tiles."""
        read = [self.query_ids[0], self.key_ids[0], self.key_mask]
        read += [self.query_positions, self.key_positions] if self.causal else []
        return max(t.shape[0] for t in read if t is not None)

    def constants(self, q: Tensor, v: Tensor, sizes: TileSizes) -> dict[str, Any]:
        """The compile-time arguments of the three attention kernels."""
        widths = chunk_widths(self.ranks)
        starts, ends = (0, *accumulate(widths)), self.bounds[1:-1]
        part = sizes.walked // sizes.parts
        return {
            "BOUNDS": self.bounds,
            "LEVELS": len(self.ranks),
            "CHUNKS": len(widths),
            "CUTS": sum(1 << c for c in range(len(widths)) if any(starts[c] < end < starts[c + 1] for end in ends)),
            **{f"W{chunk}": width for chunk, width in enumerate((*widths, 0, 0, 0)[:MAX_CHUNKS])},
            "R": q.shape[-1],
            "E": v.shape[-1],
            "VALUES": max(16, triton.next_power_of_2(v.shape[-1])),
            "OWN": sizes.own,
            "WALKED": sizes.walked,
            "CAUSAL": self.causal,
            "HAS_MASK": self.key_mask is not None,
            "HAS_QUERY_POSITIONS": self.causal and self.query_positions is not None,
            "HAS_KEY_POSITIONS": self.causal and self.key_positions is not None,
            "HAS_GLOBAL": self.has_global,
            "PRECISION": _precision(q.dtype),
            "PACKING": PACK,
            "STAGES": sizes.stages,
            "PARTS": sizes.parts,
            "WHOLE": sum(length % part == 0 for length in self.lengths),
            "num_warps": sizes.warps,
            "num_stages": sizes.stages,
            "maxnreg": sizes.registers,
        }

    def arguments(self, q: Tensor, k: Tensor, plan: WalkPlan) -> tuple[list[Tensor], list[int]]:
        """The tensors that follow the outputs of a kernel, and the integers that follow the strides."""
        ids = self.query_ids
        tensors = [plan.order, plan.mixes, plan.starts, *(ids if t is None else t for t in self.tensors)]
        P, tiles, walked_tiles = plan.order.shape
        integers = [
            *(0 if P == 1 else tiles, tiles, walked_tiles),
            *(stride for t in (self.query_ids, self.key_ids) for stride in (t.stride(0), _batch_stride(t, 1))),
            *(_batch_stride(t) for t in (self.query_positions, self.key_positions, self.key_mask)),
            *(q.shape[1], q.shape[1] // k.shape[1], q.shape[2], k.shape[2]),
        ]
        return tensors, integers


def _precision(dtype: torch.dtype) -> str:
    if dtype == torch.float32:
        return "ieee"  # TF32 keeps 10 bits of a float32, too few for 1e-5
    # the interpreter of Triton 3.7 multiplies the bits of bfloat16 as integers; a product in float32 is as exact
    return "widened" if is_interpreted(dot) else "tf32"


def _batch_stride(t: Tensor | None, dim: int = 0) -> int:
    """The stride of an axis; 0 if every row of the batch reads the same numbers."""
    return 0 if t is None or t.shape[dim] == 1 else t.stride(dim)


def _strides(*tensors: Tensor) -> list[int]:
    """The strides of batch, head and row of each tensor in turn."""
    return [stride for t in tensors for stride in t.stride()[:3]]


@kept_by_stream
def _regular_problem(
    ranks: tuple[int, ...], causal: bool, scale: float, regular: RegularBlocks, device: torch.device
) -> Problem:
    """The problem of self-attention; a cached problem has the plans of earlier calls."""
    places = torch.arange(regular.first, regular.first + regular.length, device=device)
    ids = torch.stack([floor_divide(places * number, span) for number, span in regular.levels])[:, None].int()
    return Problem(ranks, causal, scale, ids, ids, None, None, None, False, _lengths(regular))


def _lengths(regular: RegularBlocks) -> tuple[int, ...]:
    """Block lengths of the first levels, as long as each divides the length before and the first position."""
    lengths: list[int] = []
    for number, span in regular.levels:
        length, rest = divmod(span, number)
        if rest or regular.first % length or (lengths and lengths[-1] % length):
            break
        lengths.append(length)
    return tuple(lengths)


@dataclass(frozen=True)
class WalkPlan:
    """For every own tile, the walked tiles in groups; `starts` holds where each group begins."""

    order: Tensor  # (P, own tiles, walked tiles) int32: walked tile * PACK + shared components
    mixes: Tensor  # (P, own tiles, walked tiles) int32: levels shared in part
    starts: Tensor  # (P, own tiles, chunks + 2) int32


def plan_walk(problem: Problem, sizes: TileSizes, *, own_keys: bool) -> WalkPlan:
    """Sort the tiles on the device, once for each problem; the host reads no result, so nothing waits."""
    key = (sizes.own, sizes.walked, own_keys)
    if key in problem.plans:
        return problem.plans[key]
    unit = min(sizes.own, sizes.walked)
    own, walked = _ranges(problem, unit, keys=own_keys), _ranges(problem, unit, keys=not own_keys)
    counts = (problem.query_ids.shape[2], problem.key_ids.shape[2])
    own_tiles = triton.cdiv(counts[own_keys], sizes.own)
    walked_tiles = triton.cdiv(counts[not own_keys], sizes.walked)
    widths = chunk_widths(problem.ranks)
    shapes = ((own_tiles, walked_tiles), (own_tiles, walked_tiles), (own_tiles, len(widths) + 2))
    P, device = problem.plan_batch, own.device
    plan = WalkPlan(*(torch.empty(P, *shape, dtype=torch.int32, device=device) for shape in shapes))
    plan_kernel[(own_tiles, P)](
        own, walked, plan.order, plan.mixes, plan.starts, _batch_stride(own), _batch_stride(walked),
        own.shape[2], walked.shape[2], walked_tiles,
        BOUNDS=problem.bounds, CHUNK_STARTS=(0, *accumulate(widths)), LEVELS=len(problem.ranks),
        CHUNKS=len(widths), OWN_UNITS=sizes.own // unit, WALKED_UNITS=sizes.walked // unit, WALKED=sizes.walked,
        TILES=triton.next_power_of_2(walked_tiles), CAUSAL=problem.causal, OWN_KEYS=own_keys, PACKING=PACK,
        num_warps=4,
    )  # fmt: skip
    problem.plans[key] = plan
    return plan


def _ranges(problem: Problem, unit: int, *, keys: bool) -> Tensor:
    """`(P, 2 L + 3, units)` int64, the ranges of ids and positions of every unit of queries or keys."""
    ids = problem.key_ids if keys else problem.query_ids
    positions = problem.key_positions if keys else problem.query_positions
    positions = positions if problem.causal else None
    valid = problem.key_mask if keys else None
    L, P, count = ids.shape
    P = max(P, *(t.shape[0] for t in (positions, valid, ids[0]) if t is not None))
    units = triton.cdiv(count, unit)
    out = torch.empty(P, 2 * L + 3, units, dtype=torch.int64, device=ids.device)
    ranges_kernel[(units, P)](
        ids, ids if positions is None else positions, ids if valid is None else valid, out, count, ids.stride(0),
        _batch_stride(ids, 1), _batch_stride(positions), _batch_stride(valid), units,
        LEVELS=L, UNIT=unit, HAS_POSITIONS=positions is not None, HAS_VALID=valid is not None, num_warps=2,
    )  # fmt: skip
    return out


def _forward(q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of the logits of each query to base 2."""
    sizes = tile_sizes("forward", q.dtype, k.shape[2], max(q.shape[-1], v.shape[-1]))
    plan = plan_walk(problem, sizes, own_keys=False)
    out, lse = _new_outputs(q, v)
    tensors, integers = problem.arguments(q, k, plan)
    forward_kernel[(plan.order.shape[1] * q.shape[0] * q.shape[1],)](
        q, k, v, out, lse, *tensors, *_strides(q, k, v, out), *integers, problem.scale * _LOG2_E,
        **problem.constants(q, v, sizes),
    )  # fmt: skip
    return out, lse


def _backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, problem: Problem
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    grad_out = _unit_stride(grad_out)
    grad_q, grad_k, grad_v = (_new_like(t, t.shape[-1]) for t in (q, k, v))
    delta = torch.empty_like(lse)
    factor = problem.scale * _LOG2_E

    sizes = tile_sizes("queries", q.dtype, k.shape[2], max(q.shape[-1], v.shape[-1]))
    plan = plan_walk(problem, sizes, own_keys=False)
    tensors, integers = problem.arguments(q, k, plan)
    queries_kernel[(plan.order.shape[1] * q.shape[0] * q.shape[1],)](
        q, k, v, out, grad_out, lse, delta, grad_q, *tensors, *_strides(q, k, v, out, grad_out, grad_q),
        *integers, factor, problem.scale, **problem.constants(q, v, sizes),
    )  # fmt: skip

    sizes = tile_sizes("keys", q.dtype, k.shape[2], max(q.shape[-1], v.shape[-1]))
    plan = plan_walk(problem, sizes, own_keys=True)
    tensors, integers = problem.arguments(q, k, plan)
    keys_kernel[(plan.order.shape[1] * k.shape[0] * k.shape[1],)](
        q, k, v, grad_out, lse, delta, grad_k, grad_v, *tensors, *_strides(q, k, v, grad_out, grad_k, grad_v),
        *integers, factor, problem.scale, **problem.constants(q, v, sizes),
    )  # fmt: skip
    return grad_q, grad_k, grad_v


def _new_outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return _new_like(q, v.shape[-1]), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _new_like(t: Tensor, width: int) -> Tensor:
    """An empty `(B, H, N, width)` whose heads and tokens lie in memory in the order of t's."""
    B, H, N, _ = t.shape
    if t.stride(1) < t.stride(2):
        return t.new_empty(B, N, H, width).transpose(1, 2)
    return t.new_empty(B, H, N, width)


class _MultilevelAttention(torch.autograd.Function):
    """The kernels as one differentiable step, without second derivatives."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> Tensor:
        out, lse = _forward(q, k, v, problem)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.problem = problem
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        return *_backward(grad_out, q, k, v, out, lse, ctx.problem), None


@torch.library.custom_op("tsattn::multilevel_triton", mutates_args=())
def _operator(
    q: Tensor, k: Tensor, v: Tensor, query_ids: Tensor, key_ids: Tensor, query_positions: Tensor | None,
    key_positions: Tensor | None, key_mask: Tensor | None, ranks: list[int], causal: bool, scale: float,
    has_global: bool, lengths: list[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The kernels as one node of a compiled graph."""
    tensors = query_ids, key_ids, query_positions, key_positions, key_mask
    problem = Problem(tuple(ranks), causal, scale, *tensors, has_global, tuple(lengths))
    with torch.cuda.device_of(q):
        return _forward(q, k, v, problem)


@torch.library.custom_op("tsattn::multilevel_triton_backward", mutates_args=())
def _operator_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, query_ids: Tensor, key_ids: Tensor,
    query_positions: Tensor | None, key_positions: Tensor | None, key_mask: Tensor | None, ranks: list[int],
    causal: bool, scale: float, has_global: bool, lengths: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    tensors = query_ids, key_ids, query_positions, key_positions, key_mask
    problem = Problem(tuple(ranks), causal, scale, *tensors, has_global, tuple(lengths))
    with torch.cuda.device_of(q):
        return _backward(grad_out, q, k, v, out, lse, problem)


@_operator.register_fake
def _(q, k, v, *rest):  # type: ignore[no-untyped-def]
    return _new_outputs(q, v)


@_operator_backward.register_fake
def _(grad_out, q, k, v, *rest):  # type: ignore[no-untyped-def]
    return tuple(_new_like(t, t.shape[-1]) for t in (q, k, v))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:8], *output)
    ctx.given = inputs[8:]


def _backward_of_operator(ctx: Any, grad_out: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, *problem, out, lse = ctx.saved_tensors
    return (*_operator_backward(grad_out, q, k, v, out, lse, *problem, *ctx.given), *[None] * 10)


_operator.register_autograd(_backward_of_operator, setup_context=_save)
