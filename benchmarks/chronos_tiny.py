"""Pretrains, chooses and scores chronos-tiny, the pretrained model that comes with the package.

    export PYTHONPATH=benchmarks  # where the module of the data lies
    for seed in 1 2 3; do  # each resumes after a kill with `fit --resume runs/chronos_tiny/SEED`
        tsattn fit --config benchmarks/chronos_tiny.yaml --seed_everything $seed --run runs/chronos_tiny/$seed
    done
    python benchmarks/chronos_tiny.py export runs/chronos_tiny/1 runs/chronos_tiny/2 runs/chronos_tiny/3 \\
        --output tsattn/chronos/bolt/weights/chronos-tiny.safetensors
    python benchmarks/chronos_tiny.py score

`export` takes the run of the least validation error, on series of the pretraining alone. `score` forecasts the test
parts of public data sets from every origin without training on them, compares with the seasonal naive forecast, and
marks the sets whose training parts the model has seen; `--weights` takes several. It writes `chronos_tiny.json` and
`chronos_tiny.md`, and ends with 1 unless each of the weights beats the seasonal naive forecast by MASE and WQL on every
set that they have not seen. MASE, WQL and coverage are the means of the channels' own; the WQL of a forecast of points
is its WAPE.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import yaml
from measuring import RESULTS, about, packages_of, table, write_record

from tsattn.chronos.bolt.bolt_file import BoltModel, read_model, save_bolt, shipped_names
from tsattn.chronos.bolt.bolt_network import ChronosBolt
from tsattn.chronos.opening import NamedWeights
from tsattn.errors import UserError
from tsattn.experiments import Experiment, RunFolder
from tsattn.experiments.measuring import measured
from tsattn.experiments.result import fitted_in
from tsattn.predictors import build_predictor
from tsattn.predictors.network import NetworkPredictor
from tsattn.saved_folders import sha256
from tsattn.task import Output
from tsattn.training import Execution, TrainerOptions

DATA = ("ETTh1", "vic_electricity", "exchange_rate")
NAIVE, SHIPPED = "seasonal_naive", "chronos-tiny"
VERDICTS = {
    True: "All weights beat the seasonal naive forecast by MASE and WQL on every set that they have not seen.",
    False: "The seasonal naive forecast is **not** beaten by MASE and WQL everywhere.",
    None: "The models have seen the training part of each of these sets: nothing here is zero-shot.",
}


def export(runs: list[Path], output: Path, *, half: bool) -> None:
    errors = {run: json.loads((run / "metrics.json").read_text())["validation_error"] for run in runs}
    best = min(runs, key=lambda run: errors[run])
    for run in runs:
        print(f"{run}: validation error {errors[run]:.4f}{' *' if run == best else ''}")
    predictor = fitted_in(RunFolder(best), RunFolder(best).best).predictor
    if not isinstance(predictor, NetworkPredictor) or not isinstance(predictor.backbone, ChronosBolt):
        raise UserError(f"{best} trained {predictor.name}, and not a chronos_bolt")
    task, quantiles = predictor.task, predictor.output
    assert task is not None
    assert quantiles is not None
    data = yaml.safe_load((best / "config.yaml").read_text())["data"]["init_args"]
    seen = tuple(data.get("public", (data.get("name", task.data),))) if data.get("mixed", 1) else ()
    sizes = task.context_length, task.prediction_length
    model = BoltModel(predictor.description, *sizes, quantiles.quantiles, seen)
    output.parent.mkdir(parents=True, exist_ok=True)
    save_bolt(output, model, predictor.backbone.state_dict(), dtype=torch.float16 if half else torch.float32)
    print(f"{output}: {output.stat().st_size / 1e6:.1f} MB")


def scores(weights: str, name: str, horizon: int) -> list[dict[str, Any]]:
    """Return a row for the model, and one for the seasonal naive forecast."""
    model = read_model(NamedWeights.of(weights).file)
    sizes = {"context_length": model.context_length, "prediction_length": horizon}
    described = {"class_path": "PublicDataModule", "init_args": {"name": name, **sizes}}
    data, trainer = Experiment.of({"data": described, "trainer": {"accelerator": "cpu"}}).made()
    data.prepare_data()
    data.setup("fit")
    assert data.task is not None
    rows = []
    for kind, levels in (({"kind": "chronos", "weights": weights}, model.quantiles), ({"kind": NAIVE}, ())):
        predictor = build_predictor(kind)
        predictor.build(data.task, Output(levels))
        started = time.process_time()
        found = measured(predictor, data, "test", Execution(TrainerOptions.of(trainer, is_new=False))).scores()
        row = {"data": name, "seen": name in model.trained_on, "model": predictor.name}
        row |= {"windows": int(found["windows"]), "mase": found["mase_by_channel"]}
        row |= {"wql": found["wql_by_channel" if levels else "wape_by_channel"]}
        row |= {"coverage_80": found.get("coverage_80_by_channel"), "seconds": round(time.process_time() - started, 1)}
        rows.append(row)
    return rows


def score(weights: list[str], names: list[str], horizon: int, output: Path) -> bool:
    """Score each of the weights on each data set; return whether all beat the naive forecast on unseen sets."""
    rows, beaten = [], []
    for name in names:
        shown: list[dict[str, Any]] = []
        for one in weights:
            own, naive = scores(one, name, horizon)
            shown += [own] if shown else [naive, own]
            if not own["seen"]:
                beaten.append(own["mase"] < naive["mase"] and own["wql"] < naive["wql"])
        rows += shown
        found = ", ".join(f"{row['model']} {row['mase']:.3f}" for row in shown)
        print(f"MASE on {name}: {found}", flush=True)
    record = {
        **about("lightning", "numpy"),
        "weights": {Path(one).stem: sha256(NamedWeights.of(one).file) for one in weights},
        "shipped": sha256(NamedWeights.of(SHIPPED).file) if SHIPPED in shipped_names() else None,
        "horizon": horizon,
        "beats_naive": all(beaten) if beaten else None,
        "rows": rows,
    }
    write_record(output / "chronos_tiny.json", record, page(record))
    print(page(record))
    return all(beaten)


def page(record: dict[str, Any]) -> str:
    shipped = [name for name, digest in record["weights"].items() if digest == record["shipped"]]
    rows = []
    for row in record["rows"]:
        inside = "" if row["coverage_80"] is None else f"{100 * row['coverage_80']:.1f} %"
        names = row["data"] + " (seen)" * row["seen"], row["model"] + ", shipped" * (row["model"] in shipped)
        numbers = f"{row['windows']:,}", f"{row['mase']:.3f}", f"{row['wql']:.3f}", inside, f"{row['seconds']:.0f}"
        rows.append((*names, *numbers))
    head = ("data", "model", "windows", "MASE", "WQL", "inside the 80 % interval", "CPU seconds")
    text = (
        f"{VERDICTS[record['beats_naive']]} All windows of the test parts; means of the channels' own scores; the WQL "
        "of a forecast of points is its WAPE. *Seen*: the pretraining had the set's training part."
    )
    made = f"`{record['command']}`, {record['machine']['cpu']}, one thread; {packages_of(record)}.\n"
    title = f"# Forecasts of chronos-tiny, {record['horizon']} steps ahead, without training on these sets"
    return "\n".join([title, "", text, "", *table(head, rows), made])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    exported = commands.add_parser("export", help="weights of the best of several runs as one file")
    exported.add_argument("runs", type=Path, nargs="+", help="folders of finished runs")
    exported.add_argument("--output", type=Path, required=True, help="NAME.safetensors")
    exported.add_argument("--half", action="store_true", help="round the weights to float16")
    scored = commands.add_parser("score", help="forecast data sets without training on them")
    scored.add_argument("--weights", nargs="+", default=[SHIPPED], help="names of shipped models, or files")
    scored.add_argument("--data", nargs="+", default=[*DATA], help="public data sets")
    scored.add_argument("--horizon", type=int, default=48)
    scored.add_argument("--output", "--out", type=Path, default=RESULTS / "chronos")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "export":
        export(options.runs, options.output, half=options.half)
        return 0
    return 0 if score(options.weights, options.data, options.horizon, options.output) else 1


if __name__ == "__main__":
    sys.exit(main())
