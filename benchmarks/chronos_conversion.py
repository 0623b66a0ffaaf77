"""What converting the attention of a pretrained Chronos model costs it, before and after fine-tuning.

    python benchmarks/chronos_conversion.py --weights ONE.safetensors TWO.safetensors THREE.safetensors

The weights are of one model, pretrained with several seeds; folders of Chronos models are taken, too. Four parts:
`zero_shot` (errors of attention outputs and scores of test parts, of MLR by `copy` and `rotate`, SWA and BTT),
`structures` (how near structured matrices come to the scores, at equal parameters), `fine_tuned` (MLR and SWA
calibrated and trained for 200 steps, beside the original trained alike) and `flops` (of MLR, in closed form and
counted).

Each run leaves a record in the folder of runs, whole or not at all; what is there for the same weights is not run
again, so that the same command goes on after a kill. Several may share a folder if their parts or data differ. Writes
`conversion.json` and `conversion.md` into the output folder, of all records that are there. Needs the data sets
(`TSATTN_DATA`) and the extra `chronos`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from conversion.arms import FINE_TUNED, ORIGINAL, SIZES, TOY, ZERO_SHOT, Sizes
from conversion.markdown import report
from conversion.runs import attention_flops, fine_tuned, structure_errors, trained_on, zero_shot
from conversion.summary import summary
from measuring import describe, this_command
from random_chronos import save_random

from tsattn.errors import UserError
from tsattn.experiments import RESULTS_VERSION
from tsattn.saved_folders import sha256, write_text

FOLDER = Path(__file__).parent / "results" / "chronos"
PARTS = ("flops", "structures", "zero_shot", "fine_tuned")
Key = tuple[Any, ...]


def planned(weights: Sequence[str], sizes: Sizes, parts: Sequence[str]) -> dict[Key, Callable[[], dict[str, Any]]]:
    """What makes each record, by its key; all seeds of a cheap run before the next."""
    runs: dict[Key, Callable[[], dict[str, Any]]] = {}
    for part, make in (("flops", attention_flops), ("structures", structure_errors)):
        for seed, one in enumerate(weights, 1):
            runs[part, seed] = partial(make, one)
    for name in sizes.data:
        for arm in (ORIGINAL, *ZERO_SHOT):
            for seed, one in enumerate(weights, 1):
                runs["zero_shot", seed, name, arm] = partial(zero_shot, one, name, arm, sizes)
    for name in sizes.data:
        for arm in FINE_TUNED:
            for seed, one in enumerate(weights, 1):
                runs["fine_tuned", seed, name, arm] = partial(fine_tuned, one, name, arm, sizes, seed)
    return {key: run for key, run in runs.items() if key[0] in parts}


def digest(weights: str) -> str:
    """What tells weights apart: of a file its own, of a folder those of its safetensors."""
    path = Path(weights)
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    if not files:
        raise UserError(f"there are no weights in {weights}: valid is a .safetensors file, or the folder of a model")
    return " ".join(map(sha256, files))


def done(file: Path, known: dict[str, Any]) -> dict[str, Any] | None:
    """The record in a file; None where there is none, or of other weights or sizes."""
    if not file.exists():
        return None
    record = json.loads(file.read_text())
    return record["found"] if record["known"] == known else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", nargs="+", metavar="FILE", help="one of each seed of the pretraining")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="to run; all are reported")
    parser.add_argument("--data", nargs="+", help="public data sets, by default " + ", ".join(SIZES.data))
    parser.add_argument("--horizon", type=int, help=f"steps, by default {SIZES.horizon}")
    parser.add_argument("--runs", type=Path, help="folder of records, by default runs/chronos_conversion")
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder to write the report into")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="toy sizes and random weights, whose figures mean nothing; needs --output",
    )
    options = parser.parse_args()
    if options.dry_run and options.output == FOLDER:
        parser.error("--dry-run needs an --output of its own: its figures mean nothing")
    sizes = TOY if options.dry_run else SIZES
    sizes = replace(
        sizes,
        data=tuple(options.data or sizes.data),
        horizon=sizes.horizon if options.horizon is None else options.horizon,
    )
    runs = options.runs or (options.output / "runs" if options.dry_run else Path("runs") / "chronos_conversion")
    weights = options.weights
    if weights is None and options.dry_run:
        weights = [str(save_random(options.output / f"random_{seed}.safetensors", seed)) for seed in (1, 2)]
    if weights is None:
        parser.error("--weights are needed: the .safetensors file or the folder of a pretrained model, one a seed")
    torch.set_num_threads(1)
    try:
        hashes = [digest(one) for one in weights]
        seen = [trained_on(one) for one in weights]
        plan = planned(weights, sizes, options.parts)
        for number, (key, run) in enumerate(plan.items(), 1):
            file, known = record_file(runs, key), known_by(key, hashes, sizes)
            if done(file, known) is None:
                began = time.perf_counter()
                found = run()
                write_text(file, json.dumps({"known": known, "found": found}) + "\n")
                spent = time.perf_counter() - began
                print(f"{number} of {len(plan)}: {file.stem}, {spent:.0f} s", flush=True)
    except UserError as error:
        parser.error(str(error))
    records = {}
    for key in planned(weights, sizes, PARTS):
        kept = done(record_file(runs, key), known_by(key, hashes, sizes))
        if kept is not None:
            records[key] = kept
    packages = ("tsattn", "torch", "lightning", "transformers", "chronos-forecasting", "numpy")
    each = zip(weights, hashes, seen, strict=True)
    record = {
        "command": this_command(),
        "dry_run": options.dry_run,
        "machine": {**describe("cpu", torch.float32), "cores": os.cpu_count(), "threads": 1},
        "versions": {name: version(name) for name in packages},
        "weights": {
            number: {"name": Path(one).name, "sha256": code, "trained_on": list(names)}
            for number, (one, code, names) in enumerate(each, 1)
        },
        "horizon": sizes.horizon,
        "sizes": asdict(sizes),
        **summary(records, sizes.data, range(1, len(weights) + 1), sizes.horizon),
    }
    write_text(options.output / "conversion.json", json.dumps(record, indent=2) + "\n")
    write_text(options.output / "conversion.md", report(record))
    print(report(record))
    return 0


def record_file(runs: Path, key: Key) -> Path:
    """``zero_shot-1-ETTh1-copy.json``."""
    return runs / f"{'-'.join(map(str, key))}.json"


def known_by(key: Key, hashes: Sequence[str], sizes: Sizes) -> dict[str, Any]:
    """What a record is of: the weights, the sizes that decide it, and the version of results, as JSON reads them."""
    own = {name: value for name, value in asdict(sizes).items() if name != "data"}
    known = {"weights": hashes[key[1] - 1], "version": RESULTS_VERSION, **own}
    return json.loads(json.dumps(known))  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
