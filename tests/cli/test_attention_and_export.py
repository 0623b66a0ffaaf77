"""`attention` and `export` as a person types them, on a toy run."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.toy_run import refusal
from tsattn import load
from tsattn.cli import main

WITHOUT = """
import json, sys, numpy as np, torch
extra = {"tsattn.json": ""}
program = torch.export.load(sys.argv[1], extra_files=extra).module()
assert "tsattn" not in sys.modules and json.loads(extra["tsattn.json"])["channels"] == ["wave", "drift"]
windows = {name: torch.from_numpy(part) for name, part in np.load(sys.argv[2]).items()}
np.save(sys.argv[3], program(**windows).numpy())  # which needs no gradients
"""


@pytest.fixture
def run(trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained[1], tmp_path / "run")
    shutil.copy(trained[0], tmp_path / "new.csv")
    return tmp_path / "run"


@pytest.mark.usefixtures("drawn")
def test_a_figure_and_a_table_are_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attention", "--run", str(run)]) == 0
    said = capsys.readouterr().out
    assert (
        "attention.png: attention of 2 layers, PatchTST with MLR attention, wave, context up to 2020-01-25 23:00"
        in said
    )
    assert (run / "attention.png").stat().st_size > 20_000
    assert main(["attention", "--run", str(run), "--output", "table.parquet", "--channel", "drift"]) == 0
    table = pd.read_parquet("table.parquet")
    layers = load(run).attention_weights("new.csv", channel="drift")
    assert list(table["layer"].unique()) == ["layer 0", "layer 1"]
    np.testing.assert_allclose(table["weight"], np.concatenate([one.weights.ravel() for one in layers]), rtol=1e-5)
    assert table["key"].max() == pd.Timestamp("2020-01-25 23:00:00")
    assert table["level 3"].notna().all()


def test_a_window_of_a_part_is_that_of_its_rows(run: Path) -> None:
    """The first test window follows the first 480 of 600 rows; it is what comes after a file that ends there."""
    assert main(["attention", "--run", str(run), "--window", "0", "--output", "window.csv"]) == 0
    pd.read_csv("new.csv")[:480].to_csv("until.csv", index=False)
    assert main(["attention", "--run", str(run), "--input", "until.csv", "--output", "until_table.csv"]) == 0
    window, until = pd.read_csv("window.csv"), pd.read_csv("until_table.csv")
    assert window["query"].max() == "2020-01-20 23:00:00"
    pd.testing.assert_frame_equal(window, until, rtol=1e-4)
    words = ["attention", "--run", str(run), "--part", "val", "--window", "-1"]
    assert main([*words, "--layer", "1", "--head", "mean", "--level", "2,3", "--output", "val.svg"]) == 0
    assert Path("val.svg").read_text().startswith("<?xml")


def test_an_exported_run_forecasts_without_this_package(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--run", str(run)]) == 0
    said = capsys.readouterr().out
    assert "takes context (batch, 48, 2) float64" in said
    assert "takes time (batch, 60) int64" in said, "the ridge of its linear path has waves"
    assert "gives forecast (batch, 12, 2) float64" in said
    assert "attention mlr is exported as plain operators" in said
    assert "model.pt2 exists already" in refusal(["export", "--run", str(run)], capsys)
    table = pd.read_csv("new.csv", index_col="date", parse_dates=True)
    parts = table[-48:], table[-60:-12], table[:48]
    time = np.stack([part.index[0].timestamp() + 3600 * np.arange(60) for part in parts]).astype(np.int64)
    np.savez("windows.npz", context=np.stack([part.to_numpy() for part in parts]), time=time)
    words = [sys.executable, "-c", WITHOUT, str(run / "model.pt2"), "windows.npz", "out.npy"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    forecaster = load(run)
    for row, history in enumerate((table, table[:-12])):
        expected = forecaster.predict(history)["predictions"].to_numpy().reshape(2, 12).T
        np.testing.assert_allclose(np.load("out.npy")[row], expected, rtol=1e-5)
