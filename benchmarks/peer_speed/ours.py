"""A training of ours that takes turns: a script, which is given a description of it as JSON."""

from __future__ import annotations

import gc
import json
import sys

import sklearn.preprocessing  # noqa: F401  else its memory, as it is imported to scale data, would be the training's
import torch
from lightning.pytorch.callbacks import Callback
from turns import answers, held_bytes, most_bytes, reset_most, say, turns

from tsattn.data import PublicDataModule
from tsattn.experiments import Experiment
from tsattn.predictors import build_predictor
from tsattn.training import TrainerOptions, Training


def main() -> None:
    """Train as the description says."""
    lines = answers()
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    experiment = Experiment.of(
        {
            "seed_everything": asked["seed"],
            "data": {"class_path": "PublicDataModule", "init_args": asked["data"]},
            "model": {"backbone": asked["ours"], "learning_rate": asked["learning_rate"]},
            "trainer": {
                "max_steps": asked["steps"],
                "val_check_interval": asked["interval"] or asked["steps"] + 1,
                "accelerator": "cpu",
                "enable_progress_bar": False,
            },
        }
    )
    data, trainer = experiment.made()
    assert isinstance(data, PublicDataModule)
    data.prepare_data()
    gc.collect()
    reset_most()
    before = held_bytes()
    data.setup("fit")
    if not asked["interval"]:
        data.parts = ("train",)
    options = {name: value for name, value in experiment.model.items() if name != "backbone"}
    callback = turns(Callback, lines, "val_mse_scaled")
    training = Training(
        TrainerOptions.of(trainer), options, seed=asked["seed"], callbacks=[callback], say=lambda line: None
    )
    predictor = build_predictor(experiment.model["backbone"])
    assert data.task is not None
    predictor.build(data.task, empty=True)
    predictor.fit(data, training)
    backbone = predictor.backbone
    say(
        lines,
        end=True,
        memory=most_bytes() - before,
        parameters=predictor.num_parameters,
        tokens=backbone.patches.count if hasattr(backbone, "patches") else None,
        versions={"torch": torch.__version__},
    )


if __name__ == "__main__":
    main()
