"""The scores are those of the definition: written here once more, pair by pair, from the projections' components."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NO_CROSSING, NUM_HEADS, UNSCORED, build, each_impl
from tests.attention.cases import tokens as random_tokens
from tsattn.attention import (
    Attention,
    BilinearMLRAttention,
    GlobalSlidingWindowAttention,
    MLBTCAttention,
    StandardAttention,
    build_attention,
)
from tsattn.attention.patterns import GlobalSlidingWindowPattern, MultiLevelPattern, SlidingWindowPattern
from tsattn.attention.projections import BilinearMLRProjection, BTTProjection, MLBTCProjection, RotaryEmbedding
from tsattn.errors import UserError
from tsattn.ops.native.library import why_no_kernels

T = 13
SCORED = [case for case in CASES if case not in UNSCORED]


def components(attention: Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    q, k = attention.projection(x, x)
    q, k = attention.query_norm(q), attention.key_norm(k)
    heads = attention.num_heads
    return tuple(t.repeat_interleave(heads // t.shape[1], dim=1)[0] if t.shape[1] < heads else t[0] for t in (q, k))


def by_definition(attention: Attention, x: Tensor, pair_score: object) -> Tensor:
    """Softmax attention over `pair_score(q_i, k_j, i, j)`, None for a pair that is not scored, with Python loops."""
    q, k = components(attention, x)
    values = attention.value(x)[0].unflatten(-1, (attention.num_kv_heads, attention.head_dim))
    rows = []
    for i in range(T):
        mixed = []
        for head in range(attention.num_heads):
            group = head * attention.num_kv_heads // attention.num_heads
            scores = {j: pair_score(q[head, i], k[head, j], i, j) for j in range(T)}
            scored = {j: score for j, score in scores.items() if score is not None}
            weights = torch.softmax(torch.stack(list(scored.values())), 0)
            mixed.append(sum(w * values[j, group] for w, j in zip(weights, scored, strict=True)))
        rows.append(torch.cat(mixed))
    return attention.output(torch.stack(rows))[None]


@pytest.mark.parametrize("case", [case for case in SCORED if CASES[case]["kind"] not in ("mlr", "global_swa")])
def test_full_and_windowed_scores(case: str) -> None:
    causal = len(case) % 2 == 0  # about half of each kind
    attention = build(case, length=T, causal=causal)
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    window = CASES[case].get("window_size", T)
    width = D_MODEL if case.startswith(("btt", "mlbtc")) else attention.projection.width

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        seen = abs(i - j) < window and not (causal and j > i)
        return q @ k / math.sqrt(width) if seen else None

    torch.testing.assert_close(attention(x), by_definition(attention, x, score), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("case", "causal"), [("global_swa", True), ("global_swa-sum-grouped", False)])
def test_global_and_window_parts_have_a_softmax_each(case: str, causal: bool) -> None:
    attention = build(case, length=T, causal=causal)
    first = CASES[case].get("global_rank", 2)
    rest = attention.head_dim - first
    attention.pattern.window_part.window_size = window = 5
    x = 2 * torch.randn(1, T, D_MODEL, dtype=torch.float64)

    def everywhere(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        return None if causal and j > i else q[:first] @ k[:first] / math.sqrt(first)

    def near(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        seen = abs(i - j) < window and not (causal and j > i)
        return q[first:] @ k[first:] / math.sqrt(rest) if seen else None

    parts = by_definition(attention, x, everywhere) + by_definition(attention, x, near)
    expected = parts - attention.output.bias if "sum" in case else parts / 2
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_any_projection_goes_with_levels_with_two_parts_and_with_a_window() -> None:
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    shapes = MLBTCAttention(D_MODEL, NUM_HEADS).projection.shapes

    def by_level(q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        shared = 20 if i // 4 == j // 4 else 4
        return q[:shared] @ k[:shared] / math.sqrt(D_MODEL)

    def near(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        return q @ k / math.sqrt(D_MODEL) if abs(i - j) < 4 else None

    levels = MultiLevelPattern([4, 16], lengths=[100, 4], align="start")
    pairs: list[tuple[Any, Any, Any]] = [(MLBTCProjection(D_MODEL, NUM_HEADS, 2, shapes), levels, by_level)]
    for side in BTTProjection.SIDES:
        projection = BTTProjection(D_MODEL, NUM_HEADS, None, tt_rank=2, side=side)
        pairs.append((projection, SlidingWindowPattern(4), near))
    for projection, pattern, score in pairs:
        groups = 2 if pattern is levels else None
        attention = Attention(D_MODEL, NUM_HEADS, projection=projection, pattern=pattern, num_kv_heads=groups).double()
        expected = by_definition(attention, x, score)
        for _ in each_impl(attention):
            torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)

    projection = BilinearMLRProjection(D_MODEL, NUM_HEADS, None, [4, 4])
    parts = GlobalSlidingWindowPattern(12, 4, 3)
    attention = Attention(D_MODEL, NUM_HEADS, projection=projection, pattern=parts).double()
    halves = [
        by_definition(
            attention,
            x,
            lambda q, k, i, j, part=part, reach=reach: (
                q[part] @ k[part] / math.sqrt(part.stop - part.start) if abs(i - j) < reach else None
            ),
        )
        for part, reach in ((slice(0, 4), T), (slice(4, 12), 3))
    ]
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), sum(halves) / 2, rtol=0, atol=1e-12)


FACTORS = {"head": lambda _: 1 / math.sqrt(6), "level": lambda r: 1 / math.sqrt(r), "mup": lambda r: 1 / r}
BLOCKS: list[tuple[Any, str, Any]] = [
    ([1, 2, 6], "end", lambda i, level: (i + 15 - T) * [1, 2, 6][level] // 15),
    ({"lengths": [6, 6, 2]}, "start", lambda i, level: i // [6, 6, 2][level]),  # and some share none
    ([1, 2, 6], "start", lambda i, level: i * [1, 2, 6][level] // 15),
    ({"lengths": [12, 4, 2]}, "end", lambda i, level: (i + 15 - T) // [12, 4, 2][level]),
]
SCALED = [(scaling, divide_by) for scaling in MultiLevelPattern.SCALINGS for divide_by in MultiLevelPattern.DIVISORS]


@pytest.mark.parametrize(("turn", "scaling", "divide_by"), [(turn, *pair) for turn, pair in enumerate(SCALED)])
def test_multilevel_scores(turn: int, scaling: str, divide_by: str) -> None:
    """`sum over the shared levels of f(r_l) q_l . k_l`, over 1, L or the number of them; values and gradients."""
    torch.manual_seed(0)
    blocks, align, block_of = BLOCKS[(turn + turn // 4) % 4]
    causal = align == "start" and isinstance(blocks, dict)
    description = {"kind": "mlr", "head_dim": 6, "ranks": [3, 2, 1], "blocks": blocks, "align": align}
    description |= {"scaling": scaling, "divide_by": divide_by, "num_kv_heads": 2}
    attention = build_attention(description, d_model=D_MODEL, num_heads=NUM_HEADS, max_length=15, causal=causal)
    attention = attention.double().eval()
    x = (2 * torch.randn(1, T, D_MODEL, dtype=torch.float64)).requires_grad_()
    levels = [
        (slice(0, 3), FACTORS[scaling](3)),
        (slice(3, 5), FACTORS[scaling](2)),
        (slice(5, 6), FACTORS[scaling](1)),
    ]

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        if causal and j > i:
            return None
        shared = [f * (q[s] @ k[s]) for level, (s, f) in enumerate(levels) if block_of(i, level) == block_of(j, level)]
        divisor = {"none": 1, "levels": 3, "active": max(1, len(shared)), "both": 3 * max(1, len(shared))}[divide_by]
        return sum(shared, torch.zeros((), dtype=torch.float64)) / divisor

    weight = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    leaves = [x, *attention.parameters()]
    expected = by_definition(attention, x, score)
    gradients = torch.autograd.grad((expected * weight).sum(), leaves)
    impls = [*each_impl(attention)]
    assert "tiles" in impls
    assert ("sdpa" in impls) == (divide_by in ("none", "levels"))
    for attention.impl in impls:
        actual = attention(x)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
        for grad, want in zip(torch.autograd.grad((actual * weight).sum(), leaves), gradients, strict=True):
            torch.testing.assert_close(grad, want, rtol=0, atol=1e-11)
    if causal:
        for schedule in ([1] * T, [4, 1, 5, 3]):
            cache = attention.new_cache(1)
            decoded = torch.cat([attention(part, cache=cache) for part in torch.split(x, schedule, 1)], 1)
            torch.testing.assert_close(decoded, expected, rtol=0, atol=1e-12)


def test_active_levels_are_counted_where_blocks_do_not_nest_and_tokens_are_global() -> None:
    attention = build_attention(
        {"kind": "mlr", "ranks": [2, 2], "divide_by": "active", "scaling": "mup"},
        d_model=D_MODEL,
        num_heads=NUM_HEADS,
        max_length=T,
    )
    attention = attention.double().eval()
    x = 2 * torch.randn(1, T, D_MODEL, dtype=torch.float64)
    chosen = torch.zeros(T, dtype=torch.bool)
    chosen[5] = True
    crossing, nested = (
        torch.randint(0, 3, (2, 1, T)),
        torch.stack([torch.arange(T) // 6, torch.arange(T) // 3])[:, None],
    )
    for blocks, without in ((crossing, NO_CROSSING), (nested, ())):

        def score(q: Tensor, k: Tensor, i: int, j: int, blocks: Tensor = blocks) -> Tensor:
            shares = (blocks[:, 0, i] == blocks[:, 0, j]) | chosen[i] | chosen[j]
            products = torch.stack([q[:2] @ k[:2], q[2:] @ k[2:]]) / 2
            return (products * shares).sum() / shares.sum().clamp(min=1)

        expected = by_definition(attention, x, score)
        for _ in each_impl(attention, without=without):
            out = attention(x, blocks=blocks, global_tokens=chosen)
            torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        *("standard-grouped", "btt", "btt-query", "btt-both-grouped", "btt-above"),
        *("bilinear_mlr-grouped", "mlbtc-grouped", "mlr-deep"),
    ],
)
def test_scores_are_the_dense_bilinear_form(case: str) -> None:
    """`x M x'` with the M that `to_dense` writes out is the product of queries and keys, q/k normalisation off."""
    projection = build(case, length=T).projection
    with torch.no_grad():
        for name, parameter in projection.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    x, other = (torch.randn(2, T, D_MODEL, dtype=torch.float64) for _ in range(2))
    q, k = projection(x, other)
    heads = NUM_HEADS
    q, k = (t.repeat_interleave(heads // t.shape[1], dim=1) for t in (q, k))
    dense = projection.to_dense()
    assert dense.shape == (heads, D_MODEL, D_MODEL)
    expected = torch.einsum("bnd,hde,bse->bhns", x, dense, other)
    torch.testing.assert_close(q @ k.transpose(-1, -2), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("combine", "impl"), [*zip(("mean", "sum") * 2, GlobalSlidingWindowPattern.impls, strict=True)]
)
def test_without_a_window_part_all_is_standard_attention(combine: str, impl: str) -> None:
    dtype = torch.float32 if impl == "native" else torch.float64
    if impl == "native" and why_no_kernels() is not None:
        pytest.skip(f"no native kernels: {why_no_kernels()}")
    x, context = torch.randn(2, 50, D_MODEL, dtype=dtype), torch.randn(2, 9, D_MODEL, dtype=dtype)
    for more in ({"causal": True, "rope": True, "num_kv_heads": 2}, {}):
        standard = StandardAttention(D_MODEL, NUM_HEADS, impl=impl, **more).to(dtype).eval()
        options = {"global_rank": 4, "window_size": 2, "combine": combine, "impl": impl}
        same = GlobalSlidingWindowAttention(D_MODEL, NUM_HEADS, **options, **more).to(dtype).eval()
        same.load_state_dict(standard.state_dict())
        assert torch.equal(same(x), standard(x))
    assert torch.equal(same(x, context), standard(x, context))


@pytest.mark.parametrize(
    "case",
    ["standard-grouped", "swa", "global_swa-sum-grouped", "btt", "btt-both-grouped", "mlbtc", "mlr-deep", "mlr-active"],
)
def test_rotations_depend_on_distance_only(case: str) -> None:
    """Shifting all positions by a whole coarsest block moves every block and window along."""
    attention = build(case, length=12, rope=True)
    x = torch.randn(1, 12, D_MODEL, dtype=torch.float64)
    still = build(case, length=12)
    positions = torch.arange(12)
    torch.testing.assert_close(
        attention(x, positions=positions + 24), attention(x, positions=positions), rtol=0, atol=1e-6
    )
    assert not torch.allclose(attention(x), still(x), atol=1e-4)


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_which_level_turns_fast_is_a_choice(frequencies: str) -> None:
    assert build("standard", length=12, rope=500.0).rotary.base == 500
    rotary = RotaryEmbedding(16, base=1e4, groups=[8, 4, 4], frequencies=frequencies)
    turns = rotary.frequencies.tolist()
    assert sorted(turns) == sorted(RotaryEmbedding(16, base=1e4).frequencies.tolist())
    coarse, fine = turns[:4], turns[4:]
    if frequencies == "spread":
        assert max(coarse) == 1
        assert min(coarse) < max(fine) < 1
    else:
        assert (min(coarse) > max(fine)) == (frequencies == "fast_first")
        assert (max(coarse) < min(fine)) == (frequencies == "slow_first")


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_rotated_scores_of_any_prefix_depend_on_the_distance_alone(frequencies: str) -> None:
    """So that every level of multi-level attention sees relative positions, wherever a block begins."""
    rotary = RotaryEmbedding(12, base=1e4, groups=(6, 2, 4), frequencies=frequencies)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 12, generator=generator, dtype=torch.float64)

    def score(query: int, key: int, prefix: int) -> float:
        rotated = (rotary(x, x, torch.tensor([[at]]))[0][..., :prefix] for x, at in ((q, query), (k, key)))
        return float(torch.linalg.vecdot(*rotated))

    for prefix in (6, 8, 12):
        near = score(10, 3, prefix)
        assert score(10 + 717, 3 + 717, prefix) == pytest.approx(near, abs=1e-12)
        assert score(10, 2, prefix) != pytest.approx(near, abs=1e-3)


def test_both_sides_of_bilinear_mlr_start_at_the_fan_in_of_a_piece() -> None:
    torch.manual_seed(0)
    projection = BilinearMLRAttention(512, 8, ranks=[32, 16, 16], blocks=[1, 4, 8], num_kv_heads=4).projection
    for factors in (projection.left, projection.right):
        for factor, pieces in zip(factors, (1, 4, 8), strict=True):
            assert factor.shape[-2] == 512 // pieces
            assert factor.var().item() * 512 / pieces == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("description", "scaling", "factor"),
    [
        ("standard", "mup", 8 / 4),
        ("standard", 0.25, 0.25),
        ("swa", "mup", 8 / 4),
        ("btt", "mup", 1 / 16),
        ("btt", 1 / 16, 1 / 16),
        ("mlbtc", "mup", 1 / 16),
    ],
)
def test_the_factor_of_the_logits_is_a_choice(description: str, scaling: str | float, factor: float) -> None:
    """`8 / r`, `1 / D` or a number, instead of `1 / sqrt(r)` or `1 / sqrt(D)`: as if queries were that much longer."""
    torch.manual_seed(0)
    plain = build_attention(description, d_model=16, num_heads=4).double().eval()
    other = build_attention({"kind": description, "scaling": scaling}, d_model=16, num_heads=4).double().eval()
    other.load_state_dict(plain.state_dict())
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    assert other.scale == factor
    assert not torch.allclose(other(x), plain(x))
    plain.scale = factor
    assert torch.equal(other(x), plain(x))


def test_each_part_of_global_swa_has_the_factor_of_its_own_rank() -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2}
    description = {"kind": "global_swa", "window_size": 3, "global_rank": 2, "impl": "reference"}
    plain = build_attention(description, **sizes).double().eval()
    other = build_attention({**description, "scaling": "mup"}, **sizes).double().eval()
    other.load_state_dict(plain.state_dict())
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    with torch.no_grad():  # from 1 / sqrt(r) to 8 / r in the queries
        for rank, part in ((2, slice(0, 2)), (6, slice(2, 8))):
            for head in range(2):
                rows = slice(8 * head + part.start, 8 * head + part.stop)
                plain.projection.query.weight[rows] *= 8 / math.sqrt(rank)
                plain.projection.query.bias[rows] *= 8 / math.sqrt(rank)
    torch.testing.assert_close(other(x), plain(x))


PLACES = 11


def weight(attention: Attention, case: str, head: int, i: int, keys: list[int]) -> Tensor:
    kind = CASES[case]["kind"]
    if kind == "identity":
        return torch.tensor([float(j == i) for j in keys]).double()
    if kind == "uniform":
        return torch.full((len(keys),), 1 / len(keys), dtype=torch.float64)
    table = attention.pattern.table
    first = table.shape[1] - PLACES if attention.pattern.align == "end" else 0
    return torch.softmax(torch.stack([table[head, first + i, first + j] for j in keys]), 0)


@pytest.mark.parametrize(
    ("case", "causal"), [(case, turn % 2 == 0) for turn, case in enumerate([*UNSCORED, *UNSCORED[:1]])]
)
def test_weights_are_those_of_the_definition(case: str, causal: bool) -> None:
    attention = build(case, length=16, causal=causal)
    x = torch.randn(1, PLACES, D_MODEL, dtype=torch.float64)
    values = attention.value(x)[0].unflatten(-1, (attention.num_kv_heads, attention.head_dim))
    rows = []
    for i in range(PLACES):
        keys = [*range(i + 1)] if causal else [*range(PLACES)]
        heads = []
        for head in range(NUM_HEADS):
            group = head * attention.num_kv_heads // NUM_HEADS
            mixing = weight(attention, case, head, i, keys)
            heads.append(sum(w * values[j, group] for w, j in zip(mixing, keys, strict=True)))
        rows.append(torch.cat(heads))
    expected = attention.output(torch.stack(rows))[None]
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["identity-grouped", "uniform-grouped", "fixed_mixing"])
def test_there_are_no_parameters_that_do_nothing(case: str) -> None:
    attention = build(case, length=16)
    names = {"value.weight", "value.bias", "output.weight", "output.bias"}
    if CASES[case]["kind"] == "fixed_mixing":
        names |= {"pattern.table"}
        assert attention.pattern.num_params() == NUM_HEADS * 16 * 16
    assert {name for name, _ in attention.named_parameters()} == names
    attention(torch.randn(2, 16, D_MODEL, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in attention.parameters())


@pytest.mark.parametrize("kind", ["identity", "uniform"])
def test_equal_weights_are_scores_of_zero(kind: str) -> None:
    """As standard attention whose queries are zero, over a window of one token or over all, biases included."""
    scored = build_attention(
        {"kind": "swa", "window_size": 1} if kind == "identity" else "standard", d_model=16, num_heads=4, causal=True
    )
    torch.nn.init.zeros_(scored.projection.query.weight)
    torch.nn.init.zeros_(scored.projection.query.bias)
    attention = build_attention(kind, d_model=16, num_heads=4, causal=True)
    attention.load_state_dict(
        {name: part for name, part in scored.state_dict().items() if not name.startswith("projection")}
    )
    x, bias = torch.randn(2, 9, 16), torch.randn(2, 4, 9, 9)
    mask = torch.arange(9) > torch.tensor([[3], [-1]])
    for more in ({}, {"bias": bias}, {"attention_mask": mask}, {"positions": torch.randperm(9)}):
        expected, found = scored(x, **more), attention(x, **more)
        real = mask if "attention_mask" in more else torch.ones_like(mask)
        torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-6)


def test_what_direct_does_not_take_is_refused() -> None:
    x = torch.randn(1, 5, 16)
    for kind in ("identity", "uniform"):
        attention = build_attention({"kind": kind, "impl": "direct"}, d_model=16, num_heads=4)
        with pytest.raises(UserError, match=r"^impl direct cannot compute this attention with bias: give impl re"):
            attention(x, bias=torch.zeros(5, 5))
    for kind in ("identity", "uniform", "fixed_mixing"):
        attention = build_attention(
            {"kind": kind, "impl": "direct", "dropout": 0.5}, d_model=16, num_heads=4, max_length=5
        )
        with pytest.raises(UserError, match="with dropout of weights: give impl reference"):
            attention.train()(x)


def test_a_table_has_so_many_places() -> None:
    with pytest.raises(UserError, match="fixed_mixing attention needs max_length, the number of its places"):
        build_attention("fixed_mixing", d_model=16, num_heads=4)
    attention = build("fixed_mixing", length=8)
    x = random_tokens(9)
    with pytest.raises(UserError, match="9 tokens are more than max_length 8: give a larger max_length"):
        attention(x)
    with pytest.raises(UserError, match="positions must lie from 0 to 7, the places of the learned table"):
        attention(x[:, :3], positions=torch.tensor([3, 8, 1]))
    with pytest.raises(UserError, match=r"cannot decode step by step with align=end, .*: give align=start$"):
        build("fixed_mixing", length=8, causal=True).new_cache(1)
