"""A long CSV file to a panel, every date and number checked, beside what pandas takes to read its cells.

    python benchmarks/long_csv.py

Hourly series end to end, as ``unique_id, ds, y``. Both take turns in one process, in an order that is drawn anew each
round; ratios are of the least times of the processor in all rounds, and medians of those within a round. The panel is
compared with what pandas has read, or nothing is reported. Writes `long_csv.json` (with versions) and `report.md` into
the output folder.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tsattn.data import Panel, panel_from_frame

ROOT = Path(__file__).parents[1]
SERIES = 1000
AT_MOST = 1.5  # the limit: times what pandas takes


def write_long(path: Path, rows: int) -> None:
    """So many rows of series of one length."""
    length = max(3, rows // SERIES)
    stamps = pd.date_range("2020-01-01", periods=length, freq="h").strftime("%Y-%m-%d %H:%M:%S").to_numpy()
    series = rows // length
    ids = np.repeat([f"series_{number:04d}" for number in range(series)], length)
    y = np.random.default_rng(0).normal(100, 20, series * length).round(4)
    pd.DataFrame({"unique_id": ids, "ds": np.tile(stamps, series), "y": y}).to_csv(path, index=False)


def check(panel: Panel, cells: pd.DataFrame) -> None:
    """Refuse a panel that is not what the file says."""
    np.testing.assert_array_equal(panel.values[:, 0], cells["y"])
    assert panel.time.strftime("%Y-%m-%d %H:%M:%S").tolist() == cells["ds"].tolist()
    assert [*panel.ids] == [*cells["unique_id"].unique()]


def measured(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of the clock and of the processor, by contender, a number a round."""
    taken: dict[str, dict[str, list[float]]] = {name: {"clock": [], "processor": []} for name in contenders}
    for _ in range(rounds):
        for name in random.sample([*contenders], len(contenders)):
            clock, processor = time.perf_counter(), time.process_time()
            result = contenders[name]()
            taken[name]["clock"].append(time.perf_counter() - clock)
            taken[name]["processor"].append(time.process_time() - processor)
            del result
    return taken


def report(facts: dict[str, Any]) -> str:
    """The figures in words and a table."""
    spent = facts["seconds"]
    word = "kept" if spent["ours"] <= facts["at_most"] * spent["pandas"] else "**exceeded**"
    text = [
        "# Reading tables",
        "",
        f"{facts['rows']:,} rows of a long CSV file to a panel, beside `pandas.read_csv(path)`: `{facts['command']}`.",
        "",
        "| time, ours to pandas | ratio |",
        "| --- | ---: |",
        *(f"| {of} | {ratio:.2f} |" for of, ratio in facts["ratios"].items()),
        "",
        f"Limit of the first row {facts['at_most']}: {word}. pandas took {spent['pandas']:.2f} s of the processor.",
    ]
    return "\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "data", help="where to write")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.csv"
        write_long(path, options.rows)
        check(panel_from_frame(path), pd.read_csv(path))
        taken = measured({"pandas": lambda: pd.read_csv(path), "ours": lambda: panel_from_frame(path)}, options.rounds)
    least = {name: min(one["processor"]) for name, one in taken.items()}
    ratios = {"processor, least of all rounds": least["ours"] / least["pandas"]}
    for of in ("processor", "clock"):
        pairs = zip(taken["ours"][of], taken["pandas"][of], strict=True)
        ratios[f"{of}, median of the rounds"] = statistics.median(ours / pandas for ours, pandas in pairs)
    facts: dict[str, Any] = {
        "command": "python benchmarks/long_csv.py",
        "rows": options.rows,
        "rounds": options.rounds,
        "machine": {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": {name: version(name) for name in ("pandas", "pyarrow", "numpy", "tsattn")},
        "seconds": least,
        "ratios": ratios,
        "at_most": AT_MOST,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "long_csv.json").write_text(json.dumps(facts, indent=2) + "\n")
    text = report(facts)
    (options.out / "report.md").write_text(text)
    print(text)
    return 0 if least["ours"] <= AT_MOST * least["pandas"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
