"""Small models of chronos-forecasting with random weights, which ours are compared with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

chronos_bolt = pytest.importorskip("chronos.chronos_bolt", reason="chronos-forecasting is not installed: extra chronos")

LEVELS = (0.1, 0.3, 0.5, 0.8)


def theirs(**changes: Any) -> Any:
    """A small model of chronos-forecasting with random weights, none of which is left near zero."""
    from transformers import T5Config

    sizes = {"context_length": 48, "prediction_length": 7, "input_patch_size": 4, "input_patch_stride": 4}
    chronos = {**sizes, "quantiles": [*LEVELS], "use_reg_token": True, **changes.pop("chronos", {})}
    options = {
        **{"d_model": 24, "d_kv": 10, "num_heads": 3, "d_ff": 20, "num_layers": 3, "num_decoder_layers": 2},
        **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "decoder_start_token_id": 0},
        **{"pad_token_id": 0, "initializer_factor": 1.0},
        **changes,
    }
    torch.manual_seed(5)
    model = chronos_bolt.ChronosBoltModelForForecasting(T5Config(**options, chronos_config=chronos))
    for part in model.parameters():
        torch.nn.init.normal_(part, part.mean().item(), 0.3)
    return model.eval()
