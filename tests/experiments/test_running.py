"""A run from Python: what comes back, what is written, what is left as it was, and what it takes to resume one."""

import json
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

import tsattn
from tests.experiments.golden import ENSEMBLE, NETWORK, SIZES, STEPS, described, sales
from tests.ops.native.kernels_there import needs_kernels
from tsattn.errors import UserError
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment, Hooks, RunFolder, resume, run
from tsattn.leaderboard.plan import member_experiments
from tsattn.ops.dropout import native_dropout_left
from tsattn.predictors.network import NetworkPredictor
from tsattn.training.train import all_fits


@pytest.mark.parametrize("backbone", ["ridge", ENSEMBLE], ids=["ridge", "ensemble"])
def test_a_folder_holds_the_run_and_nothing_is_left_of_it_elsewhere(
    backbone: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = described(tmp_path, backbone)
    result = tsattn.run(content, "run", {"seed_everything": 3})
    assert {path.name for path in tmp_path.iterdir()} == {"run", "sales.csv"}
    folder = tmp_path / "run"
    assert result.folder == Path("run")
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["key"] == result.key == tsattn.Experiment.read(folder / "config.yaml").key
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed_everything"] == 3
    assert json.loads((folder / "versions.json").read_text())["format"] == 2
    scores = result.scores
    assert list(scores.index)[1:] == list(metrics["test"])[1:]
    assert metrics["test"][scores.index[0]]["mse_scaled"] == scores["mse_scaled"].iloc[0]
    assert metrics["validation_error"] == result.fit["validation_error"]
    read = ErrorTable.read(folder / "errors.parquet")
    assert read.scores() == pytest.approx(result.errors.scores(), nan_ok=True)
    frame = result.errors.frame()
    assert frame["squared_scaled"].sum() / frame["count"].sum() == pytest.approx(scores["mse_scaled"].iloc[0])
    assert not frame.duplicated(["unique_id", "origin", "channel"]).any()


def test_without_a_test_the_test_part_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = tsattn.ForecastDataModule.eval_dataloader

    def eval_dataloader(self: Any, part: str, *args: Any, **options: Any) -> Any:
        assert part != "test"
        return loader(self, part, *args, **options)

    monkeypatch.setattr(tsattn.ForecastDataModule, "eval_dataloader", eval_dataloader)
    for backbone in (NETWORK, "ridge", ENSEMBLE):
        result = tsattn.run(described(tmp_path, backbone), test=False)
        assert not result.tables
        assert result.errors is None
        assert np.isfinite(result.fit["validation_error"])


@pytest.mark.parametrize(
    ("loss", "quantiles", "selection", "error"),
    [
        ("mae", [], None, "mae_scaled"),
        ("huber", [], None, "mse_scaled"),
        (None, [0.1, 0.5, 0.9], None, "crps_scaled"),
        (None, [0.1, 0.5, 0.9], "mae", "mae_scaled"),
        ("mse", [], "mae", "mae_scaled"),
    ],
)
def test_weights_are_selected_by_the_validation_error_of_what_is_trained(
    loss: str | None, quantiles: list[float], selection: str | None, error: str, tmp_path: Path
) -> None:
    options = {"loss": loss, "quantiles": quantiles, "selection": selection}
    content = described(tmp_path, NETWORK, **options, data={"val_windows": "all"})
    result = tsattn.run(content, tmp_path / "run")
    assert result.fit["selected_by"] == error
    # what is written down is the error of the weights that were chosen, over all validation windows
    curve = np.genfromtxt(tmp_path / "run" / "metrics.csv", delimiter=",", names=True)
    errors = curve[f"val_{error}"]
    assert result.fit["validation_error"] == pytest.approx(np.nanmin(errors), rel=1e-6)


class CountedSteps(Callback):
    """Ends a training after some steps in all that this instance has seen."""

    def __init__(self, most: int = 5) -> None:
        self.left = most

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        self.left -= 1
        trainer.should_stop = trainer.should_stop or self.left <= 0


COUNTED = {"callbacks": [{"class_path": f"{__name__}.CountedSteps"}], **STEPS, "val_check_interval": 1}


def test_members_of_an_unseeded_ensemble_differ(tmp_path: Path) -> None:
    content = {**described(tmp_path, ENSEMBLE), "seed_everything": False}
    state = tsattn.run(content, test=False).fitted.predictor.state_dict()
    first, second = (
        [tensor for name, tensor in state.items() if name.startswith(f"members.1.{seed}.") and tensor.dim() > 1]
        for seed in (0, 1)
    )
    assert first
    assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True) if one.any())


def test_each_member_and_the_refit_have_callbacks_of_their_own(tmp_path: Path) -> None:
    content = described(tmp_path, ENSEMBLE, trainer=COUNTED)
    result = tsattn.run(content, test=False)
    assert [fit["training"]["steps"] for fit in result.fit["members"][1]] == [5, 5]
    again = tsattn.run(described(tmp_path, NETWORK, trainer=COUNTED), test=False, refit=True)
    weights = [one.predictor.state_dict() for one in (again.fitted, again.refitted)]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize("backbone", [NETWORK, "ridge"], ids=["network", "ridge"])
def test_a_run_does_not_go_on_with_other_data(backbone: Any, tmp_path: Path) -> None:
    tsattn.run(described(tmp_path, backbone), tmp_path / "run")
    (tmp_path / "run" / "metrics.json").unlink()
    again = tsattn.resume(tmp_path / "run")
    assert again.tables
    (tmp_path / "run" / "metrics.json").unlink()
    table = sales()
    table.assign(y=100 * table["y"]).to_csv(tmp_path / "sales.csv", index=False)
    with pytest.raises(UserError, match=r"the data have changed since the run .* began"):
        tsattn.resume(tmp_path / "run")


def test_a_run_without_a_test_has_none_when_it_goes_on(tmp_path: Path) -> None:
    tsattn.run(described(tmp_path, NETWORK), tmp_path / "run", test=False)
    (tmp_path / "run" / "metrics.json").unlink()
    assert not tsattn.resume(tmp_path / "run").tables


def test_a_recorded_run_hashes_its_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []
    for name in ("running", "experiment"):
        monkeypatch.setattr(f"tsattn.experiments.{name}.fingerprint", lambda data: hashed.append(data) or "ab")
    tsattn.run(described(tmp_path, "ridge"), tmp_path / "run")
    assert len(hashed) == 1


class Slow(Callback):
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        time.sleep(batch_idx == 0)


@pytest.mark.parametrize(("backbone", "slept"), [(NETWORK, 1), (ENSEMBLE, 2)], ids=["network", "ensemble"])
def test_a_resumed_run_keeps_the_seconds_before(backbone: Any, slept: int, tmp_path: Path) -> None:
    slow = {"callbacks": [{"class_path": f"{__name__}.Slow"}], **STEPS}
    tsattn.run(described(tmp_path, backbone, trainer=slow), tmp_path / "run", test=False)
    result = tsattn.resume(tmp_path / "run", refit=True)
    assert RunFolder(tmp_path / "run").fit_seconds > slept
    trained = [fit["training"] for fit in all_fits(result.fit) if "training" in fit]
    assert len(trained) == slept
    for training in trained:
        assert training["seconds"] > training["earlier_seconds"] > 1
        assert training["windows_per_second"] > 0


def test_data_that_are_given_must_be_those_that_are_described(tmp_path: Path) -> None:
    content = described(tmp_path, "ridge")
    other = tsattn.CSVDataModule(str(tmp_path / "sales.csv"), **{**SIZES, "context_length": 12})
    with pytest.raises(UserError, match="the given data have context_length 12, but the experiment has 24"):
        tsattn.run(content, data=other)


def test_a_refit_that_fails_loses_no_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, **options: Any) -> None:
        raise UserError("no")

    monkeypatch.setattr(tsattn.ForecastDataModule, "with_all_rows", fail)
    with pytest.raises(UserError, match="no"):
        tsattn.run(described(tmp_path, "ridge"), tmp_path / "run", refit=True)
    assert json.loads(RunFolder(tmp_path / "run").metrics.read_text())["test"]


def test_values_of_python_are_plain_data(tmp_path: Path) -> None:
    content = described(tmp_path, NETWORK, data={"path": tmp_path / "sales.csv", "context_length": np.int64(24)})
    content["trainer"]["max_time"] = timedelta(minutes=1)
    assert tsattn.run(content, test=False).experiment.trainer["max_time"] == "00:00:01:00"
    assert tsattn.Experiment.of(content).data["init_args"]["context_length"] == 24
    content["data"]["init_args"]["id_column"] = "#id"
    assert tsattn.Experiment.of(content).data["init_args"]["id_column"] == "#id"
    content["trainer"]["callbacks"] = [CountedSteps()]
    with pytest.raises(UserError, match=r"; pass callback objects with Hooks"):
        tsattn.Experiment.of(content)


def test_the_two_zeros_and_all_missing_values_are_one_in_data_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pd.DataFrame(
        {"date": pd.date_range("2020", periods=200, freq="h"), "a": np.tile([0.0, 1.0, np.nan, 2], 50)}
    )
    keys = []
    for zero in (0.0, -0.0):
        table.assign(a=table["a"].where(table["a"] != 0, zero)).to_parquet(tmp_path / "t.parquet")
        for chunk in (1 << 26, 64):
            monkeypatch.setattr("tsattn.experiments.experiment._CHUNK", chunk)
            data = {"class_path": "CSVDataModule", "init_args": {"path": str(tmp_path / "t.parquet"), **SIZES}}
            keys.append(tsattn.Experiment.of({"data": data, "model": {"backbone": "ridge"}}).key)
    assert len(set(keys)) == 1


def gone_on_with(folder: Path, copy: Path, *, noted: bool | None) -> float:
    """The validation error of a copy of a run that is trained longer, with another note of its dropout."""
    shutil.copytree(folder, copy)
    versions = json.loads((copy / "versions.json").read_text())
    versions["kernels"].pop("dropout")
    if noted is not None:
        versions["kernels"]["dropout"] = noted
    (copy / "versions.json").write_text(json.dumps(versions))
    error: float = resume(copy, {"max_steps": 12}).fit["validation_error"]
    return error


def test_the_curve_of_a_run_that_is_trained_longer_has_the_steps_of_its_new_plan(tmp_path: Path) -> None:
    """The first plan has one validation, at its end, where the new one has none."""
    experiment = described(tmp_path, NETWORK, trainer={"max_steps": 14, "val_check_interval": None})
    run(experiment, tmp_path / "run", test=False)
    resume(tmp_path / "run", {"max_steps": 30})
    curve = pd.read_csv(tmp_path / "run" / "metrics.csv")
    assert curve["step"][curve["val_mse_scaled"].notna()].tolist() == [13, 19, 29]
    assert curve["step"][curve["train_loss"].notna()].tolist() == [9, 19, 29]


def test_a_run_that_ended_early_is_trained_longer(tmp_path: Path) -> None:
    experiment = described(tmp_path, NETWORK, trainer={"max_steps": 20, "val_check_interval": 2})
    experiment["model"] |= {"patience": 1, "min_delta": 1e9}
    assert run(experiment, tmp_path / "run", test=False).fit["training"]["steps"] == 4
    assert resume(tmp_path / "run", {"max_steps": 30}).fit["training"]["steps"] == 6


@needs_kernels
def test_a_run_goes_on_with_the_dropout_that_it_was_begun_with(tmp_path: Path) -> None:
    experiment = described(tmp_path, {**NETWORK, "dropout": 0.5}, trainer={"max_steps": 4})
    folder = tmp_path / "run"
    with native_dropout_left():
        run(experiment, folder, test=False)
        assert json.loads((folder / "versions.json").read_text())["kernels"]["dropout"] is False
        expected = gone_on_with(folder, tmp_path / "left", noted=True)
    # a note of False, and none, which is of a run from before it was among the kernels
    assert gone_on_with(folder, tmp_path / "off", noted=False) == expected
    assert gone_on_with(folder, tmp_path / "before", noted=None) == expected
    assert gone_on_with(folder, tmp_path / "on", noted=True) != expected


MEMBER: dict[str, Any] = {
    **{"kind": "patchtst", "patch_len": 8, "stride": 8, "d_model": 8, "num_heads": 2, "num_layers": 1},
    **{"dropout": 0.1, "attention": {"kind": "mlr", "ranks": [2, 2]}},
}


def experiment(backbone: Any, **values: Any) -> Experiment:
    sizes = {"context_length": 48, "prediction_length": 8, "batch_size": 32}
    return Experiment.of(
        {
            "seed_everything": 3,
            "data": {"class_path": "CO2DataModule", "init_args": sizes},
            "model": {"backbone": backbone, "learning_rate": 0.01},
            "trainer": {"max_steps": 6, "val_check_interval": 2, "accelerator": "cpu"},
        }
    ).with_values(values)


OTHER = {**MEMBER, "attention": "standard", "context_length": 64, "loss": "mae", "learning_rate": 0.002, "max_steps": 4}
MIXED = {"kind": "ensemble", "members": [MEMBER, "ridge", OTHER], "weights": [2, 1, 1], "seeds": 2}


def test_an_ensemble_of_stored_members_is_the_one_that_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = experiment(MIXED)
    whole = run(ensemble)
    folders = {}
    for name, alone in member_experiments(ensemble).items():
        result = run(alone, tmp_path / name, hooks=Hooks(with_baselines=False))
        folders[name] = tmp_path / name
        assert list(result.tables) == [result.fitted.predictor.name]  # no baseline beside it
        assert not (tmp_path / name / "forecast.png").exists()

    def never(*args: object, **options: object) -> None:
        raise AssertionError("a member was trained again")

    said: list[str] = []
    monkeypatch.setattr(NetworkPredictor, "fit", never)
    hooks = Hooks(member_folder=folders.get, say=said.append)
    for folder in folders.values():
        RunFolder(folder).note("fit_seconds", 1000.0)
    again = run(ensemble, tmp_path / "ensemble", hooks=hooks)
    earlier = [one.get("earlier_fit_seconds") for copies in again.fit["members"] for one in copies]
    known = [seconds for seconds in earlier if seconds is not None]
    assert len(known) == len(folders)
    assert set(known) == {1000.0}
    assert again.key == whole.key
    assert sum(", loaded from " in line for line in said) == 4
    state, expected = again.fitted.predictor.state_dict(), whole.fitted.predictor.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)
    assert again.scores.equals(whole.scores)
    for fit in (whole.fit, again.fit):
        for one in (copy for copies in fit["members"] for copy in copies):
            for name in ("training", "earlier_fit_seconds"):
                one.pop(name, None)
    assert again.fit["members"] == whole.fit["members"]
    monkeypatch.undo()
    refitted = run(ensemble, tmp_path / "refitted", refit=True, hooks=hooks).refitted
    assert not torch.equal(*(one.predictor.state_dict()["members.1.0.weight"] for one in (refitted, whole.fitted)))
    name = next(name for name in state if name.startswith("members.0.0.") and state[name].dim() > 1)
    assert not torch.equal(refitted.predictor.state_dict()[name], state[name])  # trained once more, to all rows


def test_a_run_of_something_else_is_not_taken(tmp_path: Path) -> None:
    run(experiment(MEMBER, **{"model.backbone.num_layers": 2}), tmp_path / "wide", hooks=Hooks(with_baselines=False))
    with pytest.raises(UserError, match="checkpoint is of another model"):
        run(experiment(MIXED), hooks=Hooks(member_folder=lambda one: tmp_path / "wide"))
    shorter = experiment(MEMBER, **{"data.context_length": 40})
    run(shorter, tmp_path / "short", hooks=Hooks(with_baselines=False))
    with pytest.raises(UserError, match=r"the run .*short was fitted to other data"):
        run(experiment(MIXED), hooks=Hooks(member_folder=lambda one: tmp_path / "short"))
