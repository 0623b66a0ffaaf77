"""The process of the peers: what goes there and comes back, and what is said when it refuses or dies."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.leaderboard.cases import bench
from tests.peers.toys import T, toy_data, toy_frame, training
from tests.processes import Worker, runs, wait_for
from tests.toy_windows import toy_task
from tsattn.errors import UserError
from tsattn.peers import predictors as module
from tsattn.peers.predictors import VARIABLE, PeerProcess, peer_process, read_forecasts, write_series
from tsattn.predictors import build_predictor

ASKED: dict[str, Any] = {
    **{"do": "check", "library": "neuralforecast", "model": "Level", "arguments": {}, "options": {}},
    **{"h": 3, "input_size": 5, "channels": 2, "season_length": 4, "quantiles": [], "seed": 1},
}
fake = pytest.mark.usefixtures("fake_peers")


def test_without_an_environment_one_sentence_says_how_to_make_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert module._FOLDER.parent.joinpath("pyproject.toml").exists(), "where `make peers` makes it"
    monkeypatch.delenv(module.VARIABLE, raising=False)
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    for kind in ("neuralforecast", "statsforecast"):
        predictor = build_predictor(kind)  # which needs none to be described
        predictor.build(toy_task(C=2))
        said = rf"^predictor {kind}_\w+ runs in a separate environment, which is missing: create it with `make peers`, "
        with pytest.raises(UserError, match=said + "or set TSATTN_PEERS to its python$"):
            predictor.check_fit(toy_data(), training())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert module.peers_python("it") == tmp_path / "bin" / "python"
    for named in ("nowhere/python", "."):
        monkeypatch.setenv(module.VARIABLE, named)
        with pytest.raises(UserError, match=f"^TSATTN_PEERS must be the python of an environment .*, not {named}$"):
            peer_process("it")


def test_a_python_without_the_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.VARIABLE, sys.executable)
    if subprocess.run([sys.executable, "-I", "-c", "import neuralforecast"], capture_output=True).returncode == 0:
        pytest.skip("neuralforecast is installed beside tsattn")
    with pytest.raises(UserError, match=rf"^{sys.executable} has no package neuralforecast$"):
        peer_process("it").ask(ASKED)


@fake
def test_one_process_answers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    process, sent = peer_process("it"), []
    assert process.ask(ASKED) == {"parameters": 1, "version": "neuralforecast 3.0", "is_multivariate": False}
    assert peer_process("it") is process
    write = process._process.stdin.write
    monkeypatch.setattr(process._process.stdin, "write", lambda line: (sent.append(line), write(line))[1])
    with pytest.raises(UserError, match=r"^neuralforecast failed: RuntimeError: no memory left$"):
        process.ask(asked_to_fit(process, fails="raises"))
    assert f'"threads": {torch.get_num_threads()}' in sent[0], "as many as we have"
    assert peer_process("it") is process, "which goes on"


@fake
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "Nothing"}, "neuralforecast has no model 'Nothing'; valid: Level, Recursive, Together"),
        ({"model": "Recursive"}, "Recursive forecasts step by step, which is not supported: choose another model"),
        ({"arguments": {"h": 4}}, "Level takes its h from the task: leave it out of arguments"),
        (
            {"arguments": {"widht": 4}},
            "Level of neuralforecast has no argument 'widht'; valid: loss, .*, and those of Lightning's Trainer",
        ),
        ({"arguments": {"fails": "made"}}, "Level cannot be made of these arguments: this model cannot be made"),
        ({"arguments": {"loss": "Nothing"}}, "neuralforecast has no loss 'Nothing'"),
        ({"arguments": {"loss": "DistributionLoss"}}, "loss must be a loss of point forecasts, such as MAE; .*"),
        (
            {"arguments": {"loss": "MAE"}, "quantiles": [0.5]},
            "quantiles are trained by MQLoss: leave loss out of arguments",
        ),
        (
            {"library": "statsforecast", "model": "Mean", "arguments": {"widht": 4}},
            "Mean of statsforecast has no argument 'widht'; valid: season_length, seasons",
        ),
        ({"library": "statsforecast", "model": "None"}, "statsforecast has no model 'None'; valid: Mean"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$"):
        peer_process("it").ask({**ASKED, **change})


def asked_to_fit(process: PeerProcess, **arguments: Any) -> dict[str, Any]:
    table = process.folder / "series.parquet"
    rows = {"unique_id": [0, 0], "ds": [0, 1], "y": [1.0, 2.0], "observed": [True, True]}
    pd.DataFrame(rows).to_parquet(table)
    files = {"table": str(table), "state": str(table.with_suffix(".safetensors"))}
    return {**ASKED, "do": "fit", "arguments": arguments, **files, "stop_at": None, "val_rows": 0}


@fake
def test_a_process_that_dies_is_told_by_its_last_words_and_started_anew() -> None:
    process = peer_process("it")
    with pytest.raises(UserError, match=r"^the process of the peers \(.*\) ended with exit code 7: the last words$"):
        process.ask(asked_to_fit(process, fails="exits"))
    assert peer_process("it").ask(ASKED)["parameters"] == 1


@fake
def test_an_interruption_ends_the_process() -> None:
    process = peer_process("it")
    process.ask(ASKED)
    pid = process._process.pid
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        process.ask(asked_to_fit(process, fails="hangs"))
    assert process._process.poll() is not None
    assert not process.folder.exists(), "its files go with it"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def ask_and_die(python: Path, note: Path) -> None:
    process = PeerProcess(python)
    process.ask(ASKED)
    note.write_text(str(process._process.pid))
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_process_ends_with_the_one_that_started_it(fake_python: Path, tmp_path: Path) -> None:
    starter = Worker([], tmp_path, partial(ask_and_die, fake_python, tmp_path / "pid"))
    assert starter.end() == -signal.SIGKILL, starter.said()
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not runs(pid))


def test_the_series_end_with_their_validation_rows(tmp_path: Path) -> None:
    frame = toy_frame()
    frame.iloc[7, 1] = np.nan
    data = toy_data(frame)
    (split,) = data.splits
    held = write_series(tmp_path / "table", data)
    assert held == split.val_end - split.train_end > 0
    table = pd.read_parquet(tmp_path / "table")
    assert table["unique_id"].tolist() == [0] * split.val_end + [1] * split.val_end
    assert table["ds"].tolist() == [*range(split.val_end)] * 2
    expected = data.series.values[: split.val_end].T.reshape(-1)
    np.testing.assert_array_equal(table["y"], expected)
    assert np.flatnonzero(~table["observed"]).tolist() == [split.val_end + 7]


def test_no_validation_row_is_among_the_training_rows_of_series_of_any_length(tmp_path: Path) -> None:
    lengths = {"a": 300, "b": 200, "c": 60, "d": 12}
    frame = pd.concat(
        toy_frame(rows, 1, seed).rename(columns={"a": "y"}).assign(unique_id=name).rename_axis("ds").reset_index()
        for seed, (name, rows) in enumerate(lengths.items())
    )
    data = toy_data(frame)
    held = write_series(tmp_path / "table", data)
    table = pd.read_parquet(tmp_path / "table")
    longest = [split.val_end - split.train_end for split in data.splits]
    assert held == min(rows for rows in longest if rows >= T)
    for number, split in enumerate(data.splits):
        rows = (table["unique_id"] == number).sum()
        assert rows - held <= split.train_end
        assert rows <= split.val_end
    assert (table["unique_id"] == 0).sum() - held == data.splits[0].train_end, "of a long one all training rows stay"


def test_forecasts_come_back_rising_whole_and_finite(tmp_path: Path) -> None:
    path, made = tmp_path / "made.npy", np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    np.save(path, made)
    found = read_forecasts(path, (2, 3, 4, 5))
    torch.testing.assert_close(found, torch.from_numpy(made).transpose(1, 2).sort(-1).values)
    with pytest.raises(UserError, match=r"^the other library did not forecast all 2 windows of 3 channels$"):
        read_forecasts(path, (2, 3, 5, 5))
    made[1, 2, 3] = np.inf
    np.save(path, made)
    with pytest.raises(UserError, match=r"^the other library forecast values that are not finite$"):
        read_forecasts(path, (2, 3, 4, 5))


PREDICTORS = {
    "ridge": "ridge",
    "neuralforecast Level": {"backbone": {"kind": "neuralforecast", "model": "Level"}},
    "statsforecast Mean": {"backbone": {"kind": "statsforecast", "model": "Mean", "context_length": 24}},
}


@pytest.mark.slow
def test_they_stand_beside_the_ridge_on_the_same_windows(
    tmp_path: Path, fake_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench(tmp_path, horizons=[8], seeds=2, attentions={"standard": "standard"}, predictors=PREDICTORS)
    for python, status in ((str(tmp_path / "none" / "python"), "failed"), (str(fake_python), "done")):
        monkeypatch.setenv(VARIABLE, python)
        assert made.run("--retry-failed") == 0
        frame = made.records().frame.set_index("predictor")
        assert frame["status"].to_dict() == {
            "ridge": "done",
            "neuralforecast Level": status,
            "statsforecast Mean": status,
        }
        if status == "failed":
            reasons = frame.loc[["neuralforecast Level", "statsforecast Mean"], "reason"]
            assert reasons.str.contains("make peers|TSATTN_PEERS", regex=True).all(), [*reasons]
    assert frame.loc["neuralforecast Level", "seed"].tolist() == [1, 2]
    assert len({*frame["windows"]}) == 1
    assert frame["mse"].gt(0).all()
