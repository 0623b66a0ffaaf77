"""Pretrains the small Chronos-T5 on which the tests try conversions: scores that were learned are not those of chance.

    python benchmarks/small_t5.py tests/chronos/small_t5

Some minutes of one core, on series from Gaussian processes alone. Needs the extra `chronos`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from random_chronos import random_t5

from tsattn import run
from tsattn.chronos.chronos_predictor import ChronosNetwork
from tsattn.experiments import RunFolder
from tsattn.experiments.reopened import fitted_in

SIZES = {"d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 64, "num_layers": 2}
CONTEXT, HORIZON, TOKENS = 96, 16, 128


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder to write the model into")
    parser.add_argument("--steps", type=int, default=6000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        random_t5(SIZES, CONTEXT, HORIZON, tokens=TOKENS, limit=5.0).inner_model.save_pretrained(start)
        series = {"synthetic": 1000, "seasonal": 2000, "mixed": 0, "length": 512, "batch_size": 32}
        sizes = {"context_length": CONTEXT, "prediction_length": HORIZON, "val_windows": 256}
        experiment = {
            "seed_everything": 1,
            "data": {"class_path": "PretrainingDataModule", "init_args": {**series, **sizes}},
            "model": {
                "backbone": {"kind": "chronos", "weights": str(start), "trained": "all", "num_samples": 20},
                "learning_rate": 0.002,
            },
            "trainer": {"max_steps": options.steps, "accelerator": "cpu", "gradient_clip_val": 1.0},
        }
        run(experiment, Path(folder) / "run")
        network = fitted_in(RunFolder(Path(folder) / "run")).predictor.backbone
        assert isinstance(network, ChronosNetwork)
        assert network.model is not None
        network.model.save_pretrained(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
