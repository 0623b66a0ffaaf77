"""Arrays, windows, scales, splits and forecasts of a converted table are those of the same table in memory."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.many_series import prepared as in_memory
from tests.data.mapped.tables_to_map import (
    LONG,
    ROLES,
    SIZES,
    assert_same_batches,
    assert_same_panel,
    converted,
    full_frame,
    long_frame,
    mapped,
    saved,
    wide_frame,
    with_categories,
)
from tsattn.data import CSVDataModule, panel_from_frame
from tsattn.data.mapped import convert, opened_panel
from tsattn.data.table_options import RowWeights, TableOptions
from tsattn.errors import UserError

SPLITS: dict[str, dict[str, Any]] = {
    "default": {},
    "fractions": {"train_fraction": 0.5, "val_fraction": 0.2},
    "rows": {"val_rows": 20, "test_rows": 30},
    "dates": {"val_from": "2020-04-03 07:00", "test_from": "2020-04-05"},
}


def both(frame: pd.DataFrame, path: Path, **options: Any) -> tuple[Any, Any]:
    """The data of a frame in memory and of its file converted: with the same panel, and the same test batches."""
    theirs, ours = in_memory(frame, **options), mapped(saved(frame, path), **options)
    assert_same_panel(ours.panel, theirs.panel)
    assert_same_batches(ours.eval_dataloader("test"), theirs.eval_dataloader("test"))
    assert_same_batches(ours.predict_dataloader(), theirs.predict_dataloader())
    return theirs, ours


# each pair of choices once
@pytest.mark.parametrize(
    ("split", "table", "scaling"),
    [
        ("default", "long", "series"),
        ("default", "full", "global"),
        ("fractions", "wide", "global"),
        ("fractions", "full", "series"),
        ("rows", "zoned", "series"),
        ("dates", "long", "global"),
        ("dates", "wide", "series"),
        ("dates", "zoned", "global"),
    ],
)
def test_every_batch_is_that_of_a_frame(tmp_path: Path, split: str, table: str, scaling: str) -> None:
    frame = {
        "long": lambda: long_frame(missing=False),
        "wide": lambda: wide_frame(missing=True),
        "full": full_frame,
        "zoned": lambda: full_frame(tz="Europe/Berlin"),  # where clocks changed on 2020-03-29
    }[table]()
    options = {**(SIZES if table == "wide" else LONG), "scaling": scaling, **SPLITS[split]}
    options |= ROLES if table in ("full", "zoned") else {}
    theirs, ours = both(frame, tmp_path / "frame.parquet", **options)
    assert ours.panel.is_mapped
    assert (ours.splits, ours.scaler) == (theirs.splits, theirs.scaler)
    assert {**vars(ours.task), "data": ""} == {**vars(theirs.task), "data": ""}
    assert ours.panel.future_time(len(ours.panel) - 1, 6).equals(theirs.panel.future_time(len(ours.panel) - 1, 6))
    for part in ("train", "val"):
        assert_same_batches(ours.eval_dataloader(part), theirs.eval_dataloader(part))
    seasons = [1, 5, 24]
    loaders = (data.eval_dataloader("test", 24, seasons=seasons) for data in (ours, theirs))
    for left, right in zip(*loaders, strict=True):
        np.testing.assert_array_equal(left.units.target, right.units.target)
        for season in seasons:
            for one, other in zip(left.units.seasons[season], right.units.seasons[season], strict=True):
                np.testing.assert_array_equal(one, other)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Long tables of few rows: any frequency, gaps, missing values, lengths, order of rows and kind of ids."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    frequency = draw(st.sampled_from(["h", "15min", "D", "B", "W-SUN", "MS", "ME", "1", "3"]))
    numbered = draw(st.booleans())
    parts = []
    for number in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(12, 40))
        if frequency.isdecimal():
            time: Any = int(frequency) * np.arange(rows) + int(rng.integers(5)) * int(frequency)
        else:
            time = pd.date_range(f"2020-0{rng.integers(1, 9)}-01", periods=rows, freq=frequency)
        y = np.where(rng.random(rows) < 0.2, np.nan, rng.standard_normal(rows))
        y[0] = 1.0
        part = pd.DataFrame({"unique_id": number if numbered else f"s{number}", "ds": time, "y": y})
        part["f"], part["kind"] = rng.standard_normal(rows), f"k{number % 2}"
        kept = rng.random(rows) > draw(st.sampled_from([0.0, 0.15]))
        kept[[0, 1, 2, -1]] = True
        parts.append(part[kept])
    frame = pd.concat(parts).sample(frac=1, random_state=int(rng.integers(1000))).reset_index(drop=True)
    options: dict[str, Any] = {"static": ["kind"], "frequency": draw(st.sampled_from([None, frequency]))}
    if draw(st.booleans()):
        options["future_covariates"] = ["f"]
    return frame, options


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_arrays_are_those_of_any_table_in_memory(
    table: tuple[pd.DataFrame, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame, options = table
    folder = tmp_path_factory.mktemp("any")
    path = saved(frame, folder / "t.parquet", rows=17)
    try:
        expected = panel_from_frame(frame, **options)
    except UserError:
        with pytest.raises(UserError):
            converted(path, folder / "out", **options)
        return
    assert_same_panel(converted(path, folder / "out", **options), expected)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays that are made of mapped ones lie in files, too, and are read in small pieces."""
    monkeypatch.setattr("tsattn.data.row_ranges._IN_MEMORY", 100)
    monkeypatch.setattr("tsattn.data.row_ranges._BLOCK", 400)


@pytest.mark.usefixtures("in_pieces")
def test_parts_of_a_panel_are_those_of_one_in_memory(tmp_path: Path) -> None:
    frame = full_frame()
    ours = converted(saved(frame, tmp_path / "a.parquet"), tmp_path / "out", target=["y", "z"], **ROLES)
    theirs = panel_from_frame(frame, target=["y", "z"], **ROLES)
    some, ends = np.array([0, 1, 3]), np.array([100, 30, 7, 300])
    parts = (
        lambda panel: panel.take(some),
        lambda panel: panel.until(ends),
        lambda panel: panel.last_rows(20),
        lambda panel: panel.select(channels=("z",)),
        lambda panel: panel.select(past=("p",), future=("g",)),
        lambda panel: panel.take(some).until(ends[some]).last_rows(5),
    )
    for part in parts:
        assert_same_panel(part(ours), part(theirs))
        assert part(ours).is_mapped


@pytest.mark.usefixtures("in_pieces")
def test_moments_of_rows_in_pieces_are_those_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.scaling._BLOCK", 64)
    frame = full_frame()
    frame.loc[frame["unique_id"] == "s0", "z"] = 1e9 + np.arange((frame["unique_id"] == "s0").sum())
    frame["y"] = np.where(frame["y"].isna(), np.nan, 0.1)
    ours = mapped(saved(frame, tmp_path / "a.parquet"), **LONG, **ROLES).scaler
    theirs = in_memory(frame, **LONG, **ROLES).scaler
    for name in ("mean", "scale", "series_mean", "series_scale", "covariate_mean", "covariate_scale"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, err_msg=name)
    assert ours.scale[0] == 1


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("transform", ["log1p", {"kind": "box_cox"}])
def test_transformed_targets_are_those_in_memory(tmp_path: Path, transform: Any) -> None:
    frame = full_frame()
    frame[["y", "z"]] = np.exp(frame[["y", "z"]] / 10)
    ours = mapped(saved(frame, tmp_path / "a.parquet"), **LONG, **ROLES, transform=transform)
    theirs = in_memory(frame, **LONG, **ROLES, transform=transform)
    assert ours.scaler == theirs.scaler
    assert_same_batches(ours.test_dataloader(), theirs.test_dataloader())
    frame.loc[77, "z"] = -1.0
    saved(frame, tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"needs values .* but column z has -1 in row"):
        mapped(tmp_path / "b.parquet", **LONG, **ROLES, transform=transform)


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("table", ["full", "wide"])
def test_weights_are_those_in_memory(tmp_path: Path, table: str) -> None:
    frame = full_frame() if table == "full" else wide_frame(missing=True)
    frame["w"] = np.random.default_rng(3).integers(0, 3, len(frame)) / 4
    rows = [["2020-03-28 12:00", "2020-03-30", 0], ["2020-03-31 01:00", "2020-03-31 02:00", 5]]
    options = {
        "weight_column": "w",
        "row_weights": rows,
        "series_weights": {"s1": 3} if table == "full" else {"z": 0.5},
    }
    options |= {**LONG, **ROLES} if table == "full" else SIZES
    ours, theirs = mapped(saved(frame, tmp_path / "a.parquet"), **options), in_memory(frame, **options)
    assert ours.panel.channels == theirs.panel.channels  # a column of weights is no target
    np.testing.assert_array_equal(ours.panel.weights, theirs.panel.weights)
    torch.testing.assert_close(ours.series.weights, theirs.series.weights, rtol=1e-6, atol=0)
    one, *others = (
        series.windows(torch.tensor([0]), torch.tensor([40]), 24, 6).target_weight
        for series in (theirs.series, ours.series, pickle.loads(pickle.dumps(ours.series)))
    )
    for other in others:
        torch.testing.assert_close(other, one, rtol=1e-6, atol=0)


def test_strict_is_refused_where_a_table_is_mended(tmp_path: Path) -> None:
    path = saved(long_frame(missing=False), tmp_path / "a.parquet")
    message = "strict does not work with tables on disk such as .*: leave strict out"
    with pytest.raises(UserError, match=message):
        mapped(path, **LONG, strict=True)
    converted(path, tmp_path / "a", target=["y", "z"])
    data = CSVDataModule(str(tmp_path / "a"), **LONG, strict=True)
    with pytest.raises(UserError, match=message):
        data.setup("fit")


def test_weights_are_used_where_they_are_named(tmp_path: Path) -> None:
    frame = long_frame(missing=False).assign(w=0.5)
    path, folder = saved(frame, tmp_path / "a.parquet"), tmp_path / "a"
    convert(path, folder, TableOptions(weight_column="w"))
    double = RowWeights.of({"s1": 2}, None)
    assert opened_panel(folder, TableOptions()).weights is None
    for options, found in ((TableOptions(weight_column="w"), {0.5, 1.0}), (TableOptions(), {1.0, 2.0})):
        assert {*opened_panel(folder, options, double).weights.ravel()} == found
    with pytest.raises(UserError, match="was converted with the weight column w, not v; convert the table again"):
        opened_panel(folder, TableOptions(weight_column="v"))
    convert(path, tmp_path / "b", TableOptions())
    with pytest.raises(UserError, match="was converted without the weight column w"):
        opened_panel(tmp_path / "b", TableOptions(weight_column="w"))


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_categories_of_covariates_are_those_in_memory(tmp_path: Path, ending: str) -> None:
    frame, path = with_categories(full_frame()), tmp_path / f"a.{ending}"
    frame = frame.round({"y": 3, "z": 3})  # which the parser of every pandas reads exactly
    if ending == "csv":
        frame["f"] = "c" + frame["f"].astype(object)  # text in any reader
        frame.to_csv(path, index=False)
    else:
        saved(frame, path)
    ours, theirs = mapped(path, **LONG, **ROLES), in_memory(frame, **LONG, **ROLES)
    assert theirs.panel.covariate_categories["p"] == ("rain", "storm", "sun")  # snow is not seen in training
    assert_same_panel(ours.panel, theirs.panel)
    assert ours.task.covariate_categories == theirs.task.covariate_categories
    for part in ("train", "test"):
        assert_same_batches(ours.eval_dataloader(part), theirs.eval_dataloader(part))
    assert_same_batches(ours.predict_dataloader(), theirs.predict_dataloader())


def test_a_covariate_is_text_or_numbers_in_all_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.mapped._CELLS", 400)
    frame = with_categories(full_frame())
    for row, message in (
        (616, "line 618: covariate p has no text from here on; give text or numbers"),
        (600, "in column p is not a number; a past covariate needs numbers, bools, or text without a number"),
    ):  # where a chunk of 44 rows begins, and within one
        wrong = frame.assign(p=frame["p"].where(frame.index < row, "7"))
        wrong.to_csv(tmp_path / "a.csv", index=False)
        with pytest.raises(UserError, match=f"a.csv, .*{message}"):
            converted(tmp_path / "a.csv", tmp_path / "a", target=["y", "z"], **ROLES)
    monkeypatch.setattr("tsattn.data.assembly._MOST_TEXTS", 2)
    path = saved(frame, tmp_path / "b.parquet")
    with pytest.raises(UserError, match="covariate p has more than 2 categories; use fewer, or numbers"):
        converted(path, tmp_path / "b", target=["y", "z"], **ROLES)
