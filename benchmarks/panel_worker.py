"""Tables of the panel, and forecasts of its peers: a script that the Python of the peers' environment runs.

    panel_worker.py tables DIR             # writes NAME.parquet of each task and tasks.json
    panel_worker.py forecast WINDOWS FILE  # arrays of one task in, quantiles and CPU seconds out

`panel.py` calls it; it imports nothing of tsattn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

MOST_SERIES = 60  # of a task, drawn at random
PEER_ROWS, FRACAST_ROWS = 1200, 2048  # that a model reads
LONGEST_SEASON = 60  # that statsforecast is told
SEASONS = {"YS": 1, "QS": 4, "MS": 12, "W-MON": 52, "h": 24, "30min": 48}


@dataclass(frozen=True)
class TaskTable:
    """Where the series of a task come from; `ids` are columns joined by `separator`."""

    name: str
    table: str
    ids: tuple[str, ...]
    time: str
    value: str
    frequency: str
    horizon: int
    separator: str = "|"
    skips_missing: bool = False  # rows, not only values
    folder: str = "fpp3"


TASKS = (
    TaskTable("tourism_q", "tourism", ("Region", "Purpose"), "Quarter", "Trips", "QS", 8),
    TaskTable("retail_m", "aus_retail", ("Series ID",), "Month", "Turnover", "MS", 24),
    TaskTable("pbs_m", "PBS", ("Concession", "Type", "ATC2"), "Month", "Scripts", "MS", 12),
    TaskTable("employment_m", "us_employment", ("Series_ID",), "Month", "Employed", "MS", 24),
    *(
        TaskTable(f"economy_{value.lower()}_y", "global_economy", ("Code",), "Year", value, "YS", 6, "", True)
        for value in ("GDP", "Exports", "Population")
    ),
    TaskTable("pedestrian_h", "pedestrian", ("Sensor",), "Date", "Count", "h", 48),
    TaskTable("livestock_m", "aus_livestock", ("Animal", "State"), "Month", "Count", "MS", 12),
    TaskTable("prison_q", "prison", ("State", "Gender", "Legal", "Indigenous"), "Quarter", "Count", "QS", 8, ""),
    TaskTable("gasoline_w", "us_gasoline", (), "Week", "Barrels", "W-MON", 26),
    TaskTable("ansett_w", "ansett", ("Airports", "Class"), "Week", "Passengers", "W-MON", 12, ""),
    TaskTable("production_q", "aus_production", ("variable",), "Quarter", "value", "QS", 8, "", True),
    TaskTable("arrivals_q", "aus_arrivals", ("Origin",), "Quarter", "Arrivals", "QS", 8),
    TaskTable("accommodation_q", "aus_accommodation", ("State",), "Date", "Takings", "QS", 8),
    TaskTable("price_h", "EPF_FR_BE", ("unique_id",), "ds", "y", "h", 24, folder="fpppy"),
    TaskTable("vic_elec_30min", "vic_elec", (), "Time", "Demand", "30min", 96),
)


def series_of(task: TaskTable) -> pd.DataFrame:
    """Return `unique_id`, `ds` and `y` of all series that a task may have; rows of one id and stamp are added up."""
    rows = pd.read_csv(files("tsdata") / task.folder / f"{task.table}.csv")
    rows = rows.melt("Quarter") if task.table == "aus_production" else rows
    text = rows[task.time].astype(str)
    if task.frequency == "MS":
        stamps = pd.to_datetime(text, format="%Y %b")
    elif task.frequency == "QS":
        stamps = pd.PeriodIndex(text.str.replace(" ", ""), freq="Q").to_timestamp()
    elif task.frequency == "W-MON":
        stamps = pd.to_datetime(text.str.replace(" W", "-W") + "-1", format="%G-W%V-%u")
    else:
        stamps = pd.to_datetime(text)
    if task.table == "pedestrian":
        stamps = stamps + pd.to_timedelta(rows["Time"], unit="h")
    if task.table == "vic_elec":
        stamps = stamps.dt.tz_localize(None)
    ids = rows[list(task.ids)].astype(str).agg(task.separator.join, axis=1) if task.ids else task.name
    long = pd.DataFrame({"unique_id": ids, "ds": np.asarray(stamps), "y": rows[task.value].astype(float)})
    long = long.dropna() if task.skips_missing else long
    return long.groupby(["unique_id", "ds"], as_index=False)["y"].sum(min_count=1)


def write_tables(folder: Path) -> None:
    rng, about = np.random.default_rng(0), {}
    for task in TASKS:
        rows, season = series_of(task), SEASONS[task.frequency]
        by_id = rows.groupby("unique_id")["y"]
        least = max(3 * season, 2 * task.horizon) + task.horizon
        kept = sorted(by_id.count().index[(by_id.count() >= least) & (by_id.std() > 0)])
        kept = sorted(rng.choice(kept, MOST_SERIES, replace=False)) if len(kept) > MOST_SERIES else kept
        rows = rows[rows["unique_id"].isin(kept)].sort_values(["unique_id", "ds"])
        rows.to_parquet(folder / f"{task.name}.parquet", index=False)
        about[task.name] = {"frequency": task.frequency, "season": season, "horizon": task.horizon}
    (folder / "tasks.json").write_text(json.dumps(about, indent=1) + "\n")


def forecast(windows: Any) -> np.ndarray:
    """Forecast the windows `(number, rows)`, which begin with NaN where they are shorter: `(number, T, Q)`."""
    season, horizon, model, levels = (windows[name].tolist() for name in ("season", "horizon", "model", "levels"))
    values = [row[np.argmax(~np.isnan(row)) :] for row in windows["contexts"]]
    if model == "fracast":
        return np.stack([*_of_fracast(values, horizon)])
    values = [pd.Series(one[-PEER_ROWS:]).interpolate(limit_direction="both").to_numpy() for one in values]
    return np.stack([*_of_statsforecast(model, values, season, horizon, levels)])


def _of_fracast(values: list[np.ndarray], horizon: int) -> Iterator[np.ndarray]:
    from fracast import FracastModel

    model = FracastModel.from_pretrained(weights="fp32", device="cpu")
    for one in values:
        yield np.sort(np.asarray(model.forecast(one[-FRACAST_ROWS:], horizon=horizon)), axis=-1)


def _of_statsforecast(
    name: str, values: list[np.ndarray], season: int, horizon: int, levels: list[float]
) -> Iterator[np.ndarray]:
    from statsforecast import models

    percents = sorted({round(abs(100 - 200 * level)) for level in levels} - {0})
    for one in values:
        model = getattr(models, name)(season_length=season if season <= LONGEST_SEASON else 1)
        made = model.forecast(y=one, h=horizon, level=percents)
        ends = [(round(abs(100 - 200 * level)), "lo" if level < 0.5 else "hi") for level in levels]
        yield np.sort(np.stack([made[f"{end}-{size}"] if size else made["mean"] for size, end in ends], -1), axis=-1)


def main() -> None:
    if sys.argv[1] == "tables":
        write_tables(Path(sys.argv[2]))
        return
    with np.load(sys.argv[2]) as windows:
        began = time.process_time()
        made = forecast(windows)
        np.savez(sys.argv[3], forecast=made, seconds=time.process_time() - began)


if __name__ == "__main__":
    main()
