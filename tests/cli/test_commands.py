"""fit, validate, test and predict as a person types them, on a toy file."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.cli.toy_run import TINY, fit, refusal
from tsattn.cli import main
from tsattn.experiments import Experiment
from tsattn.training import ForecastingModule


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_fit_leaves_everything_in_its_folder(trained: tuple[Path, Path]) -> None:
    _, run = trained
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    wanted = {"config.yaml", "metrics.json", "metrics.csv", "versions.json", "forecast.png", "SHA256SUMS", ".lock"}
    own = {name for name in files if not name.startswith("tensorboard")}
    assert own == wanted | {"errors.parquet", "checkpoints/best.ckpt", "checkpoints/last.ckpt"}
    assert len(files) == len(own) + 2, "for TensorBoard"
    metrics = read(run / "metrics.json")
    assert metrics["test_windows"] == 120 - 12 + 1
    names = ["patchtst_mlr", "ridge (context 96)", "seasonal naive (24 steps)", "persistence"]
    assert list(metrics["test"]) == names
    scale = {"wave": 3 / np.sqrt(2), "drift": 0.01 * 420 / np.sqrt(12)}
    for line in metrics["test"].values():
        assert line["windows"] == metrics["test_windows"]
        assert min(scale.values()) < line["mae_original"] / line["mae_scaled"] < max(scale.values())
    assert metrics["test"]["persistence"]["mse_scaled"] > metrics["test"]["ridge (context 96)"]["mse_scaled"]
    assert {"torch", "lightning", "tsattn", "device", "command"} <= set(read(run / "versions.json"))
    assert pd.read_csv(run / "metrics.csv").val_mse_scaled.notna().sum() == 1


def test_runs_are_filed_by_data_and_model(toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *TINY, f"--data.path={toy_csv}", "--attention", "[swa, standard]"]) == 0
    assert len(list((tmp_path / "runs" / "toy" / "patchtst_swa_standard").iterdir())) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "toy.csv"}


def test_lines_on_a_pipe_say_how_far_the_training_is_and_the_end_compares(
    toy_csv: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, recwarn: Any
) -> None:
    monkeypatch.setattr("tsattn.training.callbacks._SAY_EVERY", 0)
    words = [*TINY[:-1], f"--data.path={toy_csv}", f"--run={tmp_path / 'run'}", "--trainer.max_steps=3"]
    assert main(["fit", *words, "--trainer.val_check_interval=1", "--detail"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert [str(warning.message) for warning in recwarn] == []
    said = out.splitlines()
    assert said[0] == "toy: 2 channels, context 48, horizon 12, 361 training windows"
    steps = [line for line in said if line.startswith("step ")]
    assert [line.partition(";")[0] for line in steps] == ["step 1 of 3", "step 2 of 3"]
    assert re.fullmatch(r"step 2 of 3; loss \S+; validation error \S+; \d+ s left", steps[1]), steps
    assert "in original units" in said
    assert re.search(r"\npatchtst_standard: MSE .* seasonal naive, .* the linear model\.\n", out), out
    assert "The linear model saw 96 steps, yours 48; try --data.context_length 96." in said
    assert "%|" not in out


def test_predict_from_a_file_goes_beyond_its_end_by_the_saved_scaler(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    csv, run = trained
    table = pd.read_csv(csv, parse_dates=["date"])
    files = {
        # only the last rows, the columns in another order, one more: what counts is the last context
        "whole": table[["date", "drift", "wave"]].assign(other=1.0).iloc[-60:],
        "moved": table.assign(wave=table.wave + 5),
    }
    frames = {}
    for name, source in {"own": None, **files}.items():
        words = ["predict", "--run", str(run), "--output", str(tmp_path / f"{name}.parquet"), "--figure=false"]
        if source is not None:
            source.to_csv(tmp_path / f"{name}.csv", index=False)
            words += ["--input", str(tmp_path / f"{name}.csv")]
        assert main(words) == 0
        frames[name] = pd.read_parquet(tmp_path / f"{name}.parquet")
    own = frames["own"]
    assert list(own.columns) == ["unique_id", "date", "predictions"]
    assert own.unique_id.tolist() == ["wave"] * 12 + ["drift"] * 12
    expected = pd.date_range(table.date.iloc[-1], periods=13, freq="h")[1:]
    assert (own.date.to_numpy() == np.tile(expected.to_numpy(), 2)).all()
    for part, low, high in ((own.predictions[:12], 6, 14), (own.predictions[12:], 4.5, 7.5)):
        assert low < part.min() < part.max() < high
    pd.testing.assert_frame_equal(own, frames["whole"])
    # instance normalisation moves the forecast along: a scaler fitted anew would not
    shift = frames["moved"].predictions - own.predictions
    np.testing.assert_allclose(shift, [5] * 12 + [0] * 12, atol=1e-3)


def test_the_curve_holds_the_loss_of_its_own_step_and_so_has_tensorboard(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, run = [], tmp_path / "run"
    step = ForecastingModule.training_step

    def recorded(self: ForecastingModule, batch: object, batch_idx: int) -> object:
        losses.append(step(self, batch, batch_idx))  # type: ignore[arg-type]
        return losses[-1]

    monkeypatch.setattr(ForecastingModule, "training_step", recorded)
    assert fit(toy_csv, run, "--trainer.max_epochs=4", "--trainer.log_every_n_steps=5") == 0
    curve = pd.read_csv(run / "metrics.csv").dropna(subset="train_loss")
    assert curve.step.tolist() == [4, 9, 14, 19]
    assert curve.epoch.tolist() == [0.83, 1.67, 2.5, 3.33]  # of 6 batches each
    np.testing.assert_allclose(curve.train_loss, [losses[s].item() for s in curve.step], rtol=1e-5)
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    for name in ("train_loss", "epoch"):
        shown = {point.step: point.value for point in events.Scalars(name)}
        np.testing.assert_allclose(
            [shown[step] for step in curve.step], curve[name], rtol=1e-6 if name != "epoch" else 6e-3
        )


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit):
        main(["fit", *words, "--print_config"])
    return capsys.readouterr().out


def test_flags_merge_into_the_description(capsys: pytest.CaptureFixture[str]) -> None:
    for words, backbone in (
        (["--attention.blocks", "[1, 4, 8]"], {"attention": {"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 4, 8]}}),
        (["--attention.kind=swa", "--attention.window_size=9"], {"attention": {"kind": "swa", "window_size": 9}}),
        (["--model.backbone.d_model=16", "--model.backbone=patchtst"], {"kind": "patchtst", "d_model": 16}),
        (["--model.backbone.d_model=16", "--model.backbone.kind=patchtst"], {"kind": "patchtst", "d_model": 16}),
    ):
        found = yaml.safe_load(printed(capsys, "--config", "co2_mlr", *words))["model"]["backbone"]
        assert found == ({**found, "d_model": 64, **backbone} if "attention" in backbone else backbone)


def test_a_printed_configuration_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, "--config", "co2_mlr.yaml", "--attention.blocks=[1, 4, 8]")
    (tmp_path / "0.yaml").write_text(first)
    assert printed(capsys, "--config", str(tmp_path / "0.yaml")) == first
    assert list(yaml.safe_load(first)) == ["seed_everything", "data", "model", "trainer"]
    overrides = {"model.backbone.attention.blocks": [1, 4, 8]}
    assert Experiment.read(tmp_path / "0.yaml").key == Experiment.read("co2_mlr.yaml", overrides).key
    (tmp_path / "own.yaml").write_text("model: {loss: mae}\ndata: {class_path: ETTh1}\nmodel: {mup: true}\n")
    said = refusal(["fit", "--config", str(tmp_path / "own.yaml")], capsys)
    assert "own.yaml is not YAML: the key 'model' is there twice" in said


def test_damaged_versions_of_a_run_are_named(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[1], run)
    for content in ("[]", "{"):
        (run / "versions.json").write_text(content)
        said = refusal(["test", "--run", str(run)], capsys)
        assert "versions.json is damaged: it holds no JSON object" in said


def test_predict_from_fewer_rows_than_the_context_warns_of_it_once(
    trained: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    short, output = tmp_path / "short.csv", tmp_path / "o.csv"
    pd.read_csv(csv).iloc[-20:].assign(rain=1).to_csv(short, index=False)
    words = ["predict", "--run", str(run), "--input", str(short), "--output", str(output), "--figure=false"]
    for more in ([], ["--overwrite"]):  # a handler that stays would repeat every line
        assert main([*words, *more]) == 0
        assert capfd.readouterr().err.splitlines() == [
            f"warning: {short}: column rain is not used (name covariates to use them)",
            "warning: 1 of 1 series have fewer rows than context_length 48; their contexts are padded",
        ]


def test_a_path_is_enough(toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read by `CSVDataModule`, a folder that was converted by `MappedDataModule`."""
    monkeypatch.chdir(tmp_path)
    assert main(["datasets", "convert", str(toy_csv), "arrays"]) == 0
    words = ["--data.context_length=48", "--data.prediction_length=12", "--model.backbone=ridge"]
    for path, cls in ((str(toy_csv), "CSVDataModule"), ("arrays", "MappedDataModule")):
        assert main(["fit", *words, path, f"--run={cls}"]) == 0
        assert Experiment.read(tmp_path / cls / "config.yaml").data["class_path"].endswith(cls)
