"""`tiny` forecasts any series in its own units, is trained, swapped and saved as other networks are, and exported."""

from __future__ import annotations

import io
import logging
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tests.forecaster.toys import frame_of
from tsattn import Forecaster
from tsattn.batch import Batch, WindowUnits
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.predictors.attention_layers import attention_layers
from tsattn.predictors.exporting import RawForecast, exported
from tsattn.pretrained import tiny
from tsattn.pretrained.tiny import AT_ONCE, Tiny, TinyOptions, load_tiny, save_tiny
from tsattn.pretrained.tiny_network import LEVELS, LONGEST, TinyNetwork
from tsattn.task import Output, Task

ASKED = (0.05, 0.1, 0.42, 0.5, 0.9)
L, T = 120, 24
SHORT: dict[str, Any] = {"prediction_length": 12, "accelerator": "cpu"}
SIZES = {"d_model": 32, "num_layers": 3, "num_decoder_layers": 1, "num_heads": 2}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a network that was not trained, whose weights were moved at random."""
    generator, network = torch.Generator().manual_seed(0), TinyNetwork(**SIZES)
    for part in network.parameters():
        part.data += 0.05 * torch.randn(part.shape, generator=generator)
    save_tiny(path := tmp_path_factory.mktemp("tiny") / "tiny.safetensors", network, SIZES, {"trained_on": []})
    return path


@pytest.fixture(autouse=True)
def shipped(drawn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "_WEIGHTS", drawn)


def built(levels: tuple[float, ...] = ASKED, horizon: int = T, channels: int = 1, **options: Any) -> Tiny:
    predictor = build_predictor({"kind": "tiny", "context_length": L, **options})
    assert isinstance(predictor, Tiny)
    predictor.build(Task("toy", L, horizon, tuple("abcd"[:channels]), "h", 24), Output(levels))
    return predictor.eval()


def rows(count: int = 4, length: int = L, level: float = 6.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    time, number = torch.arange(length, dtype=torch.float64), torch.arange(1.0, count + 1)[:, None]
    noise = torch.randn(count, length, generator=generator, dtype=torch.float64)
    return (level + number * torch.sin(2 * torch.pi * time / 24) + 0.3 * noise)[..., None]


def with_zero(past: torch.Tensor, zero: float, **more: Any) -> Batch:
    one = torch.ones(len(past), past.shape[-1], dtype=torch.float64)
    return Batch(past, units=WindowUnits(-zero * one, one), **more)


@torch.no_grad()
def test_a_forecast_grows_with_its_series_and_moves_with_it_where_its_zero_does() -> None:
    predictor, past = built(), rows()
    found = predictor(Batch(past))
    near = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(predictor(Batch(1e6 * past)) / 1e6, found, **near)
    torch.testing.assert_close(predictor(Batch(1e-6 * past)) * 1e6, found, **near)
    for zero, size in ((100.0, 7.0), (-7e3, 2.0)):
        torch.testing.assert_close(predictor(with_zero(size * past + zero, zero)), size * found + zero, **near)
    below = predictor(Batch(past - 8))
    torch.testing.assert_close(predictor(Batch(past - 9)), below - 1, **near)
    assert not torch.allclose(below + 8, found, **near), "below zero, no ratio to it is taken"


@torch.no_grad()
def test_precision_order_and_channels_change_nothing() -> None:
    predictor, past = built(), rows()
    found = predictor(Batch(past))
    assert (found.diff(dim=-1) >= 0).all()
    single = predictor(Batch(past.float()))
    assert (found.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(single.double(), found, rtol=1e-3, atol=1e-3)
    wide = built(channels=4)(Batch(past.permute(2, 1, 0)))
    torch.testing.assert_close(wide[0].transpose(0, 1), found[:, :, 0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(built(())(Batch(past)), found[..., 3], rtol=1e-6, atol=1e-6)
    at = [LEVELS.index(level) for level in (0.4, 0.45)]
    outer = built(LEVELS)(Batch(past))[..., at]
    torch.testing.assert_close(found[..., 2], 0.6 * outer[..., 0] + 0.4 * outer[..., 1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_what_is_missing_or_not_finite_is_not_known() -> None:
    predictor, past = built(), rows()
    seen = torch.rand(past.shape, generator=torch.Generator().manual_seed(0)) > 0.2
    seen[3] = False
    found = predictor(Batch(past, past_observed=seen))
    assert found.isfinite().all()
    assert found[3, ..., 3].abs().max() < 10, "around 0, of which nothing is known"
    for other in (torch.nan, torch.inf, -1e30):
        masked = torch.where(seen, past, other)
        assert torch.equal(predictor(Batch(masked, past_observed=seen)), found)
    assert torch.equal(predictor(Batch(torch.where(seen, past, torch.nan))), found)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_is_forecast_as_it_is_alone_and_however_many_steps_were_before_it(dtype: torch.dtype) -> None:
    """Also one of a few values, or of none."""
    predictor, past = built(), rows(tiny.ROWS_AT_ONCE + 9).to(dtype)
    seen = torch.ones_like(past, dtype=torch.bool)
    lengths = [1, 2, 3, 4, 5, 9, 40, L]
    for number, length in enumerate(lengths):
        seen[number, :-length] = False
    seen[len(lengths)] = False
    found = predictor(Batch(past, past_observed=seen))
    assert found.isfinite().all()
    near = {"rtol": 1e-4, "atol": 1e-4}
    for number in (*range(len(lengths) + 1), -1):
        alone = predictor(Batch(past[number][None], past_observed=seen[number][None]))
        torch.testing.assert_close(alone[0], found[number], **near)
    for number, length in enumerate(lengths):
        short = built(context_length=length)(Batch(past[number][None, -length:]))
        torch.testing.assert_close(short[0], found[number], **near)


@torch.no_grad()
def test_longer_horizons_go_on_from_the_medians_and_never_get_surer_where_they_do() -> None:
    predictor, past = built(), rows()
    found = predictor.forecast_to(Batch(past), 400)
    assert found.shape == (4, 400, 1, len(ASKED))
    torch.testing.assert_close(found[:, :AT_ONCE], predictor.forecast_to(Batch(past), AT_ONCE))
    width = (found - found[..., 3:4]).abs()
    assert (found.diff(dim=-1) >= 0).all()
    for seam in (AT_ONCE, 2 * AT_ONCE):
        assert (width[:, seam:] >= width[:, seam - 1 : seam] * (1 - 1e-9)).all()
    longer = torch.cat([past, found[:, :AT_ONCE, :, 3]], 1)[:, -L:]
    again = predictor.forecast_to(Batch(longer), 400 - AT_ONCE)
    torch.testing.assert_close(found[:, AT_ONCE:, :, 3], again[..., 3], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_network_that_was_not_trained_repeats_a_season_for_thousands_of_steps_without_drift(tmp_path: Path) -> None:
    save_tiny(path := tmp_path / "own.safetensors", TinyNetwork(**SIZES), SIZES, {"trained_on": []})
    wave = 100 + 5 * torch.sin(2 * torch.pi * torch.arange(3000 + L, dtype=torch.float64) / 24)[None, :, None]
    found = built((0.1, 0.5, 0.9), weights=str(path)).forecast_to(Batch(wave[:, :L]), 3000)[..., 1]
    assert (found - wave[:, L:]).abs().max() < 0.5


@torch.no_grad()
def test_sixty_long_series_need_little_memory() -> None:
    predictor, past = built(context_length=LONGEST), rows(60, LONGEST)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert predictor(Batch(past)).isfinite().all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000, "KiB"


@pytest.mark.filterwarnings("ignore:horizon 400 is longer")
def test_short_and_dull_series_have_forecasts() -> None:
    sales = [0.0, 0, 3, 0, 0, 0, 1, 0, 0, 2] * 9
    values = {"sales": sales, "zeros": [0.0] * 60, "constant": [5.0] * 60, "one": [3.0], "three": [1.0, 4, 2]}
    parts = [pd.DataFrame({"unique_id": name, "ds": np.arange(len(some)), "y": some}) for name, some in values.items()]
    frame = pd.concat(parts, ignore_index=True)
    found = Forecaster("tiny", **SHORT).predict(frame, horizon=400)
    assert len(found) == 400 * len(values)
    numbers = found.set_index("unique_id")[["0.1", "0.5", "0.9"]]
    assert np.isfinite(numbers.to_numpy()).all()
    assert (numbers.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert numbers.loc["zeros"].abs().max(axis=None) < 0.1
    assert (numbers.loc["constant"] - 5).abs().max(axis=None) < 0.1
    assert found.groupby("unique_id")["ds"].min()["three"] == 3


def test_covariates_are_left_unread_and_levels_outside_refused(caplog: pytest.LogCaptureFixture) -> None:
    frame = frame_of({"a": 150}).assign(rain=1.0)
    with caplog.at_level(logging.WARNING, "tsattn"):
        plain = Forecaster("tiny", **SHORT).predict(frame.drop(columns="rain"))
        found = Forecaster("tiny", past_covariates=["rain"], **SHORT).predict(frame)
    assert caplog.messages == ["tiny does not use covariates: rain"]
    pd.testing.assert_frame_equal(found, plain)
    with pytest.raises(UserError, match=r"tiny forecasts quantiles from 0.01 to 0.99: 0.995 is outside"):
        Forecaster("tiny", quantiles=[0.5, 0.995], **SHORT).predict(frame)


def test_weights_that_are_not_there_or_damaged_are_refused(tmp_path: Path) -> None:
    network, path = TinyNetwork(**SIZES), tmp_path / "own.safetensors"
    save_tiny(path, network, SIZES, {"trained_on": ["weather"]})
    own = build_predictor({"kind": "tiny", "weights": str(path)})
    assert (own.name, own.pretraining("weather"), own.pretraining("ETTh1")) == ("own", "seen", "unseen")
    assert load_tiny(TinyOptions(weights=str(path))).head.weight.equal(network.head.weight.half().float())

    def refused(path: Path, message: str) -> None:
        with pytest.raises(UserError, match=message):
            load_tiny(TinyOptions(weights=str(path)))

    refused(tmp_path / "none.safetensors", "weights must be tiny, or the path of a .safetensors file for tiny, not")
    whole = path.read_bytes()
    for damaged, message in ((whole[:-40], "cannot be read"), (whole.replace(b"tiny 1", b"tiny 9"), "format is .*9")):
        path.write_bytes(damaged)
        refused(path, message)
    save_tiny(path, network, {**SIZES, "d_model": 64}, {"trained_on": []})
    refused(path, "is damaged: Error")
    network.head.bias.data[0] = torch.nan
    save_tiny(path, network, SIZES, {"trained_on": []})
    refused(path, "is damaged: it holds weights that are not finite")
    for options, message in (
        ({"trained": "some"}, "null or one of all, attention"),
        ({"context_length": 0}, "at least"),
    ):
        with pytest.raises(UserError, match=message):
            TinyOptions(**options)
    with pytest.raises(UserError, match="leave context_length out of its description"):
        TinyOptions(trained="all", context_length=9)


def test_a_forecast_draws_no_random_numbers() -> None:
    state = torch.get_rng_state()
    assert np.isfinite(Forecaster("tiny", **SHORT).predict(frame_of({"a": 300}))["predictions"]).all()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("trained", [None, "attention", "all"])
def test_a_fit_changes_what_is_trained_alone_and_saved_needs_no_file(trained: str | None, tmp_path: Path) -> None:
    own, frame, sizes = tmp_path / "own.safetensors", frame_of({"a": 300}), {**SIZES, "d_model": 16, "attention": "mlr"}
    save_tiny(own, TinyNetwork(**sizes), sizes, {"trained_on": []})
    options: dict[str, Any] = {"weights": str(own), "trained": trained}
    forecaster = Forecaster({"kind": "tiny", **options}, context_length=48, max_steps=3, **SHORT).fit(frame)
    before, predictor = load_tiny(TinyOptions(**options)).state_dict(), forecaster.fitted.predictor
    after = predictor.backbone.network.state_dict()
    assert after.keys() == before.keys()
    changed = {name for name, part in after.items() if not part.equal(before[name])}
    of_attention = {name for name in before if name.startswith("encoder.") and ".attention." in name}
    assert bool(changed) == (trained is not None)
    assert changed <= of_attention if trained != "all" else len(changed) > len(of_attention)
    count = sum(before[name].numel() for name in (of_attention if trained == "attention" else before))
    assert predictor.num_parameters == count
    forecaster.save(tmp_path / "model")
    own.unlink()
    again = tsattn.load(tmp_path / "model")
    assert again.fitted.predictor.num_parameters == count
    pd.testing.assert_frame_equal(again.predict(), forecaster.predict())
    with pytest.raises(UserError, match="weights must be tiny, or the path of"):
        again.fit(frame)


@torch.no_grad()
def test_another_attention_keeps_the_weights_that_fit() -> None:
    past, own = rows(length=L), load_tiny(TinyOptions()).state_dict()
    found = built()(Batch(past))
    for attention in ("standard", {"kind": "swa", "window_size": 200}, {"kind": "global_swa", "global_rank": 16}):
        torch.testing.assert_close(built(attention=attention)(Batch(past)), found, rtol=1e-5, atol=1e-5)
    for attention in ("mlr", {"kind": "swa", "window_size": 3}, ["standard", "mlr", "swa"]):
        swapped = built(attention=attention)
        state = swapped.backbone.network.state_dict()
        assert all(part.equal(own[name]) for name, part in state.items())
        other = swapped(Batch(past))
        assert other.isfinite().all()
        assert not torch.equal(other, found)
    longest = built(attention="mlr", context_length=LONGEST)
    assert longest(Batch(rows(1, LONGEST))).isfinite().all(), "as many tokens as there may be"
    with pytest.raises(UserError, match="has weights that tiny lacks: train them with trained: attention, or all"):
        built(attention="btt")
    with pytest.raises(UserError, match="unknown attention"):
        build_predictor({"kind": "tiny", "attention": "none"})


def test_its_attention_is_that_among_patches() -> None:
    time = 3600 * torch.arange(L + T)[None]
    layers = attention_layers(built(), Batch(rows(1), time=time))
    assert [layer.name for layer in layers] == ["layer 0", "layer 1", "layer 2"]
    keys = layers[0].keys
    assert len(keys) == 1 + -(-L // 16)
    assert (keys[-1], keys[-2], keys[-3]) == ("facts", *(pd.Timestamp(3600 * (L - ago), unit="s") for ago in (1, 17)))


@pytest.mark.slow
def test_files_forecast_what_it_forecasts_beside_the_other_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what has gaps, few values, no season, and no value at all."""
    runtime = pytest.importorskip("onnxruntime")
    frame = frame_of(dict.fromkeys("ab", 700)).pivot_table(index="ds", columns="unique_id", values="y")
    forecaster = Forecaster("auto", context_length=64, **SHORT).fit(frame)
    traced: list[Any] = []

    def once(*sent: Any, trace: Any = torch.export.export, **others: Any) -> Any:  # a trace takes half a minute
        traced.extend([] if traced else [trace(*sent, **others)])
        return traced[0]

    monkeypatch.setattr(torch.export, "export", once)
    (content, facts), (onnx, _) = (exported(forecaster.fitted, format) for format in ("torch", "onnx"))
    assert facts["inputs"]["context"]["shape"] == ["batch", 96, 2]
    random = np.random.default_rng(0)
    context = np.stack([*(frame.to_numpy()[at : at + 96] for at in (604, 100)), *10 * random.random((6, 96, 2))])
    context[1][random.random((96, 2)) < 0.3] = context[2, :-40] = context[3, :-3] = context[4] = np.nan
    time = pd.date_range(frame.index[604], periods=108, freq=frame.index[1] - frame.index[0])
    seconds = np.broadcast_to(time.to_numpy().astype("datetime64[s]").astype(np.int64), (8, 108))
    inputs = {"context": context, "time": seconds.copy()}
    first = forecaster.predict(frame)[["0.1", "0.5", "0.9"]].to_numpy().reshape(2, 12, 3).swapaxes(0, 1)
    expected = RawForecast(forecaster.fitted)(**{name: torch.from_numpy(one) for name, one in inputs.items()}).numpy()
    program = torch.export.load(io.BytesIO(content)).module()
    session = runtime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    for count in (8, 1):
        given = {name: one[:count] for name, one in inputs.items()}
        made = program(**{name: torch.from_numpy(one) for name, one in given.items()}).numpy()
        for found in (made, session.run(None, given)[0]):
            np.testing.assert_allclose(found[0], first, rtol=1e-4)
            np.testing.assert_allclose(found, expected[:count], rtol=1e-4, atol=1e-4)
