"""A training that is killed goes on to the result of an unbroken one; several processes train as one."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal as signals
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tests.cli.toy_run import refusal
from tests.processes import Worker, flushed_at_once, limit_files, signal_at, signal_in, then_in
from tsattn.backbones.task_network import write_checkpoint
from tsattn.cli import main
from tsattn.experiments import RunFolder
from tsattn.predictors.network import NetworkPredictor
from tsattn.training import ForecastingModule

MODEL = "--model.backbone={kind: transformer, d_model: 16, num_heads: 2, dropout: 0.3}"
SIZES = ["--data.context_length=24", "--data.prediction_length=8", "--data.batch_size=64"]
DATA = ["fit", "--data=CSVDataModule", *SIZES, MODEL, "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=2"]

# seven batches of 64 windows an epoch
WAYS = {
    "epochs": ["--trainer.max_epochs=2"],
    "steps": ["--trainer.max_steps=14", "--trainer.val_check_interval=5"],
    "accumulated": ["--trainer.max_epochs=4", "--trainer.accumulate_grad_batches=2"],
}


def words(csv: Path, run: Path, way: str) -> list[str]:
    return [*DATA, f"--data.path={csv}", *WAYS[way], f"--run={run}"]


def stopped(step: int, number: int, command: list[str], folder: Path) -> Worker:
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


@pytest.fixture(scope="module")
def whole(long_csv: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of an unbroken run of a way, which no test may change."""
    folder = tmp_path_factory.mktemp("whole")

    def run(way: str) -> Path:
        if not (folder / way).exists():
            assert main(words(long_csv, folder / way, way)) == 0
        return folder / way

    return run


# before the first checkpoint, in the middle of an epoch, and in the run that went on; for one way after an epoch
@pytest.mark.slow
@pytest.mark.parametrize(("way", "steps"), [("epochs", (8,)), ("steps", (2, 8, 12)), ("accumulated", (12,))])
def test_a_run_killed_again_and_again_goes_on_to_the_result_of_an_unbroken_one(
    long_csv: Path, whole: Callable[[str], Path], tmp_path: Path, way: str, steps: tuple[int, ...]
) -> None:
    run, kill = tmp_path / "run", 9
    command = words(long_csv, run, way)
    for step in steps:
        assert stopped(step, kill, command, tmp_path).end() == -kill
        assert not (run / "metrics.json").exists()
        assert (run / "checkpoints" / "last.ckpt").exists() == (step > 2)
        command = ["fit", "--resume", str(run)]
    assert main(command) == 0
    assert result(run) == result(whole(way))
    pd.testing.assert_frame_equal(curve(run), curve(whole(way)))


@pytest.mark.slow
@pytest.mark.parametrize(("way", "signal"), [("epochs", signals.SIGINT), ("accumulated", signals.SIGTERM)])
def test_an_interrupted_fit_saves_after_a_whole_step_and_says_how_to_go_on(
    long_csv: Path, whole: Callable[[str], Path], tmp_path: Path, way: str, signal: int
) -> None:
    run = tmp_path / "run"
    # of the epochs, after the first validation: what was best until then can be forecast with
    step = {"epochs": 9, "accumulated": 4}[way]
    ended = stopped(step, signal, words(long_csv, run, way), tmp_path)
    assert ended.end() == 130, ended.said()
    assert ended.said().splitlines()[-1] == f"interrupted: resume with `tsattn fit --resume {run}`"
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == step + 1
    moved = tmp_path / "elsewhere"  # a run folder may be moved
    shutil.move(run, moved)
    if way == "epochs":
        assert main(["predict", "--run", str(moved), "--output", str(tmp_path / "out.csv")]) == 0
    assert main(["fit", "--resume", str(moved)]) == 0
    assert result(moved) == result(whole(way))


PHASES = {
    "the folder is made": ("tsattn.experiments.running", "versions"),
    "training begins": ("tsattn.training.callbacks", "FiniteLoss.on_train_start"),
    "training ends": ("tsattn.training.callbacks", "FiniteLoss.on_train_end"),
    "results are written": ("tsattn.experiments.running", "write_checksums"),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["the folder is made", "training ends", "results are written"])
def test_a_fit_that_is_interrupted_says_how_to_get_the_result_of_an_unbroken_one(
    long_csv: Path, whole: Callable[[str], Path], tmp_path: Path, phase: str
) -> None:
    run = tmp_path / "run"
    ended = Worker(words(long_csv, run, "steps"), tmp_path, partial(signal_in, *PHASES[phase], signals.SIGTERM))
    assert ended.end() == 130, ended.said()
    assert "Traceback" not in ended.said()
    found = re.fullmatch(r"interrupted: .*`tsattn ([^`]*)`.*", ended.said().splitlines()[-1])
    assert found, ended.said()
    assert main(shlex.split(found[1])) == 0
    assert result(run) == result(whole("steps"))


@pytest.mark.slow
def test_a_fit_that_is_interrupted_as_it_says_its_results_names_them(long_csv: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    before = partial(signal_in, "tsattn.cli.fit", "_say_result", signals.SIGTERM)
    ended = Worker(words(long_csv, run, "steps"), tmp_path, before)
    assert ended.end() == 130, ended.said()
    assert ended.said().splitlines()[-1] == f"interrupted: the run is finished: its results are in {run}"
    assert main(["test", "--run", str(run)]) == 0


def test_only_an_unfinished_run_goes_on(
    whole: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = whole("steps")
    (tmp_path / "empty").mkdir()
    for command, message in (
        (["--resume", str(run)], f"the run {run} is finished: its results are in {run / 'metrics.json'}"),
        (["--resume", str(tmp_path / "empty")], "is not the folder of a run: it has no config.yaml"),
        (["--resume", str(run), "--model.learning_rate=1"], "keeps the configuration of the run; the only other"),
    ):
        assert message in refusal(["fit", *command], capsys)


def test_a_run_killed_before_its_results_were_written_tests_again(whole: Callable[[str], Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole("steps"), run)
    (run / "metrics.json").unlink()
    assert main(["fit", "--resume", str(run)]) == 0
    assert result(run) == result(whole("steps"))


def as_typed(typed: list[str]) -> None:
    """From now on this process is one of `python -m tsattn`: Lightning starts the others by the same words."""
    sys.argv = ["tsattn", *typed]
    sys.modules["__main__"].__spec__ = importlib.util.find_spec("tsattn.__main__")


def of_torchrun(typed: list[str]) -> int:
    """One of the processes of torchrun; they name the run folder by clocks of their own, as not begun in one second."""
    dated = RunFolder.dated
    RunFolder.dated = lambda *names: RunFolder(  # type: ignore[method-assign,assignment]
        f"{dated(*names).path}_{os.environ['RANK']}", renamed=True
    )
    torch.set_num_threads(1)
    code = main(typed)
    assert code == 0
    return code


@pytest.fixture(scope="module")
def alone(long_csv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in one process that two are to repeat."""
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main([*words(long_csv, run, "epochs"), *SHARED]) == 0
    return run


# 388 windows: the last batch of an epoch, of 4, is shared out evenly too
SHARED = [MODEL.replace("0.3", "0.0"), "--data.prediction_length=9", "--trainer.max_epochs=2"]
TWO = [*SHARED, "--data.batch_size=32", "--trainer.devices=2", "--trainer.strategy=ddp"]


def assert_trained_as(two: Path, one: Path) -> None:
    first, second = curve(one), curve(two)
    np.testing.assert_allclose(second["train_loss"], first["train_loss"], rtol=1e-4)
    np.testing.assert_allclose(second["val_mse_scaled"], first["val_mse_scaled"], rtol=1e-4)
    ours, theirs = result(one), result(two)
    assert ours["test_windows"] == theirs["test_windows"]
    assert theirs["test"]["transformer_standard"]["mse_scaled"] == pytest.approx(
        ours["test"]["transformer_standard"]["mse_scaled"], rel=1e-3
    )


@pytest.mark.slow
def test_two_processes_train_as_one_and_test_each_window_once(
    long_csv: Path, alone: Path, tmp_path: Path, without_ranks: None
) -> None:
    typed = [*words(long_csv, tmp_path / "two", "epochs"), *TWO]
    ended = Worker(typed, tmp_path, partial(as_typed, typed))
    assert ended.end() == 0, ended.said()[-3000:]
    assert ended.said().count("training windows") == 1, "one process speaks"
    assert_trained_as(tmp_path / "two", alone)


@pytest.mark.slow
def test_two_processes_of_torchrun_train_in_one_folder(
    long_csv: Path, alone: Path, tmp_path: Path, without_ranks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test", "start_method": "forkserver"}
    logs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), redirects=Std.OUT)
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, logs_specs=logs, **options)
    # the folder is the usual one: before Python 3.12 torchrun takes --run for one of its own options
    typed = [word for word in words(long_csv, tmp_path, "epochs") if not word.startswith("--run")]
    assert elastic_launch(config, of_torchrun)([*typed, *TWO]) == {0: 0, 1: 0}
    (folder,) = (tmp_path / "runs" / "toy" / "transformer_standard").iterdir()
    said = [file.read_text() for file in (tmp_path / "logs").rglob("stdout.log")]
    assert sorted(text.count("training windows") for text in said) == [0, 1], "one process speaks"
    assert_trained_as(folder, alone)


@pytest.fixture
def without_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment is without what an earlier launch in this process may have left, and signals are as before."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    handlers = {number: signals.getsignal(number) for number in (signals.SIGINT, signals.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signals.signal(number, handler)


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

    for owner, name, message in (
        (NetworkPredictor, "forward", "device memory for a forecast of 113 windows at once: try --data.eval_batch"),
        (ForecastingModule, "training_step", "out of device memory for batches of 64 windows: try --data.batch_size"),
    ):
        monkeypatch.setattr(owner, name, full)
        assert main(words(long_csv, tmp_path / name, "epochs")) == 2
        assert message in capsys.readouterr().err


def without_folder(run: Path, module: str, name: str) -> None:
    """From now on the run folder is removed when a function is called, and what is logged is written at once."""
    flushed_at_once()
    then_in(module, name, partial(shutil.rmtree, run))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "more"), [("training begins", []), ("training ends", ["--trainer.logger=false"])], ids=["begin", "end"]
)
def test_a_folder_that_is_removed_meanwhile_is_one_sentence(
    long_csv: Path, tmp_path: Path, phase: str, more: list[str]
) -> None:
    run = tmp_path / "run"
    command = [*words(long_csv, run, "steps"), *more]
    ended = Worker(command, tmp_path, partial(without_folder, run, *PHASES[phase]))
    assert ended.end() == 2, ended.said()
    sentence = f"error: the run folder {run} was removed during the run; start the run again"
    assert ended.said().splitlines()[-1] == sentence


def full_disk(file: Path, module: str, name: str) -> None:
    """Once a function is called there is no room for a file, whatever it is called before it is whole."""

    def fill() -> None:
        for other in (f"{file}.partial", f"{file}.{os.getpid()}.partial", *([] if file.exists() else [file])):
            os.symlink("/dev/full", other)

    then_in(module, name, fill)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("file", ["errors.parquet", "forecast.png", "metrics.json"])
def test_a_disk_that_is_full_at_the_end_names_the_file(long_csv: Path, tmp_path: Path, file: str) -> None:
    run = tmp_path / "run"
    before = partial(full_disk, run / file, "tsattn.training.train", "load_best")
    ended = Worker(words(long_csv, run, "steps"), tmp_path, before)
    assert ended.end() == 2, ended.said()
    assert ended.said().splitlines()[-1] == f"error: {run / file} cannot be written: No space left on device"


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
    write_checkpoint({"step": 1}, path)

    def full(content: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(ValueError, match=r"cannot be written: No space left on device; the checkpoint before it is"):
        write_checkpoint({"step": 2}, path)
    monkeypatch.undo()
    assert torch.load(path) == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]
