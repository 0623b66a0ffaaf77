"""`benchmark` from its first run to its last, and what is recorded of each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.leaderboard.cases import SMOKE, Bench, bench, few
from tsattn.experiments import Experiment, run
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import LABELS

NOT_RESULTS = (
    "seconds",
    "own_seconds",
    "peak_memory",
    "finished",
    "command",
    "git",
    "versions",
    "cpu",
    "device",
    "threads",
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """The whole suite, run once with one worker."""
    made = bench(tmp_path_factory.mktemp("smoke"))
    assert made.run() == 0
    return made


@pytest.mark.slow
def test_all_is_run_and_recorded(done: Bench, tmp_path: Path) -> None:
    records = done.records()
    frame = records.frame
    assert frame["status"].value_counts().to_dict() == {"done": 15, "does not apply": 1}
    refused = frame[frame["status"] == "does not apply"].iloc[0]
    assert (refused["predictor"], refused["attention"]) == ("patchtst", "calendar")
    assert refused["reason"] == "ranks [1, 1] sum to 2, but must sum to the head size 4"
    rows = frame[frame["status"] == "done"]
    assert rows["seed"].isna().tolist() == (rows["predictor"] == "ridge").tolist()
    assert dict(rows.groupby("predictor")["weight"].first()) == {
        **{"patchtst": 1.0, "patchtst x2": 1.0, "patchtst+ridge": 0.5, "ridge": 0.0}
    }
    assert (rows["windows"] > 300).all()
    assert (rows[["seconds", "peak_memory", "parameters", "flops", "validation_mse", "validation_mae"]] > 0).all(
        axis=None
    )
    assert set(rows["trained_windows"]) == {"all", "192 of 1543", "192 of 1547"}
    for _, row in rows.iterrows():
        windows = records.windows(row["key"])
        assert len(windows) == row["windows"]
        assert windows["window"].tolist() == list(range(len(windows)))
        assert windows["origin"].is_monotonic_increasing
        assert windows["squared"].sum() / windows["count"].sum() == pytest.approx(row["mse"], rel=1e-5)
        assert windows["absolute"].sum() / windows["count"].sum() == pytest.approx(row["mae"], rel=1e-5)
    is_mix = rows["predictor"].isin(["patchtst+ridge", "patchtst x2"])
    assert (rows["own_seconds"] == rows["seconds"])[~is_mix].all()
    assert (rows["own_seconds"] < rows["seconds"])[is_mix].all()
    trained = rows[rows["predictor"] == "patchtst"]["peak_memory"]
    assert rows[is_mix]["peak_memory"].min() >= trained.min(), "of the members that were fitted before"
    assert len(list((done.runs / "runs").glob("*/errors.parquet"))) == 15
    suite = done.folder / "smoke.yaml"
    assert set(rows["command"]) == {f"python -m tsattn benchmark --suite {suite} --no-report"}, "without its folders"


@pytest.mark.slow
def test_a_record_is_what_a_run_of_its_experiment_gives(done: Bench) -> None:
    frame = done.records().frame.set_index(["predictor", "attention", "horizon"])
    for name in ("ridge", "patchtst", "patchtst+ridge", "patchtst x2"):
        row = frame.loc[[(name, "" if name == "ridge" else "standard", 8)]].iloc[0]
        result = run(Experiment.of(yaml.safe_load(row["experiment"])))
        assert result.key == row["key"]
        scores = result.scores.iloc[0]
        assert (scores["mse_scaled"], scores["mae_scaled"]) == (row["mse"], row["mae"])  # to the digit
        assert result.fitted.predictor.num_parameters == row["parameters"]
    taken = [note for note in done.journal() if note["event"] == "begin"]
    assert len(taken) == 15
    said = "".join(path.read_text() for path in (done.runs / "logs").iterdir())
    assert said.count("as it was fitted in") == 3 * 2 + 2  # members of mixes were not trained again


@pytest.mark.slow
def test_what_is_finished_is_not_repeated(done: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in done.out.iterdir()}
    assert done.run() == 0
    assert "16 entries: 1 does not apply, 15 done" in capsys.readouterr().out
    assert sum(done.counts("begin").values()) == 15
    assert {path.name: path.read_bytes() for path in done.out.iterdir()} == before


@pytest.mark.slow
def test_two_workers_record_the_same(done: Bench, tmp_path: Path) -> None:
    other = bench(tmp_path / "other")
    assert other.run("--jobs", "2") == 0
    one, two = (made.records() for made in (done, other))
    columns = [name for name in one.frame.columns if name not in NOT_RESULTS]
    pd.testing.assert_frame_equal(one.frame[columns], two.frame[columns])
    for key in one.frame.loc[one.frame["status"] == "done", "key"]:
        pd.testing.assert_frame_equal(one.windows(key), two.windows(key))


@pytest.mark.slow
def test_a_dry_run_lists_and_changes_nothing(done: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = bench(tmp_path / "fresh")
    assert fresh.run("--dry-run") == 0
    said = capsys.readouterr().out
    assert "left            co2 8: patchtst+ridge mlr, seed 2\n" in said
    assert "does not apply  co2 8: patchtst calendar: ranks [1, 1] sum to 2" in said
    assert "15 to be run" in said
    assert "nothing tells how long it will take" in said
    assert sorted(path.name for path in fresh.folder.iterdir()) == ["smoke.yaml"]
    assert fresh.run("--dry-run", "--add", str(done.out), "--predictor", "ridge") == 0
    assert "2 entries: 2 done" in capsys.readouterr().out
    assert sorted(path.name for path in fresh.folder.iterdir()) == ["smoke.yaml"]
    more = {**SMOKE, "seeds": {8: 3, 4: 1}}
    done.write(**more)
    try:
        assert done.run("--dry-run") == 0
    finally:
        done.write()
    said = capsys.readouterr().out
    assert "15 done, 4 to be run" in said
    assert "are left, 1 at once" in said


@pytest.mark.slow
def test_parts_do_not_lose_the_rest(done: Bench) -> None:
    assert done.run("--predictor", "ridge", "--horizon", "8") == 0
    assert len(done.records()) == 16
    assert done.run("--predictor", "persistence", "--horizon", "8") == 0  # a kind that the suite has not
    frame = done.records().frame
    assert len(frame) == 17
    assert frame["predictor"].value_counts()["persistence"] == 1
    assert done.run("--predictor", "patchtst+ridge", "--attention", "mlr", "--seeds", "1") == 0
    assert done.run("--dry-run") == 0


@pytest.mark.slow
def test_seeds_beyond_those_of_a_suite_stay_among_its_records(done: Bench, tmp_path: Path) -> None:
    shutil.copytree(done.folder, tmp_path / "copy")
    other = Bench(tmp_path / "copy")
    words = ["--predictor", "patchtst", "--attention", "mlr", "--horizon", "4"]
    assert other.run(*words, "--seeds", "2") == 0
    frame = other.records().frame
    assert set(frame.query("attention == 'mlr' and predictor == 'patchtst' and horizon == 4")["seed"]) == {1, 2}
    assert other.run("--predictor", "ridge") == 0
    after = other.records().frame
    assert {*after["key"]} == {*frame["key"]}
    assert len(after) == 17, "those of the suite, and one seed more"


@pytest.mark.slow
def test_shards_share_the_work_and_are_added_up(done: Bench, tmp_path: Path) -> None:
    parts = []
    for number in (1, 2):
        part = bench(tmp_path / f"part_{number}")
        assert part.run("--shard", f"{number}/2") == 0
        parts.append(part)
        keys = set(part.counts("done"))
        journal = {note["key"]: note.get("name") for note in part.journal() if note["event"] == "begin"}
        mixes = [name for name in journal.values() if name is not None and "+" in name]
        for name in mixes:  # members lie in the shard of their ensembles
            assert name.replace("+ridge", "") in journal.values()
        assert keys == set(journal)
    one, two = (set(part.counts("done")) for part in parts)
    assert one
    assert two
    assert not one & two
    whole = done.records().frame
    assert one | two == set(whole.loc[(whole["status"] == "done") & whole["suite"].eq("smoke"), "key"]) - set(
        whole.loc[whole["predictor"] == "persistence", "key"]
    )
    first = parts[0]
    assert first.run("--add", str(parts[1].out)) == 0
    assert set(first.counts("done")) == one  # nothing was run
    columns = [*LABELS, "key", "mse", "mae", "status"]
    added = first.records().frame[columns]
    expected = whole.loc[whole["predictor"] != "persistence", columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(added, expected)
    merged = Records.read(parts[0].out, parts[1].out)
    assert len(merged) == 16


@pytest.mark.slow
def test_records_of_others_stay_beside_those_of_the_suite(done: Bench, tmp_path: Path) -> None:
    mine = bench(tmp_path / "mine", **few())
    mine.write(**{**few(), "predictors": {"ridge": "ridge"}})
    assert mine.run("--add", str(done.out)) == 0
    frame = mine.records().frame
    assert sum(mine.counts("begin").values()) == 0
    assert set(frame["predictor"]) == {"ridge", "patchtst", "patchtst+ridge", "patchtst x2"} | (
        {"persistence"} & set(done.records().frame["predictor"])
    )
    assert set(frame["suite"]) == {"smoke"}


@pytest.mark.slow
def test_what_has_changed_is_not_taken_for_it(tmp_path: Path) -> None:
    made = bench(tmp_path, **few())
    assert made.run() == 0
    before = made.records().frame.set_index("predictor")
    assert len(before) == 3
    content = few()
    content["predictors"]["patchtst"]["by_data"]["co2"]["model.learning_rate"] = 0.005
    made.write(**content)
    assert made.run() == 0
    after = made.records().frame.set_index("predictor")
    assert len(after) == 3  # what was replaced is no longer in the table
    for name in after.index:
        assert (after.loc[name, "key"] == before.loc[name, "key"]) == (name == "ridge")
    assert len(made.counts("done")) == 5
    made.write(**few())
    assert made.run() == 0
    assert sum(made.counts("done").values()) == 5  # and it is there when it is asked for again
    assert made.records().frame.set_index("predictor")["key"].equals(before["key"])


@pytest.mark.slow
def test_failures_are_recorded_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert reasons["with it"] == f"what it is made of failed: {reasons['diverging']}"
    assert reasons["broken"] == "RuntimeError: something broke"
    assert reasons["killed"] == "its process was ended by SIGKILL, as it is where memory runs out"
    said = capsys.readouterr().out
    assert "failed: co2 8: broken: RuntimeError: something broke" in said
    assert "smoke: 3 done, 4 failed" in said
    traces = "".join(path.read_text() for path in (made.runs / "errors").iterdir())
    assert "Traceback" in traces
    assert made.run() == 0
    assert made.counts("begin").total() == 6  # failed ones are not run again by themselves
    assert made.run("--retry-failed", "--predictor", "broken") == 0
    assert made.counts("begin").total() == 7
    assert "begin" in json.dumps(made.journal())
