"""Chronos models that nobody has trained, where times or a dry run alone are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tsattn.chronos.bolt.bolt_file import BoltModel, save_bolt
from tsattn.chronos.families import FAMILIES

__all__ = ["random_t5", "save_random"]

QUANTILES = tuple(number / 10 for number in range(1, 10))
UNSCALED = {"kind": "standard", "scaling": 1.0}
TINY: dict[str, Any] = {"patch_len": 4, "d_model": 16, "num_heads": 2, "d_ff": 16}


def save_random(path: Path, seed: int) -> Path:
    """A file of random weights of a toy Chronos-Bolt; what is there stays."""
    if path.exists():
        return path
    described = {"kind": "chronos_bolt", "attention": UNSCALED, "dropout": 0.0, **TINY}
    model = BoltModel(described, 32, 8, QUANTILES)
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, part in model.build().state_dict().items():
        drawn = torch.randn(part.shape, generator=generator) / max(1, part.shape[-1] if part.dim() > 1 else 1) ** 0.5
        state[name] = 1 + 0.1 * drawn if name.endswith("norm.weight") else drawn
    path.parent.mkdir(parents=True, exist_ok=True)
    save_bolt(path, model, state)
    return path


def random_t5(
    sizes: dict[str, int], context_length: int, prediction_length: int, *, tokens: int = 4096, limit: float = 15.0
) -> Any:
    """The pipeline of a Chronos-T5 of given sizes: `d_model`, `d_kv`, `num_heads`, `d_ff`, `num_layers`.

    Its tokens are bins of values from `-limit` to `limit` times the mean absolute value of a context.
    """
    chronos = {
        "tokenizer_class": "MeanScaleUniformBins",
        "tokenizer_kwargs": {"low_limit": -limit, "high_limit": limit},
        "context_length": context_length,
        "prediction_length": prediction_length,
        "n_tokens": tokens,
        "n_special_tokens": 2,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "use_eos_token": True,
        "model_type": "seq2seq",
        "num_samples": 20,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }
    config = {
        **sizes,
        "vocab_size": tokens,
        "num_decoder_layers": sizes["num_layers"],
        "dropout_rate": 0.0,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "is_encoder_decoder": True,
        "chronos_config": chronos,
        "chronos_pipeline_class": "ChronosPipeline",
        "architectures": ["T5ForConditionalGeneration"],
    }
    torch.manual_seed(0)
    pipeline = FAMILIES["t5"].unloaded(config, "sdpa")
    pipeline.inner_model.eval()
    return pipeline
