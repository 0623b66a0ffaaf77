"""`tsattn report`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.leaderboard.html_page import Page
from tests.leaderboard.invented import record, records
from tsattn.cli import main
from tsattn.cli.board_report import run
from tsattn.experiments import Experiment
from tsattn.experiments import run as run_experiment
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.readme_part import BEGIN, END
from tsattn.leaderboard.report.window_pictures import PICTURES, extreme_windows


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board") / "ett"
    records(datasets=("ETTh1",), horizons=(24, 48), seeds=(1, 2), windows=300).write(folder)
    return folder


def test_page_and_markdown_lie_beside_the_records(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(board)]) == 0
    assert "48 runs, 1 failed" in capsys.readouterr().out
    assert Page((board / "report.html").read_text()).root.all("table")
    assert (board / "report.md").read_text().startswith("# Leaderboard: invented\n")


def test_several_records_are_merged(board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Records.of([record("weather", 24, "ridge", "", None, windows=200)]).write(tmp_path / "more")
    assert main(["report", str(board), str(tmp_path / "more"), "--output", str(tmp_path / "both")]) == 0
    assert "49 runs" in capsys.readouterr().out
    assert "weather" in (tmp_path / "both" / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "report needs records"),
        (["nowhere"], "there are no records in nowhere, and it is not the folder of a run"),
        (["BOARD", "--confirm", "9"], "--confirm 9: no run has this seed; there are 1, 2"),
        (["BOARD", "--confirm", "1,2"], "--confirm names every seed"),
        (["BOARD", "--confirm", "one"], "--confirm must be seeds such as 4,5, not one"),
        (["BOARD", "--published", "no.toml"], "no published numbers in no.toml"),
        (["BOARD", "--runs", "nowhere"], "there is no folder nowhere with runs"),
        (["BOARD", "--readme", "nowhere.md"], "nowhere.md cannot be read"),
        (["BOARD", "--outptu", "x"], "did you mean --output"),
        (
            ["BOARD", "--output", "here/x.html"],
            "--output is a folder, in which report.html is written: instead of here/x",
        ),
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
    assert main(["report", *(str(board) if word == "BOARD" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_the_seed_that_chose_does_not_confirm(board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(board), "--confirm", "1", "--output", str(tmp_path / "free")]) == 0, "nothing was chosen"
    shutil.copytree(board, tmp_path / "chosen")
    (tmp_path / "chosen" / "selected.json").write_text("{}")
    assert main(["report", str(tmp_path / "chosen"), "--confirm", "2"]) == 0
    assert main(["report", str(tmp_path / "chosen"), "--confirm", "1"]) == 2
    assert "--confirm 1: values were chosen with the first seed; fresh are those after it" in capsys.readouterr().err


def test_a_readme_gets_its_table_and_nothing_else_is_written(board: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    for before in ("", "\n\nformer words\n\n"):
        readme.write_text(f"# Title\n\n{BEGIN}{before}{END}\n\nafter\n")
        files = sorted(path.name for path in board.iterdir())
        assert main(["report", str(board), "--readme", str(readme)]) == 0
        text = readme.read_text()
        assert text.startswith(f"# Title\n\n{BEGIN}\n\n| data set |")
        assert text.endswith(f"\n\n{END}\n\nafter\n")
        assert "| ETTh1 | `patchtst" in text
        assert "former words" not in text
        assert sorted(path.name for path in board.iterdir()) == files
    again = readme.read_text()
    run([str(board), "--readme", str(readme)])
    assert readme.read_text() == again


def test_a_file_without_the_comments_is_left_alone(board: Path, tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("text\n")
    assert main(["report", str(board), "--readme", str(tmp_path / "other.md")]) == 2
    assert (tmp_path / "other.md").read_text() == "text\n"


def test_help_needs_no_torch(board: Path) -> None:
    code = (
        "import sys; from tsattn.cli import main\n"
        "try: main(['report', '--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--confirm SEEDS" in done.stdout


def test_the_extreme_windows_are_apart() -> None:
    windows = record("ETTh1", 24, "ridge", "", None, windows=400)
    table = Records.of([windows]).windows(windows.row["key"])
    found = extreme_windows(table)
    errors = table["squared"] / table["count"]
    assert len(found) == 4
    assert min(errors[number] for number in found) == errors.min()
    assert max(errors[number] for number in found) == errors.max()
    lowest = sorted(number for number, word in found.items() if word.startswith("lowest"))
    assert lowest[1] - lowest[0] >= 20
    table["count"] = 0
    assert not extreme_windows(table)


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_windows_are_drawn_by_the_model_of_a_run(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"context_length": 48, "prediction_length": 12, "batch_size": 32, "path": str(toy_csv)}
    backbone = {"kind": "patchtst", "d_model": 8, "num_heads": 2, "num_layers": 1, "attention": "mlr"}
    trainer = {"max_steps": 2, "accelerator": "cpu", "logger": False}
    content = {"data": {"class_path": "CSVDataModule", "init_args": data}, "model": {"backbone": backbone}}
    experiment = Experiment.of({**content, "trainer": trainer, "seed_everything": 1})
    result = run_experiment(experiment, tmp_path / "runs" / "one")
    frame = result.errors.frame()
    windows = frame.groupby("origin", sort=True)[["squared_scaled", "absolute_scaled", "count"]].sum().reset_index()
    errors = {"squared": windows["squared_scaled"], "absolute": windows["absolute_scaled"], "count": windows["count"]}
    scores = {name: errors[of].sum() / errors["count"].sum() for name, of in (("mse", "squared"), ("mae", "absolute"))}
    own = record("ETTh1", 12, "patchtst", "mlr", 1, windows=len(windows), key=result.key, **scores)
    table = own.windows.to_pandas().assign(**errors)
    found = Records.of([type(own).of(own.row, type(own.windows).from_pandas(table, preserve_index=False))])
    found.write(tmp_path / "board")
    assert main(["report", str(tmp_path / "board"), "--runs", str(tmp_path / "runs")]) == 0
    figures = Page((tmp_path / "board" / "report.html").read_text()).root.all("figure")
    drawn = [figure for figure in figures if figure.attributes["id"] == "window-figure-1"]
    assert len(drawn) == 1
    text = drawn[0].words()
    assert "lowest errors, MSE" in text
    assert "highest errors, MSE" in text
    assert "seed 1" in text
    worst = windows.loc[(windows["squared_scaled"] / windows["count"]).idxmax(), "origin"]
    assert f"{worst + pd.Timedelta('1h'):%Y-%m-%d %H:%M}" in text
    # which is kept, whether the runs are still there or not
    page = (tmp_path / "board" / "report.html").read_text()
    for words in ([], ["--runs", str(tmp_path / "board")]):
        (tmp_path / "board" / "report.html").unlink()
        assert main(["report", str(tmp_path / "board"), *words]) == 0
        assert (tmp_path / "board" / "report.html").read_text() == page
    (tmp_path / "board" / PICTURES).write_text("{")
    assert main(["report", str(tmp_path / "board")]) == 2
    assert "pictures.json is damaged; remove it, and draw forecasts anew" in capsys.readouterr().err
    (tmp_path / "board" / PICTURES).unlink()
    assert main(["report", str(tmp_path / "board"), "--runs", str(tmp_path / "board")]) == 0
    assert "No run folder of what was chosen on ETTh1" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "board")]) == 0
    text = (tmp_path / "board" / "report.md").read_text()
    assert "No run of what was chosen on ETTh1 was drawn. --runs FOLDER draws them." in text
