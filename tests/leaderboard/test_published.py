"""Published numbers: each has a source, and a file that is wrong is refused with its place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tsattn.data import CARDS
from tsattn.leaderboard.published import read_published, shipped_numbers

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
