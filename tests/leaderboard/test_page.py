"""The page: its answer, its table, its details, on paper and in a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.leaderboard.browser import CHROMIUM, DESK, PHONE, tried
from tests.leaderboard.invented import board, row, rows
from tsattn.errors import UserError
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.page import BEGIN, END, HTML, MARKDOWN, PICTURE, PageTable, page_of, with_part, write_report
from tsattn.leaderboard.published import read_published, shipped_numbers
from tsattn.leaderboard.records import Records

MINUS = "\N{MINUS SIGN}"
SETS = ("ETTh1", "ETTm1", "weather")
SCRIPT = "a loss that is not a number <script>alert(1)</script>"


def analysis(records: Records | None = None) -> Analysis:
    failed = row("ETTh1", 24, "patchtst", "btt", 1, status="failed", reason=SCRIPT, mse=None, mae=None)
    file = shipped_numbers()
    assert file is not None
    whole = records or Records.of([*board(SETS, shifts=SHIFTS).table.to_pylist(), failed])
    return Analysis(whole, read_published(file))


SHIFTS = {"standard": 0.0, "swa": 0.1, "mlr": -3.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    write_report(analysis(), place)
    return place


def test_the_answer_is_a_few_sentences() -> None:
    first, second, *intervals, last = page_of(analysis()).answer
    assert first == "On average over 3 of 3 data sets, `mlr` is better than `standard`."
    assert second == "Intervals (95 %) of the mean differences:"
    assert [re.sub(r"\d+\.\d", "x", text) for text in sorted(intervals)] == [
        f"`mlr` {MINUS}x % to {MINUS}x %.",
        "`swa` +x % to +x %.",
    ]
    assert last == "Compared with the best linear model, `standard` is better on 3 data sets."
    undecided = page_of(analysis(Records.of(rows("ETTh1", 24, {"standard": 0.0, "swa": 9.0}))))
    assert undecided.answer[0] == "On ETTh1, no attention is measurably better than `standard`, and `swa` is worse."
    assert undecided.table.rows[0][-1] == "`swa` +9.0 % (+7.7 to +10.3) worse"


def test_the_table_has_a_column_for_each_attention_and_the_lowest_error_in_bold() -> None:
    table = page_of(analysis()).table
    assert [*table.heads] == [
        *("data set", "`standard`", "`mlr`", "`swa`", "best linear", "seasonal naive", "verdict, MSE")
    ]
    verdict = f"`mlr` {MINUS}3.0 % ({MINUS}3.5 to {MINUS}2.5) better; `swa` equal within 1 %"
    assert [*table.rows[0]] == ["ETTh1", "0.400", "**0.388**", "0.400", "0.416", "1.000", verdict]


def test_no_table_is_wider_than_seven_columns_and_nothing_is_said_twice(folder: Path) -> None:
    text = (folder / MARKDOWN).read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert max(line.count("|") for line in lines) <= 8
    sentences = [line for line in text.splitlines() if line and not line.startswith(("|", "<", "!"))]
    assert len(sentences) == len(set(sentences))
    assert f"![Error compared with the best linear model]({PICTURE})" in text
    assert (folder / PICTURE).read_bytes().startswith(b"\x89PNG")
    assert text.count("<details") == text.count("</details>") > 4


def test_a_part_of_a_file_is_replaced_between_its_comments() -> None:
    assert with_part(f"a\n{BEGIN}old{END}\nb", "new") == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
    for text in ("", f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with pytest.raises(UserError, match="needs the lines"):
            with_part(text, "new")


def test_a_page_is_one_file_that_asks_for_nothing(folder: Path) -> None:
    content = (folder / HTML).read_text()
    assert not re.search(r"<(script|link|img)\b", content)
    assert not re.search(r"https?://(?!www\.w3\.org)[^<]*\"", content)
    assert "alert(1)" in content, "escaped"
    assert content.count("<svg") == 1
    for tag in ("table", "tr", "td", "th", "details", "svg", "p", "ul", "li"):
        assert len(re.findall(rf"<{tag}\b", content)) == content.count(f"</{tag}>"), tag
    assert PageTable(["a"], [["x | y\nz"]]).markdown == "| a |\n| --- |\n| x / y z |"
    shifts = dict.fromkeys(("standard", "btt", "mlbtc", "mlr", "swa"), 0.0)
    table = page_of(analysis(Records.of(rows("ETTh1", 24, shifts)))).table
    assert [cells[1] for cells in table.rows] == [*(f"`patchtst, {name}`" for name in shifts), "`ridge`"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
@pytest.mark.parametrize(("size", "scheme"), [(PHONE, 0), (DESK, 1)], ids=["phone, dark", "desk, light"])
def test_it_fits_the_width_and_can_be_read(folder: Path, tmp_path: Path, size: tuple[int, int], scheme: int) -> None:
    """With the contrast that WCAG 2 asks of text, 4.5."""
    script = """
    for (const one of document.querySelectorAll("details")) one.open = true;
    const level = (colour) => {
      const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
        const value = part / 255;
        return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const ground = (one) => {
      for (let node = one; node; node = node.parentElement) {
        const colour = getComputedStyle(node).backgroundColor;
        if (!colour.endsWith(", 0)")) return colour;
      }
      return "rgb(255, 255, 255)";
    };
    const poor = {}, sizes = [];
    for (const one of document.querySelectorAll("td, th, p, li, figcaption, summary, svg text")) {
      const style = getComputedStyle(one), drawn = one.closest("svg");
      const [low, high] = [level(drawn ? style.fill : style.color), level(ground(one))].sort((a, b) => a - b);
      const contrast = (high + 0.05) / (low + 0.05);
      if (contrast < 4.5) poor[one.tagName] = contrast;
      if (drawn) sizes.push(one.getScreenCTM().a * parseFloat(style.fontSize));
    }
    const fits = document.documentElement.scrollWidth <= innerWidth;
    return { poor, fits, least: Math.min(...sizes), dark: matchMedia("(prefers-color-scheme: dark)").matches };"""
    flag = f"--blink-settings=preferredColorScheme={scheme}"
    found = tried((folder / HTML).read_text(), script, tmp_path, size, flag)
    assert found.pop("least") >= 9
    assert found == {"poor": {}, "fits": True, "dark": scheme == 0}
