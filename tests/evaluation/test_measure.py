"""The one loop that scores: what it takes, what it leaves alone, what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.evaluation import oracle
from tests.evaluation.oracle import drawn
from tests.evaluation.test_error_table import measured
from tests.wide_panels import wide_panel
from tsattn.batch import Batch
from tsattn.data import CSVDataModule
from tsattn.errors import UserError
from tsattn.evaluation.measure import measure, seasonal_errors
from tsattn.scaler import Units

ONE = {"units": Units([[0.0]], [[1.0]]), "levels": (), "ids": ("one",), "channels": ("y",)}


def windows(**changes: Any) -> Batch:
    return replace(Batch(torch.zeros(2, 3, 1), torch.ones(2, 4, 1), time=torch.arange(7).expand(2, 7)), **changes)


def zero(batch: Batch) -> torch.Tensor:
    return torch.zeros(len(batch), 4, 1)


def test_nothing_is_drawn_and_no_gradient_kept(toy_csv: Path) -> None:
    data = CSVDataModule(str(toy_csv), context_length=48, prediction_length=12)
    data.setup("fit")
    weight = torch.nn.Parameter(torch.tensor(0.5))
    before = torch.get_rng_state()
    seen = []

    def forecast(batch: Batch) -> torch.Tensor:
        seen.append(weight * batch.past[:, -12:])
        return seen[-1]

    options: dict[str, Any] = {"ids": data.panel.ids, "channels": data.panel.channels, "levels": ()}
    table = measure(forecast, data.eval_dataloader("test"), units=Units(data.series.mean, data.series.scale), **options)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(part.requires_grad for part in seen)
    assert table.scores()["windows"] == 109
    first, last = table.frame().origin.iloc[[0, -1]]
    time = data.panel.time
    assert (first, last) == (time[480 - 1], time[600 - 12 - 1]), "the row before the horizon"


def test_without_numbers_of_series_there_is_one() -> None:
    table = measure(zero, [windows()], **ONE)
    assert table.frame().unique_id.tolist() == ["one", "one"]
    assert table.scores()["mse_scaled"] == 1


def test_seasonal_errors_are_of_the_series_of_each_window() -> None:
    cases = drawn(0)
    scores = measured(cases, 3, seasonal_errors=cases.seasonal).scores()
    assert scores["mase"] == pytest.approx(oracle.scores(cases)["mase"], rel=1e-12)
    unknown = measured(cases, 3).scores()
    assert unknown["mase_left_out"] == cases.observed.sum()
    assert unknown["mase"] != unknown["mase"]


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    refused: list[tuple[list[Batch], dict[str, Any], str]] = [
        ([], {}, "there are no windows to measure"),
        ([windows(target_observed=torch.zeros(2, 4, 1, dtype=torch.bool))], {}, "there is no observed value to score"),
        ([windows(target=None)], {}, "windows beyond the end of the data have no target to measure against"),
        ([windows(time=None)], {}, "windows need time stamps, (B, L + T), by which their errors are known"),
        ([windows()], {"ids": "ab"}, "windows of 2 series need series_id, (B,), the number of the series of each"),
        ([windows()], {"levels": (0.1, 0.9)}, "quantiles must include 0.5"),
        ([windows()], {"seasonal_errors": torch.ones(2, 1)}, "seasonal_errors must be (1, 1), a row a series, not"),
        ([windows(target=torch.ones(2, 5, 1))], {}, "a forecast of shape (2, 4, 1) does not fit targets of shape"),
    ]
    for batches, options, message in refused:
        with pytest.raises(UserError, match=re.escape(message)):
            measure(zero, batches, **{**ONE, **options}, path=tmp_path / "errors.parquet")
        assert not list(tmp_path.iterdir())


def test_seasonal_errors_are_those_of_the_seasonal_naive_forecast_on_the_first_rows() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((20, 3))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 2] = [np.nan] * 19 + [1.0]
    index = pd.date_range("2020-01-01", periods=20, freq="h")
    panel = wide_panel(pd.DataFrame(values, index=index, columns=[*"abc"]), "toy")
    for rows in (20, 12):
        steps = np.abs(values[4:rows] - values[: rows - 4])[:, :2]
        found = seasonal_errors(panel, np.array([rows]), 4)
        np.testing.assert_allclose(found, [[*np.nanmean(steps, 0), np.nan]], rtol=1e-12)
    assert np.isnan(seasonal_errors(panel, np.array([4]), 4)).all()


@pytest.mark.gpu
def test_a_forecast_on_a_device_is_measured_there_beside_targets_on_the_host() -> None:
    cases = drawn(1, levels=(0.1, 0.5, 0.9))
    pairs = cases.batches(4)
    forecasts = {id(batch): forecast.cuda() for batch, forecast in pairs}
    options: dict[str, Any] = {"levels": cases.levels, "ids": cases.ids, "channels": cases.channels}
    table = measure(
        lambda batch: forecasts[id(batch)],
        [batch for batch, _ in pairs],
        units=cases.units,
        seasonal_errors=cases.seasonal,
        **options,
    )
    assert table.scores() == pytest.approx(oracle.scores(cases), rel=1e-10, nan_ok=True)
    there = [batch.to("cuda") for batch, _ in pairs]
    forecasts |= {id(moved): forecasts[id(batch)] for moved, (batch, _) in zip(there, pairs, strict=True)}
    again = measure(lambda batch: forecasts[id(batch)], there, units=cases.units.cuda(), **options)
    assert again.scores()["mse_original"] == pytest.approx(table.scores()["mse_original"], rel=1e-12)
