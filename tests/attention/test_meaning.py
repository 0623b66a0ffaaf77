"""The scores are those of the definition: written here once more, pair by pair, from the projections' components."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NO_CROSSING, NUM_HEADS, build, each_impl
from tsattn.attention import Attention, MLRAttention, SlidingWindowAttention, StandardAttention, build_attention
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
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["kind"] != "mlr"])
def test_full_and_windowed_scores(case: str, causal: bool) -> None:
    attention = build(case, length=T, causal=causal)
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    window = CASES[case].get("window_size", T)
    width = D_MODEL if case.startswith("btt") else attention.projection.width

    def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor | None:
        seen = abs(i - j) < window and not (causal and j > i)
        return q @ k / math.sqrt(width) if seen else None

    torch.testing.assert_close(attention(x), by_definition(attention, x, score), rtol=0, atol=1e-12)


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
    wide_window = copy_into(SlidingWindowAttention, standard, window_size=50, causal=causal)
    narrow_window = copy_into(SlidingWindowAttention, standard, window_size=49, causal=causal)
    for impl in ("reference", "sdpa", "auto"):
        one_level.impl = wide_window.impl = narrow_window.impl = standard.impl = impl
        torch.testing.assert_close(one_level(x), standard(x), rtol=0, atol=1e-14)
        torch.testing.assert_close(wide_window(x), standard(x), rtol=0, atol=1e-14)
        assert not torch.allclose(narrow_window(x), standard(x), rtol=0, atol=1e-9)


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


@pytest.mark.parametrize("case", ["standard", "standard-grouped", "btt", "btt-query", "btt-both-grouped"])
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


@pytest.mark.parametrize("case", ["swa", "mlr"])
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
    for kind in ("standard", "swa", "mlr"):
        assert parameters(kind) == 2 * d_model * (d_model // 4)
    for side in ("key", "query", "both"):
        assert parameters({"kind": "btt", "tt_rank": 3, "side": side}) == d_model * 3 * (b + c)
    assert a == c
