"""The default predictor: which members it takes, the shares that they get, and the width of its intervals."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.toy_windows import toy_task
from tsattn import Forecaster, load
from tsattn.errors import UserError
from tsattn.experiments import Experiment, resume, run
from tsattn.experiments.measuring import forward_flops
from tsattn.predictors import auto, build_predictor
from tsattn.predictors.auto import POWER, PRIORS, Auto, shares_of
from tsattn.task import Output

T = 6


def monthly(rows: int = 60, series: int = 2, seed: int = 0) -> pd.DataFrame:
    """Series with a season and a trend, the last months of some more noise than of others."""
    rng, steps = np.random.default_rng(seed), np.arange(rows)
    parts = [
        pd.DataFrame(
            {
                "unique_id": f"series {number}",
                "ds": pd.date_range("2001-01-01", periods=rows, freq="MS"),
                "y": 50 + 0.2 * steps + 5 * np.sin(2 * np.pi * steps / 12 + number) + rng.normal(0, 1, rows),
            }
        )
        for number in range(series)
    ]
    return pd.concat(parts, ignore_index=True)


def made(**arguments: Any) -> Forecaster:
    return Forecaster(**{"prediction_length": T, "accelerator": "cpu", "max_steps": 4, **arguments})


def auto_of(forecaster: Forecaster) -> Auto:
    assert forecaster.fitted is not None
    predictor = forecaster.fitted.predictor
    assert isinstance(predictor, Auto)
    return predictor


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "_NETWORK_WINDOWS", 10)
        patch.setattr(auto, "_LEAST", 0.0)  # all members stay
        return made().fit(monthly())


@pytest.mark.parametrize(
    "errors", [[0.5, 0.6, 0.7, 0.4], [2.0, 1.0, 1.0, 3.0], [0.3, 0.3, 0.3, 0.3], [0.0, 1.0, 2.0, 3.0]]
)
def test_shares_follow_the_errors(errors: list[float]) -> None:
    positive = np.maximum(errors, min(one for one in errors if one > 0))
    expected = np.array(PRIORS) / positive**POWER
    found = shares_of(errors, PRIORS)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)


def test_an_error_that_is_not_known_counts_as_the_lowest() -> None:
    nan = float("nan")
    np.testing.assert_allclose(shares_of([2.0, nan, 1.0], [1, 1, 1]), np.array([0.5**POWER, 1, 1]) / (2 + 0.5**POWER))
    np.testing.assert_allclose(shares_of([nan, nan], [3, 1]), [0.75, 0.25])


def test_shares_and_errors_are_those_of_the_validation_windows(fitted: Forecaster) -> None:
    predictor, result = auto_of(fitted), fitted.result
    assert result is not None
    (batch,) = result.data.eval_dataloader("val", **predictor.cut)
    levels = predictor.output.quantiles
    with torch.no_grad():
        parts = [copy(batch) for (copy,) in predictor.members]
        medians = [(part[..., 1] if part.dim() == 4 else part).double().numpy() for part in parts]
        whole = predictor(batch).double().numpy()
    target = batch.known_target.double().numpy()
    errors = [np.abs(one - target).mean() for one in medians]
    weights = np.array(PRIORS) * (min(errors) / np.array(errors)) ** POWER
    weights /= weights.sum()
    np.testing.assert_allclose(predictor.weights, weights, rtol=1e-4)
    assert sum(predictor.weights) == pytest.approx(1)
    np.testing.assert_allclose(whole[..., 1], sum(w * one for w, one in zip(weights, medians, strict=True)), atol=1e-4)
    share = levels[-1] - levels[0]
    inside = ((target >= whole[..., 0]) & (target <= whole[..., -1])).mean()
    assert inside >= share - 0.02 or predictor.width == 3.0
    facts = result.fit
    assert facts["chosen"] == {"shares": predictor.shares, "width": predictor.width}
    assert facts["selected_by"] == "crps_scaled"
    assert facts["validation_windows"] == len(batch)
    pinball = np.mean(
        [np.maximum(q * e, (q - 1) * e) for q, e in zip(levels, target - np.moveaxis(whole, -1, 0), strict=True)]
    )
    assert facts["validation_error"] == pytest.approx(2 * pinball, rel=1e-3)


@pytest.mark.parametrize("covariates", [False, True])
def test_few_rows_have_no_network_but_for_covariates(covariates: bool, caplog: pytest.LogCaptureFixture) -> None:
    frame = monthly().assign(price=np.tile(np.arange(60.0) % 5, 2))
    columns = {"past_covariates": ["price"]} if covariates else {}
    with caplog.at_level(logging.INFO, "tsattn"):
        forecaster = made(**columns).fit(frame if covariates else frame.drop(columns="price"))
    trained = [fits for fits in forecaster.result.fit["members"] if fits and "training" in fits[0]]
    assert len(trained) == covariates
    (line,) = [message for message in caplog.messages if message.startswith("auto: ")]
    assert line.endswith("validation windows")
    assert "% tiny" in line
    assert not any("does not use covariates" in message for message in caplog.messages)
    assert forecaster.predict()["predictions"].notna().all()


def test_what_is_saved_forecasts_the_same(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), fitted.predict())
    assert auto_of(again).shares == auto_of(fitted).shares
    new = monthly(40, 3, seed=5)
    pd.testing.assert_frame_equal(again.predict(new), fitted.predict(new))


def test_its_flops_are_those_of_the_members_that_it_took(fitted: Forecaster) -> None:
    few = made(quantiles=None).fit(monthly(30, 1))
    assert few.result is not None
    assert fitted.result is not None
    empty = build_predictor("auto")
    empty.build(few.result.data.contents[1], empty=True)  # as before a fit of `tsattn tune`
    assert forward_flops(auto_of(few), few.result.data) < forward_flops(empty, few.result.data)
    assert forward_flops(auto_of(fitted), fitted.result.data) > 0


def test_a_seed_gives_the_same_again(fitted: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_NETWORK_WINDOWS", 10)
    monkeypatch.setattr(auto, "_LEAST", 0.0)
    pd.testing.assert_frame_equal(made().fit(monthly()).predict(), fitted.predict())


@pytest.mark.parametrize(
    "values",
    [np.arange(40.0), np.full(40, 7.0), 10 + np.random.default_rng(0).normal(0, 1, 12 + T)],
    ids=["line", "constant", "18 rows"],
)
def test_odd_and_short_series(values: Any) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2001", periods=len(values), freq="MS"), "y": values})
    forecast = made().fit(frame).predict()
    assert len(forecast) == T
    assert np.isfinite(forecast[["predictions", "0.1", "0.9"]]).all(axis=None)
    if values[0] == values[-1]:
        np.testing.assert_allclose(forecast["predictions"], 7.0, atol=0.01)
    elif values[1] == 1:
        np.testing.assert_allclose(forecast["predictions"], 40 + np.arange(T), rtol=0.1)


def test_twelve_rows_and_many_missing_values() -> None:
    frame = monthly(12, 3)
    forecast = made(prediction_length=4).fit(frame).predict()
    assert forecast["predictions"].notna().all()
    frame = monthly(50)
    frame.loc[(frame["unique_id"] == "series 1") & (frame.index % 50 >= 44), "y"] = np.nan  # all that validates it
    assert made().fit(frame).predict()["predictions"].notna().all()


def test_without_validation_rows_the_training_rows_have_origins(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tsattn"):
        forecaster = made(val_rows=0).fit(monthly())
    assert any(message.startswith("auto: ") and message.endswith("rolling origins") for message in caplog.messages)
    assert "ridge" in auto_of(forecaster).shares, "whose error is not known"
    assert "validation_error" not in forecaster.result.fit


def test_a_refit_and_rolling_origins_keep_to_the_rule() -> None:
    frame = monthly()
    forecaster = made(calibrate=True).fit(frame, refit=True)
    refitted = forecaster.result.refitted.predictor
    assert refitted.weights == forecaster.result.fitted.predictor.weights
    assert refitted.width == forecaster.result.fitted.predictor.width
    assert list(forecaster.predict(level=80).columns[-2:]) == ["0.5", "0.9"]
    rolled = made().cross_validate(frame, windows=2)
    assert len(rolled) == 2 * 2 * T
    scores = made().fit(frame[frame["ds"] < "2005-06"]).evaluate(frame)
    assert np.isfinite(scores.to_numpy(float)).any()


def test_levels_that_tiny_does_not_forecast_are_those_of_the_network() -> None:
    forecaster = made(quantiles=[0.001, 0.5, 0.999]).fit(monthly())
    assert {"patchtst"} <= auto_of(forecaster).shares.keys() <= {"patchtst", "ridge", "seasonal_naive"}
    assert (forecaster.predict()["0.999"] > forecaster.predict()["0.001"]).all()


def test_points_alone() -> None:
    forecast = made(quantiles=None, loss="mae").fit(monthly()).predict()
    assert [*forecast.columns][-1] == "predictions"


def test_what_only_a_network_takes_asks_for_it(tmp_path: Path) -> None:
    assert Forecaster().predictor.name == "auto"
    for given in ({"attention": "mlr"}, {"distribution": "normal"}, {"training": {"checkpoints": tmp_path}}):
        assert Forecaster(**given).predictor.description["kind"] == "patchtst"
    content = {"data": {"class_path": "CSVDataModule", "init_args": {"path": "a.csv"}}}
    experiment = Experiment.of(content)
    assert experiment.model["backbone"] == {"kind": "auto", "members": None, "seeds": 1, "context_length": None}
    assert experiment.with_values({"attention": "swa"}).model["backbone"]["linear_path"] == "ridge"
    named = Experiment.of({**content, "model": {"distribution": "normal"}})
    assert named.model["backbone"]["kind"] == "patchtst"
    with pytest.raises(UserError, match="auto has no distribution normal"):
        build_predictor("auto").build(toy_task(), Output((0.5,), "normal"))


@pytest.mark.parametrize("quantiles", [None, [0.1, 0.5, 0.9]])
def test_given_members_have_equal_shares_at_equal_errors(
    quantiles: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "_LEAST", 0.0)
    network = {"kind": "patchtst", "patch_len": 4, "stride": 2, "d_model": 16, "num_heads": 2}
    members = [network, "ridge", {"kind": "seasonal_naive", "season_length": 1}, "seasonal_naive"]
    described = {"kind": "auto", "members": members, "seeds": 2}
    forecaster = made(backbone=described, context_length=24, quantiles=quantiles).fit(monthly(90))
    predictor, result = auto_of(forecaster), forecaster.result
    (batch,) = result.data.eval_dataloader("val", **predictor.cut)
    with torch.no_grad():
        parts = [
            torch.stack([copy(batch).double() for copy in copies]).mean(0) for copies in predictor.members if copies
        ]
        whole = predictor(batch).double()
    assert len(predictor.members[0]) == 2, "trainings of the network"
    medians = [part[..., 1] if part.dim() == 4 else part for part in parts]
    errors = np.array([float((one - batch.known_target).abs().mean()) for one in medians])
    taken = np.array([weight for weight in predictor.weights if weight])
    np.testing.assert_allclose(taken, errors**-POWER / (errors**-POWER).sum(), rtol=1e-4)
    mixed = sum(weight * one for weight, one in zip(taken, medians, strict=True))
    np.testing.assert_allclose(whole[..., 1] if quantiles else whole, mixed, rtol=1e-5)
    assert (
        {"patchtst", "ridge"}
        <= predictor.shares.keys()
        <= {"patchtst", "ridge", "seasonal_naive 1", "seasonal_naive 2"}
    )
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(), forecaster.predict())


def test_members_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="auto takes context_length or members, not both"):
        build_predictor({"kind": "auto", "members": ["ridge"], "context_length": 9})
    with pytest.raises(UserError, match="auto forecasts points only: leave quantiles out"):
        build_predictor({"kind": "auto", "members": ["ridge", "persistence"]}).build(
            toy_task(), Output((0.1, 0.5, 0.9))
        )
    with pytest.raises(UserError, match="an ensemble cannot be a member of another"):
        build_predictor({"kind": "auto", "members": ["auto"]})
    longer = {"kind": "auto", "members": ["ridge", {"kind": "window_mean", "context_length": 110}]}
    with pytest.raises(UserError, match="window_mean sets its own context_length, 110"):
        made(backbone=longer, context_length=24, quantiles=None).fit(monthly(120, 1))
    given = {"kind": "auto", "members": ["ridge", "patchtst"]}
    for options in ({"attention": "mlr"}, {"distribution": "normal"}):
        with pytest.raises(UserError, match="auto has no"):
            made(backbone=given, **options).fit(monthly())


def test_members_that_need_no_fit_are_weighed_in_a_fit(tmp_path: Path) -> None:
    members, sizes = ["persistence", "seasonal_naive"], {"context_length": 24, "prediction_length": T}
    frame = monthly().pivot_table("y", "ds", "unique_id").reset_index()
    frame.to_csv(tmp_path / "a.csv", index=False)
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(tmp_path / "a.csv"), **sizes}},
        "model": {"backbone": {"kind": "auto", "members": [*members, "ridge"]}, "quantiles": []},
    }
    result = run(content, tmp_path / "run", test=False)
    assert load(tmp_path / "run").predict(frame).notna().all(axis=None), "a member of the length of the task"
    assert result.fit["validation_windows"] > 0
    simple = made(backbone={"kind": "auto", "members": members}, context_length=24, quantiles=None)
    with pytest.raises(UserError, match="fit"):
        simple.predict(monthly())
    rolled = simple.cross_validate(monthly(), windows=1)
    errors = (rolled["y"] - rolled["predictions"]).abs().mean()
    alone = made(backbone="seasonal_naive", context_length=24, quantiles=None).cross_validate(monthly(), windows=1)
    assert errors < 1.2 * (alone["y"] - alone["predictions"]).abs().mean()
    many = made(backbone={"kind": "auto", "members": ["persistence"] * 51}, context_length=24, quantiles=None)
    assert many.fit(monthly()).predict()["predictions"].notna().all()


def test_a_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_NETWORK_WINDOWS", 10)
    frame = monthly().pivot_table("y", "ds", "unique_id").reset_index()
    frame.to_csv(tmp_path / "a.csv", index=False)
    sizes = {"path": str(tmp_path / "a.csv"), "context_length": 12, "prediction_length": T}
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {**sizes, "val_rows": 8, "test_rows": 8}},
        "model": {"quantiles": [0.1, 0.5, 0.9]},
        "trainer": {"max_steps": 4, "val_check_interval": 2, "accelerator": "cpu"},
    }
    whole = run(content, tmp_path / "whole", test=False)

    def killed(*_: Any) -> Any:
        raise RuntimeError("killed")

    monkeypatch.setattr(Auto, "_choose", killed)
    with pytest.raises(RuntimeError, match="killed"):
        run(content, tmp_path / "broken", test=False)
    monkeypatch.undo()
    monkeypatch.setattr(auto, "_NETWORK_WINDOWS", 10)
    monkeypatch.setattr(
        "tsattn.training.ForecastingModule.training_step", lambda *_: pytest.fail("it was trained again")
    )
    again = resume(tmp_path / "broken")
    assert again.fit["chosen"] == whole.fit["chosen"]
    for name, weight in again.fitted.predictor.state_dict().items():
        assert torch.equal(weight, whole.fitted.predictor.state_dict()[name]), name
