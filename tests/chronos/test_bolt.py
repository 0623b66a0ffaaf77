"""The Bolt of our own layers computes and forecasts what chronos-forecasting does, on any frame and any horizon."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.pretrained.small_models import LEVELS, SMALL, save_small, small_model, small_weights
from tests.toy_windows import toy_task
from tsattn import Forecaster
from tsattn.attention import KINDS
from tsattn.backbones import build_backbone, complete_backbone
from tsattn.batch import Batch
from tsattn.chronos.bolt import bolt_file
from tsattn.chronos.bolt.bolt_file import BoltModel, bolt_config, load_bolt, read_model, save_bolt, to_chronos_bolt
from tsattn.chronos.bolt.bolt_network import UNSCALED, ChronosBolt, quantiles_of_paths
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.predictors import build_predictor, complete_predictor
from tsattn.task import Output, Task

chronos_bolt = pytest.importorskip("chronos.chronos_bolt", reason="chronos-forecasting is not installed: extra chronos")

FOUR = (0.1, 0.3, 0.5, 0.8)
DESCRIPTION = {
    **{"kind": "chronos_bolt", "patch_len": 4, "d_model": 24, "head_dim": 10, "num_heads": 3, "d_ff": 20},
    **{"num_layers": 3, "num_decoder_layers": 2, "num_buckets": 8, "max_distance": 9},
}


def theirs(levels: tuple[float, ...] = FOUR, prediction_length: int = 7, **changes: Any) -> Any:
    """A small model of chronos-forecasting with random weights, none of which is left near zero."""
    from transformers import T5Config

    config = bolt_config(complete_backbone({**DESCRIPTION, **changes}), 48, prediction_length, levels)
    torch.manual_seed(5)
    model = chronos_bolt.ChronosBoltModelForForecasting(T5Config(**config))
    for part in model.parameters():
        torch.nn.init.normal_(part, part.mean().item(), 0.3)
    return model.eval()


def ours(model: Any, attention: Any = UNSCALED, **changes: Any) -> ChronosBolt:
    """The same model from this package's layers, built with the same changes."""
    sizes = model.chronos_config
    task = Task("toy", sizes.context_length, sizes.prediction_length, ("y",), "h", 24)
    described = {**DESCRIPTION, **changes, "attention": attention}
    backbone = build_backbone(described, task, Output(tuple(sizes.quantiles)))
    assert isinstance(backbone, ChronosBolt)
    backbone.load_state_dict(renamed(model.state_dict(), backbone))
    return backbone.eval()


def renamed(state: dict[str, Any], backbone: ChronosBolt) -> dict[str, Any]:
    """What a state of theirs is by our names."""
    names = to_chronos_bolt({name: name for name in backbone.state_dict()})
    assert names.keys() >= state.keys()
    return {own: state[name] for name, own in names.items() if name in state}


def contexts(length: int, rows: int = 5) -> tuple[Tensor, Tensor]:
    """Series of unequal lengths, padded at the front, with gaps of single steps and of whole patches; NaN is missing.

    The first is whole.
    """
    generator = torch.Generator().manual_seed(length)
    series = 40 + 3 * torch.randn(rows, length, generator=generator).cumsum(-1)
    gone = torch.rand(rows, length, generator=generator) < 0.15
    for row in range(rows):
        gone[row, : row * length // 6] = True
    gone[2, length // 2 : length // 2 + 9] = True
    gone[0] = False
    gone[:, -1] = False
    return series.masked_fill(gone, torch.nan), ~gone


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        *(({}, length) for length in (1, 3, 4, 48)),
        ({"reg_token": False}, 17),
        ({"feed_forward": "gated-gelu", "num_layers": 1, "num_decoder_layers": 1}, 31),
        ({"stride": 2, "feed_forward": "gated-silu"}, 17),
    ],
)
@torch.no_grad()
def test_it_computes_what_chronos_forecasting_does(changes: dict[str, Any], length: int) -> None:
    model = theirs(**changes)
    backbone = ours(model, **changes)
    series, observed = contexts(length)
    expected = model(series).quantile_preds
    found = backbone.quantiles_of(series.nan_to_num(777.0), observed)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * 40)
    whole = series[:1]
    torch.testing.assert_close(backbone.quantiles_of(whole), model(whole).quantile_preds, rtol=1e-5, atol=4e-4)


def test_gradients_are_those_of_chronos_forecasting() -> None:
    model = theirs()
    backbone = ours(model)
    series, observed = contexts(31)
    model(series).quantile_preds.square().mean().backward()
    backbone.quantiles_of(series.nan_to_num(), observed).square().mean().backward()
    expected = renamed({name: part.grad for name, part in model.named_parameters()}, backbone)
    # one key of one token: no other weight than one, whatever the query
    idle = ("decoder", ".attention.projection.")
    for name, part in backbone.named_parameters():
        assert part.grad is not None, name
        scale = 1e-12 + expected[name].abs().max()
        assert (part.grad - expected[name]).abs().max() <= 1e-3 * scale + 1e-6, name
        is_idle = all(word in name for word in idle) or name == "decoder.relative_bias.weight"
        assert is_idle == (not part.grad.any()), name


@pytest.mark.parametrize(("length", "stride"), [(3, 5), (16, 7), (60, 5), (60, 16)])
def test_the_last_patch_ends_at_the_last_step_whatever_the_stride(length: int, stride: int) -> None:
    backbone = build_backbone({"kind": "chronos_bolt", "stride": stride}, Task("toy", length, 3, ("a",), "h", 24))
    assert isinstance(backbone, ChronosBolt)
    patches, seen = backbone._patches(torch.arange(float(length))[None], None)
    assert patches.shape[1] == backbone.max_patches
    *ends, window = backbone.token_ends(backbone.max_patches + 1) or []
    assert window == "window"
    assert patches[0, :, -1].tolist() == [length - 1 + int(end) for end in ends]
    assert {*patches[seen].tolist()} == {*map(float, range(length))}, "every step is in a patch"
    assert seen.any(-1).all(), "and no patch is empty"


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_every_attention_is_taken_and_padding_changes_nothing(kind: str) -> None:
    task = Task("toy", 40, 3, ("a", "b"), "h", 24)
    torch.manual_seed(0)
    backbone = build_backbone(
        {"kind": "chronos_bolt", "patch_len": 4, "d_model": 16, "attention": kind}, task, Output((0.2, 0.5))
    ).eval()
    short = 3 + torch.randn(3, 20, 2)
    padded = torch.cat([torch.full((3, 20, 2), 1e6), short], 1)
    observed = torch.arange(40).expand(3, 40)[..., None].expand(3, 40, 2) >= 20
    torch.testing.assert_close(backbone(Batch(padded, past_observed=observed)), backbone(Batch(short)))
    far = short.clone()
    far[:, 0] += 1
    assert not torch.equal(backbone(Batch(far)), backbone(Batch(short)))


@torch.no_grad()
def test_quantiles_are_put_in_order_in_eval_mode_alone() -> None:
    backbone = ours(theirs())
    batch = Batch(torch.randn(6, 48, 1))
    raw = backbone.quantiles_of(batch.past[..., 0]).transpose(1, 2)
    assert (raw.diff(dim=-1) < 0).any(), "these weights make some cross"
    torch.testing.assert_close(backbone(batch)[:, :, 0], raw.sort(-1).values)
    for part in backbone.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    torch.testing.assert_close(backbone.train()(batch)[:, :, 0], raw)


def test_sizes_out_of_range_are_refused() -> None:
    task = Task("toy", 40, 3, ("a",), "h", 24)
    for wrong, message in (
        ({"stride": 17}, "stride must be from 1 to patch_len 16"),
        ({"patch_len": 0}, "patch_len must be at least 1"),
        ({"num_heads": 5}, "num_heads 5 must divide d_model 64, or give head_dim"),
        ({"feed_forward": "gated-tanh"}, "feed_forward must be one of relu, gelu, gelu_tanh, silu, gated-relu"),
        ({"num_buckets": 3}, "num_buckets must be an even number from 4 on, not 3"),
        ({"max_distance": 8}, "max_distance must be above 8 with 32 buckets"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            build_backbone({"kind": "chronos_bolt", **wrong}, task)
    with pytest.raises(UserError, match="where the stride divides patch_len 16, not 12"):
        bolt_config(complete_backbone({"kind": "chronos_bolt", "stride": 12}), 64, 4, (0.5,))


def test_a_network_starts_with_its_eyes_on_the_last_patches() -> None:
    task = Task("toy", 64, 4, ("a",), "h", 24)
    description = {"kind": "chronos_bolt", "patch_len": 4, "d_model": 32, "num_heads": 4, "num_buckets": 64}
    backbone = build_backbone({**description, "num_layers": 1}, task, Output((0.1, 0.5, 0.9))).double().eval()
    out = backbone(Batch(torch.randn(3, 64, 1, dtype=torch.float64)))
    # one direction for all quantiles of a step
    assert out.std(-1).mean() < 0.2 * out[..., 1].std()
    tokens = torch.randn(1, 17, 32, dtype=torch.float64, requires_grad=True)
    (seen,) = torch.autograd.grad(backbone.encoder(tokens)[:, -1].square().sum(), tokens)
    size = seen[0].square().sum(-1).sqrt()
    assert size[12:16].min() > 2 * size[:12].max(), "one head for each of four patches"


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model in the place of the one that comes with the package."""
    monkeypatch.setattr(bolt_file, "_SHIPPED", tmp_path)
    return save_small(tmp_path / "chronos-tiny.safetensors")


def of_theirs(tmp_path: Path) -> tuple[chronos_bolt.ChronosBoltPipeline, str]:
    """A pipeline of chronos-forecasting, and a file of ours with the same weights."""
    model = theirs(LEVELS)
    with torch.no_grad():  # levels that lie far apart do not cross, and so need not be put in order
        apart = 100 * torch.tensor([*LEVELS]).repeat_interleave(7)
        model.output_patch_embedding.output_layer.bias.add_(apart)
    path = tmp_path / "theirs.safetensors"
    save_bolt(path, BoltModel(DESCRIPTION, 48, 7, LEVELS), ours(model).state_dict())
    return chronos_bolt.ChronosBoltPipeline(model), str(path)


def unequal(rows: int = 4) -> list[Tensor]:
    """Series of 3 to 90 steps, with gaps."""
    generator = torch.Generator().manual_seed(3)
    series = [40 + torch.randn(n, generator=generator).cumsum(0) for n in (3, 30, 48, 90)[:rows]]
    series[1][5:8] = torch.nan
    series[3][70] = torch.nan
    return series


def windows(series: list[Tensor], length: int) -> Batch:
    """As our data would cut them: padded and cut to one length, what is missing masked."""
    past = torch.full((len(series), length, 1), torch.nan)
    for row, one in enumerate(series):
        past[row, -min(len(one), length) :, 0] = one[-length:]
    return Batch(past.nan_to_num(-7.0), past_observed=~past.isnan())


@pytest.mark.parametrize(("horizon", "levels"), [(4, LEVELS), (20, (0.15, 0.5, 0.88))])
@pytest.mark.filterwarnings("ignore:We recommend keeping prediction length")
def test_forecasts_are_those_of_the_pipeline(tmp_path: Path, horizon: int, levels: tuple[float, ...]) -> None:
    pipeline, weights = of_theirs(tmp_path)
    predictor = build_predictor({"kind": "chronos", "weights": weights})
    predictor.build(toy_task(48, horizon, 1), Output(levels))
    series = unequal()
    expected, _ = pipeline.predict_quantiles(series, prediction_length=horizon, quantile_levels=[*levels])
    assert (expected.diff(dim=-1) > 0).all()
    found = predictor(windows(series, 48))[:, :, 0]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * 40)
    alone = predictor(windows(series[2:3], 48))[:, :, 0]
    torch.testing.assert_close(alone, found[2:3], rtol=1e-6, atol=1e-6 * 40)


def test_many_series_at_once_are_what_each_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = build_predictor({"kind": "chronos", "weights": small_weights()})
    predictor.build(toy_task(24, 20, 3), Output((0.1, 0.5, 0.9)))
    batch = Batch(torch.randn(5, 24, 3, dtype=torch.float64), past_observed=torch.rand(5, 24, 3) > 0.3)
    whole = predictor(batch)
    monkeypatch.setattr("tsattn.chronos.open_models.ROWS_AT_ONCE", 4)
    torch.testing.assert_close(predictor(batch), whole, rtol=1e-4, atol=1e-4)


def test_paths_have_the_quantiles_of_torch() -> None:
    paths = torch.randn(3, 81, 5)
    levels = [*LEVELS]
    expected = torch.quantile(paths, torch.tensor(levels), dim=1).transpose(0, 1)
    torch.testing.assert_close(quantiles_of_paths(paths, levels), expected)


@pytest.mark.usefixtures("shipped")
def test_a_forecaster_forecasts_any_frame_without_a_fit(
    toy_frame: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    forecaster = Forecaster("chronos-tiny", prediction_length=5)
    forecast = forecaster.predict(toy_frame)
    assert [*forecast.columns] == ["unique_id", "date", "predictions", "0.1", "0.5", "0.9"]
    assert len(forecast) == 10
    assert forecast["date"].min() == toy_frame.index[-1] + pd.Timedelta("1h")
    assert (forecast[["0.1", "0.5", "0.9"]].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    with pytest.warns(UserWarning, match="horizon 30 is longer than the 6 steps of chronos-tiny: it goes on from"):
        far = forecaster.predict(toy_frame, horizon=30)
    assert np.allclose(far.groupby("unique_id").head(5)["predictions"], forecast["predictions"])
    # a few rows, in other units and at another level
    short = toy_frame.iloc[-3:] * 1000 + 5e4
    assert forecaster.predict(short).notna().all(axis=None)
    assert not caplog.records, "short series are nothing to warn of"
    moved = forecaster.predict(1000 * toy_frame + 5e4)
    assert np.allclose(moved["predictions"], 1000 * forecast["predictions"] + 5e4)
    assert "not fitted" in repr(forecaster)
    scores = forecaster.cross_validate(toy_frame, windows=2)
    assert scores["predictions"].notna().all()


def test_names_stand_for_descriptions() -> None:
    expected = {"kind": "chronos", "weights": "chronos-tiny", "context_length": None, "attention": None}
    assert expected.items() <= complete_predictor("chronos-tiny").items()
    assert complete_predictor("chronos") == complete_predictor("chronos-tiny")
    assert complete_predictor({"kind": "chronos-tiny", "context_length": 9})["context_length"] == 9
    with pytest.raises(UserError, match=r"valid: transformer, .*chronos-tiny, ridge"):
        build_predictor("chronos-tinny")


def test_it_says_what_its_pretraining_has_seen(tmp_path: Path) -> None:
    known = {"kind": "chronos", "weights": str(save_small(tmp_path / "known.safetensors"))}
    plain = {"kind": "chronos", "weights": "amazon/chronos-bolt-tiny"}
    said = {data: build_predictor(known).pretraining(data) for data in ("weather", "ETTh1")}
    assert said == {"weather": "seen", "ETTh1": "unseen"}
    for members, word in (([known, "ridge"], "seen"), ([plain, "ridge"], "unknown"), (["ridge", "persistence"], "")):
        assert build_predictor({"kind": "ensemble", "members": members}).pretraining("weather") == word


@pytest.mark.usefixtures("short_ridge")
def test_a_context_and_a_pretraining_of_its_own_are_said_and_written_down(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copy(toy_csv, tmp_path / "weather.csv"))
    data = ["--data=CSVDataModule", f"--data.path={path}", "--data.context_length=12", "--data.prediction_length=6"]
    backbone = json.dumps({"kind": "chronos", "weights": small_weights()})
    assert main(["fit", *data, f"--model.backbone={backbone}", "--run", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "context 24 (that of small), horizon 6" in said[0]
    assert "the pretraining of small saw the training part of the public data set weather" in said
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["context_length"] == 24


def test_what_it_cannot_do_is_refused(tmp_path: Path) -> None:
    small = {"kind": "chronos", "weights": small_weights()}
    with pytest.raises(UserError, match=r"small forecasts quantiles from 0.1 to 0.9: 0.05 lies outside"):
        build_predictor(small).build(toy_task(), Output((0.05, 0.5)))
    with pytest.raises(UserError, match="context_length of small must be at most 24, not 25"):
        build_predictor({**small, "context_length": 25}).build(toy_task(), Output((0.5,)))
    with pytest.raises(UserError, match="context_length must be at least 1"):
        build_predictor({**small, "context_length": 0})
    for wrong in ("nothing", str(tmp_path / "none.safetensors")):
        with pytest.raises(UserError, match=r"weights must be .*path of a \.safetensors file .*, not "):
            build_predictor({**small, "weights": wrong}).build(toy_task(), Output((0.5,)))
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"no weights")
    with pytest.raises(UserError, match="cannot be read"):
        read_model(other)


def test_files_keep_what_they_hold(tmp_path: Path) -> None:
    model = small_model()
    whole, half = save_small(tmp_path / "whole.safetensors"), tmp_path / "half.safetensors"
    network = load_bolt(whole)
    save_bolt(half, model, network.state_dict(), dtype=torch.float16)
    assert half.stat().st_size < 0.7 * whole.stat().st_size
    assert read_model(half) == read_model(whole) == model
    context = torch.randn(3, 24)
    rounded = load_bolt(half)
    assert all(part.dtype == torch.float32 for part in rounded.parameters())
    torch.testing.assert_close(rounded.quantiles_of(context), network.quantiles_of(context), rtol=0.02, atol=0.02)
    with pytest.raises(UserError, match=r"saved as a \.safetensors file, not as model\.pt"):
        save_bolt(tmp_path / "model.pt", model, {})
    wider = small_model(description={**SMALL, "d_model": 20})
    save_bolt(tmp_path / "wrong.safetensors", wider, network.state_dict())
    with pytest.raises(UserError, match="is damaged: Error"):
        load_bolt(tmp_path / "wrong.safetensors")
    state = {name: torch.full_like(part, torch.nan) for name, part in network.state_dict().items()}
    save_bolt(tmp_path / "nan.safetensors", model, state)
    with pytest.raises(UserError, match="weights that are not finite"):
        load_bolt(tmp_path / "nan.safetensors")
