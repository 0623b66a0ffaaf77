"""Scores by series, step, origin and channel against the definitions on those windows alone; their sums."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.evaluation import oracle
from tests.evaluation.oracle import Cases, drawn
from tests.evaluation.test_error_table import measured
from tsattn.data import Panel
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable, measure, scores_by
from tsattn.evaluation.reductions import group_scores, scores_of

LEVELS = (0.1, 0.5, 0.9)
QUARTERS = (0.25, 0.5, 0.75)
KEYS = ("series", "step", "origin", "channel")


def whole_numbers() -> Cases:
    """Cases whose sums are exact in whatever order they are added: all that is multiplied is a power of two."""
    cases, rng = drawn(5, windows=9, T=5, C=2, S=3, levels=QUARTERS, share=0.8), np.random.default_rng(5)
    shape = cases.target.shape
    return replace(
        cases,
        forecast=np.sort(8.0 * rng.integers(-1, 2, (*shape, 3))),
        target=8.0 * rng.integers(-1, 2, shape),
        mean=np.zeros_like(cases.mean),
        scale=2.0 ** rng.integers(-2, 3, cases.scale.shape),
        seasonal=2.0 ** rng.integers(-2, 3, cases.seasonal.shape),
    )


def groups(cases: Cases, key: str) -> Iterator[tuple[Any, Cases]]:
    """The windows of each group as cases of their own."""
    if key == "series":
        for number in np.unique(cases.series):
            yield cases.ids[number], cases.take(np.flatnonzero(cases.series == number))
    elif key == "origin":
        for window in range(len(cases.series)):
            yield pd.Timestamp(cases.origin(window), unit="s"), cases.take(np.array([window]))
    elif key == "step":
        for step in range(cases.target.shape[1]):
            part = np.s_[:, step : step + 1]
            yield (
                step + 1,
                replace(cases, forecast=cases.forecast[part], target=cases.target[part], observed=cases.observed[part]),
            )
    else:
        for number, channel in enumerate(cases.channels):
            part = np.s_[:, :, number : number + 1]
            own = {name: getattr(cases, name)[part] for name in ("forecast", "target", "observed")}
            units = {name: getattr(cases, name)[:, number : number + 1] for name in ("mean", "scale", "seasonal")}
            yield channel, replace(cases, **own, **units)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("levels", [(), LEVELS])
def test_the_scores_of_a_group_are_those_of_its_windows_alone(
    key: str, levels: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tsattn.evaluation.measure"], "_AT_ONCE", 1)  # a step at a time
    cases = drawn(3, windows=8, T=4, C=2, S=3, levels=levels, share=0.9)
    found = measured(cases, 3, 1, seasonal_errors=cases.seasonal, by_step=True).scores_by(key)
    alone = {label: oracle.scores(part) for label, part in groups(cases, key)}
    assert {*found.index} == {*alone}
    assert key == "series" or found.index.tolist() == [*alone]
    for label, scores in alone.items():
        assert {*found} == {*scores}
        for name, value in scores.items():
            assert found.loc[label, name] == pytest.approx(value, rel=1e-12, nan_ok=True), (label, name)


@pytest.mark.parametrize("key", KEYS)
def test_the_sums_of_all_groups_are_exactly_those_of_the_whole(key: str) -> None:
    cases = whole_numbers()
    table = measured(cases, 4, seasonal_errors=cases.seasonal, by_step=True)
    names, totals = table.totals_by(key)
    added = totals.transpose(0, 1).squeeze(0) if key == "channel" else totals.sum(0)
    if key == "step":
        added[:, 0] = added[:, 0] / len(names)  # each window counts at every step
    assert scores_of(added, QUARTERS) == table.scores()


@pytest.mark.parametrize("key", ["series", "step", "origin"])
def test_the_order_of_the_windows_and_where_the_rows_lie_decide_nothing(key: str, tmp_path: Path) -> None:
    cases = whole_numbers()
    order = np.random.default_rng(0).permutation(len(cases.series))
    one = measured(cases, seasonal_errors=cases.seasonal, by_step=True).totals_by(key)
    shuffled = cases.take(order)
    # each window keeps the origin that it had
    pairs = shuffled.batches(2, 3)
    for (batch, _), part in zip(pairs, np.split(order, [2, 5]), strict=True):
        batch.time += torch.tensor(3600 * part - batch.time[:, 0].numpy())[:, None]
    forecasts = {id(batch): forecast for batch, forecast in pairs}
    options: dict[str, Any] = {"ids": cases.ids, "channels": cases.channels, "levels": QUARTERS, "units": cases.units}
    table = measure(
        lambda batch: forecasts[id(batch)],
        [batch for batch, _ in pairs],
        **options,
        seasonal_errors=cases.seasonal,
        by_step=True,
        path=tmp_path / "errors.parquet",
        limit=100,
    )
    names, totals = table.totals_by(key)
    places = [names.tolist().index(name) for name in one[0]]
    assert len(names) == len(one[0])
    assert torch.equal(totals[places], one[1])
    if key != "step":
        read = ErrorTable.read(tmp_path / "errors.parquet").totals_by(key)
        assert read[0].equals(names)
        assert torch.equal(read[1], totals)


def test_many_groups_are_scored_at_once_as_one_by_one() -> None:
    totals = torch.rand(50, 3, 31, dtype=torch.double, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    together = group_scores(totals, LEVELS)
    for number in range(50):
        one = scores_of(totals[number], LEVELS)
        assert list(one) == list(together)
        for name, value in one.items():
            assert together[name][number] == value or math.isnan(value)


def test_what_was_not_kept_is_refused() -> None:
    cases = drawn(3, levels=LEVELS)
    with pytest.raises(UserError, match="measure with by_step"):
        measured(cases).scores_by("step")
    with pytest.raises(UserError, match="rows of this table were not kept"):
        measured(cases, limit=1).scores_by("series")
    with pytest.raises(UserError, match="one of series, origin, channel, step, not horizon"):
        measured(cases).totals_by("horizon")
    panel: Any = None
    with pytest.raises(UserError, match="one of series, step, origin, not week"):
        scores_by({}, "week", panel)


def test_ids_of_any_kind_are_groups() -> None:
    cases = drawn(2, windows=6, S=3)
    for ids in ((3, 1, 2), ((1, 2), (1, 3), (2, 2)), ("a", "b", "c")):
        found = measured(cases, ids=ids).scores_by("series")
        assert {*found.index} == {ids[number] for number in cases.series}


def test_origins_are_in_the_time_zone_of_the_panel() -> None:
    cases = drawn(2, windows=4, S=1)
    stamps = pd.date_range("1970-01-01", periods=9, freq="h", tz="Asia/Tokyo")
    panel: Any = type("Toy", (), {"is_wide": False, "time": stamps, "id_name": "shop"})()
    assert isinstance(panel, object)
    found = scores_by({"mine": measured(cases)}, "origin", panel)
    assert found.index.names == ["forecaster", "origin"]
    assert found.loc["mine"].index[0] == pd.Timestamp("1970-01-01 03:00", tz="Asia/Tokyo")
    assert scores_by({"mine": measured(cases)}, "series", panel).index.names == ["forecaster", "shop"]
    assert Panel.id_name == "unique_id"
