"""What a run folder is used for: a figure, and a longer training."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.cli.toy_run import TINY, refusal
from tsattn.cli import main
from tsattn.experiments.result import fitted_in
from tsattn.experiments.run_folder import RunFolder

# a figure


@pytest.mark.usefixtures("drawn")
def test_predict_draws_its_forecast_and_says_where(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--run", str(trained[1]), "--output", str(tmp_path / "out.csv")]
    assert main(words) == 0
    assert f"{tmp_path / 'out_plot.png'}: 2 channels, drawn\n" in capsys.readouterr().out
    assert (tmp_path / "out_plot.png").stat().st_size > 5000
    (tmp_path / "out.csv").unlink()
    assert "out_plot.png exists already; name another file with --figure, or add --over" in refusal(words, capsys)
    assert main([*words, "--figure", "false"]) == 0
    assert main([*words, "--overwrite", "--figure", str(tmp_path / "mine.svg")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"out.csv", "out_plot.png", "mine.svg"}
    (tmp_path / "folder.csv").mkdir()
    said = refusal([*words[:3], "--overwrite", "--output", str(tmp_path / "folder.csv")], capsys)
    assert "folder.csv is a folder, not a file" in said


# a longer training


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
        ([], f"the run {run} is finished: its results are in {run / 'metrics.json'}; --trainer.max_steps (or max_epo"),
        (["--trainer.max_steps=3"], "is trained for 3 steps already, and 3 are asked for in all: --trainer.max_steps"),
        (["--trainer.max_steps=2"], "is trained for 3 steps already, and 2 are asked for in all"),
        (["--model.mup=true"], "takes no other option than --trainer.max_steps, --trainer.max_epochs, --trainer.max_t"),
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
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    assert main(long_words(toy_csv, run, 3)) == 0
    with monkeypatch.context() as patched:
        patched.setattr("tsattn.experiments.running.tables_beside_baselines", interrupted)
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
        (["--refit"], "of --start and --refit give one"),
        (["--attention=swa"], "the checkpoint is of another model"),
    ):
        assert message in refusal([*words, *more, f"--run={tmp_path / 'other'}"], capsys)
    of_no_model = ["fit", "--start", str(tmp_path), *words[3:], f"--run={tmp_path / 'other'}"]
    assert "is not the folder of a trained model" in refusal(of_no_model, capsys)
    assert "began with the weights of another" in refusal(
        ["fit", "--resume", str(run), "--trainer.max_steps=3"], capsys
    )
