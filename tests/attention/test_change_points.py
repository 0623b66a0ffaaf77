"""Blocks that the data make: by change points of the values, or by the calendar."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tsattn.attention import build_attention
from tsattn.attention.cost import attention_cost
from tsattn.attention.patterns import MultiLevelPattern, TokenOrigin
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import Encoder, Patches
from tsattn.ops import CALENDAR_UNITS, calendar_block_ids, change_point_block_ids, multilevel_attention
from tsattn.ops.tiling import find_layouts
from tsattn.task import Task

POINTS = {"kind": "mlr", "ranks": [4, 4], "blocks": {"change_points": [1, 4]}}
TASK = Task("toy", 48, 8, ("a", "b"), "h", 24)


def distances(values: list[list[Fraction]], counts: list[list[int]], channel: int, first: int, end: int) -> Fraction:
    """The sum of squared distances of one channel of a block to its mean, over all steps."""
    steps = [values[t][channel] for t in range(first, end) for _ in range(counts[t][channel])]
    mean = sum(steps, Fraction(0)) / max(1, len(steps))
    return sum(((step - mean) ** 2 for step in steps), Fraction(0))


def cut_by_trying(values: Any, counts: Any, numbers: list[int]) -> list[list[int]]:
    """The ids of one row at each level, in exact fractions."""
    S, C = np.shape(values)
    values = [[Fraction(float(one)) for one in token] for token in values]
    whole = [distances(values, counts, channel, 0, S) for channel in range(C)]

    def error(edges: list[int]) -> Fraction:
        """Of blocks between these edges, each channel's as a share of that of one block."""
        return sum(
            (
                distances(values, counts, channel, first, end) / whole[channel]
                for channel in range(C)
                if whole[channel]
                for first, end in itertools.pairwise(edges)
            ),
            Fraction(0),
        )

    edges, levels = [0, S], []
    for number in numbers:
        while len(edges) - 1 < number:
            places = [t for t in range(1, S) if t not in edges and any(counts[t])]
            gains = [np.float32(float(error(edges) - error(sorted([*edges, t])))) for t in places]
            if not gains or max(gains) <= 0:
                break
            edges = sorted([*edges, places[int(np.argmax(gains))]])
        levels.append([sum(edge <= t for edge in edges[1:-1]) for t in range(S)])
    return levels


@pytest.mark.parametrize(("length", "channels"), [(1, 3), (7, 3), (19, 2)])
def test_each_cut_is_the_best_of_all(length: int, channels: int) -> None:
    generator = np.random.default_rng(length + channels)
    values = generator.normal(size=(3, length, channels)).astype(np.float32) * [0.1, 1, 300][:channels] + 5
    values[1, length // 2 :] += 4
    counts = generator.integers(0, 3, size=values.shape)
    numbers = [1, 2, 4, 4, 7]
    found = change_point_block_ids(torch.from_numpy(values), numbers, torch.from_numpy(counts))
    plain = change_point_block_ids(torch.from_numpy(values), numbers)
    assert found.shape == (5, 3, length)
    for row in range(3):
        assert found[:, row].tolist() == cut_by_trying(values[row], counts[row].tolist(), numbers), row
        assert plain[:, row].tolist() == cut_by_trying(values[row], np.ones_like(counts[row]).tolist(), numbers), row
    assert find_layouts(found, torch.arange(length)[None]) != "the blocks are not nested"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=12))
def test_of_equal_cuts_the_earliest_is_made(tokens: list[tuple[int, int]]) -> None:
    # a range of 4, so that the values are exact parts of it
    values = [[one] for one, _ in tokens] + [[0], [4]]
    counts = [[count] for _, count in tokens] + [[1], [1]]
    found = change_point_block_ids(torch.tensor([values]).float(), [1, 3, 5], torch.tensor([counts]))
    assert found[:, 0].tolist() == cut_by_trying(values, counts, [1, 3, 5])


def test_what_is_missing_counts_for_nothing() -> None:
    torch.manual_seed(0)
    values = torch.randn(4, 40, 2)
    seen = torch.rand(4, 40, 2) > 0.3
    seen[:, :6] = False
    seen[3] = False
    found = change_point_block_ids(values, [2, 6], seen.long())
    other = torch.where(seen, values, torch.tensor([1e6, torch.nan]))
    assert torch.equal(change_point_block_ids(other, [2, 6], seen.long()), found)
    assert torch.equal(change_point_block_ids(torch.where(seen, values, torch.inf), [2, 6]), found)
    assert not found[:, :, :6].any(), "tokens in front of the first observed one lie in its block"
    assert not found[:, 3].any()
    begins = found[1].diff(dim=-1) > 0
    assert not (begins & ~seen[:, 1:].any(-1)).any(), "no block begins with a missing token"
    for row in range(4):  # alone, and in other company
        alone = change_point_block_ids(values[row : row + 1], [2, 6], seen[row : row + 1].long())
        assert torch.equal(alone[:, 0], found[:, row])


@pytest.mark.parametrize("padding", [0, 2])
def test_means_of_patches_are_those_of_their_observed_steps(padding: int) -> None:
    patches = Patches(20 - padding, 4, 4)
    series, observed = torch.randn(3, 20 - padding), torch.rand(3, 20 - padding) > 0.4
    values, counts = patches.means(series, observed)
    for row in range(3):
        for token in range(5):
            steps = range(max(0, 4 * token - padding), 4 * token + 4 - padding)
            known = [series[row, step] for step in steps if observed[row, step]]
            assert counts[row, token] == len(known)
            torch.testing.assert_close(values[row, token], sum(known, torch.tensor(0.0)) / max(1, len(known)))
    assert patches.means(series)[1][:, 0].tolist() == [4 - padding] * 3


@pytest.mark.parametrize(
    ("backbone", "channels"),
    [
        ({"kind": "transformer"}, 2),
        ({"kind": "transformer", "channels": "independent"}, 1),
        ({"kind": "patchtst", "patch_len": 6, "stride": 3}, 1),
    ],
    ids=str,
)
def test_a_backbone_finds_them_in_the_context_of_each_row(backbone: dict[str, Any], channels: int) -> None:
    torch.manual_seed(0)
    model = build_backbone({**backbone, "d_model": 16, "num_heads": 2, "attention": [POINTS, "standard"]}, TASK).eval()
    seen: list[Tensor] = []
    attention = model.encoder.blocks[0].attention
    attention.register_forward_pre_hook(lambda module, args, given: seen.append(given["blocks"]), with_kwargs=True)
    past = torch.randn(5, 48, 2).cumsum(1)
    observed = torch.rand(5, 48, 2) > 0.2
    model(Batch(past, past_observed=observed))
    rows = 5 if channels == 2 else 10
    assert seen[0].shape[:2] == (2, rows)
    if backbone.get("patch_len", 1) == 1:
        series = past if channels == 2 else past.transpose(1, 2).reshape(10, 48, 1)
        known = observed if channels == 2 else observed.transpose(1, 2).reshape(10, 48, 1)
        assert torch.equal(seen[0], change_point_block_ids(series, [1, 4], known.long()))
    assert (seen[0][1].amax(-1) == 3).all()
    # no gradient of the blocks, and one through the rest
    past.requires_grad_()
    assert torch.autograd.grad(model(Batch(past)).square().sum(), past)[0].isfinite().all()


def test_layers_of_the_same_blocks_find_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    coarse = {"kind": "mlr", "ranks": [4, 4], "blocks": {"change_points": [1, 2]}}
    given = (POINTS, coarse, {**POINTS, "ranks": [6, 2]}, coarse, POINTS)
    encoder = Encoder([build_attention(one, d_model=16, num_heads=2, max_length=24) for one in given], 32, 0.0)
    x, origin = torch.randn(2, 24, 16), TokenOrigin(None, torch.randn(2, 24, 1))
    with monkeypatch.context() as patch:  # each layer is asked
        for attention in encoder.attentions:
            patch.setattr(attention.pattern, "block_choice", None)
        expected = encoder(x, origin)
    sought: list[Any] = []
    found = MultiLevelPattern.blocks_of
    monkeypatch.setattr(
        MultiLevelPattern, "blocks_of", lambda one, at: sought.append(one.change_points) or found(one, at)
    )
    torch.testing.assert_close(encoder(x, origin), expected, rtol=0, atol=0)
    assert sought == [(1, 4), (1, 2)]


@pytest.mark.gpu
def test_cuda_finds_the_same() -> None:
    values, counts = torch.randn(8, 500, 3).cumsum(1), torch.randint(0, 3, (8, 500, 3))
    values[4:] = values[4:].round()
    found = change_point_block_ids(values.cuda(), [1, 4, 32], counts.cuda())
    assert torch.equal(found.cpu(), change_point_block_ids(values, [1, 4, 32], counts))


PERIODS = {"year": "Y", "quarter": "Q", "month": "M", "week": "W-SUN", "day": "D", "hour": "h"}


def stamps(start: str, length: int, frequency: str) -> Tensor:
    index = pd.date_range(start, periods=length, freq=frequency)
    return torch.from_numpy(index.as_unit("s").asi8.copy())


@given(st.lists(st.datetimes(pd.Timestamp("1700-01-01"), pd.Timestamp("2250-01-01")), min_size=2, max_size=30))
def test_units_are_the_periods_of_pandas(times: list[Any]) -> None:
    index = pd.DatetimeIndex(sorted(times)).as_unit("s")
    time = torch.from_numpy(index.asi8.copy())[None]
    for unit, frequency in PERIODS.items():
        ids = calendar_block_ids(time, [unit])[0, 0].numpy()
        assert ids[0] == 0
        periods = index.to_period(frequency)
        np.testing.assert_array_equal(np.diff(ids), np.diff(periods.asi8), err_msg=unit)
    assert set(CALENDAR_UNITS) == {"all", *PERIODS}
    assert not calendar_block_ids(time, ["all"]).any()


@pytest.mark.parametrize(("units", "causal"), [(["month", "week"], True), (["all", "week", "day"], False)])
def test_pairs_are_scored_with_the_set_of_levels_that_they_share(units: list[str], causal: bool) -> None:
    time = torch.stack([stamps(start, 75, "12h") for start in ("2016-07-20", "2020-02-11 12:00")])
    ids = calendar_block_ids(time, units)
    ranks = [2] * len(units)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 75, 2 * len(units), dtype=torch.float64, requires_grad=True) for _ in range(3))
    logits = torch.zeros(2, 2, 75, 75, dtype=torch.float64)
    for level, unit in enumerate(units):
        part = slice(2 * level, 2 * level + 2)
        for row in range(2):
            index = pd.to_datetime(time[row].numpy(), unit="s")
            periods = np.zeros(75) if unit == "all" else index.to_period(PERIODS[unit]).asi8
            same = torch.from_numpy(periods[:, None] == periods[None])
            logits[row] = logits[row] + torch.where(same, q[row, ..., part] @ k[row, ..., part].mT, 0.0)
    logits = logits * ranks[0] ** -0.5 / len(units) ** 0.5
    if causal:
        logits = logits.masked_fill(torch.ones(75, 75, dtype=torch.bool).triu(1), -torch.inf)
    expected = logits.softmax(-1) @ v
    gradients = torch.autograd.grad(expected.square().sum(), (q, k, v))
    nested = "week" not in units or "month" not in units
    for impl in ("reference", "sdpa", "auto", *(("tiles",) if nested else ())):
        out = multilevel_attention(q, k, v, ranks=ranks, blocks=ids, causal=causal, impl=impl)
        torch.testing.assert_close(out, expected)
        found = torch.autograd.grad(out.square().sum(), (q, k, v))
        for one, other in zip(found, gradients, strict=True):
            torch.testing.assert_close(one, other)
    if not nested:
        assert find_layouts(ids, torch.arange(75)[None]) == "the blocks are not nested"
        with pytest.raises(UserError, match=r"impl tiles cannot compute .*: the blocks are not nested"):
            multilevel_attention(q, k, v, ranks=ranks, blocks=ids, causal=causal, impl="tiles")


@pytest.mark.parametrize("kind", ["transformer", "patchtst"])
def test_a_backbone_hands_the_time_stamps_of_each_row_to_its_attention(kind: str) -> None:
    torch.manual_seed(0)
    attention = {"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["all", "day"]}}
    more = {"channels": "independent"} if kind == "transformer" else {"patch_len": 4}
    backbone = build_backbone({"kind": kind, "d_model": 16, "num_heads": 2, "attention": attention, **more}, TASK)
    backbone.eval()
    past = torch.randn(1, 48, 2).expand(2, -1, -1)
    time = torch.stack([stamps(start, 56, "h") for start in ("2020-01-01 00:00", "2020-01-01 09:00")])
    early, late = backbone(Batch(past, time=time))
    assert not torch.allclose(early, late)
    torch.testing.assert_close(backbone(Batch(past[:1], time=time[1:]))[0], late)
    days_later = backbone(Batch(past, time=time + 3 * 86_400))
    torch.testing.assert_close(days_later[0], early)
    with pytest.raises(UserError, match="attention with blocks by all, day needs data with time stamps"):
        backbone(Batch(past))


REFUSED: list[tuple[str, Any, str]] = [
    *(("change_points", wrong, "positive whole numbers, coarse to fine") for wrong in ("4", ["day", 7], 3, [0, 4])),
    ("change_points", [4, 2], "none below the one before"),
    ("change_points", [4], "must have one entry for each of the 2 ranks"),
    ("changes", [1, 4], "{change_points: "),
    ("calendar", ["month", "fortnight"], "unknown calendar unit 'fortnight'"),
    *(("calendar", wrong, "calendar blocks must be a list of all") for wrong in ("day", ["day", 7], 3)),
    ("calendar", ["day"], "must have one entry for each of the 2 ranks"),
]


def test_what_the_data_cannot_say_is_refused() -> None:
    sizes: dict[str, Any] = {"d_model": 16, "num_heads": 4}

    def build(blocks: Any, **more: Any) -> Any:
        return build_attention({"kind": "mlr", "ranks": [2, 2], "blocks": blocks}, **sizes, **more)

    for name, blocks, message in REFUSED:
        with pytest.raises(UserError, match=message):
            build({name: blocks})
    points, calendar = {"change_points": [1, 3]}, {"calendar": ["month", "day"]}
    assert not any(MultiLevelPattern([2, 2], **blocks).sees_all(5) for blocks in (points, calendar))
    x = torch.randn(1, 5, 16)
    encoder = Encoder([build_attention(POINTS, d_model=16, num_heads=2)], 32, 0.0)
    itransformer = {"kind": "itransformer", "d_model": 16, "num_heads": 2, "attention": POINTS}
    groups = ["all", {"first": ["a"], "second": ["b"]}]
    for call, message in (
        (lambda: build(points)(x), "come from the values of the series, which are not"),
        (lambda: encoder(x, TokenOrigin(torch.arange(5)[None])), "needs the values of its tokens"),
        (lambda: build(points, causal=True), "use the whole context"),
        (lambda: MultiLevelPattern([2, 2], change_points=[1, 3]).new_cache(1, None), "a cache has no later change"),
        (lambda: attention_cost(POINTS, d_model=16, num_heads=2, tokens=48), "depends on the values of the data"),
        (lambda: build_backbone(itransformer, TASK), "attention mlr needs an order of tokens, and the channels"),
        (lambda: build_backbone({**itransformer, "groups": groups}, TASK), "takes its blocks from groups here"),
        (lambda: build(calendar)(x), "come from the tokens' time stamps"),
        (lambda: build(calendar, causal=True).new_cache(1), "a cache has no time stamps"),
    ):
        with pytest.raises(UserError, match=message):
            call()
