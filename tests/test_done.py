"""The ridge reads its known errors on real data, and the included default beats the seasonal naive forecast."""

import json
from pathlib import Path

import pytest

from tests.baseline_scores import baseline_scores
from tsattn.cli import main
from tsattn.data import CO2DataModule, PublicDataModule


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "horizon", "context", "windows", "mse", "mae"),
    [
        ("ETTh1", 96, 96, 2785, 0.357, 0.385),
        ("ETTh1", 720, 24, 2161, 0.425, 0.449),
        ("ETTh2", 192, 96, 2689, 0.341, 0.376),
        ("ETTh2", 336, 24, 2545, 0.381, 0.410),
        pytest.param("ETTm1", 96, 96, 11425, 0.283, 0.338, marks=pytest.mark.slow),
        pytest.param("ETTm2", 96, 24, 11425, 0.157, 0.248, marks=pytest.mark.slow),
    ],
)
def test_the_ridge_reads_its_known_errors_whatever_the_model_s_context(
    name: str, horizon: int, context: int, windows: int, mse: float, mae: float
) -> None:
    data = PublicDataModule(name, context_length=context, prediction_length=horizon, eval_batch_size=256)
    data.setup("fit")
    score = baseline_scores(data, only="ridge")["ridge (context 1024)"]
    assert (round(score["mse_scaled"], 3), round(score["mae_scaled"], 3), score["windows"]) == (mse, mae, windows)


@pytest.mark.slow
def test_the_embedded_default_beats_seasonal_naive(tmp_path: Path) -> None:
    steps = ["--trainer.max_epochs=null", "--trainer.max_steps=40", "--trainer.val_check_interval=40"]
    assert main(["fit", "--config", "co2_mlr.yaml", "--run", str(tmp_path / "run"), *steps]) == 0
    test = json.loads((tmp_path / "run" / "metrics.json").read_text())["test"]
    assert test["transformer_mlr"]["mse_scaled"] < 0.5 * test["seasonal naive (52 steps)"]["mse_scaled"]
    data = CO2DataModule()
    data.setup("fit")
    assert test["transformer_mlr"]["windows"] == len(data.windows("test"))
