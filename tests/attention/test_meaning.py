"""The scores are those of the definition: written here once more, pair by pair, from the projections' components."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NO_CROSSING, NUM_HEADS, build, each_impl
from tsattn.attention import (
    Attention,
    BilinearMLRAttention,
    BTTAttention,
    GlobalSlidingWindowAttention,
    MLBTCAttention,
    MLRAttention,
    SlidingWindowAttention,
    StandardAttention,
    build_attention,
)
from tsattn.attention.patterns import GlobalSlidingWindowPattern, MultiLevelPattern, SlidingWindowPattern
from tsattn.attention.projections import BilinearMLRProjection, BTTProjection, MLBTCProjection
from tsattn.attention.rope import RotaryEmbedding
from tsattn.errors import UserError
from tsattn.structured import block_sizes

T = 13


def components(attention: Attention, x: Tensor) -> tuple[Tensor, Tensor]:
    q, k = attention.projection(x, x)
    q, k = attention.query_norm(q), attention.key_norm(k)
    heads = attention.num_heads
    return tuple(  # type: ignore[return-value]
        t.repeat_interleave(heads // t.shape[1], dim=1)[0] if t.shape[1] < heads else t[0] for t in (q, k)
    )


def by_definition(attention: Attention, x: Tensor, pair_score: object) -> Tensor:
    """Softmax attention over `pair_score(q_i, k_j, i, j)`, None for a pair that is not scored, with Python loops."""
    q, k = components(attention, x)
    values = attention.value(x)[0].unflatten(-1, (attention.num_kv_heads, attention.head_dim))
    rows = []
    for i in range(T):
        mixed = []
        for head in range(attention.num_heads):
            group = head * attention.num_kv_heads // attention.num_heads
            scores = {j: pair_score(q[head, i], k[head, j], i, j) for j in range(T)}  # type: ignore[operator]
            scored = {j: score for j, score in scores.items() if score is not None}
            weights = torch.softmax(torch.stack(list(scored.values())), 0)
            mixed.append(sum(w * values[j, group] for w, j in zip(weights, scored, strict=True)))
        rows.append(torch.cat(mixed))
    return attention.output(torch.stack(rows))[None]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["kind"] not in ("mlr", "global_swa")])
def test_full_and_windowed_scores(case: str, causal: bool) -> None:
    attention = build(case, length=T, causal=causal)
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    window = CASES[case].get("window_size", T)
    width = D_MODEL if case.startswith(("btt", "mlbtc")) else attention.projection.width

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        seen = abs(i - j) < window and not (causal and j > i)
        return q @ k / math.sqrt(width) if seen else None

    torch.testing.assert_close(attention(x), by_definition(attention, x, score), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", ["global_swa", "global_swa-sum-grouped"])
def test_global_and_window_parts_have_a_softmax_each(case: str, causal: bool) -> None:
    attention = build(case, length=T, causal=causal)
    first = CASES[case].get("global_rank", 2)
    rest = attention.head_dim - first
    attention.pattern.window_part.window_size = window = 5  # type: ignore[attr-defined]
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


@pytest.mark.parametrize(("combine", "total"), [("mean", 1.0), ("sum", 2.0)])
@pytest.mark.parametrize("causal", [False, True])
def test_weights_of_global_and_window_parts_sum_to(combine: str, total: float, causal: bool) -> None:
    attention = GlobalSlidingWindowAttention(D_MODEL, NUM_HEADS, window_size=3, combine=combine, causal=causal)
    with torch.no_grad():  # values of one, read as they are mixed
        attention.value.weight.zero_()
        attention.value.bias.fill_(1.0)
        attention.output.weight.copy_(torch.eye(D_MODEL))
        attention.output.bias.zero_()
    mixed = attention(torch.randn(2, T, D_MODEL))
    torch.testing.assert_close(mixed, torch.full_like(mixed, total))


@pytest.mark.parametrize("scaling", [None, "level", "mup", "head", 1.0, 1 / 4])
@pytest.mark.parametrize("case", ["bilinear_mlr", "bilinear_mlr-grouped"])
def test_bilinear_mlr_compares_pieces_of_the_features(case: str, scaling: str | float | None) -> None:
    """`sum_l q_l . k_l` times its factor, `1 / sqrt(p_l r_l)` by default, piece by piece from the parameters."""
    description = CASES[case] if scaling is None else {**CASES[case], "scaling": scaling}
    attention = build_attention(description, d_model=D_MODEL, num_heads=NUM_HEADS).double()
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    q, k = components(attention, x)
    projection = attention.projection
    assert isinstance(projection, BilinearMLRProjection)
    for head in range(NUM_HEADS):
        group = head * attention.num_kv_heads // NUM_HEADS
        scores = torch.zeros(T, T, dtype=torch.float64)
        for left, right in zip(projection.left, projection.right, strict=True):
            pieces, size, rank = left.shape[1:]
            factor = scaling if isinstance(scaling, float) else 1 / math.sqrt(pieces * rank)
            if scaling == "head":
                factor = 1 / math.sqrt(q.shape[-1])
            for piece in range(pieces):
                part = x[0, :, piece * size : (piece + 1) * size]
                scores += (part @ left[head, piece]) @ (part @ right[group, piece]).T * factor
        torch.testing.assert_close(attention.scale * q[head] @ k[head].T, scores, rtol=0, atol=1e-12)


def test_both_sides_of_bilinear_mlr_start_at_the_fan_in_of_a_piece() -> None:
    torch.manual_seed(0)
    projection = BilinearMLRAttention(512, 8, ranks=[32, 16, 16], blocks=[1, 4, 8], num_kv_heads=4).projection
    for factors in (projection.left, projection.right):
        for factor, pieces in zip(factors, (1, 4, 8), strict=True):  # type: ignore[arg-type]
            assert factor.shape[-2] == 512 // pieces
            assert factor.var().item() * 512 / pieces == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("kind", ["standard", "bilinear_mlr", "btt", "mlbtc"])
def test_scores_start_at_a_scale_that_softmax_can_use(kind: str) -> None:
    torch.manual_seed(0)
    projection = build_attention({"kind": kind}, d_model=256, num_heads=4).projection
    x = torch.randn(1, 200, 256)
    q, k = projection(x, x)
    assert 0.2 < (projection.scale * q @ k.transpose(-1, -2)).std() < 2.5


@pytest.mark.parametrize("side", BTTProjection.SIDES)
def test_any_projection_goes_with_a_window(side: str) -> None:
    projection = BTTProjection(D_MODEL, NUM_HEADS, None, tt_rank=2, side=side)
    attention = Attention(D_MODEL, NUM_HEADS, projection=projection, pattern=SlidingWindowPattern(4)).double()
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        return q @ k / math.sqrt(D_MODEL) if abs(i - j) < 4 else None

    expected = by_definition(attention, x, score)
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_any_projection_goes_with_levels_and_with_two_parts() -> None:
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    shapes = MLBTCAttention(D_MODEL, NUM_HEADS).projection.shapes
    levels = MultiLevelPattern([4, 16], lengths=[100, 4], align="start")
    attention = Attention(
        D_MODEL, NUM_HEADS, projection=MLBTCProjection(D_MODEL, NUM_HEADS, 2, shapes), pattern=levels, num_kv_heads=2
    ).double()

    def by_level(q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        shared = 20 if i // 4 == j // 4 else 4
        return q[:shared] @ k[:shared] / math.sqrt(D_MODEL)

    expected = by_definition(attention, x, by_level)
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)

    projection = BilinearMLRProjection(D_MODEL, NUM_HEADS, None, [4, 4])
    parts = GlobalSlidingWindowPattern(12, 4, 3)
    attention = Attention(D_MODEL, NUM_HEADS, projection=projection, pattern=parts).double()

    def everywhere(q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        return q[:4] @ k[:4] / math.sqrt(4)

    def near(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        return q[4:] @ k[4:] / math.sqrt(8) if abs(i - j) < 3 else None

    expected = (by_definition(attention, x, everywhere) + by_definition(attention, x, near)) / 2
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("blocks", "align", "block_of"),
    [
        ([1, 2, 6], "start", lambda i, level: i * [1, 2, 6][level] // 15),
        ([1, 2, 6], "end", lambda i, level: (i + 15 - T) * [1, 2, 6][level] // 15),
        ({"lengths": [12, 4, 2]}, "start", lambda i, level: i // [12, 4, 2][level]),
        ({"lengths": [12, 4, 2]}, "end", lambda i, level: (i + 15 - T) // [12, 4, 2][level]),
    ],
    ids=["numbers", "numbers at the end", "lengths", "lengths at the end"],
)
def test_multilevel_scores(blocks: object, align: str, block_of: object, causal: bool) -> None:
    description = {"kind": "mlr", "head_dim": 6, "ranks": [3, 2, 1], "blocks": blocks, "align": align}
    attention = build_attention(description, d_model=D_MODEL, num_heads=NUM_HEADS, max_length=15, causal=causal)
    attention = attention.double().eval()
    x = 2 * torch.randn(1, T, D_MODEL, dtype=torch.float64)
    levels = [slice(0, 3), slice(3, 5), slice(5, 6)]

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        if causal and j > i:
            return None
        shared = [s for level, s in enumerate(levels) if block_of(i, level) == block_of(j, level)]  # type: ignore[operator]
        return sum((q[s] @ k[s] for s in shared), torch.zeros((), dtype=torch.float64)) / math.sqrt(6)

    expected = by_definition(attention, x, score)
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


SCALED = [(scaling, divide_by) for scaling in MultiLevelPattern.SCALINGS for divide_by in MultiLevelPattern.DIVISORS]
FACTORS = {"head": lambda _: 1 / math.sqrt(6), "level": lambda r: 1 / math.sqrt(r), "mup": lambda r: 1 / r}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("blocks", "align", "block_of"),
    [
        ([1, 2, 6], "end", lambda i, level: (i + 15 - T) * [1, 2, 6][level] // 15),
        ({"lengths": [6, 6, 2]}, "start", lambda i, level: i // [6, 6, 2][level]),
    ],
    ids=["numbers at the end", "lengths, and some share none"],
)
@pytest.mark.parametrize(("scaling", "divide_by"), SCALED)
def test_scalings_of_levels(
    scaling: str, divide_by: str, blocks: object, align: str, block_of: object, causal: bool
) -> None:
    """`sum over the shared levels of f(r_l) q_l . k_l`, over 1, L or the number of them; values and gradients."""
    torch.manual_seed(0)
    description = {"kind": "mlr", "head_dim": 6, "ranks": [3, 2, 1], "blocks": blocks, "align": align}
    description |= {"scaling": scaling, "divide_by": divide_by, "num_kv_heads": 2}
    attention = build_attention(description, d_model=D_MODEL, num_heads=NUM_HEADS, max_length=15, causal=causal)
    attention = attention.double().eval()
    x = (2 * torch.randn(1, T, D_MODEL, dtype=torch.float64)).requires_grad_()
    levels = [slice(0, 3), slice(3, 5), slice(5, 6)]
    of_level = [FACTORS[scaling](r) for r in (3, 2, 1)]

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        if causal and j > i:
            return None
        shared = [
            factor * (q[s] @ k[s])
            for level, (s, factor) in enumerate(zip(levels, of_level, strict=True))
            if block_of(i, level) == block_of(j, level)  # type: ignore[operator]
        ]
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
    if causal and align == "start":
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


def test_explicit_blocks_differ_from_row_to_row_and_need_not_nest() -> None:
    attention = build("mlr", length=T)
    x = 2 * torch.randn(2, T, D_MODEL, dtype=torch.float64)
    blocks = torch.randint(0, 3, (2, 2, T))
    for _ in each_impl(attention, without=NO_CROSSING):
        both = attention(x, blocks=blocks)
        for row in range(2):

            def score(q: Tensor, k: Tensor, i: int, j: int, row: int = row) -> Tensor:
                shares = blocks[:, row, i] == blocks[:, row, j]
                pieces = [q[:2] @ k[:2] * shares[0], q[2:] @ k[2:] * shares[1]]
                return sum(pieces) / math.sqrt(4)  # type: ignore[return-value]

            expected = by_definition(attention, x[row : row + 1], score)
            torch.testing.assert_close(both[row : row + 1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
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


def copy_into(kind: type[Attention], source: Attention, **arguments: object) -> Attention:
    attention = kind(D_MODEL, NUM_HEADS, max_length=50, **arguments).double().eval()  # type: ignore[arg-type]
    attention.load_state_dict(source.state_dict())
    return attention


@pytest.mark.parametrize("causal", [False, True])
def test_special_cases_are_standard_attention(causal: bool) -> None:
    x = torch.randn(2, 50, D_MODEL, dtype=torch.float64)
    standard = StandardAttention(D_MODEL, NUM_HEADS, causal=causal).double().eval()
    one_level = copy_into(MLRAttention, standard, ranks=[4], causal=causal)
    one_scaled = copy_into(MLRAttention, standard, ranks=[4], causal=causal, scaling="level", divide_by="levels")
    wide_window = copy_into(SlidingWindowAttention, standard, window_size=50, causal=causal)
    narrow_window = copy_into(SlidingWindowAttention, standard, window_size=49, causal=causal)
    for impl in ("reference", "sdpa", "auto"):
        one_level.impl = one_scaled.impl = wide_window.impl = narrow_window.impl = standard.impl = impl
        torch.testing.assert_close(one_level(x), standard(x), rtol=0, atol=1e-14)
        assert torch.equal(one_scaled(x), one_level(x))
        torch.testing.assert_close(wide_window(x), standard(x), rtol=0, atol=1e-14)
        assert not torch.allclose(narrow_window(x), standard(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("combine", GlobalSlidingWindowPattern.COMBINATIONS)
@pytest.mark.parametrize("impl", GlobalSlidingWindowPattern.impls)
def test_without_a_window_part_all_is_standard_attention(combine: str, impl: str) -> None:
    x, context = torch.randn(2, 50, D_MODEL, dtype=torch.float64), torch.randn(2, 9, D_MODEL, dtype=torch.float64)
    for more in ({"causal": True, "rope": True, "num_kv_heads": 2}, {}):
        standard = StandardAttention(D_MODEL, NUM_HEADS, impl=impl, **more).double().eval()  # type: ignore[arg-type]
        same = copy_into(
            GlobalSlidingWindowAttention, standard, global_rank=4, window_size=2, combine=combine, impl=impl, **more
        )
        assert torch.equal(same(x), standard(x))
    assert torch.equal(same(x, context), standard(x, context))


def with_factors(
    kind: type[Attention], source: Attention, left: list[Tensor], right: list[Tensor], **arguments: object
) -> Attention:
    """An attention of multi-level factors, with the values and outputs of another."""
    attention = kind(D_MODEL, NUM_HEADS, **arguments).double().eval()  # type: ignore[arg-type]
    attention.value, attention.output = source.value, source.output
    with torch.no_grad():
        for ours, theirs in zip((*attention.projection.left, *attention.projection.right), left + right, strict=True):  # type: ignore[misc]
            assert ours.shape == theirs.shape
            ours.copy_(theirs)
    return attention


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_one_level_in_one_piece_is_standard_attention(num_kv_heads: int) -> None:
    standard = StandardAttention(D_MODEL, NUM_HEADS, num_kv_heads=num_kv_heads).double().eval()
    query, key = standard.projection.query, standard.projection.key
    with torch.no_grad():
        query.bias.zero_()  # type: ignore[union-attr,operator]
        key.bias.zero_()  # type: ignore[union-attr,operator]
    left = query.weight.unflatten(0, (NUM_HEADS, 1, 4)).transpose(-1, -2)  # type: ignore[union-attr,operator]
    right = key.weight.unflatten(0, (num_kv_heads, 1, 4)).transpose(-1, -2)  # type: ignore[union-attr,operator]
    x = torch.randn(2, T, D_MODEL, dtype=torch.float64)
    bilinear = with_factors(BilinearMLRAttention, standard, [left], [right], ranks=[4], num_kv_heads=num_kv_heads)
    torch.testing.assert_close(bilinear(x), standard(x), rtol=0, atol=1e-13)
    # scores over sqrt(D) in place of sqrt(r)
    low_rank = with_factors(
        MLBTCAttention, standard, [2 * left], [right], levels=[{"rank": 4}], num_kv_heads=num_kv_heads
    )
    torch.testing.assert_close(low_rank(x), standard(x), rtol=0, atol=1e-13)


def test_mlbtc_contains_bilinear_mlr_and_btt() -> None:
    x = torch.randn(2, T, D_MODEL, dtype=torch.float64)
    btt = BTTAttention(D_MODEL, NUM_HEADS, tt_rank=2, side="both", num_kv_heads=2, qk_norm=False).double().eval()
    level = {"rank": 2, "left_blocks": 4, "right_blocks": 4, "shuffled": True}
    factors = [btt.projection.left], [btt.projection.right]
    same = with_factors(MLBTCAttention, btt, *factors, levels=[level], num_kv_heads=2)  # type: ignore[arg-type]
    torch.testing.assert_close(same(x), btt(x), rtol=0, atol=1e-13)

    ranks, blocks = [2, 1, 1], [1, 4, 8]
    mlr = BilinearMLRAttention(D_MODEL, NUM_HEADS, ranks=ranks, blocks=blocks).double().eval()
    left = [math.sqrt(D_MODEL / (p * r)) * f for f, r, p in zip(mlr.projection.left, ranks, blocks, strict=True)]  # type: ignore[arg-type]
    levels = [{"rank": r, "left_blocks": p, "right_blocks": p} for r, p in zip(ranks, blocks, strict=True)]
    same = with_factors(MLBTCAttention, mlr, left, list(mlr.projection.right), levels=levels)  # type: ignore[arg-type]
    torch.testing.assert_close(same(x), mlr(x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("case", [case for case in CASES if "lengths" not in case])
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


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["kind"] not in ("swa", "global_swa", "mlr")])
def test_cross_attention(case: str) -> None:
    attention = build(case, length=20)
    x, context = torch.randn(2, 5, D_MODEL, dtype=torch.float64), torch.randn(2, 9, D_MODEL, dtype=torch.float64)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 6:] = False
    attention.impl = "reference"
    expected = attention(x, context, attention_mask=mask)
    torch.testing.assert_close(expected[:1], attention(x[:1], context[:1, :6]), rtol=0, atol=1e-12)
    attention.impl = "sdpa"
    torch.testing.assert_close(attention(x, context, attention_mask=mask), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["swa", "global_swa", "mlr"])
def test_patterns_of_one_sequence_refuse_a_context(case: str) -> None:
    x = torch.randn(1, 5, D_MODEL, dtype=torch.float64)
    with pytest.raises(UserError, match="cannot attend to a context"):
        build(case, length=5)(x, x)


def test_only_the_multilevel_pattern_takes_blocks() -> None:
    x = torch.randn(1, 5, D_MODEL, dtype=torch.float64)
    with pytest.raises(UserError, match="takes no blocks"):
        build("swa", length=5)(x, blocks=torch.zeros(2, 1, 5, dtype=torch.long))


@pytest.mark.parametrize("d_model", [16, 48, 512])
def test_score_parameters_a_head_are_those_of_the_readme(d_model: int) -> None:
    def parameters(description: object) -> float:
        projection = build_attention(description, d_model=d_model, num_heads=4, max_length=T).projection  # type: ignore[arg-type]
        return projection.num_params() / 4

    a, b, c, _ = block_sizes(d_model)
    for kind in ("standard", "swa", "global_swa", "bilinear_mlr", "mlr"):
        assert parameters(kind) == 2 * d_model * (d_model // 4)
    for side in ("key", "query", "both"):
        assert parameters({"kind": "btt", "tt_rank": 3, "side": side}) == d_model * 3 * (b + c)
    r = d_model // 4
    assert parameters("mlbtc") == 2 * d_model * r + d_model * (b + c)
    levels = [{"rank": 3, "left_blocks": 4, "right_blocks": 4}, {"rank": 2, "left_blocks": 8, "shuffled": True}]
    assert parameters({"kind": "mlbtc", "levels": levels}) == 2 * d_model * 3 + d_model * 2 * (8 + 1)
    assert parameters({"kind": "bilinear_mlr", "ranks": [3, 5], "blocks": [2, 8]}) == 2 * d_model * (3 + 5)
    assert a == c


@pytest.mark.parametrize(
    ("description", "scaling", "factor"),
    [
        ("standard", "mup", 8 / 4),
        ("standard", 0.25, 0.25),
        ("swa", "mup", 8 / 4),
        ("swa", 1.0, 1.0),
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


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_which_level_turns_fast_is_a_choice(frequencies: str) -> None:
    rotary = RotaryEmbedding(16, groups=[8, 4, 4], frequencies=frequencies)
    turns = rotary.frequencies.tolist()
    assert sorted(turns) == sorted(RotaryEmbedding(16).frequencies.tolist())
    coarse, fine = turns[:4], turns[4:]
    if frequencies == "spread":
        assert max(coarse) == 1
        assert min(coarse) < max(fine) < 1
    else:
        assert (min(coarse) > max(fine)) == (frequencies == "fast_first")
        assert (max(coarse) < min(fine)) == (frequencies == "slow_first")
    description = {"kind": "mlr", "ranks": [4, 2, 2], "rope_frequencies": frequencies}
    attention = build_attention(description, d_model=16, num_heads=2, max_length=64, rope=True).double().eval()
    x = torch.randn(1, 8, 16, dtype=torch.float64)
    # moved by a whole coarse block, nothing changes: only differences of positions count
    here, there = (attention(x, positions=torch.arange(start, start + 8)) for start in (0, 16))
    torch.testing.assert_close(here, there, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_rotated_scores_of_any_prefix_depend_on_the_distance_alone(frequencies: str) -> None:
    """So that every level of multi-level attention sees relative positions, wherever a block begins."""
    ranks = (6, 2, 4)
    rotary = RotaryEmbedding(12, groups=ranks, frequencies=frequencies)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 12, generator=generator, dtype=torch.float64)

    def score(query: int, key: int, prefix: int) -> float:
        rotated = (rotary(x, torch.tensor([[at]]))[..., :prefix] for x, at in ((q, query), (k, key)))
        return float(torch.linalg.vecdot(*rotated))

    for prefix in (6, 8, 12):
        near = score(10, 3, prefix)
        assert score(10 + 717, 3 + 717, prefix) == pytest.approx(near, abs=1e-12)
        assert score(10, 2, prefix) != pytest.approx(near, abs=1e-3)


@pytest.mark.parametrize("kind", ["standard", "global_swa", "mlr"])
@pytest.mark.parametrize("frequencies", RotaryEmbedding.FREQUENCIES)
def test_decoding_rotates_as_the_full_pass_does(kind: str, frequencies: str) -> None:
    torch.manual_seed(0)
    description = {"kind": kind, "rope_frequencies": frequencies, **({"align": "start"} if kind == "mlr" else {})}
    sizes = {"d_model": 32, "num_heads": 2, "max_length": T, "causal": True, "rope": True}
    attention = build_attention(description, **sizes).double().eval()
    x = torch.randn(2, T, 32, dtype=torch.float64)
    cache = attention.new_cache(2)
    steps = torch.cat([attention(part, cache=cache) for part in x.split([5, *[1] * (T - 5)], 1)], 1)
    torch.testing.assert_close(steps, attention(x), rtol=0, atol=1e-12)
