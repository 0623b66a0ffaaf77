"""Each experiment runs from its suite or its clock to its report, in small, where the figures mean nothing."""

import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from benchmarks.measuring import Timing
from benchmarks.paper import generation, in_context, language, text_windows, wall_clock
from benchmarks.paper.experiment import PaperExperiment
from tests.docs.blocks import ROOT
from tsattn.attention.patterns import MultiLevelPattern
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import read_suite
from tsattn.task import Output, Task

SUITES = ROOT / "benchmarks" / "paper" / "suites"
DRAWN = ("bottleneck", "in_context", "language", "mlbtc_prompts", "mup_transfer", "rank_lists")


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., PaperExperiment]:
    """Makes an experiment whose small suite has few predictors, attentions, steps and windows."""

    def made(experiment: PaperExperiment, predictors: list[str], attentions: list[str], **values: Any) -> Any:
        name = f"{experiment.name}_small.yaml"
        content = yaml.safe_load((SUITES / name).read_text())
        for key, names in (("predictors", predictors), ("attentions", attentions)):
            content[key] = {one: content[key][one] for one in names}
        for predictor in content["predictors"].values():
            if "attentions" in predictor:
                predictor["attentions"] = [one for one in predictor["attentions"] if one in attentions]
        for attention in content["attentions"].values():
            if "predictors" in attention:
                attention["predictors"] = [one for one in attention["predictors"] if one in predictors]
        content["seeds"], models = 1, [f"{predictors[-1]}, {one}" for one in attentions]
        content["questions"] = [{"ask": "Is it lower?", "models": models[-1:], "against": models[0]}]
        content["values"] |= {"trainer.max_steps": 4, "trainer.val_check_interval": 2}
        content["values"] |= {"data.val_draws": 6, "data.test_draws": 9, **values}
        (tmp_path / name).write_text(yaml.safe_dump(content, sort_keys=False))
        return replace(experiment, suites=tmp_path)

    return made


@pytest.mark.slow
def test_regression_in_context_runs_to_its_report(toy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predictors, output = ["least_squares", "w16_slow"], tmp_path / "results"
    experiment = toy(in_context.EXPERIMENT, predictors, ["standard", "btt_1"], **{"data.batch_size": 4})
    words = ["--output", str(output), "--folder", str(tmp_path / "runs")]
    assert experiment.main([*words, "--dry-run"]) == 0
    assert "in_context_small: 3 runs: 3 to be run" in capsys.readouterr().out
    assert not output.exists()
    assert experiment.main(words) == 0
    frame = Records.read(output).frame
    assert frame["status"].tolist() == ["done"] * 3
    assert set(frame["windows"]) == {9}
    assert frame.set_index("predictor")["mse"]["least_squares"] < 1e-6, "the last value follows from the pairs"
    assert frame["key"].nunique() == frame["flops"].notna().sum() == 3
    table = pd.read_csv(output / "table.csv")
    assert table["attention"].tolist() == ["standard", "btt_1"]
    assert table["rank"].tolist() == [2, 16]
    text = (output / "report.md").read_text()
    assert json.loads((output / "claims.json").read_text())["command"] == "python benchmarks/paper/in_context.py"
    assert text.count("| undecided |") == 1, "one seed"
    assert "d 4, widths 16, 3 layers, 4 steps of 4 prompts" in text
    (output / "report.md").unlink()
    capsys.readouterr()
    assert experiment.main(["--report-only", "--output", str(output)]) == 0
    assert (output / "report.md").read_text() == text
    assert experiment.main([*words, "--dry-run"]) == 0
    assert "3 runs: 3 done" in capsys.readouterr().out


@pytest.mark.slow
def test_language_models_of_a_text_run_to_their_report_when_no_run_is_left(
    toy: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, output = tmp_path / "some words.txt", tmp_path / "results"
    text.write_text("the quick fox jumps over the lazy dog, " * 400)
    small = {"data.batch_size": 2, "model.backbone.num_layers": 1, "data.text": str(text)}
    experiment = toy(language.EXPERIMENT, ["w64", "w128"], ["standard", "mlr"], **small)
    words = ["--output", str(output), "--folder", str(tmp_path / "runs")]
    assert experiment.main([*words, "--attention", "mlr"]) == 0
    said = "error: 2 runs of language_small left: the report is made when all are done"
    assert said in capsys.readouterr().err
    assert not (output / "report.md").exists()
    assert experiment.main(["--report-only", "--output", str(output)]) == 0
    assert "; 2 runs left |" in (output / "report.md").read_text()
    assert experiment.main([*words, "--jobs", "2"]) == 0
    frame = Records.read(output).frame
    assert frame["status"].tolist() == ["done"] * 4
    assert frame["mae"].between(1, 7).all(), "nats"
    report = (output / "report.md").read_text()
    assert "`python benchmarks/paper/language.py`, the suite `language_small`" in report
    models = [[size, model] for size in ("w64", "w128") for model in ("mlr", "standard")]
    table = pd.read_csv(output / "table.csv")
    assert sorted(table[["model", "attention"]].to_numpy().tolist()) == sorted(models)
    assert "runs left" not in report


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem.startswith(DRAWN) else pytest.mark.real_data)
        for path in sorted(SUITES.glob("*_small.yaml"))
    ],
)
def test_every_suite_can_be_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # the library of Python takes seconds to parse
    monkeypatch.setattr(text_windows, "_library", lambda root: root.glob("[a-d]*.py"))
    large = path.with_name(path.name.replace("_small", "_h100"))
    assert not large.exists() or read_suite(large).predictors
    suite = read_suite(path)
    values = dict(suite.values)
    if path.stem.startswith(DRAWN):
        values |= {"data.init_args.val_draws": 1, "data.init_args.test_draws": 1}
    least = [name for name, one in suite.data.items() if one.limits.horizons in ((32,), (16,), (8,))] or [*suite.data]
    # the other predictors differ in their widths and learning rates
    some = replace(suite, values=values).narrowed(seeds=1, data=least[:1], predictors=[*suite.predictors][:2])
    entries = Planner().plan(some)
    reasons = {entry.reason for entry in entries if entry.reason}
    # four levels of equal ranks need heads of four components
    assert all("the head size 2 is not divisible by" in reason for reason in reasons), reasons
    keys = [entry.key for entry in entries if not entry.reason]
    assert len(set(keys)) == len(keys), "no two models are one experiment"


def test_mistakes_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = in_context.EXPERIMENT
    assert experiment.main(["--report-only", "--output", str(tmp_path)]) == 2
    said = f"error: nothing was run into {tmp_path} yet: run it without --report-only"
    assert capsys.readouterr().err.strip() == said
    monkeypatch.setattr(sys, "argv", ["etth1.py", "--report-only", "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:  # as a command
        runpy.run_path(str(ROOT / "benchmarks" / "paper" / "etth1.py"), run_name="__main__")
    assert (stop.value.code, capsys.readouterr().err.strip()) == (2, said)
    for words, said in (
        (["--report-only", "--horizon", "8"], "with --report-only nothing is run: leave --horizon out"),
        (["--size", "huge"], "invalid choice: 'huge'"),
        (["--suite=ett"], "the suite is that of the experiment: --size small or --size h100"),
    ):
        with pytest.raises(SystemExit) as stop:
            experiment.main(words)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    for words, said in ((["--jobs", "none"], "--jobs must be a whole number of at least 1"), (["--bogus"], "--bogus")):
        assert experiment.main(words) == 2
        assert said in capsys.readouterr().err


def test_caches_are_compared_with_those_of_standard_attention() -> None:
    rows = pd.DataFrame(
        [
            {"T": T, "model": model, "seconds": s, "fastest": 0.95 * s, "slowest": 1.05 * s, "machine": "A CPU"}
            | dict.fromkeys(("key_bytes", "closed_form"), int(1000 * T * byte))
            for T in (256, 1024)
            for model, s, byte in (("standard", 1.0, 1.0), ("mlr", 1.5, 0.6))
        ]
    )
    report = generation.report(rows, 128)
    assert [claim.holds for claim in report.claims] == [True, True]
    assert "T 256: 154 kB, 0.600 of standard attention's, in closed form 154 kB" in report.claims[0].found
    assert "T 256: 171 characters a second (163 to 180) against 256 (244 to 269)" in report.claims[1].found
    assert report.claims[1].size == "A CPU"
    assert report.table["keys"].tolist() == [1, 0.6, 1, 0.6]
    assert report.table["time"].tolist() == [1, 1.5, 1, 1.5]
    assert "of 256: 64; of 1024: 128" in report.legend
    more = rows.assign(key_bytes=rows["key_bytes"] + 1)
    assert generation.report(more, 128).claims[0].holds is False, "more than the closed form has"


def test_writing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(generation, "Timing", lambda seconds: Timing(0, 1, 1))
    monkeypatch.setattr(generation, "ROUNDS", 2)
    words = ["--lengths", "8", "4", "--width", "64", "--output", str(tmp_path)]
    assert generation.main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "T 4: to be measured\nT 8: to be measured\n"
    assert generation.main([*words, "--report-only"]) == 2
    assert f"nothing was measured in {tmp_path}: run it without --report-only" in capsys.readouterr().err
    assert generation.main(words) == 0
    text = (tmp_path / "report.md").read_text()
    names, table = [*generation.attentions_of(8)], pd.read_csv(tmp_path / "table.csv")
    assert table["model"].tolist() == [*names, "standard, no cache", *names]
    assert table["T"].tolist() == [4] * 5 + [8] * 4
    assert (table["characters a second"] > 0).all()
    standard, mlr = (table[table["model"] == model]["key bytes"].tolist() for model in ("standard", "mlr"))
    assert standard == [4 * 64 * 4 * 6, 8 * 64 * 4 * 6], "six layers of a head of 64 components in float32"
    assert mlr[1] < standard[1]
    assert "--lengths 4 8 --width 64`, by the clock:\n- " in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert (claims["title"], claims["claims"][0]["holds"]) == ("Writing with caches", True)
    monkeypatch.setattr(generation, "measured", lambda *_, **__: pytest.fail("it was measured again"))
    for more in ([], ["--report-only"]):
        (tmp_path / "report.md").unlink()
        assert generation.main([*words, *more]) == 0
        assert (tmp_path / "report.md").read_text() == text
    for other in (["--again"], ["--seconds", "3"]):
        with pytest.raises(pytest.fail.Exception):
            generation.main([*words, *other])
    torch.set_num_threads(threads)


def model_of(name: str, T: int = 256) -> generation.CharacterTransformer:
    torch.manual_seed(0)
    task, attention = Task("text", T + 1, T, ("text",), "1", 1), generation.attentions_of(T)[name]
    return generation.CharacterTransformer(task, Output(), d_model=64, num_layers=1, attention=attention).eval()


def test_models_come_to_the_same_scores_with_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlr", "global_swa"):
        generation.check_caches(name, model_of(name))
    made = MultiLevelPattern.new_cache

    def coarser(pattern: Any, *given: Any) -> Any:
        cache = made(pattern, *given)
        assert cache.blocks[1] == (2, 256)
        cache.blocks = [cache.blocks[0], (1, 256), *cache.blocks[2:]]
        return cache

    monkeypatch.setattr(MultiLevelPattern, "new_cache", coarser)  # levels that keep other blocks are not timed
    with pytest.raises(RuntimeError, match=r"mlr comes to other scores .*: from character 1\d\d of 256"):
        generation.check_caches("mlr", model_of("mlr"))


def timed_rows(ratios: dict[str, list[float]]) -> pd.DataFrame:
    """What rounds of the benchmark of attention came to, by contender the ratio in each."""
    return pd.DataFrame(
        [
            {"machine": "A CPU", "contender": name, "T": T, "causal": causal, "pass": which, "round": number,
             "median_ms": 2 * ratio, "ratio": ratio + 0.01 * causal, "turns": 5}
            for name, by_round in {"sdpa": [1.0] * 3, **ratios}.items()
            for number, ratio in enumerate(by_round, 1)
            for T in (256, 4096)
            for causal in (False, True)
            for which in ("forward", "forward+backward")
        ]
    )  # fmt: skip


def test_each_path_is_compared_with_the_kernel_of_pytorch() -> None:
    ratios = {
        "mlr native": [0.8, 0.9, 0.7],
        "mlr tiles": [1.3, 1.2, 1.4],
        "mlr loose": [1.1, 0.9, 1.2],
        "mlr twice": [1.3, 1.3],
        "swa native": [0.2] * 3,
    }
    report = wall_clock.report(wall_clock.timed(timed_rows(ratios)))
    assert [claim.holds for claim in report.claims] == [False, True, None, None]
    said = "by our own kernel takes longer than SDPA (mlr native compared with SDPA; 1.35 times"
    assert said in report.claims[0].text
    assert [claim.is_of_paper for claim in report.claims] == [False, True, True, True]
    assert report.claims[1].found.startswith("forward: 1.20 to 1.41 times; forward+backward: 1.20 to 1.41 times, the")
    assert report.claims[1].size == "A CPU; T 256 to 4096"
    assert "sdpa" not in set(report.table["contender"])
    tiles = report.table[report.table["contender"] == "mlr tiles"].iloc[0]
    assert (tiles["ratio"], tiles["least"], tiles["greatest"], tiles["rounds"]) == (1.3, 1.2, 1.4, 3)
    assert tiles["causal"] == "no"
