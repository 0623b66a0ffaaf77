"""What was committed: records that are those of the suites as they are, published numbers, the page on accuracy."""

import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import accuracy
from tests.docs.blocks import ROOT
from tests.leaderboard.invented import row
from tsattn.data import CARDS
from tsattn.experiments.configs import find_config
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.published import read_published, shipped_numbers
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import read_suite

RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "runs", "parts"),  # of a suite of many runs by pairs: all of one sort with one of another
    [
        ("classic", 491, [{"data": ["ETTh1"]}, {"data": ["exchange_rate"], "attentions": ["btt"]}]),
        ("equal_training", 49, [{}]),
        ("earlier_windows", 25, [{}]),
        ("accuracy", 88, [{"data": ["ETTh1"]}, {"predictors": ["base", "context_2048"]}]),
        ("peers", 33, [{}]),
    ],
)
def test_nothing_is_left_to_run(name: str, runs: int, parts: list[dict[str, list[str]]]) -> None:
    found = Records.read(RESULTS / name).frame
    assert len(found) == runs
    done = set(found[found["status"] == "done"]["key"])
    suite, planner = read_suite(find_config(name, "suite", "suites")), Planner()
    for part in parts:
        narrow: dict[str, Any] = {**part, "horizons": suite.horizons[:1], "seeds": 1} if part else {}
        entries = planner.plan(suite.narrowed(**narrow))
        assert entries
        assert [entry for entry in entries if entry.reason or entry.key not in done] == []
        assert part or len(entries) == runs


FILE = Path(__file__).parents[2] / "benchmarks" / "published.toml"
ENTRY = """
[[published]]
model = "M"
dataset = "ETTh1"
context_length = 96
complete_test = true
source = "a paper, table 1"
[published.scores]
96 = [0.4, 0.41]
192 = [0.45]
"""


def test_each_row_that_is_included_has_a_source() -> None:
    assert shipped_numbers() == FILE
    entries = read_published(FILE)
    assert len(entries) > 100
    for entry in entries:
        traced = ("github.com/", "github.io/", "arXiv", "Table")
        assert any(word in entry.source for word in traced) or "not traced" in entry.source
        assert entry.context_length
        assert entry.dataset in CARDS
        for mse, mae in entry.scores.values():
            assert 0.05 < mse < 5
            assert math.isnan(mae) or 0.05 < mae < 5
    names = [(entry.model, entry.dataset, entry.context_length, entry.source) for entry in entries]
    assert len(names) == len(set(names))


def test_an_entry_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        ENTRY + '[[published]]\nmodel = "N"\ndataset = "d"\ncontext_length = "tuned"\n'
        'complete_test = false\nsource = "s"\nnote = "n"\nscores = {mean = [0.3, 0.2]}\n'
    )
    entry, other = read_published(tmp_path / "own.toml")
    assert (entry.model, entry.context_length, entry.complete_test, entry.note) == ("M", "96", True, "")
    assert entry.scores[96] == (0.4, 0.41)
    assert entry.mean([96, 192]) == (pytest.approx(0.425), pytest.approx(math.nan, nan_ok=True))
    assert math.isnan(entry.mean([96, 336])[0])
    assert other.mean([720, 96, 336, 192]) == (0.3, 0.2)
    assert math.isnan(other.mean([96, 192])[0])


PATCHTST: dict[str, Any] = {"kind": "patchtst", "attention": {"kind": "standard"}}
MODELS: dict[str, tuple[str, Any, float]] = {  # attention, description, percent above
    "ridge": ("", {"kind": "ridge"}, 5.0),
    "base": ("standard", PATCHTST, 0.0),
    "mse": ("standard", PATCHTST, 4.0),
    "small_patches": ("standard", PATCHTST, 0.0),
    "batch_norm": ("standard", PATCHTST, -4.0),
    "base_of_four_seeds": ("standard", {"kind": "ensemble", "members": [PATCHTST] * 4}, 0.0),
}


@pytest.fixture
def records() -> Records:
    calendar = ("small_patches", "calendar", PATCHTST, 0.0)
    models = [*((name, *rest) for name, rest in MODELS.items()), calendar]
    found = [
        row("ETTm1", 96, name, attention, seed, backbone=backbone, shift=shift)
        for name, attention, backbone, shift in models
        for seed in ((1, 2) if attention else (None,))
    ]
    return Records.of(found, {"invented": (ROOT / "configs" / "suites" / "accuracy.yaml").read_text()})


def test_each_is_compared_with_what_it_changes(records: Records) -> None:
    analysis = Analysis(records)
    bases = {model: accuracy.base_of(analysis, model) for model in analysis.models["ETTm1"] if model != "ridge"}
    assert bases["base, standard"] == "ridge"
    assert bases["mse, standard"] == bases["base_of_four_seeds, standard"] == "base, standard"
    assert bases["small_patches, calendar"] == "small_patches, standard"


def test_the_page_says_what_is_better_and_worse(records: Records, tmp_path: Path) -> None:
    records.write(tmp_path / "accuracy")
    assert accuracy.main(["--records", str(tmp_path / "accuracy")]) == 0
    text = (tmp_path / "accuracy.md").read_text()
    assert "- Better in MSE: `base, standard`, `batch_norm, standard`.\n" in text
    assert "- Worse in MSE: `mse, standard`.\n" in text
    assert "| `mse, standard` | `base, standard` | 0.416 | +4.0 % (" in text
    assert "of 12 comparisons, chance alone decides about 1." in text
    with pytest.raises(SystemExit) as error:
        accuracy.main(["--records", str(tmp_path / "nothing")])
    assert error.value.code == 2
