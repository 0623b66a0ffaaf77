"""Training beside neuralforecast's, measured in one run: CPU time of a step, memory, and seconds to the same error.

    python benchmarks/peers.py
    python benchmarks/peers.py --parts steps --recipes dlinear

Each trains in a process of its own by its own Trainer, on ETTh1 in float32 and one thread, with the same sizes, dropout
and windows in a batch. The two take turns step by step, so that a drift of the machine meets both alike. A step is all
that a Trainer does between two batches' ends: cutting windows, forward, backward, optimizer, logging. Parts:

- `steps`: the median CPU time of a step, and the most memory that a training holds beside what its imports do;
- `best`: PatchTST without a ridge, its validation MSE over all windows, and the CPU seconds until ours is as low as
  theirs ever is. Where theirs is lowest at its last validation the table says so: it might fall on, and `--length` is
  too short.

Writes `SLUG.json` (courses, machine, versions) and `SLUG.md` into the output folder, for each model of CPU. Parts and
recipes that are not asked for are kept as they were measured before, unless the recipe has changed since. Needs `make
peers` and ETTh1 (`TSATTN_DATA`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from measuring import describe, slug_of
from peer_speed.contest import OURS, THEIRS, Course, contest
from peer_speed.recipes import RECIPES, Recipe, small
from peer_speed.tables import best_of, tables

from tsattn.errors import UserError
from tsattn.peers.peer_process import peers_python

FOLDER = Path(__file__).parent / "results" / "peers"
PARTS = ("steps", "best")
NOT_COUNTED = 5  # steps at the beginning


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="to measure anew")
    parser.add_argument("--recipes", nargs="+", choices=[*RECIPES], default=[*RECIPES], help="of the part steps")
    parser.add_argument("--steps", type=int, default=60, help="of the part steps, of which the first few do not count")
    parser.add_argument("--length", type=int, default=1000, help="steps of each training of the part best")
    parser.add_argument("--interval", type=int, default=50, help="steps from one validation to the next")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="of the part best, of theirs")
    parser.add_argument("--our-learning-rate", type=float, help="of the part best, of ours; that of theirs by default")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of the part best")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write into")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, whose figures mean nothing; needs --output")
    arguments = parser.parse_args()
    if arguments.dry_run and arguments.output == FOLDER:
        parser.error("--dry-run needs an --output of its own: its figures mean nothing")
    try:
        peers_python("the benchmark")
    except UserError as error:
        parser.error(str(error))
    return arguments


def described(recipe: Recipe) -> dict[str, Any]:
    """What is trained, as a record keeps it: what was measured of another recipe is not of this one."""
    return {**vars(recipe)}


def step_record(recipe: Recipe, courses: dict[str, Course]) -> dict[str, Any]:
    """Milliseconds and memory of each, and how many times ours is as fast."""
    each = {
        name: {
            "ms": round(1e3 * statistics.median(course.seconds[NOT_COUNTED:]), 2),
            "memory_mib": round(course.end["memory"] / 2**20, 1),
            **{fact: course.end[fact] for fact in ("parameters", "tokens", "versions")},
        }
        for name, course in courses.items()
    }
    faster = each[THEIRS]["ms"] / each[OURS]["ms"]
    memory = each[OURS]["memory_mib"] / each[THEIRS]["memory_mib"]
    return {
        **each,
        "steps": len(courses[OURS].seconds) - NOT_COUNTED,
        "times_faster": round(faster, 2),
        "memory_over_theirs": round(memory, 3),
        "at_least": recipe.faster,
        "hope": recipe.hoped,
    }


def main() -> int:
    arguments = parse()
    tiny = arguments.dry_run
    about = describe("cpu", torch.float32)
    file = arguments.output / f"{slug_of(about)}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    recipes = {name: small(one) if tiny else one for name, one in RECIPES.items()}
    patchtst = recipes["patchtst"]
    record: dict[str, Any] = {
        "steps": {
            name: one for name, one in known.get("steps", {}).items() if one.get("recipe") == described(recipes[name])
        },
        "best": [one for one in known.get("best", []) if one.get("recipe") == described(patchtst)],
        "machine": about,
    }
    if "steps" in arguments.parts:
        for name in arguments.recipes:
            recipe = recipes[name]
            courses = contest(recipe, steps=NOT_COUNTED + 2 if tiny else arguments.steps)
            record["steps"][name] = {**step_record(recipe, courses), "recipe": described(recipe)}
    if "best" in arguments.parts:
        length, interval = (6, 3) if tiny else (arguments.length, arguments.interval)
        sizes: dict[str, Any] = {
            **{"steps": length, "interval": interval, "learning_rate": arguments.learning_rate},
            "our_learning_rate": arguments.our_learning_rate or arguments.learning_rate,
        }
        record["best"] = [
            {**sizes, "seed": seed, **best_of(contest(patchtst, **sizes, seed=seed)), "recipe": described(patchtst)}
            for seed in range(1, 1 + (1 if tiny else arguments.seeds))
        ]
    arguments.output.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n")
    text = tables(record)
    file.with_suffix(".md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
