"""The cards of the data sets say what the code does."""

from __future__ import annotations

from pathlib import Path

from tsattn.data.ett import SHA256

CARDS = (Path(__file__).parents[2] / "data" / "README.md").read_text()


def test_the_sums_on_the_cards_are_those_that_are_checked() -> None:
    for name, sha256 in SHA256.items():
        assert f"| {name}.csv | `{sha256}` |" in CARDS
