"""A transform is fitted to the training rows alone, saved, and applied wherever series are scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, stats

from tests.data.many_series import prepared
from tsattn.data import panel_from_frame
from tsattn.data.scaling import scaled_series
from tsattn.errors import UserError
from tsattn.evaluation import measure

LENGTHS = {"a": 61, "b": 45, "c": 100}


def positive(seed: int = 0) -> pd.DataFrame:
    """Series that a square root, a logarithm and nothing at all make normal."""
    rng, parts = np.random.default_rng(seed), []
    for (name, rows), power in zip(LENGTHS.items(), (2.0, 0.0, 1.0), strict=True):
        normal = 12 + rng.standard_normal(rows)
        y = np.exp(normal / 4) if power == 0 else normal**power
        parts.append(pd.DataFrame({"unique_id": name, "ds": pd.date_range("2024", periods=rows), "y": y}))
    return pd.concat(parts, ignore_index=True)


def most_likely(values: np.ndarray) -> float:
    found = optimize.minimize_scalar(lambda rate: -stats.boxcox_llf(rate, values), bounds=(0, 2), method="bounded")
    return float(found.x)


@pytest.mark.parametrize("scaling", ["series", "global"])
def test_lambdas_are_the_most_likely_ones_of_the_training_rows(scaling: str) -> None:
    frame = positive()
    frame.loc[5, "y"] = np.nan
    fitted = prepared(frame, transform="box_cox", scaling=scaling).scaler.transform
    train = {name: own.y.to_numpy()[: int(0.7 * len(own))] for name, own in frame.groupby("unique_id")}
    train = {name: part[~np.isnan(part)] for name, part in train.items()}
    pooled = np.concatenate([*train.values()])
    assert fitted.lambdas == pytest.approx([most_likely(pooled)], abs=1e-3)
    assert (fitted.mean, fitted.scale) == (pytest.approx([pooled.mean()]), pytest.approx([pooled.std()]))
    if scaling == "series":
        own = [most_likely(train[name]) for name in LENGTHS]
        np.testing.assert_allclose(np.ravel(fitted.series_lambdas), own, atol=1e-3)
    else:
        assert fitted.series_lambdas == ()
    changed = frame.assign(y=frame.y.where(frame.groupby("unique_id").cumcount() < 70, frame.y * 3))  # for testing
    assert prepared(changed[::-1], transform="box_cox", scaling=scaling).scaler.transform == fitted


@pytest.mark.parametrize("transform", ["log", "log1p", "box_cox", {"kind": "box_cox", "lambda": 0.25}])
@pytest.mark.parametrize("scaling", ["series", "global"])
def test_windows_are_standardised_after_the_transform_and_come_back(transform: Any, scaling: str) -> None:
    frame = positive()
    frame.loc[70, "y"] = np.nan
    data = prepared(frame, transform=transform, scaling=scaling)
    series = data.series
    back = series.units.restore(series.values[:, None], torch.arange(3).repeat_interleave(series.starts.diff()))
    known = frame.y.notna().to_numpy()
    np.testing.assert_allclose(back.flatten().numpy()[known], frame.y[known], rtol=1e-5)
    if scaling == "global":
        ends = series.starts[:-1] + torch.tensor([split.train_end for split in data.splits])
        rows = [torch.arange(first, end) for first, end in zip(series.starts[:-1], ends, strict=True)]
        train = series.values[torch.cat(rows)][known[torch.cat(rows).numpy()]]
        assert train.mean().abs() < 1e-5
        assert train.std(correction=0) == pytest.approx(1, abs=1e-5)


def test_a_series_that_was_not_trained_on_has_the_lambda_of_all_and_units_of_its_own() -> None:
    scaler = prepared(positive(), transform="box_cox").scaler
    other = positive(1).replace({"unique_id": {"b": "new"}})
    series = scaled_series(panel_from_frame(other), scaler)
    transform = series.transform
    known = dict(zip(scaler.ids, scaler.transform.series_lambdas, strict=True))
    expected = [known["a"], known["c"], scaler.transform.lambdas]
    np.testing.assert_allclose(transform.lambdas, expected)
    own = other[other.unique_id == "new"].y.to_numpy()
    assert (transform.mean[2, 0], transform.scale[2, 0]) == pytest.approx((own.mean(), own.std()))
    there = stats.boxcox(own, scaler.transform.lambdas[0])
    assert (series.mean[2, 0].item(), series.scale[2, 0].item()) == pytest.approx((there.mean(), there.std()))


@pytest.mark.parametrize(
    ("transform", "value", "message"),
    [
        (
            "log",
            0.0,
            r"log takes values above 0, but column y has 0 in row 4 of series b, 2024-01-04 .*: log1p takes 0",
        ),
        ("box_cox", -2.0, "box_cox takes values above 0, but column y has -2 in row 4 of series b"),
        ("log1p", -0.5, "log1p takes values of at least 0, but column y has -0.5 in row 4 of series b"),
    ],
)
def test_a_value_that_it_does_not_take_is_refused_by_column_and_row(transform: str, value: float, message: str) -> None:
    frame = positive()
    frame.loc[LENGTHS["a"] + 3, "y"] = value
    with pytest.raises(UserError, match=message):
        prepared(frame, transform=transform)
    scaler = prepared(positive(), transform=transform).scaler
    with pytest.raises(UserError, match=message):
        scaled_series(panel_from_frame(frame), scaler)


def test_scores_are_those_of_the_values_themselves() -> None:
    """A naive forecast has the same scores, transformed or not: those that numpy finds on the frame."""
    frame, scores = positive(), {}
    for transform in (None, "log", "box_cox"):
        data = prepared(frame, transform=transform)
        table = measure(
            lambda batch: batch.past[:, -1:].expand_as(batch.target),
            data.eval_dataloader("test"),
            units=data.series.units,
            levels=(0.5,),
            ids=data.panel.ids,
            channels=data.panel.channels,
        )
        scores[transform] = table.scores()
    squared = []
    for number, split in enumerate(data.splits):
        y = frame.y.to_numpy()[data.panel.starts[number] : data.panel.starts[number + 1]]
        for origin in range(split.val_end, split.test_end - 4 + 1):
            squared.append((y[origin : origin + 4] - y[origin - 1]) / y[: split.train_end].std())
    for found in scores.values():
        assert found["mse_scaled"] == pytest.approx(np.square(squared).mean(), rel=1e-4)
        assert found["wql"] == pytest.approx(scores[None]["wql"], rel=1e-4)
