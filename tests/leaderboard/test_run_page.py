"""The page of runs, without a browser: what it says is what the folders hold and the checkpoints forecast."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.leaderboard.html_page import Node, Page
from tests.leaderboard.runs_to_report import content, made_runs
from tsattn.cli import main
from tsattn.evaluation import ErrorTable
from tsattn.experiments import run
from tsattn.leaderboard.report.page import page
from tsattn.leaderboard.report.parts import ForecastViewer, ReportTable, Section
from tsattn.leaderboard.run_page.reported_run import read_runs
from tsattn.leaderboard.run_page.run_contents import run_sections, run_title
from tsattn.leaderboard.run_page.run_scores import series_errors
from tsattn.leaderboard.run_page.run_settings import flat_values
from tsattn.leaderboard.run_page.window_choice import choose_windows, spread_windows

SECTIONS = ["summary", "scores", "steps", "series", "time", "forecasts", "curves", "settings", "machines"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return made_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def sections(runs: tuple[Path, Path, Path]) -> dict[str, Section]:
    return {one.name: one for one in run_sections(read_runs(runs))}


@pytest.fixture(scope="module")
def text(sections: dict[str, Section]) -> str:
    return page("Runs: <i>", list(sections.values()))


@pytest.fixture(scope="module")
def tree(text: str) -> Node:
    return Page(text).root


def cells(sections: dict[str, Section], section: str) -> list[dict[str, str]]:
    table = next(part for part in sections[section].parts if isinstance(part, ReportTable))
    return [{column.name: cell.text for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def viewers(sections: dict[str, Section]) -> list[Any]:
    return [part.content for part in sections["forecasts"].parts if isinstance(part, ForecastViewer)]


def test_it_is_one_file_of_the_sections_in_order(text: str, tree: Node) -> None:
    assert [one.attributes["id"] for one in tree.all("section")] == SECTIONS
    names = [node.attributes["id"] for node in tree.everything() if "id" in node.attributes]
    assert len(names) == len(set(names))
    for node in tree.everything():
        for name in ("src", "href", "data", "action"):
            value = node.attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), (node.tag, name, value)
    assert "<b>drift" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL)
    assert not re.search(r"@import|url\((?!#)", text)
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b", drawings), "each colour is one of the page"
    assert len(text) < 600_000


def test_scores_are_those_of_the_folders(runs: tuple[Path, Path, Path], sections: dict[str, Section]) -> None:
    rows = cells(sections, "scores")
    for folder in runs[:2]:
        test = json.loads((folder / "metrics.json").read_text())["test"]
        (row,) = [row for row in rows if row["run"] == folder.name]
        assert float(row["MSE"]) == pytest.approx(next(iter(test.values()))["mse_scaled"], abs=6e-4)
    assert sum(row["predictor"] == "persistence" for row in rows) == 1, "the same baseline of both runs"
    assert not any(row["run"] == "untested" for row in rows)
    assert any("it was not tested" in line for line in sections["summary"].text)


def test_errors_by_series_are_sums_over_counts(runs: tuple[Path, Path, Path]) -> None:
    (one,) = read_runs(runs[:1])
    found = series_errors(one)
    assert found is not None
    frame = ErrorTable.read(runs[0] / "errors.parquet").frame()
    assert found["series"].tolist() == sorted(
        frame["channel"].unique(),
        key=lambda name: (
            -frame.loc[frame["channel"] == name, "squared_scaled"].sum()
            / frame.loc[frame["channel"] == name, "count"].sum()
        ),
    )
    for row in found.to_dict("records"):
        own = frame[frame["channel"] == row["series"]]
        assert row["windows"] == len(own)
        assert row["mae"] == pytest.approx(own["absolute_scaled"].sum() / own["count"].sum())
        mase = (own["absolute_original"] / own["seasonal_error"]).sum() / own["count"].sum()
        assert row["mase"] == pytest.approx(mase)


def test_the_steps_make_up_the_whole(runs: tuple[Path, Path, Path], sections: dict[str, Section]) -> None:
    rows = cells(sections, "steps")
    folder = runs[1]
    errors = [float(row["MSE"]) for row in rows if row["run"] == folder.name]
    assert len(errors) == 12
    scores = next(iter(json.loads((folder / "metrics.json").read_text())["test"].values()))
    assert np.mean(errors) == pytest.approx(scores["mse_scaled"], rel=0.02)  # a few targets are missing
    assert sum(row["run"] == "untested" for row in rows) == 12, "of its validation windows"


def test_forecasts_are_those_that_were_scored(runs: tuple[Path, Path, Path], sections: dict[str, Section]) -> None:
    together, alone = viewers(sections)
    assert together["runs"] == ["network", "ridge"]
    assert together["bands"] == [[80.0], []]
    assert alone["runs"] == ["untested"]
    given = pd.read_csv(runs[0].parent / "toy.csv", index_col="date", parse_dates=True)
    frames = [ErrorTable.read(folder / "errors.parquet").frame() for folder in runs[:2]]
    names = [one["name"] for one in together["series"]]
    assert set(names) == {"wave", "<b>drift"}
    has_gap = False
    for window in together["windows"]:
        first, step, count = window["times"]["even"]
        stamps = pd.to_datetime(first + step * np.arange(count), unit="s")
        name = names[window["series"]]
        observed = np.array(window["past"] + window["truth"], float)
        np.testing.assert_allclose(observed, given.loc[stamps, name].to_numpy(), rtol=1e-4)
        has_gap = has_gap or bool(np.isnan(observed).any())
        origin = stamps[len(window["past"]) - 1]
        for frame, forecast in zip(frames, window["forecasts"], strict=True):
            own = frame[(frame["origin"] == origin) & (frame["channel"] == name)].iloc[0]
            assert forecast["mse"] == pytest.approx(own["squared_original"] / own["count"], rel=1e-3)
            assert len(forecast["point"]) == 12
        low, high = map(np.array, window["forecasts"][0]["bands"][0])
        assert (low <= high).all()
    assert has_gap
    for number, name in enumerate(names):
        squared = sum(frame.loc[frame["channel"] == name, "squared_scaled"].to_numpy() for frame in frames)
        own = frames[0][frames[0]["channel"] == name]
        worst = own["origin"].iloc[int(np.nanargmax(squared / own["count"].replace(0, np.nan)))]
        (found,) = [one for one in together["windows"] if (one["series"], one["word"]) == (number, "highest error")]
        first, step, _ = found["times"]["even"]
        assert pd.Timestamp(first + step * (len(found["past"]) - 1), unit="s") == worst


def test_windows_are_the_same_in_another_order_of_runs(runs: tuple[Path, Path, Path]) -> None:
    one, other = (viewers({one.name: one for one in run_sections(read_runs(own))}) for own in (runs[:2], runs[1::-1]))
    facts = [[{**window, "forecasts": 0} for window in content["windows"]] for content in (one[0], other[0])]
    assert facts[0] == facts[1]
    swapped = [window["forecasts"][::-1] for window in other[0]["windows"]]
    assert swapped == [window["forecasts"] for window in one[0]["windows"]]


def test_what_differs_is_marked(sections: dict[str, Section]) -> None:
    table = next(part for part in sections["settings"].parts if isinstance(part, ReportTable))
    marked = {row[0].text for row in table.rows if row[0].mark}
    assert {"model.backbone.kind", "model.quantiles"} <= marked
    assert "data.init_args.context_length" not in marked
    assert [bool(row[0].mark) for row in table.rows] == sorted((bool(row[0].mark) for row in table.rows), reverse=True)
    values = {row["setting"]: row for row in cells(sections, "settings")}
    assert values["model.quantiles"]["network"] == "[0.1, 0.5, 0.9]"
    assert values["model.backbone.attention.kind"]["ridge"] == "–"  # noqa: RUF001
    facts = {row["fact"] for row in cells(sections, "machines")}
    assert {"torch", "device", "threads", "fit_seconds"} <= facts
    assert flat_values({"a": {"b": [1, {"c": None}], "d": {}}}) == {"a.b.0": "1", "a.b.1.c": "null", "a.d": "{}"}


def test_curves_are_drawn_of_what_was_trained(sections: dict[str, Section]) -> None:
    titles = [part.caption for part in sections["curves"].parts]  # type: ignore[union-attr]
    assert titles == ["Training loss", *(f"Validation {name}, scaled" for name in ("MSE", "MAE", "CRPS"))]


def test_there_is_room_for_a_bounded_number_of_windows() -> None:
    rng = np.random.default_rng(0)
    series, origins = 300, 40
    frame = pd.DataFrame(
        {
            "unique_id": np.repeat(np.arange(series), 2 * origins),
            "channel": np.tile(["a", "b"], series * origins),
            "count": 3.0,
            "squared_scaled": rng.gamma(1.0, size=2 * series * origins),
        }
    )
    frame.loc[(frame["unique_id"] == 7) & (frame["channel"] == "b"), "count"] = 0.0
    for room in (4, 30, 100, 1000):
        chosen = choose_windows([frame], room)
        assert 3 <= len(chosen) <= max(room, 4)
        assert len({(one.window, one.channel) for one in chosen}) == len(chosen)
    means = frame[frame["count"] > 0].groupby(["unique_id", "channel"])["squared_scaled"].mean().sort_values()
    first, last = chosen[0], chosen[-1]
    assert (first.window // origins, "ab"[first.channel]) == means.index[-1]
    assert (last.window // origins, "ab"[last.channel]) == means.index[0]
    assert [first.about, last.about] == ["highest error", "lowest error"]
    assert [one.word for one in chosen if one.about == "highest error"].count("median error") == 1
    assert not choose_windows([frame.assign(count=0.0)], 30)
    assert len(spread_windows(1000, 50, 30)) == 30
    assert len(spread_windows(2, 1, 30)) == 2


def test_runs_without_data_or_an_end_are_reported_all_the_same(
    runs: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved, begun, changed = tmp_path / "moved", tmp_path / "begun", tmp_path / "changed"
    csv = tmp_path / "own.csv"
    shutil.copy(runs[0].parent / "toy.csv", csv)
    run(content(csv, {"kind": "ridge", "context_length": 24}), changed)
    lines = csv.read_text().splitlines()
    csv.write_text("\n".join([*lines[:-1], lines[-1].rpartition(",")[0] + ",99"]) + "\n")
    for place in (moved, begun):
        shutil.copytree(runs[1], place)
    config = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(config.replace("toy.csv", "nowhere.csv"))
    for name in ("metrics.json", "errors.parquet"):
        (begun / name).unlink()
    assert main(["report", str(moved), str(begun), str(changed), "--output", str(tmp_path / "page")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"note: moved has no forecasts here: .*nowhere.csv", said)
    assert "note: begun has no forecasts here: it is not finished" in said
    assert "note: changed has no forecasts here: its data have changed since it was run" in said
    tree = Page((tmp_path / "page" / "report.html").read_text()).root
    assert [one.attributes["id"] for one in tree.all("section")] == SECTIONS
    words = tree.words()
    assert "begun: ridge that is not finished" in words
    assert "Errors by series" in words


def test_the_page_lies_in_the_first_run(runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    file = runs[1] / "report.html"
    for words in ([str(runs[1])], [str(runs[1]), str(runs[1])]):
        assert main(["report", *words]) == 0
        assert capsys.readouterr().out.startswith(f"1 run: {file}")
    assert run_title(read_runs([runs[1]])) == "Run: ridge"
    first = file.read_text()
    assert main(["report", str(runs[1])]) == 0
    assert file.read_text() == first
    file.unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "nowhere"], "is the folder of a run, and nowhere is not: report takes runs, or records"),
        (["RUN", "--confirm", "4"], "--confirm is for records of a benchmark; beside the folders of runs valid is"),
        (["RUN", "--readme", "README.md"], "--readme is for records of a benchmark"),
        (["DAMAGED"], "metrics.json is damaged"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str],
    message: str,
    runs: tuple[Path, Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged = shutil.copytree(runs[1], tmp_path / "damaged")
    (damaged / "metrics.json").write_text("{")
    places = {"RUN": str(runs[1]), "DAMAGED": str(damaged)}
    assert main(["report", *(places.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.real_data
def test_a_run_on_a_real_file(tmp_path: Path, short_ridge: None) -> None:
    data = {"name": "national_illness", "context_length": 36, "prediction_length": 24}
    backbone = {"kind": "ensemble", "members": [{"kind": "ridge"}, "seasonal_naive"]}
    experiment = {"data": {"class_path": "PublicDataModule", "init_args": data}, "model": {"backbone": backbone}}
    run(experiment, tmp_path / "ill")
    (content,) = viewers({one.name: one for one in run_sections(read_runs([tmp_path / "ill"]))})
    assert content["dates"]
    assert not content["steps"]
    assert len(content["series"]) == 7
    assert {len(one["truth"]) for one in content["windows"]} == {24}
