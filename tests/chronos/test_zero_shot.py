"""Pretrained weights as they are: forecasts are the pipeline's own, whatever asks for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.chronos.tiny_models import FAMILIES, series, weights_of
from tests.toy_windows import toy_task, toy_windows
from tsattn import Forecaster, load
from tsattn.batch import Batch, WindowUnits
from tsattn.chronos import adapt, open_pipeline
from tsattn.errors import UserError
from tsattn.predictors import Predictor, build_predictor
from tsattn.predictors.attention_layers import attention_layers
from tsattn.task import Output

LEVELS = (0.1, 0.45, 0.5, 0.9)

families = pytest.mark.parametrize("family", FAMILIES)


def built(family: str, task: Any = None, levels: Sequence[float] = LEVELS, **arguments: Any) -> Predictor:
    predictor = build_predictor({"kind": "chronos", "weights": weights_of(family), **arguments})
    predictor.build(toy_task() if task is None else task, Output(tuple(levels)))
    return predictor.eval()


def own(family: str, contexts: Any, horizon: int, levels: tuple[float, ...] = LEVELS, seed: int = 1) -> Tensor:
    """The pipeline's forecasts `(B, horizon, Q)`, or `(B, C, horizon, Q)` of groups."""
    pipeline = open_pipeline(weights_of(family), dtype="float32")
    found = torch.stack(alone(pipeline, contexts, horizon, levels, seed))
    assert (found.diff(dim=-1) >= 0).all(), "nothing was to be put in order"
    return found[:, 0] if found.dim() == 4 and found.shape[1] == 1 else found


def alone(pipeline: Any, contexts: Any, horizon: int, levels: tuple[float, ...], seed: int = 1) -> list[Tensor]:
    """What a pipeline forecasts, of families that draw paths for each series by itself."""
    found = []
    draws = type(pipeline).__name__ == "ChronosPipeline"
    for some in [[one] for one in contexts] if draws else [contexts]:
        torch.manual_seed(seed)
        found += pipeline.predict_quantiles(some, prediction_length=horizon, quantile_levels=[*levels])[0]
    return found


def windows(contexts: list[Tensor], length: int, mean: float = 0.0, scale: float = 1.0) -> Batch:
    """As the data would give them: scaled, padded to one length, what is missing masked."""
    past = torch.full((len(contexts), length, 1), torch.nan, dtype=torch.float64)
    for row, one in enumerate(contexts):
        past[row, -min(len(one), length) :, 0] = one[-length:].double()
    units = WindowUnits(torch.full((len(past), 1), mean), torch.full((len(past), 1), scale))
    return Batch(((past - mean) / scale).nan_to_num(-7.0), past_observed=~past.isnan(), units=units)


@pytest.mark.parametrize(("family", "horizon"), [("t5", 3), ("bolt", 6), *((family, 19) for family in FAMILIES)])
@pytest.mark.filterwarnings("ignore:We recommend keeping prediction length")
def test_forecasts_are_the_pipelines_own(family: str, horizon: int) -> None:
    contexts = [40 + 5 * one for one in series(9, 20, 45, 90)]
    contexts[2][5:8] = torch.nan
    predictor = built(family, toy_task(90, horizon, 1))
    expected = own(family, contexts, horizon)
    found = predictor(windows(contexts, 90, mean=38.0, scale=4.0))[:, :, 0] * 4 + 38
    # of Chronos-2 19 steps on, the pipeline's own rounding at a level of 40
    torch.testing.assert_close(found.float(), expected, rtol=1e-6, atol=3e-6 * float(expected.abs().max()))
    assert (found.diff(dim=-1) >= 0).all()


def test_channels_and_covariates_of_a_series_are_one_group_of_chronos2() -> None:
    task = toy_task(30, 5, 3, covariates=True)
    batch = toy_windows(task, gaps=True, extra=34)
    predictor = built("chronos2", task)
    assert batch.past_observed is not None
    assert batch.past_covariates is not None
    assert batch.future_covariates is not None
    expected = []
    for row in range(len(batch) - 1):
        past = torch.where(batch.past_observed[row], batch.past[row], torch.nan).float().T
        known = {f"p{at}": one.float() for at, one in enumerate(batch.past_covariates[row].T)}
        ahead = {f"f{at}": one.float() for at, one in enumerate(batch.future_covariates[row].T)}
        one = {
            "target": past,
            "past_covariates": {**known, **{name: value[:64] for name, value in ahead.items()}},
            "future_covariates": {name: value[64:] for name, value in ahead.items()},
        }
        expected.append(own("chronos2", [one], 5)[0])
    found = predictor(batch)
    torch.testing.assert_close(found[:-1].transpose(1, 2).float(), torch.stack(expected), rtol=1e-5, atol=1e-5)
    assert found.isfinite().all(), "a window of which nothing was observed, too"
    for name in ("past_covariates", "future_covariates"):
        other = replace(batch, **{name: getattr(batch, name) + 1.5 * torch.randn(1, *getattr(batch, name).shape[1:])})
        assert not torch.allclose(predictor(other), found), name
    changed = batch.past.clone()
    changed[..., 2] += torch.randn(64)
    assert not torch.allclose(predictor(replace(batch, past=changed))[..., 0, :], found[..., 0, :]), "channels mix"


def test_series_of_other_groups_are_not_seen_by_chronos2() -> None:
    task = toy_task(30, 5, 3, covariates=True)
    batch = toy_windows(task, extra=34)
    predictor = built("chronos2", task, attention="standard", where="group")
    found = predictor(batch)
    other = replace(batch, past=torch.cat([batch.past[:1], 3 * batch.past[1:].flip(1)]))
    again = predictor(other)
    torch.testing.assert_close(again[0], found[0], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(again[1], found[1], rtol=1e-2)


@families
def test_what_is_left_unread_is_said(family: str, caplog: pytest.LogCaptureFixture, toy_frame: pd.DataFrame) -> None:
    frame = toy_frame.assign(rain=np.sin(np.arange(600)), unique_id="a").reset_index().rename(columns={"date": "ds"})
    described = {"kind": "chronos", "weights": weights_of(family)}
    forecaster = Forecaster(
        described, id_column="unique_id", time_column="ds", target="wave", past_covariates=["rain"], prediction_length=3
    )
    with caplog.at_level(logging.WARNING, "tsattn"):
        forecaster.fit(frame[["unique_id", "ds", "wave", "rain"]])
    said = [line for line in caplog.messages if "leaves covariates unread" in line]
    assert said == ([] if family == "chronos2" else [f"tiny-{family} leaves covariates unread: rain"])


def test_paths_of_t5_are_drawn_from_a_seed() -> None:
    batch = windows(series(40, 40), 40)
    first, same, other = (built("t5", toy_task(40, 5, 1), sampling_seed=seed) for seed in (1, 1, 2))
    state = torch.get_rng_state()
    found = first(batch)
    assert torch.equal(torch.get_rng_state(), state), "the generators of others go on as they were"
    torch.manual_seed(99)
    assert torch.equal(found, same(batch))
    assert not torch.equal(found, other(batch))
    many = built("t5", toy_task(40, 5, 1), num_samples=40)(batch)
    assert many.shape == found.shape
    assert not torch.equal(many, found)


def test_paths_of_t5_do_not_depend_on_other_series(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = [10 + one for one in series(40, 12, 33, 20, 40)]
    predictor = built("t5", toy_task(40, 15, 1))
    together = predictor(windows(contexts, 40))
    for number, one in enumerate(contexts):
        torch.testing.assert_close(predictor(windows([one], 40))[0], together[number], rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("tsattn.chronos.families.T5.most_rows", 2)
    torch.testing.assert_close(predictor(windows(contexts, 40)), together, rtol=1e-5, atol=1e-5)


@families
def test_swapped_without_a_fit_is_what_adapt_gives(family: str) -> None:
    contexts, kind = series(30, 60), {"kind": "mlr", "ranks": [4, 2, 2]}
    predictor = built(family, toy_task(60, 4, 1), attention=kind, convert="copy")
    assert predictor.name == f"tiny-{family}_mlr"
    adapted = adapt(weights_of(family), kind)
    expected = torch.stack(alone(adapted.pipeline, contexts, 4, LEVELS)).reshape(2, 4, 4)
    batch = windows(contexts, 70)
    torch.testing.assert_close(predictor(batch)[:, :, 0].float(), expected, rtol=1e-5, atol=1e-5)
    point = built(family, toy_task(60, 4, 1), (), attention=kind)
    assert torch.equal(point(batch), predictor(batch)[..., 2]), "a point forecast is the median"
    assert not torch.allclose(point(batch), built(family, toy_task(60, 4, 1), ())(batch))


@pytest.mark.parametrize("family", ["t5", "chronos2"])
def test_a_forecaster_forecasts_any_frame(family: str, toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"prediction_length": 4, "val_rows": 20, "test_rows": 40}
    forecaster = Forecaster({"kind": "chronos", "weights": weights_of(family)}, **sizes)
    with pytest.warns(UserWarning, match=rf"horizon 30 is longer than the \d+ steps of tiny-{family}: it goes on from"):
        assert forecaster.predict(toy_frame, horizon=30).notna().all(axis=None)
    forecaster.fit(toy_frame)
    forecaster.save(tmp_path / "model")
    pd.testing.assert_frame_equal(load(tmp_path / "model").predict(toy_frame), forecaster.predict(toy_frame))
    assert forecaster.evaluate(toy_frame, detail=True)[["MASE", "WQL"]].iloc[0].notna().all()


@families
def test_adapted_models_show_the_steps_that_they_look_at(family: str) -> None:
    described = {"context_length": 20, "levels": ()}
    batch = Batch(torch.randn(1, 20, 1), time=3600 * torch.arange(24)[None])
    layers = attention_layers(built(family, toy_task(20, 4, 1), attention="standard", **described), batch)
    last = pd.Timestamp(3600 * 19, unit="s")
    for layer in layers:
        np.testing.assert_allclose(layer.weights.sum(-1), 1, rtol=1e-5)
        stamps = [end for end in layer.keys if isinstance(end, pd.Timestamp)]
        assert stamps == sorted(stamps)
        assert last in stamps
        # of Chronos-2 patches of the horizon too
        assert (stamps[-1] > last) == (family == "chronos2")
    assert {layer.token for layer in layers} == {"step" if family == "t5" else "patch"}
    with pytest.raises(UserError, match=f"attention of tiny-{family} is that of its own library, .* --attention stand"):
        attention_layers(built(family, toy_task(20, 4, 1), **described), batch)


def test_sample_paths_of_t5_are_those_of_its_pipeline() -> None:
    stamps = pd.date_range("2024", periods=60, freq="D")
    rows = {name: 40 + np.random.default_rng(number).standard_normal(60).cumsum() for number, name in enumerate("ab")}
    frame = pd.concat(pd.DataFrame({"unique_id": name, "ds": stamps, "y": y}) for name, y in rows.items())
    options: Any = {"context_length": 30, "prediction_length": 5, "accelerator": "cpu", "quantiles": None}
    made = Forecaster({"kind": "chronos", "weights": weights_of("t5")}, **options)
    found = made.sample(frame, num_samples=7, seed=3)
    pipeline = open_pipeline(weights_of("t5"), dtype="float32")
    for name, y in rows.items():
        torch.manual_seed(3)
        expected = pipeline.predict(torch.tensor(y[-30:], dtype=torch.float32), prediction_length=5, num_samples=7)[0]
        paths = found[found["unique_id"] == name]["y"].to_numpy().reshape(7, 5)
        np.testing.assert_allclose(paths, expected, rtol=1e-4, atol=1e-3)
