"""Forecasts on a Ray cluster: the numbers of one machine, whatever is killed."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pandas as pd
import pytest

from tests.forecaster.folders import die_after_a_partition, files_of, read_forecasts, split_table, toy_table
from tests.processes import Worker
from tsattn import Forecaster
from tsattn.cli import main
from tsattn.errors import UserError

ray = pytest.importorskip("ray", reason="ray is not installed, so nothing is forecast on a cluster")

pytestmark = pytest.mark.slow


def test_a_folder_is_forecast_on_a_cluster_that_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = split_table(tmp_path / "in")
    table.to_parquet(tmp_path / "whole.parquet", index=False)
    data = ["--data=CSVDataModule", f"--data.path={tmp_path / 'whole.parquet'}", "--data.context_length=24"]
    sizes = [*data, "--data.prediction_length=6", "--data.scaling=series", "--model.backbone=ridge"]
    assert main(["fit", *sizes, f"--run={tmp_path / 'run'}"]) == 0
    output = tmp_path / "out"
    words = ["predict", "--run", str(tmp_path / "run"), "--input", str(tmp_path / "in"), "--output", str(output)]
    worker = Worker([*words, "--ray", "local"], tmp_path, die_after_a_partition)
    assert worker.end() == -9, worker.said()
    before = files_of(output)
    assert before
    capsys.readouterr()
    assert main(words) == 0, "it goes on without a cluster, too"
    said = capsys.readouterr().out
    found = re.search(r"(\d) partitions? forecast, (\d) there already", said)
    assert found, said
    made, there = map(int, found.groups())
    assert made + there == 4
    assert len(before) <= there <= 4  # what a worker had begun may be whole after the command was killed
    assert before.items() <= files_of(output).items()
    single = ["predict", "--run", str(tmp_path / "run"), "--input", str(tmp_path / "whole.parquet"), "--figure=false"]
    assert main([*single, "--output", str(tmp_path / "single.parquet")]) == 0
    expected = pd.read_parquet(tmp_path / "single.parquet")
    pd.testing.assert_frame_equal(read_forecasts(output)[expected.columns], expected, rtol=1e-6)


def test_a_dataset_is_forecast_whatever_block_its_rows_lie_in(
    fitted: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray.data

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with pytest.raises(UserError, match=r"predict_dataset takes a dataset of ray.data, not a DataFrame"):
        fitted.predict_dataset(toy_table())
    table = toy_table()
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        scattered = table.sample(frac=1, random_state=5)
        dataset = ray.data.from_pandas([scattered[:400], scattered[400:]])
        found = fitted.predict_dataset(dataset, horizon=5, blocks=2).to_pandas()
        with pytest.raises(UserError, match="no time column found in the dataset"):
            fitted.predict_dataset(ray.data.from_pandas(table[["unique_id", "y"]]))
    finally:
        ray.shutdown()
    expected = fitted.predict(table, horizon=5)
    found = found.sort_values(["unique_id", "ds"], ignore_index=True)[expected.columns]
    pd.testing.assert_frame_equal(found, expected, rtol=1e-6, check_dtype=False)
    with pytest.raises(UserError, match="the forecaster is not fitted yet"):
        Forecaster(prediction_length=4).predict_dataset(None)
