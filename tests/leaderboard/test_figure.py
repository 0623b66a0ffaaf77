"""The figure of differences: marks lie where they are, or are arrows at the edge."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tsattn.leaderboard.figure import COLOURS, Mark, forest, inline_svg


def test_marks_lie_at_their_values_and_far_ones_are_arrows_at_the_edge() -> None:
    rows = {
        "ETTh1": [Mark("mlr", -2.0, -5.0, 1.0), Mark("swa", 3.0), Mark("published", -6.0, form="star")],
        "far": [Mark("mlr", 400.0), Mark("naive", 80.0, form="cross")],
    }
    ax = forest(rows, title="Errors", axis="difference, %").axes[0]
    points = [line for line in ax.lines if len(line.get_xdata()) == 1]
    drawn = [(float(line.get_xdata()[0]), str(line.get_marker())) for line in points]
    low, high = ax.get_xlim()
    assert low < -6 < 3 < high < 80
    assert drawn == [(-2.0, "o"), (3.0, "o"), (-6.0, "*"), (high, ">"), (high, ">")]
    (interval,) = [line for line in ax.lines if list(line.get_xdata()) == [-5.0, 1.0]]
    assert interval.get_color() == points[0].get_color()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ETTh1", "far"]
    heights = [float(line.get_ydata()[0]) for line in points]
    assert heights == sorted(heights), "from top to bottom"


@pytest.mark.usefixtures("tmp_path")
def test_an_svg_takes_the_colours_of_the_page_and_is_the_same_each_time() -> None:
    def svg() -> str:
        return inline_svg(forest({"a": [Mark("x", 1.0)], "b": [Mark("y", 2.0)]}, title="T", axis="%"), 'A "label"')

    text = svg()
    assert text == svg()
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == 'A "label"'
    assert "var(--drawn-0)" in text
    assert not any(colour in text for colour in COLOURS)
    words = ["".join(one.itertext()) for one in root.iter() if one.tag.endswith("text")]
    assert {"T", "a", "b", "x", "y"} <= set(words), "text is text"
