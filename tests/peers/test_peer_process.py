"""The process of the peers: found, started, asked, and what is said when it is not there, refuses, or dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from tests.peers.toys import toy_data, training
from tests.processes import wait_for
from tests.toy_windows import toy_task
from tsattn.errors import UserError
from tsattn.peers import predictors as module
from tsattn.peers.predictors import PeerProcess, peer_process
from tsattn.predictors import build_predictor

ASKED: dict[str, Any] = {
    **{"do": "check", "library": "neuralforecast", "model": "Level", "arguments": {}, "options": {}},
    **{"h": 3, "input_size": 5, "channels": 2, "season_length": 4, "quantiles": [], "seed": 1},
}
fake = pytest.mark.usefixtures("fake_peers")


@pytest.mark.parametrize("kind", ["neuralforecast", "statsforecast"])
def test_without_an_environment_one_sentence_says_how_to_make_it(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(module.VARIABLE, raising=False)
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    predictor = build_predictor(kind)  # which needs none to be described
    predictor.build(toy_task(C=2))
    with pytest.raises(
        UserError,
        match=rf"^predictor {kind}_\w+ runs in an environment of its own, which is not there: `make peers` makes it, "
        r"or TSATTN_PEERS names the python of one$",
    ):
        predictor.check_fit(toy_data(), training())


@pytest.mark.parametrize("named", ["nowhere/python", "."])
def test_a_variable_that_names_no_python_is_refused(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.VARIABLE, named)
    with pytest.raises(UserError, match=f"^TSATTN_PEERS must be the python of an environment .*, not {named}$"):
        peer_process("it")


def test_the_environment_beside_the_project_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(module.VARIABLE, raising=False)
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert module.peers_python("it") == tmp_path / "bin" / "python"
    assert Path(module.__file__).parents[2].joinpath("pyproject.toml").exists(), "where `make peers` makes it"


def test_a_python_without_the_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.VARIABLE, sys.executable)
    if subprocess.run([sys.executable, "-I", "-c", "import neuralforecast"], capture_output=True).returncode == 0:
        pytest.skip("neuralforecast is installed beside tsattn")
    with pytest.raises(UserError, match=rf"^{sys.executable} has no package neuralforecast$"):
        peer_process("it").ask(ASKED)


@fake
def test_one_process_answers_all(fake_python: Path) -> None:
    process = peer_process("it")
    assert process.ask(ASKED) == {"parameters": 1, "version": "neuralforecast 3.0", "is_multivariate": False}
    assert peer_process("it") is process
    process.stop()
    assert not process.folder.exists(), "its files go with it"
    other = peer_process("it")
    assert other is not process
    assert other.ask({**ASKED, "model": "Together"})["is_multivariate"]


@fake
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "Nothing"}, "neuralforecast has no model 'Nothing'; valid: Level, Recursive, Together"),
        ({"model": "Recursive"}, "Recursive forecasts step by step, which is not supported here; name another"),
        ({"arguments": {"h": 4}}, "Level takes its h from the task: leave it out of arguments"),
        (
            {"arguments": {"widht": 4}},
            "Level of neuralforecast has no argument 'widht'; valid: loss, .*, and those of Lightning's Trainer",
        ),
        ({"arguments": {"fails": "made"}}, "Level cannot be made of these arguments: this model cannot be made"),
        ({"arguments": {"loss": "Nothing"}}, "neuralforecast has no loss 'Nothing'"),
        ({"arguments": {"loss": "DistributionLoss"}}, "loss must be that of a point forecast, such as MAE: .*"),
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
def test_what_fails_is_said_in_one_sentence_and_the_process_goes_on() -> None:
    process = peer_process("it")
    with pytest.raises(UserError, match=r"^neuralforecast failed: RuntimeError: no memory left$"):
        process.ask(asked_to_fit(process, fails="raises"))
    assert peer_process("it") is process


@fake
def test_a_process_that_dies_is_told_by_its_last_words_and_started_anew() -> None:
    process = peer_process("it")
    with pytest.raises(
        UserError, match=r"^the process of the peers \(.*python\) ended with exit code 7: the last words$"
    ):
        process.ask(asked_to_fit(process, fails="exits"))
    assert peer_process("it").ask(ASKED)["parameters"] == 1


@fake
def test_an_interruption_ends_the_process(fake_python: Path) -> None:
    process = PeerProcess(fake_python)
    process.ask(ASKED)
    pid = process._process.pid
    # as Ctrl-C, in the middle of waiting
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        process.ask(asked_to_fit(process, fails="hangs"))
    assert not process.is_alive
    assert not process.folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_process_ends_with_the_one_that_started_it(fake_python: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
from tsattn.peers.predictors import PeerProcess
process = PeerProcess(Path({str(fake_python)!r}))
process.ask({ASKED!r})
print(process._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pid = int(said.stdout)
    wait_for(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@fake
def test_the_worker_has_as_many_threads_as_we(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    process = peer_process("it")
    process.ask(ASKED)
    assert process._process.stdin is not None
    write = process._process.stdin.write
    monkeypatch.setattr(process._process.stdin, "write", lambda line: (sent.append(line), write(line))[1])
    process.ask(ASKED)
    assert f'"threads": {torch.get_num_threads()}' in sent[0]
