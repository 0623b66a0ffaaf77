# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The plan of a walk: which tiles a tile visits, sorted by how many components they need."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from tsattn.ops.multilevel_kernels.jit import jit, tl, triton
from tsattn.ops.multilevel_kernels.problem import Problem, TileSizes, batch_stride, chunk_widths

__all__ = ["PACK", "WalkPlan", "plan_walk"]

# An entry of the plan is tile * PACK + components, in an int32.
PACK = 1024


@dataclass(frozen=True)
class WalkPlan:
    """For every own tile, the walked tiles in groups; `starts` holds where each group begins."""

    order: Tensor  # (P, own tiles, walked tiles) int32: walked tile * PACK + shared components
    mixes: Tensor  # (P, own tiles, walked tiles) int32: levels shared in part
    starts: Tensor  # (P, own tiles, chunks + 2) int32


def plan_walk(problem: Problem, sizes: TileSizes, *, own_keys: bool) -> WalkPlan:
    """Sort the tiles on the device; the host reads no result, so nothing waits."""
    unit = min(sizes.own, sizes.walked)
    own, walked = _ranges(problem, unit, keys=own_keys), _ranges(problem, unit, keys=not own_keys)
    counts = (problem.query_ids.shape[2], problem.key_ids.shape[2])
    own_tiles = triton.cdiv(counts[own_keys], sizes.own)
    walked_tiles = triton.cdiv(counts[not own_keys], sizes.walked)
    widths = chunk_widths(problem.ranks)
    P, device = problem.plan_batch, own.device
    order = torch.empty(P, own_tiles, walked_tiles, dtype=torch.int32, device=device)
    plan = WalkPlan(
        order, torch.empty_like(order), torch.empty(P, own_tiles, len(widths) + 2, dtype=torch.int32, device=device)
    )
    _plan_kernel[(own_tiles, P)](
        own, walked, plan.order, plan.mixes, plan.starts, batch_stride(own), batch_stride(walked),
        own.shape[2], walked.shape[2], walked_tiles,
        BOUNDS=problem.bounds, CHUNK_STARTS=(0, *itertools.accumulate(widths)), LEVELS=len(problem.ranks),
        CHUNKS=len(widths), OWN_UNITS=sizes.own // unit, WALKED_UNITS=sizes.walked // unit, WALKED=sizes.walked,
        TILES=triton.next_power_of_2(walked_tiles), CAUSAL=problem.causal, OWN_KEYS=own_keys, PACKING=PACK,
        num_warps=4,
    )  # fmt: skip
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
    _ranges_kernel[(units, P)](
        ids, ids if positions is None else positions, ids if valid is None else valid, out, count, ids.stride(0),
        batch_stride(ids, 1), batch_stride(positions), batch_stride(valid), units,
        LEVELS=L, UNIT=unit, HAS_POSITIONS=positions is not None, HAS_VALID=valid is not None, num_warps=2,
    )  # fmt: skip
    return out


@jit
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
        low = tl.min(tl.where(real, value, above), 0)
        high = tl.max(tl.where(real, value, -above), 0)
        tl.store(out + 2 * level * units, low)
        # a global token touches every block, and so does its tile
        tl.store(out + (2 * level + 1) * units, tl.where(low == -4611686018427387904, 4611686018427387904, high))
    place = rows.to(tl.int64)
    if HAS_POSITIONS:
        place = tl.load(positions + batch * positions_batch + rows, mask=inside, other=0).to(tl.int64)
    tl.store(out + 2 * LEVELS * units, tl.min(tl.where(real, place, above), 0))
    tl.store(out + (2 * LEVELS + 1) * units, tl.max(tl.where(real, place, -above), 0))
    tl.store(out + (2 * LEVELS + 2) * units, tl.sum(real.to(tl.int64), 0))


@jit
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


@jit
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


@jit
def _merged_count(ranges, slot, tiles, units, UNITS: tl.constexpr):
    """Real tokens of each tile."""
    unit = tiles * UNITS
    total = tl.load(ranges + slot * units + unit, mask=unit < units, other=0)
    for step in tl.static_range(1, UNITS):
        unit = tiles * UNITS + step
        total += tl.load(ranges + slot * units + unit, mask=unit < units, other=0)
    return total
