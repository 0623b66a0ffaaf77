"""A training that takes turns with another: a script for either environment, given `ours` or `theirs`, and JSON.

A line on the standard input lets one step go on; lines of JSON on what was the standard output have the CPU seconds of
a step, and the error of a validation. `theirs` runs with the python of the peers, whose environment has no tsattn: the
model is made by the worker that makes it for `fit` (`tsattn.peers.peer_worker`), at the place that the JSON names.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch


def say(lines: TextIO, **facts: Any) -> None:
    print(json.dumps(facts), file=lines, flush=True)


def turns(base: type[Any], lines: TextIO, metric: str) -> Any:
    """Make a callback of either Lightning that waits before each step; `metric` is the validation MSE."""

    class Turns(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self.training = self.validating = self.since = self.begun = 0.0

        def on_train_start(self, *others: Any) -> None:
            self.wait()

        def on_train_batch_end(self, trainer: Any, *others: Any) -> None:
            step = time.process_time() - self.since
            self.training += step
            say(lines, step=trainer.global_step, seconds=step)
            self.wait()

        def on_validation_start(self, *others: Any) -> None:
            self.begun = time.process_time()

        def on_validation_end(self, trainer: Any, *others: Any) -> None:
            spent = time.process_time() - self.begun
            self.validating += spent
            self.since += spent  # no part of the step that follows
            found = trainer.callback_metrics.get(metric)
            if found is not None:  # neuralforecast validates without validation rows, too, and finds nothing
                spent = {"training": self.training, "validating": self.validating}
                say(lines, at=trainer.global_step, mse=float(found), **spent)

        def wait(self) -> None:
            sys.stdin.readline()
            self.since = time.process_time()

    return Turns()


def memory(name: str) -> int:
    """Return the bytes of this process in RAM, ``VmRSS``, or the most of them, ``VmHWM``."""
    return 1024 * int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0])


def begin() -> int:
    """Reset the most bytes that were held, and return those that are."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def ours(lines: TextIO, asked: dict[str, Any]) -> dict[str, Any]:
    import sklearn.preprocessing  # noqa: F401  else its memory, as it is imported to scale data, would be the training's
    from lightning.pytorch.callbacks import Callback

    from tsattn.experiments import Experiment
    from tsattn.predictors import build_predictor
    from tsattn.training import TrainerOptions, Training

    steps = {"max_steps": asked["steps"], "val_check_interval": asked["interval"] or asked["steps"] + 1}
    experiment = Experiment.of(
        {
            "seed_everything": asked["seed"],
            "data": {"class_path": "PublicDataModule", "init_args": asked["data"]},
            "model": {"backbone": asked["ours"], "learning_rate": asked["learning_rate"]},
            "trainer": {**steps, "accelerator": "cpu", "enable_progress_bar": False},
        }
    )
    data, trainer = experiment.data_module(), experiment.trainer_arguments()
    data.prepare_data()
    before = begin()
    data.setup("fit")
    if not asked["interval"]:
        data.parts = ("train",)
    options = experiment.training_options
    callbacks = [turns(Callback, lines, "val_mse_scaled")]
    how = {"seed": asked["seed"], "callbacks": callbacks, "say": lambda line: None}
    predictor = build_predictor(experiment.model["backbone"])
    predictor.build(data.task, empty=True)
    predictor.fit(data, Training(TrainerOptions.of(trainer), options, **how))
    patches = getattr(predictor.backbone, "patches", None)
    facts = {"parameters": predictor.num_parameters, "tokens": None if patches is None else patches.count}
    return {**facts, "memory": memory("VmHWM") - before, "versions": {"torch": torch.__version__}}


def theirs(lines: TextIO, asked: dict[str, Any]) -> dict[str, Any]:
    import neuralforecast
    import neuralforecast.models  # before memory is counted
    import numpy as np
    import pandas as pd
    from neuralforecast.tsdataset import TimeSeriesDataset
    from pytorch_lightning.callbacks import Callback

    worker = runpy.run_path(asked["worker"])
    before = begin()
    table = pd.read_parquet(asked["table"]).rename(columns={"observed": "available_mask"})
    table["available_mask"] = table["available_mask"].astype(np.float32)
    dataset = TimeSeriesDataset.from_df(table)[0]
    del table
    model = worker["make_model"](asked["request"])
    model.trainer_kwargs["callbacks"] = [turns(Callback, lines, "ptl/val_loss")]
    model.fit(dataset, val_size=asked["val_rows"] if asked["interval"] else 0)
    tokens = getattr(getattr(getattr(model, "model", None), "backbone", None), "patch_num", None)
    count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    versions = {"torch": torch.__version__, "neuralforecast": neuralforecast.__version__}
    return {"parameters": count, "tokens": tokens, "memory": memory("VmHWM") - before, "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=("ours", "theirs"))
    parser.add_argument("asked", type=json.loads, help="JSON, as benchmarks/peers.py gives it")
    options = parser.parse_args()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to the standard error
    torch.set_num_threads(1)
    say(lines, end=True, **(ours if options.side == "ours" else theirs)(lines, options.asked))


if __name__ == "__main__":
    main()
