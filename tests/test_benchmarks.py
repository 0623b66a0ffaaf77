"""The benchmarks do their work in small too, where their figures mean nothing, and what was committed is whole."""

import importlib
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from benchmarks.paper import wall_clock
from tests.chronos.tiny_models import tiny_pipeline
from tests.ops.native.kernels_there import needs_kernels
from tests.peers.there import needs_peers
from tsattn.cli import main
from tsattn.experiments.configs import find_config
from tsattn.leaderboard.suite import read_suite
from tsattn.ops.multilevel_triton import triton_available

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
Run: TypeAlias = Callable[..., int]
Capture: TypeAlias = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a benchmark with its words, and returns its exit code."""
    for folder in (BENCHMARKS, BENCHMARKS / "pretraining"):
        monkeypatch.syspath_prepend(str(folder))

    def run_it(script: str, *words: object) -> int:
        main: Any = runpy.run_path(str(BENCHMARKS / f"{script}.py"))["main"]
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *map(str, words)])
        code: int = main()
        return code

    return run_it


def refused(run: Run, capsys: Capture, *words: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        run(*words)
    assert stop.value.code == 2
    return capsys.readouterr().err


def record_in(folder: Path) -> tuple[Path, Any]:
    (file,) = folder.glob("*.json")
    return file, json.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_training_is_measured(tmp_path: Path, run: Run, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.run

    def run_here(command: list[str], **how: Any) -> Any:
        """As the command in a process of its own, without the imports of one."""
        if command[:3] != [sys.executable, "-m", "tsattn"]:
            return ended(command, **how)
        return subprocess.CompletedProcess(command, main(command[3:]))

    monkeypatch.setattr(subprocess, "run", run_here)
    ((_, *words),) = runpy.run_path(str(BENCHMARKS / "gpu.py"))["commands"]("training", tmp_path, True)
    assert run("gpu_training", *words) == 0
    out = tmp_path / "training"
    table = pd.read_csv(out / "gpu_training.csv")
    assert list(table.setting) == ["float32", "bf16"]
    assert (table[["windows_per_second", "seconds_in_all"]] > 0).all(axis=None)
    assert (table.seconds_in_all > table.seconds).all()
    commands = json.loads((out / "gpu_training.json").read_text())["commands"]
    precisions = zip(("32-true", "bf16-mixed"), commands, strict=True)
    assert all(f"--trainer.precision={name}" in command for name, command in precisions)
    # a record is not made again by the same command; an error that grew with the speed is seen
    record = out / "gpu_training_runs" / "mlr_bf16.json"
    row = json.loads(record.read_text())
    record.write_text(json.dumps({**row, "validation_error": 2 * row["validation_error"]}))
    capsys.readouterr()
    words = ["--accelerator", "cpu", "--max-steps", 2, "--attention", "mlr", "--setting", "bf16"]
    assert run("gpu_training", *words, "--config", tmp_path / "tiny.yaml", "--out", out) == 1
    assert "NOT within 5 % of float32" in capsys.readouterr().out
    assert json.loads(record.read_text())["seconds_in_all"] == row["seconds_in_all"]


@pytest.mark.parametrize(
    "words", [["gpu_training", "--out"], ["gpu", "--output"], ["attention", "--device", "cuda", "--output"]]
)
def test_a_gpu_is_asked_for(
    words: list[str], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "there is no CUDA device" in refused(run, capsys, *words, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not triton_available(), reason="Triton is not installed")
def test_all_that_needs_a_gpu_has_a_dry_run(tmp_path: Path, run: Run, capsys: Capture) -> None:
    (words,) = runpy.run_path(str(BENCHMARKS / "gpu.py"))["commands"]("attention", tmp_path, True)
    assert words[0] == "benchmarks/attention.py"
    assert run("attention", *words[1:]) == 0
    assert "mlr triton" in capsys.readouterr().out


def test_a_dry_run_knows_its_tests_and_suites(tmp_path: Path) -> None:
    script = runpy.run_path(str(BENCHMARKS / "gpu.py"))
    found = [Path(file).stem for file, *_ in script["commands"]("paper", tmp_path, True)]
    suites = (BENCHMARKS / "paper" / "suites").glob("*_h100.yaml")
    assert sorted(found) == sorted(file.stem.removesuffix("_h100") for file in suites)
    for test in script["FEW_TESTS"]:
        ((file, name, case),) = re.findall(r"^(.+)::(\w+)(?:\[([\w ]+).*\])?$", test)
        content = (BENCHMARKS.parent / file).read_text()
        assert f"\ndef {name}(" in content
        assert f'"{case}"' in content or not case


def test_a_step_that_fails_leaves_the_others_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main: Any = runpy.run_path(str(BENCHMARKS / "gpu.py"))["main"]
    code = {
        "tests": "print('one'); exit(3)",
        "attention": "import os; print(os.environ['TRITON_INTERPRET'])",
        "training": "pass",
    }
    monkeypatch.setitem(main.__globals__, "commands", lambda step, *_: [["-c", code[step]]])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run", "--output", str(tmp_path)])
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert main() == 1
    about = json.loads((tmp_path / "gpu.json").read_text())
    assert about["dry_run"]
    assert [step["exit_code"] for step in about["steps"].values()] == [3, 0, 0]
    assert (tmp_path / "attention.txt").read_text() == "1\n"


@pytest.mark.slow
@needs_kernels
def test_attention_is_measured_in_every_part(
    tmp_path: Path, run: Run, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["attention", "--dry-run", "--output", tmp_path]
    assert run(*words) == 0
    file, about = record_in(tmp_path)
    table = pd.read_csv(file.with_suffix(".csv"))
    assert set(about["parts"]) == set(table.part)
    assert {"attention", "bfloat16", "modules", "patchtst", "long", "dropout"} <= set(table.part)
    assert (table[["median_ms", "ratio"]] > 0).all(axis=None)
    assert (table.loc[table.part == "dropout", "peak_mib"] > 0).all()
    monkeypatch.setattr("attention_speed.contenders.check", lambda *_: 0.0)  # once is enough
    assert run(*words, "--parts", "long") == 0
    again = pd.read_csv(file.with_suffix(".csv"))
    assert len(again) == len(table)
    one, other = (frame[frame.part != "long"].reset_index(drop=True) for frame in (again, table))
    pd.testing.assert_frame_equal(one, other)
    said = refused(run, capsys, *words, "--parts", "nothing")
    assert "no part is called nothing; there are attention, " in said

    def measured(command: list[str], check: bool) -> None:
        assert command[1:4] == [str(BENCHMARKS / "attention.py"), "--parts", "attention"]
        shutil.copy(file.with_suffix(".csv"), command[command.index("--output") + 1])

    output = tmp_path / "rounds"
    for once in (measured, lambda *_, **__: pytest.fail("it was measured again")):
        monkeypatch.setattr(wall_clock.subprocess, "run", once)
        assert wall_clock.main(["--tiny", "--output", str(output)]) == 0
    rows = pd.read_csv(output / "table.csv")
    assert set(rows["T"]) == {63, 127}
    assert set(rows["rounds"]) == {3}
    assert "mlr native" in set(rows["contender"])


def test_a_wrong_contender_is_seen() -> None:
    contenders = importlib.import_module("attention_speed.contenders")
    problem = contenders.Problem(70, 1, 8, causal=True)
    wrong = contenders.Contender(contenders.swa("reference"), contenders.standard("reference"))
    right = contenders.Contender(contenders.sdpa, contenders.standard("reference"))
    assert contenders.check(wrong, problem, torch.float32, "cpu") > 0.01
    assert contenders.check(right, problem, torch.float32, "cpu") < contenders.TOLERANCES[torch.float32]


def test_the_worst_row_counts_and_every_machine_has_all_its_files() -> None:
    report = importlib.import_module("attention_speed.report")
    rows = pd.DataFrame({"part": ["avx2", "avx2", "bare"], "ratio": [0.5, 0.97, 2.0]})
    target = report.Target("one", 0.95, {"part": "avx2"})
    assert report.reached([target, report.Target("two", 1, {"part": "other"})], rows) == [
        {"target": "one", "measured": 0.97, "at_most": 0.95, "met": False}
    ]
    page = (BENCHMARKS.parent / "docs" / "how-to" / "native-kernel.md").read_text("utf-8")
    for machine in {path.stem for path in report.FOLDER.iterdir()}:
        wanted = {".csv", ".json", *([".png"] if f"{machine}.png" in page else [])}
        assert {path.suffix for path in report.FOLDER.glob(f"{machine}.*")} == wanted, machine


@needs_peers
@pytest.mark.slow
@pytest.mark.real_data
def test_training_is_measured_beside_the_peers(tmp_path: Path, run: Run, capsys: Capture) -> None:
    words = ["peers", "--dry-run", "--output", tmp_path]
    assert run(*words, "--recipes", "patchtst") == 0
    file, record = record_in(tmp_path)
    (best,) = record["best"]
    assert [[one["at"] for one in best["curves"][name]] for name in ("tsattn", "neuralforecast")] == [[3, 6], [3, 6]]
    assert file.with_suffix(".md").read_text() in capsys.readouterr().out
    assert run(*words, "--parts", "steps", "--recipes", "itransformer") == 0
    again = json.loads(file.read_text())
    assert again["best"] == record["best"]
    assert again["steps"]["patchtst"] == record["steps"]["patchtst"]
    assert list(again["steps"]) == ["patchtst", "itransformer"]
    for one in again["steps"].values():
        ours, theirs = one["tsattn"], one["neuralforecast"]
        assert one["times_faster"] == pytest.approx(theirs["ms"] / ours["ms"], rel=0.01)
        assert min(ours["memory_mib"], theirs["memory_mib"]) > 0
        assert ours["parameters"] == pytest.approx(theirs["parameters"], rel=0.02), "the same sizes"


def test_the_benchmark_of_peers_asks_for_their_environment(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("TSATTN_PEERS", str(tmp_path / "none"))
    said = "TSATTN_PEERS must be the python of an environment with the peers"
    assert said in refused(run, capsys, "peers")


@pytest.mark.slow
@pytest.mark.real_data
def test_conversions_are_compared(tmp_path: Path, run: Run, capsys: Capture) -> None:
    weights = [tmp_path / f"bolt-{seed}" for seed in (1, 2)]
    for seed, folder in enumerate(weights):
        tiny_pipeline("bolt", seed=seed).inner_model.save_pretrained(folder)
    words = ["chronos_conversion", "--dry-run", "--output", tmp_path, "--weights", *weights]
    assert run(*words) == 0
    assert len(capsys.readouterr().out.split(" s\n")) == 19, "a line for each run"
    record = json.loads((tmp_path / "conversion.json").read_text())
    models = ["copy", "rotate", "rotate_noise", "rotate_training", "swa", "btt"]
    errors = {model: one["mean"] for model, one in record["output_errors"].items()}
    assert [*errors] == models
    assert errors["rotate_training"] < errors["rotate_noise"] < errors["copy"]
    low, mean, high = (
        {r["model"]: r for r in record["fine_tuned"]["rows"]}["mlr"][k] for k in ("low", "ratio", "high")
    )
    assert low < mean < high
    text = (tmp_path / "conversion.md").read_text()
    assert "A dry run of toy sizes" in text
    assert f"| MLR, `copy` | {errors['copy']:.4f} |" in text
    runs = tmp_path / "runs"
    (runs / "converted-1-national_illness-btt.json").unlink()
    kept = runs / "converted-2-national_illness-copy.json"
    content = json.loads(kept.read_text())
    content["found"]["errors"]["encoder.0"] += 2
    kept.write_text(json.dumps(content))
    other = runs / "fine_tuned-1-national_illness-mlr.json"
    other.write_text(json.dumps({"known": {"weights": "others"}, "found": {}}))
    assert run(*words) == 0
    printed = [line.split(": ")[1].split(",")[0] for line in capsys.readouterr().out.splitlines() if " of 18: " in line]
    assert printed == ["converted-1-national_illness-btt", "fine_tuned-1-national_illness-mlr"]
    again = json.loads((tmp_path / "conversion.json").read_text())
    assert again["output_errors"]["copy"]["mean"] > errors["copy"]
    assert again["fine_tuned"] == record["fine_tuned"]


def test_a_ratio_has_its_paired_interval() -> None:
    paired = importlib.import_module("chronos_conversion").paired
    rng = np.random.default_rng(0)
    counts = [48] * 1000
    levels = (48 * (1 + 0.3 * np.sin(np.arange(1000) / 99) + shift) for shift in (0.0, 0.1, 0.3))
    others = [{"counts": counts, "sums": level.tolist()} for level in levels]

    def model(factor: float, spread: float) -> list[dict[str, Any]]:
        noise = 1 + 0.02 * rng.standard_normal((3, 1000))
        by_seed = zip(factor + spread * np.array([-1.0, 0.2, 0.8]), noise, others, strict=True)
        return [{"counts": counts, "sums": (f * n * np.array(one["sums"])).tolist()} for f, n, one in by_seed]

    near = paired(model(1.02, 1e-4), others, 48)
    assert near["low"] < 1.02 < near["high"]
    assert near["low"] > 1.01, "pairs differ far less than seeds do"
    far = paired(model(1.02, 0.05), others, 48)
    assert far["low"] < 1 < far["high"]
    assert paired(model(1.02, 0.05)[:1], others[:1], 48)["pairs"] == 1
    short = [{**one, "counts": counts[:9], "sums": one["sums"][:9]} for one in others]
    assert paired(short, short, 48)["low"] is None
    with pytest.raises(RuntimeError, match="different windows"):
        paired(others, [{**one, "counts": [47] * 1000} for one in others], 48)


@pytest.mark.slow
@needs_kernels
def test_the_speed_of_chronos_is_measured(tmp_path: Path, run: Run) -> None:
    assert run("chronos_speed", "--dry-run", "--output", tmp_path) == 0
    file, record = record_in(tmp_path)
    with_bias, without = record["encoder"]
    ours = ["standard, sdpa", "standard, native", "mlr, native"]
    assert ([*with_bias["seconds"]], [*without["seconds"]]) == (["original", *ours], ours)
    (decoded,) = record["decoder"]
    # at the last of 12 tokens in 1, 2 and 4 blocks of 3: 4, 2 and 2 components of all, of 6 and of 3 tokens
    assert decoded["key_bytes"]["original"] == 12 * 8 * 2 * 2 * 20 * 4
    assert decoded["key_bytes"]["mlr"] == (12 * 4 + 6 * 2 + 3 * 2) * 2 * 2 * 20 * 4
    assert "A dry run of toy sizes" in file.with_suffix(".md").read_text()


@pytest.mark.slow
def test_the_defaults_are_measured(tmp_path: Path, run: Run) -> None:
    words = ["--without-peers"] if needs_peers.args[0] else []
    assert run("defaults", *words, "--dry-run", "--data", "CO2", "--seeds", 2, "--output", tmp_path) == 0
    file, record = record_in(tmp_path)
    (co2,) = record["data"].values()
    assert [*co2["runs"]] == ["default network"] + ([] if words else ["NHITS", "PatchTST"])
    for runs in co2["runs"].values():
        assert [one["steps"] for one in runs] == [2, 2]
        assert all(one["seasonal naive"] == pytest.approx(1.37, abs=0.01) for one in runs), "the windows are the same"
        assert runs[0]["mase"] != runs[1]["mase"]
    (row,) = [line for line in file.with_suffix(".md").read_text().splitlines() if line.startswith("| CO2 ")]
    assert f"{np.mean([one['mase'] for one in co2['runs']['default network']]):.3f}" in row


def test_long_files_are_timed_beside_pandas(tmp_path: Path, run: Run) -> None:
    assert run("long_csv", "--rows", 4000, "--rounds", 1, "--out", tmp_path) in (0, 1)
    facts, committed = (
        json.loads((folder / "long_csv.json").read_text()) for folder in (tmp_path, BENCHMARKS / "results" / "data")
    )
    ratios = {"processor, least of all rounds", "processor, median of the rounds", "clock, median of the rounds"}
    assert facts["ratios"].keys() == committed["ratios"].keys() == ratios
    assert "4,000 rows of a long CSV file" in (tmp_path / "report.md").read_text()
    assert committed["rows"] == 2_000_000


def test_how_often_intervals_hold_is_counted(tmp_path: Path, run: Run) -> None:
    run("interval_coverage", "--draws", 2, "--output", tmp_path)
    committed = BENCHMARKS / "results/statistics"
    table, small = (pd.read_csv(folder / "coverage.csv") for folder in (committed, tmp_path))
    assert small["case"].tolist() == table["case"].tolist()
    assert table["draws"].min() >= 2000
    page = runpy.run_path(str(BENCHMARKS / "interval_coverage.py"))["page"]
    assert page(table) == (committed / "coverage.md").read_text()
    is_asked = table["case"].isin(["four horizons", "unequal seed spread"]) | table["case"].str.contains("data sets")
    is_wide = table["case"] == "7 data sets that differ by 0.0%"  # few that agree by chance do not narrow a mean
    assert table.loc[is_asked & ~is_wide, "coverage"].between(0.93, 0.97).all()
    assert table.loc[is_wide, "coverage"].between(0.98, 0.99).all()
    assert table.loc[is_asked, "family"].max() < 0.05


def test_tasks_of_the_arena_are_those_of_its_suite() -> None:
    arena, panel = importlib.import_module("arena"), importlib.import_module("panel_worker")
    tasks = yaml.safe_load(arena.TASKS.read_text())
    suite = read_suite(find_config("arena", "suite", "suites"))
    assert {*suite.data} == {*tasks["public"], *tasks["packages"], *(task.name for task in panel.TASKS)}
    assert all(
        data.data_module["init_args"]["path"] == f"build/arena/{name}.parquet" for name, data in suite.data.items()
    )
    assert len(suite.data) >= 48
    assert len({data.source for data in suite.data.values()}) >= 12


def test_a_task_of_the_arena_has_all_steps() -> None:
    arena = importlib.import_module("arena")
    days = pd.DatetimeIndex(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-05"])
    real = pd.DataFrame(
        {"unique_id": ["0 x/a"] * 4 + ["1 x/b"], "source": "s", "ds": [*days, days[0]], "y": [None, 2, 3, 5, 1]}
    )
    found = arena.on_grid(arena.package_series(real, "s", "x/a"))
    assert found["ds"].tolist() == [*pd.date_range(days[1], days[3])]
    np.testing.assert_array_equal(found["y"], [2, 3, np.nan, 5])
    steps = ("15min", "h", "D", "W-TUE", "MS", "QS", "YS")
    stamps = [pd.date_range("2020-01-01", periods=9, freq=step).delete(4) for step in steps]
    assert [arena.frequency_of(one) for one in stamps] == [*steps]


def group_of(series: list[Any], season: int, horizon: int) -> Any:
    contexts, targets = [one[:-horizon] for one in series], np.stack([one[-horizon:] for one in series])
    return importlib.import_module("evaluate").Group("toy", season, horizon, contexts, targets)


def test_seasonal_naive_scores_one_through_the_forecaster_and_by_itself() -> None:
    evaluate, rng = importlib.import_module("evaluate"), np.random.default_rng(0)
    series = [rng.normal(size=40) + np.tile([1.0, 2, 3, 4], 10) for _ in range(3)]
    series[1][5:9] = np.nan
    rows = evaluate.compare([group_of(series, 4, 8)], evaluate.with_forecaster("seasonal_naive"))
    assert rows.loc[0, "mase_ratio"] == pytest.approx(1, abs=1e-5)
    assert rows.loc[0, "wql_ratio"] == pytest.approx(1, abs=1e-5)


def test_scores_are_those_by_hand() -> None:
    series = np.arange(12.0)
    group = group_of([series], 1, 2)  # naive errors of 1 a step in the context
    levels = importlib.import_module("evaluate").LEVELS
    forecast = np.tile(np.array([9.0, 10.0])[None, :, None], (1, 1, len(levels)))  # 1 too low at all levels
    scores = group.scores(forecast)
    assert scores["mase"] == 1
    assert scores["wql"] == pytest.approx(2 * np.mean(levels) * 2 / (10 + 11))
    assert np.isnan(scores["coverage_80"])
    wide = forecast + np.linspace(-3, 3, len(levels))
    assert group.scores(wide)["coverage_80"] == 1


def test_a_summary_is_the_geometric_mean_over_groups() -> None:
    evaluate, rng = importlib.import_module("evaluate"), np.random.default_rng(1)
    groups = [group_of([rng.normal(size=60).cumsum() for _ in range(2)], 12, 6) for _ in range(3)]
    rows = evaluate.compare(groups, lambda contexts, season, horizon, levels: np.zeros((2, horizon, len(levels))))
    assert evaluate.summary(rows)["mase_ratio"] == pytest.approx(np.exp(np.log(rows["mase_ratio"]).mean()))


def test_a_series_is_found_again_scaled_moved_and_cut() -> None:
    bank, rng = importlib.import_module("same_series").Bank(), np.random.default_rng(2)
    known = [rng.normal(size=length).cumsum() for length in (80, 30, 200)]
    for one in known:
        bank.add("M", one)
    assert bank.has("M", 7 * known[2][40:150] - 3)
    assert bank.has("M", np.concatenate([known[0][:70], rng.normal(size=10)]))  # its end was revised
    assert not bank.has("M", rng.normal(size=100).cumsum())
    assert not bank.has("Q", known[2])
