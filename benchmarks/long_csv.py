"""A long CSV file to a panel, every date and number checked, compared with `pandas.read_csv`.

    python benchmarks/long_csv.py

Both take turns in one process, in an order drawn each round; ratios are of the least times of the processor (of all
threads, whatever else runs) in all rounds, and medians of those within a round. The panel is compared with the cells
that pandas read. Writes `long_csv.json` and `report.md`; ends with 1 above the limit.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import RESULTS, about, new_parser, parse, table, write_record

from tsattn.data import panel_from_frame
from tsattn.saved_folders import write_text

AT_MOST = 1.3  # times pandas


def write_long(path: Path, series: int, length: int) -> None:
    stamps = pd.date_range("2020-01-01", periods=length, freq="h").strftime("%Y-%m-%d %H:%M:%S").to_numpy()
    ids = np.repeat([f"series_{number:04d}" for number in range(series)], length)
    y = np.random.default_rng(0).normal(100, 20, series * length).round(4)
    pd.DataFrame({"unique_id": ids, "ds": np.tile(stamps, series), "y": y}).to_csv(path, index=False)


def measured(path: Path, rounds: int) -> dict[tuple[str, str], list[float]]:
    panel, cells = panel_from_frame(path), pd.read_csv(path)
    np.testing.assert_array_equal(panel.values[:, 0], cells["y"])
    assert panel.time.strftime("%Y-%m-%d %H:%M:%S").tolist() == cells["ds"].tolist()
    assert [*panel.ids] == [*cells["unique_id"].unique()]
    readers: dict[str, Any] = {"pandas": pd.read_csv, "ours": panel_from_frame}
    clocks = {"clock": time.perf_counter, "processor": time.process_time}
    taken: dict[tuple[str, str], list[float]] = {(name, of): [] for name in readers for of in clocks}
    for _ in range(rounds):
        for name in random.sample([*readers], len(readers)):
            before = {of: clock() for of, clock in clocks.items()}
            result = readers[name](path)
            for of, clock in clocks.items():
                taken[name, of].append(clock() - before[of])
            del result
    return taken


def main() -> int:
    parser = new_parser(__doc__, RESULTS / "data")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        path, length = Path(folder) / "long.csv", max(3, options.rows // 1000)
        write_long(path, options.rows // length, length)
        taken = measured(path, options.rounds)
    least = {name: min(taken[name, "processor"]) for name in ("pandas", "ours")}
    ratios = {"processor, least of all rounds": least["ours"] / least["pandas"]}
    for of in ("processor", "clock"):
        pairs = zip(taken["ours", of], taken["pandas", of], strict=True)
        ratios[f"{of}, median of the rounds"] = statistics.median(ours / theirs for ours, theirs in pairs)
    met = ratios["processor, least of all rounds"] <= AT_MOST
    record = {**about("pandas", "pyarrow", "numpy"), "rows": options.rows, "rounds": options.rounds}
    record |= {"seconds": least, "ratios": ratios, "at_most": AT_MOST}
    said = (
        f"{options.rows:,} rows of a long CSV file to a panel, beside `pandas.read_csv(path)`: `{record['command']}`."
    )
    limit = f"Limit of the first row {AT_MOST}: {'kept' if met else '**exceeded**'}."
    rows = table(("time, ours to pandas", "ratio"), [(of, f"{ratio:.2f}") for of, ratio in ratios.items()])
    lines = ["# Reading tables", "", said, "", *rows, f"{limit} pandas took {least['pandas']:.2f} s of the processor."]
    write_record(options.output / "long_csv.json", record)
    write_text(options.output / "report.md", "\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
