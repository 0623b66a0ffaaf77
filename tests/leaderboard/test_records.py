"""Records: what is written is what is read, whole or not at all, and two results of one key are told apart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tsattn.errors import UserError
from tsattn.leaderboard.parquet_files import write_parquet
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.run_record import Record

WINDOWS = 40
MSE, MAE = 0.4, 0.41


def windows(seed: int, count: int = WINDOWS, mse: float = MSE) -> pa.Table:
    draws = np.random.default_rng(seed).gamma(2.0, size=(2, count))
    draws = (draws * 672 * np.array([[mse], [MAE]]) / draws.mean(1, keepdims=True)).astype(np.float32)
    return pa.table(
        {
            "window": np.arange(count, dtype=np.int32),
            "origin": np.arange(count) * 3600 + 10**9,
            "squared": draws[0],
            "absolute": draws[1],
            "count": np.full(count, 672, np.int32),
        }
    )


def record(key: str, seed: int | None = 1, **values: Any) -> Record:
    row: dict[str, Any] = {
        **{"suite": "ett", "dataset": "ETTh1", "horizon": 96, "predictor": "patchtst", "attention": "mlr"},
        **{"seed": seed, "status": "done", "reason": "", "key": key, "mse": MSE, "mae": MAE, "windows": WINDOWS},
        **{"threads": 1, "finished": datetime(2026, 11, 22, 7, 0, 0, 5, UTC)},
        **values,
    }
    is_done = row["status"] == "done"
    return Record.of(row, windows(int(key or "0", 16), mse=row["mse"] or MSE) if is_done else None)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    refused = record("", None, attention="swa", status="does not apply", reason="no order", mse=None, mae=float("nan"))
    failed = record("c", 3, status="failed", reason="diverged", mse=None, mae=None)
    Records.of([failed, record("b", 2), refused, record("a", 1)]).write(tmp_path)
    read = Records.read(tmp_path)
    frame = read.frame
    assert len(read) == len(frame) == 4
    assert frame["seed"].tolist() == [1, 2, 3, pd.NA] or frame["seed"].isna().tolist() == [False, False, False, True]
    assert frame["status"].tolist() == ["done", "done", "failed", "does not apply"]
    assert frame["finished"].tolist() == [pd.Timestamp("2026-11-22 07:00:00.000005", tz="UTC")] * 4
    assert frame["mse"].isna().tolist() == [False, False, True, True]
    for key in "ab":
        expected = windows(int(key, 16)).to_pandas()
        for name in ("squared", "absolute"):
            digits, exponent = np.frexp(expected[name].astype(float))
            expected[name] = np.ldexp(np.round(digits * 2**16) / 2**16, exponent).astype(np.float32)
        pd.testing.assert_frame_equal(read.windows(key), expected, check_exact=True)
        assert read.windows(key)["squared"].dtype == np.float32
    with pytest.raises(UserError, match=r"no errors by window of the key 'c'"):
        read.windows("c")


def test_a_record_of_its_own_is_the_same(tmp_path: Path) -> None:
    one = record("a")
    one.write(tmp_path / "entries" / "a.parquet")
    again = Record.read(tmp_path / "entries" / "a.parquet")
    assert again.row == one.row
    assert again.windows.equals(one.windows)
    assert [path.name for path in (tmp_path / "entries").iterdir()] == ["a.parquet"]  # nothing half written is left


def test_files_do_not_depend_on_the_order(tmp_path: Path) -> None:
    some = [record("a", 1), record("b", 2), record("c", 3)]
    for name, records in (("one", some), ("other", some[::-1])):
        Records.of(records).write(tmp_path / name)
    for file in ("records.parquet", "windows.parquet"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()


def test_folders_are_merged(tmp_path: Path) -> None:
    Records.of([record("a", 1), record("b", 2, status="failed", mse=None, mae=None)]).write(tmp_path / "one")
    Records.of([record("b", 2), record("a", 1), record("c", 3)]).write(tmp_path / "other")
    for order in (("one", "other"), ("other", "one")):
        both = Records.read(*(tmp_path / name for name in order))
        assert both.frame["key"].tolist() == ["a", "b", "c"]
        assert both.frame["status"].tolist() == ["done"] * 3  # failed in one, done in the other
        assert len(both.windows("b")) == WINDOWS
    assert Records.read(tmp_path / "one" / "records.parquet").frame["key"].tolist() == ["a", "b"]


def test_two_results_of_one_key_are_refused(tmp_path: Path) -> None:
    Records.of([record("a")]).write(tmp_path / "one")
    Records.of([record("a", mse=0.4001)]).write(tmp_path / "other")
    with pytest.raises(UserError, match=r"two results of one experiment differ: mse 0.4 in .*one.* 0.4001 in .*other"):
        Records.read(tmp_path / "one", tmp_path / "other")


def test_results_that_are_missing_are_compared_like_others(tmp_path: Path) -> None:
    Records.of([record("a", mse=None)]).write(tmp_path / "one")
    Records.of([record("a")]).write(tmp_path / "other")
    assert len(Records.read(tmp_path / "one", tmp_path / "one")) == 1
    with pytest.raises(UserError, match=r"differ: mse none in .*one.* 0.4 in .*other"):
        Records.read(tmp_path / "one", tmp_path / "other")


def test_seeds_are_left_out() -> None:
    left = Records.of([record("a", 1), record("b", 2), record("c", None), record("d", 3)]).without_seeds([1, 3])
    assert sorted(left.frame["key"]) == ["b", "c"]
    assert len(left.windows("b")) == WINDOWS
    assert len(left.each()) == 2


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no records in .*: valid is a folder with records.parquet"):
        Records.read(tmp_path)
    with pytest.raises(UserError, match="no records are named"):
        Records.read()
    pd.DataFrame({"key": ["a"]}).to_parquet(tmp_path / "records.parquet")
    with pytest.raises(UserError, match="holds no records"):
        Records.read(tmp_path)
    (tmp_path / "records.parquet").write_text("nothing")
    with pytest.raises(UserError, match="cannot be read"):
        Records.read(tmp_path)
    Records.of([record("a")]).write(tmp_path)
    (tmp_path / "windows.parquet").unlink()
    with pytest.raises(UserError, match=r"errors by window are missing: .*windows.parquet"):
        Records.read(tmp_path)
    with pytest.raises(ValueError, match="no column colour"):
        record("a", colour="red")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Records.of([record("a")]).write(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", fail)
    with pytest.raises(UserError, match=r"windows.parquet cannot be written: No space left on device"):
        Records.of([record("a"), record("b", 2)]).write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_suite_of_three_hundred_runs_is_small(tmp_path: Path) -> None:
    runs = [Record.of({**record("a", seed).row, "key": f"{seed:064x}"}, windows(seed, 2785)) for seed in range(300)]
    Records.of(runs).write(tmp_path)
    assert (
        tmp_path / "windows.parquet"
    ).stat().st_size < 6.5 * 300 * 2785  # two errors of three bytes a window, and hardly more


@pytest.mark.parametrize("status", ["failed", "does not apply"])
def test_what_was_decided_in_one_table_is_not_open_in_another(status: str, tmp_path: Path) -> None:
    """A study that failed on one machine and chose values on another leaves runs without a key and runs with one."""
    seeds = (1, 3) if status == "failed" else (None,)
    nothing = {"status": status, "mse": None, "mae": None}
    Records.of([*(record("", seed, **nothing) for seed in seeds)]).write(tmp_path / "one")
    Records.of([record("a", 1), record("b", 2)]).write(tmp_path / "other")
    for order in (("one", "other"), ("other", "one")):
        both = Records.read(*(tmp_path / name for name in order)).frame
        left = {"a": "done", "b": "done", **({"": "failed"} if status == "failed" else {})}
        assert dict(zip(both["key"], both["status"], strict=True)) == left
        assert both["seed"].tolist() == [1, 2, 3][: len(left)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda table: table.sort_by("window"),
            "has 1 windows one after another of the key 'a', whose record counts 40",
        ),
        (lambda table: table.slice(0, 70), "has 30 windows one after another of the key 'b', whose record counts 40"),
        (
            lambda table: table.filter(pc.not_equal(table["window"], 7)),
            "has 39 windows one after another of the key 'a'",
        ),
        (
            lambda table: table.set_column(
                table.schema.get_field_index("squared"), "squared", pc.multiply(table["squared"], np.float32(1.01))
            ),
            r"the errors of the key 'a' in .* come to mse 0\.40\d*, and its record says 0\.4: one of both was changed",
        ),
    ],
    ids=["order", "end", "one", "errors"],
)
def test_windows_that_are_not_those_of_their_row_are_refused(
    change: Callable[[pa.Table], pa.Table], message: str, tmp_path: Path
) -> None:
    Records.of([record("a"), record("b", 2)]).write(tmp_path)
    file = tmp_path / "windows.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    with pytest.raises(UserError, match=message):
        Records.read(tmp_path)


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_table_that_is_cut_off_over_a_smaller_one_is_read(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever file is written last, every row has its windows."""
    Records.of([record("a"), record("b", 2)]).write(tmp_path)
    done: list[Path] = []

    def write(path: Path, table: pa.Table) -> None:
        if len(done) == written:
            raise KeyboardInterrupt
        done.append(path)
        write_parquet(path, table)

    monkeypatch.setattr("tsattn.leaderboard.records.write_parquet", write)
    made = Records.of([record("b", 2), record("c", 3)])
    if written < 3:
        with pytest.raises(KeyboardInterrupt):
            made.write(tmp_path)
    else:
        made.write(tmp_path)
    keys = [one.row["key"] for one in Records.read(tmp_path).each()]
    assert keys == (["a", "b"] if written < 2 else ["b", "c"])
    left = set(pq.read_table(tmp_path / "windows.parquet")["key"].to_pylist())
    assert left == {0: {"a", "b"}, 1: {"a", "b", "c"}, 2: {"a", "b", "c"}, 3: {"b", "c"}}[written]
