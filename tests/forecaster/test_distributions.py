"""Forecasters of distributions: trained, scored, saved, on counts of real files, with every attention."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.forecaster.toys import SMALL
from tsattn.backbones import BACKBONES, build_backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.task import DISTRIBUTIONS, Output, Task

SIZES: dict[str, Any] = {**SMALL, "context_length": 28, "prediction_length": 7, "max_steps": 5}
TASK = Task("toy", 28, 7, ("x", "y"), "D", 7)


def counts(rows: int = 160) -> pd.DataFrame:
    """Sparse and large counts with a week in them."""
    rng, parts = np.random.default_rng(0), []
    for name, size in {"few": 0.4, "many": 60.0}.items():
        mean = size * (1 + 0.8 * np.sin(2 * np.pi * np.arange(rows) / 7))
        y = rng.negative_binomial(2, 2 / (2 + mean)).astype(float)
        parts.append(pd.DataFrame({"unique_id": name, "ds": pd.date_range("2024", periods=rows), "y": y}))
    return pd.concat(parts, ignore_index=True)


def test_counts_are_scored_as_whole_numbers() -> None:
    """A zero that is forecast as zero has no sMAPE, and a count on a bound lies inside."""
    frame = counts()
    stamps = frame["ds"].unique()
    forecaster = Forecaster(**SIZES, distribution="negative_binomial").fit(frame[frame["ds"] < stamps[132]])
    scores = forecaster.evaluate(frame, step=7, detail=True).iloc[0]
    frames = [forecaster.predict(frame[frame["ds"] < stamps[origin]]) for origin in range(132, 154, 7)]
    made = pd.concat(frames).merge(frame, on=["unique_id", "ds"])
    assert not np.signbit(made[["predictions", "0.1"]]).to_numpy().any()  # no minus zero
    assert len(made) == 7 * scores["windows"] == 56
    assert scores["sMAPE left out"] == made[["y", "predictions"]].eq(0).all(axis=1).sum() > 3
    low, high = made["0.1"] <= made["y"], made["y"] <= made["0.9"]
    assert scores["cover 80"] == pytest.approx((low & high).mean())


@pytest.mark.parametrize("kind", BACKBONES)
def test_backbones_have_a_distribution_or_refuse_it(kind: str) -> None:
    output = Output((), "student_t")
    if kind == "chronos_bolt":
        with pytest.raises(UserError, match="backbone chronos_bolt has no distribution student_t; those that do: "):
            build_backbone(kind, TASK, output)
        return
    parameters = build_backbone(kind, TASK, output)(Batch(torch.randn(3, 28, 2)))
    assert parameters.shape == (3, 7, 2, 3)


def test_an_ensemble_of_counts_forecasts_counts() -> None:
    network = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2, "patch_len": 7, "stride": 7}
    sizes = {"context_length": 28, "prediction_length": 7, "max_steps": 5}
    members = [{**network, "learning_rate": rate} for rate in (0.001, 0.02)]
    ensemble = {"kind": "ensemble", "members": members}
    forecaster = Forecaster(ensemble, **sizes, distribution="negative_binomial").fit(counts())
    columns = ["predictions", "0.1", "0.5", "0.9"]
    found = forecaster.predict()[columns].to_numpy()
    assert (found == found.round()).all()
    alone = []
    for copies in forecaster.fitted.predictor.members:
        member = copy.copy(forecaster)
        member.fitted = replace(forecaster.fitted, predictor=copies[0])
        alone.append(member.predict()[columns].to_numpy())
    assert (alone[0] != alone[1]).any()
    assert abs(found - np.mean(alone, 0)).max() <= 0.5 + 1e-4
    paths = forecaster.sample(num_samples=20)["y"]
    assert (paths == paths.round()).all()
    assert paths.min() == 0


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_distribution_is_trained_scored_saved_and_loaded(name: str, tmp_path: Path) -> None:
    forecaster = Forecaster(**SIZES, distribution=name, val_rows=20, test_rows=20).fit(
        counts(), folder=tmp_path / "run"
    )
    result = forecaster.result
    forecast = forecaster.predict()
    assert list(forecast.columns) == ["unique_id", "ds", "predictions", "0.1", "0.5", "0.9"]
    assert (forecast["0.1"] <= forecast["0.9"]).all()
    scores = result.scores.loc[next(iter(result.tables))]
    assert scores[["wql", "crps_scaled", "coverage_80", "mase"]].notna().all()
    assert result.fit["selected_by"] == "crps_scaled"
    if name == "negative_binomial":
        numbers = forecast[["predictions", "0.1", "0.9"]].to_numpy()
        assert (numbers == np.round(numbers)).all()
        assert numbers.min() >= 0
        assert forecast[forecast.unique_id == "many"]["0.5"].between(5, 400).all()
    forecaster.save(tmp_path / "model")
    for folder in ("model", "run"):
        loaded = tsattn.load(tmp_path / folder)
        pd.testing.assert_frame_equal(loaded.predict(counts()), forecast)
        assert loaded.arguments["distribution"] == name
        assert loaded.fitted.predictor.output == Output((0.1, 0.5, 0.9), name)


def test_calibrated_intervals_of_counts_are_counts() -> None:
    forecaster = Forecaster(**SIZES, distribution="negative_binomial", val_rows=30, test_rows=20, calibrate=True).fit(
        counts()
    )
    numbers = forecaster.predict(level=[80])[["predictions", "0.1", "0.9"]].to_numpy()
    assert (numbers == np.round(numbers)).all()
    assert numbers.min() >= 0
    assert (numbers[:, 1] <= numbers[:, 0]).all()
    assert (numbers[:, 0] <= numbers[:, 2]).all()


def test_a_model_of_counts_forecasts_from_nothing_else(tmp_path: Path) -> None:
    Forecaster(**SIZES, distribution="negative_binomial").fit(counts()).save(tmp_path / "model")
    loaded = tsattn.load(tmp_path / "model")
    halves = counts()
    halves.loc[310, "y"] += 0.5
    says = r"this model takes counts, whole numbers from 0, but column y has \d+\.5 in row 151 of series many, 2024-05"
    for call in (loaded.predict, loaded.sample):
        with pytest.raises(UserError, match=says):
            call(halves)
    early = counts()
    early.loc[170, "y"] += 0.5
    pd.testing.assert_frame_equal(loaded.predict(early), loaded.predict(counts()))  # it looks at the end alone


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"backbone": "ridge"}, 0.0, "predictor ridge has no distribution negative_binomial: leave distribution out"),
        ({"distribution": "poisson"}, 0.0, "unknown distribution poisson"),
        ({"loss": "mae"}, 0.0, "loss mae trains no distribution"),
        ({"transform": "log1p"}, 0.0, "is of counts as they are: leave out transform log1p"),
        ({}, 0.5, r"takes counts, whole numbers from 0, but column y has 0.5 in row 4 of series few, 2024-01-04"),
        ({}, -2.0, "takes counts, whole numbers from 0, but column y has -2 in row 4 of series few"),
    ],
)
def test_what_has_no_such_distribution_is_refused(options: dict[str, Any], change: float, message: str) -> None:
    frame = counts(100)
    frame.loc[3, "y"] = change
    with pytest.raises(UserError, match=message):
        Forecaster(**{**SIZES, "distribution": "negative_binomial", **options}).fit(frame)
