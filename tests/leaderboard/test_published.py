"""Published numbers: each has a source, and a file that is wrong is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tsattn.data import CARDS
from tsattn.errors import UserError
from tsattn.leaderboard.report.published import read_published, shipped_numbers

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


def test_each_row_that_comes_along_has_a_source() -> None:
    assert shipped_numbers() == FILE
    entries = read_published(FILE)
    assert len(entries) > 40
    assert sum(len(entry.scores) for entry in entries) > 160
    for entry in entries:
        traced = ("github.com/", "github.io/", "arXiv", "Table ")
        assert any(word in entry.source for word in traced) or "not traced" in entry.source
        assert entry.context_length
        assert entry.dataset in CARDS
        for mse, mae in entry.scores.values():
            assert mse is not None
            assert 0.05 < mse < 5
            assert mae is None or 0.05 < mae < 5
    sets = {"ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "exchange_rate", "national_illness"}
    assert {entry.dataset for entry in entries} == sets, "those of the shipped suites"
    names = [(entry.model, entry.dataset, entry.context_length, entry.source) for entry in entries]
    assert len(names) == len(set(names))
    assert {entry.complete_test for entry in entries} == {True, False}


def test_an_entry_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(ENTRY)
    (entry,) = read_published(tmp_path / "own.toml")
    assert (entry.model, entry.context_length, entry.complete_test) == ("M", "96", True)
    assert entry.scores == {96: (0.4, 0.41), 192: (0.45, None)}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('source = "a paper, table 1"\n', "", "entry 1: source is missing"),
        ('"a paper, table 1"', '" "', "entry 1: source must be text"),
        ("context_length", "look_back", "entry 1: context_length is missing"),
        ("complete_test = true", 'complete_test = "yes"', "complete_test must be true or false"),
        ("96 = [0.4, 0.41]", "96 = 0.4", "scores of a horizon must be"),
        ("192 = [0.45]", "x = [0.45]", "a horizon must be a number of steps, not x"),
        ("[[published]]", "[[others]]", "holds no published numbers"),
        ("[[published]]", "[[published", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ENTRY
    (tmp_path / "own.toml").write_text(ENTRY.replace(old, new))
    with pytest.raises(UserError, match=message):
        read_published(tmp_path / "own.toml")
