"""Records: what is written is what is read, whole or not at all, and errors over time are sums of windows."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tsattn.errors import UserError
from tsattn.experiments import Experiment
from tsattn.leaderboard.digest import conflicts, digest_of, kind_of
from tsattn.leaderboard.records import SCHEMA, Records, by_stretch, read_record, stretch_of, write_record

WINDOWS = 100


def windows(seed: int, count: int = WINDOWS) -> pd.DataFrame:
    draws = np.random.default_rng(seed).gamma(2.0, size=(2, count))
    frame = pd.DataFrame({"origin": np.arange(count) * 3600 + 10**9, "squared": draws[0], "absolute": draws[1]})
    return frame.assign(count=672)


def record(key: str = "a", seed: int | None = 1, horizon: int = 96, **values: Any) -> dict[str, Any]:
    frame = windows(int(key, 16))
    total = frame["count"].sum()
    return {
        **{"suite": "ett", "dataset": "ETTh1", "horizon": horizon, "predictor": "patchtst", "attention": "mlr"},
        **{"seed": seed, "status": "done", "reason": "", "key": key, "windows": WINDOWS},
        **{"mse": frame["squared"].sum() / total, "mae": frame["absolute"].sum() / total},
        **{"threads": 1, "finished": datetime(2026, 11, 22, 7, 0, 0, 5, UTC)},
        **by_stretch(frame, horizon),
        **values,
    }


FAILED = {"status": "failed", "reason": "diverged", "mse": None, "mae": float("nan"), "origin": None}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    Records.of([record("c", 3, **FAILED), record("b", None), record("a", 2)], {"ett": "data: [ETTh1]"}).write(tmp_path)
    read = Records.read(tmp_path)
    assert read.suites == {"ett": "data: [ETTh1]"}
    assert len(read) == len(read.frame) == 3
    assert read.frame["seed"].tolist()[1:] == [2, 3]
    assert pd.isna(read.frame["seed"].iloc[0])
    assert read.frame["status"].tolist() == ["done", "done", "failed"]
    assert read.frame["finished"].tolist() == [pd.Timestamp("2026-11-22 07:00:00.000005", tz="UTC")] * 3
    assert read.done["key"].tolist() == ["b", "a"]
    assert [path.name for path in tmp_path.iterdir()] == ["records.parquet"]


def test_errors_are_sums_over_stretches_of_windows(tmp_path: Path) -> None:
    """An eighth of the horizon: 12 windows of 96, whatever their order and number of series."""
    assert [stretch_of(horizon) for horizon in (1, 7, 8, 96, 720)] == [1, 1, 1, 12, 90]
    Records.of([record("a")]).write(tmp_path)
    frame = windows(10)
    for metric, column in (("mse", "squared"), ("mae", "absolute")):
        sums, counts, origins = Records.read(tmp_path).errors("a", metric)
        expected = [frame[column][start : start + 12].sum() for start in range(0, WINDOWS, 12)]
        np.testing.assert_allclose(sums, expected, rtol=1e-5)
        assert counts.tolist() == [672 * 12] * 8 + [672 * 4]
        assert origins.tolist() == frame["origin"][::12].tolist()
    both = pd.concat([frame, frame]).sample(frac=1, random_state=0)
    shuffled = by_stretch(both, 96)
    np.testing.assert_allclose(shuffled["squared"], 2 * np.array(by_stretch(frame, 96)["squared"]), rtol=1e-4)
    assert shuffled["origin"] == by_stretch(frame, 96)["origin"]
    assert shuffled["count"] == [2 * count for count in by_stretch(frame, 96)["count"]]
    with pytest.raises(UserError, match=r"too large, or not numbers: the absolute errors of a window sum to 1e\+20"):
        by_stretch(frame.assign(squared=1e39, absolute=1e20), 96)
    with pytest.raises(UserError, match="sum to nan"):
        by_stretch(frame.assign(absolute=[math.nan, *frame["absolute"][1:]]), 96)


def test_a_record_of_its_own_is_the_same(tmp_path: Path) -> None:
    write_record(tmp_path / "records" / "a.parquet", record("a"))
    again = read_record(tmp_path / "records" / "a.parquet")
    assert {name: again[name] for name in record("a")} == record("a")
    assert list(again) == SCHEMA.names
    Records.of([again]).write(tmp_path / "table")  # a table is the concatenation of such rows
    assert Records.read(tmp_path / "table").table.to_pylist() == [again]
    assert [path.name for path in (tmp_path / "records").iterdir()] == ["a.parquet"]


def test_tables_are_joined(tmp_path: Path) -> None:
    Records.of([record("a", 1), record("b", 2)], {"ett": "x"}).write(tmp_path / "one")
    Records.of([record("b", 2, suite="more"), record("c", 3)], {"more": "y"}).write(tmp_path / "other")
    both = Records.read(tmp_path / "one", tmp_path / "other" / "records.parquet")
    assert both.done["key"].tolist() == ["a", "b", "c"]  # a run that two suites share counts once
    assert both.suites == {"ett": "x", "more": "y"}
    Records.of([record("a", 1, mse=0.4)]).write(tmp_path / "changed")
    with pytest.raises(UserError, match="was changed: the errors of the key a are not those of its mse"):
        Records.read(tmp_path / "changed")
    table = pa.concat_tables([both.table.slice(0, 1)])
    wrong = table.set_column(table.schema.get_field_index("mse"), "mse", pa.array([table["mse"][0].as_py() * 1.00001]))
    Records(wrong).write(tmp_path / "changed")
    with pytest.raises(UserError, match=r"two results of one experiment differ \(MSE .*\); key a"):
        Records.read(tmp_path / "one", tmp_path / "changed")


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no records; name a folder with a records.parquet"):
        Records.read(tmp_path)
    with pytest.raises(UserError, match=r"name at least one folder with a records.parquet"):
        Records.read()
    pq.write_table(pa.table({"key": ["a"]}), tmp_path / "records.parquet")
    with pytest.raises(UserError, match="has no column suite, so it holds no records"):
        Records.read(tmp_path)
    (tmp_path / "records.parquet").write_text("nothing")
    with pytest.raises(UserError, match="cannot be read"):
        Records.read(tmp_path)
    with pytest.raises(ValueError, match="no column colour"):
        Records.of([record("a", colour="red")])


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Records.of([record("a")]).write(tmp_path)
    before = (tmp_path / "records.parquet").read_bytes()

    def fail(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(UserError, match=r"records.parquet cannot be written: No space left on device"):
        Records.of([record("a"), record("b", 2)]).write(tmp_path)
    assert (tmp_path / "records.parquet").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["records.parquet"]


def row(kind: str, cpu: str, digest: float | None, git: str = "a" * 40) -> dict[str, object]:
    text = yaml.safe_dump({"model": {"backbone": {"kind": kind, "d_model": 8, "attention": {"kind": "mlr"}}}})
    return {"experiment": text, "cpu": cpu, "digest": digest, "git": git}


def test_records_of_code_that_differs_are_named() -> None:
    rows = [row("patchtst", "one", 0.5), row("patchtst", "one", 0.5 + 1e-9), row("patchtst", "two", 0.7)]
    assert conflicts(pd.DataFrame([*rows, row("transformer", "one", 0.9), row("ridge", "one", None)])) == []
    (said,) = conflicts(pd.DataFrame([*rows, row("patchtst", "one", 0.50001, "b" * 40)]))
    assert "patchtst" in said
    assert "on one were trained by code that differs" in said
    assert "commits aaaaaaa, bbbbbbb" in said
    assert conflicts(pd.DataFrame([row("ridge", "one", None)])) == []


def test_a_kind_is_that_of_predictor_and_attention_without_arguments() -> None:
    one = kind_of({"kind": "patchtst", "d_model": 8, "attention": {"kind": "mlr", "ranks": [2, 2]}})
    assert json.loads(one) == {"kind": "patchtst", "attention": "mlr"}
    assert json.loads(kind_of({"kind": "transformer", "attention": ["swa", "swa", "mlr"]}))["attention"] == [
        "swa",
        "mlr",
    ]
    assert json.loads(kind_of({"kind": "ridge", "penalty": 1.0})) == {"kind": "ridge"}


def test_a_digest_is_kept_for_the_libraries_in_use_unless_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {"data": {"class_path": "CO2DataModule"}, "model": {"backbone": {"kind": "patchtst", "d_model": 8}}}
    experiment, found = Experiment.of(content), iter([None, 1.0, 2.0])
    monkeypatch.setattr("tsattn.leaderboard.digest._digest", lambda backbone: next(found))
    assert [digest_of(experiment, "cpu", tmp_path / "digests.json") for _ in range(3)] == [None, 1.0, 1.0]
    monkeypatch.setattr("tsattn.leaderboard.digest.version", lambda name: "0")
    assert digest_of(experiment, "cpu", tmp_path / "digests.json") == 2.0


@pytest.mark.slow
def test_a_digest_is_computed_once_and_is_that_of_the_kind(tmp_path: Path) -> None:
    content = {"data": {"class_path": "CO2DataModule"}, "model": {"backbone": {"kind": "patchtst", "d_model": 8}}}
    experiment = Experiment.of(content)
    file = tmp_path / "digests.json"
    found = digest_of(experiment, "cpu", file)
    assert found is not None
    changed = experiment.with_values({"model.learning_rate": 0.1})
    assert digest_of(changed, "cpu", tmp_path / "other.json") == found
    file.write_text(file.read_text().replace(str(found), "7.5"))
    assert digest_of(experiment, "cpu", file) == 7.5
    assert digest_of(experiment, "another", file) == found
    assert digest_of(experiment.with_values({"model.backbone": "ridge"}), "cpu", file) is None
