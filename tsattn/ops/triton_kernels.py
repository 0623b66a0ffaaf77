# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The three Triton kernels of multi-level attention: forward, and backward by tiles of queries and by tiles of keys.

A program owns a tile of queries and walks the tiles of keys, sorted by how many of the r components they need. The
components are cut into at most four *chunks* of 16, 32, ... components. The matrix unit takes at least 16 at a time. In
most tiles all pairs share the same first levels and no other, and no pair is masked. Then only the chunks of these
levels are loaded, and no mask: a branch-free loop for every number of chunks. The few other tiles are cut by the
boundary of a block, by causality, by padding, or by the end of the sequence. They compare block ids by pair and level,
so blocks that do not nest are exact too, and slower. Backward recomputes the scores from the log-sum-exp, as
FlashAttention does, once for dQ and once for dK and dV. Nothing is summed in an order that varies.
"""

from __future__ import annotations

from tsattn.ops.triton_tiles import (
    add_gradients,
    add_mixed_gradients,
    add_mixed_scores,
    allowed_keys,
    awaited,
    dot,
    jit,
    load_chunk,
    load_chunks,
    scores,
    shared_components,
    store_chunk,
    store_chunks,
    tl,
    zero_chunks,
)


@jit
def forward_kernel(
    q, k, v, out, lse, order, mixes, starts, query_ids, key_ids, query_positions, key_positions, key_mask,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    plan_batch, tiles, walked_tiles, query_ids_level, query_ids_batch, key_ids_level, key_ids_batch,
    query_positions_batch, key_positions_batch, key_mask_batch, H, shared, N, S, factor,
    BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr, PACKING: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
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
    starts += line * (CHUNKS + 2)
    acc = tl.zeros((OWN, VALUES), tl.float32)
    total = tl.zeros((OWN,), tl.float32)
    top = tl.full((OWN,), -1.0e38, tl.float32)
    seen = tl.zeros((OWN,), tl.int32)
    for group in tl.static_range(CHUNKS + 1):
        acc, total, top, seen = _forward_walk(
            acc, total, top, seen, q, q_row, left, k, v, k_row, v_row, order, mixes + line * walked_tiles,
            tl.load(starts + group), tl.load(starts + group + 1), rows, query_ids + batch * query_ids_batch,
            key_ids + batch * key_ids_batch, query_ids_level, key_ids_level,
            query_positions + batch * query_positions_batch, key_positions + batch * key_positions_batch,
            key_mask + batch * key_mask_batch, N, S, factor,
            group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN,
            WALKED if group < CHUNKS else WALKED // PARTS, CAUSAL, HAS_MASK,
            HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, HAS_GLOBAL, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
            1 if group < CHUNKS else PARTS, WHOLE,
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
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr, PACKING: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Running softmax over the key tiles of one group."""
    mixed: tl.constexpr = GROUP == CHUNKS
    # Loaded again for the last group, whose hint keeps the compiler from seeing the same load: it needs these tiles in
    # registers, where they would otherwise stay through the loops of the other groups.
    hint: tl.constexpr = "evict_last" if mixed else ""
    if not mixed:
        seen = seen | (first < last).to(tl.int32)  # tiles that are seen whole
    inner = tl.arange(0, OWN)
    q0, q1, q2, q3 = load_chunks(q, inner, q_row, left, GROUP, CHUNKS, W0, W1, W2, W3, R, True, hint)
    for step in tl.range(first * PARTS, last * PARTS, num_stages=STAGES):
        entry = tl.load(order + step // PARTS)
        limit = entry % PACKING
        start = ((entry // PACKING) * PARTS + step % PARTS) * WALKED
        limits = limit
        if mixed and WHOLE > 0:
            limits = shared_components(
                limit, query_ids, query_ids_level, rows, N, key_ids, key_ids_level, start, S, BOUNDS, WHOLE, OWN
            )  # fmt: skip
        keys = tl.arange(0, WALKED)
        key_base = k + start.to(tl.int64) * k_row
        value_base = v + start.to(tl.int64) * v_row
        k0, k1, k2, k3 = load_chunks(key_base, keys, k_row, S - start, GROUP, CHUNKS, W0, W1, W2, W3, R, mixed, "")
        s = scores(
            q0, q1, q2, q3, k0, k1, k2, k3, limit, limits, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION
        )
        if mixed:
            key_rows = start + keys
            s = add_mixed_scores(
                s, q0, q1, q2, q3, k0, k1, k2, k3, tl.load(mixes + step // PARTS),
                query_ids, query_ids_level, rows, N, key_ids, key_ids_level, key_rows, S,
                BOUNDS, WHOLE, LEVELS, CHUNKS, OWN, WALKED, W0, W1, W2, W3, HAS_GLOBAL, PRECISION,
            )  # fmt: skip
            allowed, query_place, key_place = allowed_keys(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            pairs = allowed[None, :]
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
        values = load_chunk(value_base, keys, v_row, S - start, 0, VALUES, E, mixed, "")
        acc = awaited(dot(p.to(values.dtype), values, acc * shrink[:, None], PRECISION), PRECISION)
    return acc, total, top, seen


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
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr, PACKING: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
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
    starts += line * (CHUNKS + 2)
    do = load_chunk(grad_out, inner, grad_out_row, left, 0, VALUES, E, True, "")
    o = load_chunk(out, inner, out_row, left, 0, VALUES, E, True, "")
    row_delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), 1)
    tl.store(delta + rows, row_delta, mask=rows < N)
    row_lse = tl.load(lse + rows, mask=rows < N, other=float("inf"))
    g0, g1, g2, g3 = zero_chunks(OWN, CHUNKS, W0, W1, W2, W3)
    for group in tl.static_range(CHUNKS + 1):
        g0, g1, g2, g3 = _queries_walk(
            g0, g1, g2, g3, q, q_row, grad_out, grad_out_row, left, row_lse, row_delta, k, v, k_row, v_row, order,
            mixes + line * walked_tiles, tl.load(starts + group), tl.load(starts + group + 1), rows,
            query_ids + batch * query_ids_batch, key_ids + batch * key_ids_batch, query_ids_level, key_ids_level,
            query_positions + batch * query_positions_batch, key_positions + batch * key_positions_batch,
            key_mask + batch * key_mask_batch, N, S, factor,
            group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN,
            WALKED if group < CHUNKS else WALKED // PARTS, CAUSAL, HAS_MASK,
            HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, HAS_GLOBAL, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
            1 if group < CHUNKS else PARTS, WHOLE,
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
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr, PACKING: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries (without the scale) from the key tiles of one group."""
    mixed: tl.constexpr = GROUP == CHUNKS
    # Loaded again for the last group, whose hint keeps the compiler from seeing the same load: it needs these tiles in
    # registers, where they would otherwise stay through the loops of the other groups.
    hint: tl.constexpr = "evict_last" if mixed else ""
    inner = tl.arange(0, OWN)
    q0, q1, q2, q3 = load_chunks(q, inner, q_row, left, GROUP, CHUNKS, W0, W1, W2, W3, R, True, hint)
    do = load_chunk(grad_out, inner, grad_out_row, left, 0, VALUES, E, True, hint)
    for step in tl.range(first * PARTS, last * PARTS, num_stages=STAGES):
        entry = tl.load(order + step // PARTS)
        limit = entry % PACKING
        start = ((entry // PACKING) * PARTS + step % PARTS) * WALKED
        limits = limit
        if mixed and WHOLE > 0:
            limits = shared_components(
                limit, query_ids, query_ids_level, rows, N, key_ids, key_ids_level, start, S, BOUNDS, WHOLE, OWN
            )  # fmt: skip
        keys = tl.arange(0, WALKED)
        key_rows = start + keys
        key_base = k + start.to(tl.int64) * k_row
        value_base = v + start.to(tl.int64) * v_row
        k0, k1, k2, k3 = load_chunks(key_base, keys, k_row, S - start, GROUP, CHUNKS, W0, W1, W2, W3, R, mixed, "")
        values = load_chunk(value_base, keys, v_row, S - start, 0, VALUES, E, mixed, "")
        s = scores(
            q0, q1, q2, q3, k0, k1, k2, k3, limit, limits, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION
        )
        mix = 0
        if mixed:
            mix = tl.load(mixes + step // PARTS)
            s = add_mixed_scores(
                s, q0, q1, q2, q3, k0, k1, k2, k3, mix,
                query_ids, query_ids_level, rows, N, key_ids, key_ids_level, key_rows, S,
                BOUNDS, WHOLE, LEVELS, CHUNKS, OWN, WALKED, W0, W1, W2, W3, HAS_GLOBAL, PRECISION,
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
            g0, g1, g2, g3, ds, k0, k1, k2, k3, limit, limits, GROUP, CHUNKS, CUTS, W0, W1, W2, W3, PRECISION
        )
        if mixed:
            g0, g1, g2, g3 = add_mixed_gradients(
                g0, g1, g2, g3, ds, k0, k1, k2, k3, mix,
                query_ids, query_ids_level, rows, N, key_ids, key_ids_level, key_rows, S,
                BOUNDS, WHOLE, LEVELS, CHUNKS, W0, W1, W2, W3, HAS_GLOBAL, PRECISION,
            )  # fmt: skip
    return g0, g1, g2, g3


@jit
def keys_kernel(
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
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr, PACKING: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
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
    starts += line * (CHUNKS + 2)
    g0, g1, g2, g3 = zero_chunks(OWN, CHUNKS, W0, W1, W2, W3)
    gv = tl.zeros((OWN, VALUES), tl.float32)
    for member in range(shared):
        query_head = (head * shared + member).to(tl.int64)
        for group in tl.static_range(CHUNKS + 1):
            g0, g1, g2, g3, gv = _keys_walk(
                g0, g1, g2, g3, gv, k, v, k_row, v_row, left, q + query_head * q_head,
                grad_out + query_head * grad_out_head, lse + (batch * H + query_head) * N,
                delta + (batch * H + query_head) * N, q_row, grad_out_row, order, mixes + line * walked_tiles,
                tl.load(starts + group), tl.load(starts + group + 1), key_rows, query_ids + batch * query_ids_batch,
                key_ids + batch * key_ids_batch, query_ids_level, key_ids_level,
                query_positions + batch * query_positions_batch, key_positions + batch * key_positions_batch,
                key_mask + batch * key_mask_batch, N, S, factor,
                group, BOUNDS, LEVELS, CHUNKS, CUTS, W0, W1, W2, W3, R, E, VALUES, OWN,
                WALKED if group < CHUNKS else WALKED // PARTS, CAUSAL, HAS_MASK,
                HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS, HAS_GLOBAL, PRECISION, PACKING, STAGES if group < CHUNKS else 1,
                1 if group < CHUNKS else PARTS, WHOLE,
            )  # fmt: skip
    if HAS_MASK:
        # tiles of queries are walked without a mask even where this tile holds masked keys: their rows end here
        real = tl.load(key_mask + batch * key_mask_batch + key_rows, mask=key_rows < S, other=0) != 0
        gv = tl.where(real[:, None], gv, 0.0)
        g0 = tl.where(real[:, None], g0, 0.0)
        g1 = tl.where(real[:, None], g1, 0.0)
        g2 = tl.where(real[:, None], g2, 0.0)
        g3 = tl.where(real[:, None], g3, 0.0)
    store_chunk(grad_v, gv, inner, grad_v_row, left, 0, VALUES, E)
    store_chunks(grad_k, g0, g1, g2, g3, scale, inner, grad_k_row, left, CHUNKS, W0, W1, W2, W3, R)


@jit
def _keys_walk(
    g0, g1, g2, g3, grad_v, k, v, k_row, v_row, left, q, grad_out, lse, delta, q_row, grad_out_row, order, mixes,
    first, last, key_rows, query_ids, key_ids, query_ids_level, key_ids_level, query_positions, key_positions,
    key_mask, N, S, factor,
    GROUP: tl.constexpr, BOUNDS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, R: tl.constexpr, E: tl.constexpr,
    VALUES: tl.constexpr, OWN: tl.constexpr, WALKED: tl.constexpr, CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr,
    HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr, PACKING: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys (without the scale) and values from the query tiles of one group and one head.

    Everything is transposed: keys are rows, queries are columns.
    """
    mixed: tl.constexpr = GROUP == CHUNKS
    # Loaded again for the last group, whose hint keeps the compiler from seeing the same load: it needs these tiles in
    # registers, where they would otherwise stay through the loops of the other groups.
    hint: tl.constexpr = "evict_last" if mixed else ""
    inner = tl.arange(0, OWN)
    k0, k1, k2, k3 = load_chunks(k, inner, k_row, left, GROUP, CHUNKS, W0, W1, W2, W3, R, True, hint)
    values = load_chunk(v, inner, v_row, left, 0, VALUES, E, True, hint)
    for step in tl.range(first * PARTS, last * PARTS, num_stages=STAGES):
        entry = tl.load(order + step // PARTS)
        limit = entry % PACKING
        start = ((entry // PACKING) * PARTS + step % PARTS) * WALKED
        limits = limit
        if mixed and WHOLE > 0:
            limits = shared_components(
                limit, key_ids, key_ids_level, key_rows, S, query_ids, query_ids_level, start, N, BOUNDS, WHOLE, OWN
            )  # fmt: skip
        queries = tl.arange(0, WALKED)
        rows = start + queries
        query_base = q + start.to(tl.int64) * q_row
        grad_base = grad_out + start.to(tl.int64) * grad_out_row
        q0, q1, q2, q3 = load_chunks(query_base, queries, q_row, N - start, GROUP, CHUNKS, W0, W1, W2, W3, R, mixed, "")
        do = load_chunk(grad_base, queries, grad_out_row, N - start, 0, VALUES, E, mixed, "")
        if mixed:
            # without this a query beyond the end would weigh exp2(0 - lse): with it, nothing
            row_lse = tl.load(lse + rows, mask=rows < N, other=float("inf"))
            row_delta = tl.load(delta + rows, mask=rows < N, other=0.0)
        else:
            row_lse = tl.load(lse + rows)
            row_delta = tl.load(delta + rows)
        s = scores(
            k0, k1, k2, k3, q0, q1, q2, q3, limit, limits, GROUP, CHUNKS, CUTS, OWN, WALKED, W0, W1, W2, W3, PRECISION
        )
        mix = 0
        if mixed:
            mix = tl.load(mixes + step // PARTS)
            s = add_mixed_scores(
                s, k0, k1, k2, k3, q0, q1, q2, q3, mix,
                key_ids, key_ids_level, key_rows, S, query_ids, query_ids_level, rows, N,
                BOUNDS, WHOLE, LEVELS, CHUNKS, OWN, WALKED, W0, W1, W2, W3, HAS_GLOBAL, PRECISION,
            )  # fmt: skip
        p = tl.exp2(s * factor - row_lse[None, :])
        if mixed:
            allowed, query_place, key_place = allowed_keys(
                rows, key_rows, query_positions, key_positions, key_mask, N, S,
                CAUSAL, HAS_MASK, HAS_QUERY_POSITIONS, HAS_KEY_POSITIONS,
            )  # fmt: skip
            p = tl.where(allowed[:, None], p, 0.0)
            if CAUSAL:
                p = tl.where(key_place[:, None] <= query_place[None, :], p, 0.0)
        grad_v = dot(p.to(do.dtype), do, grad_v, PRECISION)
        dp = dot(values, tl.trans(do), tl.zeros((OWN, WALKED), tl.float32), PRECISION)
        ds = (p * (dp - row_delta[None, :])).to(q0.dtype)
        g0, g1, g2, g3 = add_gradients(
            g0, g1, g2, g3, ds, q0, q1, q2, q3, limit, limits, GROUP, CHUNKS, CUTS, W0, W1, W2, W3, PRECISION
        )
        if mixed:
            g0, g1, g2, g3 = add_mixed_gradients(
                g0, g1, g2, g3, ds, q0, q1, q2, q3, mix,
                key_ids, key_ids_level, key_rows, S, query_ids, query_ids_level, rows, N,
                BOUNDS, WHOLE, LEVELS, CHUNKS, W0, W1, W2, W3, HAS_GLOBAL, PRECISION,
            )  # fmt: skip
    return g0, g1, g2, g3, grad_v
