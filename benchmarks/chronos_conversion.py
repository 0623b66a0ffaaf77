"""The cost in accuracy of converting the attention of a pretrained Chronos model, before and after fine-tuning.

    python benchmarks/chronos_conversion.py --weights ONE TWO THREE

The weights are folders of Chronos models: of one model, pretrained with several seeds, or of several. Two parts:
`converted` (errors of attention outputs on test parts, of MLR by `copy` and `rotate`, SWA and BTT), and `fine_tuned`
(MLR and SWA calibrated and trained for 200 steps, compared with the original trained in the same way).

Each run leaves a record in the folder of runs, whole or not at all; what is there for the same weights is not run
again, so that the same command resumes after a kill. Several may share a folder if their parts or data differ. Writes
`conversion.json` and `conversion.md` of all records that are there. Needs the data sets (`TSATTN_DATA`) and the extra
`chronos`.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import RESULTS, about, new_parser, packages_of, parse, table, title_of, write_record
from torch import Tensor

from benchmarks.pretraining.corpus import draw
from tsattn import PublicDataModule, run
from tsattn.chronos import AdaptedChronos, adapt
from tsattn.chronos.adapted import open_weights
from tsattn.chronos.swapped_attention import Surroundings
from tsattn.errors import UserError
from tsattn.experiments import RESULTS_VERSION
from tsattn.experiments.running import Hooks
from tsattn.leaderboard.statistics import ModelErrors, difference
from tsattn.saved_folders import sha256, write_text

PARTS = ("converted", "fine_tuned")
ORIGINAL = "original"
CONVERTED = {
    "copy": "MLR, `copy`",
    "rotate": "MLR, `rotate` by generated series",
    "rotate_noise": "MLR, `rotate` without data",
    "rotate_training": "MLR, `rotate` by the set's training part",
    "swa": "SWA, `copy`",
    "btt": "BTT, `project`",
}
FINE_TUNED = {ORIGINAL: "original", "mlr": "MLR, `rotate`, calibrated", "swa": "SWA, `copy`, calibrated"}
DASH = "\N{EN DASH}"

Key = tuple[str, int, str, str]
Records = Mapping[Key, Mapping[str, Any]]  # by part, number of the weights, data set and model


@dataclass(frozen=True)
class Sizes:
    """Public data sets, the horizon, generated series and their steps, windows that a conversion sees at most, steps of
    calibration and fine-tuning, and windows of each of four validations."""

    data: tuple[str, ...] = ("ETTh1", "vic_electricity", "ETTh2")
    horizon: int = 48
    generated: tuple[int, int] = (256, 1024)
    learned_from: int = 512
    calibrate: int = 300
    fine_tuning: int = 200
    val_windows: int = 1024


TOY = Sizes(("national_illness",), 6, (12, 64), 12, 2, 4, 8)


def described(model: str, plain: AdaptedChronos) -> dict[str, Any]:
    """Return the attention of a model in the place of the encoder's, and how it is converted.

    MLR has half of a head's width r for all pairs, and a quarter on each of two finer levels; SWA sees a window of a
    quarter of the context to either side; BTT has its default rank.
    """
    around = Surroundings(plain.family, plain.family.sites()[0], plain.family.longest)
    r = around.head_dim
    if model == "swa":
        return {"attention": {"kind": "swa", "window_size": max(1, around.max_tokens // 4)}, "convert": "copy"}
    if model == "btt":
        return {"attention": {"kind": "btt"}, "convert": "project"}
    mlr = {"kind": "mlr", "ranks": [r // 2, r // 4, r // 4]}
    return {"attention": mlr, "convert": "copy" if model == "copy" else "rotate"}


def series_of(data: PublicDataModule, part: str, length: int, most: int) -> list[Tensor]:
    """Return contexts of windows spread evenly over a part, each channel a series; missing values as NaN."""
    every = -(-len(data.windows(part, length)) // most)
    found: list[Tensor] = []
    for batch in data.eval_dataloader(part, length, every=every):
        past = batch.past
        if batch.past_observed is not None:
            past = past.masked_fill(~batch.past_observed, torch.nan)
        found += [row for row in past.transpose(1, 2).flatten(0, 1).float() if bool(row.isfinite().any())]
    return found


def converted(weights: str, number: int, name: str, model: str, sizes: Sizes) -> dict[str, Any]:
    """Measure the errors of the attentions of a model, which is only converted, on the test part."""
    plain = open_weights(weights)
    length, given, known = plain.pipeline.model_context_length, described(model, plain), None
    data = PublicDataModule(name, context_length=length, prediction_length=sizes.horizon)
    data.prepare_data()
    data.setup("fit")
    if model == "rotate":
        known = [*torch.from_numpy(draw(np.random.default_rng(1), *sizes.generated)[0]).float()]
    elif model == "rotate_training":
        known = series_of(data, "train", length, sizes.learned_from)
    adapted = adapt(plain.pipeline, given["attention"], "encoder", given["convert"], data=known)
    errors = adapted.output_errors(series_of(data, "test", length, sizes.learned_from))
    return {"errors": {str(layer): float(one) for layer, one in errors.items()}}


def fine_tuned(weights: str, number: int, name: str, model: str, sizes: Sizes) -> dict[str, Any]:
    """Score a model after calibration, where attention was swapped, and some steps of training.

    ``sums`` and ``counts`` are the numerators and denominators of MASE, summed over the windows that start at one time.
    """
    plain = open_weights(weights)
    backbone: dict[str, Any] = {"kind": "chronos", "weights": str(Path(weights)), "trained": "all"}
    if model != ORIGINAL:
        backbone |= {**described(model, plain), "calibrate": sizes.calibrate}
    data = {"name": name, "context_length": plain.pipeline.model_context_length, "prediction_length": sizes.horizon}
    data |= {"batch_size": 32, "val_windows": sizes.val_windows}
    steps = {"max_steps": sizes.fine_tuning, "val_check_interval": max(1, sizes.fine_tuning // 4)}
    experiment = {
        "seed_everything": number,
        "data": {"class_path": "PublicDataModule", "init_args": data},
        "model": {"backbone": backbone, "quantiles": list(plain.pipeline.quantiles), "learning_rate": 1e-4},
        "trainer": {**steps, "check_val_every_n_epoch": None, "gradient_clip_val": 1.0, "accelerator": "cpu"},
    }
    result = run(experiment, hooks=Hooks(with_baselines=False, say=lambda line: None))
    assert result.errors is not None
    scores, frame = result.errors.scores(), result.errors.frame()
    usable = frame["seasonal_error"].gt(0)
    scaled = (frame["absolute_original"] / frame["seasonal_error"].where(usable, 1)).where(usable, 0)
    by_origin = frame.assign(scaled=scaled, counts=frame["count"].where(usable, 0)).groupby("origin")
    found = {"mase": scores["mase"], "wql": scores["wql_by_channel"], "windows": int(scores["windows"])}
    found["counts"] = by_origin["counts"].sum().astype(int).tolist()
    return {**found, "sums": [float(f"{value:.7g}") for value in by_origin["scaled"].sum()]}


def planned(weights: Sequence[str], sizes: Sizes, parts: Sequence[str]) -> dict[Key, Callable[[], dict[str, Any]]]:
    """Return the run of each record by its key; all seeds of a model before the next."""
    made = {"converted": (converted, CONVERTED), "fine_tuned": (fine_tuned, FINE_TUNED)}
    return {
        (part, number, name, model): partial(make, one, number, name, model, sizes)
        for part, (make, models) in made.items()
        if part in parts
        for name in sizes.data
        for model in models
        for number, one in enumerate(weights, 1)
    }


def digest(weights: str) -> str:
    """Return the hashes of the safetensors in the folder of a model."""
    files = sorted(Path(weights).glob("*.safetensors"))
    if not files:
        raise UserError(f"there are no weights in {weights}: give the folder of a Chronos model in safetensors")
    return " ".join(map(sha256, files))


class Kept:
    """The records of runs in a folder: each knows its weights, sizes, and the version of results."""

    def __init__(self, folder: Path, hashes: Sequence[str], sizes: Sizes) -> None:
        self.folder, self.hashes = folder, hashes
        self.known = json.loads(json.dumps({"version": RESULTS_VERSION, **asdict(sizes), "data": None}))

    def file(self, key: Key) -> Path:
        return self.folder / f"{'-'.join(map(str, key))}.json"

    def get(self, key: Key) -> dict[str, Any] | None:
        record = json.loads(self.file(key).read_text()) if self.file(key).exists() else None
        return (
            record["found"]
            if record and record["known"] == {**self.known, "weights": self.hashes[key[1] - 1]}
            else None
        )

    def put(self, key: Key, found: dict[str, Any]) -> None:
        known = {**self.known, "weights": self.hashes[key[1] - 1]}
        write_text(self.file(key), json.dumps({"known": known, "found": found}) + "\n")


def output_errors(records: Records, data: Sequence[str]) -> dict[str, Any]:
    """Return by model the mean over data sets and layers, ``by_seed`` and ``by_layer``, of seeds with all data sets."""
    errors = ((*key[1:], one["errors"]) for key, one in records.items() if key[0] == "converted")
    rows = [(seed, name, model, *item) for seed, name, model, found in errors for item in found.items()]
    frame, found = pd.DataFrame(rows, columns=["seed", "data", "model", "layer", "error"]), {}
    frame = frame[frame.groupby(["model", "seed"])["data"].transform("nunique") == len(data)]
    for model in CONVERTED:
        own = frame[frame["model"] == model]
        if len(own):
            by = {name: own.groupby(name, sort=False)["error"].mean() for name in ("seed", "layer")}
            found[model] = {"mean": float(by["seed"].mean())} | {f"by_{k}": one.to_dict() for k, one in by.items()}
    return found


def fine_tuned_rows(records: Records, data: Sequence[str], horizon: int) -> dict[str, Any]:
    """Return rows of a data set and model with MASE over the original's and its paired interval, and means by model."""
    rows: list[dict[str, Any]] = []
    for name, model in product(data, FINE_TUNED):
        plain, known = (
            {key[1]: one for key, one in records.items() if key == ("fine_tuned", key[1], name, which)}
            for which in (ORIGINAL, model)
        )
        if known:
            row: dict[str, Any] = {"data": name, "model": model, "seeds": len(known)}
            row |= {metric: statistics.fmean(one[metric] for one in known.values()) for metric in ("mase", "wql")}
            pairs = {seed: (one, plain[seed]) for seed, one in known.items() if seed in plain}
            if pairs and model != ORIGINAL:
                row |= paired(*map(list, zip(*pairs.values(), strict=True)), horizon)
                row["by_seed"] = {seed: one["mase"] / other["mase"] for seed, (one, other) in pairs.items()}
            rows.append(row)
    ratios = {model: [row["ratio"] for row in rows if row["model"] == model and "ratio" in row] for model in FINE_TUNED}
    means = {model: {"ratio": statistics.fmean(own), "data": len(own)} for model, own in ratios.items() if own}
    return {"rows": rows, "means": means}


def paired(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], horizon: int) -> dict[str, Any]:
    """Return the mean ratio of the MASE of runs to that of others of the same seeds and windows, with its interval.

    The interval of 95 % is None with a single pair, or fewer than two blocks; see `tsattn.leaderboard.statistics`.
    """
    counts = np.array(runs[0]["counts"], np.float64)
    if any(one["counts"] != runs[0]["counts"] for one in (*runs, *others)):
        raise RuntimeError("runs that are compared were tested on different windows")
    # a pair starts from the same weights: each is measured by the level of its other
    own, other = (np.array([one["sums"] for one in group], np.float64) for group in (runs, others))
    levels, origins = other.mean(1, keepdims=True), np.arange(len(counts))
    errors = {
        "own": ModelErrors(own / levels, counts, origins, tuple(range(len(runs)))),
        "other": ModelErrors((other / levels).mean(0, keepdims=True), counts, origins, (None,)),
    }
    found = difference([errors], {"own": 1, "other": -1}, horizons=[horizon])
    low, high = (None if math.isnan(end) else math.exp(end) for end in found.interval())
    return {"ratio": math.exp(found.estimate), "pairs": len(runs), "blocks": found.blocks, "low": low, "high": high}


def _each(values: Mapping[Any, float]) -> str:
    return " / ".join(f"{value:.4f}" for value in values.values()) or DASH


def page(record: dict[str, Any]) -> str:
    sizes = record["sizes"]
    lines = title_of(record, "Converting the attention of a pretrained Chronos model")
    lines += [f"By `{record['command']}`, on {record['machine']['cpu']}; {packages_of(record)}.", ""]
    lines += [f"Horizon {sizes['horizon']}, all windows of the test parts.", ""]
    rows: list[Sequence[object]] = [
        (number, one["name"], f"`{one['sha256'][:12]}`") for number, one in record["weights"].items()
    ]
    lines += table(("number", "weights", "sha256"), rows)
    if errors := record["output_errors"]:
        lines += ["## Outputs of the attentions", "", "Relative error of what each converted attention makes of the"]
        lines[-1] += " original's own inputs, over contexts of the test parts, mean of data sets (and of layers)."
        rows = []
        for model, one in errors.items():
            by_layer = [f"{error:.4f}" for error in one["by_layer"].values()]
            rows.append((CONVERTED[model], f"{one['mean']:.4f}", _each(one["by_seed"]), *by_layer))
        lines += ["", *table(("model", "mean", "by seed", *next(iter(errors.values()))["by_layer"]), rows)]
    if found := record["fine_tuned"]["rows"]:
        rows = []
        for row in found:
            interval = DASH if row.get("low") is None else f"{row['low']:.4f} to {row['high']:.4f}"
            scores = (f"{row[name]:.4f}" if name in row else DASH for name in ("mase", "wql", "ratio"))
            names = row["data"], FINE_TUNED[row["model"]], row["seeds"]
            rows.append((*names, *scores, interval, _each(row.get("by_seed", {}))))
        text = (
            f"Swapped attentions are calibrated in {sizes['calibrate']} steps; then all are trained in the same way, "
            f"in {sizes['fine_tuning']} steps. The ratio is that of MASE to the original's, with its interval of 95 % "
            "over blocks of time and pairs of seeds."
        )
        head = ("data", "model", "seeds", "MASE", "WQL", "ratio", "interval", "by seed")
        lines += ["## After calibration and fine-tuning", "", text, "", *table(head, rows)]
        for model, one in record["fine_tuned"]["means"].items():
            lines += [f"- {FINE_TUNED[model]}: {one['ratio']:.4f}, mean of {one['data']} data sets."]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    parser = new_parser(__doc__, RESULTS / "chronos", toy="toy sizes")
    parser.add_argument("--weights", nargs="+", required=True, metavar="FOLDER", help="of Chronos models")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], help="to run; all are reported")
    parser.add_argument("--data", nargs="+", help="public data sets, by default " + ", ".join(Sizes.data))
    parser.add_argument("--runs", type=Path, help="folder of records, by default runs/chronos_conversion")
    options = parse(parser)
    toy, sizes = options.dry_run, TOY if options.dry_run else Sizes()
    sizes, weights = replace(sizes, data=tuple(options.data or sizes.data)), options.weights
    folder = options.runs or (options.output / "runs" if toy else Path("runs") / "chronos_conversion")
    try:
        hashes = [digest(one) for one in weights]
        kept, plan = Kept(folder, hashes, sizes), planned(weights, sizes, options.parts)
        for number, (key, make) in enumerate(plan.items(), 1):
            if kept.get(key) is None:
                began = time.perf_counter()
                kept.put(key, make())
                spent = time.perf_counter() - began
                print(f"{number} of {len(plan)}: {kept.file(key).stem}, {spent:.0f} s", flush=True)
    except UserError as error:
        parser.error(str(error))
    records = {key: found for key in planned(weights, sizes, PARTS) if (found := kept.get(key)) is not None}
    data = sizes.data
    record = {
        **about("lightning", "transformers", "chronos-forecasting", "numpy"),
        "dry_run": toy,
        "weights": {
            number: {"name": Path(one).name, "sha256": code}
            for number, (one, code) in enumerate(zip(weights, hashes, strict=True), 1)
        },
        "sizes": asdict(sizes),
        "output_errors": output_errors(records, data),
        "fine_tuned": fine_tuned_rows(records, data, sizes.horizon),
    }
    write_record(options.output / "conversion.json", record, page(record))
    print(page(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
