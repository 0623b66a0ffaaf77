"""`calibrate=True`: intervals that hold what they say, at any level, wherever the model goes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.forecaster.toys import SMALL, L, T, entries, frame_of
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster

RIDGE: dict[str, Any] = {"backbone": "ridge", "context_length": L, "prediction_length": T, "accelerator": "cpu"}
SPLIT: dict[str, Any] = {"val_rows": 60, "test_rows": 30}


@pytest.fixture(scope="module")
def ridge() -> Forecaster:
    return Forecaster(**RIDGE, **SPLIT, calibrate=True).fit(frame_of({"one": 300}))


def bounds(frame: pd.DataFrame) -> list[str]:
    return [name for name in frame.columns if name.startswith("0.")]


def test_intervals_of_a_closed_form_are_those_of_its_validation_errors(ridge: Forecaster) -> None:
    plain, found = ridge.predict(), ridge.predict(level=[95, 80])
    assert bounds(plain) == []
    assert bounds(found) == ["0.025", "0.1", "0.5", "0.9", "0.975"]
    pd.testing.assert_frame_equal(found[plain.columns], plain)
    frame = frame_of({"one": 300})
    errors = np.array(
        [
            ridge.predict(frame[:origin])["predictions"].to_numpy() - frame["y"][origin : origin + T].to_numpy()
            for origin in range(210, 270 - T + 1)
        ]
    )
    assert len(errors) == 49
    for level, high in ((80, "0.9"), (95, "0.975")):
        width = np.sort(np.abs(errors), axis=0)[math.ceil(50 * level / 100) - 1]
        np.testing.assert_allclose(found[high] - found["predictions"], width, rtol=1e-3)
    assert ridge.result.fit["calibration"] == {
        **{"windows": 49, "least_observed": 49, "highest_level": 98.0, "series_of_their_own": 0}
    }


def test_what_a_fit_calibrates_is_asked_for_after_it() -> None:
    frame = frame_of({"a": 200})
    naive = Forecaster("seasonal_naive", context_length=24, prediction_length=T, calibrate=True)
    for ask in (lambda: naive.predict(frame, level=80), lambda: naive.evaluate(frame, level=80)):
        with pytest.raises(UserError, match=r"calibrated by a fit: call fit\(frame\) first$"):
            ask()
    assert "0.9" in naive.cross_validate(frame, 2, level=80).columns
    assert "0.9" in naive.fit(frame).predict(level=80).columns
    # and points have no paths, whether their intervals are calibrated or not
    with pytest.raises(UserError, match="no path can be drawn, calibrated or not: take a predictor of quantiles"):
        naive.sample()


def test_too_few_windows_for_a_level_are_told(ridge: Forecaster) -> None:
    with pytest.raises(UserError, match=r"level 99 needs 99 validation windows, .* are 49: ask for at most 98,"):
        ridge.predict(level=[80, 99])
    few = {**SMALL, "val_rows": T + 2, "test_rows": T, "calibrate": True, "quantiles": (0.1, 0.5, 0.9)}
    with pytest.raises(UserError, match="needs 4 validation windows for an interval of 80 %, and there are 3: hold"):
        Forecaster(**few).fit(frame_of({"one": 300}))
    with pytest.raises(UserError, match=r"calibrate: 0\.9 parts the rows for validation in two, of which"):
        Forecaster(**{**RIDGE, **SPLIT, "calibrate": 0.9}).fit(frame_of({"one": 300}))
    with pytest.raises(UserError, match="calibrate needs rows for validation, and no series has enough"):
        Forecaster(**RIDGE, calibrate=True).fit(frame_of({"one": L + T + 2}))
    for wrong in (1.5, 0, "yes", None):
        with pytest.raises(UserError, match="calibrate must be true, false, or the share"):
            Forecaster(**RIDGE, calibrate=wrong)


def test_a_share_keeps_what_calibrates_from_what_chooses() -> None:
    """The last half of the rows changes intervals alone, the first half the choice alone."""
    made = {"backbone": {"kind": "ridge", "alpha": [1.0, 1000.0]}, "calibrate": 0.5, "val_rows": 60, "test_rows": 12}
    frame = frame_of({"one": 300})
    first, last = frame.copy(), frame.copy()
    first.loc[228:257, "y"] += np.random.default_rng(0).normal(0, 3, 30)
    last.loc[258:287, "y"] += np.random.default_rng(0).normal(0, 3, 30)
    fits = [Forecaster(**{**RIDGE, **made}).fit(one) for one in (frame, first, last)]
    errors, widths = [], []
    for one in fits:
        assert (one.result.fit["validation_windows"], one.result.fit["calibration"]["windows"]) == (19, 19)
        errors.append(one.result.fit["validation_error"])
        forecast = one.predict(frame, level=80)
        widths.append(float((forecast["0.9"] - forecast["0.1"]).mean()))
    assert errors[0] == errors[2] != errors[1]
    assert widths[2] > 3 * widths[0]


def test_a_calibrated_model_is_saved_and_loaded(ridge: Forecaster, tmp_path: Path) -> None:
    ridge.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        *("SHA256SUMS", "conformal.safetensors", "forecaster.json", "history.safetensors", "model.safetensors")
    ]
    again = tsattn.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.predict(level=[50, 95]), ridge.predict(level=[50, 95]))
    (tmp_path / "model" / "conformal.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"damaged: conformal\.safetensors is not the file that was written"):
        tsattn.load(tmp_path / "model")


@pytest.fixture(scope="module")
def quantiles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Forecaster]:
    folder = tmp_path_factory.mktemp("calibrated") / "run"
    made = {**SMALL, "max_steps": 5, "quantiles": (0.1, 0.5, 0.9), "calibrate": True, **SPLIT}
    return folder, Forecaster(**made).fit(frame_of({"a": 300, "b": 250}), folder=folder, refit=True)


def test_quantiles_of_a_run_are_calibrated_wherever_they_are_read(
    quantiles: tuple[Path, Forecaster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, fitted = quantiles
    again, frame = tsattn.load(run), frame_of({"a": 300, "b": 250})
    assert again.arguments["calibrate"] is True
    for level in (None, [80, 95]):
        pd.testing.assert_frame_equal(again.predict(frame, level=level), fitted.predict(level=level))
    frame.to_csv(tmp_path / "new.csv", index=False)
    words = ["predict", f"--run={run}", f"--input={tmp_path / 'new.csv'}", "--figure=false"]
    for level, more in ((None, []), ([80, 95], ["--level", "[80, 95]"]), (95, ["--level=95"])):
        assert main([*words, *more, f"--output={tmp_path / f'{level}.csv'}"]) == 0
        written = pd.read_csv(tmp_path / f"{level}.csv", parse_dates=["ds"])
        pd.testing.assert_frame_equal(written, fitted.predict(level=level), rtol=1e-5, check_dtype=False)
    assert main([*words, "--level=99.9", f"--output={tmp_path / 'x.csv'}"]) == 2
    assert "level 99.9 needs 999 validation windows" in capsys.readouterr().err
    assert entries(fitted.plot(fitted.predict(level=[80, 95])))[-2:] == ["95 % interval", "80 % interval"]
    assert entries(fitted.plot(fitted.predict()))[-1] == "80 % interval"


def test_a_refit_keeps_the_scale_that_intervals_are_widened_on() -> None:
    """A step in the rows for validation, which a scale of all rows would see."""
    frame = frame_of({"a": 300})
    frame.loc[270:, "y"] += 40
    made = {"backbone": "ridge", "context_length": 24, "prediction_length": 4, "calibrate": True}
    widths = []
    for refit in (False, True):
        forecaster = Forecaster(**made).fit(frame, refit=refit)
        forecast = forecaster.predict(level=80)
        widths.append((forecast["0.9"] - forecast["0.1"]).to_numpy())
    np.testing.assert_allclose(widths[1], widths[0], rtol=1e-5)
