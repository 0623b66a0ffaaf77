"""`tune` as a person types it: what a study leaves, and going on with it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from filelock import FileLock

from tests.tuning.cases import RATES, Toy, toy
from tsattn.cli import main, study_run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy with a study of four trials; every test leaves it so."""
    made = toy(tmp_path_factory.mktemp("tune"))
    assert made.tune("--trials", "4") == 0
    return made


def test_what_a_study_leaves(done: Toy) -> None:
    files = {path.name for path in done.study.iterdir()}
    assert files == {"study.db", "best.yaml", "trials.csv", "study.json", "history.png", "importance.png"}
    table, summary = pd.read_csv(done.study / "trials.csv"), done.summary()
    assert list(table.trial) == [0, 1, 2, 3]
    assert set(table.state) <= {"complete", "pruned"}
    best = table.loc[table.error.idxmin()]
    assert summary["best"]["trial"] == best.trial
    assert summary["best"]["values"] == [pytest.approx(best.error)]
    assert summary["configuration_as_it_is"]["trial"] == 0  # it is always tried
    assert summary["trials"] == table.state.value_counts().to_dict()
    assert set(summary["importance"]) <= set(table.columns)
    assert summary["versions"]["command"][:2] == ["tsattn", "tune"]


def test_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    toy(tmp_path)
    words = ["tune", "--config=config.yaml", "--search", "search.yaml", "--trials"]
    assert main([*words, "2"]) == 0
    assert "trial   2" not in capsys.readouterr().out
    assert main([*words, "3"]) == 0
    said = capsys.readouterr().out
    assert "2 of 3 trials are done" in said
    assert said.splitlines()[1].startswith("trial   2  ")
    assert [path.name for path in (tmp_path / "runs" / "tune").iterdir()] == ["config-search"], "the same folder"


def test_a_study_goes_on_with_the_same_data_and_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    assert made.tune("--trials", "1") == 0
    table = pd.read_csv(tmp_path / "toy.csv")
    table.assign(wave=table["wave"] + 1e-6).to_csv(tmp_path / "toy.csv", index=False)
    assert made.tune("--trials", "2") == 2
    assert "another one: its data have changed since it was begun; name a new --study" in capsys.readouterr().err
    table.to_csv(tmp_path / "toy.csv", index=False)
    assert made.tune("--trials", "2") == 0
    monkeypatch.setattr(study_run, "RESULTS_VERSION", study_run.RESULTS_VERSION + 1)
    assert made.tune("--trials", "3") == 2
    assert "another one: another version of tsattn began it, whose results" in capsys.readouterr().err
    assert len(made.trials()) == 2


def test_the_best_is_tested_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = toy(tmp_path)
    assert made.tune("--trials", "1", "--test") == 0
    assert "test windows" in capsys.readouterr().out
    metrics = json.loads((made.study / "test" / "metrics.json").read_text())
    assert metrics["validation_error"] == made.summary()["best"]["values"][0]
    scores = [str(number)[:6] for of_one in metrics["test"].values() for number in of_one.values() if number != 0]
    for file in ("study.json", "trials.csv"):  # a study holds no test score
        facts = (made.study / file).read_text().partition('"versions"')[0]
        assert "test" not in facts
        assert not [score for score in scores if "." in score and score in facts]
    assert made.tune("--trials", "2", "--test") == 2
    assert "the best trial is tested once, and that was done" in capsys.readouterr().err
    assert len(made.trials()) == 1


@pytest.mark.parametrize("is_done", [False, True])
def test_one_of_several_workers_tests_the_best(
    is_done: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    lock = FileLock(made.study / ".test.lock")
    tune = study_run.tune

    def tune_beside_another(*given: Any) -> None:
        tune(*given)
        if is_done:
            (made.study / "test").mkdir()
        else:
            lock.acquire()

    monkeypatch.setattr(study_run, "tune", tune_beside_another)
    assert made.tune("--trials", "1", "--test") == 0
    assert "another worker tests the best trial, or has done so" in capsys.readouterr().out
    assert not (made.study / "test" / "metrics.json").exists()
    lock.release()


def test_a_front_of_accuracy_and_flops(tmp_path: Path) -> None:
    search = {
        "sampler": "grid",
        "objectives": ["error", "flops", "parameters"],
        "parameters": {"attention": ["swa"], "model.backbone.num_layers": [1, 2], "model.backbone.d_model": [8, 16]},
    }
    made = toy(tmp_path, search)
    assert made.tune() == 0
    table, summary = pd.read_csv(made.study / "trials.csv"), made.summary()
    assert (made.study / "front.png").stat().st_size > 5000
    values = table[["error", "flops", "parameters"]].to_numpy()
    beaten = [any((other <= one).all() and (other < one).any() for other in values) for one in values]
    assert list(table.front) == [not lost for lost in beaten]
    assert sorted(summary["front"]) == table.trial[table.front].tolist()
    configs = {path.stem: yaml.safe_load(path.read_text()) for path in (made.study / "front").iterdir()}
    assert set(configs) == {f"trial_{number}" for number in summary["front"]}
    best = int(table.trial[table.error.idxmin()])
    assert yaml.safe_load((made.study / "best.yaml").read_text()) == configs[f"trial_{best}"]
    depth = int(table["model.backbone.num_layers"][best])
    assert configs[f"trial_{best}"]["model"]["backbone"]["num_layers"] == depth


def test_the_best_keeps_to_the_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = {"sampler": "grid", "parameters": {"attention": ["swa"], "model.backbone.d_model": [8, 64]}}
    free = toy(tmp_path, space)
    assert free.tune() == 0
    sizes = pd.read_csv(free.study / "trials.csv").set_index("model.backbone.d_model").parameters
    bounded = toy(tmp_path, {**space, "constraints": {"parameters": float(sizes[8])}})
    assert bounded.tune("--study", str(tmp_path / "bounded")) == 0
    table = pd.read_csv(tmp_path / "bounded" / "trials.csv").set_index("model.backbone.d_model")
    assert table.feasible.to_dict() == {8: True, 64: False}
    assert "above the" in table.reason[64]
    none = toy(tmp_path, {**space, "constraints": {"parameters": 1}})
    capsys.readouterr()
    assert none.tune("--study", str(tmp_path / "none")) == 2
    said = capsys.readouterr().err
    assert "no trial of the study none was completed within its constraints; the last: " in said


def test_a_job_array_shares_a_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toy(tmp_path, RATES, backbone="dlinear")
    assert made.tune("--trials", "3", "--slurm", "2") == 0
    script = capsys.readouterr().out
    assert not made.study.exists()
    assert "#SBATCH --array=1-2\n" in script
    assert "--slurm" not in script
    (tmp_path / "tune.sbatch").write_text(script)
    # a scheduler's part, played by a shell: `srun` tells what it would run
    (tmp_path / "srun").write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    (tmp_path / "srun").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": "2"}
    ran = subprocess.run(["bash", "tune.sbatch"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    words = ran.stdout.splitlines()
    assert words == ["tsattn", *made.words("--trials", "3")], ran.stderr
    # what srun tells a task, which Lightning looks for
    told = {"JOB_ID": "7", "JOB_NAME": "study", "NTASKS": "1", "PROCID": "0", "LOCALID": "0", "NODEID": "0"}
    for name, value in told.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    for _ in range(2):
        assert main(words[1:]) == 0
    assert len(made.trials()) == 3
