"""peft finds the weights of swapped attention by their names."""

from __future__ import annotations

import pytest
import torch

from tests.chronos.tiny_models import FAMILIES, forecast, series, tiny_pipeline
from tsattn.chronos import adapt

ATTENTION = r".*\.attention\.(projection\.(query|key)|value|output)"


@pytest.mark.parametrize("family", FAMILIES)
def test_adapters_train_and_merge(family: str) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = adapt(tiny_pipeline(family), {"kind": "mlr", "ranks": [4, 2, 2]}, convert="rotate")
    expected = forecast(adapted.pipeline, series(60))
    wrapped = get_peft_model(adapted.model, LoraConfig(r=2, target_modules=ATTENTION))
    wrapped.eval()
    # adapters begin at zero
    torch.testing.assert_close(forecast(adapted.pipeline, series(60)), expected, rtol=1e-4, atol=1e-4)
    trained = [name for name, weight in wrapped.named_parameters() if weight.requires_grad]
    assert len(trained) == 3 * 4 * 2
    with torch.no_grad():
        for weight in wrapped.parameters():
            if weight.requires_grad:
                weight.add_(0.1)
    changed = forecast(adapted.pipeline, series(60))
    assert not torch.allclose(changed, expected, rtol=1e-2, atol=1e-2)
    assert wrapped.merge_and_unload() is adapted.model
    torch.testing.assert_close(forecast(adapted.pipeline, series(60)), changed, rtol=1e-3, atol=1e-3)
