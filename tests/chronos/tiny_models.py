"""Small random models of the three families, built from their configurations: nothing is downloaded."""

import atexit
import functools
import tempfile
from pathlib import Path
from typing import Any

import torch

from tsattn.chronos.families import FAMILIES as CLASSES

FAMILIES = ("t5", "bolt", "chronos2")

QUANTILES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
SIZES = {"d_model": 24, "d_kv": 8, "num_heads": 3, "d_ff": 32, "num_layers": 3, "dropout_rate": 0.1}
T5_SIZES = {
    **{"num_decoder_layers": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16},
    **{"pad_token_id": 0, "decoder_start_token_id": 0},
}
PATCHES = {
    **{"context_length": 64, "input_patch_size": 4, "input_patch_stride": 4},
    **{"quantiles": QUANTILES, "use_reg_token": True},
}
CHRONOS: dict[str, dict[str, Any]] = {
    "t5": {
        **{"tokenizer_class": "MeanScaleUniformBins", "tokenizer_kwargs": {"low_limit": -5.0, "high_limit": 5.0}},
        **{"context_length": 30, "prediction_length": 6, "n_tokens": 64, "n_special_tokens": 2, "pad_token_id": 0},
        **{"eos_token_id": 1, "use_eos_token": True, "model_type": "seq2seq", "num_samples": 3, "temperature": 1.0},
        **{"top_k": 50, "top_p": 1.0},
    },
    "bolt": {**PATCHES, "prediction_length": 8},
    "chronos2": {**PATCHES, "output_patch_size": 4, "use_arcsinh": True, "max_output_patches": 4},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "t5": {**T5_SIZES, "vocab_size": 64, "eos_token_id": 1, "architectures": ["T5ForConditionalGeneration"]},
    "bolt": {**T5_SIZES, "architectures": ["ChronosBoltModelForForecasting"]},
    "chronos2": {"initializer_factor": 1.0, "architectures": ["Chronos2Model"]},
}


def tiny_pipeline(family: str, *, seed: int = 0, implementation: str = "sdpa", **more: Any) -> Any:
    """A pipeline of a family, whose attention is far from uniform; `more` replaces entries of its chronos_config."""
    torch.manual_seed(seed)
    name = CLASSES[family].pipeline_path.rpartition(".")[2]
    config = {**SIZES, **CONFIGS[family], "chronos_config": {**CHRONOS[family], **more}, "chronos_pipeline_class": name}
    pipeline = CLASSES[family].unloaded(config, implementation)
    with torch.no_grad():
        for name, weight in pipeline.inner_model.named_parameters():
            if name.endswith((".q.weight", ".k.weight", "relative_attention_bias.weight")):
                weight.mul_(2)
            if family == "chronos2" and name.startswith("output_patch_embedding"):
                weight.mul_(0.1)  # what it gives is the arsinh of the forecast
    pipeline.inner_model.eval()
    return pipeline


def series(*lengths: int, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(length, generator=generator).cumsum(0) / 3 + torch.arange(length).mul(0.7).sin()
        for length in lengths
    ]


def forecast(pipeline: Any, contexts: list[torch.Tensor], prediction_length: int = 3, seed: int = 0) -> torch.Tensor:
    """Quantiles `(B, T, Q)` of the pipeline's own, with a seed for those that sample."""
    torch.manual_seed(seed)
    levels = [0.1, 0.5, 0.9]
    found, _ = pipeline.predict_quantiles(contexts, prediction_length=prediction_length, quantile_levels=levels)
    return torch.stack(list(found)).reshape(len(contexts), prediction_length, len(levels))


@functools.cache
def weights_of(family: str) -> str:
    """The folder of a tiny model, which is there as long as the tests run."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name) / f"tiny-{family}"
    model = tiny_pipeline(family).inner_model
    if family != "t5":  # levels that lie far apart do not cross, and so need not be put in order
        steps = {"bolt": 8, "chronos2": 4}[family]
        head = model.output_patch_embedding
        with torch.no_grad():
            for layer in (head.output_layer, head.residual_layer):
                layer.weight.mul_(0.1)
            apart = {"bolt": 80, "chronos2": 4}[family]  # Chronos-2 gives the arsinh
            head.output_layer.bias.copy_(apart * (torch.tensor(QUANTILES) - 0.5).repeat_interleave(steps))
    model.save_pretrained(path)
    return str(path)
