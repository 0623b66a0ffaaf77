"""What an outsider would try: seeds that nobody names, callbacks with a state, data that changed, values of Python."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback

import tsattn
from tests.experiments.golden import ENSEMBLE, NETWORK, SIZES, STEPS, described, sales
from tsattn.errors import UserError
from tsattn.experiments import RunFolder


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
    with pytest.raises(UserError, match=r"the data are not those that the run .* was begun with"):
        tsattn.resume(tmp_path / "run")


def test_a_run_without_a_test_has_none_when_it_goes_on(tmp_path: Path) -> None:
    tsattn.run(described(tmp_path, NETWORK), tmp_path / "run", test=False)
    (tmp_path / "run" / "metrics.json").unlink()
    assert not tsattn.resume(tmp_path / "run").tables


def test_data_that_are_given_must_be_those_that_are_described(tmp_path: Path) -> None:
    content = described(tmp_path, "ridge")
    other = tsattn.CSVDataModule(str(tmp_path / "sales.csv"), **{**SIZES, "context_length": 12})
    with pytest.raises(UserError, match="the data that are given have context_length 12, and the experiment says 24"):
        tsattn.run(content, data=other)


def mapped(folder: Path) -> dict[str, Any]:
    sales()[["unique_id", "ds", "y"]].to_parquet(folder / "sales.parquet")
    data = {"class_path": "MappedDataModule", "init_args": {"path": str(folder / "sales.parquet"), **SIZES}}
    return {"data": data, "model": {"backbone": "ridge"}, "trainer": STEPS}


def test_data_larger_than_memory_are_forecast_and_fitted_once_more(tmp_path: Path) -> None:
    result = tsattn.run(mapped(tmp_path), refit=True)
    forecaster = tsattn.Forecaster.of(result)
    forecast = forecaster.predict()
    assert len(forecast) == 3 * 6
    again = forecaster.predict(sales()[["unique_id", "ds", "y"]])
    assert np.allclose(again["predictions"], forecast["predictions"])


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
    assert tsattn.Experiment.of(content).data["init_args"]["context_length"] == 24
    content["trainer"]["callbacks"] = [CountedSteps()]
    with pytest.raises(UserError, match=r"is none; callbacks that are made already go into Hooks"):
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
