"""What is exported forecasts what the predictor forecasts, from raw series, for any number of windows."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.chronos.tiny_models import weights_of
from tests.forecaster import toys
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.forecaster import Forecaster
from tsattn.predictors import build_predictor
from tsattn.predictors.calibrated import intervals_of
from tsattn.predictors.exporting import FACTS, RawForecast, _imputed, exported, format_of
from tsattn.predictors.fitted import FittedPredictor
from tsattn.scaler import Scaler
from tsattn.task import Output, Task

L, T = 24, 4
SMALL: dict[str, Any] = {"d_model": 8, "num_heads": 2, "num_layers": 1}
SCALER = Scaler((1.0, 200.0), (2.0, 30.0))
LEVELS = (0.1, 0.5, 0.9)


def fitted(description: Any, levels: tuple[float, ...] = (), scaler: Scaler = SCALER, **task: Any) -> FittedPredictor:
    torch.manual_seed(0)
    predictor = build_predictor(description)
    predictor.build(Task("toy", L, T, ("a", "b"), "h", 6, **task), Output(levels))
    for weight in predictor.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return FittedPredictor(predictor.eval(), scaler)


def program(one: FittedPredictor) -> tuple[Any, dict[str, Any]]:
    """What is loaded of the file, and what the file says of itself."""
    content, facts = exported(one, "torch")
    extra = {FACTS: ""}
    loaded = torch.export.load(io.BytesIO(content), extra_files=extra).module()
    assert json.loads(extra[FACTS]) == facts
    return loaded, facts


def raw(windows: int) -> Tensor:
    generator = torch.Generator().manual_seed(windows)
    noise = torch.randn(windows, L, 2, generator=generator, dtype=torch.float64)
    return noise * torch.tensor([2.0, 30.0]) + torch.tensor([1.0, 200.0])


def by_hand(one: FittedPredictor, context: Tensor, **more: Any) -> Tensor:
    """Scaled, forecast by the predictor as it is, and brought back to units."""
    mean, scale = (torch.tensor(part, dtype=torch.float64) for part in (one.scaler.mean, one.scaler.scale))
    forecast = one.predictor(Batch(((context - mean) / scale).float(), **more)).double()
    units = (mean, scale) if forecast.dim() == 3 else (mean[:, None], scale[:, None])
    return forecast * units[1] + units[0]


def test_the_program_gives_what_the_predictor_gives() -> None:
    """Of attentions that are written out, and of one that is left to PyTorch's own."""
    kinds, positions = ["swa", "mlr", "btt"], {"positions": "rotary", "linear_path": "learned"}
    backbone = {"kind": "transformer", "attention": kinds, "channels": "independent", **positions}
    one = fitted({**SMALL, **backbone, "num_layers": len(kinds)}, LEVELS)
    before = {name: weight.clone() for name, weight in one.predictor.state_dict().items()}
    loaded, facts = program(one)
    for windows in (1, 7):
        context = raw(windows)
        found = loaded(context=context)
        assert found.shape == (windows, T, 2, len(LEVELS))
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, by_hand(one, context), rtol=1e-5, atol=1e-5 * 30)
        # each window by itself, in any order
        torch.testing.assert_close(loaded(context=context.flip(0)).flip(0), found, rtol=1e-5, atol=1e-5 * 30)
    assert list(facts["inputs"]) == ["context"]
    assert facts["inputs"]["context"] == {"shape": ["batch", L, 2], "dtype": "float64"}
    assert facts["channels"] == ["a", "b"]
    assert facts["quantiles"] == list(LEVELS)
    assert facts["attention"] == {"swa": "reference", "mlr": "reference", "btt": "sdpa"}
    after = one.predictor.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items())


@torch.no_grad()
def test_missing_values_are_imputed_as_in_a_panel() -> None:
    one = fitted({"kind": "patchtst", "patch_len": 4, **SMALL})
    model = RawForecast(one)
    context = raw(3)
    context[0, 5:9, 0] = context[1, :6, 1] = context[2, -3:] = torch.nan
    frame = [pd.DataFrame(part.numpy()) for part in context]
    mean, scale = (torch.tensor(part, dtype=torch.float64) for part in (SCALER.mean, SCALER.scale))
    filled = np.stack([((part - mean.numpy()) / scale.numpy()).ffill().fillna(0.0).to_numpy() for part in frame])
    expected = (
        one.predictor(Batch(torch.from_numpy(filled).float(), past_observed=~context.isnan())).double() * scale + mean
    )
    torch.testing.assert_close(model(context), expected, rtol=1e-6, atol=1e-5)
    nothing = torch.full((1, 5, 2), torch.nan)
    assert torch.equal(_imputed(nothing, ~nothing.isnan()), torch.zeros(1, 5, 2))


@torch.no_grad()
def test_an_exported_season_takes_the_last_value_where_none_is_known() -> None:
    context = raw(2)
    context[0, :-4], context[1] = torch.nan, torch.nan
    expected = torch.stack([context[0, [-1, -1, -4, -3]], torch.tensor(SCALER.mean).expand(4, 2)])
    torch.testing.assert_close(RawForecast(fitted("seasonal_naive"))(context), expected)


@pytest.mark.slow
def test_covariates_categories_and_time_stamps_are_inputs() -> None:
    scaler = replace(SCALER, covariate_mean=(1.0, 20.0), covariate_scale=(2.0, 4.0))
    one = fitted(
        {"kind": "transformer", "calendar": True, **SMALL},
        scaler=scaler,
        past_covariates=("p",),
        future_covariates=("f",),
        static=("k",),
        categories=(("x", "y"),),
    )
    loaded, facts = program(one)
    assert list(facts["inputs"]) == ["context", "past_covariates", "future_covariates", "static", "time"]
    assert facts["static"] == {"k": ["x", "y"]}  # a number below 0 is a category that was not seen
    context, past = raw(3), torch.randn(3, L, 1, dtype=torch.float64)
    ahead, static = torch.randn(3, L + T, 1, dtype=torch.float64), torch.tensor([[0], [1], [-1]])
    time = 1_600_000_000 // 3600 * 3600 + 3600 * torch.arange(L + T) + 86_400 * 40 * torch.arange(3)[:, None]
    given = {"past_covariates": past, "future_covariates": ahead, "static": static, "time": time}
    scaled = {**given, "past_covariates": ((past - 1) / 2).float(), "future_covariates": ((ahead - 20) / 4).float()}
    torch.testing.assert_close(
        loaded(context=context, **given), by_hand(one, context, **scaled), rtol=1e-5, atol=1e-5 * 30
    )


def test_series_of_their_own_scales_are_named_by_number() -> None:
    scaler = Scaler((0.0, 0.0), (1.0, 1.0), "series", ("north", "south"), ((1.0, 2.0), (50.0, 60.0)), ((1.0, 2.0),) * 2)
    loaded, facts = program(fitted("persistence", scaler=scaler))
    assert facts["series"] == ["north", "south"]
    assert facts["inputs"]["series"] == {"shape": ["batch"], "dtype": "int64"}
    found = loaded(context=raw(2), series=torch.tensor([1, 0]))
    torch.testing.assert_close(found, raw(2)[:, -1:].expand(-1, T, -1), rtol=1e-6, atol=1e-5)
    for number in (2, -1):
        with pytest.raises(RuntimeError, match="`series` must hold numbers from 0 to 1: the places in `series` of the"):
            loaded(context=raw(2), series=torch.tensor([0, number]))


def test_an_ensemble_is_one_program_and_a_ridge_with_waves_takes_time_stamps() -> None:
    members = [{"kind": "ridge", "context_length": 6}, "persistence", {"kind": "nlinear", "context_length": 12}]
    one = fitted({"kind": "ensemble", "members": members, "weights": [1, 2, 3]})
    inner = one.predictor.members[0][0]
    inner.weight.normal_()
    inner.waves = inner.waves.new_zeros(2, 0, T)  # as of data that hold no season
    model = RawForecast(one)  # what is exported
    assert "time" not in model.inputs
    with torch.no_grad():
        torch.testing.assert_close(model(context=raw(5)), by_hand(one, raw(5)), rtol=1e-5, atol=1e-4)
    inner.waves = torch.randn(2, 13, T, dtype=torch.float64)
    inner.period += 86_400
    assert inner.reads_time
    loaded, _ = program(one)
    time = 3600 * torch.arange(5 * (L + T)).reshape(5, -1)
    found = loaded(context=raw(5), time=time)
    torch.testing.assert_close(found, by_hand(one, raw(5), time=time), rtol=1e-5, atol=1e-4)


def test_a_predictor_may_ask_for_time_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    one = fitted("persistence")
    forward = type(one.predictor).forward

    def asks(self: Any, batch: Batch) -> Tensor:
        if batch.time is None:
            raise UserError("what day is it?")
        return forward(self, batch)

    monkeypatch.setattr(type(one.predictor), "forward", asks)
    assert [*RawForecast(one).inputs] == ["context", "time"]


def test_what_cannot_be_exported_is_refused_in_a_sentence() -> None:
    for description, distribution, message in (
        ({"kind": "chronos", "weights": weights_of("bolt")}, None, "tiny-bolt cannot be exported: it uses another lib"),
        ("patchtst", "student_t", "quantiles of its distribution student_t are computed outside of PyTorch"),
    ):
        predictor = build_predictor(description)
        predictor.build(Task("toy", L, T, ("a",), "h", 6), Output(distribution=distribution))
        with pytest.raises(UserError, match=message):
            exported(FittedPredictor(predictor, Scaler((0.0,), (1.0,))), "torch")
    one = fitted("nlinear")
    with pytest.raises(UserError, match="the calibrated intervals of nlinear are not part of its network"):
        exported(replace(one, conformal=SimpleNamespace(intervals=intervals_of(()))), "torch")
    one.predictor.backbone.forward = lambda batch: batch.past[:, : int(batch.past.sum())]
    with pytest.raises(UserError, match="nlinear cannot be exported: "):
        exported(one, "torch")


def test_the_format_is_that_of_the_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    assert format_of(".pt2") == format_of(".pt2", "torch") == "torch"
    for ending, format, message in (
        (".pt2", "tf", "format must be one of torch, onnx, not 'tf'"),
        (".bin", None, r"the file must end in \.pt2 or \.onnx, not \.bin"),
        ("", "onnx", r"the file must end in \.onnx, not nothing"),
        (".onnx", "torch", r"the file must end in \.pt2, not \.onnx"),
    ):
        with pytest.raises(UserError, match=message):
            format_of(ending, format)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"format onnx needs onnx, onnxscript: pip install 'tsattn\[onnx\]'"):
        format_of(".onnx")


def test_an_onnx_runtime_gives_what_the_predictor_gives(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package)
    runtime = pytest.importorskip("onnxruntime")
    one = fitted({"kind": "patchtst", "patch_len": 4, **SMALL, "attention": "mlr"}, LEVELS)
    content, facts = exported(one, "onnx")
    assert caplog.messages == []
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert json.loads(session.get_modelmeta().custom_metadata_map[FACTS]) == facts
    context = raw(6)
    (found,) = session.run(["forecast"], {"context": context.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), by_hand(one, context), rtol=1e-5, atol=1e-5 * 30)
    context[0, 3:5] = torch.nan
    (found,) = session.run(None, {"context": context.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), RawForecast(one)(context), rtol=1e-5, atol=1e-5 * 30)


def test_a_transform_is_part_of_what_is_exported() -> None:
    frame = toys.frame_of({"a": 150, "b": 150})
    forecaster = Forecaster(**{**toys.SMALL, "max_steps": 2}, transform="box_cox").fit(frame)
    raw = RawForecast(forecaster.fitted)
    values = frame["y"].to_numpy(copy=True).reshape(2, 150, 1)[:, -raw.length :]
    arguments: dict[str, Any] = {"context": torch.from_numpy(values), "series": torch.arange(2)}
    wanted = forecaster.predict()[["0.1", "0.5", "0.9"]].to_numpy()
    with torch.no_grad():
        np.testing.assert_allclose(raw(**arguments).reshape(-1, 3), wanted, rtol=1e-4)
        exported = torch.export.export(raw, (), arguments).module()
        np.testing.assert_allclose(exported(**arguments).reshape(-1, 3), wanted, rtol=1e-4)
