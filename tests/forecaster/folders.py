"""Folders of Parquet that are forecast partition by partition, and a process that is killed while it does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.forecaster.toys import frame_of
from tsattn.cli import predict_folder

LENGTHS = {f"s{number}": 90 + 11 * number for number in range(8)}


def toy_table() -> pd.DataFrame:
    return frame_of(LENGTHS)


def split_table(folder: Path) -> pd.DataFrame:
    """The toy table as two files, and as two folders of one and of two files whose rows are shuffled."""
    table = toy_table()
    parts = {
        "one.parquet": ["s0"],
        "more/two.pq": ["s1", "s2"],
        "region=north/a.parquet": ["s3"],
        "region=south/b.parquet": ["s4", "s5", "s6", "s7"],
    }
    for name, ids in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table[table["unique_id"].isin(ids)].to_parquet(folder / name, index=False)
    south = pd.read_parquet(folder / "region=south" / "b.parquet", partitioning=None).sample(frac=1, random_state=3)
    south[:150].to_parquet(folder / "region=south" / "b.parquet", index=False)
    south[150:].to_parquet(folder / "region=south" / "c.parquet", index=False)
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").write_text("no table")
    return table


def read_forecasts(folder: Path) -> pd.DataFrame:
    """All forecasts of a folder, as a library of others reads them, in the order of `predict`."""
    frame: pd.DataFrame = ds.dataset(folder, format="parquet", partitioning="hive").to_table().to_pandas()
    return frame.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)


def files_of(folder: Path) -> dict[str, int]:
    """The files of forecasts, and when each was written."""
    return {str(one.relative_to(folder)): one.stat().st_mtime_ns for one in folder.rglob("*.parquet")}


def die_while_writing() -> None:
    """From now on this process is killed before its second file of forecasts is whole."""
    close, closed = pq.ParquetWriter.close, []

    def stop(self: Any) -> None:
        closed.append(self)
        if len(closed) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        close(self)

    pq.ParquetWriter.close = stop


def die_after_a_partition() -> None:
    """From now on this process is killed when it says that the first partition is done."""
    predict_folder.say = lambda line: os.kill(os.getpid(), signal.SIGKILL)
