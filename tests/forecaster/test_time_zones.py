"""A model keeps the time zone that it was trained in, by whose clock calendar features are, however it is loaded."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import dateutil.tz
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import tsattn
from tests.forecaster.toys import L, T, frame_of, set_in_json
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.task import UNKNOWN_ZONE, Task

BERLIN, TOKYO = "Europe/Berlin", "Asia/Tokyo"


def in_zone(frame: pd.DataFrame, zone: str | None) -> pd.DataFrame:
    """The same instants; with None, without a zone."""
    return frame.assign(ds=frame["ds"].dt.tz_convert(zone) if zone else frame["ds"].dt.tz_localize(None))


@pytest.fixture(scope="module")
def local() -> pd.DataFrame:
    frame = frame_of()
    return frame.assign(ds=frame["ds"].dt.tz_localize(BERLIN))


@pytest.fixture(scope="module")
def run(local: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zones")
    local.to_parquet(folder / "local.parquet", index=False)
    sizes = {"context_length": L, "prediction_length": T}
    small = {"d_model": 16, "num_heads": 2, "num_layers": 1, "calendar": True}
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(folder / "local.parquet"), **sizes}},
        "model": {"backbone": {"kind": "transformer", **small}, "learning_rate": 0.01},
        "trainer": {"max_steps": 10, "accelerator": "cpu"},
    }
    tsattn.run(content, folder / "run")
    return folder / "run"


def values(forecast: pd.DataFrame) -> NDArray[np.float64]:
    return forecast["predictions"].to_numpy(np.float64)


def test_instants_in_another_zone_have_the_same_forecasts(run: Path, local: pd.DataFrame, tmp_path: Path) -> None:
    loaded = tsattn.load(run)
    expected, other = loaded.predict(local), loaded.predict(in_zone(local, TOKYO))
    np.testing.assert_array_equal(values(other), values(expected))
    assert (other["ds"] == expected["ds"]).all()
    assert str(other["ds"].dt.tz) == BERLIN
    by_the_same_clock = local.assign(ds=local["ds"].dt.tz_localize(None).dt.tz_localize(TOKYO))
    assert not np.allclose(values(loaded.predict(by_the_same_clock)), values(expected)), "the hour of the day counts"
    loaded.save(tmp_path / "model")
    saved = tsattn.load(tmp_path / "model")
    np.testing.assert_array_equal(values(saved.predict(in_zone(local, TOKYO))), values(expected))


def test_so_have_scores_of_the_run_on_a_file_that_is_in_another_zone_by_now(
    run: Path, local: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.parent / "local.parquet"
    before = file.read_bytes()

    def scored() -> str:
        assert main(["validate", f"--run={run}"]) == 0
        return capsys.readouterr().out

    try:
        expected = scored()
        in_zone(local, "UTC").to_parquet(file, index=False)
        assert scored() == expected
    finally:
        file.write_bytes(before)


def test_days_of_another_zone_are_no_days_of_this_one(local: pd.DataFrame) -> None:
    rows = local.groupby("unique_id").cumcount()
    days = local.assign(ds=pd.date_range("2023-06-01", periods=rows.max() + 1, tz=BERLIN)[rows.to_numpy()])
    naive = Forecaster("seasonal_naive", prediction_length=T).fit(days)
    utc = days.assign(ds=days["ds"].dt.tz_localize(None).dt.tz_localize("UTC"))
    with pytest.raises(
        UserError, match=r"days that begin at midnight in UTC, but .* is in Europe/Berlin, where that is no"
    ):
        naive.predict(utc)
    instants = naive.predict(days.assign(ds=days["ds"].dt.tz_convert("UTC")))
    pd.testing.assert_frame_equal(instants, naive.predict(days))


@pytest.mark.parametrize("zone", [dateutil.tz.gettz(BERLIN), dateutil.tz.tzoffset(None, 7200)])
def test_zones_without_a_name_that_leads_back_to_them_are_taken(zone: Any, local: pd.DataFrame, tmp_path: Path) -> None:
    frame = local.assign(ds=local["ds"].dt.tz_convert(zone))
    fitted = Forecaster("seasonal_naive", prediction_length=T).fit(frame)
    forecast = fitted.predict()
    assert (fitted.predict(frame)["ds"] == forecast["ds"]).all()
    assert (fitted.predict(local)["ds"] == forecast["ds"]).all()


def test_a_model_whose_zone_was_not_kept_takes_stamps_as_they_are_and_says_so(
    run: Path, local: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = tsattn.load(run)
    loaded.save(tmp_path / "model")
    task = json.loads((tmp_path / "model" / "forecaster.json").read_text())["task"]
    assert task["time_zone"] == BERLIN
    set_in_json(tmp_path / "model", task={**task, "time_zone": UNKNOWN_ZONE})
    old = tsattn.load(tmp_path / "model")
    with caplog.at_level(logging.WARNING, "tsattn"):
        forecast = old.predict(in_zone(local, "UTC"))
    says = [one.getMessage() for one in caplog.records if "the time zone of the model was not kept" in one.getMessage()]
    assert len(says) == 1
    assert says[0].endswith("time stamps are taken in theirs, UTC, as if that were the same")
    assert str(forecast["ds"].dt.tz) == "UTC"
    np.testing.assert_array_equal(values(old.predict(local)), values(loaded.predict(local)))


def test_a_task_agrees_with_one_whose_zone_is_not_known() -> None:
    sizes: dict[str, Any] = {"data": "mine", "context_length": 8, "prediction_length": 2, "channels": ("y",)}
    berlin, tokyo, unknown = (
        Task(**sizes, frequency="h", season_length=24, time_zone=zone) for zone in (BERLIN, TOKYO, UNKNOWN_ZONE)
    )
    assert berlin.agrees_with(unknown)
    assert unknown.agrees_with(berlin)
    assert not berlin.agrees_with(tokyo)
    assert not unknown.agrees_with(Task(**sizes, frequency="D", season_length=24, time_zone=BERLIN))
    assert Task.from_dict(berlin.to_dict()) == berlin
