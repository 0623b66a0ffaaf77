"""`Forecaster` as it is without arguments, beside seasonal naive and networks of neuralforecast given as much time.

    python benchmarks/defaults.py
    python benchmarks/defaults.py --data CO2 --without-peers

Each gets the rows of a frame up to its test part, and a horizon, nothing else; it holds its own part out for
validation, and the context, where it needs one, is chosen as `Forecaster` chooses it. The windows that are scored are
the same: all of the test part. The error is MASE of the medians: the mean over channels and windows of the absolute
error by that of seasonal naive on the rows before. A network of neuralforecast gets its default sizes, this package's
learning rate, loss and selection of weights, and as many steps as take the CPU seconds of our whole fit (the choice of
the context included), found in trainings that are thrown away; its start is not counted. What the runs that are scored
took is held against ours: beyond a tenth more or less a score is marked as not at equal time.

Writes `SLUG.json` (scores by seed, seconds, commands, machine, versions) and `SLUG.md` into the output folder. Data
sets that are not asked for are kept as they were measured before, with their command. Needs the data sets
(`TSATTN_DATA`), and `make peers`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil  # type: ignore[import-untyped,unused-ignore]
import torch
from measuring import describe, slug_of, this_command
from peer_speed.tables import row_of

from tsattn import CO2DataModule, Forecaster, PublicDataModule
from tsattn.errors import UserError
from tsattn.peers.peer_process import peers_python

FOLDER = Path(__file__).parent / "results" / "defaults"
SEASONAL = "seasonal naive"
DEFAULT = "Forecaster()"
PEERS = ("NHITS", "PatchTST")
FIRST_GUESS, GUESSES, NEAR = 100, 6, 0.1  # of the steps that take as long as ours


@dataclass(frozen=True)
class Case:
    """A data set: what is asked of it, the rows that are used, and the part of them before the test part."""

    horizon: int
    rows: int | None = None
    known: float = 0.8


CASES = {
    "CO2": Case(52),
    "national_illness": Case(24),
    "exchange_rate": Case(96),
    "ETTh1": Case(96, 14_400),
    "vic_electricity": Case(48),
}


def frame_of(name: str) -> pd.DataFrame:
    data = CO2DataModule() if name == "CO2" else PublicDataModule(name)
    return data.load_frame().iloc[: CASES[name].rows]


def forecaster_of(name: str, backbone: Any, **arguments: Any) -> Forecaster:
    given = {} if backbone is None else {"backbone": backbone}
    return Forecaster(**given, prediction_length=CASES[name].horizon, accelerator="cpu", **arguments)


def known(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows before the test part."""
    return frame.iloc[: round(CASES[name].known * len(frame))]


def cpu_seconds() -> float:
    """Of this process and the workers that it started."""
    spent = [psutil.Process().cpu_times(), *(child.cpu_times() for child in psutil.Process().children(recursive=True))]
    return float(sum(one.user + one.system for one in spent))


def fitted(name: str, frame: pd.DataFrame, backbone: Any, **arguments: Any) -> tuple[Forecaster, float]:
    """A forecaster, and the CPU seconds of its fit."""
    forecaster = forecaster_of(name, backbone, **arguments)
    before = cpu_seconds()
    forecaster.fit(known(name, frame))
    return forecaster, cpu_seconds() - before


def measured(name: str, frame: pd.DataFrame, backbone: Any, **arguments: Any) -> dict[str, Any]:
    """MASE on all windows of the rows that are not known, and what the fit took."""
    forecaster, seconds = fitted(name, frame, backbone, **arguments)
    mase = forecaster.evaluate(frame)["MASE"]
    assert forecaster.result is not None
    facts = forecaster.result.fit
    each = [fit for member in facts.get("members", [[facts]]) for fit in member]
    return {
        "mase": float(mase.iloc[0]),
        SEASONAL: float(mase[mase.index.str.startswith(SEASONAL)].iloc[0]),
        "context_length": forecaster.task.context_length,
        "parameters": facts["parameters"],
        "steps": sum(fit["training"]["steps"] for fit in each if "training" in fit),
        "cpu_seconds": round(seconds, 2),
    }


def steps_in(seconds: float, name: str, frame: pd.DataFrame, model: str, context_length: int) -> int:
    """The steps of a network of neuralforecast that took nearest to so long, their validations included."""
    backbone = {"kind": "neuralforecast", "model": model}
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
    """Whether a fit took as long as ours, but for a tenth more or less."""
    return 1 - NEAR <= ratio <= 1 + NEAR


def times_ours(runs: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """The CPU seconds of each, the median of its runs, over those of ours."""
    medians = {who: statistics.median(one["cpu_seconds"] for one in fits) for who, fits in runs.items()}
    return {who: taken / medians[DEFAULT] for who, taken in medians.items() if who != DEFAULT}


def compare(name: str, seeds: int, *, peers: bool, most: int | None) -> dict[str, Any]:
    """All of them on one data set."""
    frame = frame_of(name)
    short = {} if most is None else {"max_steps": most}
    rows = {DEFAULT: [measured(name, frame, None, seed=seed, **short) for seed in range(1, seeds + 1)]}
    seconds = statistics.median(one["cpu_seconds"] for one in rows[DEFAULT])
    context_length = rows[DEFAULT][0]["context_length"]
    for model in PEERS if peers else ():
        steps = most or steps_in(seconds, name, frame, model, context_length)
        backbone = {"kind": "neuralforecast", "model": model}
        arguments = {"max_steps": steps, "context_length": context_length}
        rows[model] = [measured(name, frame, backbone, seed=seed, **arguments) for seed in range(1, seeds + 1)]
    print(f"{name:18} {SEASONAL:16} MASE {rows[DEFAULT][0][SEASONAL]:.4f}")
    for who, runs in rows.items():
        print(
            f"{name:18} {who:16} MASE",
            *(f"{one['mase']:.4f}" for one in runs),
            f"{runs[0]['cpu_seconds']} s",
            flush=True,
        )
    return {"horizon": CASES[name].horizon, "runs": rows}


def table(record: dict[str, Any]) -> str:
    """The record in Markdown."""
    lines = [
        f"# `Forecaster()` and others, {record['machine']['cpu']}",
        "",
        "MASE on the test part (mean over seeds, and the spread between the least and the most), by "
        "`python benchmarks/defaults.py`. Networks of neuralforecast have the steps that were found to take the CPU "
        "seconds of `Forecaster()`; a score is marked where its runs took more or less than that by over a tenth. "
        "Seconds and steps are medians over seeds.",
        "",
    ]
    who = [DEFAULT, *PEERS]
    lines.append(row_of(["data", "horizon", "context", SEASONAL, *who, "CPU s", "times ours", "steps", "seeds"]))
    lines.append(row_of(["---"] * (len(who) + 8)))
    for name, one in record["data"].items():
        runs, cells, ratios = one["runs"], [], times_ours(one["runs"])
        for each in who:
            found = [run["mase"] for run in runs.get(each, [])]
            spread = f" ({max(found) - min(found):.3f})" if len(found) > 1 else ""
            mark = "" if is_equal(ratios.get(each, 1.0)) else ", not at equal time"
            cells.append(f"{statistics.mean(found):.3f}{spread}{mark}" if found else "")
        first = runs[DEFAULT][0]
        taken, steps = (
            " / ".join(f"{statistics.median(run[fact] for run in each):{form}}" for each in runs.values())
            for fact, form in (("cpu_seconds", ".1f"), ("steps", ".0f"))
        )
        times = " / ".join(f"{ratio:.2f}" for ratio in ratios.values())
        sizes = name, one["horizon"], first["context_length"], f"{first[SEASONAL]:.3f}"
        lines.append(row_of([*sizes, *cells, taken, times, steps, len(runs[DEFAULT])]))
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=[*CASES], default=[*CASES], help="data sets to measure anew")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--without-peers", action="store_true", help="leave neuralforecast out")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write into")
    parser.add_argument(
        "--dry-run", action="store_true", help="two steps each, whose figures mean nothing; needs --output"
    )
    options = parser.parse_args()
    if options.dry_run and options.output == FOLDER:
        parser.error("--dry-run needs an --output of its own: its figures mean nothing")
    if not options.without_peers:
        try:
            peers_python("the benchmark")
        except UserError as error:
            parser.error(str(error))
    torch.set_num_threads(1)
    machine = describe("cpu", torch.float32)
    file = options.output / f"{slug_of(machine)}.json"
    found = json.loads(file.read_text())["data"] if file.exists() else {}
    for name in options.data:
        runs = compare(name, options.seeds, peers=not options.without_peers, most=2 if options.dry_run else None)
        found[name] = {"command": this_command(), **runs}
        record = {
            "machine": machine,
            "data": {one: found[one] for one in CASES if one in found},
        }
        options.output.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=2) + "\n")
        file.with_suffix(".md").write_text(table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
