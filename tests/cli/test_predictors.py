"""Predictors that are no single network, through the commands: closed forms and ensembles."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tests.cli.toy_run import interrupted, refusal
from tests.processes import Worker, signal_at
from tsattn.cli import main
from tsattn.errors import rounded
from tsattn.experiments import RunFolder
from tsattn.training import ForecastingModule

NETWORK = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.2}
MEMBER = "{kind: patchtst, d_model: 8, num_heads: 2, num_layers: 1}"
ENSEMBLE = f"{{kind: ensemble, members: [ridge, {MEMBER}], weights: [0.5, 0.5], seeds: 2}}"
TRAINED = {"max_steps": 12, "val_check_interval": 3, "accelerator": "cpu"}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of a network, with options of its training, on a toy file."""
    folder = tmp_path_factory.mktemp("toy")
    rng, hours = np.random.default_rng(0), np.arange(400)
    wave = 10 + 3 * np.sin(2 * np.pi * hours / 24) + 0.3 * rng.standard_normal(400)
    table = {"date": pd.date_range("2020-01-01", periods=400, freq="h"), "wave": wave, "walk": wave[::-1] ** 2}
    pd.DataFrame(table).to_csv(folder / "toy.csv", index=False)
    sizes = {"context_length": 48, "prediction_length": 6, "batch_size": 32}
    content = {
        "data": {"class_path": "CSVDataModule", "init_args": {"path": str(folder / "toy.csv"), **sizes}},
        "model": {"backbone": NETWORK, "learning_rate": 0.01, "warmup_steps": 2},
        "trainer": TRAINED,
    }
    (folder / "toy.yaml").write_text(yaml.safe_dump(content))
    return folder / "toy.yaml"


def fit(config: Path, run: Path, *more: str) -> int:
    return main(["fit", "--config", str(config), f"--run={run}", *more])


def metrics(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    for member in [content, *(one for members in content.get("members", []) for one in members)]:
        member.pop("training", None)  # seconds
    return content


def weights(file: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return {name.removeprefix("network.backbone."): tensor for name, tensor in state.items()}


def assert_same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def predicted(run: Path, output: Path) -> pd.DataFrame:
    assert main(["predict", "--run", str(run), f"--output={output}", "--figure=false"]) == 0
    return pd.read_csv(output, parse_dates=["date"])


def row_of(name: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The row of a model in the table that a command prints."""
    capsys.readouterr()
    assert main(words) == 0
    return next(row for row in capsys.readouterr().out.splitlines() if row.startswith(f"{name} "))


def test_a_closed_form_takes_the_place_of_a_network(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, kind = tmp_path / "run", "seasonal_naive"
    assert fit(config, run, "--model.backbone", kind) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "toy: 2 channels, context 24 (that of seasonal_naive), horizon 6, 227 training windows",
        f"{kind}: nothing to fit",
        f"run folder: {run}",
    ]
    found = metrics(run)
    assert found["test_windows"] == 80 - 6 + 1
    assert found["selected_by"] == "mse_scaled"
    errors = {"test": found["test"][kind]["mse_scaled"], "validate": found["validation_error"]}
    for command, error in errors.items():
        assert rounded(error) in row_of(kind, [command, "--run", str(run)], capsys)
    frame = predicted(run, tmp_path / "out.csv")
    wave = pd.read_csv(config.with_name("toy.csv"))["wave"].to_numpy()
    np.testing.assert_allclose(frame[frame.unique_id == "wave"].predictions, wave[-24:-18], rtol=1e-5)


def test_the_ridge_is_the_one_that_is_measured_beside_a_network(config: Path, tmp_path: Path) -> None:
    assert fit(config, tmp_path / "network") == 0
    beside = metrics(tmp_path / "network")["test"]
    (name,) = (name for name in beside if name.startswith("ridge"))
    context = int(name.split()[-1].rstrip(")"))
    assert fit(config, tmp_path / "ridge", f"--model.backbone={{kind: ridge, context_length: {context}}}") == 0
    own = metrics(tmp_path / "ridge")["test"]["ridge"]
    assert own == pytest.approx(beside[name], rel=1e-12)


def test_a_closed_form_that_was_killed_is_fitted_again(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(config, tmp_path / "whole", "--model.backbone=ridge") == 0
    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr("tsattn.experiments.running.tables_with_baselines", interrupted)
        assert fit(config, run, "--model.backbone=ridge") == 130
    assert not (run / "metrics.json").exists()
    capsys.readouterr()
    assert main(["fit", "--resume", str(run)]) == 0
    assert f"resuming {run}\n" in capsys.readouterr().out
    assert metrics(run) == metrics(tmp_path / "whole")
    assert "is finished" in refusal(["fit", "--resume", str(run)], capsys)
    longer = ["fit", "--resume", str(run), "--trainer.max_steps=50"]
    assert "ridge is not trained in steps, so it cannot be trained longer" in refusal(longer, capsys)
    assert metrics(run) == metrics(tmp_path / "whole")


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unbroken run of the ensemble, which no test may change."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert fit(config, run, "--model.backbone", ENSEMBLE) == 0
    return run


def test_an_ensemble_is_fitted_and_tested(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("member_1_seed_0", "member_1_seed_1"):
        assert (whole / "members" / name / "checkpoints" / "best.ckpt").exists()
        assert pd.read_csv(whole / "members" / name / "metrics.csv").val_mse_scaled.notna().sum() == 4
    found = metrics(whole)
    (ridge,), networks = found["members"]
    assert ridge["chosen"]["maps"]
    assert [one["member"] for one in networks] == ["member_1_seed_0", "member_1_seed_1"]
    errors = {"test": found["test"]["ensemble"]["mse_scaled"], "validate": found["validation_error"]}
    for command, error in errors.items():
        assert rounded(error) in row_of("ensemble", [command, "--run", str(whole)], capsys)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 8])
def test_the_members_that_are_done_are_not_trained_again_after_a_kill(
    step: int,
    config: Path,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    words = ["fit", "--config", str(config), f"--run={run}", "--model.backbone", ENSEMBLE]
    kill = 9
    ended = Worker(words, tmp_path, partial(signal_at, step, kill, training=2))
    assert ended.end() == -kill, ended.said()
    assert (run / "members" / "member_1_seed_0" / "checkpoints" / "best.ckpt").exists()
    assert not (run / "metrics.json").exists()
    taken: list[int] = []
    train = ForecastingModule.training_step

    def counted(self: ForecastingModule, batch: Any, batch_idx: int) -> Any:
        taken.append(self.trainer.global_step)
        return train(self, batch, batch_idx)

    monkeypatch.setattr(ForecastingModule, "training_step", counted)
    capsys.readouterr()
    assert main(["fit", "--resume", str(run)]) == 0
    assert f"resuming {run} after step 12 of member_1_seed_0\n" in capsys.readouterr().out
    assert taken == list(range(6 if step else 0, 12)), "from the last checkpoint of the second network"
    assert metrics(run) == metrics(whole)
    assert_same_weights(weights(RunFolder(run).best), weights(RunFolder(whole).best))


def test_an_ensemble_is_trained_longer(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, of_one = tmp_path / "run", f"{{kind: ensemble, members: [ridge, {MEMBER}]}}"
    assert fit(config, run, "--model.backbone", of_one, "--trainer.max_steps=6") == 0
    before = metrics(run)
    shorter = ["fit", "--resume", str(run), "--trainer.max_steps=5"]
    assert main(shorter) == 2
    assert "is trained for 6 steps already, and --trainer.max_steps is 5" in capsys.readouterr().err
    assert metrics(run) == before
    first = weights(RunFolder(run).best)
    assert main(["fit", "--resume", str(run), "--trainer.max_steps=12"]) == 0
    assert json.loads((run / "metrics_step_6.json").read_text())["test"] == before["test"]
    for members in metrics(run)["members"][1:]:
        assert all(6 < member["best_step"] <= 12 for member in members)
    later = weights(RunFolder(run).best)
    assert not all(torch.equal(tensor, later[name]) for name, tensor in first.items()), "the predictor is the later one"
    row = row_of("ensemble", ["test", "--run", str(run)], capsys)
    assert rounded(metrics(run)["test"]["ensemble"]["mse_scaled"]) in row


def test_an_error_in_a_later_member_leaves_what_was_trained(
    config: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, run, seen = ForecastingModule.training_step, tmp_path / "run", []

    def spoilt(self: ForecastingModule, batch: Any, batch_idx: int) -> Any:
        seen.append(batch_idx)
        loss = train(self, batch, batch_idx)
        return loss if len(seen) < 15 else loss * float("nan")

    with monkeypatch.context() as patched:
        patched.setattr(ForecastingModule, "training_step", spoilt)
        assert fit(config, run, "--model.backbone", ENSEMBLE) == 2
    assert "training diverged: the loss of step 3" in capsys.readouterr().err
    assert (run / "members" / "member_1_seed_0" / "checkpoints" / "best.ckpt").exists()
    assert main(["fit", "--resume", str(run)]) == 0
    assert metrics(run) == metrics(whole)


@pytest.mark.parametrize("kind", ["theta", "tiny"])
def test_a_table_shorter_than_the_context_of_a_model_without_a_fit_is_fitted_and_drawn(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    days = np.arange(240)
    values = 10 + 3 * np.sin(2 * np.pi * days / 7) + np.random.default_rng(0).normal(size=240)
    table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=240), "y": values})
    table.to_csv(tmp_path / "days.csv", index=False)
    sizes = ["--data.context_length", "28", "--data.prediction_length", "7"]
    words = ["--data.class_path", "CSVDataModule", "--data.path", str(tmp_path / "days.csv"), *sizes]
    assert main(["fit", *words, f"--model.backbone={kind}", f"--run={tmp_path / 'run'}"]) == 0, capsys.readouterr().err
    run = RunFolder(tmp_path / "run")
    assert metrics(run.path)["test_windows"] == 42
    assert run.figure.exists()
    assert run.is_finished
