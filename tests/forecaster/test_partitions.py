"""Folders of Parquet are forecast partition by partition: the numbers of `predict`, whole files, and nothing twice."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.forecaster.folders import die_while_writing, files_of, read_forecasts, split_table
from tests.forecaster.toys import frame_of
from tests.processes import Worker
from tsattn import Forecaster
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.forecaster import partition_forecasts
from tsattn.forecaster.partition_forecasts import forecast_folder
from tsattn.forecaster.partitions import find_partitions, partition_table

OUTPUTS = {"one.parquet", "more/two.parquet", "region=north/forecast.parquet", "region=south/forecast.parquet"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    split_table(tmp_path / "in")
    return tmp_path / "in"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ridge that was fitted to all series on the command line."""
    folder = tmp_path_factory.mktemp("run")
    table = split_table(folder / "in")
    table.to_parquet(folder / "whole.parquet", index=False)
    data = ["--data=CSVDataModule", f"--data.path={folder / 'whole.parquet'}", "--data.context_length=24"]
    words = [*data, "--data.prediction_length=6", "--data.scaling=series", "--model.backbone=ridge"]
    assert main(["fit", *words, f"--run={folder / 'run'}"]) == 0
    return folder / "run"


def test_the_forecasts_are_those_of_all_rows_at_once(fitted: Forecaster, source: Path, tmp_path: Path) -> None:
    said: list[str] = []
    done = forecast_folder(fitted, source, tmp_path / "out", say=said.append)
    assert set(files_of(tmp_path / "out")) == OUTPUTS
    assert len(done.made) == len(said) == 4
    expected = fitted.predict(split_table(tmp_path / "again"))
    found = read_forecasts(tmp_path / "out")
    assert {"region"} == set(found.columns) - set(expected.columns)
    pd.testing.assert_frame_equal(found[expected.columns], expected, rtol=1e-6)
    assert found["region"].dropna().unique().tolist() == ["north", "south"]


@pytest.mark.parametrize(
    ("names", "repeats"),
    [(("007", "012"), False), (("7", "12"), True), (("7", "a"), False), (("7", "012"), True), (("7", "12"), False)],
)
def test_folders_named_after_ids(names: tuple[str, str], repeats: bool, tmp_path: Path) -> None:
    """They are those of the table: numbers only where all are plain ones, text where one is written otherwise."""
    ids = [*map(int, names)] if names == ("7", "12") else [*names]
    table = frame_of({"a": 90, "b": 101}).replace({"unique_id": {"a": ids[0], "b": ids[1]}})
    for name, own in zip(names, ids, strict=True):
        folder = tmp_path / "in" / f"unique_id={name}"
        folder.mkdir(parents=True)
        rows = table[table["unique_id"] == own]
        (rows if repeats else rows.drop(columns="unique_id")).to_parquet(folder / "rows.parquet", index=False)
    tables = [partition_table(tmp_path / "in", one) for one in find_partitions(tmp_path / "in")]
    assert sorted({name for one in tables for name in one["unique_id"].to_pylist()}, key=str) == sorted(ids, key=str)
    assert sum(map(len, tables)) == len(table)


def test_forecasts_of_folders_named_after_ids_are_those_of_the_fitted_series(tmp_path: Path) -> None:
    """A series that is fitted keeps its scale: it is not taken for a new one, scaled by the rows given of it."""
    table = frame_of({"007": 90, "012": 101})
    changed = table.assign(y=table["y"].where(table.groupby("unique_id").cumcount() < 80, 3 * table["y"]))
    fitted = Forecaster("ridge", context_length=24, prediction_length=6).fit(table)
    for name, rows in changed.groupby("unique_id"):
        (tmp_path / "in" / f"unique_id={name}").mkdir(parents=True)
        rows.drop(columns="unique_id").to_parquet(tmp_path / "in" / f"unique_id={name}" / "rows.parquet", index=False)
    forecast_folder(fitted, tmp_path / "in", tmp_path / "out")
    for name, expected in fitted.predict(changed).groupby("unique_id"):
        file = tmp_path / "out" / f"unique_id={name}" / "forecast.parquet"
        found = pd.read_parquet(file, partitioning=None)["predictions"]
        np.testing.assert_allclose(found, expected["predictions"], rtol=1e-9)


def test_what_is_done_is_kept_and_what_has_changed_is_done_anew(
    fitted: Forecaster, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    forecast_folder(fitted, source, output)
    before = files_of(output)
    assert len(forecast_folder(fitted, source, output).kept) == 4
    assert files_of(output) == before
    one = pd.read_parquet(source / "one.parquet")
    one.assign(y=one["y"] + 1.0).to_parquet(source / "one.parquet", index=False)
    done = forecast_folder(fitted, source, output)
    assert done.made == done.changed == ("one.parquet",)
    after = files_of(output)
    assert {name for name in after if after[name] != before[name]} == {"one.parquet"}
    expected = fitted.predict(one.assign(y=one["y"] + 1.0))
    pd.testing.assert_frame_equal(pd.read_parquet(output / "one.parquet"), expected, rtol=1e-6)
    # a partition that is empty now has no forecasts any more
    one[:0].to_parquet(source / "one.parquet", index=False)
    assert forecast_folder(fitted, source, output).empty == ("one.parquet",)
    assert not (output / "one.parquet").exists()


def test_another_model_or_horizon_is_never_mixed_in(fitted: Forecaster, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    forecast_folder(fitted, source, output)
    before = files_of(output)
    other = Forecaster("seasonal_naive", prediction_length=12, context_length=24)
    for forecaster, horizon in ((fitted, 5), (other, None)):
        with pytest.raises(UserError, match=r"two.parquet is of another model, horizon or level: name another folder"):
            forecast_folder(forecaster, source, output, horizon=horizon)
        assert files_of(output) == before
    assert len(forecast_folder(fitted, source, output, horizon=5, overwrite=True).made) == 4
    assert len(read_forecasts(output)) == 8 * 5
    (source / "one.parquet").unlink()
    with pytest.raises(UserError, match=r"one.parquet is the forecast of a partition that is no longer there"):
        forecast_folder(fitted, source, output, horizon=5)


def test_all_rows_of_a_series_lie_in_one_partition(fitted: Forecaster, source: Path, tmp_path: Path) -> None:
    two = pd.read_parquet(source / "more" / "two.pq")
    extra = pd.read_parquet(source / "one.parquet")[:3]
    pd.concat([two, extra]).to_parquet(source / "more" / "two.pq", index=False)
    message = r"series s0 lies in two partitions of .*in, more/two.pq and one.parquet: all rows of a series"
    with pytest.raises(UserError, match=message):
        forecast_folder(fitted, source, tmp_path / "out")
    assert not files_of(tmp_path / "out")


def test_what_cannot_be_forecast_leaves_the_others(fitted: Forecaster, source: Path, tmp_path: Path) -> None:
    one = pd.read_parquet(source / "one.parquet")
    one.assign(y="many").to_parquet(source / "one.parquet", index=False)
    with pytest.raises(UserError, match=r"one.parquet.*; what is done is kept"):
        forecast_folder(fitted, source, tmp_path / "out")
    assert set(files_of(tmp_path / "out")) == OUTPUTS - {"one.parquet"}
    (source / "one.parquet").write_bytes(b"no table")
    with pytest.raises(UserError, match=r"one.parquet cannot be read, or is damaged"):
        forecast_folder(fitted, source, tmp_path / "out")


def test_a_forecast_that_was_written_elsewhere_is_not_made(
    fitted: Forecaster, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_forecasts, "_PATIENCE", 0.1)

    def on_another_machine(function: Any, partitions: Any) -> Any:
        """One that has a disk of its own under the name of the folder of the first partition."""
        for number, one in enumerate(partitions):
            result = function(one)
            if number == 0:
                (tmp_path / "out" / one.output).unlink(missing_ok=True)
            yield one, result

    with pytest.raises(
        UserError, match=r"out/.* is not here: the machine that wrote it does not reach this folder; what"
    ):
        forecast_folder(fitted, source, tmp_path / "out", each=on_another_machine)
    assert len(files_of(tmp_path / "out")) == len(OUTPUTS) - 1
    assert len(forecast_folder(fitted, source, tmp_path / "out").made) == 1


def test_folders_that_are_none(fitted: Forecaster, source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere is not there; valid is a folder of Parquet files"):
        find_partitions(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty has no Parquet file \(.parquet, .pq\)"):
        find_partitions(tmp_path / "empty")
    shutil.copy(source / "one.parquet", source / "one.pq")
    with pytest.raises(UserError, match=r"would have the same forecasts, one.parquet"):
        find_partitions(source)
    days = frame_of({"a": 90, "b": 90})
    wide = days.set_index(["ds", "unique_id"])["y"].unstack().reset_index()  # noqa: PD010  each is there once
    wide.to_parquet(tmp_path / "empty" / "1.parquet")
    naive = Forecaster("seasonal_naive", prediction_length=12, context_length=24)
    forecast_folder(naive, tmp_path / "empty", tmp_path / "wide")
    pd.testing.assert_frame_equal(read_forecasts(tmp_path / "wide"), naive.predict(wide))
    wide.to_parquet(tmp_path / "empty" / "2.parquet")
    with pytest.raises(UserError, match="a wide table is one series, and must lie in one partition, not in 2"):
        forecast_folder(naive, tmp_path / "empty", tmp_path / "wide2")


@pytest.mark.parametrize("inside", [".", "forecasts"])
def test_the_input_is_never_overwritten(inside: str, fitted: Forecaster, source: Path) -> None:
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"is, or lies in, the input .*; name another folder with `--output`"):
        forecast_folder(fitted, source, source / inside, overwrite=True)
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_killed_command_goes_on_where_it_was(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = split_table(tmp_path / "in")
    table.to_parquet(tmp_path / "whole.parquet", index=False)
    output = tmp_path / "out"
    words = ["predict", "--run", str(run), "--input", str(tmp_path / "in"), "--output", str(output)]
    worker = Worker(words, tmp_path, die_while_writing)
    assert worker.end() == -9, worker.said()
    assert len(list(output.rglob(".*.partial"))) == 1
    before = files_of(output)
    assert len(before) == 1
    assert main(words) == 0
    assert "3 partitions forecast, 1 there already; 6 steps" in capsys.readouterr().out
    assert not list(output.rglob("*.partial"))
    after = files_of(output)
    assert set(after) == OUTPUTS
    assert before.items() <= after.items()
    single = ["predict", "--run", str(run), "--input", str(tmp_path / "whole.parquet"), "--figure=false"]
    assert main([*single, "--output", str(tmp_path / "single.parquet")]) == 0
    expected = pd.read_parquet(tmp_path / "single.parquet")
    pd.testing.assert_frame_equal(read_forecasts(output)[expected.columns], expected, rtol=1e-6)
    assert np.isfinite(expected["predictions"]).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ray", "local"], "--ray forecasts the partitions of a folder: give --input FOLDER, and --output FOLDER"),
        (["--input", "IN", "--output", "out", "--figure", "x.png"], "--figure draws the forecast of a file"),
        (["--input", "IN", "--output", "out", "--horizon", "0"], "--horizon must be at least 1, not 0"),
        (["--input", "IN", "--output", "out", "--future", "IN"], "--future goes with a file; in a folder, the rows"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_sentence(
    words: list[str], message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"IN": str(run.parent / "in"), "out": str(tmp_path / "out")}
    assert main(["predict", "--run", str(run), *(places.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_unfinished_files_of_others_stay(fitted: Forecaster, source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "more").mkdir(parents=True)
    for name in (".draft.partial", f".two.parquet.{'0' * 32}.partial"):
        (tmp_path / "out" / "more" / name).touch()
    forecast_folder(fitted, source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*.partial")] == [".draft.partial"]
