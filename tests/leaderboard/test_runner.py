"""Suites that are run: each run once, whatever is killed, and failures beside results."""

import copy
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tests.leaderboard.cases import SMOKE, Bench, bench, few
from tests.processes import wait_for
from tsattn.experiments import Experiment, run
from tsattn.leaderboard.entry_run import Work, WorkingFolder, _trained_windows, run_entry
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.records import LABELS, Records
from tsattn.leaderboard.suite import read_suite
from tsattn.saved_folders import CHECKSUMS

pytestmark = pytest.mark.slow

RESULTS = [*LABELS, "status", "key", "mse", "mae", "mase", "validation_mse", "windows", "trained_windows", "digest"]


OF_DONE: dict[str, Any] = {"horizons": [8], "seeds": 2}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    made = bench(tmp_path_factory.mktemp("done"), **OF_DONE)
    assert made.run("--jobs", "2") == 0
    return made


def workers_of(made: Bench) -> set[int]:
    pids = {int(line.rpartition(" ")[2]) for line in made.begun()}
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def test_a_record_is_that_of_the_experiment(done: Bench) -> None:
    records = done.records()
    frame = records.done.set_index(["predictor", "attention", "seed"])
    assert len(records) == 10
    assert len(done.begun()) == 10
    assert set(frame["status"]) == {"done"}
    assert records.suites == {"smoke": (done.folder / "smoke.yaml").read_text()}
    entries = Planner().plan(read_suite(done.folder / "smoke.yaml"))
    (entry,) = [one for one in entries if (one.model, one.seed) == ("patchtst, mlr", 2)]
    row = frame.loc[("patchtst", "mlr", 2)]
    assert entry.experiment is not None
    result = run(Experiment.of(entry.experiment.to_dict()))
    assert result.errors is not None
    scores = result.errors.scores()
    assert (row["key"], row["windows"]) == (result.key, scores["windows"])
    np.testing.assert_allclose([row["mse"], row["mae"]], [scores["mse_scaled"], scores["mae_scaled"]], rtol=1e-6)
    sums, counts, _ = records.errors(row["key"], "mse")
    assert sums.sum() / counts.sum() == pytest.approx(row["mse"], rel=1e-5)
    assert row["seconds"] > 0
    assert row["parameters"] == result.fitted.predictor.num_parameters
    assert frame["digest"].notna().to_dict() == {key: key[0] == "patchtst" for key in frame.index}


def test_a_record_names_files_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"ds": pd.date_range("2024", periods=100), "y": np.arange(100.0)}).to_csv("x.csv", index=False)
    data = {"path": "x.csv", "context_length": 8, "prediction_length": 4}
    content = {"data": {"class_path": "CSVDataModule", "init_args": data}, "model": {"backbone": "persistence"}}
    experiment = Experiment.of(content)
    labels = dict.fromkeys(("suite", "dataset", "predictor", "attention"), "") | {"horizon": 4, "seed": None}
    run_entry(Work("one", experiment.key, experiment.to_dict(), labels, (), "", "", 1), WorkingFolder("runs"))
    row = WorkingFolder("runs").record(experiment.key)
    assert row is not None
    assert row["status"] == "done", row["reason"]
    assert yaml.safe_load(row["experiment"])["data"]["init_args"]["path"] == "x.csv"


def test_what_is_finished_is_not_repeated(done: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    before = (done.out / "records.parquet").read_bytes()
    assert done.run() == 0
    assert "smoke: 11 runs: 1 does not apply, 10 done\n1 run left out: ranks [1, 1] sum to 2" in capsys.readouterr().out
    assert len(done.begun()) == 10
    assert (done.out / "records.parquet").read_bytes() == before
    assert done.run("--predictor", "patchtst", "--seeds", "1") == 0  # a part loses nothing of the rest
    assert (done.out / "records.parquet").read_bytes() == before


def test_a_dry_run_lists_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], done: Bench) -> None:
    fresh = bench(tmp_path / "fresh", **OF_DONE)
    assert fresh.run("--dry-run") == 0
    said = capsys.readouterr().out
    assert "left            co2 8: patchtst+ridge, mlr, seed 2\n" in said
    assert "does not apply  co2 8: patchtst, calendar: ranks [1, 1] sum to 2" in said
    assert "10 to be run" in said
    assert [path.name for path in fresh.folder.iterdir()] == ["smoke.yaml"]
    fresh.out.mkdir()
    (fresh.out / "records.parquet").write_bytes((done.out / "records.parquet").read_bytes())
    fresh.write(horizons=[8], seeds=3)
    assert fresh.run("--dry-run") == 0  # records alone tell what is done, and how long the rest takes
    said = capsys.readouterr().out
    assert "10 done, 4 to be run" in said
    assert re.search(r"about \d+ s left, 1 at once", said)


def test_records_of_data_that_are_not_at_hand_are_kept(done: Bench, tmp_path: Path) -> None:
    made = bench(tmp_path)
    content = {**copy.deepcopy(SMOKE), **OF_DONE}
    made.out.mkdir()
    (made.out / "records.parquet").write_bytes((done.out / "records.parquet").read_bytes())
    content["data"].append(
        {"name": "gone", "class_path": "CSVDataModule", "init_args": {"path": str(tmp_path / "x.csv")}}
    )
    made.write(**content)
    rows = [{**row, "dataset": "gone", "key": f"{row['key'][:-1]}x"} for row in made.records().table.to_pylist()]
    rows += made.records().table.to_pylist()
    Records.of(rows).write(made.out)
    assert made.run("--predictor", "ridge") == 0
    assert made.records().frame["dataset"].value_counts().to_dict() == {"gone": 10, "co2": 10}


def test_what_has_changed_is_run_again_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = bench(tmp_path, **few())
    assert made.run() == 0
    before, results = made.records().frame.set_index("predictor")["key"], made.records().frame[RESULTS]
    # what was measured but not recorded, as it was killed between the two, is not trained again
    checkpoint = made.runs / "runs" / before["patchtst"][:24] / "checkpoints" / "best.ckpt"
    changed = checkpoint.stat().st_mtime_ns
    (made.runs / "records" / f"{before['patchtst']}.parquet").unlink()
    (made.out / "records.parquet").unlink()
    assert made.run() == 0
    assert checkpoint.stat().st_mtime_ns == changed
    pd.testing.assert_frame_equal(made.records().frame[RESULTS], results)
    # what another version of tsattn began is trained anew
    run_folder = checkpoint.parents[1]
    saved = torch.load(run_folder / "checkpoints" / "last.ckpt", weights_only=True)
    saved["tsattn"]["format"] -= 1
    torch.save(saved, run_folder / "checkpoints" / "last.ckpt")
    for path in (run_folder / "metrics.json", run_folder / CHECKSUMS, made.out / "records.parquet"):
        path.unlink()
    (made.runs / "records" / f"{before['patchtst']}.parquet").unlink()
    assert made.run() == 0
    assert checkpoint.stat().st_mtime_ns != changed
    pd.testing.assert_frame_equal(made.records().frame[RESULTS], results)
    begun = len(made.begun())
    content = few()
    content["predictors"]["patchtst"]["by_data"]["co2"]["model.learning_rate"] = 0.005
    made.write(**content)
    assert made.run() == 0
    assert "2 records of an earlier version of the suite left out" in capsys.readouterr().out
    after = made.records().frame.set_index("predictor")["key"]
    assert {name: after[name] == before[name] for name in after.index} == {
        **{"ridge": True, "patchtst": False, "patchtst+ridge": False}
    }
    assert len(made.begun()) == begun + 2
    made.write(**few())
    assert made.run() == 0  # the earlier runs are still in the working folder
    assert len(made.begun()) == begun + 2
    assert made.records().frame.set_index("predictor")["key"].equals(before)


def test_failures_are_recorded_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diverging: dict[str, Any] = {"backbone": SMOKE["predictors"]["patchtst"]["backbone"]}
    diverging["values"] = {"model.learning_rate": 1e30, "model.warmup_steps": 0, "trainer.gradient_clip_val": None}
    more = {
        "diverging": diverging,
        "with it": {"mix": {"of": ["diverging", "ridge"]}},
        "broken": "tests.leaderboard.cases.Broken",
        "killed": "tests.leaderboard.cases.Killed",
    }
    made = bench(tmp_path, **few(**more))
    assert made.run("--jobs", "2") == 0
    frame = made.records().frame.set_index("predictor")
    assert frame["status"].to_dict() == {
        **{"ridge": "done", "patchtst": "done", "patchtst+ridge": "done"},
        **{"diverging": "failed", "with it": "failed", "broken": "failed", "killed": "failed"},
    }
    reasons = frame["reason"]
    assert "diverged" in reasons["diverging"] or "not finite" in reasons["diverging"]
    assert reasons["with it"] == f"a member failed: {reasons['diverging']}"
    assert reasons["broken"] == "RuntimeError: something broke"
    assert reasons["killed"] == "its process was ended by SIGKILL, as when memory runs out"
    said = capsys.readouterr().out
    assert "failed: co2 8: broken: RuntimeError: something broke" in said
    assert "run failed ones again with --retry-failed" in said
    assert "Traceback" in "".join(path.read_text() for path in (made.runs / "logs").iterdir())
    assert made.run() == 0
    assert len(made.begun()) == 6  # failed ones are not run again by themselves
    assert made.run("--retry-failed", "--predictor", "broken") == 0
    assert len(made.begun()) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    slow = {"kind": "tests.leaderboard.cases.Slow", "gate": str(tmp_path / "gate")}
    predictors = {"ridge": "ridge", "persistence": "persistence", "slow": {"backbone": slow}}
    made = bench(tmp_path, **{**few(), "predictors": predictors})
    worker = made.start("--jobs", "2")
    wait_for(lambda: bool(list(tmp_path.glob("waits.*"))) and len(made.recorded()) == 2)
    assert worker.process.pid is not None
    os.kill(worker.process.pid, number)
    assert worker.end() == 130, worker.said()
    assert "resume with `tsattn benchmark --suite" in worker.said()
    assert "Traceback" not in worker.said()
    wait_for(lambda: not workers_of(made))
    assert made.records().frame["status"].tolist() == ["done"] * 2
    (tmp_path / "gate").touch()
    assert made.run() == 0
    assert made.records().frame["status"].tolist() == ["done"] * 3
    assert len(made.begun()) == 4


def test_two_processes_in_one_folder(tmp_path: Path) -> None:
    made = bench(tmp_path, **few())
    workers = [made.start() for _ in range(2)]
    for worker in workers:
        assert worker.end() == 0, worker.said()
    assert len(made.begun()) == len(made.recorded()) == 3
    assert made.records().frame["status"].tolist() == ["done"] * 3


def test_killed_three_times(done: Bench, tmp_path: Path) -> None:
    made = bench(tmp_path, horizons=[8], seeds=1)
    finished: dict[str, int] = {}

    def kept() -> None:
        changed = {path.name: path.stat().st_mtime_ns for path in (made.runs / "records").glob("*.parquet")}
        assert finished.items() <= changed.items()
        finished.update(changed)

    def is_trained() -> bool:
        under_way = (made.runs / "runs").glob("*/checkpoints/last.ckpt")
        return any(not (path.parents[1] / "metrics.json").exists() for path in under_way)

    moments = [
        lambda: len(made.begun()) >= 1,
        lambda: len(made.begun()) >= 3 and is_trained(),
        lambda: len(made.begun()) >= 5,
    ]
    for number, moment in enumerate(moments):
        worker = made.start("--jobs", "2")
        wait_for(moment)
        if number == 1:  # all at once, as when the machine goes down
            for pid in workers_of(made):
                os.kill(pid, signal.SIGKILL)
        worker.kill()
        wait_for(lambda: not workers_of(made))  # they end with their parent
        assert not re.search(r'File ".*tsattn/.*", line', worker.said())  # what Python's fork server says is its own
        kept()
    assert made.run("--jobs", "2") == 0
    kept()
    found = made.records().frame
    assert len(made.recorded()) == len(found)
    assert len(made.begun()) <= len(found) + 3 * 2, "more began again than was under way"
    expected = done.records().frame
    expected = expected[expected["key"].isin(found["key"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found[RESULTS], expected[RESULTS])
    assert not list(made.runs.rglob("*.partial"))


COLUMNS = [*LABELS, "status", "key", "mse", "mae", "validation_mse"]


def test_one_of_two_nodes_goes_away(done: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = "ray is not installed, so no suite is run on a cluster"
    cluster_of = pytest.importorskip("ray.cluster_utils", reason=why).Cluster
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    slow = {"kind": "tests.leaderboard.cases.Slow", "gate": str(tmp_path / "gate")}
    other = {"backbone": slow, "values": {"model.weight_decay": 0.1}}
    made = bench(tmp_path, **few(slow={"backbone": slow}, other=other))
    cluster = cluster_of(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        worker = made.start("--ray", cluster.address)
        ends = worker.process
        wait_for(
            lambda: len(list(tmp_path.glob("waits.*"))) == 2 or not ends.is_alive(), worker.said
        )  # one on each node
        assert ends.is_alive(), worker.said()
        cluster.remove_node(node)
        (tmp_path / "gate").touch()
        assert worker.end() == 0, worker.said()
    finally:
        cluster.shutdown()
    assert len(list(tmp_path.glob("waits.*"))) == 3  # what was lost was begun again
    frame = made.records().frame
    assert frame["status"].tolist() == ["done"] * 5, worker.said()
    assert len(made.recorded()) == 5
    assert len(list((made.runs / "runs").glob("*/errors.parquet"))) == 5
    here = done.records().frame
    expected = here[here["key"].isin(frame["key"])].reset_index(drop=True)
    assert len(expected) == 3
    found = frame[frame["key"].isin(expected["key"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(found[COLUMNS], expected[COLUMNS])


def test_a_step_sees_all_the_batches_that_it_accumulates() -> None:
    data, predictor = SimpleNamespace(batch_size=4, windows=lambda part: range(100)), SimpleNamespace(needs_fit=True)
    for batches, said in ((1, "40 of 100"), (2, "80 of 100"), (3, "all")):
        assert _trained_windows({"training": {"steps": 10}}, data, predictor, batches) == said
