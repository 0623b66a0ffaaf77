# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="import-not-found,import-untyped"
"""Multi-level low-rank (MLR) attention as one Triton kernel: exact, without the matrix of scores, in O(T) memory.

`S[j, j'] = scale * sum over the levels l in which j and j' share a block of q_l[j] . k_l[j']`
(Kuang et al., section 4), under a softmax with running maximum, for CUDA devices and for Triton's interpreter.

A program owns a tile of queries and walks the tiles of keys. A first, small kernel sorts these tiles by how much of
the r components they need. The components are cut into at most four *chunks* of 16, 32, ... (the matrix unit takes no
fewer than 16 at a time); a tile whose pairs all share the same first levels and no other, and of which no pair is
masked, loads the chunks of these levels only and looks at no mask. Such tiles are walked in one branch-free loop for
every number of chunks. The few others (cut by the boundary of a block, by causality, by padding, by the end of the
sequence) compare block ids pair by pair, level by level, which is also why blocks need not be nested to be exact:
they only run slower. Backward recomputes the scores from the log-sum-exp, as FlashAttention does, once for dQ over
tiles of queries and once for dK and dV over tiles of keys; nothing is summed in an order that varies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

__all__ = ["TileSizes", "multilevel_attention_triton", "triton_available"]

MAX_WIDTH = 256  # components, and widths of values: a tile of more does not fit the registers
MAX_LEVELS = 31  # the levels that a tile shares in part are the bits of an int32
MAX_CHUNKS = 4
# An entry of the plan is tile * PACK + components, in an int32.
PACK = 1024

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LOG2_E = 1.4426950408889634


def _jit(function):
    """`triton.jit`, or the plain function where Triton is not installed: it is then never called."""
    return function if triton is None else triton.jit(function)


def triton_available() -> bool:
    """Whether Triton is installed, so that `multilevel_attention_triton` can run at all."""
    return triton is not None


@dataclass(frozen=True)
class TileSizes:
    """Tokens in a program's own tile and in the tiles it walks, and how the kernel is compiled.

    `registers` bounds those of a thread; None leaves them to the compiler.
    """

    own: int
    walked: int
    warps: int
    stages: int
    registers: int | None = None

    def __post_init__(self) -> None:
        if min(self.own, self.walked) < 16 or max(self.own, self.walked) % min(self.own, self.walked):
            raise ValueError(f"tiles of {self.own} and {self.walked} tokens: at least 16, and one divides the other")


# {kernel: (sizes, sizes where a width is above 64 components)}. Chosen for Hopper from what the compiler reports for
# sm_90 (registers, spills inside the loops, shared memory), not yet from timings: 128 registers let two programs of 8
# warps share a multiprocessor. float32 is multiplied exactly, outside the matrix unit: smaller tiles.
_HALF = {
    "forward": (TileSizes(128, 64, 8, 3, 128), TileSizes(128, 64, 8, 2)),
    "queries": (TileSizes(128, 64, 8, 2, 128), TileSizes(64, 64, 8, 2)),
    "keys": (TileSizes(128, 64, 8, 2), TileSizes(64, 64, 8, 2)),
}
_SINGLE = {
    "forward": (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2)),
    "queries": (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2)),
    "keys": (TileSizes(64, 32, 8, 2), TileSizes(32, 32, 8, 2)),
}


def _tile_sizes(kernel: str, dtype: torch.dtype, width: int, value_width: int) -> TileSizes:
    """The sizes for ``forward``, ``queries`` (dQ) or ``keys`` (dK and dV)."""
    table = _SINGLE if dtype == torch.float32 else _HALF
    narrow, broad = table[kernel]
    return narrow if max(width, value_width) <= 64 else broad


@lru_cache(maxsize=256)
def chunk_widths(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Widths of the chunks that the components are loaded in: powers of two from 16, at most four, covering all.

    The choice costs least, in components loaded a pair, when each level halves the blocks of the one before: a pair
    shares l of L levels with frequency 2^-l, and loads whole chunks up to the end of level l.
    """
    total = sum(ranks)
    ends = list(itertools.accumulate(ranks))
    weights = [2.0 ** -min(level + 1, len(ranks) - 1) for level in range(len(ranks))]
    best: tuple[float, tuple[int, ...]] | None = None
    for count in range(1, MAX_CHUNKS + 1):
        for widths in itertools.product((16, 32, 64, 128, 256), repeat=count):
            borders = list(itertools.accumulate(widths))
            if borders[-1] < total or (count > 1 and borders[-2] >= total):
                continue
            loaded = (next(border for border in borders if border >= end) for end in ends)
            # a chunk more is a product more to issue; one component a pair stands for it
            cost = sum(w * n for w, n in zip(weights, loaded, strict=True)) + count
            if best is None or cost < best[0]:
                best = (cost, widths)
    if best is None:
        raise ValueError(f"{total} components are more than {MAX_WIDTH}")
    return best[1]


# --- kernels ---------------------------------------------------------------------------------------------------------
# Names: `own` is the tile of a program, `walked` the tiles it loops over. Rows are tokens. `limit` is how many leading
# components all pairs of a tile share; `mix` has a bit for every other level that some of its pairs may share.


@_jit
def _ranges_kernel(
    ids, positions, valid, out, count, ids_level, ids_batch, positions_batch, valid_batch, units,
    LEVELS: tl.constexpr, UNIT: tl.constexpr, HAS_POSITIONS: tl.constexpr, HAS_VALID: tl.constexpr,
):  # fmt: skip
    """For a unit of tokens: lowest and highest id at each level, lowest and highest position, how many are real."""
    unit = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    rows = unit * UNIT + tl.arange(0, UNIT)
    inside = rows < count
    real = inside
    if HAS_VALID:
        real = tl.load(valid + batch * valid_batch + rows, mask=inside, other=0) != 0
    above = tl.full((UNIT,), 4611686018427387904, tl.int64)
    out += batch * (2 * LEVELS + 3) * units + unit
    for level in tl.static_range(LEVELS):
        value = tl.load(ids + level * ids_level + batch * ids_batch + rows, mask=inside, other=0).to(tl.int64)
        tl.store(out + 2 * level * units, tl.min(tl.where(real, value, above), 0))
        tl.store(out + (2 * level + 1) * units, tl.max(tl.where(real, value, -above), 0))
    place = rows.to(tl.int64)
    if HAS_POSITIONS:
        place = tl.load(positions + batch * positions_batch + rows, mask=inside, other=0).to(tl.int64)
    tl.store(out + 2 * LEVELS * units, tl.min(tl.where(real, place, above), 0))
    tl.store(out + (2 * LEVELS + 1) * units, tl.max(tl.where(real, place, -above), 0))
    tl.store(out + (2 * LEVELS + 2) * units, tl.sum(real.to(tl.int64), 0))


@_jit
def _merged_range(ranges, slot, tiles, units, UNITS: tl.constexpr):
    """Lowest and highest of a pair of slots over the units of each tile."""
    unit = tiles * UNITS
    low = tl.load(ranges + slot * units + unit, mask=unit < units, other=4611686018427387904)
    high = tl.load(ranges + (slot + 1) * units + unit, mask=unit < units, other=-4611686018427387904)
    for step in tl.static_range(1, UNITS):
        unit = tiles * UNITS + step
        more = tl.load(ranges + slot * units + unit, mask=unit < units, other=4611686018427387904)
        low = tl.minimum(low, more)
        more = tl.load(ranges + (slot + 1) * units + unit, mask=unit < units, other=-4611686018427387904)
        high = tl.maximum(high, more)
    return low, high


@_jit
def _merged_count(ranges, slot, tiles, units, UNITS: tl.constexpr):
    """Real tokens of each tile."""
    unit = tiles * UNITS
    total = tl.load(ranges + slot * units + unit, mask=unit < units, other=0)
    for step in tl.static_range(1, UNITS):
        unit = tiles * UNITS + step
        total += tl.load(ranges + slot * units + unit, mask=unit < units, other=0)
    return total


@_jit
def _plan_kernel(
    own, walked, order, mixes, starts, own_batch, walked_batch, own_units, walked_units, walked_tiles,
    BOUNDS: tl.constexpr, CHUNK_STARTS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr,
    OWN_UNITS: tl.constexpr, WALKED_UNITS: tl.constexpr, WALKED: tl.constexpr, TILES: tl.constexpr,
    CAUSAL: tl.constexpr, OWN_KEYS: tl.constexpr, PACKING: tl.constexpr,
):  # fmt: skip
    """For a tile: the tiles to walk, sorted by the chunks they need; those that need masks last; none that is empty."""
    own_tile = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    own += batch * own_batch
    walked += batch * walked_batch
    tiles = tl.arange(0, TILES)
    mine = own_tile + tl.zeros((TILES,), tl.int32)
    count = _merged_count(walked, 2 * LEVELS + 2, tiles, walked_units, WALKED_UNITS)
    visit = (tiles < walked_tiles) & (count > 0)
    visit = visit & (_merged_count(own, 2 * LEVELS + 2, mine, own_units, OWN_UNITS) > 0)
    clean = count == WALKED
    if CAUSAL:
        own_low, own_high = _merged_range(own, 2 * LEVELS, mine, own_units, OWN_UNITS)
        low, high = _merged_range(walked, 2 * LEVELS, tiles, walked_units, WALKED_UNITS)
        if OWN_KEYS:
            visit = visit & (own_low <= high)
            clean = clean & (own_high <= low)
        else:
            visit = visit & (low <= own_high)
            clean = clean & (high <= own_low)
    limit = tl.zeros((TILES,), tl.int32)
    mix = tl.zeros((TILES,), tl.int32)
    whole = tiles >= 0
    for level in tl.static_range(LEVELS):
        own_low, own_high = _merged_range(own, 2 * level, mine, own_units, OWN_UNITS)
        low, high = _merged_range(walked, 2 * level, tiles, walked_units, WALKED_UNITS)
        touch = (own_low <= high) & (low <= own_high)
        whole = whole & (own_low == own_high) & (low == high) & (own_low == low)
        limit = tl.where(whole, BOUNDS[level + 1], limit)
        mix = tl.where(touch & (whole == 0), mix | (1 << level), mix)
    kind = tl.zeros((TILES,), tl.int32)
    for chunk in tl.static_range(1, CHUNKS):
        kind += (limit > CHUNK_STARTS[chunk]).to(tl.int32)
    kind = tl.where(clean & (mix == 0) & (limit > 0), kind, CHUNKS)
    line = batch * tl.num_programs(0) + own_tile
    order += line * walked_tiles
    mixes += line * walked_tiles
    starts += line * (CHUNKS + 2)
    offset = 0
    for group in tl.static_range(CHUNKS + 1):
        member = visit & (kind == group)
        at = offset + tl.cumsum(member.to(tl.int32), 0) - 1
        tl.store(order + at, tiles * PACKING + limit, mask=member)
        tl.store(mixes + at, mix, mask=member)
        tl.store(starts + group, offset)
        offset += tl.sum(member.to(tl.int32), 0)
    tl.store(starts + CHUNKS + 1, offset)


@_jit
def _load_chunk(
    base, rows, stride, count, START: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr, CHECK: tl.constexpr,
    HINT: tl.constexpr = "",
):  # fmt: skip
    """`(rows, W)` components from START on; zeros beyond WIDTH and, if CHECK, in rows beyond count."""
    columns = START + tl.arange(0, W)
    pointers = base + rows[:, None] * stride + columns[None, :]
    if CHECK:
        if START + W > WIDTH:
            inside = (rows[:, None] < count) & (columns[None, :] < WIDTH)
            tile = tl.load(pointers, mask=inside, other=0.0, eviction_policy=HINT)
        else:
            tile = tl.load(pointers, mask=rows[:, None] < count, other=0.0, eviction_policy=HINT)
    else:
        if START + W > WIDTH:
            tile = tl.load(pointers, mask=columns[None, :] < WIDTH, other=0.0, eviction_policy=HINT)
        else:
            tile = tl.load(pointers, eviction_policy=HINT)
    return tile


@_jit
def _store_chunk(base, tile, rows, stride, count, START: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr):
    columns = START + tl.arange(0, W)
    pointers = base + rows[:, None] * stride + columns[None, :]
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=(rows[:, None] < count) & (columns[None, :] < WIDTH))


@_jit
def _dot(a, b, s, PRECISION: tl.constexpr):
    """`a b + s`, summed in float32."""
    if PRECISION == "widened":
        s = tl.dot(a.to(tl.float32), b.to(tl.float32), s, input_precision="ieee")
    else:
        s = tl.dot(a, b, s, input_precision=PRECISION)
    return s


@_jit
def _keep(tile, low, high, START: tl.constexpr, W: tl.constexpr):
    """The chunk with only its components from low to high left."""
    columns = START + tl.arange(0, W)[None, :]
    return tl.where((columns >= low) & (columns < high), tile, 0.0).to(tile.dtype)


@_jit
def _level_scores(
    s, a, b, LOW: tl.constexpr, HIGH: tl.constexpr, START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr
):
    """Scores of the components of one level that lie in this chunk, added."""
    if (LOW < START + W) and (HIGH > START):
        s = _dot(_keep(a, LOW, HIGH, START, W), tl.trans(b), s, PRECISION)
    return s


@_jit
def _level_gradient(
    grad, ds, b, LOW: tl.constexpr, HIGH: tl.constexpr, START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr
):
    """Gradient of the components of one level that lie in this chunk, added."""
    if (LOW < START + W) and (HIGH > START):
        grad += _keep(_dot(ds, b, tl.zeros_like(grad), PRECISION), LOW, HIGH, START, W)
    return grad


@_jit
def _scores(
    a0, a1, a2, a3, b0, b1, b2, b3, limit, GROUP: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """`(A, B)` products of the first `limit` components.

    Tiles of a group below CHUNKS end in its own chunk, so only this one is cut, and only if a level ends inside it;
    those of group CHUNKS may end anywhere.
    """
    s = tl.zeros((A, B), tl.float32)
    last: tl.constexpr = GROUP if GROUP < CHUNKS else CHUNKS - 1
    mixed: tl.constexpr = GROUP == CHUNKS
    if mixed or (last == 0 and (CUTS & 1) != 0):
        a0 = _keep(a0, 0, limit, 0, W0)
    s = _dot(a0, tl.trans(b0), s, PRECISION)
    if last >= 1:
        if mixed or (last == 1 and (CUTS & 2) != 0):
            a1 = _keep(a1, 0, limit, W0, W1)
        s = _dot(a1, tl.trans(b1), s, PRECISION)
    if last >= 2:
        if mixed or (last == 2 and (CUTS & 4) != 0):
            a2 = _keep(a2, 0, limit, W0 + W1, W2)
        s = _dot(a2, tl.trans(b2), s, PRECISION)
    if last >= 3:
        if mixed or (last == 3 and (CUTS & 8) != 0):
            a3 = _keep(a3, 0, limit, W0 + W1 + W2, W3)
        s = _dot(a3, tl.trans(b3), s, PRECISION)
    return s


@_jit
def _chunk_gradient(
    grad, ds, b, limit, CHUNK: tl.constexpr, GROUP: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`ds b` added to the first `limit` components of the gradient of a chunk, as `_scores` used them."""
    if GROUP == CHUNKS or (GROUP == CHUNK and ((CUTS >> CHUNK) & 1) != 0):
        grad += _keep(_dot(ds, b, tl.zeros_like(grad), PRECISION), 0, limit, START, W)
    else:
        grad = _dot(ds, b, grad, PRECISION)
    return grad


@_jit
def _allowed(
    query_rows, key_rows, query_positions, key_positions, key_mask, N, S,
    CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr,
):  # fmt: skip
    """Which of the keys may be seen at all, and the positions of both sides."""
    allowed = key_rows < S
    if HAS_MASK:
        allowed = tl.load(key_mask + key_rows, mask=allowed, other=0) != 0
    query_place = query_rows.to(tl.int64)
    key_place = key_rows.to(tl.int64)
    if CAUSAL:
        if HAS_QUERY_POSITIONS:
            query_place = tl.load(query_positions + query_rows, mask=query_rows < N, other=0).to(tl.int64)
        if HAS_KEY_POSITIONS:
            key_place = tl.load(key_positions + key_rows, mask=key_rows < S, other=0).to(tl.int64)
    return allowed, query_place, key_place


@_jit
def _forward_walk(
    acc, total, top, q, q_row, left, k, v, k_row, v_row, order, mixes, first, last, rows,
    query_ids, key_ids, query_ids_level, key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
    GROUP: tl.constexpr, BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
    PACKING: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Running softmax over the key tiles of one group."""
    mixed: tl.constexpr = GROUP == CHUNKS
    # Loaded anew for the last group, whose hint keeps the compiler from seeing the same load: it needs these tiles in
    # registers, where they would otherwise stay through the loops of the other groups.
    hint: tl.constexpr = "evict_last" if mixed else ""
    inner = tl.arange(0, OWN)
    q0 = _load_chunk(q, inner, q_row, left, 0, W0, R, True, hint)
    q1, q2, q3 = q0, q0, q0
    if CHUNKS >= 2 and GROUP >= 1:
        q1 = _load_chunk(q, inner, q_row, left, W0, W1, R, True, hint)
    if CHUNKS >= 3 and GROUP >= 2:
        q2 = _load_chunk(q, inner, q_row, left, W0 + W1, W2, R, True, hint)
    if CHUNKS >= 4 and GROUP >= 3:
        q3 = _load_chunk(q, inner, q_row, left, W0 + W1 + W2, W3, R, True, hint)
    for step in tl.range(first, last, num_stages=STAGES):
        entry = tl.load(order + step)
        limit = entry % PACKING
        start = (entry // PACKING) * WALKED
        keys = tl.arange(0, WALKED)
        key_base = k + start.to(tl.int64) * k_row
        value_base = v + start.to(tl.int64) * v_row
        k0 = _load_chunk(key_base, keys, k_row, S - start, 0, W0, R, mixed)
        k1, k2, k3 = k0, k0, k0
        if CHUNKS >= 2 and GROUP >= 1:
            k1 = _load_chunk(key_base, keys, k_row, S - start, W0, W1, R, mixed)
        if CHUNKS >= 3 and GROUP >= 2:
            k2 = _load_chunk(key_base, keys, k_row, S - start, W0 + W1, W2, R, mixed)
        if CHUNKS >= 4 and GROUP >= 3:
            k3 = _load_chunk(key_base, keys, k_row, S - start, W0 + W1 + W2, W3, R, mixed)
        s = _scores(q0, q1, q2, q3, k0, k1, k2, k3, limit, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION)
        if mixed:
            key_rows = start + keys
            mix = tl.load(mixes + step)
            for level in tl.static_range(LEVELS):
                if ((mix >> level) & 1) != 0:
                    own = tl.load(query_ids + level * query_ids_level + rows, mask=rows < N, other=0)
                    ids = tl.load(key_ids + level * key_ids_level + key_rows, mask=key_rows < S, other=0)
                    part = tl.zeros((OWN, WALKED), tl.float32)
                    part = _level_scores(part, q0, k0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
                    if CHUNKS >= 2:
                        part = _level_scores(part, q1, k1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
                    if CHUNKS >= 3:
                        part = _level_scores(part, q2, k2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
                    if CHUNKS >= 4:
                        part = _level_scores(
                            part, q3, k3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION
                        )
                    s += tl.where(own[:, None] == ids[None, :], part, 0.0)
            allowed, query_place, key_place = _allowed(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            s = tl.where(allowed[None, :], s, float("-inf"))
            if CAUSAL:
                s = tl.where(key_place[None, :] <= query_place[:, None], s, float("-inf"))
        # top starts finite, so that a row without any key yet is -inf minus a number, never NaN
        higher = tl.maximum(top, tl.max(s, 1) * factor)
        p = tl.exp2(s * factor - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        top = higher
        values = _load_chunk(value_base, keys, v_row, S - start, 0, VALUES, E, mixed)
        acc = _dot(p.to(values.dtype), values, acc * shrink[:, None], PRECISION)
    return acc, total, top


@_jit
def _forward_kernel(
    q, k, v, out, lse, order, mixes, starts, query_ids, key_ids, query_positions, key_positions, key_mask,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    plan_batch, tiles, walked_tiles, query_ids_level, query_ids_batch, key_ids_level, key_ids_batch,
    query_positions_batch, key_positions_batch, key_mask_batch, H, shared, N, S, factor,
    BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
    PACKING: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Output and log-sum-exp (to base 2; +inf without any key) of a tile of queries of one head."""
    program = tl.program_id(0)
    # later queries see more keys when causal: the longest programs start first
    tile = tiles - 1 - program % tiles
    head = (program // tiles) % H
    batch = (program // tiles // H).to(tl.int64)
    rows = tile * OWN + tl.arange(0, OWN)
    inner = tl.arange(0, OWN)
    left = N - tile * OWN
    q += batch * q_batch + head.to(tl.int64) * q_head + (tile * OWN).to(tl.int64) * q_row
    k += batch * k_batch + (head // shared).to(tl.int64) * k_head
    v += batch * v_batch + (head // shared).to(tl.int64) * v_head
    out += batch * out_batch + head.to(tl.int64) * out_head + (tile * OWN).to(tl.int64) * out_row
    lse += (batch * H + head) * N
    line = batch * plan_batch + tile
    order += line * walked_tiles
    mixes += line * walked_tiles
    starts += line * (CHUNKS + 2)
    query_ids += batch * query_ids_batch
    key_ids += batch * key_ids_batch
    query_positions += batch * query_positions_batch
    key_positions += batch * key_positions_batch
    key_mask += batch * key_mask_batch
    acc = tl.zeros((OWN, VALUES), tl.float32)
    total = tl.zeros((OWN,), tl.float32)
    top = tl.full((OWN,), -1.0e38, tl.float32)
    for group in tl.static_range(CHUNKS + 1):
        acc, total, top = _forward_walk(
            acc, total, top, q, q_row, left, k, v, k_row, v_row, order, mixes,
            tl.load(starts + group), tl.load(starts + group + 1), rows, query_ids, key_ids, query_ids_level,
            key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
            group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN, WALKED, CAUSAL, HAS_MASK,
            HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
        )  # fmt: skip
    seen = total > 0
    total = tl.where(seen, total, 1.0)
    _store_chunk(out, acc / total[:, None], inner, out_row, left, 0, VALUES, E)
    tl.store(lse + rows, tl.where(seen, top + tl.log2(total), float("inf")), mask=rows < N)


@_jit
def _queries_walk(
    g0, g1, g2, g3, q, q_row, grad_out, grad_out_row, left, lse, delta, k, v, k_row, v_row, order, mixes, first, last,
    rows,
    query_ids, key_ids, query_ids_level, key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
    GROUP: tl.constexpr, BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
    PACKING: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries (without the scale) from the key tiles of one group."""
    mixed: tl.constexpr = GROUP == CHUNKS
    # Loaded anew for the last group, whose hint keeps the compiler from seeing the same load: it needs these tiles in
    # registers, where they would otherwise stay through the loops of the other groups.
    hint: tl.constexpr = "evict_last" if mixed else ""
    inner = tl.arange(0, OWN)
    q0 = _load_chunk(q, inner, q_row, left, 0, W0, R, True, hint)
    q1, q2, q3 = q0, q0, q0
    if CHUNKS >= 2 and GROUP >= 1:
        q1 = _load_chunk(q, inner, q_row, left, W0, W1, R, True, hint)
    if CHUNKS >= 3 and GROUP >= 2:
        q2 = _load_chunk(q, inner, q_row, left, W0 + W1, W2, R, True, hint)
    if CHUNKS >= 4 and GROUP >= 3:
        q3 = _load_chunk(q, inner, q_row, left, W0 + W1 + W2, W3, R, True, hint)
    do = _load_chunk(grad_out, inner, grad_out_row, left, 0, VALUES, E, True, hint)
    for step in tl.range(first, last, num_stages=STAGES):
        entry = tl.load(order + step)
        limit = entry % PACKING
        start = (entry // PACKING) * WALKED
        keys = tl.arange(0, WALKED)
        key_rows = start + keys
        key_base = k + start.to(tl.int64) * k_row
        value_base = v + start.to(tl.int64) * v_row
        k0 = _load_chunk(key_base, keys, k_row, S - start, 0, W0, R, mixed)
        k1, k2, k3 = k0, k0, k0
        if CHUNKS >= 2 and GROUP >= 1:
            k1 = _load_chunk(key_base, keys, k_row, S - start, W0, W1, R, mixed)
        if CHUNKS >= 3 and GROUP >= 2:
            k2 = _load_chunk(key_base, keys, k_row, S - start, W0 + W1, W2, R, mixed)
        if CHUNKS >= 4 and GROUP >= 3:
            k3 = _load_chunk(key_base, keys, k_row, S - start, W0 + W1 + W2, W3, R, mixed)
        values = _load_chunk(value_base, keys, v_row, S - start, 0, VALUES, E, mixed)
        s = _scores(q0, q1, q2, q3, k0, k1, k2, k3, limit, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION)
        mix = 0
        if mixed:
            mix = tl.load(mixes + step)
            for level in tl.static_range(LEVELS):
                if ((mix >> level) & 1) != 0:
                    own = tl.load(query_ids + level * query_ids_level + rows, mask=rows < N, other=0)
                    ids = tl.load(key_ids + level * key_ids_level + key_rows, mask=key_rows < S, other=0)
                    part = tl.zeros((OWN, WALKED), tl.float32)
                    part = _level_scores(part, q0, k0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
                    if CHUNKS >= 2:
                        part = _level_scores(part, q1, k1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
                    if CHUNKS >= 3:
                        part = _level_scores(part, q2, k2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
                    if CHUNKS >= 4:
                        part = _level_scores(
                            part, q3, k3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION
                        )
                    s += tl.where(own[:, None] == ids[None, :], part, 0.0)
        p = tl.exp2(s * factor - lse[:, None])
        if mixed:
            allowed, query_place, key_place = _allowed(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            p = tl.where(allowed[None, :], p, 0.0)
            if CAUSAL:
                p = tl.where(key_place[None, :] <= query_place[:, None], p, 0.0)
        dp = _dot(do, tl.trans(values), tl.zeros((OWN, WALKED), tl.float32), PRECISION)
        ds = (p * (dp - delta[:, None])).to(k0.dtype)
        g0 = _chunk_gradient(g0, ds, k0, limit, 0, GROUP, CHUNKS, CUTS, 0, W0, PRECISION)
        if CHUNKS >= 2 and GROUP >= 1:
            g1 = _chunk_gradient(g1, ds, k1, limit, 1, GROUP, CHUNKS, CUTS, W0, W1, PRECISION)
        if CHUNKS >= 3 and GROUP >= 2:
            g2 = _chunk_gradient(g2, ds, k2, limit, 2, GROUP, CHUNKS, CUTS, W0 + W1, W2, PRECISION)
        if CHUNKS >= 4 and GROUP >= 3:
            g3 = _chunk_gradient(g3, ds, k3, limit, 3, GROUP, CHUNKS, CUTS, W0 + W1 + W2, W3, PRECISION)
        if mixed:
            for level in tl.static_range(LEVELS):
                if ((mix >> level) & 1) != 0:
                    own = tl.load(query_ids + level * query_ids_level + rows, mask=rows < N, other=0)
                    ids = tl.load(key_ids + level * key_ids_level + key_rows, mask=key_rows < S, other=0)
                    near = tl.where(own[:, None] == ids[None, :], ds, 0.0).to(ds.dtype)
                    g0 = _level_gradient(g0, near, k0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
                    if CHUNKS >= 2:
                        g1 = _level_gradient(g1, near, k1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
                    if CHUNKS >= 3:
                        g2 = _level_gradient(g2, near, k2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
                    if CHUNKS >= 4:
                        g3 = _level_gradient(
                            g3, near, k3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION
                        )
    return g0, g1, g2, g3


@_jit
def _queries_kernel(
    q, k, v, out, grad_out, lse, delta, grad_q, order, mixes, starts, query_ids, key_ids, query_positions,
    key_positions, key_mask,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    grad_out_batch, grad_out_head, grad_out_row, grad_q_batch, grad_q_head, grad_q_row,
    plan_batch, tiles, walked_tiles, query_ids_level, query_ids_batch, key_ids_level, key_ids_batch,
    query_positions_batch, key_positions_batch, key_mask_batch, H, shared, N, S, factor, scale,
    BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
    PACKING: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries of one head, and `delta = rowsum(grad_out * out)`, which `_keys_kernel` reads."""
    program = tl.program_id(0)
    tile = tiles - 1 - program % tiles
    head = (program // tiles) % H
    batch = (program // tiles // H).to(tl.int64)
    inner = tl.arange(0, OWN)
    rows = tile * OWN + inner
    left = N - tile * OWN
    origin = (tile * OWN).to(tl.int64)
    q += batch * q_batch + head.to(tl.int64) * q_head + origin * q_row
    out += batch * out_batch + head.to(tl.int64) * out_head + origin * out_row
    grad_out += batch * grad_out_batch + head.to(tl.int64) * grad_out_head + origin * grad_out_row
    grad_q += batch * grad_q_batch + head.to(tl.int64) * grad_q_head + origin * grad_q_row
    k += batch * k_batch + (head // shared).to(tl.int64) * k_head
    v += batch * v_batch + (head // shared).to(tl.int64) * v_head
    lse += (batch * H + head) * N
    delta += (batch * H + head) * N
    line = batch * plan_batch + tile
    order += line * walked_tiles
    mixes += line * walked_tiles
    starts += line * (CHUNKS + 2)
    query_ids += batch * query_ids_batch
    key_ids += batch * key_ids_batch
    query_positions += batch * query_positions_batch
    key_positions += batch * key_positions_batch
    key_mask += batch * key_mask_batch
    do = _load_chunk(grad_out, inner, grad_out_row, left, 0, VALUES, E, True)
    o = _load_chunk(out, inner, out_row, left, 0, VALUES, E, True)
    row_delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(delta + rows, row_delta, mask=rows < N)
    row_lse = tl.load(lse + rows, mask=rows < N, other=float("inf"))
    g0 = tl.zeros((OWN, W0), tl.float32)
    g1, g2, g3 = g0, g0, g0
    if CHUNKS >= 2:
        g1 = tl.zeros((OWN, W1), tl.float32)
    if CHUNKS >= 3:
        g2 = tl.zeros((OWN, W2), tl.float32)
    if CHUNKS >= 4:
        g3 = tl.zeros((OWN, W3), tl.float32)
    for group in tl.static_range(CHUNKS + 1):
        g0, g1, g2, g3 = _queries_walk(
            g0, g1, g2, g3, q, q_row, grad_out, grad_out_row, left, row_lse, row_delta, k, v, k_row, v_row,
            order, mixes, tl.load(starts + group), tl.load(starts + group + 1), rows, query_ids, key_ids,
            query_ids_level, key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
            group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN, WALKED, CAUSAL, HAS_MASK,
            HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
        )  # fmt: skip
    _store_chunk(grad_q, g0 * scale, inner, grad_q_row, left, 0, W0, R)
    if CHUNKS >= 2:
        _store_chunk(grad_q, g1 * scale, inner, grad_q_row, left, W0, W1, R)
    if CHUNKS >= 3:
        _store_chunk(grad_q, g2 * scale, inner, grad_q_row, left, W0 + W1, W2, R)
    if CHUNKS >= 4:
        _store_chunk(grad_q, g3 * scale, inner, grad_q_row, left, W0 + W1 + W2, W3, R)


@_jit
def _keys_walk(
    g0, g1, g2, g3, grad_v, k, v, k_row, v_row, left, q, grad_out, lse, delta, q_row, grad_out_row, order, mixes,
    first, last, key_rows, query_ids, key_ids, query_ids_level, key_ids_level, query_positions, key_positions,
    key_mask, N, S, factor,
    GROUP: tl.constexpr, BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
    PACKING: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys (without the scale) and values from the query tiles of one group and one head.

    Everything is transposed: keys are rows, queries are columns.
    """
    mixed: tl.constexpr = GROUP == CHUNKS
    # Loaded anew for the last group, whose hint keeps the compiler from seeing the same load: it needs these tiles in
    # registers, where they would otherwise stay through the loops of the other groups.
    hint: tl.constexpr = "evict_last" if mixed else ""
    inner = tl.arange(0, OWN)
    k0 = _load_chunk(k, inner, k_row, left, 0, W0, R, True, hint)
    k1, k2, k3 = k0, k0, k0
    if CHUNKS >= 2 and GROUP >= 1:
        k1 = _load_chunk(k, inner, k_row, left, W0, W1, R, True, hint)
    if CHUNKS >= 3 and GROUP >= 2:
        k2 = _load_chunk(k, inner, k_row, left, W0 + W1, W2, R, True, hint)
    if CHUNKS >= 4 and GROUP >= 3:
        k3 = _load_chunk(k, inner, k_row, left, W0 + W1 + W2, W3, R, True, hint)
    values = _load_chunk(v, inner, v_row, left, 0, VALUES, E, True, hint)
    for step in tl.range(first, last, num_stages=STAGES):
        entry = tl.load(order + step)
        limit = entry % PACKING
        start = (entry // PACKING) * WALKED
        queries = tl.arange(0, WALKED)
        rows = start + queries
        query_base = q + start.to(tl.int64) * q_row
        grad_base = grad_out + start.to(tl.int64) * grad_out_row
        q0 = _load_chunk(query_base, queries, q_row, N - start, 0, W0, R, mixed)
        q1, q2, q3 = q0, q0, q0
        if CHUNKS >= 2 and GROUP >= 1:
            q1 = _load_chunk(query_base, queries, q_row, N - start, W0, W1, R, mixed)
        if CHUNKS >= 3 and GROUP >= 2:
            q2 = _load_chunk(query_base, queries, q_row, N - start, W0 + W1, W2, R, mixed)
        if CHUNKS >= 4 and GROUP >= 3:
            q3 = _load_chunk(query_base, queries, q_row, N - start, W0 + W1 + W2, W3, R, mixed)
        do = _load_chunk(grad_base, queries, grad_out_row, N - start, 0, VALUES, E, mixed)
        if mixed:
            # without this a query beyond the end would weigh exp2(0 - lse): with it, nothing
            row_lse = tl.load(lse + rows, mask=rows < N, other=float("inf"))
            row_delta = tl.load(delta + rows, mask=rows < N, other=0.0)
        else:
            row_lse = tl.load(lse + rows)
            row_delta = tl.load(delta + rows)
        s = _scores(k0, k1, k2, k3, q0, q1, q2, q3, limit, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION)
        mix = 0
        if mixed:
            mix = tl.load(mixes + step)
            for level in tl.static_range(LEVELS):
                if ((mix >> level) & 1) != 0:
                    own = tl.load(key_ids + level * key_ids_level + key_rows, mask=key_rows < S, other=0)
                    ids = tl.load(query_ids + level * query_ids_level + rows, mask=rows < N, other=0)
                    part = tl.zeros((OWN, WALKED), tl.float32)
                    part = _level_scores(part, k0, q0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
                    if CHUNKS >= 2:
                        part = _level_scores(part, k1, q1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
                    if CHUNKS >= 3:
                        part = _level_scores(part, k2, q2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
                    if CHUNKS >= 4:
                        part = _level_scores(
                            part, k3, q3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION
                        )
                    s += tl.where(own[:, None] == ids[None, :], part, 0.0)
        p = tl.exp2(s * factor - row_lse[None, :])
        if mixed:
            allowed, query_place, key_place = _allowed(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            p = tl.where(allowed[:, None], p, 0.0)
            if CAUSAL:
                p = tl.where(key_place[:, None] <= query_place[None, :], p, 0.0)
        grad_v = _dot(p.to(do.dtype), do, grad_v, PRECISION)
        dp = _dot(values, tl.trans(do), tl.zeros((OWN, WALKED), tl.float32), PRECISION)
        ds = (p * (dp - row_delta[None, :])).to(q0.dtype)
        g0 = _chunk_gradient(g0, ds, q0, limit, 0, GROUP, CHUNKS, CUTS, 0, W0, PRECISION)
        if CHUNKS >= 2 and GROUP >= 1:
            g1 = _chunk_gradient(g1, ds, q1, limit, 1, GROUP, CHUNKS, CUTS, W0, W1, PRECISION)
        if CHUNKS >= 3 and GROUP >= 2:
            g2 = _chunk_gradient(g2, ds, q2, limit, 2, GROUP, CHUNKS, CUTS, W0 + W1, W2, PRECISION)
        if CHUNKS >= 4 and GROUP >= 3:
            g3 = _chunk_gradient(g3, ds, q3, limit, 3, GROUP, CHUNKS, CUTS, W0 + W1 + W2, W3, PRECISION)
        if mixed:
            for level in tl.static_range(LEVELS):
                if ((mix >> level) & 1) != 0:
                    own = tl.load(key_ids + level * key_ids_level + key_rows, mask=key_rows < S, other=0)
                    ids = tl.load(query_ids + level * query_ids_level + rows, mask=rows < N, other=0)
                    near = tl.where(own[:, None] == ids[None, :], ds, 0.0).to(ds.dtype)
                    g0 = _level_gradient(g0, near, q0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
                    if CHUNKS >= 2:
                        g1 = _level_gradient(g1, near, q1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
                    if CHUNKS >= 3:
                        g2 = _level_gradient(g2, near, q2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
                    if CHUNKS >= 4:
                        g3 = _level_gradient(
                            g3, near, q3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION
                        )
    return g0, g1, g2, g3, grad_v


@_jit
def _keys_kernel(
    q, k, v, grad_out, lse, delta, grad_k, grad_v, order, mixes, starts, query_ids, key_ids, query_positions,
    key_positions, key_mask,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    grad_out_batch, grad_out_head, grad_out_row, grad_k_batch, grad_k_head, grad_k_row,
    grad_v_batch, grad_v_head, grad_v_row,
    plan_batch, tiles, walked_tiles, query_ids_level, query_ids_batch, key_ids_level, key_ids_batch,
    query_positions_batch, key_positions_batch, key_mask_batch, H, shared, N, S, factor, scale,
    BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, PRECISION: tl.constexpr,
    PACKING: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and values of one key head, summed over the query heads that share it."""
    program = tl.program_id(0)
    tile = program % tiles
    head = (program // tiles) % (H // shared)
    batch = (program // tiles // (H // shared)).to(tl.int64)
    inner = tl.arange(0, OWN)
    key_rows = tile * OWN + inner
    left = S - tile * OWN
    origin = (tile * OWN).to(tl.int64)
    k += batch * k_batch + head.to(tl.int64) * k_head + origin * k_row
    v += batch * v_batch + head.to(tl.int64) * v_head + origin * v_row
    grad_k += batch * grad_k_batch + head.to(tl.int64) * grad_k_head + origin * grad_k_row
    grad_v += batch * grad_v_batch + head.to(tl.int64) * grad_v_head + origin * grad_v_row
    q += batch * q_batch
    grad_out += batch * grad_out_batch
    line = batch * plan_batch + tile
    order += line * walked_tiles
    mixes += line * walked_tiles
    starts += line * (CHUNKS + 2)
    query_ids += batch * query_ids_batch
    key_ids += batch * key_ids_batch
    query_positions += batch * query_positions_batch
    key_positions += batch * key_positions_batch
    key_mask += batch * key_mask_batch
    g0 = tl.zeros((OWN, W0), tl.float32)
    g1, g2, g3 = g0, g0, g0
    if CHUNKS >= 2:
        g1 = tl.zeros((OWN, W1), tl.float32)
    if CHUNKS >= 3:
        g2 = tl.zeros((OWN, W2), tl.float32)
    if CHUNKS >= 4:
        g3 = tl.zeros((OWN, W3), tl.float32)
    gv = tl.zeros((OWN, VALUES), tl.float32)
    for member in range(shared):
        query_head = (head * shared + member).to(tl.int64)
        for group in tl.static_range(CHUNKS + 1):
            g0, g1, g2, g3, gv = _keys_walk(
                g0, g1, g2, g3, gv, k, v, k_row, v_row, left, q + query_head * q_head,
                grad_out + query_head * grad_out_head, lse + (batch * H + query_head) * N,
                delta + (batch * H + query_head) * N, q_row, grad_out_row, order, mixes,
                tl.load(starts + group), tl.load(starts + group + 1), key_rows, query_ids, key_ids, query_ids_level,
                key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
                group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN, WALKED, CAUSAL, HAS_MASK,
                HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
            )  # fmt: skip
    if HAS_MASK:
        # tiles of queries are walked without a mask even where this tile holds masked keys: their rows end here
        real = tl.load(key_mask + key_rows, mask=key_rows < S, other=0) != 0
        gv = tl.where(real[:, None], gv, 0.0)
        g0 = tl.where(real[:, None], g0, 0.0)
        g1 = tl.where(real[:, None], g1, 0.0)
        g2 = tl.where(real[:, None], g2, 0.0)
        g3 = tl.where(real[:, None], g3, 0.0)
    _store_chunk(grad_v, gv, inner, grad_v_row, left, 0, VALUES, E)
    _store_chunk(grad_k, g0 * scale, inner, grad_k_row, left, 0, W0, R)
    if CHUNKS >= 2:
        _store_chunk(grad_k, g1 * scale, inner, grad_k_row, left, W0, W1, R)
    if CHUNKS >= 3:
        _store_chunk(grad_k, g2 * scale, inner, grad_k_row, left, W0 + W1, W2, R)
    if CHUNKS >= 4:
        _store_chunk(grad_k, g3 * scale, inner, grad_k_row, left, W0 + W1 + W2, W3, R)


# --- host ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    """What every kernel is told besides q, k and v."""

    ranks: tuple[int, ...]
    causal: bool
    scale: float
    query_ids: Tensor
    key_ids: Tensor
    query_positions: Tensor | None
    key_positions: Tensor | None
    key_mask: Tensor | None

    @property
    def plan_batch(self) -> int:
        """1 where every row of the batch walks the same tiles."""
        sizes = [self.query_ids.shape[1], self.key_ids.shape[1]]
        if self.causal:
            sizes += [t.shape[0] for t in (self.query_positions, self.key_positions) if t is not None]
        if self.key_mask is not None:
            sizes.append(self.key_mask.shape[0])
        return max(sizes)


@dataclass(frozen=True)
class _Plan:
    """For every own tile, the walked tiles in groups, `starts` telling where each group begins."""

    order: Tensor  # (P, own tiles, walked tiles) int32: walked tile * PACK + shared components
    mixes: Tensor  # (P, own tiles, walked tiles) int32: levels shared in part
    starts: Tensor  # (P, own tiles, chunks + 2) int32


def _batch_stride(t: Tensor | None, dim: int = 0) -> int:
    return 0 if t is None or t.shape[dim] == 1 else t.stride(dim)


def _ranges(problem: _Problem, unit: int, *, keys: bool) -> Tensor:
    """`(P, 2 L + 3, units)` int64, the ranges of ids and positions of every unit of queries or keys."""
    ids = problem.key_ids if keys else problem.query_ids
    positions = problem.key_positions if keys else problem.query_positions
    positions = positions if problem.causal else None
    valid = problem.key_mask if keys else None
    L, P, count = ids.shape
    P = max(P, *(t.shape[0] for t in (positions, valid, ids[0]) if t is not None))
    units = triton.cdiv(count, unit)
    out = torch.empty(P, 2 * L + 3, units, dtype=torch.int64, device=ids.device)
    _ranges_kernel[(units, P)](
        ids, ids if positions is None else positions, ids if valid is None else valid, out, count, ids.stride(0),
        _batch_stride(ids, 1), _batch_stride(positions), _batch_stride(valid), units,
        LEVELS=L, UNIT=unit, HAS_POSITIONS=positions is not None, HAS_VALID=valid is not None, num_warps=2,
    )  # fmt: skip
    return out


def _make_plan(problem: _Problem, sizes: TileSizes, *, own_keys: bool) -> _Plan:
    """Sort the tiles on the device; the host learns nothing, so nothing waits."""
    unit = min(sizes.own, sizes.walked)
    own, walked = _ranges(problem, unit, keys=own_keys), _ranges(problem, unit, keys=not own_keys)
    counts = (problem.query_ids.shape[2], problem.key_ids.shape[2])
    own_tiles = triton.cdiv(counts[own_keys], sizes.own)
    walked_tiles = triton.cdiv(counts[not own_keys], sizes.walked)
    widths = chunk_widths(problem.ranks)
    P, device = problem.plan_batch, own.device
    order = torch.empty(P, own_tiles, walked_tiles, dtype=torch.int32, device=device)
    plan = _Plan(
        order, torch.empty_like(order), torch.empty(P, own_tiles, len(widths) + 2, dtype=torch.int32, device=device)
    )
    _plan_kernel[(own_tiles, P)](
        own, walked, plan.order, plan.mixes, plan.starts, _batch_stride(own), _batch_stride(walked),
        own.shape[2], walked.shape[2], walked_tiles,
        BOUNDS=_bounds(problem.ranks), CHUNK_STARTS=(0, *itertools.accumulate(widths)), LEVELS=len(problem.ranks),
        CHUNKS=len(widths), OWN_UNITS=sizes.own // unit, WALKED_UNITS=sizes.walked // unit, WALKED=sizes.walked,
        TILES=triton.next_power_of_2(walked_tiles), CAUSAL=problem.causal, OWN_KEYS=own_keys, PACKING=PACK,
        num_warps=4,
    )  # fmt: skip
    return plan


def _bounds(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *itertools.accumulate(ranks))


def _precision(dtype: torch.dtype) -> str:
    if dtype == torch.float32:
        return "ieee"  # TF32 keeps 10 bits of a float32, too few for 1e-5
    # the interpreter of Triton 3.7 multiplies the bits of bfloat16 as integers; a product in float32 is as exact
    return "widened" if isinstance(_forward_kernel, _interpreted()) else "tf32"


def _constants(problem: _Problem, q: Tensor, v: Tensor, sizes: TileSizes) -> dict[str, Any]:
    """The compile-time arguments that the three attention kernels share."""
    widths = chunk_widths(problem.ranks)
    starts = (0, *itertools.accumulate(widths))
    ends = _bounds(problem.ranks)[1:-1]
    cuts = sum(1 << c for c in range(len(widths)) if any(starts[c] < end < starts[c + 1] for end in ends))
    padded = (*widths, 0, 0, 0)
    return {
        "BOUNDS": _bounds(problem.ranks),
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


def _shared_arguments(problem: _Problem, q: Tensor, k: Tensor, plan: _Plan) -> tuple[list[Tensor], list[int]]:
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
        _batch_stride(problem.query_ids, 1),
        problem.key_ids.stride(0),
        _batch_stride(problem.key_ids, 1),
        _batch_stride(problem.query_positions),
        _batch_stride(problem.key_positions),
        _batch_stride(problem.key_mask),
        q.shape[1],
        q.shape[1] // k.shape[1],
        q.shape[2],
        k.shape[2],
    ]
    return tensors, integers


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for t in tensors for stride in t.stride()[:3]]


def _unit_stride(t: Tensor) -> Tensor:
    """The tensor with its last axis dense, as the kernels read it."""
    return t if t.stride(-1) == 1 else t.contiguous()


def _new_like(t: Tensor, width: int) -> Tensor:
    """An empty `(B, H, N, width)` whose heads and tokens lie in memory in the order of t's."""
    B, H, N, _ = t.shape
    if t.stride(1) < t.stride(2):
        return t.new_empty(B, N, H, width).transpose(1, 2)
    return t.new_empty(B, H, N, width)


class _MultilevelAttention(torch.autograd.Function):
    """The kernels as one differentiable step; their gradient has no gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, problem: _Problem) -> Tensor:
        sizes = _tile_sizes("forward", q.dtype, q.shape[-1], v.shape[-1])
        plan = _make_plan(problem, sizes, own_keys=False)
        out = _new_like(q, v.shape[-1])
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
        tensors, integers = _shared_arguments(problem, q, k, plan)
        _forward_kernel[(plan.order.shape[1] * q.shape[0] * q.shape[1],)](
            q, k, v, out, lse, *tensors, *_strides(q, k, v, out), *integers, problem.scale * _LOG2_E,
            **_constants(problem, q, v, sizes),
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.problem, ctx.plan, ctx.sizes = problem, plan, sizes
        return out

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, lse = ctx.saved_tensors
        problem: _Problem = ctx.problem
        grad_out = _unit_stride(grad_out)
        grad_q, grad_k, grad_v = (_new_like(t, t.shape[-1]) for t in (q, k, v))
        delta = torch.empty_like(lse)
        factor = problem.scale * _LOG2_E

        sizes = _tile_sizes("queries", q.dtype, q.shape[-1], v.shape[-1])
        same = (sizes.own, sizes.walked) == (ctx.sizes.own, ctx.sizes.walked)
        plan = ctx.plan if same else _make_plan(problem, sizes, own_keys=False)
        tensors, integers = _shared_arguments(problem, q, k, plan)
        _queries_kernel[(plan.order.shape[1] * q.shape[0] * q.shape[1],)](
            q, k, v, out, grad_out, lse, delta, grad_q, *tensors, *_strides(q, k, v, out, grad_out, grad_q),
            *integers, factor, problem.scale, **_constants(problem, q, v, sizes),
        )  # fmt: skip

        sizes = _tile_sizes("keys", q.dtype, q.shape[-1], v.shape[-1])
        plan = _make_plan(problem, sizes, own_keys=True)
        tensors, integers = _shared_arguments(problem, q, k, plan)
        _keys_kernel[(plan.order.shape[1] * k.shape[0] * k.shape[1],)](
            q, k, v, grad_out, lse, delta, grad_k, grad_v, *tensors, *_strides(q, k, v, grad_out, grad_k, grad_v),
            *integers, factor, problem.scale, **_constants(problem, q, v, sizes),
        )  # fmt: skip
        return grad_q, grad_k, grad_v, None


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
    scale: float | None = None,
) -> Tensor:
    """Softmax attention with multi-level scores, by Triton kernels, forward and backward (Kuang et al., section 4).

    Equals `multilevel_attention_reference`; extra memory is linear in the tokens, but for 8 bytes a pair of tiles
    (2^-12 of the pairs). Blocks that nest and are runs of tokens are fast; any others are exact and slower.

    Args:
        q: `(B, H, N, r)` float32, bfloat16 or float16; r at most 256.
        k: `(B, G, S, r)`, G dividing H: H/G query heads share a key head.
        v: `(B, G, S, E)`, E at most 256.
        ranks: components of each level, coarse to fine; they sum to r. At most 31 levels.
        query_blocks: `(L, B | 1, N)` int, the block of every query at every level.
        key_blocks: `(L, B | 1, S)` int.
        causal: a query sees only keys whose position is not after its own.
        query_positions: `(B | 1, N)` int; the index by default. Read only if causal.
        key_positions: `(B | 1, S)` int; the index by default. Read only if causal.
        key_mask: `(B | 1, S)` bool, True for a real key; None takes all. A query with no allowed key gives zeros.
        scale: factor of the logits; `1 / sqrt(r)` by default.

    Returns:
        `(B, H, N, E)`, of q's type; sums are in float32.

    Raises:
        RuntimeError: Triton is not installed, or the tensors are on the CPU and Triton does not interpret; and, from
            autograd, when a gradient of the gradient is asked for.
        TypeError: the types of q, k and v differ or are none of the three.
        ValueError: the shapes do not fit each other.
    """
    _check(q, k, v, ranks, query_blocks, key_blocks, query_positions, key_positions, key_mask)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    if scale <= 0:
        # the kernels take the maximum before they scale
        q, scale = (-q, -scale) if scale < 0 else (q * 0, 1.0)
    if 0 in (*q.shape, *k.shape, *v.shape):
        # nothing to launch; keep the graph, so that gradients are zeros
        shape = (q.shape[0], q.shape[1], q.shape[2], v.shape[3])
        return q.new_zeros(shape) + 0 * (q.sum() + k.sum() + v.sum())
    problem = _Problem(
        tuple(int(rank) for rank in ranks),
        causal,
        scale,
        _unit_stride(query_blocks),
        _unit_stride(key_blocks),
        None if query_positions is None else _unit_stride(query_positions),
        None if key_positions is None else _unit_stride(key_positions),
        None if key_mask is None else _unit_stride(key_mask).view(torch.uint8),
    )
    with torch.cuda.device_of(q):
        out: Tensor = _MultilevelAttention.apply(_unit_stride(q), _unit_stride(k), _unit_stride(v), problem)
    return out


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ranks: Sequence[int],
    query_blocks: Tensor,
    key_blocks: Tensor,
    query_positions: Tensor | None,
    key_positions: Tensor | None,
    key_mask: Tensor | None,
) -> None:
    if triton is None:
        raise RuntimeError("the Triton kernel of multi-level attention needs Triton, which is not installed here")
    if q.device.type != "cuda" and not isinstance(_forward_kernel, _interpreted()):
        raise RuntimeError(
            f"the Triton kernel of multi-level attention runs on a CUDA device, not on {q.device.type!r}: move the "
            "tensors there, take another impl, or set TRITON_INTERPRET=1 before the program starts"
        )
    if q.dtype not in _DTYPES or not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"q, k and v are {q.dtype}, {k.dtype}, {v.dtype}; all must be one of {[*map(str, _DTYPES)]}")
    if any(t.dim() != 4 for t in (q, k, v)):
        raise ValueError(f"q, k and v have {q.dim()}, {k.dim()} and {v.dim()} axes, not 4")
    B, H, N, r = q.shape
    G, S = k.shape[1], k.shape[2]
    if k.shape != (B, G, S, r) or v.shape[:3] != k.shape[:3] or G < 1 or H % G:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit")
    if max(r, v.shape[-1]) > MAX_WIDTH or len(ranks) > MAX_LEVELS:
        raise ValueError(
            f"{r} components, values of {v.shape[-1]} and {len(ranks)} levels: the kernel takes {MAX_WIDTH}, "
            f"{MAX_WIDTH} and {MAX_LEVELS}"
        )
    if sum(ranks) != r or min(ranks, default=0) < 1:
        raise ValueError(f"ranks {list(ranks)} do not fit {r} components")
    for name, t, lead, tokens in (
        ("query_blocks", query_blocks, (len(ranks),), N),
        ("key_blocks", key_blocks, (len(ranks),), S),
        ("query_positions", query_positions, (), N),
        ("key_positions", key_positions, (), S),
        ("key_mask", key_mask, (), S),
    ):
        if t is not None and tuple(t.shape) not in ((*lead, B, tokens), (*lead, 1, tokens)):
            raise ValueError(f"{name} {tuple(t.shape)} is neither {(*lead, B, tokens)} nor {(*lead, 1, tokens)}")
    if key_mask is not None and key_mask.dtype != torch.bool:
        raise TypeError(f"key_mask is {key_mask.dtype}, not bool")


@lru_cache(maxsize=1)
def _interpreted() -> type:
    """The type of a kernel that runs on the CPU."""
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction  # type: ignore[no-any-return, unused-ignore]
