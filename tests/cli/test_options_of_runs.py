"""What a run folder is used for: a figure, a longer training, scores by group, and another file like its own."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tests.cli.toy_run import TINY, fit, interrupted, refusal
from tests.forecaster.toys import frame_of
from tsattn.cli import main
from tsattn.errors import rounded
from tsattn.experiments.result import fitted_in
from tsattn.experiments.run_folder import RunFolder


@pytest.mark.usefixtures("drawn")
def test_predict_draws_its_forecast_and_says_where(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--run", str(trained[1]), "--output", str(tmp_path / "out.csv")]
    assert main(words) == 0
    assert f"{tmp_path / 'out_plot.png'}: plot of 2 channels\n" in capsys.readouterr().out
    assert (tmp_path / "out_plot.png").stat().st_size > 5000
    (tmp_path / "out.csv").unlink()
    assert "out_plot.png exists already; name another file with --figure, or add --over" in refusal(words, capsys)
    assert main([*words, "--figure", "false"]) == 0
    assert main([*words, "--overwrite", "--figure", str(tmp_path / "mine.svg")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"out.csv", "out_plot.png", "mine.svg"}
    (tmp_path / "folder.csv").mkdir()
    said = refusal([*words[:3], "--overwrite", "--output", str(tmp_path / "folder.csv")], capsys)
    assert "folder.csv is a folder, not a file" in said


def long_words(csv: Path, run: Path, steps: int) -> list[str]:
    words = [word for word in TINY if "max_epochs" not in word]
    steps_of = [f"--trainer.max_steps={steps}", "--trainer.val_check_interval=1", "--model.warmup_steps=0"]
    return ["fit", *words, *steps_of, f"--data.path={csv}", f"--run={run}"]


def test_a_finished_run_is_trained_longer(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert main(long_words(toy_csv, run, 3)) == 0
    first = json.loads((run / "metrics.json").read_text())
    capsys.readouterr()
    for words, message in (
        ([], f"the run {run} is finished: its results are in {run / 'metrics.json'}; to train it longer, add a higher"),
        (["--trainer.max_steps=3"], "is trained for 3 steps already, and --trainer.max_steps is 3: give a number"),
        (["--trainer.max_steps=2"], "is trained for 3 steps already, and --trainer.max_steps is 2"),
        (["--model.mup=true"], "the only other options are --trainer.max_steps, --trainer.max_epochs, --trainer.max_t"),
    ):
        assert main(["fit", "--resume", str(run), *words]) == 2
        assert message in capsys.readouterr().err
        assert json.loads((run / "metrics.json").read_text()) == first
    assert main(["fit", "--resume", str(run), "--trainer.max_steps=6"]) == 0
    assert "after step 3" in capsys.readouterr().out
    assert json.loads((run / "metrics_step_3.json").read_text()) == first
    assert json.loads((run / "metrics.json").read_text())["best_step"] > first["best_step"]
    curve = pd.read_csv(run / "metrics.csv").dropna(subset="val_mse_scaled")
    assert curve.step.tolist() == [0, 1, 2, 3, 4, 5]
    assert yaml.safe_load((run / "config.yaml").read_text())["trainer"]["max_steps"] == 6
    versions = json.loads((run / "versions.json").read_text())
    assert versions["extensions"][0]["step"] == 3
    assert versions["command"][1:3] == ["fit", TINY[0]]


def test_an_extension_that_is_killed_goes_on(toy_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    assert main(long_words(toy_csv, run, 3)) == 0
    with monkeypatch.context() as patched:
        patched.setattr("tsattn.experiments.running.tables_with_baselines", interrupted)
        # epochs take the place of the steps that the run had; a batch of the toy's 6 is a step
        assert main(["fit", "--resume", str(run), "--trainer.max_epochs=1"]) == 130
    assert not (run / "metrics.json").exists()
    assert main(["fit", "--resume", str(run)]) == 0
    assert (run / "metrics.json").exists()
    assert pd.read_csv(run / "metrics.csv").dropna(subset="val_mse_scaled").step.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_training_starts_from_the_weights_and_the_scale_of_a_run(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, first = trained
    newer = pd.read_csv(csv)
    newer["drift"] += 5
    newer.to_csv(tmp_path / "newer.csv", index=False)
    run = tmp_path / "run"
    small = ["--trainer.max_epochs=-1", "--trainer.max_steps=1", "--model.learning_rate=1e-7", "--model.warmup_steps=0"]
    words = ["fit", "--start", str(first), f"--data.path={tmp_path / 'newer.csv'}", *small]
    assert main([*words, f"--run={run}"]) == 0
    before, after = (fitted_in(RunFolder(folder)) for folder in (first, run))
    assert after.scaler == before.scaler
    weights = after.predictor.state_dict()
    moved = max(float((weights[name] - one).abs().max()) for name, one in before.predictor.state_dict().items())
    assert 0 < moved < 1e-6  # one step of AdamW
    capsys.readouterr()
    for more, message in (
        (["--refit"], "give --start or --refit, not both"),
        (["--attention=swa"], "the checkpoint is of another model"),
    ):
        assert message in refusal([*words, *more, f"--run={tmp_path / 'other'}"], capsys)
    of_no_model = ["fit", "--start", str(tmp_path), *words[3:], f"--run={tmp_path / 'other'}"]
    assert "is not the folder of a trained model" in refusal(of_no_model, capsys)
    assert "began with --start, so it cannot be resumed" in refusal(
        ["fit", "--resume", str(run), "--trainer.max_steps=3"], capsys
    )


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("by")
    frame_of({"large": 200, "late": 150, "small": 260}).to_csv(folder / "toy.csv", index=False)
    words = ["fit", "--data", "CSVDataModule", "--data.path", str(folder / "toy.csv"), "--run", str(folder / "run")]
    sizes = ["--data.context_length", "48", "--data.prediction_length", "12", "--model.backbone", "ridge"]
    assert main([*words, *sizes]) == 0
    return folder / "run"


def test_the_table_by_group_is_that_of_the_screen_and_adds_up(
    of_three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for by in ("series", "step", "origin"):
        output = tmp_path / f"{by}.csv"
        assert main(["test", "--run", str(of_three), "--by", by, "--output", str(output)]) == 0
        lines = capsys.readouterr().out.splitlines()
        frame = pd.read_csv(output)
        label = {"series": "unique_id"}.get(by, by)
        assert [*frame.columns[:2]] == ["forecaster", label]
        own = frame[frame["forecaster"] == "ridge"]
        start = lines.index(f"ridge by {by}")
        assert lines[start + 1].split()[0] == label
        rows = lines[start + 2 : start + 2 + len(own)]
        assert [row.removesuffix(" *").split()[-3] for row in rows] == own["mse_scaled"].map(rounded).tolist()
        others = frame[frame["forecaster"] != "ridge"].groupby(label, sort=False)["mse_scaled"].min()
        is_best = own["mse_scaled"].to_numpy() < others.to_numpy()
        assert [row.endswith(" *") for row in rows] == is_best.tolist()
        whole = next(line for line in lines if line.startswith("ridge (context ")).split()[2:]
        weights = np.ones(len(own)) if by == "step" else own["windows"]
        assert np.average(own["mse_scaled"], weights=weights) == pytest.approx(float(whole[1]), rel=6e-3)


def test_residuals_are_drawn_and_nothing_is_replaced_unasked(
    of_three: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "residuals.png"
    words = ["validate", "--run", str(of_three), "--figure", str(figure)]
    assert main(words) == 0
    assert f"{figure}: plot of the residuals" in capsys.readouterr().out
    assert figure.stat().st_size > 0
    assert "exists already" in refusal(words, capsys)
    assert main([*words, "--overwrite"]) == 0


def test_a_run_remembers_how_its_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = frame_of({"b": 200, "a": 185, "c": 30, "d": 240})
    paths = [tmp_path / "mine.csv", tmp_path / "new.csv"]
    for path, rows in zip(paths, (frame, frame[frame.unique_id != "c"]), strict=True):
        text = rows.assign(ds=rows.ds.dt.strftime("%d/%m/%y %H"))
        text.to_csv(path, sep=";", decimal=",", encoding="latin-1", index=False)
    run = tmp_path / "run"
    assert "separates its cells with ';', not with ','; give `--data.separator" in refusal(
        ["fit", *TINY, f"--data.path={paths[0]}", f"--run={run}"], capsys
    )
    written_so = ["--data.separator=;", "--data.decimal=,", "--data.encoding=latin-1", "--data.date_format=%d/%m/%y %H"]
    assert fit(paths[0], run, *written_so) == 0
    for words in ([], ["--input", str(paths[1])]):
        assert main(["predict", "--run", str(run), *words, "--output", str(tmp_path / "out.csv"), "--overwrite"]) == 0
        out = pd.read_csv(tmp_path / "out.csv", parse_dates=["ds"])
        last = frame.groupby("unique_id").ds.max()
        assert (out.groupby("unique_id").ds.min() == last[out.unique_id.unique()] + pd.Timedelta(1, "h")).all()
