"""A table that was converted takes the place of a frame in all that a Forecaster does, with the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.data.mapped.tables_to_map import ROLES, converted, full_frame, saved
from tsattn import Forecaster, load
from tsattn.errors import UserError

TINY: dict[str, Any] = {"kind": "patchtst", "d_model": 8, "num_layers": 1, "num_heads": 2, "patch_len": 4, "stride": 4}
SIZES: dict[str, Any] = {"context_length": 12, "prediction_length": 6, "max_steps": 3, "accelerator": "cpu"}
COLUMNS: dict[str, Any] = {"target": ["y", "z"], **ROLES}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return full_frame()


@pytest.fixture(scope="module")
def folder(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("converted")
    assert converted(saved(frame, path / "t.parquet"), path / "sales", **COLUMNS).is_mapped
    return path / "sales"


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame, folder: Path) -> tuple[Forecaster, Forecaster]:
    """From the frame, and from the folder, whose columns need not be named."""
    one = Forecaster(TINY, quantiles=[0.1, 0.5, 0.9], **SIZES, **COLUMNS).fit(frame)
    return one, Forecaster(TINY, quantiles=[0.1, 0.5, 0.9], **SIZES).fit(folder)


def future_of(frame: pd.DataFrame) -> pd.DataFrame:
    rows = frame[frame["p"].eq(3.0)][["unique_id", "ds", "f", "g"]]
    return rows.assign(f=rows["f"] + 1)


def test_fits_and_forecasts_are_the_same(
    fitted: tuple[Forecaster, Forecaster], frame: pd.DataFrame, folder: Path, tmp_path: Path
) -> None:
    one, other = fitted
    assert other.series.panel.is_mapped
    expected = one.predict()
    pd.testing.assert_frame_equal(other.predict(), expected)
    pd.testing.assert_frame_equal(one.predict(folder), expected)
    pd.testing.assert_frame_equal(other.predict(frame), expected)
    future = future_of(frame)
    changed = one.predict(future=future)
    assert not changed["predictions"].equals(expected["predictions"])
    pd.testing.assert_frame_equal(other.predict(future=future), changed)
    pd.testing.assert_frame_equal(other.predict(folder, future=future), changed)
    other.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(), expected)


def test_scores_are_the_same(
    fitted: tuple[Forecaster, Forecaster], frame: pd.DataFrame, folder: Path, tmp_path: Path
) -> None:
    one, other = fitted
    later = frame.copy()
    later["ds"] += pd.Timedelta(200, "h")
    expected = one.evaluate(later, step=7)
    converted(saved(later, tmp_path / "later.parquet"), tmp_path / "later", **COLUMNS)
    for table in (later, tmp_path / "later"):
        pd.testing.assert_frame_equal(other.evaluate(table, step=7), expected, rtol=1e-6)
    by = {"by": "series", "step": 7}
    pd.testing.assert_frame_equal(other.evaluate(tmp_path / "later", **by), one.evaluate(later, **by), rtol=1e-6)
    with pytest.raises(UserError, match="there is nothing to score"):
        other.evaluate(folder)


def test_fine_tuning_scenarios_and_calibration_are_the_same(frame: pd.DataFrame, folder: Path) -> None:
    both = []
    for table, columns in ((frame, COLUMNS), (folder, {})):
        forecaster = Forecaster(TINY, quantiles=[0.1, 0.5, 0.9], calibrate=True, **SIZES, **columns).fit(table)
        future = future_of(frame)
        scenarios = forecaster.predict(future=[future, future.assign(f=future["f"] * 2)])
        tuned = forecaster.fine_tune(table, max_steps=2)
        both.append((scenarios, tuned.predict(), tuned.sample(num_samples=3, seed=1)))
    for ours, theirs in zip(*both, strict=True):
        pd.testing.assert_frame_equal(ours, theirs, rtol=1e-5)


def test_rolling_origins_are_the_same(frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.row_ranges._IN_MEMORY", 100)  # parts of a panel lie in files, too
    columns: dict[str, Any] = {"target": ["y", "z"], "past_covariates": ["p"], "static": ["kind"]}
    converted(saved(frame, tmp_path / "t.parquet"), tmp_path / "sales", **columns)
    sizes = {"context_length": 12, "prediction_length": 6}
    one = Forecaster("ridge", **sizes, **columns).cross_validate(frame, windows=2, refit=True)
    other = Forecaster("ridge", **sizes).cross_validate(tmp_path / "sales", windows=2, refit=True)
    pd.testing.assert_frame_equal(other, one, rtol=1e-6)
