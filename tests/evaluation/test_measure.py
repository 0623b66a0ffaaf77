"""The one loop that scores: what it takes, what it leaves alone, what it refuses."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.wide_panels import wide_panel
from tsattn.batch import Batch
from tsattn.data import CSVDataModule
from tsattn.errors import UserError
from tsattn.evaluation.measure import measure, seasonal_errors
from tsattn.evaluation.reductions import SCORES
from tsattn.evaluation.selection import SELECTION_CHOICES, selection_metric
from tsattn.scaler import Units
from tsattn.training.losses import LOSSES, PINBALL

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


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    refused: list[tuple[list[Batch], dict[str, Any], str]] = [
        ([], {}, "there are no windows to measure"),
        ([windows(target_observed=torch.zeros(2, 4, 1, dtype=torch.bool))], {}, "there is no observed value to score"),
        ([windows(target=None)], {}, "windows beyond the end of the data have no target to measure against"),
        ([windows(time=None)], {}, "windows need time, (B, L + T): the time stamps of their steps"),
        ([windows()], {"ids": "ab"}, "windows of 2 series need series_id, (B,), the number of the series of each"),
        ([windows()], {"levels": (0.1, 0.9)}, "quantiles must include 0.5"),
        ([windows()], {"seasonal_errors": torch.ones(2, 1)}, "seasonal_errors must be (1, 1), one row for each"),
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


QUANTILES = (0.1, 0.5, 0.9)
RULE = {"mse": "mse", "huber": "mse", "mae": "mae", "frequency": "mae", "pinball": "crps"}


def test_the_rule() -> None:
    for loss, metric in RULE.items():
        quantiles = QUANTILES if loss == "pinball" else ()
        assert selection_metric(loss, quantiles) == f"{metric}_scaled"
        for choice, chosen in SELECTION_CHOICES.items():
            if quantiles or choice != "crps":
                assert selection_metric(loss, quantiles, choice) == chosen
    for loss in (*LOSSES, PINBALL):
        assert selection_metric(loss, QUANTILES) in SCORES
    assert set(SELECTION_CHOICES.values()) <= set(SCORES)


def test_what_cannot_be_selected_by_is_refused() -> None:
    for loss, choice, message in (
        ("mse", "crps", "selection crps needs quantiles; without them, selection must be one of mse, mae"),
        ("pinball", None, "selection crps needs quantiles"),
        ("mse", "wql", "selection must be one of mse, mae, crps, not wql"),
        ("hinge", None, "loss must be one of mse, huber, mae, frequency, pinball, nll, not hinge"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            selection_metric(loss, (), choice)
