"""Training `etth1_mlr_paper.yaml` on a GPU with each attention: windows a second, memory, seconds in all.

    python benchmarks/gpu_training.py

Each run is the command `tsattn fit` in a process of its own, in which nothing but the attention and what is
named as its setting differs; it is timed from start to end, test included. Settings: float32; bf16 (the default on
Hopper); bf16 under `torch.compile`; the same with CUDA graphs; bf16 with batches sent from the host instead of series
in the memory of the GPU. A run whose record lies in the output folder, by the same command on the same GPU with the
same torch, is not made again, so that the benchmark can be stopped and started anew.

A setting must not buy speed with error: a run whose lowest validation error is not within 5 % of that of float32 fails
the command. Writes `gpu_training.csv` and `gpu_training.json` (commands, hardware, versions).
`--accelerator cpu --max-steps 4` tries all of it where there is no GPU; such figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from measuring import new_parser, this_command, write_record

CONFIG = Path(__file__).parents[1] / "configs" / "etth1_mlr_paper.yaml"
KINDS = ("standard", "swa", "global_swa", "btt", "bilinear_mlr", "mlbtc", "mlr")
MOST_ERROR = 1.05  # of the validation error in float32


BF16 = "--trainer.precision=bf16-mixed"
SETTINGS = {  # options of `fit`
    "float32": ["--trainer.precision=32-true"],
    "bf16": [BF16],
    "bf16 compiled": [BF16, "--model.compile_mode=default"],
    "bf16 graphs": [BF16, "--model.compile_mode=reduce-overhead"],
    "bf16 from host": [BF16, "--data.resident_gb=0"],
}
BASE, *_ = SETTINGS
OF_CUDA = ("bf16 graphs", "bf16 from host")  # mean nothing on a CPU


def recorded(folder: Path, kind: str, setting: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the record of a `fit`: the one in the folder if it is of this command on this machine, else a new one."""
    words = ["fit", "--config", str(options.config), f"--trainer.accelerator={options.accelerator}", *SETTINGS[setting]]
    words += [f"--attention={kind}"] if kind != "mlr" else []  # the configuration's own
    if (most := options.max_steps) is not None:
        words += [f"--trainer.max_steps={most}", f"--trainer.val_check_interval={most}"]
    about = {
        "command": " ".join(["tsattn", *words]).replace(str(options.config), options.config.name),
        "gpu": torch.cuda.get_device_name() if options.accelerator == "gpu" else None,
        "torch": torch.__version__,
    }
    file = folder / f"{kind} {setting}.json".replace(" ", "_")
    if file.exists():
        known: dict[str, Any] = json.loads(file.read_text())
        if about.items() <= known.items():
            return known
    with tempfile.TemporaryDirectory() as place:
        run, started = Path(place) / "run", time.perf_counter()
        command = [sys.executable, "-m", "tsattn", *words, "--run", str(run)]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - started
        if done.returncode:
            sys.exit(f"{kind}, {setting}: fit ended with exit code {done.returncode}\n{done.stderr[-3000:]}")
        metrics, versions = (json.loads((run / f"{name}.json").read_text()) for name in ("metrics", "versions"))
    record = {"attention": kind, "setting": setting, **metrics["training"], "seconds_in_all": round(seconds, 1)}
    record |= {name: metrics[name] for name in ("validation_error", "parameters")} | about
    record["versions"] = {name: value for name, value in versions.items() if name != "command"}
    write_record(file, record)
    return record


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--config", type=Path, default=CONFIG, help="what is trained; etth1_mlr_paper.yaml")
    parser.add_argument("--attention", nargs="+", choices=KINDS, default=KINDS, help="those to train with; all")
    names = [*SETTINGS]
    parser.add_argument("--setting", nargs="+", choices=names, default=names, help="float32 is always run; all")
    parser.add_argument("--accelerator", choices=("gpu", "cpu"), default="gpu", help="cpu: to try this out")
    parser.add_argument("--max-steps", type=int, help="instead of the configuration's, to try this out")
    options = parser.parse_args()
    is_gpu = options.accelerator == "gpu"
    if is_gpu and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --accelerator cpu --max-steps 4 tries the command out")
    settings = [one for one in names if one in (BASE, *options.setting) and (is_gpu or one not in OF_CUDA)]
    rows: list[dict[str, Any]] = []
    met, records = True, options.output / "gpu_training_runs"
    for kind in options.attention:
        errors = {}
        for setting in settings:
            row = recorded(records, kind, setting, options)
            rows.append({**row, "device": row["versions"]["device"]})
            errors[setting] = row["validation_error"]
            agrees = errors[setting] <= MOST_ERROR * errors[BASE]
            met &= agrees
            memory = row["peak_memory_bytes"]
            print(
                f"{kind:13} {setting:15} {row['windows_per_second']:9,.0f} windows/s, "
                f"{'' if memory is None else f'{memory / 2**20:,.0f} MiB, '}{row['seconds_in_all']:.0f} s, "
                f"validation MSE {row['validation_error']:.4f}{'' if agrees else '  NOT within 5 % of float32'}",
                flush=True,
            )
    table = pd.DataFrame(rows).drop(columns=["versions", "command", "gpu", "torch"])
    table.to_csv(options.output / "gpu_training.csv", index=False)
    about = {"command": this_command(), "cores": os.cpu_count(), "versions": rows[0]["versions"]}
    commands = [row["command"] for row in rows]
    write_record(options.output / "gpu_training.json", {**about, "commands": commands})
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
