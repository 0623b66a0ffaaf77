"""A run folder has one process that trains in it, whoever comes second."""

import json
import os
import pickle
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from tests.processes import Worker, signal_at, wait_for
from tsattn.cli import main
from tsattn.data import CSVDataModule
from tsattn.experiments.run_folder import RunFolder
from tsattn.training import ForecastingModule

TINY = "--model.backbone={kind: patchtst, d_model: 8, num_layers: 1, num_heads: 2}"
SIZES = ["--data.context_length=24", "--data.prediction_length=6", "--trainer.accelerator=cpu"]


def hold(path: Path) -> None:
    """What the process of another training does: it has the folder, until it is killed."""
    run = RunFolder(path)
    run.hold()
    path.with_name("held").touch()
    signal.pause()


def words(csv: Path, *more: str) -> list[str]:
    return ["fit", "--data=CSVDataModule", f"--data.path={csv}", *SIZES, TINY, *more]


def test_two_runs_of_one_second_have_a_folder_each(tmp_path: Path) -> None:
    named = [RunFolder.dated(tmp_path, "toy", "model") for _ in range(3)]
    while len({run.path for run in named}) > 1:  # a second has passed in between
        named = [RunFolder.dated(tmp_path, "toy", "model") for _ in range(3)]
    made = [run.create() for run in named]
    assert [run.path.name for run in made] == [named[0].path.name + end for end in ("", "_2", "_3")]
    assert all(run.checkpoints.is_dir() for run in made)


def test_a_folder_travels_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(RunFolder("x"))).path == Path("x")


def test_a_folder_that_was_taken_meanwhile_is_left_to_who_has_it(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    build = ForecastingModule.build

    def late(self: ForecastingModule, *given: Any) -> None:
        for path in tmp_path.glob("runs"):
            raise AssertionError(f"{path} is made before model and data are")
        for number in ("", "_2"):
            (tmp_path / "runs" / "toy" / "patchtst_standard" / f"now{number}").mkdir(parents=True)
        monkeypatch.setattr(ForecastingModule, "build", build)
        build(self, *given)

    monkeypatch.setattr(ForecastingModule, "build", late)
    folder = Path("runs") / "toy" / "patchtst_standard"
    monkeypatch.setattr(RunFolder, "dated", lambda *_: RunFolder(folder / "now", renamed=True))
    assert main(words(toy_csv, "--trainer.max_steps=2")) == 0
    assert [*(folder / "now").iterdir()] == [*(folder / "now_2").iterdir()] == []
    run = RunFolder(folder / "now_3")
    for file in (run.config, run.metrics, run.versions, run.curve, run.figure, run.best, run.last, run.checksums):
        assert file.exists(), file


def while_data_are_read(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """From now on something happens once between the check of a run folder and the making of it."""
    prepare = CSVDataModule.prepare_data

    def late(self: CSVDataModule) -> None:
        monkeypatch.setattr(CSVDataModule, "prepare_data", prepare)
        happens()
        prepare(self)

    monkeypatch.setattr(CSVDataModule, "prepare_data", late)


def test_a_named_folder_that_appears_while_data_are_read_stays(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    thesis = tmp_path / "run" / "thesis.tex"
    while_data_are_read(monkeypatch, lambda: (thesis.parent.mkdir(), thesis.write_text("years of work")))
    assert main(words(toy_csv, "--trainer.max_steps=2", f"--run={thesis.parent}")) == 2
    assert "exists already; name another folder with --run" in capsys.readouterr().err
    assert [*thesis.parent.iterdir()] == [thesis]


def test_of_two_fits_in_one_folder_the_first_is_whole(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "run")
    fit = words(toy_csv, "--trainer.max_steps=2", f"--run={run.path}")
    first: list[Worker] = []

    def begin() -> None:
        first.append(Worker(fit, tmp_path, partial(signal_at, 0, signal.SIGSTOP)))
        wait_for(lambda: run.config.exists() or not first[0].process.is_alive())

    while_data_are_read(monkeypatch, begin)
    assert main(fit) == 2
    assert first[0].process.pid is not None
    state = Path(f"/proc/{first[0].process.pid}/stat")
    wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", first[0].said)
    os.kill(first[0].process.pid, signal.SIGCONT)
    assert first[0].end() == 0, first[0].said()
    assert main(["test", "--run", str(run.path)]) == 0


def test_a_folder_that_cannot_be_held_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFolder, "hold", lambda self: (self.path / "no" / "folder").touch())
    with pytest.raises(OSError, match="No such file"):
        RunFolder(tmp_path / "run").create()
    assert not (tmp_path / "run").exists()


def test_who_resumes_a_run_that_goes_on_elsewhere_is_told(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(words(toy_csv, "--trainer.max_steps=2", f"--run={run}")) == 0
    (run / "metrics.json").unlink()  # it has not come to its end
    holder = Worker([], tmp_path, partial(hold, run))
    wait_for((tmp_path / "held").exists, holder.said)
    capsys.readouterr()
    assert main(["fit", "--resume", str(run)]) == 2
    assert f"error: another process is training {run} now: wait until it ends, or stop it\n" in capsys.readouterr().err
    holder.kill()
    assert main(["fit", "--resume", str(run)]) == 0, "the lock ends with the process"
    assert (run / "metrics.json").exists()


def test_a_run_that_ended_while_it_was_waited_for_is_not_begun_again(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(words(toy_csv, "--trainer.max_steps=2", f"--run={run}")) == 0
    metrics = (run / "metrics.json").read_text()
    (run / "metrics.json").unlink()
    hold = RunFolder.hold

    def late(self: RunFolder) -> None:
        hold(self)
        (run / "metrics.json").write_text(metrics)

    monkeypatch.setattr(RunFolder, "hold", late)
    assert main(["fit", "--resume", str(run)]) == 2
    assert "is finished: its results are in" in capsys.readouterr().err
    assert json.loads((run / "metrics.json").read_text()) == json.loads(metrics)


def test_a_longer_training_validates_at_its_end_too(toy_csv: Path, tmp_path: Path) -> None:
    """Where nobody says how often: the limits of the former training are not taken for epochs that are asked for."""
    run = tmp_path / "run"
    assert main(words(toy_csv, "--trainer.max_steps=40", f"--run={run}")) == 0
    last = run / "checkpoints" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == 40
    assert main(["fit", "--resume", str(run), "--trainer.max_steps=60"]) == 0
    assert torch.load(last, weights_only=True)["global_step"] == 60
    validated = pd.read_csv(run / "metrics.csv").dropna(subset="val_mse_scaled").step
    assert validated.max() == 59
    assert ((validated > 40) & (validated < 59)).any()


def test_a_run_is_not_gone_on_with_from_another_checkpoint_than_was_written(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(words(toy_csv, "--trainer.max_steps=4", f"--run={run}")) == 0
    last, sums = run / "checkpoints" / "last.ckpt", run / "SHA256SUMS"
    checkpoint, written = torch.load(last, weights_only=True), sums.read_text()
    whole = last.read_bytes()
    torch.save({**checkpoint, "state_dict": {k: 1.5 * v for k, v in checkpoint["state_dict"].items()}}, last)
    assert main(["fit", "--resume", str(run), "--trainer.max_steps=6"]) == 2
    assert "is damaged: checkpoints/last.ckpt is missing or was changed" in capsys.readouterr().err
    last.write_bytes(whole)
    sums.write_text("")
    assert main(["test", "--run", str(run)]) == 2
    assert "is damaged: SHA256SUMS cannot be read" in capsys.readouterr().err
    sums.write_text(written)
    assert main(["fit", "--resume", str(run), "--trainer.max_steps=6"]) == 0


def test_last_is_written_at_every_validation_better_or_not(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, steps = tmp_path / "run", []
    log = ForecastingModule.log

    def worse(self: ForecastingModule, name: str, value: Any, **options: Any) -> None:
        if name == "val_mse_scaled":
            last = run / "checkpoints" / "last.ckpt"
            steps.append(torch.load(last, weights_only=True)["global_step"] if last.exists() else None)
            value = torch.tensor(1.0 + self.trainer.global_step)
        log(self, name, value, **options)

    monkeypatch.setattr(ForecastingModule, "log", worse)
    assert main(words(toy_csv, "--trainer.max_steps=9", "--trainer.val_check_interval=2", f"--run={run}")) == 0
    assert steps == [None, 2, 4, 6]
    steps = [
        torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)["global_step"] for name in ("best", "last")
    ]
    assert steps == [2, 9], "the end is kept where no validation falls on it"
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    assert pd.read_csv(run / "metrics.csv")["val_mse_scaled"].count() == 4
