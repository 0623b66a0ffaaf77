"""The words of `benchmark`: what is refused before anything is run, its help, and its script for SLURM."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pooch
import pytest
import requests

from tests.leaderboard.cases import bench, few
from tsattn.cli import main
from tsattn.cli.slurm import ray_script


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [],
            "benchmark needs a suite: --suite NAME, a file or one of suites/accuracy.yaml, "
            "suites/earlier_windows.yaml, suites/equal_training.yaml, suites/ett.yaml, suites/exchange_rate.yaml, "
            "suites/national_illness.yaml",
        ),
        (["--suite", "none"], "no suite none: neither a file nor one of accuracy, earlier_windows, equal_training"),
        (["--suite", "ett", "--jobs", "0"], "--jobs must be a whole number of at least 1, not 0"),
        (["--suite", "ett", "--seeds", "some"], "--seeds must be a whole number of at least 1, not some"),
        (["--suite", "ett", "--attention", ","], "--attention must be names with commas between them, not ','"),
        (["--suite", "ett", "--attention", "mrl"], "the suite ett has no mrl in attentions (did you mean mlr?)"),
        (["--suite", "ett", "--horizon", "100"], "the suite ett has no 100 in horizons; it has 96"),
        (["--suite", "ett", "--job", "2"], "unknown argument --job (did you mean --jobs?)"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--folder", "--output"])
def test_a_folder_that_is_a_file(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["benchmark", "--suite", "ett", option, str(tmp_path / "file")]) == 2
    assert f"{option} is a folder, but {tmp_path / 'file'} is a file; name another" in capsys.readouterr().err


def test_data_that_cannot_be_fetched_are_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def fail(url: str, *_: object, **__: object) -> None:
        asked.append(url)
        raise requests.exceptions.ConnectionError

    monkeypatch.setattr(pooch, "retrieve", fail)
    monkeypatch.setenv("TSATTN_DATA", str(tmp_path))
    assert main(["benchmark", "--suite", "national_illness", "--predictor", "ridge", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "put the file national_illness.csv into" in said
    assert len(asked) == 1


def test_an_address_that_nobody_answers_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="ray is not installed, so no suite is run on a cluster")
    made = bench(tmp_path, **few())
    assert made.run("--ray", "localhost:1") == 2
    assert "no Ray cluster answers at localhost:1; valid is its HOST:PORT" in capsys.readouterr().err


def test_a_script_starts_a_cluster_on_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "--suite", "ett", "--data", "ETTh1,ETTh2", "--slurm", "3", "--ray", "local"]) == 0
    script = capsys.readouterr().out
    assert script == ray_script(["--suite", "ett", "--data", "ETTh1,ETTh2"], "benchmark_ett", 3)
    (tmp_path / "script.sh").write_text(script)
    # what it calls writes down how it was called
    tools = {
        "scontrol": 'printf "one\\ntwo\\nthree\\n"',
        "srun": 'echo "srun $@" >> calls; exec sleep 60',
        "ray": 'sleep 0.2; grep -q "nodelist=one" calls',  # `ray status`
        "tsattn": 'for _ in $(seq 100); do [ "$(grep -c srun calls)" = 3 ] && break; sleep 0.1; done\n'
        'echo "tsattn $@" >> calls; exit 7',
    }
    for name, text in tools.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12345"}
    environment |= {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_CPUS_PER_TASK": "8"}
    done = subprocess.run(["bash", "script.sh"], cwd=tmp_path, env=environment, capture_output=True)
    assert done.returncode == 7, done.stderr  # that of the benchmark
    *sruns, last = (tmp_path / "calls").read_text().splitlines()
    assert last == "tsattn benchmark --suite ett --data ETTh1,ETTh2 --ray one:22345"
    common = "srun --overlap --nodes=1 --ntasks=1 --nodelist="
    # where Ray is not found the script ends, rather than to wait for it until its time is over
    (tmp_path / "srun").write_text("#!/bin/bash\nexit 127\n")
    (tmp_path / "ray").write_text("#!/bin/bash\nexit 127\n")
    done = subprocess.run(["bash", "script.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "Ray does not start on one: is it installed where this script runs?\n")
    assert sorted(sruns) == [
        f"{common}one ray start --head --port=22345 --num-cpus=8 --block",
        f"{common}three ray start --address=one:22345 --num-cpus=8 --block",
        f"{common}two ray start --address=one:22345 --num-cpus=8 --block",
    ]
