"""Tables to convert, and what the tests of converted tables share."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader

from tests.toy_windows import tensors_of
from tsattn.batch import Batch
from tsattn.data import MappedDataModule, Panel
from tsattn.data.mapped import convert, opened_panel
from tsattn.data.table_options import TableOptions

SIZES: dict[str, Any] = {"context_length": 24, "prediction_length": 6, "eval_batch_size": 50}
LONG: dict[str, Any] = {"target": ["y", "z"], **SIZES}
ROLES: dict[str, Any] = {"past_covariates": ["p"], "future_covariates": ["f", "g"], "static": ["kind", "size"]}


def long_frame(*, missing: bool, tz: str | None = None) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for number, rows in enumerate([260, 400, 40, 333]):
        values = rng.standard_normal((rows, 2)) * (number + 1) + 10 * number
        if missing:
            values[rng.random((rows, 2)) < 0.2] = np.nan
            values[:7, 0] = np.nan
            values[-3:, 1] = np.nan
        time = pd.date_range(f"2020-03-{25 + number}", periods=rows, freq="h", tz=tz)
        parts.append(pd.DataFrame({"unique_id": f"s{number}", "ds": time, "y": values[:, 0], "z": values[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def full_frame(*, gaps: bool = True, tz: str | None = None) -> pd.DataFrame:
    """The same with covariates, a future of them, static columns and gaps in time, in any order."""
    frame, rng = long_frame(missing=True, tz=tz), np.random.default_rng(1)
    frame["p"] = np.where(rng.random(len(frame)) < 0.1, np.nan, rng.standard_normal(len(frame)))
    frame["f"] = np.where(rng.random(len(frame)) < 0.05, np.nan, 100 + rng.standard_normal(len(frame)))
    frame["g"] = (frame["ds"].dt.hour > 12).astype(bool)
    frame["kind"] = frame["unique_id"].map({"s0": "new", "s1": "old", "s2": "new", "s3": "other"})
    frame["size"] = frame["unique_id"].map({"s0": 1, "s1": 2, "s2": 3, "s3": 2})
    frame.loc[frame.groupby("unique_id").tail(1).index, "y"] = 1.5
    after = frame.groupby("unique_id").tail(9).assign(y=np.nan, z=np.nan, p=3.0)
    after = after.assign(f=after["f"].fillna(99.0), ds=after["ds"] + pd.Timedelta(9, "h"))
    frame = pd.concat([frame, after], ignore_index=True)
    if gaps:
        frame = frame[(rng.random(len(frame)) > 0.1) | frame["p"].eq(3.0) | frame["y"].eq(1.5)]
    return frame.sample(frac=1, random_state=2).reset_index(drop=True)


def with_categories(frame: pd.DataFrame) -> pd.DataFrame:
    """The past covariate as text, that of the future as a Categorical; each has one that comes late."""
    kind = np.where(frame["p"] > 1, "storm", np.where(frame["p"] > 0, "sun", "rain"))
    kind[frame["ds"] > "2020-04-08"] = "snow"
    p = pd.Series(kind, dtype=object).where(frame["p"].notna(), None)
    return frame.assign(p=p, f=pd.Categorical(frame["f"].round().astype(str).where(frame["f"].notna(), None)))


def wide_frame(*, missing: bool) -> pd.DataFrame:
    frame = long_frame(missing=missing).query("unique_id == 's1'").drop(columns="unique_id")
    return frame.rename(columns={"ds": "date", "y": "x"}).reset_index(drop=True)


def saved(frame: pd.DataFrame, path: Path, rows: int = 70) -> Path:
    """A file of row groups that series do not end with."""
    frame.to_parquet(path, row_group_size=rows, index=False)
    return path


def converted(path: Path, folder: Path, **columns: Any) -> Panel:
    convert(path, folder, TableOptions(**columns))
    return opened_panel(folder, TableOptions(), verify=True)


def mapped(path: Path, **options: Any) -> MappedDataModule:
    data = MappedDataModule(str(path), **options)
    data.setup("fit")
    return data


def assert_same_panel(one: Panel, other: Panel) -> None:
    """All fields are equal, but for the type of their numbers and what is known of the missing ones."""
    for name, part in vars(one).items():
        same = getattr(other, name)
        if name == "time":
            assert part.equals(same)
            assert part.dtype == same.dtype
        elif isinstance(part, np.ndarray):
            np.testing.assert_array_equal(part, same, err_msg=name)
        else:
            assert part == same, name


def assert_same_batches(ours: DataLoader[Batch], theirs: DataLoader[Batch]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        left, right = tensors_of(one), tensors_of(other)
        assert left.keys() == right.keys()
        for name in left:
            assert torch.equal(left[name], right[name]), name
            assert left[name].dtype == right[name].dtype
