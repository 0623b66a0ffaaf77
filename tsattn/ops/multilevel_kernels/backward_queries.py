# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""Backward, first pass: a tile of queries walks the keys again and collects its gradient."""

from __future__ import annotations

from tsattn.ops.multilevel_kernels.jit import jit, tl
from tsattn.ops.multilevel_kernels.tile import (
    add_gradients,
    add_mixed_gradients,
    add_mixed_scores,
    allowed_keys,
    dot,
    load_chunk,
    load_chunks,
    scores,
    store_chunks,
    zero_chunks,
)

__all__ = ["queries_kernel"]


@jit
def queries_kernel(
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
    """Gradient of a tile of queries of one head, and `delta = rowsum(grad_out * out)`, which `keys_kernel` reads."""
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
    do = load_chunk(grad_out, inner, grad_out_row, left, 0, VALUES, E, True)
    o = load_chunk(out, inner, out_row, left, 0, VALUES, E, True)
    row_delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(delta + rows, row_delta, mask=rows < N)
    row_lse = tl.load(lse + rows, mask=rows < N, other=float("inf"))
    g0, g1, g2, g3 = zero_chunks(OWN, CHUNKS, W0, W1, W2, W3)
    for group in tl.static_range(CHUNKS + 1):
        g0, g1, g2, g3 = _queries_walk(
            g0, g1, g2, g3, q, q_row, grad_out, grad_out_row, left, row_lse, row_delta, k, v, k_row, v_row,
            order, mixes, tl.load(starts + group), tl.load(starts + group + 1), rows, query_ids, key_ids,
            query_ids_level, key_ids_level, query_positions, key_positions, key_mask, N, S, factor,
            group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN, WALKED, CAUSAL, HAS_MASK,
            HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
        )  # fmt: skip
    store_chunks(grad_q, g0, g1, g2, g3, scale, inner, grad_q_row, left, CHUNKS, W0, W1, W2, W3, R)


@jit
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
    q0, q1, q2, q3 = load_chunks(q, inner, q_row, left, GROUP, CHUNKS, W0, W1, W2, W3, R, True, hint)
    do = load_chunk(grad_out, inner, grad_out_row, left, 0, VALUES, E, True, hint)
    for step in tl.range(first, last, num_stages=STAGES):
        entry = tl.load(order + step)
        limit = entry % PACKING
        start = (entry // PACKING) * WALKED
        keys = tl.arange(0, WALKED)
        key_rows = start + keys
        key_base = k + start.to(tl.int64) * k_row
        value_base = v + start.to(tl.int64) * v_row
        k0, k1, k2, k3 = load_chunks(key_base, keys, k_row, S - start, GROUP, CHUNKS, W0, W1, W2, W3, R, mixed)
        values = load_chunk(value_base, keys, v_row, S - start, 0, VALUES, E, mixed)
        s = scores(q0, q1, q2, q3, k0, k1, k2, k3, limit, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION)
        mix = 0
        if mixed:
            mix = tl.load(mixes + step)
            s = add_mixed_scores(
                s, q0, q1, q2, q3, k0, k1, k2, k3, mix,
                query_ids, query_ids_level, rows, N, key_ids, key_ids_level, key_rows, S,
                BOUNDS, LEVELS, CHUNKS, OWN, WALKED, W0, W1, W2, W3, PRECISION,
            )  # fmt: skip
        p = tl.exp2(s * factor - lse[:, None])
        if mixed:
            allowed, query_place, key_place = allowed_keys(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            p = tl.where(allowed[None, :], p, 0.0)
            if CAUSAL:
                p = tl.where(key_place[None, :] <= query_place[:, None], p, 0.0)
        dp = dot(do, tl.trans(values), tl.zeros((OWN, WALKED), tl.float32), PRECISION)
        ds = (p * (dp - delta[:, None])).to(k0.dtype)
        g0, g1, g2, g3 = add_gradients(
            g0, g1, g2, g3, ds, k0, k1, k2, k3, limit, GROUP, CHUNKS, CUTS, W0, W1, W2, W3, PRECISION
        )
        if mixed:
            g0, g1, g2, g3 = add_mixed_gradients(
                g0, g1, g2, g3, ds, k0, k1, k2, k3, mix,
                query_ids, query_ids_level, rows, N, key_ids, key_ids_level, key_rows, S,
                BOUNDS, LEVELS, CHUNKS, W0, W1, W2, W3, PRECISION,
            )  # fmt: skip
    return g0, g1, g2, g3
