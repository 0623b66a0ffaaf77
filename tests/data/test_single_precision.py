"""What is said where single precision does not tell the values of a series apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsattn import Forecaster
from tsattn.data import MappedDataModule
from tsattn.data.reader import TableReader
from tsattn.data.single_precision import blurred_columns


def frame_of(sizes: dict[str, float], rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(rows), "y": size * (9 + rng.normal(size=rows))})
        for name, size in sizes.items()
    ]
    return pd.concat(parts, ignore_index=True)


def said(frame: pd.DataFrame, caplog: pytest.LogCaptureFixture, scaling: str) -> list[str]:
    caplog.clear()
    Forecaster("ridge", context_length=8, prediction_length=3, scaling=scaling, quantiles=None).fit(frame)
    return [message for message in caplog.messages if "single precision" in message]


def test_small_series_on_the_scale_of_a_large_one_are_named(caplog: pytest.LogCaptureFixture) -> None:
    frame = frame_of({"a": 1e9, "b": 1.0, "c": 1e6})
    assert [message.split(" change")[0] for message in said(frame, caplog, "global")] == ["1 of 3 series ('b')"]
    assert not said(frame, caplog, "series")
    assert not said(frame_of({"a": 1e4, "b": 1.0}), caplog, "global")


def test_an_outlier_that_made_the_scale_is_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = frame_of({"a": 1.0, "b": 1.0})
    frame.loc[10, "y"] = 1e9
    assert "1 of 2 series ('a')" in said(frame, caplog, "series")[0]
    frame.loc[10, "y"] = 1e3
    assert not said(frame, caplog, "series")


@pytest.mark.parametrize(
    ("fill", "share", "values"),
    [
        *((1e10, 0.0, "around ten"), (9e18, 0.3, "five"), (1e20, 0.0, "zero"), (9.97e36, 0.3, "around ten")),
        *((-3.4e38, 0.0, "five"), (1e10, 0.3, "zero")),
    ],
)
def test_a_fill_value_is_named_with_its_series_and_row(
    fill: float, share: float, values: str, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    y = {"around ten": rng.normal(10, 3, 300), "five": np.full(300, 5.0), "zero": np.zeros(300)}[values]
    y[(rng.random(300) < share) | (np.arange(300) == 20)] = fill
    good = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2020", periods=300), "y": rng.normal(10, 3, 300)})
    frame = pd.concat([good, good.assign(unique_id="b", y=y)], ignore_index=True)
    message = said(frame, caplog, "series")[0]
    first = pd.Timestamp("2020") + pd.Timedelta(int(np.abs(y - np.median(y)).argmax()), "D")
    assert message == (
        "1 of 2 series ('b') change by less than single precision tells apart: series b has the value "
        f"{fill:g} at {first}; empty that cell if it means missing"
    )


@pytest.mark.parametrize("kind", ["solar power", "intermittent sales", "weekly sales", "radiation"])
def test_honest_series_with_zeros_are_not_told(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    rng, hours = np.random.default_rng(0), np.arange(480)
    sun = np.maximum(0, np.sin((hours % 24 - 6) * np.pi / 12).round(12))
    sales = rng.uniform(1e5, 1e7, 480)
    values = {
        "solar power": 1e7 * sun * rng.uniform(0.3, 1, 480),
        "intermittent sales": np.where(rng.random(480) < 0.8, 0, sales),
        "weekly sales": np.where(hours % 7 == 0, 1000 * sales, 0),
        "radiation": 3.6e6 * sun,
    }[kind]
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=480, freq="h"), "y": values, "x": values})
    options = {"context_length": 8, "prediction_length": 3, "quantiles": None}
    Forecaster("ridge", target="y", past_covariates=["x"], **options).fit(frame)
    assert "empty that cell" not in caplog.text


@pytest.mark.parametrize("values", ["around ten", "five", "zero"])
def test_a_fill_value_in_every_second_row_is_told(values: str, caplog: pytest.LogCaptureFixture) -> None:
    y = {"around ten": np.random.default_rng(0).normal(10, 3, 301), "five": np.full(301, 5.0), "zero": np.zeros(301)}
    frame = pd.DataFrame({"unique_id": "a", "ds": np.arange(301), "y": y[values]})
    frame.loc[::2, "y"] = 9e18
    assert len(said(frame, caplog, "series")) == 1


def test_fill_values_of_one_channel_of_a_covariate_and_of_a_later_row(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), **{name: rng.normal(9, 1, 300) for name in "abcd"}})
    frame.loc[20, "b"] = 1e20
    assert "1 of 4 series ('b') change" in said(frame, caplog, "series")[0]
    frame.loc[20, ["b", "c"]] = 9.0, 1e20
    caplog.clear()
    options = {"context_length": 8, "prediction_length": 3, "quantiles": None}
    Forecaster("ridge", target="a", past_covariates=["b", "c", "d"], **options).fit(frame)
    assert "covariate c changes by less than single precision tells apart: it is 1e+20 at 2020-01-21" in caplog.text
    assert "covariate b" not in caplog.text
    frame.loc[[20, 290], "c"] = 9.0, 1e10
    caplog.clear()
    Forecaster("ridge", **options).fit(frame)
    assert "series c has the value 1e+10 at 2020-10-17 00:00:00, 1e+10 standard deviations from" in caplog.text


def test_they_are_those_whose_rounding_is_a_part_of_their_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps between series are no changes, nor is the rounding of constants; the same however rows are cut."""
    panel = TableReader.of({}).read(frame_of({"a": 1e-9, "b": 1e-3, "c": 0.0, "d": 3e-7}))
    scaled = panel.values + 5
    scaled[panel.starts[2] : panel.starts[3]] += np.spacing(5.0) * np.resize([0, 1], 60)[:, None]
    step = np.abs(np.diff(scaled.reshape(4, 60), axis=1)).mean(1)
    error = np.abs(scaled.astype(np.float32) - scaled).reshape(4, 60).mean(1)
    assert error[0] > step[0]
    assert error[1] < 0.001 * step[1]
    assert 0 < step[2] < 1e-15
    assert 0.1 * step[3] < error[3] < step[3]
    for piece in (1 << 20, 7):
        monkeypatch.setattr("tsattn.data.single_precision._PIECE", piece)
        assert blurred_columns(scaled, np.zeros((4, 1)), panel.starts).ravel().tolist() == [True, False, False, True]


OPTIONS = {"context_length": 8, "prediction_length": 3, "quantiles": None}


def test_far_values_of_new_rows_are_told_of_targets_and_covariates(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(10, 3, 300) for name in ("y", "p", "f")}
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), **columns})
    model = Forecaster("ridge", target="y", past_covariates=["p"], future_covariates=["f"], **OPTIONS).fit(frame)
    assert "standard deviations" not in caplog.text
    future = pd.DataFrame({"ds": pd.date_range("2020-10-27", periods=3), "f": [9.0, 9e18, 9.0]})
    model.predict(frame.assign(y=columns["y"] + 1e6 * (np.arange(300) == 295)), future=future)
    model.predict(frame.assign(p=columns["p"] + 9e9 * (np.arange(300) == 295)), future=future.assign(f=9.0))
    said = [message.split(",")[0] for message in caplog.messages if "standard deviations" in message]
    assert said == [
        "series y has the value 1.00001e+06 at 2020-10-22 00:00:00",
        "covariate f is 9e+18 in step 2 after the series",
        "covariate p is 9e+09 at 2020-10-22 00:00:00",
    ]


@pytest.mark.parametrize("column", ["y", "x"])
def test_a_far_value_of_a_mapped_panel_is_told_once(
    column: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = frame_of({"a": 1.0, "b": 1.0}, 300).assign(x=np.random.default_rng(1).normal(10, 3, 600))
    frame.loc[595, column] = 1e6
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    roles = {"target": ["y"], "past_covariates": ["x"]}
    data = MappedDataModule(str(tmp_path / "t.parquet"), context_length=8, prediction_length=3, **roles)
    data.setup("fit")
    for loader in (data.test_dataloader(), data.predict_dataloader()):
        list(loader)
    what = "series b has the value 1e+06 at 295" if column == "y" else "covariate x is 1e+06 at 295 of series b"
    assert [m.split(",")[0] for m in caplog.messages if "standard deviations" in m] == [what]


def test_a_product_that_starts_late_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2020", periods=300), "y": np.where(np.arange(300) < 290, 0, 5e6)})
    Forecaster("ridge", val_rows=15, test_rows=15, **OPTIONS).fit(frame)
    assert "empty that cell" not in caplog.text


def test_a_refit_says_nothing_twice(caplog: pytest.LogCaptureFixture) -> None:
    frame = frame_of({"a": 1.0}, 300)
    frame.loc[20, "y"] = 1e20
    Forecaster("ridge", **OPTIONS).fit(frame, refit=True)
    assert caplog.text.count("empty that cell") == 1
