"""Many series in one file, through the command line: what works, and what is refused in one sentence."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.cli.test_bad_input import refusal
from tests.data.many_series import long_frame
from tsattn import Forecaster, diagnose
from tsattn.cli import main
from tsattn.data import panel_from_frame
from tsattn.errors import UserError

TINY = [
    "--data=CSVDataModule",
    "--data.context_length=12",
    "--data.prediction_length=4",
    "--model.backbone.d_model=8",
    "--model.backbone.num_heads=2",
    "--trainer.accelerator=cpu",
    "--trainer.max_steps=2",
    "--trainer.val_check_interval=2",
]
COVARIATES = ["--data.past_covariates=[rain]", "--data.future_covariates=[price]", "--data.static=[kind, town]"]
LENGTHS = {"b": 60, "a": 45, "c": 9, "d": 100}

Change = Callable[[pd.DataFrame], pd.DataFrame]


def plain_frame() -> pd.DataFrame:
    return long_frame(LENGTHS)[["unique_id", "ds", "y"]]


def written(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


def fit(path: Path, run: Path, *more: str) -> int:
    return main(["fit", *TINY, f"--data.path={path}", f"--run={run}", *more])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A long file with covariates of all kinds, known for four steps ahead, and a run on it."""
    folder = tmp_path_factory.mktemp("long")
    path = written(long_frame(LENGTHS, ahead=4), folder / "shops.csv")
    assert fit(path, folder / "run", *COVARIATES) == 0
    return path, folder / "run"


def test_a_long_file_with_covariates_is_fitted_tested_and_forecast(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = trained
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["data"] == "shops"
    # of b, a and d: the part after 80 percent; c is too short for a horizon
    assert metrics["test_windows"] == (12 - 3) + (10 - 3) + (20 - 3)
    assert {"patchtst_standard", "persistence"} < set(metrics["test"])
    assert main(["test", "--run", str(run)]) == 0
    assert "33 test windows, 4 series" in capsys.readouterr().out
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "own.csv")]) == 0
    frame = pd.read_csv(tmp_path / "own.csv", parse_dates=["ds"])
    assert list(frame.columns) == ["unique_id", "ds", "predictions"]
    assert frame.unique_id.tolist() == [name for name in sorted(LENGTHS) for _ in range(4)]
    ahead = pd.read_csv(path, parse_dates=["ds"])
    ahead = ahead[ahead.y.isna()]
    assert frame.ds.tolist() == ahead.sort_values(["unique_id", "ds"]).ds.tolist()
    assert np.isfinite(frame.predictions).all()


def test_forecasts_from_another_long_file_keep_the_scales_of_known_series(
    trained: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, run = trained
    table = pd.read_csv(path, parse_dates=["ds"])
    # two of the series, the last rows first, with one that is new
    part = table[table.unique_id.isin(["d", "a"])]
    part = pd.concat([part, part[part.unique_id == "a"].assign(unique_id="new")])[::-1]
    part.to_parquet(tmp_path / "part.parquet")
    for name, words in {"own": [], "new": ["--input", str(tmp_path / "part.parquet")]}.items():
        capfd.readouterr()
        assert main(["predict", "--run", str(run), *words, "--output", str(tmp_path / f"{name}.parquet")]) == 0
    source = tmp_path / "part.parquet"
    assert capfd.readouterr().err.splitlines() == [
        f"warning: {source}: values of the past covariate rain after the last targets are not used",
        f"warning: {source}: sorted the rows of 3 of 3 series by time",
        "warning: 1 of 3 series not trained on; each is scaled by the rows given of it",
    ]
    own, new = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("own", "new"))
    assert new.unique_id.tolist() == ["a"] * 4 + ["d"] * 4 + ["new"] * 4
    for name in ("d", "a"):
        pair = [frame[frame.unique_id == name].predictions.to_numpy() for frame in (own, new)]
        np.testing.assert_allclose(*pair, rtol=1e-4)


def test_a_run_remembers_how_its_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = plain_frame()
    paths = [tmp_path / "mine.csv", tmp_path / "new.csv"]
    for path, rows in zip(paths, (frame, frame[frame.unique_id != "c"]), strict=True):
        text = rows.assign(ds=rows.ds.dt.strftime("%d/%m/%y"))
        text.to_csv(path, sep=";", decimal=",", encoding="latin-1", index=False)
    run = tmp_path / "run"
    assert "separates its cells with ';', not with ','; give that as separator" in refusal(
        ["fit", *TINY, f"--data.path={paths[0]}", f"--run={run}"], capsys
    )
    written_so = ["--data.separator=;", "--data.decimal=,", "--data.encoding=latin-1", "--data.date_format=%d/%m/%y"]
    assert fit(paths[0], run, *written_so) == 0
    for words in ([], ["--input", str(paths[1])]):
        assert main(["predict", "--run", str(run), *words, "--output", str(tmp_path / "out.csv"), "--overwrite"]) == 0
        out = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
        last = frame.groupby("unique_id").ds.max()
        assert (out.groupby("unique_id").ds.min() == last[out.unique_id.unique()] + pd.Timedelta(1, "D")).all()


def test_what_is_done_to_a_file_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame = plain_frame().drop(index=[3, 70])
    frame.loc[[7, 8, 90], "y"] = np.nan
    frame = frame[frame.unique_id != "c"].assign(note="text")
    path = written(pd.concat([frame[10:], frame[:10]]), tmp_path / "mine.csv")
    assert fit(path, tmp_path / "run") == 0
    out, err = capfd.readouterr()
    assert err.splitlines() == [
        f"warning: {path}: column note is not used (covariates are used if they are named)",
        f"warning: {path}: sorted the rows of 1 of 3 series by time",
        f"warning: {path}: filled 2 missing time stamps in 2 of 3 series",
        f"warning: {path}: 3 of 203 values are missing; they are masked, never scored",
    ]
    assert out.splitlines()[0] == "mine: 3 series, context 12, horizon 4, 98 training windows"


def mixed_frequencies(frame: pd.DataFrame) -> pd.DataFrame:
    weeks = pd.date_range("2020-01-01", periods=45, freq="W")
    return frame.assign(ds=frame.ds.mask(frame.unique_id == "a", pd.Series(weeks, index=frame.index[60:105])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (mixed_frequencies, "line 62: the time stamps of series a have frequency 'W-SUN', not 'D' like series d"),
        (lambda frame: frame.assign(y=None), "every target of every series is missing"),
        (lambda frame: frame.rename(columns={"y": "z"}), "is a long table without a column y or target; name the targ"),
    ],
    ids=["frequencies", "all missing", "no target"],
)
def test_wrong_long_files(change: Change, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(change(plain_frame()), tmp_path / "mine.csv")
    assert message in refusal(["fit", *TINY, f"--data.path={path}", f"--run={tmp_path / 'run'}"], capsys)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.csv"]


def packed_file(folder: Path) -> tuple[Path, pd.DataFrame]:
    """A gzip file of four series in two columns of ids, with a line before its header and lines of comments.

    Returns:
        the file, and the plain long frame that it stands for.
    """
    rng, days = np.random.default_rng(0), pd.date_range("2024-01-01", periods=90)
    parts = [
        pd.DataFrame(
            {"store": store, "item": item, "day": days, "sales": rng.normal(30, 2, 90), "price": rng.random(90)}
        )
        for store in ("007", "N/A")
        for item in (3, 12)
    ]
    frame = pd.concat(parts, ignore_index=True)
    lines = frame.to_csv(index=False).splitlines()
    text = ["exported, by: someone;", "# units: pieces", lines[0], *lines[1:40], "  # a break", *lines[40:], "# end"]
    path = folder / "sales.csv.gz"
    path.write_bytes(gzip.compress("\n".join(text).encode()))
    ids = frame["store"] + "/" + frame["item"].astype(str)
    plain = pd.DataFrame({"unique_id": ids, "ds": frame["day"], "y": frame["sales"], "price": frame["price"]})
    return path, plain


def test_a_packed_file_of_joined_ids_and_comments_through_all_entrances(tmp_path: Path) -> None:
    path, plain = packed_file(tmp_path)
    known, future = plain[plain["ds"] < "2024-03-26"], plain[plain["ds"] >= "2024-03-26"]
    sizes = {"context_length": 12, "prediction_length": 5, "future_covariates": ["price"], "val_rows": 0}
    expected = Forecaster("ridge", **sizes).fit(known).predict(future=future[["unique_id", "ds", "price"]])
    expected = expected.rename(columns={"unique_id": "store/item", "ds": "day"})
    assert expected["store/item"].unique().tolist() == ["007/12", "007/3", "N/A/12", "N/A/3"]
    names = {"id_column": ["store", "item"], "time_column": "day", "target": "sales"}
    text = {"comment": "#", "skip_rows": 1}
    table = pd.read_csv(path, comment="#", skiprows=1, dtype={"store": str}, parse_dates=["day"], keep_default_na=False)
    past, ahead = table[table["day"] < "2024-03-26"], table[table["day"] >= "2024-03-26"].drop(columns="sales")
    made = [Forecaster("ridge", **sizes, **names).fit(frame) for frame in (past, pl.from_pandas(past).lazy())]
    for frame in (ahead, pl.from_pandas(ahead).lazy()):
        for one in made:
            found = one.predict(future=frame)
            found = found if isinstance(found, pd.DataFrame) else found.to_pandas()
            pd.testing.assert_frame_equal(found, expected, rtol=1e-6, check_dtype=False)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    kept = [line for line in lines if not any(f",2024-03-{day}" in line for day in range(26, 31))]
    path.write_bytes(gzip.compress("\n".join(kept).encode()))
    ahead.to_csv(tmp_path / "future.csv.gz", index=False)
    plain_future = Forecaster("ridge", **sizes, **names, data=text).fit(path).predict(future=ahead)
    pd.testing.assert_frame_equal(plain_future, expected, rtol=1e-6, check_dtype=False)
    assert (diagnose(path, **names, **text)["series"] != "").any()
    (tmp_path / "data.yaml").write_text(
        "data:\n  class_path: CSVDataModule\n  init_args:\n    id_column: [store, item]\n    comment: '#'\n"
        "    skip_rows: 1\nmodel: {backbone: ridge}\n"
    )
    words = ["--data.time_column=day", "--data.target=sales", "--data.future_covariates=[price]", "--data.val_rows=0"]
    words += ["--data.context_length=12", "--data.prediction_length=5", f"--data.path={path}"]
    typed = ["--data.id_column=[store, item]", "--data.comment", "#", "--data.skip_rows=1", "--model.backbone=ridge"]
    ways = {
        "yaml": ["--config", str(tmp_path / "data.yaml"), *words],
        "words": ["--data=CSVDataModule", *words, *typed],
        "mapped": ["--data=MappedDataModule", *words, *typed],
    }
    (tmp_path / "future.csv").write_text("a line\n" + ahead.to_csv(index=False) + "# end\n")
    for name, way in ways.items():
        run, output = str(tmp_path / name), str(tmp_path / f"{name}.csv")
        assert main(["fit", *way, "--run", run]) == 0
        assert main(["predict", "--run", run, "--future", str(tmp_path / "future.csv"), "--output", output]) == 0
        found = pd.read_csv(output, parse_dates=["day"])
        pd.testing.assert_frame_equal(found, expected[found.columns], rtol=1e-4, check_dtype=False)


def test_the_commands_of_data_sets_take_joined_ids_and_comments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, _ = packed_file(tmp_path)
    words = ["--id_column", "store,item", "--time_column", "day", "--target", "sales", "--comment", "#"]
    words += ["--skip_rows", "1"]
    assert main(["datasets", "diagnose", str(path), *words]) == 0
    assert main(["datasets", "convert", str(path), str(tmp_path / "arrays"), *words]) == 0
    assert "arrays: 360 rows of 4 series, frequency D, " in capfd.readouterr().out
    panel = panel_from_frame(tmp_path / "arrays")
    assert (panel.id_name, panel.ids) == ("store/item", ("007/12", "007/3", "N/A/12", "N/A/3"))


def test_a_wrong_cell_of_a_packed_file_is_named_by_its_line(tmp_path: Path) -> None:
    text = "title\n# note\nds,x\n2024-01-01,1\n\n# note\n2024-01-02,two\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=r"t\.csv\.gz, line 7: two in column x is not a number"):
        Forecaster("persistence", data={"comment": "#", "skip_rows": 1}).predict(tmp_path / "t.csv.gz")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(UserError, match=r"gz cannot be read as a regular CSV table: Compressed file ended before"):
        Forecaster("persistence", data={"comment": "#", "skip_rows": 1}).predict(tmp_path / "t.csv.gz")


@pytest.mark.parametrize(
    ("options", "ids", "message"),
    [
        ({"id_column": ["a", "b"]}, [("x/y", "z"), ("x", "y/z")], "two series of columns a, b are both x/y/z once joi"),
        ({"id_column": ["a", "b"]}, [("x", "1"), ("x", None)], "row 10: the id in column a/b is missing"),
        ({"id_column": ["a", "c"]}, [("x", "1")], "has no id column a/c; its columns are a, b, ds, y"),
        ({"id_column": ["a/b", "c"]}, [("x", "1")], "id_column must name columns without '/' to join them, not ['a/b"),
        ({"data": {"comment": "##"}}, [("x", "1")], "comment must be one character, such as ',' or '.' or ';', not "),
        ({"data": {"skip_rows": -1}}, [("x", "1")], "skip_rows must be at least 0, not -1"),
    ],
)
def test_ids_that_cannot_be_joined_and_lines_that_cannot_be_skipped_are_refused(
    options: dict[str, Any], ids: list[tuple[Any, Any]], message: str
) -> None:
    days = pd.date_range("2024-01-01", periods=9)
    frame = pd.concat([pd.DataFrame({"a": a, "b": b, "ds": days, "y": 1.0}) for a, b in ids], ignore_index=True)
    with pytest.raises(UserError, match=re.escape(message)):
        Forecaster("persistence", **options).predict(frame)
