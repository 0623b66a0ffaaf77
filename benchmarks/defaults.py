"""`Forecaster()` compared with seasonal naive and with networks of neuralforecast trained for as long.

    python benchmarks/defaults.py
    python benchmarks/defaults.py --data CO2 --without-peers

Each gets the rows of a frame up to its test part, and a horizon; it holds its own validation part out, and its context
is the one that `Forecaster` chooses. All windows of the test part are scored, by MASE of the medians: the mean over
channels and windows of the absolute error by that of seasonal naive on the rows before. A network of neuralforecast
gets its default sizes, our learning rate, loss and selection of weights, and as many steps as take the CPU seconds of
our whole fit, found in trainings that are thrown away; its start is not counted. A score whose runs took over a tenth
more or less is marked as not at equal time.

Writes `SLUG.json` and `SLUG.md`. Data sets that are not asked for are kept as they were measured before, with their
command. Needs the data sets (`TSATTN_DATA`), and `make peers`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from typing import Any

import pandas as pd
import psutil  # type: ignore[import-untyped,unused-ignore]
import torch
from measuring import RESULTS, describe, new_parser, parse, slug_of, table, this_command, write_record

from tsattn import CO2DataModule, Forecaster, PublicDataModule
from tsattn.errors import UserError
from tsattn.peers.predictors import peers_python

FOLDER = RESULTS / "defaults"
SEASONAL, DEFAULT, PEERS = "seasonal naive", "Forecaster()", ("NHITS", "PatchTST")
FIRST_GUESS, GUESSES, NEAR = 100, 6, 0.1  # of the steps that take as long as ours
KNOWN = 0.8  # the part of the rows before the test part
HORIZONS = {"CO2": 52, "national_illness": 24, "exchange_rate": 96, "ETTh1": 96, "vic_electricity": 48}
ROWS = {"ETTh1": 14_400}  # that are used; all by default


def cpu_seconds() -> float:
    """Return those of this process and the workers that it started."""
    here = psutil.Process()
    spent = [one.cpu_times() for one in (here, *here.children(recursive=True))]
    return float(sum(one.user + one.system for one in spent))


def frame_of(name: str) -> pd.DataFrame:
    data = CO2DataModule() if name == "CO2" else PublicDataModule(name)
    return data.load_frame().iloc[: ROWS.get(name)]


def known(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[: round(KNOWN * len(frame))]


def fitted(name: str, frame: pd.DataFrame, backbone: Any, **arguments: Any) -> tuple[Forecaster, float]:
    """Fit to the known rows; return the forecaster, and the CPU seconds."""
    given = {} if backbone is None else {"backbone": backbone}
    forecaster = Forecaster(**given, prediction_length=HORIZONS[name], accelerator="cpu", **arguments)
    before = cpu_seconds()
    forecaster.fit(known(frame))
    return forecaster, cpu_seconds() - before


def measured(name: str, frame: pd.DataFrame, backbone: Any, **arguments: Any) -> dict[str, Any]:
    """Return MASE on all windows of the rows that are not known, and the facts of the fit."""
    forecaster, seconds = fitted(name, frame, backbone, **arguments)
    mase = forecaster.evaluate(frame)["MASE"]
    facts: Any = forecaster.result.fit  # type: ignore[union-attr]
    each = [fit for member in facts.get("members", [[facts]]) for fit in member]
    return {
        "mase": float(mase.iloc[0]),
        SEASONAL: float(mase[mase.index.str.startswith(SEASONAL)].iloc[0]),
        "context_length": forecaster.task.context_length,
        "parameters": facts["parameters"],
        "steps": sum(fit["training"]["steps"] for fit in each if "training" in fit),
        "cpu_seconds": round(seconds, 2),
    }


def steps_in(seconds: float, name: str, frame: pd.DataFrame, backbone: Any, context_length: int) -> int:
    """Return the steps of a network of neuralforecast that took nearest to so long, validations included."""
    fitted(name, frame, backbone, max_steps=1, context_length=context_length)  # starts the worker
    steps, found = FIRST_GUESS, {}
    for _ in range(GUESSES):
        _, taken = fitted(name, frame, backbone, max_steps=steps, context_length=context_length)
        found[steps] = taken / seconds
        if is_equal(found[steps]):
            break
        steps = max(1, round(steps / found[steps]))
    return min(found, key=lambda one: abs(math.log(found[one])))


def is_equal(ratio: float) -> bool:
    return 1 - NEAR <= ratio <= 1 + NEAR


def compare(name: str, seeds: int, *, peers: bool, most: int | None) -> dict[str, Any]:
    frame, each, short = frame_of(name), range(1, seeds + 1), {} if most is None else {"max_steps": most}
    rows = {DEFAULT: [measured(name, frame, None, seed=seed, **short) for seed in each]}
    seconds = statistics.median(one["cpu_seconds"] for one in rows[DEFAULT])
    context_length = rows[DEFAULT][0]["context_length"]
    for model in PEERS if peers else ():
        backbone = {"kind": "neuralforecast", "model": model}
        steps = most or steps_in(seconds, name, frame, backbone, context_length)
        sizes = {"max_steps": steps, "context_length": context_length}
        rows[model] = [measured(name, frame, backbone, seed=seed, **sizes) for seed in each]
    for who, runs in {SEASONAL: [{"mase": rows[DEFAULT][0][SEASONAL]}], **rows}.items():
        print(f"{name:18} {who:16} MASE", *(f"{one['mase']:.4f}" for one in runs), flush=True)
    return {"horizon": HORIZONS[name], "runs": rows}


def page(record: dict[str, Any]) -> str:
    text = (
        "MASE on the test part (mean over seeds, and the spread between the least and the most), by "
        "`python benchmarks/defaults.py`. Networks of neuralforecast have the steps that were found to take the CPU "
        "seconds of `Forecaster()`; a score is marked where its runs took more or less than that by over a tenth. "
        "Seconds and steps are medians over seeds."
    )
    rows = []
    for name, one in record["data"].items():
        runs = one["runs"]
        seconds, steps = (
            {who: statistics.median(run[fact] for run in each) for who, each in runs.items()}
            for fact in ("cpu_seconds", "steps")
        )
        ratios, first, cells = {who: taken / seconds[DEFAULT] for who, taken in seconds.items()}, runs[DEFAULT][0], []
        for who in (DEFAULT, *PEERS):
            found = [run["mase"] for run in runs.get(who, [])]
            spread = f" ({max(found) - min(found):.3f})" if len(found) > 1 else ""
            mark = "" if is_equal(ratios.get(who, 1.0)) else ", not at equal time"
            cells.append(f"{statistics.mean(found):.3f}{spread}{mark}" if found else "")
        taken = " / ".join(f"{value:.1f}" for value in seconds.values())
        times = " / ".join(f"{ratio:.2f}" for who, ratio in ratios.items() if who != DEFAULT)
        counts = " / ".join(f"{value:.0f}" for value in steps.values())
        sizes = name, one["horizon"], first["context_length"], f"{first[SEASONAL]:.3f}"
        rows.append((*sizes, *cells, taken, times, counts, len(runs[DEFAULT])))
    titles = ("data", "horizon", "context", SEASONAL, DEFAULT, *PEERS, "CPU s", "times ours", "steps", "seeds")
    head = f"# `Forecaster()` and others, {record['machine']['cpu']}"
    return "\n".join([head, "", text, "", *table(titles, rows)])


def main() -> int:
    parser = new_parser(__doc__, FOLDER, toy="two steps each")
    parser.add_argument("--data", nargs="+", choices=[*HORIZONS], default=[*HORIZONS], help="to measure again")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--without-peers", action="store_true", help="leave neuralforecast out")
    options = parse(parser)
    if not options.without_peers:
        try:
            peers_python("the benchmark")
        except UserError as error:
            parser.error(str(error))
    machine = describe("cpu", torch.float32)
    file = options.output / f"{slug_of(machine)}.json"
    found = json.loads(file.read_text())["data"] if file.exists() else {}
    for name in options.data:
        runs = compare(name, options.seeds, peers=not options.without_peers, most=2 if options.dry_run else None)
        found[name] = {"command": this_command(), **runs}
        record = {"machine": machine, "data": {one: found[one] for one in HORIZONS if one in found}}
        write_record(file, record, page(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
