"""torch.compile and activation checkpointing by an argument: the same training, faster or in less memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.toy_windows import toy_windows
from tests.training.toys import trainer, windows_of
from tsattn.backbones import Backbone, build_backbone
from tsattn.batch import Batch
from tsattn.cli import main
from tsattn.errors import UserError
from tsattn.layers import Encoder
from tsattn.layers.optim import mup_init_
from tsattn.task import Output, Task
from tsattn.training import ForecastingModule
from tsattn.training.module import compiler_errors, hold_gradients, start_compiled

pytestmark = pytest.mark.usefixtures("undrawn")


def task(**more: Any) -> Task:
    return Task("toy", 48, 12, ("a", "b"), "h", 24, **more)


def value_and_gradients(backbone: Backbone, windows: Batch) -> list[Tensor]:
    out = backbone(windows)
    weights = [*backbone.parameters()]
    return [out, *torch.autograd.grad(out.square().mean(), weights, materialize_grads=True)]


def test_a_backbone_with_all_that_it_can_have_compiles_whole() -> None:
    """One graph for each size of batch, of the values and gradients of eager execution."""
    everything = task(past_covariates=("p",), future_covariates=("f",), static=("s",), categories=(("x", "y"),))
    attention = {"kind": "mlr", "ranks": [4, 2, 2], "scaling": "mup"}
    options = {"linear_path": "learned", "calendar": True, "positions": "rotary", "dropout": 0.0, "num_layers": 1}
    backbone = build_backbone(
        {"kind": "patchtst", "d_model": 16, "num_heads": 2, "attention": attention, **options},
        everything,
        Output((0.1, 0.5, 0.9)),
    )
    mup_init_(backbone)
    backbone.encoder.recompute = True
    windows = toy_windows(everything, 3, gaps=True, dtype=torch.float32)
    expected = value_and_gradients(backbone, windows)
    torch.compiler.reset()
    counters.clear()
    backbone.compile(backend="aot_eager", dynamic=False, fullgraph=True)
    for one, other in zip(value_and_gradients(backbone, windows), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 1


@torch._dynamo.config.patch(recompile_limit=1)
def test_compiled_models_do_not_use_up_the_compilations_of_later_ones() -> None:
    """torch compiles one function at most 8 times, here once; here there are 2 models of one class."""
    for width in (8, 16):
        backbone = build_backbone({"kind": "transformer", "d_model": width, "num_heads": 2, "num_layers": 1}, task())
        start_compiled(backbone, "default")
        backbone.compile(backend="eager", dynamic=False)  # without the time of inductor
        counters.clear()
        backbone(toy_windows(task(), 2, gaps=True, dtype=torch.float32))
        assert counters["stats"]["unique_graphs"] == 1, f"width {width}"
        backbone._compiled_call_impl = None
        backbone(toy_windows(task(), 4, gaps=True, dtype=torch.float32))
        assert counters["stats"]["unique_graphs"] == 1


def words(csv: Path, run: Path) -> list[str]:
    sizes = ["--data.context_length=48", "--data.prediction_length=12", "--data.batch_size=128"]
    tiny = "--model.backbone={kind: patchtst, d_model: 8, num_heads: 2, num_layers: 1, dropout: 0.0}"
    words = ["fit", "--data=CSVDataModule", f"--data.path={csv}", *sizes, tiny, "--attention={kind: mlr, ranks: [4]}"]
    return [*words, "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1", f"--run={run}"]


def curve(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv")


@pytest.mark.slow
def test_a_compiled_run_has_the_losses_of_an_eager_one(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, quick = tmp_path / "plain", tmp_path / "compiled"
    assert main([*words(toy_csv, plain), "--trainer.max_epochs=2"]) == 0
    both = ["--model.compile_mode=default", "--model.activation_checkpointing=true"]
    counters.clear()
    assert main([*words(toy_csv, quick), "--trainer.max_epochs=2", *both]) == 0
    # 361 windows and 49: two sizes of batch in training, one in validation; the test is not compiled
    assert counters["stats"]["unique_graphs"] == 3
    assert counters["inductor"]["fxgraph_cache_miss"] + counters["inductor"]["fxgraph_cache_hit"] >= 3
    for name in ("train_loss", "val_mse_scaled"):
        expected, found = (curve(run)[name].dropna() for run in (plain, quick))
        assert len(expected) == (6 if name == "train_loss" else 2)
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    first, second = (json.loads((run / "metrics.json").read_text())["test"]["patchtst_mlr"] for run in (plain, quick))
    assert first["mse_scaled"] == pytest.approx(second["mse_scaled"], rel=1e-4)
    one, other = (torch.load(run / "checkpoints/last.ckpt", weights_only=True) for run in (plain, quick))
    assert list(one["state_dict"]) == list(other["state_dict"])
    ends = []
    for source in (plain, quick):
        on = tmp_path / f"{source.name}_on"
        checkpoint = f"--ckpt_path={source / 'checkpoints/last.ckpt'}"
        assert main([*words(toy_csv, on), "--trainer.max_epochs=3", checkpoint]) == 0
        ends.append(curve(on)["train_loss"].dropna())
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3)
    capsys.readouterr()
    assert main(["test", f"--run={quick}"]) == 0
    assert f"{second['mse_scaled']:8.3f}" in capsys.readouterr().out


def test_counted_tokens_are_not_computed_anew_by_a_compiler(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = ["--model.backbone.norm=batch", "--model.activation_checkpointing=true", "--model.compile_mode=default"]
    assert main([*words(toy_csv, tmp_path / "run"), "--trainer.max_steps=1", *three]) == 2
    said = capsys.readouterr().err
    assert "norm: batch, activation_checkpointing and compile_mode do not work together" in said


def test_without_a_compiler_there_is_one_sentence(toy_csv: Path, tmp_path: Path) -> None:
    backbone = {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1}
    model = ForecastingModule(backbone, compile_mode="default")
    with (
        torch._inductor.config.patch({"cpp.cxx": ("/no/such/compiler",), "force_disable_caches": True}),
        pytest.raises(UserError, match="no C\\+\\+ compiler works here") as raised,
    ):
        trainer(tmp_path, max_steps=1).fit(model, windows_of(toy_csv))
    assert "\n" not in str(raised.value)


def test_what_torch_cannot_compile_is_one_sentence() -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise NotImplementedError("no kernel\nfor this")

    backbone = build_backbone({"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1}, task())
    backbone.compile(backend=broken, dynamic=False)
    message = "the backbone: NotImplementedError: no kernel for this; leave compile_mode default out"
    with pytest.raises(UserError, match=message), compiler_errors("default"):
        backbone(toy_windows(task(), dtype=torch.float32))
    # what goes wrong in the model itself is not of the compiler
    with pytest.raises(RuntimeError, match="size of the model"), compiler_errors("default"):
        raise RuntimeError("size of the model")


def test_modes_are_checked_before_a_folder_is_made(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(toy_csv, tmp_path / "run"), "--model.compile_mode=fast"]) == 2
    message = capsys.readouterr().err
    assert "compile_mode must be one of default, reduce-overhead, max-autotune" in message
    assert main([*words(toy_csv, tmp_path / "run"), "--model.compile_mode=reduce-overhead"]) == 2
    message = capsys.readouterr().err
    assert "reduce-overhead uses CUDA graphs, which need a CUDA device, not cpu: give compile_mode default" in message
    assert not (tmp_path / "run").exists()


def test_gradients_are_added_to_memory_of_their_own() -> None:
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad = False
    hold_gradients(layer)
    assert layer.bias.grad is None
    held = layer.weight.grad
    assert not held.any()
    for count in (1, 2):
        layer(torch.ones(1, 3)).sum().backward()
        assert layer.weight.grad is held
        assert torch.equal(held, torch.full((2, 3), float(count)))
        hold_gradients(layer)


def test_activations_are_computed_anew_where_that_is_asked_for(toy_csv: Path, tmp_path: Path) -> None:
    for anew in (False, True):
        backbone = {"kind": "transformer", "d_model": 16, "num_heads": 2}
        model, made = ForecastingModule(backbone, activation_checkpointing=anew), trainer(tmp_path, max_steps=1)
        made.fit(model, windows_of(toy_csv))
        made.save_checkpoint(tmp_path / "one.ckpt")
        assert [part.recompute for part in model.backbone.modules() if isinstance(part, Encoder)] == [anew]
        # a checkpoint of one loads into the other
        other = {"activation_checkpointing": not anew, "weights_only": True}
        ForecastingModule.load_from_checkpoint(tmp_path / "one.ckpt", **other)


@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_cuda_graphs_train_as_eager_does(toy_csv: Path, tmp_path: Path, mode: str, accumulate: int) -> None:
    weights = []
    for compile_mode in (None, mode):
        torch.manual_seed(0)
        data = windows_of(toy_csv, 32)
        model = ForecastingModule(
            {"kind": "transformer", "d_model": 16, "num_heads": 2, "dropout": 0.0}, compile_mode=compile_mode
        )
        options = {"accumulate_grad_batches": accumulate, "gradient_clip_val": 1.0, "accelerator": "cuda"}
        fitted = trainer(tmp_path, max_epochs=3, **options)
        fitted.fit(model, data)
        fitted.test(model, data, verbose=False)
        weights.append(torch.cat([weight.detach().cpu().flatten() for weight in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-2, atol=1e-3)
