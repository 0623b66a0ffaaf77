# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Forward: a tile of queries walks the keys under a running softmax."""

from __future__ import annotations

from tsattn.ops.multilevel_kernels.jit import jit, tl
from tsattn.ops.multilevel_kernels.tile import (
    add_mixed_scores,
    allowed_keys,
    dot,
    load_chunk,
    load_chunks,
    scores,
    store_chunk,
)

__all__ = ["forward_kernel"]


@jit
def forward_kernel(
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
    seen = tl.zeros((OWN,), tl.int32)
    for group in tl.static_range(CHUNKS + 1):
        acc, total, top, seen = _forward_walk(
            acc, total, top, seen, q, q_row, left, k, v, k_row, v_row, order, mixes,
            tl.load(starts + group), tl.load(starts + group + 1), rows, query_ids, key_ids, query_ids_level,
            key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
            group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN, WALKED, CAUSAL, HAS_MASK,
            HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
        )  # fmt: skip
    # a row that sees keys, all of them with logits of -inf, is not a number: only one without keys is zero
    total = tl.where(total > 0, total, tl.where(seen > 0, float("nan"), 1.0))
    store_chunk(out, acc / total[:, None], inner, out_row, left, 0, VALUES, E)
    tl.store(lse + rows, tl.where(seen > 0, top + tl.log2(total), float("inf")), mask=rows < N)


@jit
def _forward_walk(
    acc, total, top, seen, q, q_row, left, k, v, k_row, v_row, order, mixes, first, last, rows,
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
    if not mixed:
        seen = seen | (first < last).to(tl.int32)  # tiles that are seen whole
    inner = tl.arange(0, OWN)
    q0, q1, q2, q3 = load_chunks(q, inner, q_row, left, GROUP, CHUNKS, W0, W1, W2, W3, R, True, hint)
    for step in tl.range(first, last, num_stages=STAGES):
        entry = tl.load(order + step)
        limit = entry % PACKING
        start = (entry // PACKING) * WALKED
        keys = tl.arange(0, WALKED)
        key_base = k + start.to(tl.int64) * k_row
        value_base = v + start.to(tl.int64) * v_row
        k0, k1, k2, k3 = load_chunks(key_base, keys, k_row, S - start, GROUP, CHUNKS, W0, W1, W2, W3, R, mixed)
        s = scores(q0, q1, q2, q3, k0, k1, k2, k3, limit, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION)
        if mixed:
            key_rows = start + keys
            mix = tl.load(mixes + step)
            s = add_mixed_scores(
                s, q0, q1, q2, q3, k0, k1, k2, k3, mix,
                query_ids, query_ids_level, rows, N, key_ids, key_ids_level, key_rows, S,
                BOUNDS, LEVELS, CHUNKS, OWN, WALKED, W0, W1, W2, W3, PRECISION,
            )  # fmt: skip
            allowed, query_place, key_place = allowed_keys(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            pairs = allowed[None, :] & (rows < N)[:, None]
            if CAUSAL:
                pairs = pairs & (key_place[None, :] <= query_place[:, None])
            s = tl.where(pairs, s, float("-inf"))
            seen = seen | tl.max(pairs.to(tl.int32), 1)
        # top starts finite, so that a row without any key yet is -inf minus a number, never NaN
        higher = tl.maximum(top, tl.max(s, 1) * factor)
        p = tl.exp2(s * factor - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        top = higher
        values = load_chunk(value_base, keys, v_row, S - start, 0, VALUES, E, mixed)
        acc = dot(p.to(values.dtype), values, acc * shrink[:, None], PRECISION)
    return acc, total, top, seen
