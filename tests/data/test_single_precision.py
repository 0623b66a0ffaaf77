"""What is said where single precision does not tell the values of a series apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tsattn import Forecaster
from tsattn.data.reader import TableReader
from tsattn.data.single_precision import blurred_series


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
    assert blurred_series(scaled, panel).tolist() == [0, 3]
    monkeypatch.setattr("tsattn.data.single_precision._PIECE", 7)
    assert blurred_series(scaled, panel).tolist() == [0, 3]
