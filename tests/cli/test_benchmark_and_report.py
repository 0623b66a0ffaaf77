"""`benchmark`, where data or a cluster are not there, and `report`."""

from pathlib import Path

import pooch
import pytest
import requests

from tests.leaderboard.cases import bench, few
from tests.leaderboard.invented import board as invented
from tests.leaderboard.invented import row
from tsattn.cli import main
from tsattn.leaderboard.page import BEGIN, END
from tsattn.leaderboard.records import Records


def test_data_that_cannot_be_fetched_are_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def fail(url: str, *_: object, **__: object) -> None:
        asked.append(url)
        raise requests.exceptions.ConnectionError

    monkeypatch.setattr(pooch, "retrieve", fail)
    monkeypatch.setenv("TSATTN_DATA", str(tmp_path))
    small = {**few(), "data": ["national_illness"], "predictors": {"ridge": "ridge"}}
    assert bench(tmp_path, **small).run("--dry-run") == 2
    said = capsys.readouterr().err
    assert "put the file national_illness.csv into" in said
    assert len(asked) == 1


def test_an_address_that_nobody_answers_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="ray is not installed, so no suite is run on a cluster")
    made = bench(tmp_path, **few())
    assert made.run("--ray", "localhost:1") == 2
    assert "no Ray cluster answers at localhost:1; valid is its HOST:PORT" in capsys.readouterr().err


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board") / "ett"
    failed = row("ETTh1", 24, "patchtst", "btt", 1, status="failed", reason="out of memory", mse=None, mae=None)
    Records.of([*invented(("ETTh1",)).table.to_pylist(), failed]).write(folder)
    return folder


def test_page_and_markdown_lie_beside_the_records(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(board)]) == 0
    assert "18 runs, 1 failed" in capsys.readouterr().out
    assert sorted(path.name for path in board.iterdir()) == [
        *("records.parquet", "report.html", "report.md", "report.png")
    ]


def test_several_records_make_one_page_and_a_part_of_files(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    invented(("weather",)).write(tmp_path / "more")
    readme = tmp_path / "docs" / "README.md"
    readme.parent.mkdir()
    for before in ("", "\n\nformer words\n\n"):
        readme.write_text(f"# Title\n\n{BEGIN}{before}{END}\n\nafter\n")
        words = ["report", str(board), str(tmp_path / "more"), "--output", str(tmp_path / "both")]
        assert main([*words, "--readme", str(readme)]) == 0
        text = readme.read_text()
        assert text.startswith(f"# Title\n\n{BEGIN}\n\nOn ETTh1 and weather, `mlr` is better than `standard`.")
        assert text.endswith(f"(../both/report.md).\n\n{END}\n\nafter\n")
        assert "](../both/report.png)" in text
        assert "| weather |" in text
        assert "former words" not in text
    assert "36 runs" in capsys.readouterr().out
    assert readme.read_text() == text
    again = text.partition(BEGIN)[2].partition(END)[0]
    report = (tmp_path / "both" / "report.md").read_text()
    assert all(line in report for line in again.splitlines() if line.startswith("|"))
