"""What was saved is read on any machine, and damage and formats to come are refused.

`saved` holds a run and a saved Forecaster, with the forecasts that they gave when they were fitted: quantiles,
covariates of all kinds, static columns and a scale for each series.
"""

import copy
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import tsattn
from tsattn.backbones.task_network import CheckpointContent, read_content
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.saved_folders import write_checksums
from tsattn.training import ForecastingModule

pytestmark = pytest.mark.usefixtures("undrawn")

SAVED = Path(__file__).parent / "saved"
BEST = Path("checkpoints") / "best.ckpt"


def expected(name: str) -> pd.DataFrame:
    return pd.read_csv(SAVED / f"{name}_forecast.csv", parse_dates=["ds"])


def assert_same(forecast: pd.DataFrame, name: str) -> None:
    pd.testing.assert_frame_equal(forecast, expected(name), rtol=1e-5, check_dtype=False)


def checkpoint() -> dict[str, Any]:
    content: dict[str, Any] = torch.load(SAVED / "run" / BEST, map_location="cpu", weights_only=True)
    return content


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run, where `sales.csv` is in the working folder."""
    shutil.copytree(SAVED, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["run", "forecaster"])
def test_what_was_saved_forecasts_what_it_did(name: str, tmp_path: Path) -> None:
    before = tsattn.load(SAVED / name)
    assert_same(before.predict(SAVED / "sales.csv"), name)
    before.save(tmp_path / "again")
    after = tsattn.load(tmp_path / "again")
    assert (after.task, after.scaler) == (before.task, before.scaler)
    assert_same(after.predict(SAVED / "sales.csv"), name)


def test_the_commands_take_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--run", str(run)]) == 0
    assert_same(pd.read_csv(run / "forecast.csv", parse_dates=["ds"]), "run")
    assert main(["test", "--run", str(run)]) == 0
    assert "17 test windows" in capsys.readouterr().out


def test_a_checkpoint_holds_each_record_under_its_name() -> None:
    content = read_content(checkpoint())
    written: dict[str, Any] = {}
    content.write_to(written)
    assert list(written["tsattn"]) == ["format", "task", "scaler", "output", "predictor"]
    assert written["tsattn"]["format"] == 4
    assert "mean" not in written["tsattn"]["task"]
    again = read_content({"tsattn": json.loads(json.dumps(written["tsattn"]))})
    assert again == content
    assert isinstance(again, CheckpointContent)


SPOILT: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda saved: saved.update(format=5), "is of format 5, and this version of tsattn reads format 4"),
    (lambda saved: saved.update(format="two"), "is damaged: 'two' is no format number"),
    (lambda saved: saved.pop("scaler"), "is damaged: 'scaler'"),
    (lambda saved: saved["task"].update(mean=[0.0]), "is damaged: Task has no 'mean'"),
    (lambda saved: saved["task"].pop("channels"), "is damaged: Task lacks 'channels'"),
    (lambda saved: saved.update(task=None), "is damaged"),
    (lambda saved: saved["task"].update(season_length="7"), "damaged: Task: season_length must be a whole number"),
    (lambda saved: saved["scaler"].update(mean=[1e3, 1e3]), "damaged: a scaler needs a mean and a scale for each"),
    (lambda saved: saved["scaler"].update(scaling="own"), "damaged: scaling must be global or series, not own"),
    (lambda saved: saved["output"].update(quantiles=0.5), "is damaged"),
    (lambda saved: saved["output"].update(quantiles=[0.1]), "quantiles must include 0.5"),
]


def test_checkpoints_of_others_newer_and_damaged_ones_are_refused() -> None:
    written: dict[str, Any] = {}
    read_content(checkpoint()).write_to(written)
    for spoil, message in SPOILT:
        spoiled = copy.deepcopy(written)
        spoil(spoiled["tsattn"])
        with pytest.raises(UserError, match=message) as caught:
            read_content(spoiled)
        assert len(str(caught.value).splitlines()) == 1
    for content in ({}, {"tsattn": "0.1"}):
        with pytest.raises(UserError, match="the checkpoint was not written by tsattn"):
            read_content(content)


def saved_on_a_gpu(content: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a checkpoint whose numbers say that they lay on another device."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:7")
        torch.save(content, path)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(path, weights_only=True)


def test_a_run_that_was_trained_on_a_gpu_works_here(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_on_a_gpu(checkpoint(), run / BEST, monkeypatch)
    write_checksums(run, [run / BEST])
    assert_same(tsattn.load(run).predict(SAVED / "sales.csv"), "run")
    model = ForecastingModule.load_from_checkpoint(run / BEST, map_location="cpu", weights_only=True)
    assert {parameter.device.type for parameter in model.parameters()} == {"cpu"}
    assert main(["test", "--run", str(run)]) == 0
    shutil.copy(run / BEST, run / "checkpoints" / "last.ckpt")
    assert main(["fit", "--resume", str(run), "--trainer.max_steps=9"]) == 0


FOREIGN = {"the backbone": {"kind": "foreign_code.Net"}, "the attention": {"attention": "foreign_code.Attention"}}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_checkpoint_imports_nothing(what: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads it: its description is compared with that of the configuration before."""
    (run.parent / "foreign_code.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(str(run.parent))
    shutil.copytree(run, run.parent / "good")
    content = checkpoint()
    content["tsattn"]["predictor"] |= FOREIGN[what]
    content["hyper_parameters"]["backbone"] |= FOREIGN[what]
    for name in ("best.ckpt", "last.ckpt"):
        torch.save(content, run / "checkpoints" / name)
    write_checksums(run, [run / BEST])
    given = ["--config", str(run / "config.yaml"), "--ckpt_path", str(run / BEST)]
    commands: list[list[str]] = [
        *([command, *given] for command in ("predict", "test", "validate", "fit")),
        *([command, "--run", str(run)] for command in ("predict", "test", "export", "attention")),
        ["predict", "--run", str(run.parent / "good"), "--ckpt_path", str(run / BEST)],
        ["export", "--run", str(run.parent / "good"), "--ckpt_path", str(run / BEST)],
        *(["fit", option, str(run)] for option in ("--resume", "--start")),
    ]
    for words in commands if what == "the backbone" else commands[::4]:
        assert main(words) == 2, words
        assert "foreign_code" not in sys.modules, words
    forecaster = tsattn.load(run.parent / "good")
    for call in (
        lambda: tsattn.load(run),
        lambda: forecaster.fit(SAVED / "sales.csv", checkpoint=run / BEST),
        lambda: ForecastingModule.load_from_checkpoint(run / BEST),
        lambda: ForecastingModule.load_from_checkpoint(run / BEST, backbone="patchtst"),
    ):
        with pytest.raises(UserError, match=r"is of another model|not describe its backbone|imports no modules"):
            call()
    assert "foreign_code" not in sys.modules
