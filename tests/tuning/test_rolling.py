"""Rolling origins lie before the test part, and nothing of a trial reads a row of that."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tuning.cases import toy
from tsattn.data import ByShare, CSVDataModule, ForecastDataModule, MappedDataModule
from tsattn.data.splits import Recut
from tsattn.errors import UserError
from tsattn.tuning import Fold


@given(st.integers(40, 5000), st.floats(0.2, 0.8), st.floats(0.02, 0.15), st.integers(2, 6))
def test_folds_lie_side_by_side_before_the_test_part(rows: int, train: float, val: float, count: int) -> None:
    whole = ByShare(train, val).split(range(rows))
    rules = [Recut(ByShare(train, val), Fold(number, count).split) for number in range(count)]
    folds = [rule.split(range(rows)) for rule in rules]  # type: ignore[arg-type]  # of which it takes the length
    assert folds[-1].val_end == whole.val_end
    for earlier, later in pairwise(folds):
        assert earlier.val_end == later.train_end
    for fold in folds:
        assert fold.test_end == fold.val_end <= whole.val_end  # no row is left to test on
        assert fold.val_end - fold.train_end == folds[0].val_end - folds[0].train_end <= whole.val_end - whole.train_end
    assert folds[0].train_end >= whole.val_end / 2 - 1


def fold_of(path: Path, number: int = 1) -> ForecastDataModule:
    data = Fold(number, 2).hold_out(CSVDataModule(str(path), context_length=24, prediction_length=6))
    data.setup("fit")
    return data


def test_a_fold_is_scaled_and_cut_by_its_own_rows(toy_csv: Path, toy_frame: pd.DataFrame) -> None:
    first, second = fold_of(toy_csv, 0), fold_of(toy_csv, 1)
    # 600 rows, 420 / 60 / 120: blocks of 60 end at row 480
    assert [split.bounds("val") for split in (*first.splits, *second.splits)] == [(360, 420), (420, 480)]
    assert second.task is not None
    assert second.scaler.mean == pytest.approx(toy_frame.iloc[:420].mean().tolist())
    assert len(first.windows("train")) == 360 - 30 + 1
    assert len(first.windows("val")) == 60 - 6 + 1
    with pytest.raises(UserError, match="the test part of the data has no rows"):
        first.windows("test")


@pytest.mark.parametrize("more", [[], ["--cv", "2"]])
def test_the_test_rows_change_no_trial(more: list[str], tmp_path: Path) -> None:
    errors = []
    for name in ("as_it_is", "other"):
        (tmp_path / name).mkdir()
        made = toy(tmp_path / name)
        if name == "other":
            frame = pd.read_csv(tmp_path / name / "toy.csv", index_col=0)
            frame.iloc[480:] = -1e6
            frame.to_csv(tmp_path / name / "toy.csv")
        assert made.tune("--trials", "2", *more) == 0
        trials = made.trials()
        errors.append([trial.user_attrs["errors"] for trial in trials])
        assert {len(folds) for folds in errors[-1]} == {2 if more else 1}
        assert [trial.value for trial in trials] == pytest.approx([np.mean(folds) for folds in errors[-1]])
    assert errors[0] == errors[1]


def test_folds_of_a_converted_table_are_those_in_memory(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    toy_frame.reset_index().to_parquet(tmp_path / "toy.parquet")
    sizes = {"context_length": 24, "prediction_length": 6}
    splits = []
    for data in (
        MappedDataModule(str(tmp_path / "toy.parquet"), **sizes),
        CSVDataModule(str(tmp_path / "toy.parquet"), **sizes),
    ):
        Fold(0, 2).hold_out(data)
        data.setup("fit")
        splits.append(data.splits)
    assert splits[0] == splits[1]
