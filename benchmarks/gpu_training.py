"""Training `etth1_mlr_paper.yaml` on a GPU with each attention: windows a second, memory, utilisation, seconds in all.

    python benchmarks/gpu_training.py

Each run is the command `tsattn fit` in a process of its own, in which nothing but the attention and what is
named as its setting differs; it is timed from start to end, test included. Settings: float32; bf16 (the default on
Hopper); bf16 under `torch.compile`; the same with CUDA graphs; bf16 with batches sent from the host instead of series
in the memory of the GPU. A run whose record lies in the output folder, by the same command on the same GPU with the
same torch, is not made again, so that the benchmark can be stopped and started anew.

Utilisation is that of model flops (Chowdhery et al., *PaLM*, 2022): the flops of the forward pass, times three for the
backward pass, for the windows of a second, over what a large matrix product of the same precision reaches on the same
device. The flops are those that the CPU implementation executes (for some kinds masked pairs too), the same in each
setting.

A setting must not buy speed with error: a run whose lowest validation error is not within 5 % of that of float32 fails
the command. Writes `gpu_training.csv`, `gpu_training.json` (commands, hardware, versions) and `gpu_training.png`.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import yaml

import tsattn.data
from tsattn.ops import executed_flops
from tsattn.training import ForecastingModule

CONFIG = Path(__file__).parents[1] / "configs" / "etth1_mlr_paper.yaml"
KINDS = ("standard", "swa", "global_swa", "btt", "bilinear_mlr", "mlbtc", "mlr")
MOST_ERROR = 1.05  # of the validation error in float32


@dataclass(frozen=True)
class Setting:
    """How a training is run.

    Attributes:
        name: in the table.
        options: of `fit`.
        dtype: of its matrix products.
        needs_cuda: whether it means nothing on a CPU.
    """

    name: str
    options: tuple[str, ...]
    dtype: torch.dtype
    needs_cuda: bool = False


BF16 = "--trainer.precision=bf16-mixed"
SETTINGS = (
    Setting("float32", ("--trainer.precision=32-true",), torch.float32),
    Setting("bf16", (BF16,), torch.bfloat16),
    Setting("bf16 compiled", (BF16, "--model.compile_mode=default"), torch.bfloat16),
    Setting("bf16 graphs", (BF16, "--model.compile_mode=reduce-overhead"), torch.bfloat16, needs_cuda=True),
    Setting("bf16 from host", (BF16, "--data.resident_gb=0"), torch.bfloat16, needs_cuda=True),
)


def words_of(kind: str, setting: Setting, options: argparse.Namespace) -> list[str]:
    """The words of a `fit`."""
    words = ["fit", "--config", str(options.config), f"--trainer.accelerator={options.accelerator}", *setting.options]
    if kind != "mlr":  # the configuration's own
        words.append(f"--attention={kind}")
    if options.max_steps is not None:
        words += [f"--trainer.max_steps={options.max_steps}", f"--trainer.val_check_interval={options.max_steps}"]
    return words


def recorded(file: Path, kind: str, setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """The record of a `fit`: the one in the file if it is of this command on this machine, else that of a new one."""
    words = words_of(kind, setting, options)
    about = {
        "command": " ".join(["tsattn", *words]).replace(str(options.config), options.config.name),
        "gpu": torch.cuda.get_device_name() if options.accelerator == "gpu" else None,
        "torch": torch.__version__,
    }
    if file.exists():
        record: dict[str, Any] = json.loads(file.read_text())
        if {name: record.get(name) for name in about} == about:
            return record
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "tsattn", *words, "--run", str(run)], capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
        if done.returncode:
            sys.exit(f"{kind}, {setting.name}: fit ended with exit code {done.returncode}\n{done.stderr[-3000:]}")
        metrics = json.loads((run / "metrics.json").read_text())
        versions = json.loads((run / "versions.json").read_text())
    record = {
        "attention": kind,
        "setting": setting.name,
        **metrics["training"],
        "seconds_in_all": round(seconds, 1),
        "validation_error": metrics["validation_error"],
        "parameters": metrics["parameters"],
        **about,
        "versions": {name: value for name, value in versions.items() if name != "command"},
    }
    file.write_text(json.dumps(record, indent=2) + "\n")
    return record


def flops_of_training(kind: str, config_file: Path) -> int:
    """Model flops of one window: of the forward pass, and twice as many of the backward pass."""
    config = yaml.safe_load(config_file.read_text())
    data = getattr(tsattn.data, config["data"]["class_path"])(**config["data"]["init_args"])
    data.prepare_data()
    data.setup("fit")
    backbone = config["model"]["backbone"]
    if kind != "mlr":
        backbone["attention"] = kind
    model = ForecastingModule(backbone)
    assert data.task is not None
    assert data.scaler is not None
    model.build(data.task, data.scaler)
    model.eval()
    window = data.windows("train").__getitems__([0])
    with torch.no_grad():
        return 3 * executed_flops(lambda: model(window))


def flops_a_second(dtype: torch.dtype, device: str) -> float:
    """What a large matrix product reaches."""
    size = 8192 if device == "cuda" else 512
    a, b = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    taken = []
    for _ in range(20):
        wait()
        started = time.perf_counter()
        a @ b
        wait()
        taken.append(time.perf_counter() - started)
    return 2 * size**3 / min(taken)


def draw(table: pd.DataFrame, path: Path, title: str) -> None:
    """Windows a second, a group of bars for each attention."""
    rates = table.pivot_table("windows_per_second", "attention", "setting")
    rates = rates.loc[[kind for kind in KINDS if kind in rates.index], [s.name for s in SETTINGS if s.name in rates]]
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    places = np.arange(len(rates))
    width = 0.8 / rates.shape[1]
    for number, setting in enumerate(rates):
        axes.bar(places + (number - (rates.shape[1] - 1) / 2) * width, rates[setting], width, label=setting)
    axes.set_xticks(places, rates.index)
    axes.set_ylabel("windows per second")
    axes.set_title(f"Training {title} on {table.device.iloc[0]}")
    axes.legend(frameon=False, ncols=rates.shape[1], loc="upper center", bbox_to_anchor=(0.5, -0.08))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder to write into")
    parser.add_argument("--config", type=Path, default=CONFIG, help="what is trained; etth1_mlr_paper.yaml")
    parser.add_argument("--attention", nargs="+", choices=KINDS, default=KINDS, help="those to train with; all")
    parser.add_argument(
        "--setting", nargs="+", choices=[s.name for s in SETTINGS], default=None, help="float32 is always run; all"
    )
    parser.add_argument("--accelerator", choices=("gpu", "cpu"), default="gpu", help="cpu: to try this out")
    parser.add_argument("--max-steps", type=int, default=None, help="instead of the configuration's, to try this out")
    options = parser.parse_args()
    device = {"gpu": "cuda", "cpu": "cpu"}[options.accelerator]
    if device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --accelerator cpu --max-steps 4 tries the command out")
    asked = [s for s in SETTINGS if options.setting is None or s.name in (SETTINGS[0].name, *options.setting)]
    settings = [setting for setting in asked if device == "cuda" or not setting.needs_cuda]
    records = options.out / "gpu_training_runs"
    records.mkdir(parents=True, exist_ok=True)
    peak = {dtype: flops_a_second(dtype, device) for dtype in dict.fromkeys(s.dtype for s in settings)}
    rows, met = [], True
    for kind in options.attention:
        flops, errors = flops_of_training(kind, options.config), {}
        for setting in settings:
            row = recorded(records / f"{kind} {setting.name}.json".replace(" ", "_"), kind, setting, options)
            errors[setting.name] = row["validation_error"]
            row["model_gflops_a_window"] = flops / 1e9
            row["utilisation"] = flops * row["windows_per_second"] / peak[setting.dtype]
            row["device"] = row["versions"]["device"]
            rows.append(row)
            agrees = errors[setting.name] <= MOST_ERROR * errors[SETTINGS[0].name]
            met &= agrees
            memory = row["peak_memory_bytes"]
            print(
                f"{kind:13} {setting.name:15} {row['windows_per_second']:9,.0f} windows/s, "
                f"{'' if memory is None else f'{memory / 2**20:,.0f} MiB, '}{100 * row['utilisation']:.1f} % of "
                f"{peak[setting.dtype] / 1e12:,.1f} TFLOP/s, {row['seconds_in_all']:.0f} s, validation MSE "
                f"{row['validation_error']:.4f}{'' if agrees else '  NOT within 5 % of float32'}",
                flush=True,
            )
    table = pd.DataFrame(rows)
    table.drop(columns=["versions", "command", "gpu", "torch"]).to_csv(options.out / "gpu_training.csv", index=False)
    draw(table, options.out / "gpu_training.png", options.config.stem)
    about = {
        "command": " ".join(["python", f"benchmarks/{Path(__file__).name}", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "versions": rows[0]["versions"],
        "matrix_product_tflops": {str(dtype).removeprefix("torch."): rate / 1e12 for dtype, rate in peak.items()},
        "commands": [row["command"] for row in rows],
    }
    (options.out / "gpu_training.json").write_text(json.dumps(about, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
