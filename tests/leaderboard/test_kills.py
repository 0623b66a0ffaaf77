"""A benchmark that is killed, interrupted, or run twice at once loses nothing and repeats nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.leaderboard.cases import Bench, bench, few
from tests.processes import wait_for
from tsattn.leaderboard.run_record import LABELS

pytestmark = pytest.mark.slow


def workers_of(made: Bench) -> set[int]:
    """The processes that have begun something and are there."""
    pids = {note["pid"] for note in made.journal()}
    return {pid for pid in pids if Path(f"/proc/{pid}").exists() and pid != os.getpid()}


def test_killed_three_times(tmp_path: Path) -> None:
    unbroken = bench(tmp_path / "unbroken", horizons=[8])
    assert unbroken.run("--jobs", "2") == 0
    made = bench(tmp_path / "killed", horizons=[8])
    finished: dict[str, float] = {}

    def kept() -> None:
        """What was recorded is there, as it was."""
        for name, changed in finished.items():
            assert (made.runs / "entries" / name).stat().st_mtime_ns == changed
        finished.update({path.name: path.stat().st_mtime_ns for path in (made.runs / "entries").glob("*.parquet")})

    def begun(count: int) -> Callable[[], bool]:
        return lambda: sum(made.counts("begin").values()) >= count

    def trained() -> bool:
        begun, done = made.counts("begin"), made.counts("done")
        under_way = [key for key in begun if key not in done]
        return any((made.runs / "runs" / key[:24] / "checkpoints" / "last.ckpt").exists() for key in under_way)

    moments = [begun(1), lambda: begun(4)() and trained(), begun(8)]
    for number, moment in enumerate(moments):
        worker = made.start("--jobs", "2")
        wait_for(moment)
        if number == 1:  # all at once, as when the machine goes down
            for pid in workers_of(made):
                os.kill(pid, signal.SIGKILL)
        worker.kill()
        wait_for(lambda: not workers_of(made))  # they end with the one that started them
        assert "Traceback" not in worker.said()
        kept()
    assert made.run("--jobs", "2") == 0
    kept()
    done, starts = made.counts("done"), made.counts("begin")
    assert len(done) == 10
    assert set(done.values()) == {1}, "an entry was repeated"
    assert sum(starts.values()) <= 10 + 3 * 2, "more was begun again than was under way"
    columns = [*LABELS, "status", "key", "mse", "mae", "validation_mse", "trained_windows"]
    pd.testing.assert_frame_equal(made.records().frame[columns], unbroken.records().frame[columns])
    assert not list(made.runs.rglob("*.partial"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    slow = {"kind": "tests.leaderboard.cases.Slow", "gate": str(tmp_path / "gate")}
    made = bench(tmp_path, **few(slow={"backbone": slow}))
    worker = made.start("--jobs", "2")
    wait_for(lambda: bool(list(tmp_path.glob("waits.*"))) and len(made.counts("done")) == 3)
    assert worker.process.pid is not None
    os.kill(worker.process.pid, number)
    assert worker.end() == 130, worker.said()
    assert "interrupted: go on with `python -m tsattn benchmark --suite" in worker.said()
    assert "Traceback" not in worker.said()
    wait_for(lambda: not workers_of(made))
    assert made.records().frame["status"].tolist() == ["done"] * 3
    (tmp_path / "gate").touch()
    assert made.run() == 0
    assert made.records().frame["status"].tolist() == ["done"] * 4
    assert made.counts("done").total() == 4


def test_two_on_one_folder(tmp_path: Path) -> None:
    made = bench(tmp_path, horizons=[8])
    workers = [made.start() for _ in range(2)]
    for worker in workers:
        assert worker.end() == 0, worker.said()
    assert len(made.counts("done")) == 10
    assert set(made.counts("begin").values()) == {1}
    assert len(made.records()) == 11  # one does not apply
    pids = {note["pid"] for note in made.journal()}
    assert len(pids) == 10  # each in a process of its own


def test_what_was_measured_but_not_recorded_is_not_run_again(tmp_path: Path) -> None:
    made = bench(tmp_path, **few())
    assert made.run() == 0
    before = made.records().frame
    key = before.set_index("predictor").loc["patchtst", "key"]
    checkpoint = made.runs / "runs" / key[:24] / "checkpoints" / "best.ckpt"
    changed = checkpoint.stat().st_mtime_ns
    (made.runs / "entries" / f"{key}.parquet").unlink()  # killed between the two
    for file in made.out.iterdir():
        file.unlink()
    assert made.run() == 0
    assert checkpoint.stat().st_mtime_ns == changed
    columns = [*LABELS, "key", "mse", "mae", "validation_mse"]
    pd.testing.assert_frame_equal(made.records().frame[columns], before[columns])


def test_files_of_others_beside_the_records_stay(tmp_path: Path) -> None:
    made = bench(tmp_path, **few())
    made.out.mkdir()
    for name in ("table.csv.partial", "records.parquet.7.partial"):
        (made.out / name).touch()
    assert made.run() == 0
    assert [path.name for path in made.out.glob("*.partial")] == ["table.csv.partial"]
