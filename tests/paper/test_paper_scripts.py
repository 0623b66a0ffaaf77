"""Each experiment runs from its suite to its report, in small, where the figures mean nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from benchmarks.paper import blocks, etth1, in_context, language, mlbtc, mlbtc_prompts, mup_transfer
from benchmarks.paper.experiment import PaperExperiment
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import read_suite

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "benchmarks" / "paper" / "suites"
MODULES = (blocks, etth1, in_context, language, mlbtc, mlbtc_prompts, mup_transfer)
EXPERIMENTS = {module.EXPERIMENT.name: module.EXPERIMENT for module in MODULES}
DRAWN = ("in_context", "language", "mlbtc_prompts", "mup_transfer")


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., tuple[PaperExperiment, Path]]:
    """Makes an experiment whose small suite has few predictors, attentions, steps and windows."""

    def made(
        name: str, predictors: list[str], attentions: list[str], steps: Mapping[str, int] | None = None, **values: Any
    ) -> tuple[PaperExperiment, Path]:
        content = yaml.safe_load((SUITES / f"{name}_small.yaml").read_text())
        for key, names in (("predictors", predictors), ("attentions", attentions)):
            content[key] = {one: content[key][one] for one in names}
        for predictor in content["predictors"].values():
            if "attentions" in predictor:
                predictor["attentions"] = [one for one in predictor["attentions"] if one in attentions]
        for predictor, number in (steps or {}).items():
            own = {"trainer.max_steps": number, "trainer.val_check_interval": number}
            content["predictors"][predictor]["values"] |= own
        content["seeds"] = 1
        content["values"] |= {"trainer.max_steps": 4, "trainer.val_check_interval": 2}
        if name in DRAWN:
            content["values"] |= {"data.val_draws": 6, "data.test_draws": 9}
        content["values"] |= values
        (tmp_path / f"{name}_small.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return replace(EXPERIMENTS[name], suites=tmp_path), tmp_path / "results"

    return made


@pytest.mark.slow
def test_regression_in_context_runs_to_its_report(toy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictors = ["least_squares", "w16_slow", "one_head_w16_slow"]
    experiment, output = toy("in_context", predictors, ["standard", "btt_1"], **{"data.batch_size": 4})
    words = ["--output", str(output), "--folder", str(tmp_path / "runs")]
    assert experiment.main([*words, "--dry-run"]) == 0
    assert "in_context_small: 4 runs: 4 to be run" in capsys.readouterr().out
    assert not output.exists()
    assert experiment.main([*words, "--jobs", "2"]) == 0
    frame = Records.read(output).frame
    assert frame["status"].tolist() == ["done"] * 4
    assert set(frame["windows"]) == {9}
    solved = frame.set_index("predictor")["mse"]["least_squares"]
    assert solved < 1e-6, "the last value follows from the pairs"
    assert frame["key"].nunique() == 4
    assert frame["flops"].notna().sum() == 4
    table = pd.read_csv(output / "table.csv")
    arms = ["standard, low-rank heads", "standard, one head of full rank", "btt_1", "least squares"]
    assert table["arm"].tolist() == arms
    assert table["rank"].tolist()[:3] == [2, 16, 16]
    text = (output / "report.md").read_text()
    assert "By the clock the runs took 0.0 hours." in text
    assert json.loads((output / "claims.json").read_text())["seconds"] > 0
    assert text.count("| not decided |") == 7, "one seed"
    assert "d 4, widths 16, 3 layers, 4 steps of 4 prompts" in text
    # again: nothing is run, the report is made anew
    (output / "report.md").unlink()
    capsys.readouterr()
    assert experiment.main(["--report-only", "--output", str(output)]) == 0
    assert (output / "report.md").read_text() == text
    assert experiment.main([*words, "--dry-run"]) == 0
    assert "4 runs: 4 done" in capsys.readouterr().out


@pytest.mark.slow
def test_language_models_of_a_text_run_to_their_report(
    toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("some words.txt").write_text("the quick fox jumps over the lazy dog, " * 400)
    small = {"data.batch_size": 2, "model.backbone.num_layers": 1}
    experiment, _ = toy("language", ["w64", "w128"], ["standard", "mlr"], **small)
    word = hashlib.sha256(Path("some words.txt").read_bytes()).hexdigest()[:8]
    suite = f"language_small_some_words_{word}"
    monkeypatch.setattr("benchmarks.paper.experiment._ROOT", tmp_path)
    words = ["--text", "some words.txt"]
    assert experiment.main([*words, "--jobs", "2"]) == 0
    output = tmp_path / "benchmarks" / "results" / "paper" / f"language_some_words_{word}"
    frame = Records.read(output).frame
    assert frame["status"].tolist() == ["done"] * 4
    assert set(frame["suite"]) == {suite}
    assert frame["mae"].between(1, 7).all(), "nats"
    text = (output / "report.md").read_text()
    assert f"`python benchmarks/paper/language.py --text some words.txt`, the suite `{suite}`" in text
    table = pd.read_csv(output / "table.csv")
    assert table[["width", "arm"]].to_numpy().tolist() == [
        [width, arm] for width in (64, 128) for arm in ("mlr", "standard")
    ]
    assert experiment.main([*words, "--report-only"]) == 0
    assert (output / "report.md").read_text() == text
    with pytest.raises(SystemExit):
        experiment.main(["--text", "none.txt"])
    assert "--text must be a file, and none.txt is none" in capsys.readouterr().err
    # a text of the same name is another
    Path("other").mkdir()
    Path("other", "some words.txt").write_text("the slow fox sleeps, " * 400)
    other = ["--text", str(Path("other", "some words.txt"))]
    assert experiment.main([*other, "--report-only"]) == 2
    assert "nothing was run into" in capsys.readouterr().err
    Path("short.txt").write_text("abc")
    assert experiment.main(["--text", "short.txt", "--dry-run"]) == 2
    said = "error: the text short has 3 bytes, too few for pieces of 256: it takes 5160 bytes or more"
    assert capsys.readouterr().err.splitlines()[-1] == said
    read = yaml.safe_load(Path("runs", "paper", f"{suite}.yaml").read_text())["data"][0]["init_args"]["text"]
    assert read == str(Path("some words.txt").absolute()), "read from anywhere"
    # without a text it is another suite, of which there are no records
    assert experiment.main(["--report-only"]) == 2
    assert "results/paper/language" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem.startswith(DRAWN) else pytest.mark.real_data)
        for path in sorted(SUITES.glob("*_small.yaml"))
    ],
)
def test_every_suite_can_be_run(path: Path) -> None:
    suite = read_suite(path)
    values = dict(suite.values)
    if path.stem.startswith(DRAWN):
        values |= {"data.init_args.val_draws": 1, "data.init_args.test_draws": 1}
    least = [name for name, one in suite.data.items() if one.limits.horizons in ((32,), (16,), (8,))][:1]
    entries = Planner().plan(replace(suite, values=values, seeds=1).narrowed(data=least or [*suite.data]))
    reasons = {entry.reason for entry in entries if entry.reason}
    # four levels of equal ranks need heads of four components
    assert all("do not share the head size 2" in reason for reason in reasons), reasons
    assert len({entry.key for entry in entries if not entry.reason}) == len(entries) - sum(
        bool(entry.reason) for entry in entries
    ), "no two arms are one experiment"


def test_mistakes_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    experiment = in_context.EXPERIMENT
    assert experiment.main(["--report-only", "--output", str(tmp_path)]) == 2
    said = f"error: nothing was run into {tmp_path} yet: run it without --report-only"
    assert capsys.readouterr().err.strip() == said
    for words, said in (
        (["--report-only", "--horizon", "8"], "with --report-only nothing is run: leave --horizon out"),
        (["--report-only", "--retry-failed"], "leave --retry-failed out"),
        (["--size", "huge"], "invalid choice: 'huge'"),
        (["--bogus"], "unrecognized arguments: --bogus"),
        (["--no-report"], "unrecognized arguments: --no-report"),
        (["--seeds", "1"], "with --seeds a part is run, which needs an --output of its own"),
        (["--suite=ett"], "the suite is that of the experiment: --size small or --size full"),
    ):
        with pytest.raises(SystemExit) as stop:
            experiment.main(words)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    assert experiment.main(["--jobs", "2", "--slurm", "3"]) == 0
    assert "--suite benchmarks/paper/suites/in_context_small.yaml" in capsys.readouterr().out
    assert experiment.main(["--jobs", "none"]) == 2
    assert "--jobs must be a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("path", SUITES.glob("*_full.yaml"), ids=lambda path: path.stem)
def test_every_full_suite_can_be_read(path: Path) -> None:
    assert read_suite(path).predictors


@pytest.mark.slow
def test_an_experiment_is_a_command(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "paper" / "etth1.py"), "--report-only", "--output", "none"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, f"error: {_NOTHING}\n")


_NOTHING = "nothing was run into none yet: run it without --report-only"
