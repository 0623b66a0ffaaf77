"""Frames of every kind are read alike: their names, types, time, files, and what is logged of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, T, frame_of, promotions, zoned
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster


@pytest.mark.parametrize("wide", [False, True])
def test_names_types_and_zones_of_the_frame_are_kept(wide: bool) -> None:
    stamps = pd.date_range("2024-03-30", periods=120, freq="h", tz="Europe/Berlin")  # over a change of clocks
    values = 5 + np.sin(2 * np.pi * np.arange(120) / 24)
    if wide:
        frame = pd.DataFrame({"when": stamps, "a": values, "b": 2 * values})
        names = {"time_column": "when"}
    else:
        rows = [pd.DataFrame({"item_id": n, "timestamp": stamps, "target": n * values}) for n in (7, 3)]
        frame, names = pd.concat(rows), {}
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}, quantiles=(), **names).fit(frame)
    forecast = forecaster.predict()
    expected = ["unique_id", "when"] if wide else ["item_id", "timestamp"]
    assert forecast.columns.tolist() == [*expected, "predictions"]
    assert forecast[expected[0]].drop_duplicates().tolist() == (["a", "b"] if wide else [3, 7])
    first = forecast[expected[1]].iloc[0]
    assert first == stamps[-1] + pd.Timedelta(hours=1)
    assert str(first.tz) == "Europe/Berlin"


def test_steps_are_counted_on(tmp_path: Path) -> None:
    wave = 5 + np.sin(2 * np.pi * np.arange(200) / 24)
    frame = pd.DataFrame({"a": wave, "b": 2 * wave})
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame[:180])
    forecast = forecaster.predict()
    assert forecast["ds"].tolist() == 2 * [*range(180, 180 + T)]
    assert forecaster.cross_validate(frame, windows=2)["cutoff"].unique().tolist() == [199 - 2 * T, 199 - T]
    assert forecaster.evaluate(frame)["windows"].tolist() == [20 - T + 1] * 3
    forecaster.plot(forecast, history=frame).canvas.draw()
    forecaster.save(tmp_path / "model")
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(), forecast)
    assert again.predict(frame)["ds"].iloc[0] == 200
    dates = frame.set_axis(pd.date_range("2020", periods=200, freq="h"))
    with pytest.raises(UserError, match="has time stamps, what the model was fitted on steps"):
        forecaster.predict(dates)
    for backbone in (
        {"calendar": True},
        {"attention": {"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["week", "day"]}}},
    ):
        described = {**SMALL, "max_steps": 2, "backbone": {**SMALL["backbone"], **backbone}}
        with pytest.raises(UserError, match="need time stamps, and the series count steps"):
            Forecaster(**described).fit(frame)


def test_files_are_taken_where_frames_are(fitted: Forecaster, shops: Forecaster, tmp_path: Path) -> None:
    frame, new = frame_of(), frame_of(more=20)
    frame.to_csv(tmp_path / "past.csv", index=False)
    new.to_parquet(tmp_path / "new.parquet")
    once = Forecaster(**{**SMALL, "max_steps": 2})
    expected = once.fit(frame).predict()
    pd.testing.assert_frame_equal(once.fit(str(tmp_path / "past.csv")).predict(), expected)
    pd.testing.assert_frame_equal(fitted.predict(tmp_path / "past.csv"), fitted.predict(frame))
    pd.testing.assert_frame_equal(fitted.evaluate(tmp_path / "new.parquet"), fitted.evaluate(new))
    assert len(once.cross_validate(tmp_path / "past.csv", windows=1)) == 4 * T
    assert fitted.plot(fitted.predict(), history=tmp_path / "past.csv").axes
    whole = promotions(400)
    whole[whole["ds"] >= "2024-01-15"].drop(columns=["y", "region"]).to_csv(tmp_path / "future.csv", index=False)
    past = whole[whole["ds"] < "2024-01-15"]
    future = pd.read_csv(tmp_path / "future.csv", parse_dates=["ds"])
    pd.testing.assert_frame_equal(
        shops.predict(past, future=tmp_path / "future.csv"), shops.predict(past, future=future)
    )
    with pytest.raises(UserError, match=r"nowhere.csv is not there"):
        fitted.predict("nowhere.csv")
    (tmp_path / "past.csv").write_text("unique_id,ds,y\na,2020-01-01,1\na,2020-01-02,x\n")
    with pytest.raises(UserError, match=r"past.csv, line 3: x in column y is not a number"):
        fitted.predict(tmp_path / "past.csv")


def test_a_pandas_series_is_a_frame_of_one_column() -> None:
    column = frame_of({"a": 200}).set_index("ds")["y"]
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(column.rename("sales"))
    assert forecaster.predict(column.rename("sales"))["unique_id"].unique().tolist() == ["sales"]
    assert Forecaster(**{**SMALL, "max_steps": 2}).fit(column.rename(None)).predict()["unique_id"].eq("y").all()


def test_a_column_that_nobody_named_is_said_to_be_unused(fitted: Forecaster, caplog: pytest.LogCaptureFixture) -> None:
    fitted.predict(frame_of().assign(weather=1.0))
    assert "the frame: column weather is not used" in caplog.text


def test_a_time_zone_on_one_side_only_is_refused(tmp_path: Path) -> None:
    berlin, plain = zoned("Europe/Berlin", frame_of()), zoned(None, frame_of())
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(berlin)
    forecaster.save(tmp_path / "model")
    for other in (forecaster, tsattn.load(tmp_path / "model")):
        for call in (other.predict, other.evaluate, lambda frame, other=other: other.plot(berlin, history=frame)):
            with pytest.raises(UserError, match="has no time zone, what the model was fitted on time zone Europe/Berl"):
                call(plain)
    with pytest.raises(UserError, match="the frame has time zone Europe/Berlin, what the model was fitted on no time"):
        forecaster.fit(plain).predict(berlin)


def test_ids_may_be_text_that_were_numbers(caplog: pytest.LogCaptureFixture) -> None:
    numbers = {"small": 1, "large": 2, "late": 3, "short": 40}
    frame, new = (part.replace({"unique_id": numbers}) for part in (frame_of(), frame_of(more=20)))
    forecaster = Forecaster(**{**SMALL, "max_steps": 2}).fit(frame)
    expected, scores = forecaster.predict(), forecaster.evaluate(new)
    caplog.clear()
    forecast = forecaster.predict(frame.astype({"unique_id": str}))
    assert "the ids are not those trained on, but their text is: '1' is taken for 1" in caplog.messages
    assert forecast["unique_id"].unique().tolist() == ["1", "2", "3", "40"], "as they were given"
    pd.testing.assert_frame_equal(forecast.drop(columns="unique_id"), expected.drop(columns="unique_id"))
    pd.testing.assert_frame_equal(forecaster.evaluate(new.astype({"unique_id": str})), scores)
    caplog.clear()
    some = frame.astype({"unique_id": str}).replace({"unique_id": {"1": "new"}})
    forecaster.predict(some)
    assert caplog.messages[:2] == [
        "the ids are not those trained on, but their text is: '2' is taken for 2",
        "1 of 4 series not trained on; each is scaled by the rows given of it",
    ]


@pytest.mark.parametrize("numbers", [(1, 2), (1.0, 2.0)])
def test_rows_of_the_fit_are_not_scored_beside_a_new_series(numbers: tuple[float, float]) -> None:
    """Whether ids are numbers or text, and whether all are known."""
    lengths = dict.fromkeys(("small", "large", "new"), 90)
    frame, new = frame_of(lengths), frame_of(lengths, more=T)
    ids = dict(zip(("small", "large"), numbers, strict=True))
    both = pd.concat([frame, new])
    fitted = Forecaster(**{**SMALL, "max_steps": 2}).fit(
        frame[frame["unique_id"] != "new"].assign(unique_id=lambda part: part["unique_id"].map(ids))
    )
    texts = both.assign(unique_id=both["unique_id"].map({"small": "1", "large": "2", "new": "new"}))
    windows = fitted.evaluate(texts, by="series").xs("persistence", level=0)["windows"]
    assert windows.loc[["1", "2"]].tolist() == [1, 1]
    assert windows.loc["new"] > 1
