"""What is timed comes to reports that say what was measured, in small, where the figures mean nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from benchmarks.attention_speed.timing import Timing
from benchmarks.paper import generation, wall_clock
from tsattn import run
from tsattn.experiments import Hooks
from tsattn.leaderboard.suite_file import read_suite

SUITES = Path(__file__).parents[2] / "benchmarks" / "paper" / "suites"


def written(factor: float, byte_factor: float) -> pd.DataFrame:
    """Rows of standard attention, and of MLR attention with so much of its time and of its bytes."""
    rows = []
    for T in (256, 1024):
        for arm, time, byte in (("standard", 1.0, 1.0), ("mlr", factor, byte_factor)):
            row = {"T": T, "arm": arm, "seconds": time, "fastest": 0.95 * time, "slowest": 1.05 * time}
            rows.append({**row, "key_bytes": int(1000 * T * byte), "closed_form": int(1000 * T * byte)})
    return pd.DataFrame(rows).astype({"key_bytes": "Int64", "closed_form": "Int64"})


def test_caches_are_compared_with_those_of_standard_attention() -> None:
    report = generation.report(written(1.5, 0.6), 128)
    assert [claim.holds for claim in report.claims] == [True, True]
    assert "T 256: 154 kB, 0.600 of standard attention's, in closed form 154 kB" in report.claims[0].found
    assert "T 256: 171 characters a second (163 to 180) beside 256" in report.claims[1].found
    assert report.table["keys beside"].tolist() == [1, 0.6, 1, 0.6]
    assert report.table["time"].tolist() == [1, 1.5, 1, 1.5]
    assert [claim.holds for claim in generation.report(written(1.05, 1.0), 128).claims] == [False, False]
    more = written(1.5, 0.6).assign(key_bytes=lambda rows: rows["key_bytes"] + 1)
    assert generation.report(more, 128).claims[0].holds is False, "more than the closed form has"


def test_writing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(generation, "Timing", lambda seconds: Timing(0, 1, 1))
    monkeypatch.setattr(generation, "ROUNDS", 2)
    words = ["--lengths", "8", "4", "--width", "64", "--output", str(tmp_path)]
    assert generation.main(words) == 0
    torch.set_num_threads(threads)
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["arm"].tolist() == [*generation.ATTENTIONS, "standard, anew", *generation.ATTENTIONS]
    assert table["T"].tolist() == [4] * 5 + [8] * 4
    assert (table["characters a second"] > 0).all()
    standard = table[table["arm"] == "standard"]["key bytes"].tolist()
    assert standard == [4 * 64 * 4 * 6, 8 * 64 * 4 * 6], "six layers of a head of 64 components in float32"
    mlr = table[table["arm"] == "mlr"]["key bytes"].tolist()
    assert mlr[1] < standard[1]
    text = (tmp_path / "report.md").read_text()
    assert "--lengths 4 8 --width 64` on one thread" in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_models_that_write_are_those_of_the_suite() -> None:
    suite = read_suite(SUITES / "language_small.yaml")
    assert {name: arm.description for name, arm in suite.attentions.items()} == generation.ATTENTIONS


def test_a_model_that_writes_otherwise_with_caches_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    write = generation.CharacterTransformer.write

    def wrong(self: Any, text: torch.Tensor, count: int, **options: Any) -> torch.Tensor:
        out = write(self, text, count, **options)
        return out if options["caches"] is None else out + 1

    monkeypatch.setattr(generation.CharacterTransformer, "write", wrong)
    with pytest.raises(RuntimeError, match="standard writes something else with caches than without"):
        generation.measured([8], 64, Timing(0, 1, 1), layers=1)


def test_a_trained_model_goes_on_with_a_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    text = tmp_path / "text.txt"
    text.write_text("the quick fox " * 100)
    kind = "benchmarks.paper.character_transformer.CharacterTransformer"
    experiment = {
        "seed_everything": 1,
        "data": {
            "class_path": "benchmarks.paper.text_windows.TextDataModule",
            "init_args": {"text": str(text), "prediction_length": 40, "val_draws": 2, "test_draws": 2},
        },
        "model": {"backbone": {"kind": kind, "d_model": 16, "num_layers": 1}, "loss": "mae"},
        "trainer": {"max_steps": 2, "accelerator": "cpu"},
    }
    run(experiment, tmp_path / "run", hooks=Hooks(beside=False))
    capsys.readouterr()
    words = ["--run", str(tmp_path / "run"), "--prompt", "the é"]
    assert generation.main([*words, "--characters", "30"]) == 0
    assert capsys.readouterr().out.startswith("the é")
    assert generation.main([*words, "--characters", "39"]) == 2
    assert "error: a text of 1 to 1 characters can be followed by 39" in capsys.readouterr().err
    assert generation.main(["--run", str(tmp_path / "none")]) == 2
    assert "holds no finished run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        generation.main(["--lengths", "1"])
    torch.set_num_threads(threads)


def timed_rows(folder: Path, ratios: dict[str, float], slug: str = "a-cpu") -> Path:
    rows = [
        {"part": "attention", "contender": name, "T": T, "batch": 1, "heads": 8, "width": width, "causal": causal,
         "pass": which, "median_ms": 2 * ratio, "beside": "sdpa", "ratio": ratio + 0.01 * causal, "turns": 5}
        for name, ratio in {"sdpa": 1.0, **ratios}.items()
        for T in (63, 256, 4096)
        for width in (8, 64)
        for causal in (False, True)
        for which in ("forward", "forward+backward")
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / f"{slug}.csv", index=False)
    about = {"cpu": "A CPU", "cpu_family": 1, "cpu_model": 2, "torch": "2.13.0"}
    (folder / f"{slug}.json").write_text(json.dumps(about))
    return folder


def test_each_path_is_compared_with_the_kernel_of_pytorch(tmp_path: Path) -> None:
    rows = wall_clock.timed(timed_rows(tmp_path, {"mlr native": 0.8, "mlr tiles": 1.3, "swa native": 0.2}))
    assert sorted(set(rows["T"])) == [256, 4096]
    assert set(rows["width"]) == {64}
    report = wall_clock.report(rows)
    assert [claim.holds for claim in report.claims] == [False, True]
    assert "(here: mlr native, A CPU (family 1 model 2), one thread)" in report.claims[0].text
    assert report.claims[1].found.startswith("forward: 1.30 to 1.31 (T 256), 1.30 to 1.31 (T 4096); forward+backward:")
    assert "sdpa" not in set(report.table["contender"])


def test_a_report_of_what_was_measured_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wall_clock.main(["--report-only", "--output", str(tmp_path)]) == 2
    assert "nothing was measured" in capsys.readouterr().err
    timed_rows(tmp_path, {"mlr native": 0.8})
    assert wall_clock.main(["--report-only", "--output", str(tmp_path)]) == 0
    assert "**does not hold**" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_time_is_measured_by_the_benchmark_of_attention(tmp_path: Path) -> None:
    assert wall_clock.main(["--dry-run", "--output", str(tmp_path)]) == 0
    table = pd.read_csv(tmp_path / "table.csv")
    assert set(table["T"]) == {63, 127}
    assert "mlr native" in set(table["contender"])
    assert (tmp_path / "report.md").exists()
