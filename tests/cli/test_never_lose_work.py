"""A training that is killed goes on to the result of an unbroken one; several processes train as one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.processes import Worker, limit_files, signal_at
from tsattn.cli import main
from tsattn.predictors.network import NetworkPredictor
from tsattn.training import ForecastingModule
from tsattn.training.checkpoint_io import AtomicCheckpointIO

pytestmark = pytest.mark.usefixtures("undrawn")

MODEL = "--model.backbone={kind: transformer, d_model: 16, num_heads: 2, dropout: 0.3}"
SIZES = ["--data.context_length=24", "--data.prediction_length=8", "--data.batch_size=64"]
DATA = ["fit", "--data=CSVDataModule", *SIZES, MODEL, "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=2"]

# seven batches of 64 windows an epoch
WAYS = {
    "epochs": ["--trainer.max_epochs=4"],
    "steps": ["--trainer.max_steps=21", "--trainer.val_check_interval=5"],
    "accumulated": ["--trainer.max_epochs=5", "--trainer.accumulate_grad_batches=2"],
}


def words(csv: Path, run: Path, way: str) -> list[str]:
    return [*DATA, f"--data.path={csv}", *WAYS[way], f"--run={run}"]


def stopped(step: int, number: int, command: list[str], folder: Path) -> Worker:
    """A command that ended by a signal at a step."""
    worker = Worker(command, folder, partial(signal_at, step, number))
    worker.end()
    return worker


def result(run: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    del metrics["training"]
    return metrics


def curve(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv").sort_values("step", kind="stable").reset_index(drop=True)


@pytest.fixture(scope="module")
def long_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, hours = np.random.default_rng(0), np.arange(600)
    wave = np.sin(2 * np.pi * hours / 24) + 0.3 * rng.standard_normal(600)
    path = tmp_path_factory.mktemp("data") / "toy.csv"
    stamps = pd.date_range("2020-01-01", periods=600, freq="h")
    pd.DataFrame({"date": stamps, "wave": wave, "walk": rng.standard_normal(600).cumsum()}).to_csv(path, index=False)
    return path


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", list(WAYS))
def test_a_killed_run_goes_on_to_the_result_of_an_unbroken_one(long_csv: Path, tmp_path: Path, way: str) -> None:
    assert main(words(long_csv, tmp_path / "whole", way)) == 0
    kill = 9
    # before the first checkpoint, in the middle of an epoch, and after one; then once more in the run that went on
    for number, step in enumerate((2, 8, 12)):
        run = tmp_path / f"run{number}"
        assert stopped(step, kill, words(long_csv, run, way), tmp_path).end() == -kill
        assert not (run / "metrics.json").exists()
        if number == 1:
            assert stopped(step + 3, kill, ["fit", "--resume", str(run)], tmp_path).end() == -kill
        assert main(["fit", "--resume", str(run)]) == 0
        assert result(run) == result(tmp_path / "whole")
        pd.testing.assert_frame_equal(curve(run), curve(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", ["epochs", "accumulated"])
def test_ctrl_c_saves_after_a_whole_step(long_csv: Path, tmp_path: Path, way: str) -> None:
    run, interrupt = tmp_path / "run", 2
    ended = stopped(4, interrupt, words(long_csv, run, way), tmp_path)
    assert ended.end() == 130, ended.said()
    assert ended.said().splitlines()[-1] == f"interrupted: go on with `python -m tsattn fit --resume {run}`"
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 5
    moved = tmp_path / "elsewhere"  # a run folder may be moved
    shutil.move(run, moved)
    assert main(["fit", "--resume", str(moved)]) == 0
    assert main(words(long_csv, tmp_path / "whole", way)) == 0
    assert result(moved) == result(tmp_path / "whole")


def test_only_an_unfinished_run_goes_on(long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    short = [*words(long_csv, run, "steps"), "--trainer.max_steps=1"]
    assert main(short) == 0
    (tmp_path / "empty").mkdir()
    for command, message in (
        (["--resume", str(run)], f"the run {run} is finished: its results are in {run / 'metrics.json'}"),
        (["--resume", str(tmp_path / "none")], f"the run folder {tmp_path / 'none'} is not there"),
        (["--resume", str(tmp_path / "empty")], "is not the folder of a run: it has no config.yaml"),
        (["--resume", str(run), "--model.learning_rate=1"], "goes on with a run as it was, and takes no other option"),
        (["--resume"], "takes no other option"),
    ):
        capsys.readouterr()
        assert main(["fit", *command]) == 2
        assert message in capsys.readouterr().err


def test_a_run_killed_before_its_results_were_written_tests_again(long_csv: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(words(long_csv, run, "steps")) == 0
    before = result(run)
    (run / "metrics.json").unlink()
    assert main(["fit", "--resume", str(run)]) == 0
    assert result(run) == before


# several processes

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

# a command whose processes name the run folder by clocks of their own, as those do that do not begin in one second
APART = """
import os, sys
from tsattn.experiments import RunFolder
dated = RunFolder.dated
RunFolder.dated = lambda *names: RunFolder(f"{dated(*names).path}_{os.environ['RANK']}", renamed=True)
from tsattn.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("launcher", ["lightning", "torchrun"])
def test_two_processes_train_as_one_and_test_each_window_once(long_csv: Path, tmp_path: Path, launcher: str) -> None:
    # 388 windows: the last batch of an epoch, of 4, is shared out evenly too
    same = [MODEL.replace("0.3", "0.0"), "--data.prediction_length=9"]
    one = [*words(long_csv, tmp_path / "one", "epochs"), *same]
    two = [*words(long_csv, tmp_path / "two", "epochs"), *same, "--data.batch_size=32"]
    two += ["--trainer.devices=2", "--trainer.strategy=ddp"]
    start = {"lightning": [sys.executable, "-m", "tsattn"], "torchrun": [*TORCHRUN, "-m", "apart"]}[launcher]
    if launcher == "torchrun":
        (tmp_path / "apart.py").write_text(APART)
        # before Python 3.12 torchrun takes --run for one of its own options: the folder is then the usual one
        two = [word for word in two if not word.startswith("--run")]
    assert main(one) == 0
    ended = subprocess.run(
        [*start, *two], capture_output=True, text=True, timeout=240, env=without_ranks(), cwd=tmp_path
    )
    if launcher == "torchrun":
        (folder,) = (tmp_path / "runs" / "toy" / "transformer_standard").iterdir()
        folder.rename(tmp_path / "two")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("training windows") == 1, "one process speaks"
    first, second = curve(tmp_path / "one"), curve(tmp_path / "two")
    np.testing.assert_allclose(second["train_loss"], first["train_loss"], rtol=1e-4)
    np.testing.assert_allclose(second["val_mse_scaled"], first["val_mse_scaled"], rtol=1e-4)
    ours, theirs = result(tmp_path / "one"), result(tmp_path / "two")
    assert ours["test_windows"] == theirs["test_windows"]
    assert theirs["test"]["transformer_standard"]["mse_scaled"] == pytest.approx(
        ours["test"]["transformer_standard"]["mse_scaled"], rel=1e-3
    )


def without_ranks() -> dict[str, str]:
    """The environment without what an earlier launch in this process may have left."""
    left = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {name: value for name, value in os.environ.items() if name not in left}


def test_other_commands_run_on_one_device(long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main([*words(long_csv, run, "steps"), "--trainer.max_steps=1"]) == 0
    assert main(["test", "--run", str(run), "--trainer.devices=2"]) == 2
    assert "test runs on one device, so that no window counts twice" in capsys.readouterr().err


# what can go wrong


def test_a_loss_that_is_no_number_ends_training_before_its_weights_are_saved(
    long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ForecastingModule.training_step

    def spoilt(self: ForecastingModule, batch: Any, batch_idx: int) -> Any:
        loss = whole(self, batch, batch_idx)
        return loss * float("nan") if self.trainer.global_step == 7 else loss

    monkeypatch.setattr(ForecastingModule, "training_step", spoilt)
    run = tmp_path / "run"
    assert main(words(long_csv, run, "epochs")) == 2
    message = capsys.readouterr().err
    assert "training diverged: the loss of step 8 (batch 1 of epoch 2) is not a number" in message
    assert f"the best weights so far are in {run / 'checkpoints' / 'best.ckpt'}" in message
    for name in ("best", "last"):
        checkpoint = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert checkpoint["global_step"] == 7
        assert all(weight.isfinite().all() for weight in checkpoint["state_dict"].values())


def test_too_little_memory_names_the_batch_size(
    long_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, batch: Any, batch_idx: int = 0) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(ForecastingModule, "training_step", full)
        assert main(words(long_csv, tmp_path / "run", "epochs")) == 2
    message = capsys.readouterr().err
    assert "has not the memory for batches of 64 windows: try --data.batch_size 32" in message
    monkeypatch.setattr(NetworkPredictor, "forward", full)
    assert main(words(long_csv, tmp_path / "other", "epochs")) == 2
    message = capsys.readouterr().err
    assert "has not the memory to forecast 113 windows at once: try --data.eval_batch_size 56" in message


@pytest.mark.slow
def test_a_full_disk_ends_with_one_sentence(long_csv: Path, tmp_path: Path) -> None:
    """Files may grow to 30 kB here, so that a checkpoint cannot be written, as on a full disk."""
    run = tmp_path / "run"
    ended = Worker(words(long_csv, run, "epochs"), tmp_path, partial(limit_files, 30_000))
    assert ended.end() == 2, ended.said()
    last = ended.said().splitlines()[-1]
    assert last.startswith(f"error: the checkpoint {run / 'checkpoints' / 'best.ckpt'} cannot be written")
    assert list((run / "checkpoints").iterdir()) == [], "nothing half written"


def test_a_checkpoint_is_whole_or_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)

    def full(content: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(ValueError, match=r"cannot be written: No space left on device; the checkpoint before it is"):
        AtomicCheckpointIO().save_checkpoint({"step": 2}, path)
    monkeypatch.undo()
    assert torch.load(path) == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]
