"""A fit to all rows, at the length that validation chose."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from tests.cli.test_predictors import (  # noqa: F401
    ENSEMBLE,
    assert_same_weights,
    config,
    fit,
    metrics,
    predicted,
    weights,
)
from tests.cli.toy_run import interrupted, refusal
from tsattn import Experiment
from tsattn.cli import main
from tsattn.errors import rounded
from tsattn.experiments import RunFolder
from tsattn.predictors import build_predictor
from tsattn.ridge.closed_form import ridge_maps
from tsattn.task import Output
from tsattn.training import TrainerOptions, Training
from tsattn.training.execution import own_random_state


class Keep(Callback):
    """Keeps the weights after a step, and lets the training go on."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.kept: dict[str, torch.Tensor] = {}

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step:
            self.kept = {name: tensor.clone() for name, tensor in pl_module.backbone.state_dict().items()}


def kept_of_all_rows(run: Path, step: int) -> dict[str, torch.Tensor]:
    """The weights after a step of a plain training on all rows."""
    experiment = Experiment.read(run / "config.yaml")
    data = experiment.data_module()
    data.prepare("fit")
    whole = data.with_all_rows()
    assert len(whole.windows("train")) == 400 - 48 - 6 + 1
    predictor = build_predictor(experiment.model["backbone"])
    predictor.build(whole.task, Output(tuple(experiment.model["quantiles"])))
    keep = Keep(step)
    with own_random_state(experiment.seed):
        options = TrainerOptions.of(experiment.trainer_arguments())
        predictor.fit(whole, Training(options, experiment.training_options, experiment.seed, callbacks=[keep]))
    return keep.kept


def test_a_refit_is_a_training_on_all_rows_to_the_length_that_validation_chose(
    config: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, plain = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "plain")
    # of few rows, so that the last step is not the best
    rows = ["--data.train_fraction=0.2", "--trainer.max_steps=60", "--model.learning_rate=0.05"]
    assert fit(config, run.path, "--refit", *rows) == 0
    assert "refitted on all rows" in capsys.readouterr().out
    found = metrics(run.path)
    assert 0 < found["best_step"] < 60
    assert found["refit"] == {"rows": "all", "steps": found["best_step"]}
    assert_same_weights(weights(run.refit), kept_of_all_rows(run.path, found["best_step"]))
    assert fit(config, plain.path, *rows) == 0
    assert_same_weights(weights(run.best), weights(plain.best))
    assert found["test"] == metrics(plain.path)["test"]
    capsys.readouterr()
    assert main(["test", "--run", str(run.path)]) == 0
    row = next(row for row in capsys.readouterr().out.splitlines() if row.startswith("patchtst"))
    assert rounded(found["test"]["patchtst_standard"]["mse_scaled"]) in row
    frame = predicted(run.path, tmp_path / "run.csv")
    assert f"forecasting with {run.refit}, refitted on all rows\n" in capsys.readouterr().out
    other = predicted(plain.path, tmp_path / "plain.csv")
    assert "refitted" not in capsys.readouterr().out
    assert not np.allclose(frame.predictions, other.predictions, rtol=1e-4)
    words = ["predict", "--run", str(run.path), f"--ckpt_path={run.best}", f"--output={tmp_path / 'best.csv'}"]
    assert main(words) == 0
    assert "refitted" not in capsys.readouterr().out
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "best.csv", parse_dates=["date"]), other)
    run.refit.write_bytes(run.best.read_bytes())
    assert "checkpoints/refit.ckpt is missing or was changed" in refusal(words[:3], capsys)


def test_a_refit_solves_for_the_ridge_of_its_linear_path_as_validation_chose(config: Path, tmp_path: Path) -> None:  # noqa: F811
    run = RunFolder(tmp_path / "run")
    assert fit(config, run.path, "--refit", "--model.backbone.linear_path=ridge", "--trainer.max_steps=4") == 0
    maps = metrics(run.path)["chosen"]["maps"]
    assert torch.load(run.best, weights_only=True)["maps"] == maps, "for a run that goes on"
    data = Experiment.read(run.path / "config.yaml").data_module()
    data.prepare("fit")
    for one, file in ((data, run.best), (data.with_all_rows(), run.refit)):
        _, (weight, waves, _) = ridge_maps(one, [], chosen=maps)
        path = {name.rpartition(".")[2]: part for name, part in weights(file).items() if "path.w" in name}
        torch.testing.assert_close(path["weight"][:, -weight.shape[1] :].double(), weight, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(path["waves"].double(), waves, rtol=1e-5, atol=1e-7)


def test_a_run_that_goes_on_is_refitted_where_that_was_or_is_asked_for(
    config: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, run, later = (RunFolder(tmp_path / name) for name in ("whole", "run", "later"))
    assert fit(config, whole.path, "--refit") == 0
    with monkeypatch.context() as patched:
        patched.setattr("tsattn.experiments.running._refitted", interrupted)
        assert fit(config, run.path, "--refit") == 130
    assert not run.refit.exists()
    assert main(["fit", "--resume", str(run.path)]) == 0
    assert fit(config, later.path) == 0
    before = metrics(later.path)
    assert main(["fit", "--resume", str(later.path), "--refit"]) == 0
    assert json.loads((later.path / "metrics_step_12.json").read_text())["test"] == before["test"]
    for other in (run, later):
        assert_same_weights(weights(other.refit), weights(whole.refit))
        assert metrics(other.path) == metrics(whole.path)
    capsys.readouterr()
    assert "is finished" in refusal(["fit", "--resume", str(later.path), "--refit"], capsys)
    assert main(["fit", "--resume", str(later.path), "--trainer.max_steps=15"]) == 0
    found = metrics(later.path)
    assert found["refit"]["steps"] == found["best_step"]
    longer = weights(later.refit)
    assert_same_weights(longer, kept_of_all_rows(later.path, found["best_step"]))
    assert not all(torch.equal(tensor, longer[name]) for name, tensor in weights(whole.refit).items())
