"""Training on through the engine that trains every network: the original's losses, and one way to keep what came."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from tests.chronos.tiny_models import FAMILIES, weights_of
from tests.toy_windows import rows, toy_task, toy_windows
from tsattn import Forecaster, load
from tsattn.backbones.task_network import load_checkpoint
from tsattn.chronos.chronos_predictor import ChronosNetwork
from tsattn.errors import UserError
from tsattn.predictors import build_predictor
from tsattn.task import Output

LEVELS = (0.1, 0.5, 0.9)
MLR = {"kind": "mlr", "ranks": [4, 2, 2]}
ATTENTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "swa": {"attention": {"kind": "swa", "window_size": 4}},
    "mlr": {"attention": MLR, "convert": "rotate", "calibrate": 2},
    "btt": {"attention": {"kind": "btt", "tt_rank": 2}, "convert": "project"},
}
families = pytest.mark.parametrize("family", FAMILIES)


def described(family: str, attention: str = "none", trained: str | None = "all", **more: Any) -> dict[str, Any]:
    return {"kind": "chronos", "weights": weights_of(family), "trained": trained, **ATTENTIONS[attention], **more}


def forecaster(description: dict[str, Any], **arguments: Any) -> Forecaster:
    sizes = {"context_length": 24, "prediction_length": 6, "max_steps": 2, "learning_rate": 1e-3}
    few = {"val_windows": 8}
    return Forecaster(description, data=few, **{**sizes, "val_rows": 30, "test_rows": 40, **arguments})


def network(family: str, task: Any = None, **arguments: Any) -> ChronosNetwork:
    made = ChronosNetwork(toy_task() if task is None else task, Output(LEVELS), weights=weights_of(family), **arguments)
    return made.eval()


def same(first: pd.DataFrame, second: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def _t5(model: Any, past: Tensor, target: Tensor) -> Tensor:
    """The tokens that the paper describes, written anew: values over the mean absolute, in equal bins from -5 to 5."""
    scale = past.abs().nanmean(-1, keepdim=True)
    centers = torch.linspace(-5, 5, 61)
    edges = (centers[1:] + centers[:-1]) / 2

    def tokens(values: Tensor) -> Tensor:
        ids = torch.bucketize((values / scale).nan_to_num(), edges, right=True) + 3
        return torch.where(values.isnan(), 0, ids)

    ends = torch.ones(len(past), 1, dtype=torch.long)
    ids = torch.cat([tokens(past), ends], 1)
    labels = torch.cat([torch.where(target.isnan(), -100, tokens(target)), ends], 1)
    starts = torch.cat([torch.zeros_like(ends), labels[:, :-1].clamp(min=0)], 1)
    mask = torch.cat([~past.isnan(), ends.bool()], 1)
    logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=starts, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


@families
def test_the_loss_is_the_originals(family: str) -> None:
    task = toy_task(24, 6, 3)
    made, batch = network(family, task, trained="all"), toy_windows(task, gaps=True)
    batch = rows(batch, 0, 3)  # without the last window, which has nothing to scale by
    past, target = (
        torch.where(seen, part, torch.nan).transpose(1, 2).flatten(0, 1).float()  # type: ignore[arg-type]
        for part, seen in ((batch.past, batch.past_observed), (batch.target, batch.target_observed))
    )
    model: Any = made.model
    if family == "t5":
        expected = _t5(model, past, target)
    elif family == "bolt":
        expected = model(context=past, target=target).loss
    else:
        group = torch.arange(3).repeat_interleave(3)
        expected = model(context=past, group_ids=group, future_target=target, num_output_patches=2).loss
    torch.testing.assert_close(made.own_loss(batch), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("family", "horizon"), [("t5", 3), ("t5", 40), ("bolt", 40), ("chronos2", 3)])
def test_other_horizons_are_trained_over_the_steps_that_there_are(family: str, horizon: int) -> None:
    task = toy_task(24, horizon, 2)
    made, batch = network(family, task, trained="all"), toy_windows(task)
    loss = made.own_loss(batch)
    loss.backward()
    assert loss.isfinite()
    most = made.forecasts.steps_at_once
    assert batch.target is not None
    later = batch.target.clone()
    later[:, min(most, horizon) :] += 100
    batch.target = later
    assert torch.equal(made.own_loss(batch), loss), "what comes later is not trained"
    later[:, 0] += 3
    assert not torch.equal(made.own_loss(batch), loss)


@families
def test_a_batch_of_which_nothing_was_observed_trains_nothing_wrong(family: str) -> None:
    batch = toy_windows(toy_task(24, 6, 2))
    batch.past_observed, batch.target_observed = torch.zeros(4, 24, 2).bool(), torch.zeros(4, 6, 2).bool()
    made = network(family, toy_task(24, 6, 2), trained="all")
    made.own_loss(batch).backward()
    assert all(part.grad is None or part.grad.isfinite().all() for part in made.parameters())


@pytest.mark.parametrize(("family", "attention"), [("t5", "none"), ("bolt", "mlr"), ("chronos2", "swa")])
def test_attention_alone_or_adapters_alone_are_trained(family: str, attention: str) -> None:
    assert all(part.requires_grad for part in network(family, trained="all", **ATTENTIONS[attention]).parameters())
    for trained in ("attention", "lora"):
        made = network(family, trained=trained, lora_rank=2, **ATTENTIONS[attention])
        names = [name for name, part in made.named_parameters() if part.requires_grad]
        assert names
        inside = ("SelfAttention", "self_attention")
        assert all("encoder" in name and any(part in name for part in inside) for name in names)
        assert all(("lora_" in name) == (trained == "lora") for name in names)
        if trained == "lora":
            assert len(names) == 2 * 4 * 3
            assert sum(part.numel() for part in made.parameters() if part.requires_grad) == 2 * 4 * 3 * 2 * 24


@families
def test_a_parameter_that_is_shared_is_kept_once_and_stays_shared(family: str) -> None:
    made = network(family, trained="all")
    state = made.state_dict()
    places = [part.data_ptr() for part in state.values() if part.numel()]
    assert len(set(places)) == len(places), "safetensors refuse what is kept twice"
    with torch.device("meta"):
        again = ChronosNetwork(toy_task(), Output(LEVELS), weights="a/lost-model", trained="all")
    assert all(part.is_meta for part in again.state_dict().values())
    again.load_state_dict(state, assign=True)
    assert len([*again.parameters()]) == len([*made.parameters()])
    batch = toy_windows(toy_task())
    assert torch.equal(again.eval()(batch), made(batch))


def test_calibration_alone_is_a_fit_without_a_training(toy_frame: pd.DataFrame, tmp_path: Path) -> None:
    """It fits anew from the original, so that a further training would drop the weights that are there."""
    swapped = {"kind": "chronos", "weights": weights_of("bolt"), "attention": MLR}
    made = forecaster({**swapped, "calibrate": 4})
    assert made.predictor.needs_fit
    assert not made.predictor.is_trained
    made.fit(toy_frame, folder=tmp_path / "run")
    forecast = made.predict()
    same(load(tmp_path / "run").predict(toy_frame.iloc[:-40]), made.predict(toy_frame.iloc[:-40]))
    assert not forecaster(swapped).predict(toy_frame)["predictions"].equals(forecast["predictions"])
    with pytest.raises(UserError, match="tiny-bolt_mlr has no trained weights to start from"):
        made.fine_tune(toy_frame)
    same(made.predict(), forecast)
    checkpoint = tmp_path / "run" / "checkpoints" / "best.ckpt"
    with pytest.raises(UserError, match="trained network can resume from a checkpoint, not tiny-bolt_mlr"):
        forecaster({**swapped, "calibrate": 4}).fit(toy_frame, checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trained": "some"}, "trained must be null or one of all, attention, lora, not 'some'"),
        ({"convert": "tune"}, "convert must be one of copy, rotate, project, fresh, not 'tune'"),
        ({"calibrate": 3}, "calibrate needs a swapped attention: give attention, or leave calibrate out"),
        ({"attention": "swa", "convert": "fresh"}, "convert: fresh starts with random attention weights"),
        ({"attention": "swo"}, "unknown attention 'swo' .did you mean swa..; valid: standard"),
        ({"trained": "all", "context_length": 9}, "a fitted Chronos takes data.context_length"),
        ({"lora_rank": 0}, "lora_rank must be at least 1"),
        ({"ranks": 3}, "has no argument 'ranks'; valid: weights, revision"),
        ({"where": [0]}, "where needs attention, or trained: attention or lora; .*, or leave where out"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_when_it_is_described(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_predictor({"kind": "chronos", "weights": "a/model", **arguments})


def test_what_pretrained_weights_cannot_take_is_refused(toy_frame: pd.DataFrame) -> None:
    options = {"loss": "mae", "mup": True, "compile_mode": "default", "activation_checkpointing": True}
    for name, value in options.items():
        made = forecaster(described("bolt"), training={name: value}, **({"quantiles": None} if name == "loss" else {}))
        with pytest.raises(UserError, match=f"chronos starts from pretrained weights: leave {name} out"):
            made.fit(toy_frame)
    tiny = forecaster({"kind": "tiny", "trained": "all"}, training={"mup": True})
    with pytest.raises(UserError, match="tiny starts from pretrained weights: leave mup out"):  # mup draws all anew
        tiny.fit(toy_frame)


def test_without_an_extra_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    for package, message in {
        "peft": r"trained: lora needs peft: pip install 'tsattn\[chronos\]'",
        "chronos": r"need chronos-forecasting: pip install 'tsattn\[chronos\]'",
    }.items():
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *more, p=package: None if name == p else find(name)
        )
        with pytest.raises(UserError, match=message):
            network("bolt", trained="lora")


def test_the_record_beside_the_weights_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign_code.py").write_text("raise SystemExit('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    state = network("bolt", trained="all", attention=MLR).state_dict()
    record = json.loads(state["record"].numpy().tobytes())
    changes: list[dict[str, Any]] = [
        {"swaps": {"encoder.0": {"attention": "foreign_code.Attention", "convert": "copy"}}},
        {"attention_implementation": "somebody/kernels"},
        {"config": {**record["config"], "_attn_implementation": "somebody/kernels"}},
        {"config": {**record["config"], "_experts_implementation": "somebody/kernels"}},
        {"config": {**record["config"], "attribute_map": {"x": "_attn_implementation"}, "x": "somebody/kernels"}},
    ]
    for change in changes:
        state["record"] = torch.frombuffer(bytearray(json.dumps({**record, **change}).encode()), dtype=torch.uint8)
        with torch.device("meta"):
            again = ChronosNetwork(toy_task(), Output(LEVELS), weights="a/model", trained="all", attention=MLR)
        message = "imports no modules" if "swaps" in change else "somebody/kernels is no attention_implementation"
        with pytest.raises((UserError, RuntimeError), match=message):
            again.load_state_dict(state, assign=True)
    assert "foreign_code" not in sys.modules
    state["record"] = torch.zeros(20, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="cannot be built"):
        again.load_state_dict(state, assign=True)


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes the weights away that a model began with, and calibration with them."""

    def take() -> None:
        for name in ("open_weights", "ChronosNetwork.prepare"):
            monkeypatch.setattr(f"tsattn.chronos.chronos_predictor.{name}", lambda *_: pytest.fail("it was begun anew"))

    return take


@pytest.mark.parametrize(
    ("family", "attention", "trained"), [("bolt", "mlr", "attention"), ("chronos2", "btt", "lora")]
)
def test_a_saved_model_forecasts_the_same_and_is_trained_further_without_its_first_weights(
    family: str, attention: str, trained: str, toy_frame: pd.DataFrame, gone: Callable[[], None], tmp_path: Path
) -> None:
    before = forecaster(described(family, trained=None)).predict(toy_frame)["predictions"]
    made = forecaster(described(family, attention, trained)).fit(toy_frame)
    made.save(tmp_path / "model")
    forecast = made.predict()
    assert not before.equals(forecast["predictions"])
    content = json.loads((tmp_path / "model" / "forecaster.json").read_text())
    assert content["predictor"]["attention"] == made.predictor.description["attention"]
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {"", ".json", ".safetensors"}
    gone()
    again = load(tmp_path / "model")
    same(again.predict(), forecast)
    again.fine_tune(toy_frame, max_steps=1, learning_rate=1e-12)
    found = again.predict()
    columns = ["predictions", "0.1", "0.5", "0.9"]
    assert abs(found[columns] - forecast[columns]).to_numpy().max() < 1e-4
    again.fine_tune(toy_frame, max_steps=3, learning_rate=1e-2)
    assert abs(again.predict()[columns] - forecast[columns]).to_numpy().max() > 1e-3
    same(made.predict(), forecast)


@pytest.mark.usefixtures("short_ridge")
def test_a_checkpoint_goes_on_without_the_first_weights(
    toy_frame: pd.DataFrame, gone: Callable[[], None], tmp_path: Path
) -> None:
    steady: dict[str, Any] = {"schedule": "constant", "warmup_steps": 0, "trainer": {"val_check_interval": 2}}
    description = described("bolt", "mlr", "lora")
    whole = forecaster(description, max_steps=4, training={**steady, "checkpoints": tmp_path / "whole"}).fit(toy_frame)
    part = {**steady, "checkpoints": tmp_path / "part"}
    forecaster(description, max_steps=2, training=part).fit(toy_frame)
    gone()
    made = forecaster(description, max_steps=4, training=part)
    made.fit(toy_frame, checkpoint=tmp_path / "part" / "last.ckpt")
    assert made.result is not None
    assert whole.result is not None
    assert made.result.fit["parameters"] == whole.result.fit["parameters"]
    states = [load_checkpoint(tmp_path / name / "last.ckpt")["state_dict"] for name in ("part", "whole")]
    assert states[0].keys() == states[1].keys()
    assert all(
        torch.equal(part, states[1][name]) for name, part in states[0].items() if name != "network.backbone.record"
    )
