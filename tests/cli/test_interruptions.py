"""Ctrl-C and SIGTERM end every command, whatever it does at the time, with the sentence that says how to resume."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.processes import Worker, signal_in
from tsattn.cli import main

# a library that a command imports is not whole yet when the signal comes
IMPORTING = """
import os, signal, sys

class Signalled:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            exec("os.kill(os.getpid(), int(sys.argv[2]))")  # as a dataclass does while it is made

sys.meta_path.insert(0, Signalled())
from tsattn.cli import main
sys.exit(main(sys.argv[3:]))
"""


def of_command(command: str, csv: Path, run: Path) -> list[str]:
    config = ["--config", str(run / "config.yaml")]
    more = {
        "fit": [*config, "--run", str(run.parent / "new")],
        "benchmark": ["--suite", "peers", "--dry-run", "--folder", str(run.parent / "bench")],
        "report": [str(ROOT / "benchmarks" / "results" / "peers")],
        "datasets": ["diagnose", str(csv)],
    }
    return [command, *more.get(command, ["--run", str(run)])]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "number"), [("fit", signal.SIGINT), ("datasets", signal.SIGTERM), ("benchmark", signal.SIGTERM)]
)
def test_a_command_that_still_imports_says_how_to_resume(
    command: str, number: signal.Signals, toy_run: tuple[Path, Path], tmp_path: Path
) -> None:
    words = of_command(command, *toy_run)
    module = "numpy" if command == "datasets" else "torch"
    (tmp_path / "signalled.py").write_text(IMPORTING)
    process = [sys.executable, "-m", "signalled", module, str(int(number)), *words]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(process, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert ended.returncode == 130, ended.stderr
    found = re.fullmatch(r"interrupted: (?:run|resume with) `tsattn ([^`]*)`.*\n", ended.stderr)
    assert found, ended.stderr
    assert shlex.split(found[1]) == words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "module", "name"),
    [
        ("predict", "tsattn.cli.trained_run", "forecast_batches"),
        ("attention", "tsattn.cli.trained_run", "write_figure"),
        ("report", "tsattn.leaderboard.page", "write_report"),
        ("datasets", "tsattn.forecaster.forecast_files", "write_frame"),
    ],
)
def test_the_command_that_is_named_does_the_work(
    command: str, module: str, name: str, toy_run: tuple[Path, Path], tmp_path: Path
) -> None:
    csv, run = toy_run
    output = {"predict": "out.csv", "attention": "out.png", "datasets": "out.csv", "report": "."}.get(command)
    words = [*of_command(command, csv, run), *(["--output", str(tmp_path / output)] if output else [])]
    ended = Worker(words, tmp_path, partial(signal_in, module, name, signal.SIGTERM))
    assert ended.end() == 130, ended.said()
    found = re.fullmatch(r"interrupted: run `tsattn ([^`]*)` again(.*)", ended.said().splitlines()[-1])
    assert found, ended.said()
    assert "Traceback" not in ended.said()
    assert not list(tmp_path.glob(".*.partial"))
    again = shlex.split(found[1])
    assert main([*again, "--overwrite"] if "--overwrite" in found[2] else again) == 0


def test_an_error_that_comes_of_an_interruption_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a library whose import is interrupted."""

    def interrupted(words: list[str]) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt as stop:
            raise ImportError("initialization failed") from stop
        return 0

    monkeypatch.setattr("tsattn.cli.without_experiment.cost", interrupted)
    before: Callable[..., object] | int | None = signal.getsignal(signal.SIGTERM)
    assert main(["cost", "--attention", "postgresql://me:secret@host/db"]) == 130
    assert capsys.readouterr().err == "interrupted: run `tsattn cost --attention postgresql://me@host/db` again\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_program_that_hangs_at_its_end_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before: Callable[..., object] | int | None = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("sys.argv", ["tsattn", "--version"])
    assert main() == 0
    assert signal.getsignal(signal.SIGTERM) == before
