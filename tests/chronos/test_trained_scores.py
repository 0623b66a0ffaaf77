"""What conversions keep of scores that were learned, of a small Chronos-T5 (`benchmarks/small_t5.py` made it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.chronos.tiny_models import forecast
from tsattn.chronos import adapt, open_pipeline
from tsattn.chronos.calibration import output_errors
from tsattn.data.pretraining import seasonal_series

FOLDER = Path(__file__).parent / "small_t5"
MLR = {"kind": "mlr", "ranks": [8, 4, 4]}


def drawn(seed: int, count: int = 24) -> list[torch.Tensor]:
    """Series of the kind that it was trained on."""
    return [*torch.from_numpy(seasonal_series(count, 96, seed=seed)).float()]


@pytest.fixture(scope="module")
def trained() -> Any:
    return open_pipeline(FOLDER, dtype="float32")


def error(adapted: Any) -> float:
    """Of the attention outputs, in the mean over layers, on series that nothing was learned from."""
    errors = output_errors(adapted, drawn(2))
    return float(errors.mean())


def test_it_has_learned(trained: Any) -> None:
    """Its median is nearer to the next steps of its own kind of series than the last value, and than the mean."""
    rows = torch.stack(drawn(3, 32))
    torch.manual_seed(0)
    quantiles, _ = trained.predict_quantiles(rows[:, :-16], prediction_length=16, quantile_levels=[0.5])
    own = (quantiles[..., 0] - rows[:, -16:]).abs().mean()
    naive = (rows[:, -17:-16] - rows[:, -16:]).abs().mean()
    assert own < 0.9 * naive
    assert own < 0.9 * rows[:, -16:].abs().mean()


def test_far_pairs_keep_more_of_what_was_learned_by_rotation(trained: Any) -> None:
    copied, rotated, learned = (
        adapt(trained, MLR, convert=convert, data=data)
        for convert, data in (("copy", None), ("rotate", None), ("rotate", drawn(1)))
    )
    assert error(learned) < 0.5 * error(copied)
    assert error(learned) <= error(rotated) < error(copied)


def test_calibration_brings_outputs_nearer(trained: Any) -> None:
    adapted = adapt(trained, {"kind": "swa", "window_size": 24})
    before = error(adapted)
    adapted.calibrate(drawn(1, 64), steps=60, seed=0)
    assert error(adapted) < 0.9 * before


@pytest.mark.parametrize(
    "attention", [{"kind": "bilinear_mlr", "ranks": [8, 4, 4]}, {"kind": "btt"}], ids=lambda one: one["kind"]
)
def test_projection_keeps_more_than_a_fresh_start(trained: Any, attention: Any) -> None:
    projected, fresh = (adapt(trained, attention, convert=convert) for convert in ("project", "fresh"))
    assert error(projected) < 0.6 * error(fresh)


def test_whole_attention_gives_the_same_forecast(trained: Any) -> None:
    windows = drawn(4, 3)
    expected = forecast(trained, windows)
    for attention in ({"kind": "swa", "window_size": 500}, {"kind": "mlr", "ranks": [16], "blocks": [1]}):
        assert torch.equal(forecast(adapt(trained, attention, "all").pipeline, windows), expected)
