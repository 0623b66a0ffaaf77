"""`tsattn report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaderboard.invented import board as invented
from tests.leaderboard.invented import row
from tsattn.cli import main
from tsattn.leaderboard.page import BEGIN, END
from tsattn.leaderboard.records import Records


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "report needs records"),
        (["nowhere"], "nowhere holds no records; name a folder with a records.parquet"),
        (["RUN"], "run is a run: see its forecast.png, or `tsattn compare"),
        (["BOARD", "BOARD"], "several records make one page: name its folder with --output DIR"),
        (["BOARD", "--readme", "nowhere.md"], "nowhere.md cannot be read"),
        (["BOARD", "--outptu", "x"], "did you mean --output"),
        (["BOARD", "--output", "here/x.html"], "--output is a folder, not x.html: pass --output here"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str],
    message: str,
    board: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("")
    named = {"BOARD": str(board), "RUN": str(tmp_path / "run")}
    assert main(["report", *(named.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_a_file_without_the_comments_is_left_alone(board: Path, tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("text\n")
    assert main(["report", str(board), "--readme", str(tmp_path / "other.md")]) == 2
    assert (tmp_path / "other.md").read_text() == "text\n"
