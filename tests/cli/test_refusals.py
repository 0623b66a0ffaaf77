"""Every mistake gets one sentence that names the thing and what is valid, exit code 2, and changes nothing."""

import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks.progress import rich_progress

from tests.cli.toy_run import TINY, refusal
from tsattn.cli import main
from tsattn.data import CARDS

# words and a part of the sentence; CO2 stands for a configuration, TOY for a training on the data @CSV of the run @RUN
REFUSED = """
foo :: unknown command 'foo'; valid: fit, validate, test, predict, attention, export, tune, compare, benchmark
fit :: fit needs a configuration: --config NAME, a file or one of chronos_mlr.yaml, co2_mlr.yaml
fit --config none.yaml :: no configuration none.yaml: neither a file nor one of chronos_mlr.yaml, co2_mlr
fit --config CO2_mlr.yml :: no configuration CO2_mlr.yml (did you mean co2_mlr?): neither
fit -cCO2_mlr.yml :: no configuration CO2_mlr.yml (did you mean co2_mlr?): neither
fit --config :: --config needs a value
fit sales.csv :: sales.csv does not exist
fit co2_mlr.yaml :: Did you mean: tsattn fit --config co2_mlr.yaml?
fit --data CSVDataModule :: --data.path is missing
fit --data.name weather :: names no class; give `--config NAME`, `--data CSVDataModule --data.path
fit --data.path mine.csv :: `--data.path` belongs to CSVDataModule or MappedDataModule; add `--data
fit --data=CSVDataModule --data.path=x.csv --data.sep=; :: (did you mean --data.separator?)
fit --data CO2DataModule --data.name x :: `--data.name` belongs to PublicDataModule
CO2 word :: unknown argument word
CO2 --atention swa :: --atention (did you mean --attention?)
CO2 --context_length=3 :: did you mean --data.context_length?)
CO2 --horizn=3 :: unknown argument --horizn (did you mean --data.prediction_length?); valid: those that
CO2 --data.batch 2 :: unknown argument --data.batch (did you mean --data.batch_size?); valid: --data.con
CO2 --data.context_length=1600 :: need 1652 rows, but the training part
CO2 --data.context_length=1601 :: lower them (--data.context_length, --data.prediction_length) to 1598 together
CO2 --attention :: needs a value
CO2 --attention mrl :: unknown attention 'mrl' (did you mean mlr?); valid
CO2 --attention @x :: unknown attention '@x'; valid: standard, swa
CO2 --model.backbone @x :: unknown predictor '@x'; valid: t
compare --config co2_mlr --attention standard,@x :: --attention must be a value, or values with commas between them
CO2 --attention.window 4 :: mlr has no argument 'window'; valid: ranks
CO2 --model.backbone.d_model big :: d_model must be a whole number, not 'big'
CO2 --model.learning_rate x :: must be a number, not x
CO2 --model.quantiles 0.1,0.9 :: must be a list, such as "[a, b]", not 0.1
CO2 --model.backbone=ridge --trainer.max_steps 5 :: --trainer.max_steps would do nothing: ridge is not trained
CO2 --model.backbone=ridge --model.mup=true :: --model.mup would do nothing: ridge is not trained; valid are --mod
CO2 --model.backbone=ridge --ckpt_path=best.ckpt :: single trained network can resume from a checkpoint, not ridge
CO2 --refit true :: --refit takes no value: write --refit alone, without true
CO2 --print_config=skip_null :: --print_config takes no value
CO2 --run=a --run=b :: --run is given 2 times, as a, b; give it once
predict --run=r --input=a.csv --input=b.csv :: --input is given 2 times, as a.csv, b.csv; give
predict --run x new.csv :: the run folder x does not exist
predict --run . :: is not the folder of a trained model: it has no config.yaml
test :: test needs a trained model: --run DIR
export --run x --fromat onnx :: unknown argument --fromat
export :: export needs a trained model: --run DIR, the folder that `fit` has written
fit a.csv --data.path b.csv :: fit reads one table, and is given a.csv, --data.path b.csv; give one
compare --config co2_mlr --vary seed_everything :: --vary needs values: --vary seed_everything=A,B
test --run :: --run needs a value

TOY --trainer.logger=CometLogger :: CometLogger needs a package that is not installed: Requirement 'comet
TOY --trainer.callbacks+=RichProgressBar :: RichProgressBar needs a package that is not installed: `RichProgressBar` req
TOY "--trainer.callbacks={class_path: Timer, init_args: {duration: x}}" :: Timer cannot be made:
TOY --trainer.accelerator=tpu :: the trainer cannot be made: Requirement 'torch_xla
TOY --run=@RUN :: exists already; name another folder with --run
fit --resume @RUN --detail x :: to train it longer, --refit and --detail

test --run @RUN --model.learning_rate 5 :: --model.learning_rate would do nothing with --run: a trained model
test --run @RUN --attention swa :: --attention would do nothing with --run
test --run @RUN --data.init_args.context_length=24 :: context_length would do nothing with --run
test --run @RUN --config co2_mlr.yaml :: uses the configuration of the run: leave out --config; valid with --run are
test --run @RUN --horizon=3 :: unknown argument --horizon
test --run @RUN --detail x :: --detail takes no value: write --detail alone, without x
test --run @RUN --trainer.devices=2 :: test runs on one device, so that no window counts twice
test --run @RUN --by week :: one of series, step, origin, not week
test --run @RUN --output by.csv :: add --by series, --by step
test --run @RUN --by step --output by.txt :: must end in .csv or .parquet
predict --run @RUN --data.test_rows=50 :: --data.test_rows would do nothing with --run
predict --run @RUN --input x.csv --data.path y.csv :: --data.path would do nothing with --run and --inp
predict --run @RUN --horizon=0 :: --horizon must be a whole number of at least 1, not 0
predict --run x --level abc :: --level must be a number, or a list, such as "[80, 95]", not abc
predict --run @RUN --output out.txt :: out.txt must end in .csv or .parquet
predict --run @RUN --output no/such/out.csv :: the folder no/such for out.csv does not exist
attention --run @RUN --window 109 :: window must be from 0 to 108, or from -109 for the first to -1 for the last, of the
attention --run @RUN --layer 0;1 :: --layer must be all, or numbers such as 0,2, not 0;1
attention --run @RUN --series x :: there is no series x; valid: series
attention --run @RUN --window 0 --input new.csv :: leave out --input and --series
attention --run @RUN --output a.csv --head 0 :: a table has all layers, heads and levels
report @RUN :: run is a run: see its forecast.png, or `tsattn compare

tune --search search/mlr --config co2_mlr --trials some :: --trials must be a whole number of at least 1, not some
tune --search search/mlr --config co2_mlr --timeout 1h5 :: --timeout must be a time like 90s, 30m, 2h or 1h30m, not 1h5
tune none.csv --search search/mlr --trainer.fast_dev_run :: --trainer.fast_dev_run needs a value
compare --config co2_mlr --margin 2 :: --margin must be between 0 and 1, not 2
compare --jobs=2 --jbos 3 :: compare has no option --jbos; see `tsattn compare --help`
cost :: cost needs --attention and --d_model and --num_heads and --tokens
cost --attention mlr --tokens 0 :: --tokens must be a whole number of at least 1, not 0
cost --attention mlr --tokens 1_6 :: --tokens must be a whole number of at least 1, not 1_6
cost --attention [swa] --attention.a.b 1 :: unknown argument --attention.a.b
cost --dtype int8 :: --dtype must be one of float64, float32, bfloat16, float16, not int8
cost --token 9 :: unknown argument --token (did you mean --tokens?); valid: --attention, --d_model
kernels --bild :: unknown argument --bild (did you mean --build?)
datasets --root . :: datasets needs an action; valid: list, info, fetch, check, convert, diagnose
datasets lst :: unknown action 'lst' (did you mean list?); valid: list, info, fetch, check, convert, diagnose
datasets info :: info needs the name of a data set; valid: @NAMES
datasets info weather ETTh1 :: unknown argument ETTh1; valid: --root
datasets check co2 CO2 :: unknown data set 'CO2' (did you mean co2?); valid: @NAMES
datasets diagnose x.csv --prediction_length 2.5 :: --prediction_length must be a whole number of at least 1, not 2.5
datasets diagnose x.csv y.csv :: unknown argument y.csv; valid: --id_column
datasets convert in.csv :: convert needs a table and a folder to write: datasets convert IN OUT
datasets convert in.csv out more :: unknown argument more; valid: --id_column
datasets convert in.csv out :: in.csv does not exist
train sales.csv :: unknown command 'train' (did you mean fit?)
evaluate --run r :: unknown command 'evaluate' (did you mean test?)
forecast sales.csv :: unknown command 'forecast' (did you mean `fit FILE`, then `predict --run DIR`?)
benchmark :: benchmark needs a suite: --suite NAME, a file or one of suites/accuracy.yaml, suites/arena.yaml
benchmark --suite none :: no suite none: neither a file nor one of accuracy, arena, classic
benchmark --suite classic --attention , :: --attention must be names with commas between them, not ,
benchmark --suite classic --attention mrl :: the suite classic has no mrl in attentions (did you mean mlr?)
benchmark --suite classic --horizon 0 :: must be whole numbers of at least 1, with commas between them, not 0
benchmark --suite classic --folder @CSV :: --folder must be a folder, but @CSV is a file
report :: report needs records
report nowhere :: nowhere holds no records; name a folder with a records.parquet
report a b :: several records make one page: name its folder with --output DIR
report nowhere --output here/x.html :: --output is a folder, not x.html: pass --output here
"""
CASES = [line.split(" :: ") for line in REFUSED.splitlines() if line]


@pytest.mark.parametrize(("typed", "message"), CASES, ids=[typed for typed, _ in CASES])
def test_a_mistake_is_one_sentence(
    typed: str,
    message: str,
    trained: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # which other packages bring along; Lightning asks for it once
    monkeypatch.setattr(rich_progress, "_RICH_AVAILABLE", False)
    csv, run = trained
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    known = {"@RUN": str(run), "@CSV": str(csv), "@NAMES": ", ".join(CARDS)}
    for name, text in known.items():
        typed, message = typed.replace(name, text), message.replace(name, text)
    words = shlex.split(typed)
    toys = {"CO2": ["fit", "--config", "co2_mlr.yaml"], "TOY": ["fit", *TINY, f"--data.path={csv}"]}
    assert message.strip() in refusal([*toys.get(words[0], words[:1]), *words[1:]], capsys)
    assert list(tmp_path.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_training_that_does_not_begin_leaves_no_folder(
    toy_csv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "runs" / "run"
    stopping = "--trainer.callbacks+=EarlyStopping --trainer.callbacks.monitor=nonsense"
    for words, where, message in (
        (stopping, run, "conditioned on metric `nonsense`"),
        ("", "/dev/null/run", "the run folder /dev/null/run cannot be made: Not a directory"),
    ):
        assert main(["fit", *TINY, f"--data.path={toy_csv}", f"--run={where}", *words.split()]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err
        assert not run.exists()


def test_a_wrong_file_is_named_and_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    for text, message in (
        ("day,x\n2020-01-01,1\n", "(columns: day, x). Name it: --data.time_column NAME (Python: time_column=NAME)"),
        ("date,x\n2020-01-01,1\n2020-01-02,many\n", "mine.csv, line 3: many in column x is not a number"),
    ):
        path.write_text(text)
        assert message in refusal(["fit", *TINY, f"--data.path={path}", f"--run={tmp_path / 'run'}"], capsys)
        assert not (tmp_path / "run").exists()


def test_files_that_do_not_fit_a_run(
    trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(csv, parse_dates=["date"])
    table.rename(columns={"wave": "tide"}).to_csv("other.csv", index=False)
    table.assign(date=pd.date_range("2020-01-01", periods=len(table), freq="D")).to_csv("daily.csv", index=False)
    for name, message in (
        ("other.csv", "other.csv lacks channel 'wave'; the model was trained on wave, drift"),
        ("daily.csv", "daily.csv, line 2: the time stamps have frequency 'D', not 'h'"),
    ):
        assert message in refusal(["predict", "--run", str(run), "--input", name], capsys)
    assert not (run / "forecast.csv").exists()


def test_a_checkpoint_of_another_model_is_refused(
    trained: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    of_the_run = ["test", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]
    said = refusal([*of_the_run, "--attention", "swa"], capsys)
    assert "the checkpoint is of another model: its backbone.attention is {'kind': 'mlr'" in said
    said = refusal([*of_the_run, "--model.quantiles", "[0.5]"], capsys)
    assert "its quantiles are none, but [0.5] are asked for" in said
    stranger = tmp_path / "stranger.ckpt"
    torch.save({"state_dict": {}, "pytorch-lightning_version": "2.6.6"}, stranger)
    said = refusal(["test", "--run", str(run), "--ckpt_path", str(stranger)], capsys)
    assert "was not written by tsattn" in said
    # going on training from another model's checkpoint
    words = ["fit", *TINY, f"--data.path={csv}", f"--run={tmp_path / 'new'}", "--attention", "swa"]
    said = refusal([*words, "--ckpt_path", str(run / "checkpoints" / "last.ckpt")], capsys)
    assert "the checkpoint is of another model" in said
    assert not (tmp_path / "new").exists()


def test_an_input_is_never_overwritten(
    trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    monkeypatch.chdir(tmp_path)
    shutil.copy(csv, "mine.csv")
    for words in ("predict --input mine.csv", "test --by step --data.path mine.csv", "attention --data.path mine.csv"):
        typed = [*words.split(), "--run", str(run), "--output", "mine.csv", "--overwrite"]
        assert "mine.csv is an input file and would be overwritten" in refusal(typed, capsys)
        assert Path("mine.csv").read_bytes() == csv.read_bytes()


def test_the_refusal_names_what_works_and_that_works(
    trained: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    csv, run = trained
    named = refusal(["test", "--run", str(run), "--model.mup=true"], capsys).split("valid are ")[1].split(", ")
    assert {"--ckpt_path", "--data.path", "--data.eval_batch_size", "--trainer.precision"} <= set(named)
    words = [f"--data.path={csv}", "--data.eval_batch_size=7", "--trainer.precision=64-true", "--trainer.devices=1"]
    assert main(["test", "--run", str(run), *words, "--trainer.accelerator", "cpu"]) == 0


def test_debug_shows_where_it_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["foo", "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert said.splitlines()[-1].startswith("error: unknown command 'foo'")


# name -> what is typed, and what is not imported for it
LIGHT = {
    "mistakes": ("foo; test --run none; export --run none; cost --tokens x; datasets info x; tune", "torch pandas"),
    "mistakes of a study": (
        "tune --search mlr; tune --config co2_mlr --search nosuch; tune --config co2_mlr --search mlr --run x; "
        "tune --config co2_mlr --search mlr --study postgresql://u:p@h/d",
        "torch pandas",
    ),
    "helps": ("--help; --version; fit --help; test --help; export --help; tune --help; report --help", "torch numpy"),
    "data sets": ("datasets info weather; datasets list", "torch numpy"),
    "operators": ("kernels; cost --attention mlr --d_model 16 --num_heads 2 --tokens 32", "pandas matplotlib"),
}


@pytest.mark.parametrize("name", LIGHT)
def test_what_needs_little_imports_little(name: str, tmp_path: Path) -> None:
    typed, heavy = LIGHT[name]
    code = (
        "import sys; from tsattn.cli import main; codes = [main(words.split()) for words in sys.argv[2:]]; "
        "assert not {'lightning', 'jsonargparse', 'optuna', *sys.argv[1].split()} & set(sys.modules); print(*codes)"
    )
    words = [sys.executable, "-c", code, heavy, *typed.split("; ")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.splitlines()[-1].split()} == {"2" if "mistakes" in name else "0"}


def test_a_thread_runs_a_command_without_signals(capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["--version"])))
    thread.start()
    thread.join()
    assert codes == [0]
    assert capsys.readouterr().out.startswith("tsattn ")
