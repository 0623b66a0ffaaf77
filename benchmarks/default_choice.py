"""Which predictor `Forecaster` should be by default, as validation says it; the test parts are not read.

    python benchmarks/default_choice.py

The data sets and horizons are those of `benchmarks/defaults.py`. The rows of the test part are cut off first. Of those
that are left each candidate gets the first part, of which it holds some out itself, as `Forecaster` does; its errors
are those of all windows of the rest, which chose nothing. The context is the one that `Forecaster` chooses, for all
alike. The score of a candidate is the geometric mean, over the data sets, of its MASE over that of seasonal naive; each
seed has one, their geometric mean counts, and how far they lie apart is the spread.

The default is to be the candidate of the lowest score among those that apply to all of the data. It stays as it is
where it lies above that by no more than the spread of either.

Writes `choice.json` after each fit, so that a run that was killed goes on without repeating one, and `choice.md`.
Trainings end after 200 steps (`--max-steps`; 0 leaves them as long as `Forecaster` makes them, several times longer).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from defaults import CASES, FOLDER, SEASONAL, frame_of, known, measured
from measuring import describe, this_command
from peer_speed.tables import row_of

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
    """MASE of a candidate on the rows before the test part that come after those that it was fitted to."""
    arguments: dict[str, Any] = {"seed": seed}
    if most and build_predictor(CANDIDATES[candidate]).is_trained:
        arguments |= {"max_steps": most, "training": {"patience": _PATIENCE}}
    if context_length is not None:
        arguments["context_length"] = context_length
    before_test = known(name, frame_of(name))
    try:
        return {**measured(name, before_test, CANDIDATES[candidate], **arguments), "reason": ""}
    except UserError as error:
        return {"reason": str(error)}


def fits(names: list[str], seeds: int, most: int, before: list[Fit]) -> Any:
    """Every fit, those that are known among them, each as soon as it is there."""
    there = {json.dumps([one[part] for part in _SAME]): one for one in before}
    for name in names:
        context_length = None
        for candidate, description in CANDIDATES.items():
            # what is not drawn is the same for every seed
            is_drawn = build_predictor(description).is_trained
            for seed in range(1, seeds + 1 if is_drawn else 2):
                whole = complete_predictor(description)
                asked = dict(zip(_SAME, (name, candidate, seed, whole, most if is_drawn else 0), strict=True))
                known_one = there.get(json.dumps([*asked.values()]))
                fit = known_one or {**asked, **validated(name, candidate, seed, most, context_length)}
                context_length = fit.get("context_length", context_length)
                yield fit


def scores(found: list[Fit]) -> dict[str, dict[str, Any]]:
    """Of each candidate: ``by_seed`` and ``score``, None where it does not apply to all data; ``spread``, and
    ``ratios``, the MASE over that of seasonal naive by data set and seed."""
    names = [*dict.fromkeys(one["data"] for one in found)]
    seeds = sorted({one["seed"] for one in found})
    whole = {}
    for candidate in dict.fromkeys(one["candidate"] for one in found):
        own = {(one["data"], one["seed"]): one for one in found if one["candidate"] == candidate}
        ratios = {
            name: [
                one["mase"] / one[SEASONAL]
                for seed in seeds
                if not (one := own.get((name, seed), own[name, seeds[0]]))["reason"]
            ]
            for name in names
        }
        by_seed = (
            [math.exp(statistics.fmean(map(math.log, each))) for each in zip(*ratios.values(), strict=True)]
            if all(ratios.values())
            else []
        )
        score = math.exp(statistics.fmean(map(math.log, by_seed))) if by_seed else None
        spread = max(by_seed) - min(by_seed) if by_seed else None
        whole[candidate] = {"score": score, "spread": spread, "by_seed": by_seed, "ratios": ratios}
    return whole


def verdict(found: dict[str, dict[str, Any]]) -> tuple[str, bool, str]:
    """The candidate of the lowest score, whether it should be the default in place of the present one, and why."""
    able = {name: one for name, one in found.items() if one["score"] is not None}
    best = min(able, key=lambda name: able[name]["score"])
    if PRESENT not in able:
        return best, best != PRESENT, f"The present default has no score; the lowest is that of {best}."
    if best == PRESENT:
        return best, False, f"The present default, {PRESENT}, has the lowest score: it stays."
    behind = able[PRESENT]["score"] - able[best]["score"]
    spread = max(able[PRESENT]["spread"], able[best]["spread"])
    said = f"The lowest score is that of {best}, {behind:.4f} below that of the present default, {PRESENT}"
    if behind <= spread:
        return best, False, f"{said}: within the spread of seeds, {spread:.4f}, so it stays."
    return best, True, f"{said}: more than the spread of seeds, {spread:.4f}, so {best} should be the default."


def table(record: dict[str, Any]) -> str:
    """The record in Markdown."""
    found = scores(record["fits"])
    names = [*dict.fromkeys(one["data"] for one in record["fits"])]
    seeds = len({one["seed"] for one in record["fits"]})
    most = record["max_steps"]
    lines = ["# Which predictor `Forecaster` should be by default", ""]
    lines += [
        "MASE over that of seasonal naive on windows before the test part that chose nothing (mean of "
        f"{number_of(seeds, 'seed')}, and the spread between the least and the most), and its geometric mean, by "
        f"`{record['command']}`{f'; trainings of at most {most} steps' if most else ''}. What does not apply to all of "
        "the data has no score.",
        "",
        verdict(found)[2],
        "",
    ]
    lines += [row_of(["candidate", *names, "score"]), row_of(["---"] * (len(names) + 2))]
    order = sorted(found, key=lambda name: (found[name]["score"] is None, found[name]["score"] or 0.0))
    for candidate in order:
        one = found[candidate]
        cells = [_with_spread(one["ratios"][name]) for name in names]
        lines.append(row_of([candidate, *cells, _with_spread(one["by_seed"], one["score"], digits=4)]))
    reasons = {one["candidate"]: one["reason"] for one in record["fits"] if one["reason"]}
    lines += ["", *(f"- {candidate}: {reason}" for candidate, reason in reasons.items())]
    machine = record["machine"]
    return "\n".join(lines).rstrip() + f"\n\n{machine['cpu']}, torch {machine['torch']}.\n"


def _with_spread(values: list[float], middle: float | None = None, digits: int = 3) -> str:
    if not values:
        return "does not apply"
    middle = statistics.fmean(values) if middle is None else middle
    spread = f" ({max(values) - min(values):.{digits}f})" if len(values) > 1 else ""
    return f"{middle:.{digits}f}{spread}"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-steps", type=int, default=200, help="of a training; 0: as many as Forecaster chooses")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write into")
    options = parser.parse_args(words)
    if options.seeds < 1 or options.max_steps < 0:
        parser.error("--seeds must be at least 1, and --max-steps at least 0")
    if options.output == FOLDER and set(options.data) != set(CASES):
        parser.error("a choice over some of the data sets needs an --output of its own")
    torch.set_num_threads(1)
    file = options.output / "choice.json"
    before = json.loads(file.read_text())["fits"] if file.exists() else []
    record: dict[str, Any] = {"command": this_command(), "machine": describe("cpu", torch.float32)}
    record |= {"max_steps": options.max_steps, "fits": []}
    for fit in fits(options.data, options.seeds, options.max_steps, before):
        record["fits"].append(fit)
        if fit in before:
            continue
        said = fit["reason"] or f"MASE {fit['mase']:.4f}, {SEASONAL} {fit[SEASONAL]:.4f}, {fit['cpu_seconds']} s"
        print(f"{fit['data']:18} {fit['candidate']:28} seed {fit['seed']}: {said}", flush=True)
        # fits that were known and come later are kept, as this run may be killed, too
        later = [one for one in before if one not in record["fits"]]
        write_text(file, json.dumps({**record, "fits": [*record["fits"], *later]}, indent=1) + "\n")
    write_text(file, json.dumps(record, indent=1) + "\n")
    write_text(file.with_suffix(".md"), table(record))
    print(verdict(scores(record["fits"]))[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
