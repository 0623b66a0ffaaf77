# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: implicit-reexport, disable-error-code="import-not-found,import-untyped"
"""Device functions of the multi-level Triton kernels: pairs of tiles, and the plan of a walk; imports without Triton.

Names: `own` is the tile of a program, `walked` the tiles it loops over. Rows are tokens. `limit` is how many leading
components all pairs of a tile share. `mix` has a bit for every other level that some of its pairs may share. A tile
comes as chunks 0 to 3 of its components. Where the two sides have equal roles, they are `a` and `b`.
"""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None


def jit(function):
    """`triton.jit`; without Triton the plain function, which is then never called."""
    return function if triton is None else triton.jit(function)


def is_interpreted(kernel: object) -> bool:
    """Whether a kernel runs on the CPU, by Triton's interpreter. Triton must be installed."""
    from triton.runtime.interpreter import InterpretedFunction

    return isinstance(kernel, InterpretedFunction)


@jit
def load_chunk(
    base, rows, stride, count, START: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr, CHECK: tl.constexpr,
    HINT: tl.constexpr,
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


@jit
def load_chunks(
    base, rows, stride, count, GROUP: tl.constexpr, CHUNKS: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr,
    W2: tl.constexpr, W3: tl.constexpr, WIDTH: tl.constexpr, CHECK: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    """Load the chunks that a group of tiles needs; the first chunk stands in for the others."""
    t0 = load_chunk(base, rows, stride, count, 0, W0, WIDTH, CHECK, HINT)
    t1, t2, t3 = t0, t0, t0
    if CHUNKS >= 2 and GROUP >= 1:
        t1 = load_chunk(base, rows, stride, count, W0, W1, WIDTH, CHECK, HINT)
    if CHUNKS >= 3 and GROUP >= 2:
        t2 = load_chunk(base, rows, stride, count, W0 + W1, W2, WIDTH, CHECK, HINT)
    if CHUNKS >= 4 and GROUP >= 3:
        t3 = load_chunk(base, rows, stride, count, W0 + W1 + W2, W3, WIDTH, CHECK, HINT)
    return t0, t1, t2, t3


@jit
def store_chunk(base, tile, rows, stride, count, START: tl.constexpr, W: tl.constexpr, WIDTH: tl.constexpr):
    """Write a `(rows, W)` tile to the components from START on, without those beyond WIDTH and rows beyond count."""
    columns = START + tl.arange(0, W)
    pointers = base + rows[:, None] * stride + columns[None, :]
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=(rows[:, None] < count) & (columns[None, :] < WIDTH))


@jit
def store_chunks(
    base, t0, t1, t2, t3, scale, rows, stride, count, CHUNKS: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr,
    W2: tl.constexpr, W3: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write every chunk, times scale, where `load_chunks` would read it."""
    store_chunk(base, t0 * scale, rows, stride, count, 0, W0, WIDTH)
    if CHUNKS >= 2:
        store_chunk(base, t1 * scale, rows, stride, count, W0, W1, WIDTH)
    if CHUNKS >= 3:
        store_chunk(base, t2 * scale, rows, stride, count, W0 + W1, W2, WIDTH)
    if CHUNKS >= 4:
        store_chunk(base, t3 * scale, rows, stride, count, W0 + W1 + W2, W3, WIDTH)


@jit
def zero_chunks(
    ROWS: tl.constexpr, CHUNKS: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr
):
    """A float32 sum for every chunk."""
    t0 = tl.zeros((ROWS, W0), tl.float32)
    t1, t2, t3 = t0, t0, t0
    if CHUNKS >= 2:
        t1 = tl.zeros((ROWS, W1), tl.float32)
    if CHUNKS >= 3:
        t2 = tl.zeros((ROWS, W2), tl.float32)
    if CHUNKS >= 4:
        t3 = tl.zeros((ROWS, W3), tl.float32)
    return t0, t1, t2, t3


@jit
def dot(a, b, s, PRECISION: tl.constexpr):
    """`a b + s`, summed in float32."""
    if PRECISION == "widened":
        s = tl.dot(a.to(tl.float32), b.to(tl.float32), s, input_precision="ieee")
    else:
        s = tl.dot(a, b, s, input_precision=PRECISION)
    return s


@jit
def awaited(x, PRECISION: tl.constexpr):
    """x, without an instruction; else a product that runs into the next step makes the compiler wait for each part."""
    if PRECISION == "tf32":
        x = tl.inline_asm_elementwise("", "=f,0", [x], dtype=tl.float32, is_pure=True, pack=1)
    return x


@jit
def scores(
    a0, a1, a2, a3, b0, b1, b2, b3, limit, limits, GROUP: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """`(A, B)` products of the first `limits` components of each row; `limits` is at least `limit`.

    Tiles of a group below CHUNKS end in the chunk of this number. Only this chunk is cut, and only if a level ends
    inside it. Tiles of group CHUNKS may end anywhere.
    """
    s = tl.zeros((A, B), tl.float32)
    s = _chunk_scores(s, a0, b0, limit, limits, 0, GROUP, CHUNKS, CUTS, 0, W0, PRECISION)
    if CHUNKS >= 2 and GROUP >= 1:
        s = _chunk_scores(s, a1, b1, limit, limits, 1, GROUP, CHUNKS, CUTS, W0, W1, PRECISION)
    if CHUNKS >= 3 and GROUP >= 2:
        s = _chunk_scores(s, a2, b2, limit, limits, 2, GROUP, CHUNKS, CUTS, W0 + W1, W2, PRECISION)
    if CHUNKS >= 4 and GROUP >= 3:
        s = _chunk_scores(s, a3, b3, limit, limits, 3, GROUP, CHUNKS, CUTS, W0 + W1 + W2, W3, PRECISION)
    return s


@jit
def _chunk_scores(
    s, a, b, limit, limits, CHUNK: tl.constexpr, GROUP: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    if GROUP == CHUNKS:
        if limit >= START + W:
            s = dot(a, tl.trans(b), s, PRECISION)
        else:
            s = dot(_keep(a, 0, limits, START, W), tl.trans(b), s, PRECISION)
    elif GROUP == CHUNK and ((CUTS >> CHUNK) & 1) != 0:
        s = dot(_keep(a, 0, limit, START, W), tl.trans(b), s, PRECISION)
    else:
        s = dot(a, tl.trans(b), s, PRECISION)
    return s


@jit
def add_mixed_scores(
    s, a0, a1, a2, a3, b0, b1, b2, b3, mix, a_ids, a_level, a_rows, a_count, b_ids, b_level, b_rows, b_count,
    BOUNDS: tl.constexpr, WHOLE: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr, A: tl.constexpr,
    B: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """`s` plus, for every level from WHOLE on in `mix`, the scores of the pairs that share a block at this level."""
    for level in tl.static_range(WHOLE, LEVELS):
        if ((mix >> level) & 1) != 0:
            own = tl.load(a_ids + level * a_level + a_rows, mask=a_rows < a_count, other=0)
            ids = tl.load(b_ids + level * b_level + b_rows, mask=b_rows < b_count, other=0)
            part = tl.zeros((A, B), tl.float32)
            part = _level_scores(part, a0, b0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
            if CHUNKS >= 2:
                part = _level_scores(part, a1, b1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
            if CHUNKS >= 3:
                part = _level_scores(part, a2, b2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
            if CHUNKS >= 4:
                part = _level_scores(part, a3, b3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION)
            s += tl.where(_share(own, ids, HAS_GLOBAL), part, 0.0)
    return s


@jit
def shared_components(
    limit, own_ids, own_level, own_rows, own_count, ids, level_stride, start, count, BOUNDS: tl.constexpr,
    WHOLE: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """`(OWN, 1)`: components, at least `limit`, that each row shares with the token `start` by the first levels."""
    shared = tl.zeros((OWN,), tl.int32) + limit
    for level in tl.static_range(WHOLE):
        own = tl.load(own_ids + level * own_level + own_rows, mask=own_rows < own_count, other=-1)
        block = tl.load(ids + level * level_stride + tl.minimum(start, count - 1))
        shared = tl.where(own == block, tl.maximum(shared, BOUNDS[level + 1]), shared)
    return shared[:, None]


@jit
def add_gradients(
    g0, g1, g2, g3, ds, b0, b1, b2, b3, limit, limits, GROUP: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the part from `scores` to the gradients of the chunks; `ds` is the gradient of the scores."""
    g0 = _chunk_gradient(g0, ds, b0, limit, limits, 0, GROUP, CHUNKS, CUTS, 0, W0, PRECISION)
    if CHUNKS >= 2 and GROUP >= 1:
        g1 = _chunk_gradient(g1, ds, b1, limit, limits, 1, GROUP, CHUNKS, CUTS, W0, W1, PRECISION)
    if CHUNKS >= 3 and GROUP >= 2:
        g2 = _chunk_gradient(g2, ds, b2, limit, limits, 2, GROUP, CHUNKS, CUTS, W0 + W1, W2, PRECISION)
    if CHUNKS >= 4 and GROUP >= 3:
        g3 = _chunk_gradient(g3, ds, b3, limit, limits, 3, GROUP, CHUNKS, CUTS, W0 + W1 + W2, W3, PRECISION)
    return g0, g1, g2, g3


@jit
def add_mixed_gradients(
    g0, g1, g2, g3, ds, b0, b1, b2, b3, mix, a_ids, a_level, a_rows, a_count, b_ids, b_level, b_rows, b_count,
    BOUNDS: tl.constexpr, WHOLE: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, W3: tl.constexpr, HAS_GLOBAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add the part from `add_mixed_scores` to the gradients of the chunks."""
    for level in tl.static_range(WHOLE, LEVELS):
        if ((mix >> level) & 1) != 0:
            own = tl.load(a_ids + level * a_level + a_rows, mask=a_rows < a_count, other=0)
            ids = tl.load(b_ids + level * b_level + b_rows, mask=b_rows < b_count, other=0)
            near = tl.where(_share(own, ids, HAS_GLOBAL), ds, 0.0).to(ds.dtype)
            g0 = _level_gradient(g0, near, b0, BOUNDS[level], BOUNDS[level + 1], 0, W0, PRECISION)
            if CHUNKS >= 2:
                g1 = _level_gradient(g1, near, b1, BOUNDS[level], BOUNDS[level + 1], W0, W1, PRECISION)
            if CHUNKS >= 3:
                g2 = _level_gradient(g2, near, b2, BOUNDS[level], BOUNDS[level + 1], W0 + W1, W2, PRECISION)
            if CHUNKS >= 4:
                g3 = _level_gradient(g3, near, b3, BOUNDS[level], BOUNDS[level + 1], W0 + W1 + W2, W3, PRECISION)
    return g0, g1, g2, g3


@jit
def allowed_keys(
    query_rows, key_rows, query_positions, key_positions, key_mask, N, S,
    CAUSAL: tl.constexpr, HAS_MASK: tl.constexpr, HAS_QUERY_POSITIONS: tl.constexpr, HAS_KEY_POSITIONS: tl.constexpr,
):  # fmt: skip
    """Which keys may be seen by any query, and the positions of both sides."""
    allowed = key_rows < S
    if HAS_MASK:
        allowed = tl.load(key_mask + key_rows, mask=allowed, other=0) != 0
    query_place = query_rows
    key_place = key_rows
    if CAUSAL:
        if HAS_QUERY_POSITIONS:
            query_place = tl.load(query_positions + query_rows, mask=query_rows < N, other=0)
        if HAS_KEY_POSITIONS:
            key_place = tl.load(key_positions + key_rows, mask=key_rows < S, other=0)
    return allowed, query_place, key_place


@jit
def _share(own, ids, HAS_GLOBAL: tl.constexpr):
    """Which pairs `(own, ids)` lie in one block; a global token, `EVERYWHERE`, lies in all blocks."""
    same = own[:, None] == ids[None, :]
    if HAS_GLOBAL:
        same = same | (own == -4611686018427387904)[:, None] | (ids == -4611686018427387904)[None, :]
    return same


@jit
def _keep(tile, low, high, START: tl.constexpr, W: tl.constexpr):
    """The chunk with zeros outside the components from low to high."""
    columns = START + tl.arange(0, W)[None, :]
    return tl.where((columns >= low) & (columns < high), tile, 0.0).to(tile.dtype)


@jit
def _level_scores(
    s, a, b, LOW: tl.constexpr, HIGH: tl.constexpr, START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr
):
    """Add the scores of the components of one level that lie in this chunk."""
    if (LOW < START + W) and (HIGH > START):
        s = dot(_keep(a, LOW, HIGH, START, W), tl.trans(b), s, PRECISION)
    return s


@jit
def _level_gradient(
    grad, ds, b, LOW: tl.constexpr, HIGH: tl.constexpr, START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr
):
    """Add the gradient of the components of one level that lie in this chunk."""
    if (LOW < START + W) and (HIGH > START):
        grad += _keep(dot(ds, b, tl.zeros_like(grad), PRECISION), LOW, HIGH, START, W)
    return grad


@jit
def _chunk_gradient(
    grad, ds, b, limit, limits, CHUNK: tl.constexpr, GROUP: tl.constexpr, CHUNKS: tl.constexpr, CUTS: tl.constexpr,
    START: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`ds b` added to the components of the gradient of a chunk that `scores` used."""
    if GROUP == CHUNKS:
        if limit >= START + W:
            grad = dot(ds, b, grad, PRECISION)
        else:
            grad += _keep(dot(ds, b, tl.zeros_like(grad), PRECISION), 0, limits, START, W)
    elif GROUP == CHUNK and ((CUTS >> CHUNK) & 1) != 0:
        grad += _keep(dot(ds, b, tl.zeros_like(grad), PRECISION), 0, limit, START, W)
    elif GROUP == CHUNK:
        grad = awaited(dot(ds, b, grad, PRECISION), PRECISION)
    else:
        grad = dot(ds, b, grad, PRECISION)
    return grad


@jit
def ranges_kernel(
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
def plan_kernel(
    own, walked, order, mixes, starts, own_batch, walked_batch, own_units, walked_units, walked_tiles,
    BOUNDS: tl.constexpr, CHUNK_STARTS: tl.constexpr, LEVELS: tl.constexpr, CHUNKS: tl.constexpr,
    OWN_UNITS: tl.constexpr, WALKED_UNITS: tl.constexpr, WALKED: tl.constexpr, TILES: tl.constexpr,
    CAUSAL: tl.constexpr, OWN_KEYS: tl.constexpr, PACKING: tl.constexpr,
):  # fmt: skip
    """For a tile: the non-empty tiles to walk, sorted by the chunks they need; tiles that need masks are last."""
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
