"""Every mistake gets one sentence that names the thing and what is valid, exit code 2, and changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.cli.toy_run import TINY, fit
from tsattn.cli import main

LINES = (
    "date,wave,drift",
    *(
        f"{stamp:%Y-%m-%d %H:%M:%S},{hour % 24}.5,{hour}"
        for hour, stamp in enumerate(pd.date_range("2020", periods=400, freq="h"))
    ),
)


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is said when `words` are refused."""
    assert main(words) == 2
    captured = capsys.readouterr()
    message = captured.err.strip().splitlines()[-1]
    assert message.startswith("error: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""
    return message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["foo"],
            "unknown command 'foo'; valid: fit, validate, test, predict, attention, export, tune, compare, benchmark",
        ),
        (
            ["fit"],
            "fit needs a configuration: --config NAME, a file or one of chronos_mlr.yaml, co2_mlr.yaml",
        ),
        (
            ["fit", "--config", "none.yaml"],
            "no configuration none.yaml: neither a file nor one of chronos_mlr.yaml, co2_mlr.yaml",
        ),
        (["test"], "test needs a trained model: --run DIR"),
        (["test", "--run", "no/such"], "the run folder no/such is not there"),
        (["export", "--run", "no/such"], "the run folder no/such is not there"),
        (["export", "--run", "x", "--fromat", "onnx"], "unknown argument --fromat"),
        (
            ["fit", "--config", "co2_mlr.yaml", "--attention", "mrl"],
            "unknown attention 'mrl' (did you mean mlr?); valid",
        ),
        (["predict", "--run", "x", "new.csv"], "the run folder x is not there"),
        (["fit", "--config", "co2_mlr.yaml", "--attention.ranks", "[4, 1]"], "ranks [4, 1] sum to 5, but must sum to"),
        (["fit", "--config", "co2_mlr.yaml", "--attention.window", "4"], "mlr has no argument 'window'; valid: ranks"),
        (["fit", "--config", "co2_mlr.yaml", "--attention.kind=swa", "--attention.ranks=[4]"], "swa has no argument"),
        (["fit", "--config", "co2_mlr.yaml", "--model.backbone.kind", "lstm"], "unknown predictor 'lstm'; valid: t"),
        (["fit", "--config", "co2_mlr.yaml", "--model.backbone.width", "4"], "no argument 'width'; valid: d_model"),
        (
            ["fit", "--config", "co2_mlr.yaml", "--model.backbone.d_model", "big"],
            "d_model must be a whole number, not 'big'",
        ),
        (["fit", "--config", "co2_mlr.yaml", "--model.learning_rate", "x"], "must be a number, not x"),
        (
            ["fit", "--config", "co2_mlr.yaml", "--data.batch", "2"],
            "unknown argument --data.batch (did you mean --data.batch_size?); valid: --data.con",
        ),
        (["fit", "--config", "co2_mlr.yaml", "--data.batch_size", "0"], "batch_size must be at least 1, not 0"),
        (["fit", "--config", "co2_mlr.yaml", "--data", "MyData"], "--data must be one of CO2DataModule, CSVDataModule"),
        (["fit", "--config", "co2_mlr.yaml", "--data.prediction_length=999"], "999 is longer than the validation part"),
        (["fit", "--config", "co2_mlr.yaml", "--data.context_length=1600"], "need 1652 rows, but the training part"),
        (["fit", "--config", "co2_mlr.yaml", "--trainer.max_epochs", "x"], "trainer.max_epochs must be a whole number"),
        (["fit", "--config", "co2_mlr.yaml", "--trainer.limit_test_batches=2"], "always over all windows"),
        (["fit", "--config", "co2_mlr.yaml", "--trainer.limit_val_batches=0"], "validation chooses the checkpoint"),
        (["fit", "--config", "co2_mlr.yaml", "--trainer.precision=8"], "16-mixed, bf16-true, bf16-mixed, 32-true"),
        (["fit", "--config", "co2_mlr.yaml", "--model.backbone=foo"], "unknown predictor 'foo'; valid: transformer"),
        (
            ["fit", "--config", "co2_mlr.yaml", "--trainer.accumulate_grad_batches=0"],
            "accumulate_grad_batches must be at least 1, not 0",
        ),
        (["fit", "--config", "co2_mlr.yaml", "--context_length=3"], "did you mean --data.context_length?)"),
        (["fit", "--data=CSVDataModule", "--data.path=x.csv", "--data.sep=;"], "(did you mean --data.separator?)"),
        (["fit", "--data.path", "mine.csv"], "`--data.path` belongs to CSVDataModule or MappedDataModule; add `--data"),
        (["fit", "--config", "co2_mlr.yaml", "--data.path", "x.csv"], "MappedDataModule; add `--data CSVDataModule`"),
        (["fit", "--data", "CO2DataModule", "--data.name", "x"], "`--data.name` belongs to PublicDataModule"),
        (["fit", "--data.name", "weather"], "names no class; give `--config NAME`, `--data CSVDataModule --data.path"),
        (["fit", "--data", "CSVDataModule"], "--data.path is missing"),
        (["fit", "--config"], "--config needs a value"),
        (["fit", "--config", "CO2_mlr.yml"], "no configuration CO2_mlr.yml (did you mean co2_mlr?): neither"),
        (["fit", "--config", "co2_mlr.yaml", "--atention", "swa"], "--atention (did you mean --attention?)"),
        (["fit", "--config", "co2_mlr.yaml", "--refit", "true"], "--refit takes no value, not true"),
        (["fit", "--config", "co2_mlr.yaml", "--run=a", "--run=b"], "--run is given 2 times, as a, b; give it once"),
        (["predict", "--run=r", "--input=a.csv", "--input=b.csv"], "--input is given 2 times, as a.csv, b.csv; give"),
        (["fit", "--config", "co2_mlr.yaml", "word"], "unknown argument word"),
        (["fit", "sales.csv"], "sales.csv is not there"),
        (["fit", "--config", "co2_mlr.yaml", "--print_config=skip_null"], "--print_config takes no value"),
        (["fit", "co2_mlr.yaml"], "Did you mean: tsattn fit --config co2_mlr.yaml?"),
        (
            ["fit", "--config", "co2_mlr.yaml", "--model.quantiles", "0.1,0.9"],
            'must be a list, such as "[a, b]", not 0.1',
        ),
        (["fit", "--config", "co2_mlr.yaml", "--attention"], "needs a value"),
        (["fit", "--data", "CSVDataModule", "--data.path", "none.csv"], "none.csv is not there"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_wrong_words(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(words, capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda lines: [lines[0].replace("date", "day"), *lines[1:]],
            "(columns: day, wave, drift). Name it: --data.time_column NAME (Python: time_column=NAME)",
        ),
        (
            lambda lines: [*lines[:6], "2020-01-01 05:00:00,many,5", *lines[7:]],
            "line 7: many in column wave is not a number",
        ),
        (lambda lines: lines[:3], "no series has the 3 rows that it takes to see a frequency (the longest has 2)"),
    ],
    ids=["no date", "text", "short"],
)
def test_wrong_files(edit: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(edit(list(LINES))))  # type: ignore[operator]
    said = refusal(["fit", *TINY, f"--data.path={path}", f"--run={tmp_path / 'run'}"], capsys)
    assert message in said
    assert "mine" in said
    assert not (tmp_path / "run").exists()


def test_an_existing_run_folder_is_not_touched(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    said = refusal(["fit", *TINY, f"--data.path={csv}", f"--run={run}"], capsys)
    assert "exists already; nothing is overwritten" in said
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_checkpoint_of_another_model_is_refused(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    of_the_run = ["test", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]
    said = refusal([*of_the_run, "--attention", "swa"], capsys)
    assert "the checkpoint is of another model: its backbone.attention is {'kind': 'mlr'" in said
    said = refusal([*of_the_run, "--model.backbone.d_model", "32"], capsys)
    assert "its backbone.d_model is 16, but 32 is asked for" in said
    stranger = tmp_path / "stranger.ckpt"
    torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6.6"}, stranger)
    said = refusal(["test", "--run", str(run), "--ckpt_path", str(stranger)], capsys)
    assert "was not written by tsattn" in said
    (tmp_path / "text.ckpt").write_text("not a checkpoint")
    said = refusal(["test", "--run", str(run), "--ckpt_path", str(tmp_path / "text.ckpt")], capsys)
    assert "text.ckpt is not a readable checkpoint" in said
    # going on training from another model's checkpoint
    words = ["fit", *TINY, f"--data.path={csv}", f"--run={tmp_path / 'new'}", "--attention", "swa"]
    said = refusal([*words, "--ckpt_path", str(run / "checkpoints" / "last.ckpt")], capsys)
    assert "the checkpoint is of another model" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(["predict", "--run", str(tmp_path)], capsys)
    assert "is not the folder of a trained model: it has no config.yaml" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "out.txt"], "out.txt must end in .csv or .parquet"),
        (["--output", "no/such/out.csv"], "the folder no/such of out.csv is not there"),
        (["--input", "none.csv"], "none.csv is not there"),
        (["--input", "other.csv"], "other.csv lacks channel 'wave'; the model was trained on wave, drift"),
        (["--input", "daily.csv"], "daily.csv, line 2: the time stamps have frequency 'D', not 'h'"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_predict_refuses(
    trained: tuple[Path, Path],
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    csv, run = trained
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(csv, parse_dates=["date"])
    table.rename(columns={"wave": "tide"}).to_csv("other.csv", index=False)
    table.assign(date=pd.date_range("2020-01-01", periods=len(table), freq="D")).to_csv("daily.csv", index=False)
    assert message in refusal(["predict", "--run", str(run), *words], capsys)
    assert not (run / "forecast.csv").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "--input", "mine.csv", "--output", "mine.csv"],
        ["predict", "--output", "data.csv"],
        ["test", "--by", "step", "--output", "data.csv"],
        ["attention", "--output", "data.csv"],
    ],
    ids=" ".join,
)
def test_an_input_is_never_overwritten(
    trained: tuple[Path, Path],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    csv, run = trained
    monkeypatch.chdir(tmp_path)
    for name in ("mine.csv", "data.csv"):
        shutil.copy(csv, name)
    command, *options = words
    typed = [command, "--run", str(run), "--data.path", "data.csv", *options, "--overwrite"]
    if command == "predict" and "--input" in words:
        typed = [command, "--run", str(run), *options, "--overwrite"]
    assert f"{words[-1]} is read as input and would be lost" in refusal(typed, capsys)
    assert Path(words[-1]).read_bytes() == csv.read_bytes()


def test_debug_shows_where_it_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["foo", "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.splitlines()[-1].startswith("error: unknown command 'foo'")


def test_a_plain_mistake_is_answered_at_once(tmp_path: Path) -> None:
    """An unknown command and a missing folder do not wait for torch to be imported."""
    mistakes = ["foo", "test --run none", "export --run none", "cost --tokens x", "datasets info x"]
    code = (
        "import sys; from tsattn.cli import main; print(*[main(words.split()) for words in sys.argv[1:]]); "
        "assert not {'torch', 'lightning', 'pandas'} & set(sys.modules)"
    )
    typed = [*mistakes, "--help", "--version"]
    done = subprocess.run([sys.executable, "-c", code, *typed], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["2"] * len(mistakes) + ["0", "0"]


def test_the_command_is_installed() -> None:
    assert shutil.which("tsattn", path=str(Path(sys.executable).parent))
    done = subprocess.run([sys.executable, "-m", "tsattn", "nothing"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: unknown command 'nothing'; valid: fit, validate, test, predict, attention, export, tune, "
        "compare, benchmark, report, cost, datasets, kernels\n"
    )


def test_fit_refuses_the_same_folder_twice(toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    assert fit(toy_csv, tmp_path / "run") == 2
    assert "exists already" in capsys.readouterr().err
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["fit", "--config", "etth1_mlr.yaml", "--run", ""], "--run"),
        (["fit", "--data=CSVDataModule", "--data.path="], "--data.path"),
        (["predict", "--run", "run", "--output", ""], "--output"),
        (["tune", "--config=etth1_mlr.yaml", "--search=mlr", "--study", ""], "--study"),
        (["report", "run", "--output", ""], "--output"),
        (["datasets", "fetch", ""], "a word"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_empty_value_is_not_taken_for_none(
    words: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(words, capsys) == f"error: {name} is empty; give a value, or leave it out"
