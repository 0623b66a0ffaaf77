"""What choosing the best weights costs: `Forecaster`'s training with its validation, over the training alone.

    python benchmarks/validation.py

Trains the default model on synthetic series, once with the validation that is chosen by default and once without any,
in turns; medians of seconds of the processor are reported, which other programs on the machine change little. Reading
the frame is not part of either. Writes `validation.json` (with hardware and versions) into the output folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsattn.data import Panel, PanelDataModule, panel_from_frame
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.experiments import Experiment
from tsattn.training import ForecastingModule, TrainerOptions, Training
from tsattn.training.train import train

SERIES, ROWS = 2000, 1000
QUANTILES = (0.1, 0.5, 0.9)
AT_MOST = 1.3  # times the training alone
CASES = {"20 steps": (96, 24, 20), "20 steps, a long context": (336, 96, 20), "200 steps": (96, 24, 200)}


def synthetic() -> Panel:
    """Random walks with a daily wave."""
    rng, hours = np.random.default_rng(0), np.arange(ROWS)
    values = rng.standard_normal((SERIES, ROWS)).cumsum(1) + 10 * np.sin(2 * np.pi * hours / 24)
    stamps = np.tile(pd.date_range("2024-01-01", periods=ROWS, freq="h"), SERIES)
    frame = pd.DataFrame({"unique_id": np.arange(SERIES).repeat(ROWS), "ds": stamps, "y": values.ravel()})
    return panel_from_frame(frame, source="the series")


def seconds(panel: Panel, case: tuple[int, int, int], *, validates: bool) -> float:
    context_length, prediction_length, steps = case
    sizes = {"context_length": context_length, "prediction_length": prediction_length}
    experiment = Experiment.of(
        {
            "data": {"class_path": "PanelDataModule", "init_args": sizes},
            "model": {"backbone": DEFAULT_BACKBONE, "quantiles": list(QUANTILES)},
            "trainer": {"max_steps": steps, "accelerator": "cpu"},
        }
    )
    data, arguments = experiment.made()
    assert isinstance(data, PanelDataModule)
    data.give(panel)
    data.setup("fit")
    if not validates:
        data.parts = ("train",)
    torch.manual_seed(1)
    model = ForecastingModule(**experiment.model)
    model.build(data.task, data.scaler)
    started = time.process_time()
    train(model, data, Training(TrainerOptions.of(arguments), {}))
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of which medians are taken")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    logging.getLogger("tsattn").setLevel(logging.ERROR)  # that there is no validation is meant
    torch.set_num_threads(1)
    panel, rows, met = synthetic(), {}, True
    for name, case in CASES.items():
        taken: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(options.rounds + 1):  # the first warms up
            for validates in (True, False):
                took = seconds(panel, case, validates=validates)
                if turn:
                    taken[validates].append(took)
        both, alone = (statistics.median(taken[validates]) for validates in (True, False))
        row: dict[str, Any] = dict(zip(("context_length", "prediction_length", "steps"), case, strict=True))
        rows[name] = {**row, "seconds": both, "training_alone": alone, "times": both / alone, "at_most": AT_MOST}
        print(f"{name}: {both:.2f} s, {both / alone:.2f} times the training alone (at most {AT_MOST})")
        met &= both <= AT_MOST * alone
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "threads": 1}
    versions = {name: version(name) for name in ("torch", "lightning", "numpy", "tsattn")}
    about = {"command": "python benchmarks/validation.py", "seed": 0, "machine": machine, "versions": versions}
    report = {**about, "series": SERIES, "rows": ROWS, **rows}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "validation.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
