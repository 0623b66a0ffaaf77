"""What descriptions mean, what sizes and types an attention takes, and how wrong ones are refused."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, PATTERN_CASES, build, each_impl, tokens
from tsattn.attention import (
    KINDS,
    attention_arguments,
    attention_class,
    attention_per_layer,
    build_attention,
    complete_attention,
)
from tsattn.attention.kinds import default_ranks
from tsattn.errors import UserError

SIZES = {"d_model": 32, "num_heads": 4, "max_length": 48}


def test_a_name_is_a_description_with_defaults() -> None:
    for kind in KINDS:
        assert type(build_attention(kind, **SIZES)) is attention_class(kind)
        complete = complete_attention(kind)
        assert complete["kind"] == kind
        assert type(build_attention(complete, **SIZES)) is attention_class(kind)
        set_by_model = {"d_model", "num_heads", "max_length", "rope", "causal"}
        assert set_by_model.isdisjoint(attention_arguments(attention_class(kind)))


def test_arguments_reach_the_kind() -> None:
    attention = build_attention({"kind": "mlr", "ranks": [4, 4], "num_kv_heads": 2, "dropout": 0.25}, **SIZES)
    assert attention.pattern.ranks == (4, 4)
    assert (attention.num_kv_heads, attention.dropout, attention.max_length) == (2, 0.25, 48)


def test_default_ranks_fill_any_head() -> None:
    assert default_ranks(64) == [32, 16, 8, 8]
    assert default_ranks(8) == [4, 2, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_fit_any_head_and_rotations_any_even_one_above_two(kind: str) -> None:
    for head_dim in (*range(1, 13), 24, 31, 32):
        rope = head_dim % 2 == 0 and head_dim > 2
        attention = build_attention({"kind": kind, "head_dim": head_dim}, rope=rope, **SIZES)
        assert attention(torch.randn(1, 3, 32)).shape == (1, 3, 32)


def test_default_ranks_of_feature_pieces_are_equal() -> None:
    def levels(**sizes: object) -> list[tuple[int, int]]:
        attention = build_attention({"kind": "bilinear_mlr", **sizes}, **SIZES)
        return [(shape.rank, shape.left_blocks) for shape in attention.projection.shapes]

    assert levels(head_dim=64) == [(16, 1), (16, 2), (16, 4), (16, 8)]
    assert levels() == [(2, 1), (2, 2), (2, 4), (2, 8)]
    assert levels(head_dim=6) == [(2, 1), (2, 2), (2, 4)]
    assert levels(head_dim=7) == [(7, 1)]
    assert levels(blocks=[1, 16]) == [(4, 1), (4, 16)]


# a kind, its arguments and sizes, and a telling part of what is said
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ("fast", {}, "unknown attention 'fast'; valid: standard, swa"),
    ("tsattn.attention.NoSuchAttention", {}, "tsattn.attention has no class NoSuchAttention"),
    ("torch.nn.Linear", {}, "it must derive from Attention$"),
    (None, {"ranks": [4, 4]}, "or {kind: NAME, argument: value}"),
    ("swa", {"ranks": [4, 4]}, "attention swa has no argument 'ranks'; valid: window_size"),
    ("mlr", {"ranks": [4, 3]}, r"ranks \[4, 3\] sum to 7, but must sum to the head size 8"),
    ("mlr", {"ranks": [4, -4, 8]}, "ranks must be a list of positive whole numbers"),
    ("mlr", {"ranks": 8}, "ranks must be a list of whole numbers or null, not 8"),
    ("mlr", {"ranks": [4, 4], "blocks": [1, 2, 4]}, "one entry for each of the 2 ranks"),
    ("mlr", {"ranks": [4, 4], "blocks": [2, 3]}, "must nest: 2 does not divide 3"),
    ("mlr", {"ranks": [4, 4], "blocks": {"lengths": [12, 5]}}, "must nest: 5 does not divide 12"),
    ("mlr", {"ranks": [5, 3], "rope": True}, "need even ranks, not"),
    ("mlr", {"max_length": None}, "needs max_length"),
    ("mlr", {"align": "left"}, "align must be start or end"),
    ("mlr", {"scaling": "rank"}, "scaling must be one of head, level, mup, not 'rank'"),
    ("standard", {"scaling": "level"}, "scaling must be head, mup or a number above 0, not 'level'"),
    ("global_swa", {"scaling": "level"}, "scaling must be one of head, mup, not 'level'"),
    ("bilinear_mlr", {"scaling": 0}, "mup_language, head or a number above 0, not 0"),
    ("mlbtc", {"scaling": float("inf")}, "scaling must be head, mup or a number above 0, not inf"),
    ("standard", {"rope_frequencies": "slow"}, "must be one of spread, fast_first, slow_first, not 'slow'"),
    ("mlr", {"divide_by": "two"}, "divide_by must be one of none, levels, active, both, not 'two'"),
    ("mlr", {"divide_by": "active", "impl": "sdpa"}, "impl 'sdpa' is unknown here; valid: auto, reference, tiles"),
    ("swa", {"window_size": 0}, "window_size must be at least 1"),
    ("swa", {"window_size": 2.5}, "window_size must be a whole number, not 2.5"),
    ("swa", {"dropout": True}, "dropout must be a number, not True"),
    ("standard", {"dropout": 1.5}, r"dropout must lie in \[0, 1\)"),
    ("standard", {"head_dim": 0}, "head_dim must be at least 1"),
    ("standard", {"num_kv_heads": 3}, "num_kv_heads 3 must divide num_heads 4"),
    ("standard", {"max_length": True}, "max_length must be a whole number, not True"),
    ("standard", {"d_model": 8}, "has no argument 'd_model'"),
    ("standard", {"qk_norm": "level"}, "qk_norm: level works with bilinear_mlr and mlbtc only"),
    ("bilinear_mlr", {"qk_norm": "each"}, "qk_norm must be true, false or level, not 'each'"),
    ("identity", {"qk_norm": True}, "this attention has no queries and keys to normalise: leave qk_norm out"),
    ("btt", {"num_kv_heads": 2}, "num_kv_heads must be 4, not 2, or side must be both"),
    ("btt", {"side": "left"}, "side of btt attention must be one of key, query, both"),
    ("btt", {"divisor": "least"}, "must be one of below, above, not 'least'"),
    ("btt", {"tt_rank": 0}, "tt_rank must be at least 1"),
    ("global_swa", {"global_rank": 9}, "global_rank must be from 1 to 8, the components of a head, not 9"),
    ("global_swa", {"combine": "max"}, "combine must be one of mean, sum, not 'max'"),
    ("bilinear_mlr", {"ranks": []}, "ranks must be a list of positive whole numbers"),
    ("bilinear_mlr", {"blocks": [1, 0]}, "blocks must be a list of positive whole numbers"),
    ("bilinear_mlr", {"ranks": [4, 4], "blocks": [1]}, r"blocks \[1\] must have one entry for each"),
    ("bilinear_mlr", {"blocks": [1, 2, 4]}, "give ranks: the head size 8 is not divisible by 3 levels"),
    ("bilinear_mlr", {"ranks": [4, 4], "blocks": [1, 3]}, "must each divide d_model 32, and 3 does not"),
    ("mlbtc", {"levels": []}, r"must be a list of at least one level, not \[\]"),
    ("mlbtc", {"levels": [{"left_blocks": 2}]}, "must be a mapping like {rank: 4}"),
    ("mlbtc", {"levels": [{"rank": 4, "blocks": 2}]}, "has no entry 'blocks'; valid: rank, left_blocks"),
    ("mlbtc", {"levels": [{"rank": 0}]}, "rank of a level .* must be a positive whole number"),
    ("mlbtc", {"levels": [{"rank": 4, "shuffled": 1}]}, "shuffled .* must be true or false, not 1"),
    ("mlbtc", {"levels": [{"rank": 4, "left_blocks": 3}]}, "left_blocks .* must divide d_model 32, and 3"),
    ("mlbtc", {"levels": [{"rank": 4, "left_blocks": 2}]}, "as many left as right blocks, not 2 and 1"),
    ("fixed_mixing", {"align": "left"}, "align must be start or end, not 'left'"),
]


def test_wrong_descriptions_are_refused_in_one_sentence() -> None:
    for kind, arguments, message in WRONG:
        sizes = {**SIZES, **{name: arguments[name] for name in ("max_length", "rope") if name in arguments}}
        description = {name: value for name, value in arguments.items() if name not in ("max_length", "rope")}
        with pytest.raises(UserError, match=message) as caught:
            build_attention(description if kind is None else {"kind": kind, **description}, **sizes)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="num_heads 3 must divide d_model 32"):
        build_attention("standard", d_model=32, num_heads=3)
    with pytest.raises(UserError, match="lists 3 kinds for 2 layers"):
        attention_per_layer(["swa", "swa", "mlr"], 2)


T = 12
OF_ONE_SEQUENCE = ("swa", "global_swa", "mlr", "identity", "fixed_mixing")


@pytest.mark.parametrize("align", ["start", "end"])
def test_blocks_are_those_of_the_length_that_holds_now(align: str) -> None:
    """A pattern that two modules share, or whose module is given another length, keeps nothing of the other."""
    description = {"kind": "mlr", "ranks": [2, 2], "blocks": [1, 4], "align": align}
    sizes: dict[str, Any] = {"d_model": D_MODEL, "num_heads": NUM_HEADS}
    long, short = (build_attention(description, **sizes, max_length=length).double() for length in (96, 40))
    x = tokens(40, batch_size=1)
    expected = [attention.eval()(x) for attention in (long, short)]
    shared = long.pattern
    short.pattern = shared
    for impl in ("auto", "tiles", "reference"):
        long.impl = short.impl = impl
        for attention, one in zip((long, short), expected, strict=True):
            torch.testing.assert_close(attention(x), one, rtol=0, atol=1e-12)
    long.max_length = 40
    fresh = copy.deepcopy(long)
    torch.testing.assert_close(long(x), fresh(x), rtol=0, atol=0)
    long.impl = "reference"
    torch.testing.assert_close(long(x), fresh(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", PATTERN_CASES[::2])
def test_nothing_in_is_nothing_out(case: str) -> None:
    attention = build(case, length=T)
    for _, (rows, length) in itertools.product(each_impl(attention), [(0, T), (2, 0), (0, 0)]):
        x = tokens(length, batch_size=rows).requires_grad_()
        for more in ({}, {"attention_mask": torch.ones(rows, length, dtype=torch.bool)}):
            out = attention(x, **more)
            assert out.shape == x.shape
            out.sum().backward()


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep", "mlr-lengths"])
def test_whole_numbers_of_any_width_are_positions_and_blocks(case: str) -> None:
    """Products of narrow ones would overflow."""
    attention = build(case, length=9000, causal=True, rope=True)
    x, positions = tokens(300, batch_size=1), torch.arange(7300, 7600)
    expected = attention(x, positions=positions)
    for dtype in (torch.int16, torch.int32):
        torch.testing.assert_close(attention(x, positions=positions.to(dtype)), expected, rtol=0, atol=1e-12)
    if attention.pattern.takes_blocks:
        levels = len(CASES[case]["ranks"])
        blocks = torch.stack([torch.arange(300) // 100 * (level > 0) for level in range(levels)])[:, None]
        torch.testing.assert_close(attention(x, blocks=blocks.to(torch.uint8)), attention(x, blocks=blocks))


@pytest.mark.parametrize("case", ["standard-grouped", "swa", "mlr-deep", "mlr-active"])
def test_a_bias_may_be_narrower_or_wider_than_the_tokens(case: str) -> None:
    is_wider = case == "mlr-deep"
    x_type = torch.bfloat16 if case in ("swa", "mlr-active") else torch.float32
    bias_type = torch.float64 if is_wider else torch.float16
    attention = build(case, length=T, dtype=x_type)
    bias = torch.randn(NUM_HEADS, T, T).to(bias_type)
    bias[:, 2, 5] = -torch.inf
    expected = build(case, length=T)(tokens(T), bias=bias.double())
    for _ in each_impl(attention, without=("tiles", "blocks")):
        out = attention(tokens(T).to(x_type), bias=bias)
        assert out.dtype == x_type
        tolerance = 0.1 if x_type == torch.bfloat16 else 1e-4
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case]["kind"] not in OF_ONE_SEQUENCE and "-" in case])
def test_cross_attention(case: str) -> None:
    attention = build(case, length=20)
    x, context = torch.randn(2, 5, D_MODEL, dtype=torch.float64), torch.randn(2, 9, D_MODEL, dtype=torch.float64)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, 6:] = False
    attention.impl = "reference"
    expected = attention(x, context, attention_mask=mask)
    torch.testing.assert_close(expected[:1], attention(x[:1], context[:1, :6]), rtol=0, atol=1e-12)
    context = context.masked_fill(~mask[..., None], torch.nan)  # padding holds no number
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x, context, attention_mask=mask), expected, rtol=0, atol=1e-12)
    attention.impl = "auto"
    torch.testing.assert_close(attention(x, context[:, :0]), attention.output.bias.expand_as(x), rtol=0, atol=0)


def row(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"bias": row(torch.bool, T, T)}, r"bias must hold floating-point numbers.*, not torch.bool; -inf"),
    ({"bias": row(torch.float32, 3, 1, T, T)}, r"bias must be broadcastable to \(1, 4, 12, 12\), not of shape \(3, 1"),
    ({"positions": row(torch.long, 3, T)}, r"positions must be whole numbers of shape \(12,\) or \(1, 12\)"),
    ({"positions": row(torch.double, T)}, "positions must be whole numbers .*, not torch.float64"),
    ({"global_tokens": row(torch.bool, 3, T)}, r"global_tokens must be bool of shape .*, not .*\(3, 12"),
    ({"blocks": row(torch.long, 2, 3, T)}, r"blocks must be whole numbers of shape \(levels, 1, 12\)"),
    ({"blocks": row(torch.float32, 2, 1, T)}, "blocks must be whole numbers .*, not torch.float32"),
    ({"attention_mask": row(torch.bool, 3, T)}, "attention_mask must be bool of shape"),
    ({"x": tokens(T)[0]}, r"x must be of shape \(batch, tokens, 16\), not \(12, 16\)"),
    ({"x": tokens(T)[..., :7]}, r"x must be of shape \(batch, tokens, 16\), not \(2, 12, 7\)"),
    ({"x": tokens(T).float()}, "x must be torch.float64 as this attention's weights are, not torch.float32"),
    ({"x": tokens(T).long()}, "x must hold floating-point numbers, not torch.int64"),
]


def test_what_is_of_another_shape_or_type_is_refused() -> None:
    for more, message in UNFIT:
        for case in ("mlr", *(() if "blocks" in more else ("standard", "swa", "global_swa"))):
            attention = build(case, length=T, rope=True)
            for _ in each_impl(attention):
                with pytest.raises(UserError, match=message):
                    attention(**{"x": tokens(T, batch_size=1), **more})
    for case, context, message in (
        ("standard", tokens(T).float(), "context must be torch.float64"),
        ("standard", tokens(T, batch_size=3), "context must have 2 rows, as x has, not 3"),
        *((case, tokens(T), "cannot attend to a context") for case in OF_ONE_SEQUENCE),
    ):
        with pytest.raises(UserError, match=message):
            build(case, length=T)(tokens(T), context=context)
    with pytest.raises(UserError, match="takes no blocks"):
        build("swa", length=T)(tokens(T), blocks=row(torch.long, 2, 1, T))
    attention = build("mlr", length=T, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # which may convert
        assert attention(tokens(T).to(torch.bfloat16)).dtype == torch.bfloat16
