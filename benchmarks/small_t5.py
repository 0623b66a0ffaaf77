"""Small Chronos models: random ones for dry runs and times, and the pretrained one on which tests try conversions.

    python benchmarks/small_t5.py tests/chronos/small_t5

pretrains that Chronos-T5, as scores that were learned are not those of chance: some minutes of one core, on series from
Gaussian processes alone. Needs the extra `chronos`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tsattn import run
from tsattn.chronos.bolt.bolt_file import BoltModel, save_bolt
from tsattn.chronos.chronos_predictor import ChronosNetwork
from tsattn.chronos.families import FAMILIES
from tsattn.experiments import RunFolder
from tsattn.experiments.reopened import fitted_in

QUANTILES = tuple(number / 10 for number in range(1, 10))
BOLT: dict[str, Any] = {"kind": "chronos_bolt", "attention": {"kind": "standard", "scaling": 1.0}, "dropout": 0.0}
TINY = {"patch_len": 4, "d_model": 16, "num_heads": 2, "d_ff": 16}
SIZES = {"d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 64, "num_layers": 2}
CONTEXT, HORIZON, TOKENS = 96, 16, 128


def save_random(path: Path, seed: int) -> Path:
    """Write random weights of a toy Chronos-Bolt; a file that is there stays."""
    if not path.exists():
        model = BoltModel({**BOLT, **TINY}, 32, 8, QUANTILES)
        generator, state = torch.Generator().manual_seed(seed), {}
        for name, part in model.build().state_dict().items():
            inputs = max(1, part.shape[-1] if part.dim() > 1 else 1)
            drawn = torch.randn(part.shape, generator=generator) / inputs**0.5
            state[name] = 1 + 0.1 * drawn if name.endswith("norm.weight") else drawn
        path.parent.mkdir(parents=True, exist_ok=True)
        save_bolt(path, model, state)
    return path


def random_t5(
    sizes: dict[str, int], context_length: int, prediction_length: int, *, tokens: int = 4096, limit: float = 15.0
) -> Any:
    """Make the pipeline of a Chronos-T5 of given sizes: `d_model`, `d_kv`, `num_heads`, `d_ff`, `num_layers`.

    Its tokens are bins of values from `-limit` to `limit` times the mean absolute value of a context.
    """
    ends = {"pad_token_id": 0, "eos_token_id": 1}
    chronos = {
        **{"tokenizer_class": "MeanScaleUniformBins", "tokenizer_kwargs": {"low_limit": -limit, "high_limit": limit}},
        **{"context_length": context_length, "prediction_length": prediction_length, "n_tokens": tokens},
        **{"n_special_tokens": 2, "use_eos_token": True, "model_type": "seq2seq", **ends},
        **{"num_samples": 20, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    }
    config = {
        **{**sizes, "num_decoder_layers": sizes["num_layers"], "vocab_size": tokens, "dropout_rate": 0.0},
        **{"decoder_start_token_id": 0, "is_encoder_decoder": True, **ends, "chronos_config": chronos},
        **{"chronos_pipeline_class": "ChronosPipeline", "architectures": ["T5ForConditionalGeneration"]},
    }
    torch.manual_seed(0)
    pipeline = FAMILIES["t5"].unloaded(config, "sdpa")
    pipeline.inner_model.eval()
    return pipeline


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
        backbone = {"kind": "chronos", "weights": str(start), "trained": "all", "num_samples": 20}
        experiment = {
            "seed_everything": 1,
            "data": {"class_path": "pretraining_data.PretrainingDataModule", "init_args": {**series, **sizes}},
            "model": {"backbone": backbone, "learning_rate": 0.002},
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
