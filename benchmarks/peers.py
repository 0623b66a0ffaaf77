"""Training compared with neuralforecast's: CPU time of a step, memory, and seconds to the same error.

    python benchmarks/peers.py
    python benchmarks/peers.py --parts steps --recipes dlinear

Each trains in a process of its own by its own Trainer, on ETTh1 in float32 and one thread, with the same sizes, dropout
and windows in a batch. The two take turns step by step, so that a drift of the machine meets both alike. A step is all
that a Trainer does between two batches' ends: cutting windows, forward, backward, optimizer, logging. Parts:

- `steps`: the median CPU time of a step, and the most memory that a training holds beside its imports;
- `best`: PatchTST without a ridge, its validation MSE over all windows, and the CPU seconds until ours is as low as
  theirs ever is. Where theirs is lowest at its last validation the table says so: `--length` is too short.

PatchTST of neuralforecast has residual attention scores and normalises after its branches, and ours does neither;
theirs learns at a constant rate, and ours at one that rises and falls.

Writes `SLUG.json` (courses, machine, versions) and `SLUG.md` for each model of CPU. Parts and recipes that are not
asked for are kept as they were measured before, unless the recipe has changed. Needs `make peers` and ETTh1
(`TSATTN_DATA`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from measuring import RESULTS, describe, new_parser, parse, slug_of, table, write_record

from tsattn.data import PublicDataModule
from tsattn.errors import UserError
from tsattn.peers import peer_worker
from tsattn.peers.predictors import peers_python, write_series

FOLDER, PARTS = RESULTS / "peers", ("steps", "best")
OURS, THEIRS = "tsattn", "neuralforecast"
NOT_COUNTED = 5  # steps at the beginning
RATE = 1e-3  # of learning; ours at its peak


@dataclass(frozen=True)
class Recipe:
    """A network as we and as neuralforecast describe it; `faster` and `hoped` times as fast our step is to be."""

    ours: dict[str, Any]
    model: str
    theirs: dict[str, Any]
    faster: float
    hoped: float
    context_length: int = 512
    batch_size: int = 32  # windows of seven channels
    prediction_length: int = 96


_PATCHTST = {
    **{"kind": "patchtst", "d_model": 16, "num_layers": 3, "num_heads": 4, "d_ff": 128, "dropout": 0.2},
    **{"norm": "batch", "pad_end": True, "subtract_last": True},
}
_THEIR_PATCHTST = {
    **{"hidden_size": 16, "encoder_layers": 3, "n_heads": 4, "linear_hidden_size": 128, "dropout": 0.2},
    **{"fc_dropout": 0.2, "head_dropout": 0.0, "attn_dropout": 0.0, "patch_len": 16, "stride": 8},
}
_ITRANSFORMER = {"kind": "itransformer", "d_model": 128, "num_layers": 2, "num_heads": 8, "d_ff": 128, "dropout": 0.1}
_THEIR_ITRANSFORMER = {"hidden_size": 128, "e_layers": 2, "n_heads": 8, "d_ff": 128, "dropout": 0.1}
RECIPES = {
    "patchtst": Recipe(_PATCHTST, "PatchTST", _THEIR_PATCHTST, 2.3, 3.0),
    "itransformer": Recipe(_ITRANSFORMER, "iTransformer", _THEIR_ITRANSFORMER, 1.3, 1.6),
    "dlinear": Recipe({"kind": "dlinear", "kernel_size": 25}, "DLinear", {"moving_avg_window": 25}, 20, 50),
}


def contest(recipe: Recipe, steps: int, interval: int = 0, seed: int = 1) -> dict[str, dict[str, Any]]:
    """Train both on ETTh1, validated every `interval` steps (0: never).

    Returns:
        by name the CPU seconds of each step, the validations, and the facts at its ``end``.
    """
    sizes = {"context_length": recipe.context_length, "prediction_length": recipe.prediction_length}
    data = {"name": "ETTh1", **sizes, "batch_size": recipe.batch_size, "val_windows": "all"}
    module = PublicDataModule(**data)
    module.prepare_data()
    module.setup("fit")
    asked = {"steps": steps, "interval": interval, "learning_rate": RATE, "seed": seed}
    courses: dict[str, dict[str, Any]] = {name: {"seconds": [], "validations": []} for name in (OURS, THEIRS)}
    with tempfile.TemporaryDirectory() as folder:
        series = Path(folder) / "series.parquet"
        if not interval:
            module.parts = ("train",)
        rows = write_series(series, module)
        options = {
            **{"max_steps": steps, "val_check_steps": interval or steps + 1, "learning_rate": RATE},
            **{"loss": "MSE", "valid_loss": "MSE", "windows_batch_size": recipe.batch_size, "accelerator": "cpu"},
        }
        request = {
            **{"library": "neuralforecast", "model": recipe.model, "arguments": recipe.theirs, "options": options},
            **{"h": recipe.prediction_length, "input_size": recipe.context_length, "seed": seed, "quantiles": []},
            "channels": module.series.mean.shape[1],
        }
        theirs = {**asked, "request": request, "table": str(series), "val_rows": rows, "worker": peer_worker.__file__}
        runners = {
            OURS: _lines(Path(sys.executable), "ours", {**asked, "data": data, "ours": recipe.ours}),
            THEIRS: _lines(peers_python("the benchmark"), "theirs", theirs),
        }
        while runners:
            for name, lines in [*runners.items()]:
                for line in lines:
                    if "step" in line:
                        courses[name]["seconds"].append(line["seconds"])
                        break
                    if "at" in line:
                        courses[name]["validations"].append(line)
                    else:
                        courses[name]["end"] = line
                        del runners[name]
    return courses


def _lines(python: Path, which: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return what a training says; each step begins when the line after that of the step before is asked for."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if which == "theirs":
        environ.pop("PYTHONPATH", None)
    command = [str(python), "-W", "ignore", str(Path(__file__).with_name("peer_turns.py")), which, json.dumps(asked)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environ}
    with tempfile.TemporaryFile("w+") as errors:
        process: Any = subprocess.Popen(command, bufsize=1, stderr=errors, **pipes)
        try:
            process.stdin.write("begin\n")
            for line in process.stdout:
                said = json.loads(line)
                yield said
                if "step" in said:
                    process.stdin.write("go on\n")
            if process.wait():
                errors.seek(0)
                raise RuntimeError(f"the training of {which} failed:\n{errors.read()[-3000:]}")
        finally:
            process.kill()
            process.wait()


def steps_of(recipe: Recipe, courses: dict[str, dict[str, Any]]) -> dict[str, Any]:
    each = {
        name: {
            "ms": round(1e3 * statistics.median(course["seconds"][NOT_COUNTED:]), 2),
            "memory_mib": round(course["end"]["memory"] / 2**20, 1),
            **{fact: course["end"][fact] for fact in ("parameters", "tokens", "versions")},
        }
        for name, course in courses.items()
    }
    ratios = {"times_faster": round(each[THEIRS]["ms"] / each[OURS]["ms"], 2)}
    ratios["memory_over_theirs"] = round(each[OURS]["memory_mib"] / each[THEIRS]["memory_mib"], 3)
    ratios |= {"at_least": recipe.faster, "hope": recipe.hoped, "recipe": asdict(recipe)}
    return {**each, "steps": len(courses[OURS]["seconds"]) - NOT_COUNTED, **ratios}


def best_of(recipe: Recipe, courses: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return where theirs has its least validation MSE, and where ours first is as low."""
    curves = {name: course["validations"] for name, course in courses.items()}
    theirs, ours_best = (min(curves[name], key=lambda one: one["mse"]) for name in (THEIRS, OURS))
    ours = next((one for one in curves[OURS] if one["mse"] <= theirs["mse"]), None)
    record = {"theirs": theirs, "ours": ours, "ours_best": ours_best, "curves": curves, "recipe": asdict(recipe)}
    for name, parts in (("", ("training",)), ("_with_validation", ("training", "validating"))):
        took = [sum(one[part] for part in parts) for one in (theirs, ours) if one is not None]
        record[f"times_faster{name}"] = None if ours is None else round(took[0] / took[1], 2)
    return record


def page(record: dict[str, Any]) -> str:
    machine, versions = record["machine"], {}
    lines = [f"# Training beside neuralforecast, {machine['cpu']}", ""]
    lines += ["One thread, float32, ETTh1, made by `python benchmarks/peers.py`.", ""]
    if record["steps"]:
        head, rows = ("recipe", "ours, ms", "theirs, ms", "times faster", "at least", "hope"), []
        for name, one in record["steps"].items():
            versions |= one[THEIRS]["versions"]
            pairs = [f"{one[OURS][fact]} / {one[THEIRS][fact]}" for fact in ("parameters", "tokens")]
            times = (one[OURS]["ms"], one[THEIRS]["ms"], one["times_faster"], one["at_least"], one["hope"])
            rows.append((name, *times, one[OURS]["memory_mib"], one[THEIRS]["memory_mib"], *pairs))
        lines += table((*head, "ours, MiB", "theirs, MiB", "parameters", "tokens"), rows)
    if record["best"]:
        first, rows = record["best"][0], []
        rates = f"Learning rates: ours {first['our_learning_rate']:g} at its peak, theirs {first['learning_rate']:g}."
        text = "Validation MSE of PatchTST, without a ridge, over all windows; the aim is 2 times faster, 5 at best."
        lines += [f"{text} {rates}", ""]
        for one in record["best"]:
            theirs, ours, reached = one["theirs"], one["ours"], ("never", "", "", "")
            if ours is not None:
                faster = one["times_faster"], one["times_faster_with_validation"]
                reached = (ours["at"], f"{ours['training']:.1f}", *faster)
            is_last = theirs["at"] == max(validation["at"] for validation in one["curves"][THEIRS])
            mse = f"{theirs['mse']:.4f}", f"{theirs['at']}{', the last' * is_last}", f"{theirs['training']:.1f}"
            rows.append((one["seed"], *mse, *reached, f"{one['ours_best']['mse']:.4f}"))
        head = ("seed", "their best MSE", "at step", "CPU s", "ours as low at step", "CPU s")
        lines += table((*head, "times faster", "with validation", "our best MSE"), rows)
    lines += [f"Python {machine['python']}, torch {machine['torch']}, {machine['platform']}"]
    if "neuralforecast" in versions:
        lines[-1] += f"; neuralforecast {versions['neuralforecast']} with torch {versions['torch']}"
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = new_parser(__doc__, FOLDER, toy="tiny sizes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="to measure again")
    parser.add_argument("--recipes", nargs="+", choices=[*RECIPES], default=[*RECIPES], help="of the part steps")
    parser.add_argument("--steps", type=int, default=60, help="of the part steps, of which the first few do not count")
    parser.add_argument("--length", type=int, default=1000, help="steps of each training of the part best")
    parser.add_argument("--interval", type=int, default=50, help="steps from one validation to the next")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of the part best")
    options = parse(parser)
    try:
        peers_python("the benchmark")
    except UserError as error:
        parser.error(str(error))
    toy, machine, recipes = options.dry_run, describe("cpu", torch.float32), RECIPES
    if toy:
        tiny = {"context_length": 48, "batch_size": 4, "prediction_length": 8}
        recipes = {name: replace(one, **tiny) for name, one in RECIPES.items()}
        options.steps, options.length, options.interval, options.seeds = NOT_COUNTED + 2, 6, 3, 1
    file, network = options.output / f"{slug_of(machine)}.json", recipes["patchtst"]
    known = json.loads(file.read_text()) if file.exists() else {"steps": {}, "best": []}
    steps = {name: one for name, one in known["steps"].items() if one.get("recipe") == asdict(recipes[name])}
    best = [one for one in known["best"] if one.get("recipe") == asdict(network)]
    for name in options.recipes if "steps" in options.parts else ():
        steps[name] = steps_of(recipes[name], contest(recipes[name], options.steps))
    if "best" in options.parts:
        sizes = {"steps": options.length, "interval": options.interval}
        rates = {"learning_rate": RATE, "our_learning_rate": RATE}
        seeds = range(1, 1 + options.seeds)
        best = [
            {**sizes, **rates, "seed": seed, **best_of(network, contest(network, **sizes, seed=seed))} for seed in seeds
        ]
    record = {"steps": steps, "best": best, "machine": machine}
    write_record(file, record, page(record))
    print(page(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
