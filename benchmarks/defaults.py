"""The default network compared with seasonal naive and networks of neuralforecast trained for as long; its choice.

    python benchmarks/defaults.py
    python benchmarks/defaults.py --data CO2 --without-peers
    python benchmarks/defaults.py --choose

Each gets the rows of a frame up to its test part, and a horizon; it holds its own validation part out, and its context
is the one that `Forecaster` chooses. All windows of the test part are scored, by MASE of the medians: the mean over
channels and windows of the absolute error by that of seasonal naive on the rows before. A network of neuralforecast
gets its default sizes, our learning rate, loss and selection of weights, and as many steps as take the CPU seconds of
our whole fit, found in trainings that are thrown away; its start is not counted. A score whose runs took over a tenth
more or less is marked as not at equal time. Writes `SLUG.json` and `SLUG.md`; data sets that are not asked for are kept
as they were measured before, with their command. Needs the data sets (`TSATTN_DATA`), and `make peers`.

`--choose` says what the default should be, without reading the test parts. Each candidate is fitted to the first part
of the rows before, in at most 200 steps, and scored on all windows of the others, which chose nothing: by the geometric
mean over data sets of its MASE over that of seasonal naive. The seeds' geometric mean counts, and their range is the
spread. The present default stays unless it lies above the lowest score, of candidates that apply to all of the data, by
more than the spread of either. Writes `choice.json` after each fit, so that the command resumes, and `choice.md`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil  # type: ignore[import-untyped,unused-ignore]
import torch
from measuring import RESULTS, about, describe, new_parser, parse, slug_of, table, this_command, write_record

from tsattn import CO2DataModule, Forecaster, PublicDataModule
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, number_of
from tsattn.peers.predictors import peers_python
from tsattn.predictors import build_predictor, complete_predictor

FOLDER = RESULTS / "defaults"
SEASONAL, DEFAULT, PEERS = "seasonal naive", "default network", ("NHITS", "PatchTST")
FIRST_GUESS, GUESSES, NEAR = 100, 6, 0.1  # of the steps that take as long as ours
KNOWN = 0.8  # the part of the rows before the test part
HORIZONS = {"CO2": 52, "national_illness": 24, "exchange_rate": 96, "ETTh1": 96, "vic_electricity": 48}
ROWS = {"ETTh1": 14_400}  # that are used; all by default

PRESENT = "PatchTST from the ridge"
_PLAIN = {**DEFAULT_BACKBONE, "linear_path": "none"}
CANDIDATES: dict[str, Any] = {
    PRESENT: DEFAULT_BACKBONE,
    "the same with mlr": {**DEFAULT_BACKBONE, "attention": {"kind": "mlr", "ranks": [4, 4]}},
    "the same with swa": {**DEFAULT_BACKBONE, "attention": {"kind": "swa", "window_size": 4}},
    "the same with btt": {**DEFAULT_BACKBONE, "attention": "btt"},
    "PatchTST alone": _PLAIN,
    "mean of ridge and PatchTST": {"kind": "ensemble", "members": ["ridge", _PLAIN]},
    "iTransformer from the ridge": {**DEFAULT_BACKBONE, "kind": "itransformer"},
    "DLinear": "dlinear",
    "ridge": "ridge",
}
MOST = 200  # steps of a candidate that is trained


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
    forecaster = Forecaster(backbone, prediction_length=HORIZONS[name], accelerator="cpu", **arguments)
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
    rows = {DEFAULT: [measured(name, frame, DEFAULT_BACKBONE, seed=seed, **short) for seed in each]}
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
        "seconds of the default network; a score is marked where its runs took more or less than that by over a tenth. "
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
    head = f"# The default network and others, {record['machine']['cpu']}"
    return "\n".join([head, "", text, "", *table(titles, rows)])


def choose(names: list[str], seeds: int, most: int, file: Path) -> dict[str, Any]:
    """Score every candidate that the file has not."""
    fits: list[dict[str, Any]] = []
    record: dict[str, Any] = {**about(), "max_steps": most}
    there = {key_of(one): one for one in (json.loads(file.read_text())["fits"] if file.exists() else [])}
    for name, (candidate, description) in product(names, CANDIDATES.items()):
        is_drawn = build_predictor(description).is_trained  # else it is the same for every seed
        for seed in range(1, seeds + 1 if is_drawn else 2):
            asked = {"data": name, "candidate": candidate, "seed": seed, "description": complete_predictor(description)}
            asked |= {"max_steps": most if is_drawn else 0}
            if (key := key_of(asked)) not in there:
                how = {"max_steps": most, "training": {"patience": 7}} if is_drawn else {}
                lengths = {one["data"]: one["context_length"] for one in fits if "context_length" in one}
                how |= {"context_length": lengths[name]} if name in lengths else {}
                try:
                    found = {**measured(name, known(frame_of(name)), description, seed=seed, **how), "reason": ""}
                    said = f"MASE {found['mase']:.4f}, {SEASONAL} {found[SEASONAL]:.4f}, {found['cpu_seconds']} s"
                except UserError as error:
                    found = {"reason": (said := str(error))}
                print(f"{name:18} {candidate:28} seed {seed}: {said}", flush=True)
                there[key] = {**asked, **found}
                write_record(file, {**record, "fits": [*there.values()]})
            fits.append(there[key])
    return {**record, "fits": fits}


def key_of(fit: dict[str, Any]) -> str:
    return json.dumps([fit[part] for part in ("data", "candidate", "seed", "description", "max_steps")])


def scores(fits: list[dict[str, Any]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the MASE over that of seasonal naive, by candidate and data set a row and seed a column; and the `score`
    and `spread` of each candidate, best first, NaN where it does not apply to all data."""
    frame = pd.DataFrame(fits)
    frame["ratio"] = frame["mase"] / frame[SEASONAL]
    ratios = frame.pivot_table("ratio", ["candidate", "data"], "seed", dropna=False).ffill(axis=1)
    logs = np.log(ratios).groupby("candidate").agg(lambda column: column.mean(skipna=False))
    by_seed = np.exp(logs)
    score, spread = np.exp(logs.mean(axis=1, skipna=False)), by_seed.max(axis=1) - by_seed.min(axis=1)
    return ratios, pd.DataFrame({"score": score, "spread": spread}).sort_values("score")


def verdict(summary: pd.DataFrame) -> str:
    """Say which candidate has the lowest score, and whether it should replace the present default."""
    best = str(summary.index[0])
    if best == PRESENT:
        return f"The present default, {PRESENT}, has the lowest score: it stays."
    behind, spread = (
        summary.loc[PRESENT, "score"] - summary.loc[best, "score"],
        summary["spread"][[PRESENT, best]].max(),
    )
    said = f"The lowest score is that of {best}, {behind:.4f} below that of the present default, {PRESENT}"
    if behind <= spread:
        return f"{said}: within the spread of seeds, {spread:.4f}, so it stays."
    return f"{said}: more than the spread of seeds, {spread:.4f}, so {best} should be the default."


def choice_page(record: dict[str, Any]) -> str:
    (ratios, summary), most = scores(record["fits"]), record["max_steps"]
    names = [*dict.fromkeys(one["data"] for one in record["fits"])]
    text = (
        "MASE over that of seasonal naive on windows before the test part that chose nothing (mean of "
        f"{number_of(ratios.shape[1], 'seed')}, and the spread between the least and the most), and its geometric "
        f"mean, by `{record['command']}`{f'; trainings of at most {most} steps' if most else ''}. What does not apply "
        "to all of the data has no score."
    )
    rows = []
    for candidate, row in summary.iterrows():
        own = [ratios.loc[(candidate, name)] for name in names]
        cells = [_with_spread(one.mean(), one.max() - one.min(), 3) for one in own]
        rows.append((candidate, *cells, _with_spread(row["score"], row["spread"], 4)))
    reasons = {one["candidate"]: one["reason"] for one in record["fits"] if one["reason"]}
    lines = ["# Which network should be the default", "", text, "", verdict(summary), ""]
    lines += [*table(["candidate", *names, "score"], rows), *(f"- {name}: {why}" for name, why in reasons.items())]
    machine = record["machine"]
    return "\n".join(lines).rstrip() + f"\n\n{machine['cpu']}, torch {machine['torch']}.\n"


def _with_spread(middle: float, spread: float, digits: int) -> str:
    return "does not apply" if np.isnan(middle) else f"{middle:.{digits}f} ({spread:.{digits}f})"


def main(words: list[str] | None = None) -> int:
    parser = new_parser(__doc__, FOLDER, toy="two steps each")
    parser.add_argument("--choose", action="store_true", help="score what could be the default; no test part is read")
    parser.add_argument("--data", nargs="+", choices=[*HORIZONS], default=[*HORIZONS], help="to measure again")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--without-peers", action="store_true", help="leave neuralforecast out")
    options = parse(parser, words)
    if options.choose:
        if options.output == FOLDER and set(options.data) != set(HORIZONS):
            parser.error("a choice over some of the data sets needs an --output of its own")
        file = options.output / "choice.json"
        record = choose(options.data, options.seeds, 2 if options.dry_run else MOST, file)
        write_record(file, record, choice_page(record))
        print(verdict(scores(record["fits"])[1]))
        return 0
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
