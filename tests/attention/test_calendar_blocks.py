"""Blocks by the calendar: the same as pandas finds, row by row, nested or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tsattn.attention import build_attention
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.ops import CALENDAR_UNITS, calendar_block_ids, multilevel_attention
from tsattn.ops.tiling import find_layouts
from tsattn.task import Task

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


@pytest.mark.parametrize(
    ("units", "causal"), [(["month", "week"], True), (["all", "week", "day"], False), (["year", "month", "day"], True)]
)
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
    task = Task("toy", 48, 8, ("a", "b"), "h", 24)
    torch.manual_seed(0)
    attention = {"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["all", "day"]}}
    more = {"channels": "independent"} if kind == "transformer" else {"patch_len": 4}
    backbone = build_backbone({"kind": kind, "d_model": 16, "num_heads": 2, "attention": attention, **more}, task)
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


def test_what_the_calendar_cannot_do_is_refused() -> None:
    def build(levels: object, **more: Any) -> Any:
        description = {"kind": "mlr", "ranks": [2, 2], "blocks": {"calendar": levels}}
        return build_attention(description, d_model=16, num_heads=4, **more)  # type: ignore[arg-type]

    with pytest.raises(
        UserError, match="unknown calendar unit 'fortnight'; valid: all, year, quarter, month, week, day"
    ):
        build(["month", "fortnight"])
    for wrong in ("day", [1, 2], ["day", 7], 3):
        with pytest.raises(UserError, match="calendar blocks must be a list of all, year, quarter"):
            build(wrong)
    with pytest.raises(UserError, match="must have one entry for each of the 2 ranks"):
        build(["day"])
    with pytest.raises(UserError, match="blocks by month, day come from the tokens' time stamps"):
        build(["month", "day"])(torch.randn(1, 5, 16))
    with pytest.raises(UserError, match="cannot decode step by step: a cache knows no time stamps"):
        build(["month", "day"], causal=True).new_cache(1)
