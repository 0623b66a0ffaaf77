"""The main job on the real ETTh1, as the pages promise it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.baseline_scores import baseline_scores
from tests.conftest import REAL_ROOT
from tsattn.cli import main
from tsattn.data import CO2DataModule, PublicDataModule

pytestmark = pytest.mark.real_data

TINY = [
    "--model.backbone.d_model=16",
    "--attention",
    "{kind: mlr, ranks: [1, 1]}",
    "--data.context_length=24",
    "--data.eval_batch_size=512",
    "--trainer.max_steps=2",
    "--trainer.val_check_interval=2",
    "--trainer.accelerator=cpu",
]


@pytest.mark.parametrize(
    ("name", "horizon", "context", "windows", "mse", "mae"),
    [
        ("ETTh1", 96, 96, 2785, 0.367, 0.393),
        ("ETTh2", 96, 24, 2785, 0.269, 0.332),
    ],
)
def test_the_ridge_reads_its_known_errors_whatever_the_model_s_context(
    name: str, horizon: int, context: int, windows: int, mse: float, mae: float
) -> None:
    data = PublicDataModule(name, context_length=context, prediction_length=horizon, eval_batch_size=256)
    data.setup("fit")
    score = baseline_scores(data, only="ridge")["ridge (context 720)"]
    assert (round(score["mse_scaled"], 3), round(score["mae_scaled"], 3), score["windows"]) == (mse, mae, windows)


def test_fit_then_predict_beyond_a_shorter_file(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["fit", "--config", "etth1_mlr.yaml", "--run", str(run), *TINY]) == 0
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test_windows"] == 2785
    ridge = metrics["test"]["ridge (context 720)"]
    assert (round(ridge["mse_scaled"], 3), round(ridge["mae_scaled"], 3)) == (0.367, 0.393)
    table = pd.read_csv(f"{REAL_ROOT}/ETTh1.csv", parse_dates=["date"])
    cut = table.iloc[:-100]
    cut.to_csv(tmp_path / "cut.csv", index=False)
    words = ["predict", "--run", str(run), "--input", str(tmp_path / "cut.csv"), "--output", str(tmp_path / "out.csv")]
    assert main(words) == 0
    frame = pd.read_csv(tmp_path / "out.csv", parse_dates=["date"])
    assert frame.groupby("unique_id").size().to_dict() == dict.fromkeys(table.columns[1:], 96)
    for _, channel in frame.groupby("unique_id"):
        assert channel.date.iloc[0] == cut.date.iloc[-1] + pd.Timedelta(hours=1)
        assert channel.date.diff().dropna().eq(pd.Timedelta(hours=1)).all()


@pytest.mark.slow
def test_the_embedded_default_beats_seasonal_naive(tmp_path: Path) -> None:
    # its training starts from the ridge
    steps = ["--trainer.max_epochs=null", "--trainer.max_steps=80", "--trainer.val_check_interval=80"]
    assert main(["fit", "--config", "co2_mlr.yaml", "--run", str(tmp_path / "run"), *steps]) == 0
    test = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    assert test["transformer_mlr"]["mse_scaled"] < 0.5 * test["seasonal naive (52 steps)"]["mse_scaled"]
    assert test["transformer_mlr"]["windows"] == len(_co2_windows())


def _co2_windows() -> object:
    data = CO2DataModule()
    data.setup("fit")
    return data.windows("test")
