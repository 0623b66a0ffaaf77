"""Who asks for a Chronos model: the command line, a study, a suite of the leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.chronos.tiny_models import weights_of
from tsattn.cli import main

SIZES = ["--data.context_length=24", "--data.prediction_length=6", "--data.batch_size=64", "--trainer.accelerator=cpu"]
SHORT = ["--trainer.max_steps=2", "--trainer.val_check_interval=1"]
SWAP = "{kind: chronos, weights: WEIGHTS, attention: {kind: mlr, ranks: [4, 2, 2]}, convert: rotate, trained: HOW}"


@pytest.fixture
def short_csv(tmp_path: Path, toy_frame: pd.DataFrame) -> Path:
    """The first 240 hours of the toy frame as a file."""
    path = tmp_path / "toy.csv"
    toy_frame.iloc[:240].to_csv(path)
    return path


@pytest.mark.usefixtures("undrawn", "short_ridge")
@pytest.mark.parametrize(("family", "trained"), [("t5", "lora"), ("bolt", "all"), ("chronos2", "attention")])
def test_the_command_line_trains_tests_predicts_and_goes_on(
    family: str, trained: str, short_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone = SWAP.replace("WEIGHTS", weights_of(family)).replace("HOW", trained)
    data = ["--data", "CSVDataModule", f"--data.path={short_csv}", *SIZES, "--data.val_windows=16"]
    run = tmp_path / "run"
    words = [*data, *SHORT, f"--model.backbone={backbone}", "--model.quantiles=[0.1, 0.5, 0.9]"]
    assert main(["fit", *words, "--run", str(run)]) == 0
    out = capsys.readouterr().out
    assert f"tiny-{family}_mlr: " in out
    assert "MASE" in out
    scores = json.loads((run / "metrics.json").read_text())["test"][f"tiny-{family}_mlr"]
    assert {"mase", "wql", "mse_scaled", "mae_scaled"} <= scores.keys()
    assert main(["test", "--run", str(run)]) == 0
    assert main(["predict", "--run", str(run), "--horizon", "9", "--output", str(tmp_path / "out.csv")]) == 0
    assert pd.read_csv(tmp_path / "out.csv").notna().all(axis=None)
    assert main(["fit", "--resume", str(run), "--trainer.max_steps", "3"]) == 0
    assert json.loads((run / "metrics.json").read_text())["training"]["steps"] == 3


@pytest.mark.usefixtures("undrawn", "short_ridge")
def test_one_attention_is_one_flag(short_csv: Path, tmp_path: Path) -> None:
    data = ["--data", "CSVDataModule", f"--data.path={short_csv}", *SIZES]
    plain = f"--model.backbone={{kind: chronos, weights: {weights_of('bolt')}}}"
    found = {}
    for name, words in {"plain": [], "swa": ["--attention", "swa", "--attention.window_size", "2"]}.items():
        assert main(["fit", *data, plain, *words, "--run", str(tmp_path / name)]) == 0
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())
        found[name] = metrics["test"]["tiny-bolt" if name == "plain" else "tiny-bolt_swa"]
    assert found["plain"] != found["swa"]


def test_a_typed_mistake_is_one_sentence(short_csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", "CSVDataModule", f"--data.path={short_csv}", *SIZES]
    for words, message in (
        ("{kind: chronos, weights: no-such}", "error: weights must be "),
        ("{kind: chronos, trained: most}", "error: trained must be null or one of all, attention, lora"),
        (f"{{kind: chronos, weights: {weights_of('bolt')}, attention: mlr, convert: project}}", "error: "),
    ):
        assert main(["fit", *data, f"--model.backbone={words}"]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err
