"""Pretrained weights as they are: forecasts are the pipeline's own, with all that is missing or far from 0."""

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
from tsattn.chronos.chronos_predictor import ChronosNetwork
from tsattn.errors import UserError
from tsattn.forecaster.sample_paths import own_generator
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


@pytest.mark.parametrize("family", ["t5", "chronos2"])
def test_what_is_left_unread_is_said(family: str, caplog: pytest.LogCaptureFixture, toy_frame: pd.DataFrame) -> None:
    frame = toy_frame.assign(rain=np.sin(np.arange(600)), unique_id="a").reset_index().rename(columns={"date": "ds"})
    described = {"kind": "chronos", "weights": weights_of(family)}
    forecaster = Forecaster(
        described, id_column="unique_id", time_column="ds", target="wave", past_covariates=["rain"], prediction_length=3
    )
    with caplog.at_level(logging.WARNING, "tsattn"):
        forecaster.fit(frame[["unique_id", "ds", "wave", "rain"]])
    said = [line for line in caplog.messages if "does not use covariates" in line]
    assert said == ([] if family == "chronos2" else [f"tiny-{family} does not use covariates: rain"])


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


def test_a_forecaster_forecasts_any_frame(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"prediction_length": 4, "val_rows": 20, "test_rows": 40}
    forecaster = Forecaster({"kind": "chronos", "weights": weights_of("chronos2")}, **sizes)
    with pytest.warns(UserWarning, match=r"horizon 30 is longer than the \d+ steps of tiny-chronos2: it continues"):
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
    with pytest.raises(UserError, match=f"library of tiny-{family} does not return attention .* --attention stand"):
        attention_layers(built(family, toy_task(20, 4, 1), **described), batch)


def test_sample_paths_of_t5_are_those_of_its_pipeline_by_a_seed_for_each_series() -> None:
    stamps = pd.date_range("2024", periods=60, freq="D")
    rows = {name: 40 + np.random.default_rng(number).standard_normal(60).cumsum() for number, name in enumerate("ab")}
    rows["c"] = rows["a"]
    frame = pd.concat(pd.DataFrame({"unique_id": name, "ds": stamps, "y": y}) for name, y in rows.items())
    options: Any = {"context_length": 30, "prediction_length": 5, "accelerator": "cpu", "quantiles": None}
    made = Forecaster({"kind": "chronos", "weights": weights_of("t5")}, **options)
    found = made.sample(frame, num_samples=7, seed=3)
    pipeline = open_pipeline(weights_of("t5"), dtype="float32")
    for name, y in rows.items():
        torch.manual_seed(int(own_generator(3, name).integers(2**63)))
        expected = pipeline.predict(torch.tensor(y[-30:], dtype=torch.float32), prediction_length=5, num_samples=7)[0]
        paths = found[found["unique_id"] == name]["y"].to_numpy().reshape(7, 5)
        np.testing.assert_allclose(paths, expected, rtol=1e-4, atol=1e-3)
    equal, other = (found[found["unique_id"] == name]["y"].to_numpy() for name in "ac")
    assert (equal != other).mean() > 0.5, "series are independent"


THREE = (0.1, 0.5, 0.9)


def frame(rows: int, name: str, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng([seed, rows])
    dates = pd.date_range(end="2024-06-01", periods=rows, freq="D")
    y, x = 10 + rng.standard_normal(rows).cumsum(), 50 + rng.standard_normal(rows)
    return pd.DataFrame({"unique_id": name, "ds": dates, "y": y, "x": x})


def forecaster(**columns: Any) -> Forecaster:
    described = {"kind": "chronos", "weights": weights_of("chronos2")}
    return Forecaster(described, prediction_length=4, scaling="series", **columns)


def numbers(forecast: pd.DataFrame) -> Any:
    return forecast[["0.1", "0.5", "0.9"]].to_numpy()


def own_covariates(past: pd.DataFrame, future: pd.DataFrame | None = None) -> Any:
    given: dict[str, Any] = {"target": past.y.to_numpy(np.float32)}
    given["past_covariates"] = {"x": past.x.to_numpy(np.float32)}
    if future is not None:
        given["future_covariates"] = {"x": future.x.to_numpy(np.float32)}
    pipeline = open_pipeline(weights_of("chronos2"), dtype="float32")
    found, _ = pipeline.predict_quantiles([given], prediction_length=4, quantile_levels=[*THREE])
    return found[0][0].numpy()


def test_a_forecast_with_covariates_is_the_same_beside_longer_series() -> None:
    short, long = frame(16, "a"), frame(64, "b")
    both = pd.concat([short, long])
    both["y"] = both.y.where(both.ds <= "2024-05-28")
    found = forecaster(future_covariates=["x"]).predict(both)
    expected = own_covariates(short[:-4], short[-4:])
    np.testing.assert_allclose(numbers(found[found.unique_id == "a"]), expected, rtol=1e-5, atol=1e-4)


def test_missing_covariates_are_missing_for_the_model() -> None:
    past = frame(40, "a")
    past.loc[past.index[[*range(6), *range(30, 36)]], "x"] = np.nan
    found = numbers(forecaster(past_covariates=["x"]).predict(past))
    np.testing.assert_allclose(found, own_covariates(past), rtol=1e-5, atol=1e-4)
    assert np.abs(found - numbers(forecaster(past_covariates=["x"]).predict(past.ffill().bfill()))).max() > 1e-4


@pytest.mark.parametrize(("amplitude", "scaling"), [(1.0, "series"), (100.0, "global")])
def test_a_covariate_that_changes_ahead_alone_is_seen_in_original_units(amplitude: float, scaling: str) -> None:
    """As a promotion that begins now: the model divides by 1e-5, so that its answer depends on the unit."""
    past, future = frame(200, "a"), frame(4, "a")
    past["x"] = 7 + (np.arange(200) < 20).astype(float)
    future["ds"] = pd.date_range(past.ds.iloc[-1], periods=5, freq="D")[1:]
    future["x"] = 7 + amplitude * np.array([0.0, 1.0, 1.0, 0.0])
    described = {"kind": "chronos", "weights": weights_of("chronos2"), "context_length": 48}
    made = Forecaster(described, prediction_length=4, scaling=scaling, future_covariates=["x"])
    found = made.predict(pd.concat([past, future.assign(y=np.nan)]))
    expected = own_covariates(past[-48:], future)
    np.testing.assert_allclose(numbers(found), expected, rtol=1e-5, atol=1e-4)
    assert np.abs(expected - own_covariates(past[-48:], future.assign(x=7.0))).max() > 1e-2, "and it counts"


def test_a_fine_tuned_model_that_was_saved_reads_the_future_of_its_covariates(tmp_path: Path) -> None:
    past, future = frame(80, "a"), frame(4, "a")
    future["ds"] = pd.date_range(past.ds.iloc[-1], periods=5, freq="D")[1:]
    described = {"kind": "chronos", "weights": weights_of("chronos2"), "trained": "all"}
    sizes = {"context_length": 24, "prediction_length": 4, "max_steps": 1}
    made = Forecaster(described, future_covariates=["x"], accelerator="cpu", **sizes).fit(past)
    made.save(tmp_path / "model")
    expected, loaded = made.predict(future=future), load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.predict(future=future), expected)
    assert not loaded.predict(future=future.assign(x=7.0)).equals(expected)


def test_a_mixture_asks_for_no_future_of_covariates_that_its_members_leave_unread() -> None:
    members = [{"kind": "chronos", "weights": weights_of("bolt")}, "persistence"]
    mixture = Forecaster({"kind": "ensemble", "members": members}, prediction_length=4, future_covariates=["x"])
    assert mixture.predict(frame(80, "a"))["predictions"].notna().sum() == 4


def test_training_sees_missing_covariates_too() -> None:
    task = toy_task(24, 4, 1, covariates=True)
    network = ChronosNetwork(task, Output(THREE), weights=weights_of("chronos2"), trained="all").eval()
    past, target = torch.randn(2, 24, 1), torch.randn(2, 4, 1)
    known, ahead = torch.randn(2, 24, 2), torch.randn(2, 28, 2)
    seen, seen_ahead = torch.rand(2, 24, 2) > 0.3, torch.rand(2, 28, 2) > 0.3
    batch = Batch(past, target, past_covariates=known, future_covariates=ahead)
    batch = replace(batch, past_covariates_observed=seen, future_covariates_observed=seen_ahead)
    other = replace(batch, past_covariates=known.where(seen, 9.0), future_covariates=ahead.where(seen_ahead, 9.0))
    assert torch.equal(network.own_loss(batch), network.own_loss(other))
    assert not torch.equal(network.own_loss(batch), network.own_loss(replace(batch, past_covariates_observed=None)))


@families
def test_a_context_without_a_value_is_forecast_where_its_series_lies(family: str) -> None:
    """And not where numbers without a unit lie, whatever computes it."""
    found = []
    for mean, scale in ((0.0, 1.0), (1e4, 5.0)):
        predictor = built(family, toy_task(64, 4, 2), THREE)
        observed = torch.ones(3, 64, 2, dtype=torch.bool)
        observed[1] = False
        units = WindowUnits(torch.full((3, 2), mean), torch.full((3, 2), scale))
        torch.manual_seed(0)
        found.append(predictor(Batch(torch.randn(3, 64, 2), past_observed=observed, units=units)))
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_training_is_not_decided_by_contexts_that_never_change(family: str) -> None:
    """A sensor that stands still and then moves: its scale is that of rounding, and its loss would be astronomic."""
    torch.manual_seed(0)
    network = ChronosNetwork(toy_task(24, 4, 2), Output(THREE), weights=weights_of(family), trained="all").eval()
    past, target = torch.randn(2, 24, 2), torch.randn(2, 4, 2)
    past[0, :, 1] = 0.1 + past[0, 0, 1]
    usual = network.own_loss(Batch(torch.randn(2, 24, 2), target))
    assert network.own_loss(Batch(past, target)) < 10 * usual
    alone = past[:1, :, 1:].expand(2, -1, 2)
    assert network.own_loss(Batch(alone, target)).isfinite()


LEVEL = 1e8

without_level = pytest.mark.parametrize("family", ["bolt", "chronos2"])


def batch_at(level: float) -> Batch:
    """Windows whose values in original units have that level and a spread of about 1."""
    past = torch.stack(series(64, 64))[..., None]
    units = WindowUnits(torch.full((2, 1), level), torch.ones(2, 1))
    return Batch(past, torch.stack(series(4, 4))[..., None], units=units)


@without_level
def test_forecasts_do_not_lose_digits_at_a_high_level(family: str) -> None:
    predictor = built(family, toy_task(64, 4, 1), THREE, attention="standard" if family == "bolt" else None)
    torch.testing.assert_close(predictor(batch_at(LEVEL)), predictor(batch_at(0.0)), rtol=1e-5, atol=1e-5)


@without_level
def test_a_context_of_one_number_is_forecast_in_original_units(family: str) -> None:
    """The models divide by 1e-5 there, which the scale of the batch must not change."""
    predictor = built(family, toy_task(64, 4, 1), THREE)
    flat = Batch(torch.full((1, 64, 1), 0.3, dtype=torch.float64))
    one, other = (
        replace(flat, units=WindowUnits(torch.full((1, 1), mean), torch.full((1, 1), scale)))
        for mean, scale in ((0.0, 1.0), (LEVEL, 1e3))
    )
    spread = predictor(one) - 0.3
    assert spread.abs().max() > 1e-6
    torch.testing.assert_close((predictor(other) - 0.3) * 1e3, spread, rtol=1e-5, atol=1e-9)


def test_t5_keeps_the_level_and_says_what_it_cannot_see() -> None:
    predictor = built("t5", toy_task(64, 4, 1), THREE)
    predictor(batch_at(0.0))
    with pytest.warns(UserWarning, match="resolves steps of 17 % of the level of a series, and some series change"):
        predictor(batch_at(LEVEL))
    predictor(Batch(torch.full((1, 64, 1), 5.0)))


def forecast(precision: str) -> Any:
    """Quantiles of a series far from zero after a training that changes nothing."""
    index = pd.date_range("2024", periods=200, freq="D", name="ds")
    frame = pd.DataFrame({"y": 10_000 + np.sin(np.arange(200.0))}, index=index)
    sizes: dict[str, Any] = {"context_length": 24, "prediction_length": 3, "val_rows": 20, "test_rows": 20}
    described = {"kind": "chronos", "weights": weights_of("chronos2"), "trained": "all"}
    made = Forecaster(
        described, **sizes, max_steps=1, learning_rate=1e-9, training={"trainer": {"precision": precision}}
    )
    return made.fit(frame).predict(frame)[["0.1", "0.5", "0.9"]].to_numpy()


def test_forecasts_far_from_zero_are_those_of_full_precision() -> None:
    found, expected = forecast("bf16-true"), forecast("32-true")
    assert np.abs(found - expected).max() < 0.02 * np.ptp(expected)
