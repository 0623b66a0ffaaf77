"""Forecasts on a Ray cluster: the numbers of one machine."""

from __future__ import annotations

import logging

import pandas as pd
import pytest

from tests.forecaster.toys import frame_of
from tsattn import Forecaster
from tsattn.errors import UserError
from tsattn.forecaster import predict_dataset

ray = pytest.importorskip("ray", reason="ray is not installed, so nothing is forecast on a cluster")

pytestmark = pytest.mark.slow


def test_a_dataset_is_forecast_whatever_block_its_rows_lie_in(
    fitted: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray.data

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    table = frame_of({f"s{number}": 90 + 11 * number for number in range(8)})
    with pytest.raises(UserError, match=r"predict_dataset takes a dataset of ray.data, not a DataFrame"):
        predict_dataset(fitted, table)
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        scattered = table.sample(frac=1, random_state=5)
        dataset = ray.data.from_pandas([scattered[:400], scattered[400:]])
        found = predict_dataset(fitted, dataset, horizon=5, blocks=2).to_pandas()
        with pytest.raises(UserError, match="no time column found in the dataset"):
            predict_dataset(fitted, ray.data.from_pandas(table[["unique_id", "y"]]))
    finally:
        ray.shutdown()
    expected = fitted.predict(table, horizon=5)
    found = found.sort_values(["unique_id", "ds"], ignore_index=True)[expected.columns]
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, check_dtype=False)
    with pytest.raises(UserError, match="the forecaster is not fitted yet"):
        predict_dataset(Forecaster(prediction_length=4), None)
