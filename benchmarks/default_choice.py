"""Which predictor `Forecaster` should be by default, as validation says it; the test parts are not read.

    python benchmarks/default_choice.py

The data sets and horizons are those of `benchmarks/defaults.py`, without the rows of the test part. Each candidate is
fitted to the first part of the rest, and scored on all windows after it, which chose nothing. The score is the
geometric mean, over the data sets, of its MASE over that of seasonal naive: one a seed, whose geometric mean counts,
and whose range is the spread. The default is to be the candidate of the lowest score among those that apply to all of
the data; the present one stays unless it lies above that by more than the spread of either.

Writes `choice.json` after each fit, so that the same command resumes after a kill, and `choice.md`. Trainings end after
200 steps (`--max-steps`; 0 leaves them as long as `Forecaster` makes them, several times longer).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from defaults import FOLDER, HORIZONS, SEASONAL, frame_of, known, measured
from measuring import about, new_parser, parse, table, write_record

from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, number_of
from tsattn.predictors import build_predictor, complete_predictor
from tsattn.saved_folders import write_text

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
_PATIENCE = 7  # validations, as where nobody says how long to train
_SAME = ("data", "candidate", "seed", "description", "max_steps")

Fit = dict[str, Any]


def validated(name: str, candidate: str, seed: int, most: int, context_length: int | None) -> Fit:
    """Score a candidate on the rows before the test part that come after those that it was fitted to."""
    arguments: dict[str, Any] = {"seed": seed}
    if most and build_predictor(CANDIDATES[candidate]).is_trained:
        arguments |= {"max_steps": most, "training": {"patience": _PATIENCE}}
    arguments |= {} if context_length is None else {"context_length": context_length}
    try:
        return {**measured(name, known(frame_of(name)), CANDIDATES[candidate], **arguments), "reason": ""}
    except UserError as error:
        return {"reason": str(error)}


def fits(names: list[str], seeds: int, most: int, before: list[Fit]) -> Iterator[Fit]:
    """Return every fit, known ones included, each as soon as it is there."""
    there = {json.dumps([one[part] for part in _SAME]): one for one in before}
    for name in names:
        context_length = None
        for candidate, description in CANDIDATES.items():
            is_drawn = build_predictor(description).is_trained  # else it is the same for every seed
            for seed in range(1, seeds + 1 if is_drawn else 2):
                steps = most if is_drawn else 0
                asked = dict(zip(_SAME, (name, candidate, seed, complete_predictor(description), steps), strict=True))
                fit = there.get(json.dumps([*asked.values()]))
                fit = fit or {**asked, **validated(name, candidate, seed, steps, context_length)}
                context_length = fit.get("context_length", context_length)
                yield fit


def scores(found: list[Fit]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the MASE over that of seasonal naive, by candidate and data set a row and seed a column; and the `score`
    and `spread` of each candidate, best first, NaN where it does not apply to all data."""
    frame = pd.DataFrame(found)
    frame["ratio"] = frame["mase"] / frame[SEASONAL]
    ratios = frame.pivot_table("ratio", ["candidate", "data"], "seed", dropna=False).ffill(axis=1)
    logs = np.log(ratios).groupby("candidate").agg(lambda column: column.mean(skipna=False))
    by_seed = np.exp(logs)
    score, spread = np.exp(logs.mean(axis=1, skipna=False)), by_seed.max(axis=1) - by_seed.min(axis=1)
    return ratios, pd.DataFrame({"score": score, "spread": spread}).sort_values("score")


def verdict(summary: pd.DataFrame) -> tuple[str, bool, str]:
    """Return the candidate of the lowest score, whether it should replace the present default, and why."""
    best = str(summary.index[0])
    if best == PRESENT:
        return best, False, f"The present default, {PRESENT}, has the lowest score: it stays."
    behind, spread = summary.loc[PRESENT, "score"] - summary.loc[best, "score"], summary.loc[[PRESENT, best], "spread"]
    said = f"The lowest score is that of {best}, {behind:.4f} below that of the present default, {PRESENT}"
    if behind <= spread.max():
        return best, False, f"{said}: within the spread of seeds, {spread.max():.4f}, so it stays."
    return best, True, f"{said}: more than the spread of seeds, {spread.max():.4f}, so {best} should be the default."


def page(record: dict[str, Any]) -> str:
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
    lines = ["# Which predictor `Forecaster` should be by default", "", text, "", verdict(summary)[2], ""]
    lines += [*table(["candidate", *names, "score"], rows), *(f"- {name}: {why}" for name, why in reasons.items())]
    machine = record["machine"]
    return "\n".join(lines).rstrip() + f"\n\n{machine['cpu']}, torch {machine['torch']}.\n"


def _with_spread(middle: float, spread: float, digits: int) -> str:
    return "does not apply" if np.isnan(middle) else f"{middle:.{digits}f} ({spread:.{digits}f})"


def main(words: list[str] | None = None) -> int:
    parser = new_parser(__doc__, FOLDER)
    parser.add_argument("--data", nargs="+", choices=[*HORIZONS], default=[*HORIZONS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-steps", type=int, default=200, help="of a training; 0: as many as Forecaster chooses")
    options = parse(parser, words)
    if options.output == FOLDER and set(options.data) != set(HORIZONS):
        parser.error("a choice over some of the data sets needs an --output of its own")
    file = options.output / "choice.json"
    before = json.loads(file.read_text())["fits"] if file.exists() else []
    record: dict[str, Any] = {**about(), "max_steps": options.max_steps, "fits": []}
    for fit in fits(options.data, options.seeds, options.max_steps, before):
        record["fits"].append(fit)
        if fit not in before:
            said = fit["reason"] or f"MASE {fit['mase']:.4f}, {SEASONAL} {fit[SEASONAL]:.4f}, {fit['cpu_seconds']} s"
            print(f"{fit['data']:18} {fit['candidate']:28} seed {fit['seed']}: {said}", flush=True)
            # known fits that come later are kept, as this run may be killed, too
            later = [one for one in before if one not in record["fits"]]
            write_text(file, json.dumps({**record, "fits": [*record["fits"], *later]}, indent=1) + "\n")
    write_record(file, record, page(record))
    print(verdict(scores(record["fits"])[1])[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
