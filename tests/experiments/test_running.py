"""A run from Python: what comes back, what is written, and what is left as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import tsattn
from tests.experiments.golden import ENSEMBLE, NETWORK, described
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable


@pytest.mark.parametrize("backbone", ["ridge", ENSEMBLE], ids=["ridge", "ensemble"])
def test_a_folder_holds_the_run_and_nothing_is_left_of_it_elsewhere(
    backbone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = described(tmp_path, backbone)
    result = tsattn.run(content, "run", {"seed_everything": 3})
    assert {path.name for path in tmp_path.iterdir()} == {"run", "sales.csv"}
    folder = tmp_path / "run"
    assert result.folder == Path("run")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["key"] == result.key == tsattn.Experiment.read(folder / "config.yaml").key
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed_everything"] == 3
    assert json.loads((folder / "versions.json").read_text())["format"] == 2
    scores = result.scores
    assert list(scores.index)[1:] == list(metrics["test"])[1:]
    assert metrics["test"][scores.index[0]]["mse_scaled"] == scores["mse_scaled"].iloc[0]
    assert metrics["validation_error"] == result.fit["validation_error"]
    # each score is a reduction of the errors that were saved
    read = ErrorTable.read(folder / "errors.parquet")
    assert read.scores() == pytest.approx(result.errors.scores(), nan_ok=True)
    frame = result.errors.frame()
    assert frame["squared_scaled"].sum() / frame["count"].sum() == pytest.approx(scores["mse_scaled"].iloc[0])
    assert not frame.duplicated(["unique_id", "origin", "channel"]).any()


def test_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    content = described(tmp_path, NETWORK)
    first = tsattn.run(content)
    torch.rand(3)
    again, other = tsattn.run(content), tsattn.run(content, overrides={"seed_everything": 2})
    weights = [one.fitted.predictor.state_dict() for one in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError, match="exists already"):
        tsattn.run(described(tmp_path, "ridge"), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_nothing_is_left_of_a_run_that_cannot_begin(tmp_path: Path) -> None:
    content = described(tmp_path, NETWORK, data={"context_length": 500})
    with pytest.raises(UserError, match="context_length"):
        tsattn.run(content, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_a_test_the_test_part_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = tsattn.ForecastDataModule.eval_dataloader

    def eval_dataloader(self: Any, part: str, *args: Any, **options: Any) -> Any:
        assert part != "test"
        return loader(self, part, *args, **options)

    monkeypatch.setattr(tsattn.ForecastDataModule, "eval_dataloader", eval_dataloader)
    for backbone in (NETWORK, "ridge", ENSEMBLE):
        result = tsattn.run(described(tmp_path, backbone), test=False)
        assert not result.tables
        assert result.errors is None
        assert np.isfinite(result.fit["validation_error"])


@pytest.mark.parametrize(
    ("loss", "quantiles", "selection", "error"),
    [
        ("mae", [], None, "mae_scaled"),
        ("huber", [], None, "mse_scaled"),
        (None, [0.1, 0.5, 0.9], None, "crps_scaled"),
        (None, [0.1, 0.5, 0.9], "mae", "mae_scaled"),
        ("mse", [], "mae", "mae_scaled"),
    ],
)
def test_weights_are_selected_by_the_validation_error_of_what_is_trained(
    loss: str | None, quantiles: list[float], selection: str | None, error: str, tmp_path: Path
) -> None:
    options = {"loss": loss, "quantiles": quantiles, "selection": selection}
    content = described(tmp_path, NETWORK, **options, data={"val_windows": "all"})
    result = tsattn.run(content, tmp_path / "run")
    assert result.fit["selected_by"] == error
    # what is written down is the error of the weights that were chosen, over all validation windows
    curve = np.genfromtxt(tmp_path / "run" / "metrics.csv", delimiter=",", names=True)
    errors = curve[f"val_{error}"]
    assert result.fit["validation_error"] == pytest.approx(np.nanmin(errors), rel=1e-6)
