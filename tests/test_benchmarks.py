"""The benchmarks do their work in small too, where their figures mean nothing, and what was committed is whole."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

from tests.peers.there import needs_peers
from tsattn.ops.multilevel_triton import triton_available
from tsattn.ops.native.library import load_kernels

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
WORDS = ["--accelerator", "cpu", "--max-steps", "2", "--attention", "mlr", "--setting", "bf16"]


@pytest.fixture(autouse=True)
def parts_of_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def run(script: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    main: Any = runpy.run_path(str(BENCHMARKS / f"{script}.py"))["main"]
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *words])
    code: int = main()
    return code


def part(name: str) -> Any:
    return importlib.import_module(f"attention_speed.{name}")


@pytest.mark.slow
@pytest.mark.real_data
def test_training_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = yaml.safe_load((ROOT / "configs" / "etth1_mlr_paper.yaml").read_text())
    content["model"]["backbone"] |= {"d_model": 16, "num_heads": 2, "num_layers": 1, "d_ff": 16}
    content["model"]["backbone"]["attention"] = {"kind": "mlr", "ranks": [4, 4]}
    config = tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump(content))
    words = [*WORDS, "--config", str(config), "--out", str(tmp_path / "out")]
    assert run("gpu_training", words, monkeypatch) == 0
    table = pd.read_csv(tmp_path / "out" / "gpu_training.csv")
    assert list(table.setting) == ["float32", "bf16"]
    assert (table[["windows_per_second", "utilisation", "model_gflops_a_window", "seconds_in_all"]] > 0).all(axis=None)
    assert (table.seconds_in_all > table.seconds).all()
    assert (tmp_path / "out" / "gpu_training.png").stat().st_size > 5000
    about = json.loads((tmp_path / "out" / "gpu_training.json").read_text())
    assert [
        f"--trainer.precision={name}" in command
        for name, command in zip(("32-true", "bf16-mixed"), about["commands"], strict=True)
    ] == [True, True]
    # a record is not made again; an error that grew with the speed is seen
    record = tmp_path / "out" / "gpu_training_runs" / "mlr_bf16.json"
    row = json.loads(record.read_text())
    record.write_text(json.dumps({**row, "validation_error": 2 * row["validation_error"]}))
    capsys.readouterr()
    assert run("gpu_training", words, monkeypatch) == 1
    assert "NOT within 5 % of float32" in capsys.readouterr().out
    assert json.loads(record.read_text())["seconds_in_all"] == row["seconds_in_all"]


@pytest.mark.parametrize(
    ("script", "words"),
    [("gpu_training", ["--out"]), ("gpu", ["--output"]), ("attention", ["--device", "cuda", "--output"])],
)
def test_a_gpu_is_asked_for(
    script: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        run(script, [*words, str(tmp_path)], monkeypatch)
    assert stop.value.code == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_all_that_needs_a_gpu_has_a_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not triton_available():
        pytest.skip("Triton is not installed, so its steps are not tried")
    assert run("gpu", ["--dry-run", "--output", str(tmp_path)], monkeypatch) == 0
    about = json.loads((tmp_path / "gpu.json").read_text())
    assert about["dry_run"]
    assert {name: step["exit_code"] for name, step in about["steps"].items()} == {
        "tests": 0,
        "attention": 0,
        "training": 0,
    }
    assert "mlr triton" in (tmp_path / "attention.txt").read_text()
    assert "2 passed" in (tmp_path / "tests.txt").read_text()
    assert (tmp_path / "training" / "gpu_training.png").exists()


def test_a_step_that_fails_leaves_the_others_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = runpy.run_path(str(BENCHMARKS / "gpu.py"))
    main: Any = names["main"]
    code = {"tests": "print('one'); exit(3)", "attention": "print('two')", "training": "pass"}
    monkeypatch.setitem(main.__globals__, "commands", lambda step, *_: [["-c", code[step]]])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--dry-run", "--output", str(tmp_path)])
    assert main() == 1
    steps = json.loads((tmp_path / "gpu.json").read_text())["steps"]
    assert [step["exit_code"] for step in steps.values()] == [3, 0, 0]
    assert (tmp_path / "attention.txt").read_text() == "two\n"


@pytest.mark.slow
def test_attention_is_measured_in_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if load_kernels() is None:
        pytest.skip("the kernels are not compiled here, so nothing is measured")
    words = ["--dry-run", "--output", str(tmp_path)]
    assert run("attention", words, monkeypatch) == 0
    (file,) = tmp_path.glob("*.json")
    about, table = json.loads(file.read_text()), pd.read_csv(file.with_suffix(".csv"))
    assert set(about["parts"]) == set(table.part)
    assert {"attention", "bfloat16", "modules", "patchtst", "long", "decoding"} <= set(table.part)
    assert (table[["median_ms", "ratio"]] > 0).all(axis=None)
    # a part that is measured anew leaves the others
    assert run("attention", [*words, "--parts", "bare"], monkeypatch) == 0
    again = pd.read_csv(file.with_suffix(".csv"))
    assert len(again) == len(table)
    pd.testing.assert_frame_equal(
        again[again.part != "bare"].reset_index(drop=True), table[table.part != "bare"].reset_index(drop=True)
    )
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        run("attention", [*words, "--parts", "nothing"], monkeypatch)
    assert stop.value.code == 2
    assert "no part is called nothing; there are attention, " in capsys.readouterr().err


def test_one_part_can_be_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if load_kernels() is None:
        pytest.skip("the kernels are not compiled here, so nothing is measured")
    assert run("attention", ["--dry-run", "--parts", "bare", "--output", str(tmp_path)], monkeypatch) == 0
    (file,) = tmp_path.glob("*.json")
    about = json.loads(file.read_text())
    assert list(about["parts"]) == ["bare"]
    assert [target["target"] for target in about["targets"]] == [
        "MLRAttention with one level over a bare module, T = 96"
    ]
    assert not list(tmp_path.glob("*.png"))


def test_dropout_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if load_kernels() is None:
        pytest.skip("the kernels are not compiled here, so nothing is measured")
    assert run("dropout", ["--dry-run", "--out", str(tmp_path)], monkeypatch) == 0
    about = json.loads((tmp_path / "dropout.json").read_text())
    assert [row["case"] for row in about["rows"]] == ["3 x 5", "3 x 5, residual added", "training step"]
    rows = pd.DataFrame(about["rows"])
    assert (rows[["native_ms", "torch_ms", "native_mib", "torch_mib"]] > 0).all(axis=None)
    with pytest.raises(SystemExit) as stop:
        run("dropout", ["--dry-run"], monkeypatch)
    assert stop.value.code == 2


def test_a_wrong_contender_is_seen() -> None:
    contenders = part("contenders")
    problem = contenders.Problem(70, 1, 8, causal=True)
    wrong = contenders.Contender(contenders.swa("reference"), contenders.standard("reference"))
    right = contenders.Contender(contenders.sdpa, contenders.standard("reference"))
    assert contenders.check(wrong, problem, torch.float32, "cpu") > 0.01
    assert contenders.check(right, problem, torch.float32, "cpu") < contenders.TOLERANCES[torch.float32]


def test_the_levels_fit_the_heads() -> None:
    contenders = part("contenders")
    for width in (8, 64):
        for T in contenders.BATCHES:
            problem = contenders.Problem(T, width=width)
            assert sum(problem.ranks) == width
            assert problem.numbers[-1] <= T + 1  # so that no block is without a token, but for one


def test_the_worst_row_counts() -> None:
    targets = part("targets")
    rows = pd.DataFrame({"part": ["avx2", "avx2", "bare"], "ratio": [0.5, 0.97, 2.0]})
    target = targets.Target("one", 0.95, 0.8, {"part": "avx2"})
    assert targets.reached([target, targets.Target("two", 1, None, {"part": "other"})], rows) == [
        {"target": "one", "measured": 0.97, "at_most": 0.95, "hope": 0.8, "met": False}
    ]


def test_bfloat16_must_pay_where_the_cpu_has_it() -> None:
    bounds = [
        {target.at_most for target in part("targets").cpu_targets({"flags": flags}) if "bfloat16" in target.name}
        for flags in (["avx2"], ["avx2", "avx512_bf16"])
    ]
    assert bounds == [{1.05}, {0.8}]


@pytest.mark.parametrize(
    ("about", "slug"),
    [
        ({"cpu": "AMD EPYC", "cpu_family": 26, "cpu_model": 2}, "amd-epyc-family-26-model-2"),
        ({"cpu": "Intel(R) Xeon(R) Platinum 8488C"}, "intel-xeon-platinum-8488c"),
        ({"cpu": "Intel(R) Core(TM) i7-1185G7 CPU @ 3.00GHz"}, "intel-core-i7-1185g7"),
        ({"cpu": "AMD EPYC", "gpu": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16"}, "nvidia-h100-80gb-hbm3-bfloat16"),
    ],
)
def test_results_are_named_after_the_machine(about: dict[str, Any], slug: str) -> None:
    assert part("machine").slug_of(about) == slug


def test_every_machine_has_all_its_files() -> None:
    folder = part("readme").FOLDER
    for machine in {path.stem for path in folder.iterdir()}:
        assert {path.suffix for path in folder.glob(f"{machine}.*")} == {".csv", ".json", ".png"}, machine


@needs_peers
@pytest.mark.slow
@pytest.mark.real_data
def test_training_is_measured_beside_the_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--dry-run", "--output", str(tmp_path)]
    assert run("peers", [*words, "--recipes", "patchtst"], monkeypatch) == 0
    (file,) = tmp_path.glob("*.json")
    record = json.loads(file.read_text())
    (best,) = record["best"]
    assert [[one["at"] for one in best["curves"][name]] for name in ("tsattn", "neuralforecast")] == [[3, 6], [3, 6]]
    assert file.with_suffix(".md").read_text() in capsys.readouterr().out
    # a part alone leaves the rest as it was
    assert run("peers", [*words, "--parts", "steps", "--recipes", "itransformer"], monkeypatch) == 0
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TSATTN_PEERS", str(tmp_path / "none"))
    with pytest.raises(SystemExit):
        run("peers", [], monkeypatch)
    assert "TSATTN_PEERS must be the python of an environment with the peers" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--without-peers"], pytest.param([], marks=needs_peers)])
def test_the_defaults_are_measured(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*words, "--dry-run", "--data", "CO2", "--seeds", "2", "--output", str(tmp_path)]
    assert run("defaults", words, monkeypatch) == 0
    (file,) = tmp_path.glob("*.json")
    (co2,) = json.loads(file.read_text())["data"].values()
    assert [*co2["runs"]] == (
        ["Forecaster()"] if words[0] == "--without-peers" else ["Forecaster()", "NHITS", "PatchTST"]
    )
    for runs in co2["runs"].values():
        assert [one["steps"] for one in runs] == [2, 2]
        assert all(one["seasonal naive"] == pytest.approx(1.37, abs=0.01) for one in runs), "the windows are the same"
        assert runs[0]["mase"] != runs[1]["mase"]
    (row,) = [line for line in file.with_suffix(".md").read_text().splitlines() if line.startswith("| CO2 ")]
    assert f"{(co2['runs']['Forecaster()'][0]['mase'] + co2['runs']['Forecaster()'][1]['mase']) / 2:.3f}" in row
    with pytest.raises(SystemExit):
        run("defaults", ["--dry-run"], monkeypatch)
    assert "--dry-run needs an --output of its own" in capsys.readouterr().err
