"""The page in a browser: its tables are sorted and filtered, at any width, in the light and in the dark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.leaderboard.browser import CHROMIUM, DESK, PHONE, tried
from tests.leaderboard.invented import records
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.contents import sections_of, title_of
from tsattn.leaderboard.report.page import page
from tsattn.leaderboard.report.published import read_published, shipped_numbers
from tsattn.leaderboard.standings import Standings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, so the page is not tried in a browser"),
]


@pytest.fixture(scope="module")
def content() -> str:
    file = shipped_numbers()
    assert file is not None
    board = Standings(records(windows=400))
    analysis = Analysis(board, read_published(file), why_no_pictures="No models.", resamples=400)
    return page(title_of(analysis), sections_of(analysis))


ROWS = "const shown = (table) => [...table.tBodies[0].rows].filter((row) => !row.hidden);"
HORIZON = "const table = document.getElementById('horizon-table');"


def test_tables_are_sorted_by_a_click_and_back(content: str, tmp_path: Path) -> None:
    script = f"""{ROWS} {HORIZON}
    const heads = [...table.tHead.rows[0].cells];
    const column = heads.findIndex((head) => head.textContent === "MSE");
    const values = () => shown(table).map((row) => Number(row.cells[column].dataset.sort));
    const before = heads[column].getAttribute("aria-sort");
    const button = heads[column].querySelector("button");
    button.click(); const up = [values(), heads[column].getAttribute("aria-sort")];
    button.click(); const down = [values(), heads[column].getAttribute("aria-sort")];
    heads[0].querySelector("button").click();
    const names = shown(table).map((row) => row.cells[0].textContent);
    return {{ before, up, down, names, after: heads[column].getAttribute("aria-sort") }};"""
    found = tried(content, script, tmp_path)
    assert found["before"] == found["after"] == "none"
    assert found["up"] == [sorted(found["up"][0]), "ascending"]
    assert found["down"] == [sorted(found["up"][0], reverse=True), "descending"]
    assert len(set(found["up"][0])) > 20
    assert found["names"] == sorted(found["names"])


def test_what_is_missing_comes_last_both_ways(content: str, tmp_path: Path) -> None:
    script = f"""{ROWS} const table = document.getElementById("headline-table");
    const button = table.tHead.rows[0].cells[2].querySelector("button");
    const texts = () => shown(table).map((row) => row.cells[2].firstChild.textContent);
    button.click(); const up = texts(); button.click(); return [up, texts()];"""
    for texts in tried(content, script, tmp_path):
        missing = [text == "–" for text in texts]  # noqa: RUF001
        assert any(missing)
        assert missing == sorted(missing)


def test_tables_are_filtered(content: str, tmp_path: Path) -> None:
    script = f"""{ROWS} {HORIZON}
    const holder = table.closest("[data-table]");
    const [dataset, , predictor] = holder.querySelectorAll("select");
    const count = () => holder.querySelector("output").textContent;
    const all = count();
    dataset.value = "ETTm1"; dataset.dispatchEvent(new Event("change"));
    predictor.value = "patchtst"; predictor.dispatchEvent(new Event("change"));
    const rows = shown(table).map((row) => [row.cells[0].textContent, row.cells[2].textContent]);
    const some = count();
    const search = holder.querySelector("input");
    search.value = "MLR 48"; search.dispatchEvent(new Event("input"));
    const found = shown(table).map((row) => row.cells[3].textContent);
    const labels = [...holder.querySelectorAll("label")].every((label) => label.control);
    return {{ all, some, rows, found, labels, options: [...dataset.options].map((one) => one.text) }};"""
    found = tried(content, script, tmp_path)
    assert found["options"] == ["all", "ETTh1", "ETTm1"]
    assert {tuple(row) for row in found["rows"]} == {("ETTm1", "patchtst")}
    assert found["some"] == f"{len(found['rows'])} of {found['all'].removesuffix(' rows')} rows"
    assert found["found"] == ["mlr"]
    assert found["labels"]


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_the_page_never_scrolls_sideways(content: str, tmp_path: Path, size: tuple[int, int]) -> None:
    script = """
    const wide = [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll")
      && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80));
    const box = document.querySelector("#difference-table").closest(".scroll");
    const page = document.documentElement.scrollWidth;
    return { width: innerWidth, page, wide, own: box.scrollWidth > box.clientWidth };
    """
    found = tried(content, script, tmp_path, size)
    assert found["width"] == size[0]
    assert found["page"] <= size[0]
    assert found["wide"] == []
    assert found["own"], "a wide table scrolls in its own box"


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(content: str, tmp_path: Path, is_dark: bool) -> None:
    script = """
    const seen = () => [getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector("svg text")).fill, getComputedStyle(document.body).color];
    const button = document.getElementById("theme");
    const first = seen(), name = button.textContent;
    button.click(); const second = seen(); button.click();
    return { first, second, third: seen(), name, label: button.getAttribute("aria-label") };"""
    flags = [f"--blink-settings=preferredColorScheme={0 if is_dark else 1}"]
    found = tried(content, script, tmp_path, DESK, *flags)
    levels = [
        [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in found[state]] for state in ("first", "second")
    ]
    dark, light = levels if is_dark else levels[::-1]
    assert dark[0] < 150
    assert min(dark[1:]) > 500
    assert light[0] > 700
    assert max(light[1:]) < 250
    assert found["third"] == found["first"]
    assert found["name"] == ("Light" if is_dark else "Dark")
    assert found["label"]


def test_every_control_is_reached_by_the_keyboard(content: str, tmp_path: Path) -> None:
    script = """
    const controls = [...document.querySelectorAll("thead button, .filters select, .filters input, #theme, .scroll")];
    const wrong = controls.filter((one) => { one.focus(); return document.activeElement !== one; });
    return { controls: controls.length, wrong: wrong.map((one) => one.outerHTML.slice(0, 80)) };"""
    found = tried(content, script, tmp_path)
    assert found["controls"] > 60
    assert found["wrong"] == []


def test_words_are_readable_on_their_ground(content: str, tmp_path: Path) -> None:
    """The contrast that WCAG 2 asks of text, 4.5, of every mark of a cell."""
    script = """
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
      return getComputedStyle(document.documentElement).backgroundColor;
    };
    const poor = {};
    for (const theme of ["light", "dark"]) {
      document.documentElement.dataset.theme = theme;
      for (const one of document.querySelectorAll("td, th, small, p, caption, figcaption, nav a, label")) {
        const [low, high] = [level(getComputedStyle(one).color), level(ground(one))].sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < 4.5) poor[`${theme} ${one.tagName} ${one.className}`] = contrast;
      }
    }
    return poor;"""
    assert tried(content, script, tmp_path) == {}
