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
from benchmarks.paper.machine_files import MachineFiles, all_machines
from tsattn.attention.patterns import MultiLevelPattern, SlidingWindowPattern
from tsattn.leaderboard.suite import read_suite
from tsattn.task import Output, Task

SUITES = Path(__file__).parents[2] / "benchmarks" / "paper" / "suites"


def written(factor: float, byte_factor: float, spread: float = 0.05) -> pd.DataFrame:
    """Rows of standard attention, and of MLR attention with so much of its time and of its bytes."""
    rows = []
    for T in (256, 1024):
        for arm, time, byte in (("standard", 1.0, 1.0), ("mlr", factor, byte_factor)):
            row = {"T": T, "arm": arm, "seconds": time, "fastest": (1 - spread) * time, "slowest": (1 + spread) * time}
            rows.append({**row, "key_bytes": int(1000 * T * byte), "closed_form": int(1000 * T * byte)})
    return pd.DataFrame(rows).assign(machine="A CPU")


def test_caches_are_compared_with_those_of_standard_attention() -> None:
    report = generation.report(written(1.5, 0.6), 128)
    assert [claim.holds for claim in report.claims] == [True, True]
    assert "T 256: 154 kB, 0.600 of standard attention's, in closed form 154 kB" in report.claims[0].found
    assert "T 256: 171 characters a second (163 to 180) beside 256 (244 to 269)" in report.claims[1].found
    assert report.claims[1].text.endswith("writes more slowly than standard attention (A CPU).")
    assert report.table["keys beside"].tolist() == [1, 0.6, 1, 0.6]
    assert report.table["time"].tolist() == [1, 1.5, 1, 1.5]
    assert "of 256: 64; of 1024: 128" in report.legend
    more = written(1.5, 0.6).assign(key_bytes=lambda rows: rows["key_bytes"] + 1)
    assert generation.report(more, 128).claims[0].holds is False, "more than the closed form has"


@pytest.mark.parametrize(("factor", "holds"), [(1.5, True), (1.05, None), (0.95, None), (0.5, False)])
def test_speeds_that_overlap_decide_nothing(factor: float, holds: bool | None) -> None:
    assert [claim.holds for claim in generation.report(written(factor, 1.0), 128).claims] == [False, holds]


def test_each_machine_is_beside_itself() -> None:
    slow = written(0.5, 0.6).assign(machine="a slow one", seconds=lambda rows: 10 * rows["seconds"])
    report = generation.report(pd.concat([written(1.5, 0.6), slow], ignore_index=True), 128)
    assert [claim.text.rpartition("(")[2] for claim in report.claims[1:]] == ["A CPU).", "a slow one)."]
    assert report.table["time"].tolist() == [1, 1.5, 1, 1.5, 1, 0.5, 1, 0.5]


def test_writing_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(generation, "Timing", lambda seconds: Timing(0, 1, 1))
    monkeypatch.setattr(generation, "ROUNDS", 2)
    words = ["--lengths", "8", "4", "--width", "64", "--output", str(tmp_path)]
    assert generation.main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == "T 4: to be measured\nT 8: to be measured\n"
    assert not [*tmp_path.iterdir()]
    assert generation.main([*words, "--report-only"]) == 2
    assert f"nothing was measured in {tmp_path}: run it without --report-only" in capsys.readouterr().err
    assert generation.main(words) == 0
    torch.set_num_threads(threads)
    made = (tmp_path / "report.md").read_text()
    (tmp_path / "report.md").unlink()
    assert generation.main([*words, "--report-only"]) == 0
    assert (tmp_path / "report.md").read_text() == made
    names = [*generation.attentions_of(8)]
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["arm"].tolist() == [*names, "standard, anew", *names]
    assert table["T"].tolist() == [4] * 5 + [8] * 4
    assert (table["characters a second"] > 0).all()
    standard = table[table["arm"] == "standard"]["key bytes"].tolist()
    assert standard == [4 * 64 * 4 * 6, 8 * 64 * 4 * 6], "six layers of a head of 64 components in float32"
    mlr = table[table["arm"] == "mlr"]["key bytes"].tolist()
    assert mlr[1] < standard[1]
    text = (tmp_path / "report.md").read_text()
    assert "--lengths 4 8 --width 64`, by the clock:\n- " in text
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert claims["title"] == "Writing with caches"
    assert claims["claims"][0]["holds"] is True
    # again: nothing is measured; with other settings all is
    monkeypatch.setattr(generation, "measured", lambda *_, **__: pytest.fail("it was measured again"))
    assert generation.main(words) == 0
    assert (tmp_path / "report.md").read_text() == text
    for other in (["--again"], ["--seconds", "3"]):
        with pytest.raises(pytest.fail.Exception):
            generation.main([*words, *other])
    torch.set_num_threads(threads)


def test_the_models_that_write_are_those_of_the_suites() -> None:
    for T, name in ((2, "small"), (256, "small"), (257, "full"), (1024, "full"), (5000, "full")):
        suite = read_suite(SUITES / f"language_{name}.yaml")
        expected = {name: arm.description for name, arm in suite.attentions.items()}
        assert generation.attentions_of(T) == expected, T


def model_of(name: str, T: int = 256) -> generation.CharacterTransformer:
    torch.manual_seed(0)
    task = Task("text", T + 1, T, ("text",), "1", 1)
    sizes = {"d_model": 64, "num_layers": 1}
    return generation.CharacterTransformer(task, Output(), **sizes, attention=generation.attentions_of(T)[name]).eval()


@pytest.mark.parametrize("name", ["standard", "mlr", "swa", "global_swa"])
def test_models_come_to_the_same_scores_with_caches(name: str) -> None:
    generation.check_caches(name, model_of(name))


@pytest.mark.parametrize("name", ["swa", "global_swa"])
def test_a_window_that_keeps_what_has_left_it_is_not_timed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = SlidingWindowPattern.new_cache

    def never_evicting(pattern: Any, batch_size: int, max_length: int | None) -> Any:
        monkeypatch.setattr(pattern, "window_size", 256)
        return made(pattern, batch_size, max_length)

    model = model_of(name)
    monkeypatch.setattr(generation.copy, "deepcopy", lambda one: one)
    part = model.encoder.attentions[0].pattern
    part = getattr(part, "window_part", part)
    whole = model.scores

    def with_a_window(text: torch.Tensor, caches: Any = None) -> torch.Tensor:
        if caches is None:
            monkeypatch.setattr(part, "window_size", 64)
        return whole(text, caches)

    monkeypatch.setattr(model, "scores", with_a_window)
    monkeypatch.setattr(SlidingWindowPattern, "new_cache", never_evicting)
    with pytest.raises(RuntimeError, match=f"{name} comes to other scores .*: from character 65 of 256"):
        generation.check_caches(name, model)


def test_levels_that_keep_other_blocks_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MultiLevelPattern.new_cache

    def coarser(pattern: Any, *given: Any) -> Any:
        cache = made(pattern, *given)
        right = cache.blocks[1]
        cache.blocks = [cache.blocks[0], (1, 256), *cache.blocks[2:]]
        assert right == (2, 256)
        return cache

    monkeypatch.setattr(MultiLevelPattern, "new_cache", coarser)
    with pytest.raises(RuntimeError, match=r"mlr comes to other scores .*: from character 1\d\d of 256"):
        generation.check_caches("mlr", model_of("mlr"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lengths", "1"], "--lengths must be of at least 2 characters"),
        (["--width", "100"], "--width must be a multiple of 64, the components of a head, not 100"),
        (["--width", "0"], "--width must be a multiple of 64"),
        (["--seconds", "-1"], "--seconds must be at least 0, not -1"),
    ],
)
def test_wrong_sizes_are_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        generation.main(words)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_a_machine_keeps_what_it_measured_by_the_same_settings(tmp_path: Path) -> None:
    here = MachineFiles.here(tmp_path, {"width": 64})
    assert here.rows().empty
    here.add(pd.DataFrame({"T": [1]}), 60)
    here.add(pd.DataFrame({"T": [2]}), 30)
    assert here.rows()["T"].tolist() == [1, 2]
    rows, (about,) = all_machines(tmp_path, {"width": 64})
    assert rows["T"].tolist() == [1, 2]
    assert about["seconds"] == 90
    other = MachineFiles.here(tmp_path, {"width": 128})
    assert other.rows().empty
    assert all_machines(tmp_path, {"width": 128})[1] == []
    newer = MachineFiles(tmp_path, {**here.about, "torch": "9.9"})
    assert newer.rows().empty
    newer.add(pd.DataFrame({"T": [3]}), 1)
    assert newer.rows()["T"].tolist() == [3]
    assert here.rows().empty, "only what was measured last is kept"
    newer.remove()
    assert newer.rows().empty


def timed_rows(ratios: dict[str, list[float]], machine: str = "A CPU") -> pd.DataFrame:
    """What rounds of the benchmark of attention came to, by contender the ratio in each."""
    return pd.DataFrame(
        [
            {"machine": machine, "contender": name, "T": T, "causal": causal, "pass": which, "round": number,
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
    assert (
        "by our own kernel takes longer than SDPA (mlr native beside SDPA, A CPU; 1.35 times" in report.claims[0].text
    )
    assert [claim.is_of_paper for claim in report.claims] == [False, True, True, True]
    found = "over SDPA, the range of rounds, causal and not: forward: 1.20 to 1.41 (T 256), 1.20 to 1.41 (T 4096); "
    assert report.claims[1].found.startswith(f"{found}forward+backward:")
    assert "sdpa" not in set(report.table["contender"])
    tiles = report.table[report.table["contender"] == "mlr tiles"].iloc[0]
    assert (tiles["ratio"], tiles["least"], tiles["greatest"], tiles["rounds"]) == (1.3, 1.2, 1.4, 3)
    assert tiles["causal"] == "no"


def test_levels_are_compared_with_standard_attention_by_the_same_kernel() -> None:
    ratios = {"mlr native": [0.5, 0.45, 0.6], "standard native": [0.4, 0.36, 0.5], "mlr tiles": [1.3] * 3}
    report = wall_clock.report(wall_clock.timed(timed_rows(ratios)))
    assert [claim.holds for claim in report.claims] == [True, False, True]
    assert "standard attention (mlr native beside standard native, A CPU; 1.35" in report.claims[0].text
    found = "over standard native, the range of rounds, causal and not: forward: 1.20 to 1.25 (T 256), "
    assert report.claims[0].found.startswith(found)
    table = report.table[report.table["causal"] == "no"].groupby("contender")["alike"].first()
    assert table["mlr native"] == pytest.approx(1.25)
    assert (table["standard native"], table.isna()["mlr tiles"]) == (1, True)


def test_a_path_that_is_longer_here_and_shorter_there_decides_nothing() -> None:
    rows = timed_rows({"mlr native": [1.3] * 3})
    short = (rows["contender"] != "sdpa") & (rows["T"] == 256) & (rows["pass"] == "forward")
    rows.loc[short, "ratio"] = 0.5
    assert wall_clock.report(wall_clock.timed(rows)).claims[0].holds is None
    rows.loc[short, "ratio"] = [0.9, 0.9, 1.1, 1.1, 1.1, 1.1]
    assert wall_clock.report(wall_clock.timed(rows)).claims[0].holds is True, "in most cases, and in none shorter"


def test_a_report_of_what_was_measured_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wall_clock.main(["--report-only", "--output", str(tmp_path)]) == 2
    assert "nothing was measured" in capsys.readouterr().err
    rows = timed_rows({"mlr native": [0.8] * 3}).drop(columns="machine")
    MachineFiles.here(tmp_path, {"seconds": 2.0}).add(rows, 600)
    for words in (["--report-only"], []):
        (tmp_path / "report.md").unlink(missing_ok=True)
        assert wall_clock.main([*words, "--output", str(tmp_path)]) == 0, "nothing is left to be measured"
        text = (tmp_path / "report.md").read_text()
        assert "**does not hold**" in text
        assert ": 10 minutes; tsattn" in text
    capsys.readouterr()
    assert wall_clock.main(["--dry-run", "--again", "--output", str(tmp_path)]) == 0
    assert "0 of 3 rounds are measured" in capsys.readouterr().out
    assert wall_clock.main(["--report-only", "--output", str(tmp_path)]) == 0, "a dry run removes nothing"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seconds", "-1"], "--seconds must be at least 0, not -1"),
        (["--tiny"], "--tiny needs an --output of its own: its figures mean nothing"),
    ],
)
def test_times_that_mean_nothing_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        wall_clock.main(words)
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_time_is_measured_by_the_benchmark_of_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--tiny", "--output", str(tmp_path)]
    monkeypatch.setattr(wall_clock, "ROUNDS", 1)
    assert wall_clock.main(words) == 0
    monkeypatch.setattr(wall_clock, "ROUNDS", 2)
    capsys.readouterr()
    assert wall_clock.main(words) == 0, "it goes on with the second"
    assert "1 of 2 rounds are measured" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "table.csv")
    assert set(table["T"]) == {63, 127}
    assert "mlr native" in set(table["contender"])
    assert set(table["rounds"]) == {2}
    assert (tmp_path / "report.md").exists()
