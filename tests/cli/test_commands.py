"""fit, validate, test and predict as a person types them, on a toy file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.cli.toy_run import TINY, fit
from tsattn.cli import main
from tsattn.errors import rounded
from tsattn.experiments import Experiment
from tsattn.training import ForecastingModule


def test_fit_leaves_everything_in_its_folder(trained: tuple[Path, Path]) -> None:
    _, run = trained
    files = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    wanted = {"config.yaml", "metrics.json", "metrics.csv", "versions.json", "forecast.png", "SHA256SUMS", ".lock"}
    wanted |= {"errors.parquet"}
    own = {str(path) for path in files if path.parts[0] != "tensorboard"}
    assert own == wanted | {"checkpoints/best.ckpt", "checkpoints/last.ckpt"}
    assert len(files) == len(own) + 2, "for TensorBoard"
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test_windows"] == 120 - 12 + 1
    names = ["patchtst_mlr", "ridge (context 204)", "seasonal naive (24 steps)", "persistence"]
    assert list(metrics["test"]) == names
    scale = {"wave": 3 / np.sqrt(2), "drift": 0.01 * 420 / np.sqrt(12)}
    for line in metrics["test"].values():
        assert line["windows"] == metrics["test_windows"]
        assert min(scale.values()) < line["mae_original"] / line["mae_scaled"] < max(scale.values())
    assert metrics["test"]["persistence"]["mse_scaled"] > metrics["test"]["ridge (context 204)"]["mse_scaled"]
    versions = json.loads((run / "versions.json").read_text())
    assert {"torch", "lightning", "tsattn", "device", "command"} <= set(versions)
    curve = pd.read_csv(run / "metrics.csv")
    assert curve.val_mse_scaled.notna().sum() == 1


def test_the_saved_configuration_is_complete_and_repeats_the_run(trained: tuple[Path, Path], tmp_path: Path) -> None:
    _, run = trained
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["backbone"]["attention"] == {
        "kind": "mlr",
        "ranks": [4, 2, 2],
        "blocks": None,
        "align": "end",
        "scaling": "head",
        "divide_by": "none",
    }
    assert {"positions", "dropout", "linear_path"} <= set(config["model"]["backbone"])
    assert config["data"]["init_args"]["context_length"] == 48
    assert main(["fit", "--config", str(run / "config.yaml"), "--run", str(tmp_path / "again")]) == 0
    first, again = (json.loads((folder / "metrics.json").read_text()) for folder in (run, tmp_path / "again"))
    assert first["test"] == again["test"]
    assert first["validation_error"] == again["validation_error"]


def test_runs_are_filed_by_data_and_model(toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["fit", *TINY, f"--data.path={toy_csv}", "--attention", "[swa, standard]"]) == 0
    runs = list((tmp_path / "runs" / "toy" / "patchtst_swa_standard").iterdir())
    assert len(runs) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "toy.csv"}


def test_lines_on_a_pipe_say_how_far_the_training_is_and_the_end_compares(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsattn.training.callbacks._SAY_EVERY", 0)
    words = [*TINY[:-1], f"--data.path={toy_csv}", f"--run={tmp_path / 'run'}", "--trainer.max_steps=3"]
    assert main(["fit", *words, "--trainer.val_check_interval=1", "--detail"]) == 0
    said = capsys.readouterr().out.splitlines()
    steps = [line for line in said if line.startswith("step ")]
    assert [line.partition(";")[0] for line in steps] == ["step 1 of 3", "step 2 of 3"]
    assert re.fullmatch(r"step 2 of 3; loss \S+; validation error \S+; \d+ s left", steps[1]), steps
    assert "in original units" in said
    assert any(re.match(r"patchtst_standard: MSE .* seasonal naive, .* the linear model\.$", line) for line in said), (
        said
    )
    assert "The linear model saw 204 steps, yours 48; try --data.context_length 204." in said


def test_test_repeats_the_figures_of_fit(trained: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, run = trained
    assert main(["test", "--run", str(run)]) == 0
    table = capsys.readouterr().out
    for name, line in json.loads((run / "metrics.json").read_text())["test"].items():
        row = next(row for row in table.splitlines() if row.startswith(name)).removeprefix(name)
        assert row.split()[:2] == [rounded(line["mse_scaled"]), rounded(line["mae_scaled"])]
    assert "109 test windows" in table


def test_predict_goes_beyond_the_end_in_original_units(trained: tuple[Path, Path], tmp_path: Path) -> None:
    csv, run = trained
    output = tmp_path / "out.csv"
    assert main(["predict", "--run", str(run), "--output", str(output)]) == 0
    frame = pd.read_csv(output, parse_dates=["date"])
    assert list(frame.columns) == ["unique_id", "date", "predictions"]
    assert frame.unique_id.tolist() == ["wave"] * 12 + ["drift"] * 12
    last = pd.read_csv(csv, parse_dates=["date"]).date.iloc[-1]
    expected = pd.date_range(last, periods=13, freq="h")[1:]
    for channel in ("wave", "drift"):
        assert (frame[frame.unique_id == channel].date.to_numpy() == expected.to_numpy()).all()
    wave = frame[frame.unique_id == "wave"].predictions
    assert 6 < wave.min() < wave.max() < 14
    drift = frame[frame.unique_id == "drift"].predictions
    assert 4.5 < drift.min() < drift.max() < 7.5


def test_predict_from_another_file_uses_the_saved_scaler(trained: tuple[Path, Path], tmp_path: Path) -> None:
    csv, run = trained
    table = pd.read_csv(csv, parse_dates=["date"])
    whole, cut, moved = tmp_path / "whole.csv", tmp_path / "cut.csv", tmp_path / "moved.csv"
    # only the last rows, the columns in another order, one more: what counts is the last context
    table[["date", "drift", "wave"]].assign(other=1.0).iloc[-60:].to_csv(whole, index=False)
    table.iloc[:-100].to_csv(cut, index=False)
    table.assign(wave=table.wave + 5).to_csv(moved, index=False)
    frames = {}
    for name, source in {"own": None, "whole": whole, "cut": cut, "moved": moved}.items():
        output = tmp_path / f"{name}.parquet"
        words = ["predict", "--run", str(run), "--output", str(output)]
        assert main(words if source is None else [*words, "--input", str(source)]) == 0
        frames[name] = pd.read_parquet(output)
    pd.testing.assert_frame_equal(frames["own"], frames["whole"])
    assert frames["cut"].date.iloc[0] == table.date.iloc[-101] + pd.Timedelta(hours=1)
    assert len(frames["cut"]) == 2 * 12
    # instance normalisation moves the forecast along: a scaler fitted anew would not
    shift = frames["moved"].predictions - frames["own"].predictions
    np.testing.assert_allclose(shift[:12], 5, atol=1e-3)
    np.testing.assert_allclose(shift[12:], 0, atol=1e-3)


def test_predict_writes_into_the_run_folder_once(
    trained: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = trained
    output = run / "forecast.csv"
    try:
        assert main(["predict", "--run", str(run)]) == 0
        before = output.read_bytes()
        assert main(["predict", "--run", str(run)]) == 2
        assert "exists already; name another file with --output, or add --overwrite" in capsys.readouterr().err
        assert output.read_bytes() == before
        assert main(["predict", "--run", str(run), "--overwrite"]) == 0
    finally:
        output.unlink(missing_ok=True)
        (run / "forecast_plot.png").unlink(missing_ok=True)


def test_fit_is_quiet_without_a_terminal(
    toy_csv: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert fit(toy_csv, tmp_path / "run") == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.splitlines()[0] == "toy: 2 channels, context 48, horizon 12, 361 training windows"
    assert "%|" not in out
    assert [str(warning.message) for warning in recwarn] == []


def test_the_curve_holds_the_loss_of_its_own_step(
    toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = []
    step = ForecastingModule.training_step

    def recorded(self: ForecastingModule, batch: object, batch_idx: int) -> object:
        losses.append(step(self, batch, batch_idx))  # type: ignore[arg-type]
        return losses[-1]

    monkeypatch.setattr(ForecastingModule, "training_step", recorded)
    assert fit(toy_csv, tmp_path / "run", "--trainer.max_epochs=4", "--trainer.log_every_n_steps=5") == 0
    curve = pd.read_csv(tmp_path / "run" / "metrics.csv").dropna(subset="train_loss")
    assert curve.step.tolist() == [4, 9, 14, 19]
    assert curve.epoch.tolist() == [0.83, 1.67, 2.5, 3.33]  # of 6 batches each
    np.testing.assert_allclose(curve.train_loss, [losses[s].item() for s in curve.step], rtol=1e-5)


def test_tensorboard_has_the_curve_too(toy_csv: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert fit(toy_csv, run, "--trainer.max_epochs=2", "--trainer.log_every_n_steps=3") == 0
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    curve = pd.read_csv(run / "metrics.csv").dropna(subset="train_loss")
    for name in ("train_loss", "epoch"):
        points = [point for point in events.Scalars(name) if point.step in set(curve.step)]
        shown = {point.step: point.value for point in points}
        np.testing.assert_allclose([shown[step] for step in curve.step], curve[name], rtol=1e-6)
    assert curve.epoch.tolist() == [0.5, 1.0, 1.5, 2.0]


def test_flags_merge_into_the_description(toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "--config", "co2_mlr.yaml", "--attention.blocks", "[1, 4, 8]", "--print_config"]
    with pytest.raises(SystemExit):
        main(words)
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"]["backbone"]["attention"] == {"kind": "mlr", "ranks": [4, 2, 2], "blocks": [1, 4, 8]}
    with pytest.raises(SystemExit):
        main(["fit", "--config", "co2_mlr", "--attention.kind=swa", "--attention.window_size=9", "--print_config"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"]["backbone"]["attention"] == {"kind": "swa", "window_size": 9}
    assert printed["model"]["backbone"]["d_model"] == 64


def test_a_printed_configuration_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", "--config", "co2_mlr.yaml", "--attention.blocks=[1, 4, 8]", "--print_config"]
    printed = []
    for number in range(2):
        with pytest.raises(SystemExit):
            main(words)
        printed.append(capsys.readouterr().out)
        file = tmp_path / f"{number}.yaml"
        file.write_text(printed[-1])
        words = ["fit", "--config", str(file), "--print_config"]
    assert printed[0] == printed[1]
    assert list(yaml.safe_load(printed[0])) == ["seed_everything", "data", "model", "trainer"]
    overrides = {"model.backbone.attention.blocks": [1, 4, 8]}
    assert Experiment.read(tmp_path / "0.yaml").key == Experiment.read("co2_mlr.yaml", overrides).key


@pytest.mark.parametrize(
    "words",
    [
        ["--model.backbone.d_model=16", "--model.backbone=patchtst"],
        ["--model.backbone.d_model=16", "--model.backbone.kind=patchtst"],
    ],
)
def test_arguments_may_stand_before_the_kind_that_they_are_of(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "--config", "co2_mlr.yaml", *words, "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out)["model"]["backbone"] == {"kind": "patchtst", "d_model": 16}


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("model: {loss: mae}\ndata: {class_path: ETTh1}\nmodel: {mup: true}\n")
    assert main(["fit", "--config", str(file)]) == 2
    assert "own.yaml is not YAML: the key 'model' is there twice" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[]", "{"])
def test_damaged_versions_of_a_run_are_named(
    trained: tuple[Path, Path], tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[1], run)
    (run / "versions.json").write_text(content)
    assert main(["test", "--run", str(run)]) == 2
    assert "versions.json is damaged: it holds no JSON object" in capsys.readouterr().err


def test_training_goes_on_from_a_checkpoint(
    trained: tuple[Path, Path], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    _, run = trained
    words = ["fit", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "last.ckpt")]
    assert main([*words, "--run", str(tmp_path / "on"), "--trainer.max_epochs", "2"]) == 0
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in (run, tmp_path / "on"))
    assert second["best_step"] > first["best_step"], "the best of the new folder"
    assert [str(warning.message) for warning in recwarn] == []


def test_predict_from_fewer_rows_than_the_context_warns_of_it_once(
    trained: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    table = pd.read_csv(csv, parse_dates=["date"]).iloc[-20:]
    table.loc[table.index[3], "wave"] = None
    table.drop(index=table.index[5]).assign(rain=1).to_csv(tmp_path / "short.csv", index=False)
    words = ["predict", "--run", str(run), "--input", str(tmp_path / "short.csv"), "--output", str(tmp_path / "o.csv")]
    assert main(words) == 0
    assert capfd.readouterr().err.splitlines() == [
        f"warning: {tmp_path / 'short.csv'}: column rain is not used (covariates are used if they are named)",
        f"warning: {tmp_path / 'short.csv'}: filled 1 missing time stamp in 1 of 1 series",
        f"warning: {tmp_path / 'short.csv'}: 1 of 38 values are missing; they are masked, never scored",
        "warning: 1 of 1 series have fewer rows than context_length 48; their contexts are padded",
    ]
    frame = pd.read_csv(tmp_path / "o.csv", parse_dates=["date"])
    assert frame.date.iloc[0] == table.date.iloc[-1] + pd.Timedelta(hours=1)
    assert np.isfinite(frame.predictions).all()
    assert main([*words, "--overwrite"]) == 0
    assert len(capfd.readouterr().err.splitlines()) == 4, "a handler that stays would repeat every line"


def test_a_path_is_enough(toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read by `CSVDataModule`, a folder that was converted by `MappedDataModule`."""
    monkeypatch.chdir(tmp_path)
    assert main(["datasets", "convert", str(toy_csv), "arrays"]) == 0
    words = ["--data.context_length=48", "--data.prediction_length=12", "--model.backbone=ridge"]
    for path, cls in ((str(toy_csv), "CSVDataModule"), ("arrays", "MappedDataModule")):
        assert main(["fit", path, *words, f"--run={cls}"]) == 0
        assert Experiment.read(tmp_path / cls / "config.yaml").data["class_path"].endswith(cls)
