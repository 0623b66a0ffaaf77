"""Sample paths by pretrained weights: Chronos-T5's are its own, others hang together as their past forecasts did."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tests.chronos.saved_weights import weights_of
from tsattn import Forecaster
from tsattn.chronos import open_pipeline

ROWS, T, PATHS = 60, 5, 7


def waves() -> pd.DataFrame:
    stamps, parts = pd.date_range("2024", periods=ROWS, freq="D"), []
    for number, name in enumerate(["a", "b"]):
        noise = np.random.default_rng(number).standard_normal(ROWS)
        parts.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": 40 + noise.cumsum()}))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("quantiles", [(), (0.1, 0.5, 0.9)])
def test_paths_of_chronos_t5_are_those_of_its_pipeline(quantiles: tuple[float, ...]) -> None:
    frame, weights = waves(), weights_of("t5")
    description = {"kind": "chronos", "weights": weights}
    options = {"context_length": 30, "prediction_length": T, "accelerator": "cpu"}
    found = Forecaster(description, quantiles=quantiles, **options).sample(frame, num_samples=PATHS, seed=3)
    pipeline = open_pipeline(weights, dtype="float32")
    for name, own in frame.groupby("unique_id"):
        torch.manual_seed(3)
        context = torch.tensor(own["y"].to_numpy()[-30:], dtype=torch.float32)
        expected = pipeline.predict(context, prediction_length=T, num_samples=PATHS)[0]
        paths = found[found["unique_id"] == name]["y"].to_numpy().reshape(PATHS, T)
        np.testing.assert_allclose(paths, expected, rtol=1e-4, atol=1e-3)
