"""Covariates, categories and scenarios: known ahead or not, in the frame or beside it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.forecaster.toys import SMALL, T, entries, promotions
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


def test_the_future_of_a_covariate_moves_the_forecast(shops: Forecaster) -> None:
    forecast = shops.predict()
    truth = promotions(400).groupby("unique_id", sort=False).nth(list(range(380, 380 + T))).reset_index(drop=True)
    assert forecast["ds"].tolist() == truth["ds"].tolist()
    error = (forecast["predictions"] - truth["y"]).abs() / truth["y"]
    assert error.mean() < 0.1, "without the promotions it is about 0.2"


def test_a_frame_of_future_values_takes_the_place_of_rows_after_the_target(shops: Forecaster) -> None:
    whole = promotions(400)
    past = whole[whole["ds"] < whole["ds"].max() - pd.Timedelta(days=19)]
    future = whole[whole["ds"] >= whole["ds"].max() - pd.Timedelta(days=19)].drop(columns=["y", "region"])
    expected = shops.predict()
    pd.testing.assert_frame_equal(shops.predict(past, future=future), expected)
    none = future.assign(promotion=0.0)
    assert (shops.predict(past, future=none)["predictions"] <= expected["predictions"] + 0.5).all()
    # the fitted series, with another future
    calm = shops.predict(future=none)
    np.testing.assert_allclose(calm["predictions"], shops.predict(past, future=none)["predictions"], rtol=1e-5)


def test_a_new_series_of_an_unseen_category_has_the_mean_of_the_learnt_ones(
    shops: Forecaster, caplog: pytest.LogCaptureFixture
) -> None:
    frame = promotions(400)
    frame.loc[frame["ds"] >= frame["ds"].max() - pd.Timedelta(days=19), "y"] = np.nan
    new = frame[frame["unique_id"] == "north"].assign(unique_id="west")
    added = pd.concat([frame, new.assign(region="w"), new.assign(unique_id="east", region=None)])
    forecast = shops.predict(added).set_index("unique_id")["predictions"]
    told = [message for message in caplog.messages if "not seen" in message]
    assert told == [
        "the frame: static column region: series east has category missing, series west has category w, not seen in "
        "training, replaced by the mean of the trained categories"
    ]
    expected = shops.predict().set_index("unique_id")["predictions"]
    for known in ("north", "south"):
        np.testing.assert_allclose(forecast[known], expected[known], rtol=1e-5)
    # by hand: the vector of the first region is set to the mean of both
    table = shops.fitted.predictor.backbone.covariates.static[0].weight
    before = table.detach().clone()
    with torch.no_grad():
        table.copy_(before.mean(0).expand_as(before))
    try:
        mean = shops.predict().set_index("unique_id")["predictions"]["north"]
    finally:
        with torch.no_grad():
            table.copy_(before)
    for unseen in ("west", "east"):
        np.testing.assert_allclose(forecast[unseen], mean, rtol=1e-5)
    assert np.abs(forecast["west"].to_numpy() - expected["north"].to_numpy()).max() > 1e-3


def test_an_unseen_category_of_a_saved_model_is_the_mean_too(shops: Forecaster, tmp_path: Path) -> None:
    frame = promotions(400)
    frame.loc[frame["ds"] >= frame["ds"].max() - pd.Timedelta(days=19), "y"] = np.nan
    north = frame[frame["unique_id"] == "north"].assign(region="w").reset_index(drop=True)
    expected = shops.predict(north)
    assert not expected.equals(shops.predict().query("unique_id == 'north'"))
    shops.save(tmp_path / "model")
    pd.testing.assert_frame_equal(tsattn.load(tmp_path / "model").predict(north), expected)
    with pytest.raises(UserError, match="`promotion` has no values for the next 12 steps; pass them with"):
        shops.predict(promotions(380))


@pytest.mark.parametrize("kind", ["ridge", "theta", "tiny", {"kind": "ensemble", "members": ["ridge", "tiny"]}])
def test_models_that_read_no_covariates_need_no_future_of_them(kind: Any) -> None:
    frame, options = promotions(380).drop(columns="region"), {"prediction_length": T, "quantiles": None}
    forecaster = Forecaster(kind, future_covariates=["promotion"], **options).fit(frame)
    expected = forecaster.predict(future=promotions(400).groupby("unique_id").tail(20))
    pd.testing.assert_frame_equal(forecaster.predict(), expected)


SIZES: dict[str, Any] = {"d_model": 16, "num_layers": 1, "num_heads": 2}
OPTIONS: dict[str, Any] = {
    **{"context_length": 24, "prediction_length": T, "quantiles": None, "accelerator": "cpu"},
    "future_covariates": ["event"],
}
EFFECT = {"none": 0.0, "fair": 6.0, "storm": -6.0}


def sales(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Sales of two shops that an event of the day, which is known ahead, moves up or down."""
    rng = np.random.default_rng(seed)
    stamps = pd.date_range("2023-01-01", periods=rows, freq="D")
    event = rng.choice([*EFFECT], rows, p=[0.6, 0.2, 0.2])
    moved = np.array([EFFECT[name] for name in event])
    noise = rng.standard_normal((2, rows))
    return pd.DataFrame({"ds": stamps, "north": 20 + moved + noise[0], "south": 50 + moved + noise[1], "event": event})


def test_what_an_event_does_is_learnt(tmp_path: Path) -> None:
    frame = sales()
    options = {**OPTIONS, "max_steps": 40, "learning_rate": 0.01}
    forecaster = Forecaster({"kind": "patchtst", **SIZES}, **options).fit(frame[:-T])
    assert forecaster.task.covariate_categories == (("fair", "none", "storm"),)
    future = frame[-T:][["ds", "event"]]

    def mean(event: str) -> float:
        return float(forecaster.predict(frame[:-T], future=future.assign(event=event))["predictions"].mean())

    assert mean("fair") > mean("none") + 2
    assert mean("storm") < mean("none") - 2
    # one that was never seen lies between those that were
    assert mean("storm") < mean("comet") < mean("fair")
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    expected = forecaster.predict(future=future)
    pd.testing.assert_frame_equal(again.predict(future=future), expected)
    pd.testing.assert_frame_equal(again.predict(frame[:-T].sample(frac=1, random_state=1), future=future), expected)
    as_categories = future.astype({"event": "category"})
    pd.testing.assert_frame_equal(again.predict(future=as_categories), expected)


def test_an_unseen_category_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    frame = sales(120)
    options = {**OPTIONS, "future_covariates": (), "past_covariates": ["event"], "max_steps": 2}
    forecaster = Forecaster({"kind": "patchtst", **SIZES}, **options).fit(frame)
    forecaster.predict(frame.assign(event="comet"))
    says = "covariate event: comet not seen in training, replaced by the mean of the trained categories"
    assert says in caplog.messages[-1]
    with pytest.raises(UserError, match="event"):
        forecaster.predict(frame.drop(columns="event"))
    forecaster.fine_tune(frame.assign(event=frame["event"].replace("fair", "comet")), max_steps=1)
    assert forecaster.task.covariate_categories == (("fair", "none", "storm"),)


COLUMNS: dict[str, Any] = {"future_covariates": ["promotion"], "static": ["region"]}


def futures(frame: pd.DataFrame, days: int = T) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A promotion on every day after the end, and on none."""
    parts = []
    for name, part in frame.groupby("unique_id"):
        stamps = pd.date_range(part["ds"].max() + pd.Timedelta(days=1), periods=days, freq="D")
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps, "promotion": 1.0}))
    always = pd.concat(parts, ignore_index=True)
    return always, always.assign(promotion=0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Forecaster]:
    folder = tmp_path_factory.mktemp("scenarios") / "run"
    return folder, Forecaster(**{**SMALL, "max_steps": 5}, **COLUMNS).fit(promotions(150), folder=folder)


def test_each_is_as_if_it_were_alone(run: tuple[Path, Forecaster]) -> None:
    _, fitted = run
    always, never = futures(promotions(150))
    alone = [fitted.predict(future=one) for one in (always, never)]
    assert (alone[0]["predictions"] != alone[1]["predictions"]).all()
    for given, names in (([always, never], [0, 1]), ({"all": always, "none": never.sample(frac=1)}, ["all", "none"])):
        found = fitted.predict(future=given)
        assert list(found.columns[:4]) == ["unique_id", "ds", "scenario", "predictions"]
        assert found["scenario"].unique().tolist() == names
        for name, one in zip(names, alone, strict=True):
            part = found[found["scenario"] == name].drop(columns="scenario").reset_index(drop=True)
            pd.testing.assert_frame_equal(part, one)
    batches = pd.concat([*fitted.predict_batches(future=[always, never])], ignore_index=True)
    pd.testing.assert_frame_equal(batches, fitted.predict(future=[always, never]))
    figure = fitted.plot(fitted.predict(future={"all": always, "none": never}))
    assert entries(figure) == ["observed", "all", "none"]


def test_what_is_no_scenario_is_refused(run: tuple[Path, Forecaster]) -> None:
    _, fitted = run
    always, never = futures(promotions(150))
    with pytest.raises(UserError, match="future is empty"):
        fitted.predict(future=[])
    with pytest.raises(UserError, match=r"a scenario in future must be a text or a number, not \('a', 1\)"):
        fitted.predict(future={("a", 1): always})
    with pytest.raises(UserError, match=r"stops early: series north has no value at .*, step 12 of the 12 to forecast"):
        fitted.predict(future=[always, never[: T - 1]])
    renamed = Forecaster(**{**SMALL, "max_steps": 1}, **COLUMNS, id_column="scenario")
    renamed.fit(promotions(150).rename(columns={"unique_id": "scenario"}))
    with pytest.raises(UserError, match="rename column scenario of the series: the forecast has a column of that name"):
        renamed.predict(future=[one.rename(columns={"unique_id": "scenario"}) for one in (always, never)])


def test_the_command_line_writes_the_same(
    run: tuple[Path, Forecaster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, fitted = run
    promotions(150).to_csv(tmp_path / "history.csv", index=False)
    always, never = futures(promotions(150))
    always.to_csv(tmp_path / "a.csv", index=False)
    never.to_csv(tmp_path / "b.csv", index=False)
    words = ["predict", f"--run={folder}", f"--input={tmp_path / 'history.csv'}", f"--output={tmp_path / 'out.csv'}"]
    assert main([*words, "--future", str(tmp_path / "a.csv"), f"--future={tmp_path / 'b.csv'}"]) == 0
    assert "2 scenarios, in original units" in capsys.readouterr().out
    written = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
    pd.testing.assert_frame_equal(written, fitted.predict(future=[always, never]), rtol=1e-5, check_dtype=False)
    assert (tmp_path / "out_plot.png").exists()
