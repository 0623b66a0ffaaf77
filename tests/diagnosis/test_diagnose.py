"""Every planted fault is found, where it was planted and nothing beside it; a clean table gives no finding."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tsattn.cli import main
from tsattn.diagnosis import KINDS, diagnose, outliers
from tsattn.errors import UserError

REAL = Path(os.environ.get("TSATTN_DATA", "."))
ROWS = 500


def clean(**columns: Any) -> pd.DataFrame:
    """Three series of hourly waves with noise that remembers, of different lengths and sizes, in any order of rows."""
    parts = []
    for number, name in enumerate("abc"):
        rng = np.random.default_rng([7, number])
        rows = ROWS - 40 * number
        noise = np.zeros(rows)
        for t in range(1, rows):
            noise[t] = 0.7 * noise[t - 1] + rng.standard_normal()
        y = 10.0**number * (20 + 5 * np.sin(2 * np.pi * np.arange(rows) / 24) + noise)
        stamps = pd.date_range("2024-03-01", periods=rows, freq="h")
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": y, "kind": "x"}))
    frame = pd.concat(parts, ignore_index=True)
    for name, values in columns.items():
        frame[name] = values(frame) if callable(values) else values
    return frame


def weather(frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """An honest covariate, that the target partly depends on: half of it, half noise."""
    by_series = frame.groupby("unique_id")["y"]
    rng = np.random.default_rng(0)
    return ((frame["y"] - by_series.transform("mean")) / by_series.transform("std")).to_numpy() + rng.standard_normal(
        len(frame)
    )


def promotion(frame: pd.DataFrame) -> Any:
    return np.random.default_rng(2).random(len(frame)) < 0.3


def kinds(found: pd.DataFrame) -> list[tuple[Any, str, str, int]]:
    return [*zip(found["series"], found["column"], found["kind"], found["count"], strict=True)]


def test_a_clean_table_gives_no_finding() -> None:
    for frame in (clean(), clean().sample(frac=1, random_state=0), clean().astype({"ds": str})):
        found = diagnose(frame, context_length=48, prediction_length=12)
        assert found.columns.tolist() == ["series", "column", "kind", "count", "where", "sentence"]
        assert not len(found), found
    honest = clean(weather=weather, promotion=promotion)
    honest["y"] += 10 * honest["promotion"]
    roles: dict[str, Any] = {"past_covariates": ["weather"], "future_covariates": ["promotion"]}
    assert not len(diagnose(honest, prediction_length=12, **roles))
    wide = clean().pivot_table(index="ds", columns="unique_id", values="y").iloc[: ROWS - 80]
    assert not len(diagnose(wide, prediction_length=24))
    steps = clean().assign(ds=clean().groupby("unique_id").cumcount())
    assert not len(diagnose(steps, prediction_length=24))


def without(frame: pd.DataFrame, *places: int) -> pd.DataFrame:
    return frame.drop(index=[*places])


def changed(frame: pd.DataFrame, column: str, places: Any, value: Any) -> pd.DataFrame:
    frame = frame.copy()
    frame.loc[places, column] = value
    return frame


FAULTS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], tuple[Any, str, str, int], str]] = {
    "gap": (lambda f: without(f, 5, 6, 7, 100), ("a", "ds", "gap", 4), "after 2024-03-01 04:00"),
    "repeated": (lambda f: pd.concat([f, f.iloc[[3, 9]]]), ("a", "ds", "repeated", 2), "2024-03-01 03:00"),
    "missing": (lambda f: changed(f, "y", [8, 9, 50], np.nan), ("a", "y", "missing", 3), "2024-03-01 08:00"),
    "irregular": (
        lambda f: changed(f, "ds", [20], pd.Timestamp("2024-03-01 20:07")),
        ("a", "ds", "irregular", 1),
        "2024-03-01 20:07",
    ),
    "constant": (lambda f: changed(f, "y", f["unique_id"] == "b", 3.0), ("b", "y", "constant", 460), "ever"),
    "spike": (lambda f: changed(f, "y", [200, 300], [90.0, -60.0]), ("a", "y", "outlier", 2), "2024-03-09 08:00"),
    "spike at the end": (lambda f: changed(f, "y", [495], 200.0), ("a", "y", "outlier", 1), "2024-03-21 15:00"),
    "spike in a constant": (
        lambda f: changed(changed(f, "y", f["unique_id"] == "a", 5.0), "y", [77], 50.0),
        ("a", "y", "outlier", 1),
        "2024-03-04 05:00",
    ),
    "coarser series": (
        lambda f: f[(f["unique_id"] != "c") | (f["ds"].dt.hour == 0)],
        ("c", "ds", "frequency", 18),
        "2024-03-01",
    ),
    "coarser end": (
        lambda f: f[(f["unique_id"] != "a") | (f.index < 300) | (f["ds"].dt.hour % 6 == 0)],
        ("a", "ds", "frequency", 34),
        "2024-03-13 12:00:00 to 2024-03-21 18:00:00",
    ),
    "short": (
        lambda f: f[(f["unique_id"] != "c") | (f.groupby("unique_id").cumcount() < 59)],
        ("c", "ds", "short", 59),
        "everywhere",
    ),
    "scale": (lambda f: changed(f, "y", f["unique_id"] == "a", f["y"] / 100), ("c", "y", "scale", 1), "a is the least"),
    "category": (lambda f: changed(f, "kind", f["unique_id"] == "b", "rare"), ("", "kind", "category", 1), "rare"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_nothing_else(fault: str) -> None:
    plant, expected, where = FAULTS[fault]
    table = plant(clean())
    options: dict[str, Any] = {"context_length": 48, "prediction_length": 12, "static": ["kind"]}
    found = diagnose(table, **options)
    if fault == "coarser series":  # so few rows are short, too, and nothing is said of their steps
        found = found[found["kind"] != "short"]
    if fault == "irregular":  # and so its place on the grid is empty
        assert kinds(found).pop() == ("a", "ds", "gap", 1)
        found = found[:1]
    assert kinds(found) == [expected]
    assert where in found["where"].iloc[0]
    assert set(found["kind"]) <= {*KINDS}
    again = diagnose(table.sample(frac=1, random_state=1), **options)
    assert [row for row in kinds(again) if row[2] == expected[2]] == [
        row for row in kinds(found) if row[2] == expected[2]
    ]


def test_outliers_by_their_definition() -> None:
    rng = np.random.default_rng(3)
    values = np.tile(np.arange(12.0), 30) + 0.1 * rng.standard_normal(360)
    assert not len(outliers(values, 12))
    shifted = values + 50 * (np.arange(360) >= 200)
    assert not len(outliers(shifted, 12)), "a level that has shifted"
    for place in (0, 5, 180, 355, 359):
        spiked = values.copy()
        spiked[place] += 60
        assert outliers(spiked, 12).tolist() == [place]
        assert not len(outliers(np.where(np.arange(360) == place, np.nan, values), 12))
    wild = rng.standard_cauchy(360)
    assert len(outliers(wild, 12)) <= 3, "so many that it is how the series is"
    assert not len(outliers(values[:15], 12))


def test_empty_columns_and_what_cannot_be_read() -> None:
    frame = clean(nothing=np.nan)
    found = diagnose(frame, past_covariates=["nothing"], prediction_length=12)
    assert kinds(found) == [("", "nothing", "missing", len(frame))]
    with pytest.raises(UserError, match="is not a number"):
        diagnose(clean().astype({"y": object}).replace({"y": {clean()["y"][4]: "x"}}))
    with pytest.raises(UserError, match="has no past covariate column none"):
        diagnose(clean(), past_covariates=["none"])
    with pytest.raises(UserError, match=r"diagnose has no argument 'seperator' \(did you mean separator\?\); valid: "):
        diagnose(clean(), seperator=";")
    with pytest.raises(UserError, match="prediction_length must be at least 1"):
        diagnose(clean(), prediction_length=0)


OWN: dict[str, Any] = {"context_length": 24, "prediction_length": 12}


def said(frame: pd.DataFrame, kind: str = "missing", **roles: Any) -> dict[tuple[Any, str], str]:
    found = diagnose(frame, **OWN, **roles).query("kind == @kind")
    return dict(zip(zip(found["series"], found["column"], strict=True), found["sentence"], strict=True))


def fit(frame: pd.DataFrame, backbone: Any = "ridge", **roles: Any) -> tsattn.Forecaster:
    return tsattn.Forecaster(backbone, **OWN, **roles, max_steps=1, accelerator="cpu").fit(frame)


def test_empty_targets_are_said_to_be_refused_where_they_are() -> None:
    long = clean(z=np.nan).drop(columns="kind")
    refused = "every value is missing; the reader refuses that"
    assert said(long, target=["y", "z"]) == {("", "z"): f"{refused}: leave it out of the targets"}
    with pytest.raises(UserError, match="every value of z of series a is missing"):
        fit(long, target=["y", "z"])
    partly = long.assign(z=long["y"].where(long["unique_id"] != "b"))
    assert said(partly, target=["y", "z"]) == {("b", "z"): refused}
    with pytest.raises(UserError, match="every value of z of series b is missing"):
        fit(partly, target=["y", "z"])
    one = long.assign(y=long["y"].where(long["unique_id"] != "b"))[["unique_id", "ds", "y"]]
    assert said(one) == {("b", "y"): "every value is missing; the series is left out"}
    assert {*fit(one).predict()["unique_id"]} == {"a", "c"}
    none = one.assign(y=np.nan)
    assert said(none) == {("", "y"): f"{refused}: a target needs some"}
    with pytest.raises(UserError, match="every target of every series is missing"):
        fit(none)
    wide = clean().pivot_table(index="ds", columns="unique_id", values="y").assign(z=np.nan).iloc[:400]
    assert said(wide) == {("", "z"): "every value is missing: the column is left out"}
    assert {*fit(wide).predict()["unique_id"]} == {"a", "b", "c"}
    assert said(wide, target=["a", "z"]) == {("", "z"): f"{refused}: leave it out of the targets"}
    with pytest.raises(UserError, match="every value of z is missing"):
        fit(wide, target=["a", "z"])
    covariate = {"target": "y", "past_covariates": ["z"]}
    assert said(long, **covariate) == {("", "z"): f"{refused}: leave the covariate out"}
    with pytest.raises(UserError, match="every value of covariate z is missing"):
        fit(long, **covariate)


def test_more_gaps_than_are_filled_are_said_to_be_refused() -> None:
    frame = clean()[["unique_id", "ds", "y"]]
    half = frame.drop(index=range(5, 254))  # 249 of 500
    assert said(half, "gap")["a", "ds"].endswith("; they are filled as missing")
    assert len(fit(half).predict()) == 36
    more = frame.drop(index=range(5, 256))
    refused = "; that is 50.2% of its time stamps, and the reader refuses more than 50%: check its dates"
    assert refused in said(more, "gap")["a", "ds"]
    with pytest.raises(UserError, match=r"filling 50% of them is more than max_filled 0\.5 allows"):
        fit(more)
    far = frame.assign(ds=frame["ds"].where(frame.index != ROWS - 1, pd.Timestamp("2124-01-01")))
    assert "that is 99.9% of its time stamps" in said(far, "gap")["a", "ds"]


@pytest.mark.parametrize(("step", "is_refused"), [(1, True), (12, True), (13, False)])
def test_values_of_the_future_that_predict_needs_are_said_to_be_refused(step: int, is_refused: bool) -> None:
    frame = clean(promotion=promotion).drop(columns="kind").astype({"promotion": float})
    last = frame.groupby("unique_id").cumcount(ascending=False) < 20
    frame.loc[last, "y"] = np.nan
    place = ROWS - 20 + step - 1  # of series a
    frame.loc[[3, place], "promotion"] = np.nan
    roles = {"future_covariates": ["promotion"], "target": "y"}
    sentence = said(frame, **roles)["a", "promotion"]
    refused = "they are masked, but for 1 among the steps to forecast after the last target: `predict` refuses these"
    assert (refused in sentence) == is_refused
    assert sentence.endswith("they are masked") != is_refused
    network = fit(frame, {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2}, **roles)
    if is_refused:
        with pytest.raises(UserError, match=f"series a has no value at .*, step {step} of the 12 to forecast"):
            network.predict()
    else:
        assert len(network.predict()) == 36


def test_it_is_a_public_name_and_many_series_take_no_loop_of_calendars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tsattn.diagnose is diagnose
    made = []
    for name in ("Grid", "usual_frequency"):
        own = getattr(tsattn.diagnosis, name)
        monkeypatch.setattr(tsattn.diagnosis, name, lambda *given, own=own: made.append(own) or own(*given))
    stamps = pd.date_range("2020-01-01", periods=60, freq="D")
    frame = pd.DataFrame({"unique_id": np.repeat(np.arange(800), 60), "ds": np.tile(stamps, 800)})
    frame["y"] = np.random.default_rng(0).standard_normal(len(frame))
    assert not len(diagnose(frame, prediction_length=7))
    assert len(made) == 2


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ETTh1", {}),
        ("vic_electricity", {"time_column": "Time", "target": "Demand", "future_covariates": ["Temperature"]}),
        ("exchange_rate", {}),
    ],
)
def test_real_files_are_clean(name: str, options: dict[str, Any]) -> None:
    frame = pd.read_csv(REAL / f"{name}.csv", nrows=1500)
    assert not len(diagnose(frame, **options)), diagnose(frame, **options)


def test_the_command_says_and_writes_what_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, output = tmp_path / "shops.csv", tmp_path / "found.csv"
    without(clean(hint=1.0), 5, 6).rename(columns={"unique_id": "shop"}).to_csv(path, index=False, sep=";")
    words = ["datasets", "diagnose", str(path), "--id_column", "shop", "--target", "y", "--past_covariates", "hint"]
    words += ["--static", "kind", "--separator", ";", "--prediction_length", "12", "--output", str(output)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "gap: time stamps that are missing between others" in said
    assert "- a, ds (after 2024-03-01 04:00:00): 2 time stamps missing in 1 gap" in said
    assert set(pd.read_csv(output)["kind"]) == {"gap", "constant"}
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err
    clean().to_csv(path, index=False)
    assert main(["datasets", "diagnose", str(path), "--prediction_length", "12"]) == 0
    assert capsys.readouterr().out == f"{path}: nothing was found\n"
    for wrong, message in (([], "datasets diagnose FILE"), ([str(path), "--goal", "y"], "--goal")):
        assert main(["datasets", "diagnose", *wrong]) == 2
        assert message in capsys.readouterr().err
