"""The page of runs in a browser: its forecasts are stepped through by buttons, lists and keys, at any width."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leaderboard.browser import CHROMIUM, DESK, PHONE, tried
from tests.leaderboard.runs_to_report import made_runs
from tsattn.leaderboard.report.page import page
from tsattn.leaderboard.run_page.reported_run import read_runs
from tsattn.leaderboard.run_page.run_contents import run_sections

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, so the page is not tried in a browser"),
]
VIEWER = """
const viewer = document.getElementById("viewer-1");
const data = JSON.parse(viewer.querySelector("script").textContent);
const [series, origin] = viewer.querySelectorAll("select");
const [seriesBack, seriesOn, originBack, originOn] = viewer.querySelectorAll(".choice button");
const plot = viewer.querySelector(".plot");
const state = () => [Number(series.value), Number(origin.value), plot.querySelectorAll("path.point").length,
  plot.querySelectorAll("path.band").length, plot.querySelector("path.observed").getAttribute("d")];
const press = (key) => plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
"""


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page("Runs", run_sections(read_runs(made_runs(tmp_path_factory.mktemp("runs")))))


def test_forecasts_are_stepped_through(content: str, tmp_path: Path) -> None:
    script = f"""{VIEWER}
    const seen = [state()];
    originOn.click(); seen.push(state());
    press("ArrowRight"); seen.push(state());
    press("ArrowLeft"); press("ArrowLeft"); press("ArrowLeft"); seen.push(state());
    const atStart = [originBack.disabled, originOn.disabled, seriesBack.disabled, seriesOn.disabled];
    press("ArrowDown"); seen.push(state());
    seriesBack.click(); seen.push(state());
    series.value = 1; series.dispatchEvent(new Event("change")); seen.push(state());
    origin.value = 2; origin.dispatchEvent(new Event("change")); seen.push(state());
    const options = [...origin.options].map((one) => one.text);
    return {{ seen, atStart, options, names: [...series.options].map((one) => one.text),
      counts: [0, 1].map((number) => data.windows.filter((one) => one.series === number).length),
      readout: viewer.querySelector("output").textContent }};"""
    found = tried(content, script, tmp_path)
    assert [one[:2] for one in found["seen"]] == [[0, 0], [0, 1], [0, 2], [0, 0], [1, 0], [0, 0], [1, 0], [1, 2]]
    assert {tuple(one[2:4]) for one in found["seen"]} == {(2, 1)}, "two runs, one with a band"
    drawn = [one[4] for one in found["seen"]]
    assert drawn[0] == drawn[3] == drawn[5]
    assert drawn[4] == drawn[6]
    assert len(set(drawn)) == 5
    assert found["atStart"] == [True, False, True, False]
    assert len(found["options"]) == found["counts"][1]
    assert any(one.endswith("highest error") for one in found["options"])
    assert [name.split(",")[1] for name in found["names"]] == [" highest error", " lowest error"]
    assert "network: MSE" in found["readout"]
    assert "ridge: MSE" in found["readout"]


def test_runs_are_hidden_and_values_read(content: str, tmp_path: Path) -> None:
    script = f"""{VIEWER}
    const readout = viewer.querySelector("output");
    const svg = plot.querySelector("svg");
    const box = svg.getBoundingClientRect();
    const at = (share) => svg.dispatchEvent(new PointerEvent("pointermove",
      {{ clientX: box.left + share * box.width, clientY: box.top + 20 }}));
    at(0.99); const last = readout.textContent;
    at(0.1); const first = readout.textContent;
    svg.dispatchEvent(new PointerEvent("pointerleave")); const none = readout.textContent;
    const [network] = viewer.querySelectorAll(".legend input");
    network.click();
    return {{ last, first, none, after: state(), truth: data.windows[0].truth.at(-1),
      label: plot.firstChild.getAttribute("aria-label") }};"""
    found = tried(content, script, tmp_path)
    assert "network" in found["last"]
    assert " to " in found["last"]
    assert f"observed {found['truth']:.4g}" in found["last"]
    assert "network" not in found["first"]
    assert found["none"] == found["label"]
    assert found["after"][2:4] == [1, 0]


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_it_fits_the_width(content: str, tmp_path: Path, size: tuple[int, int]) -> None:
    script = f"""{VIEWER}
    const wide = [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll")
      && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80));
    const svg = plot.querySelector("svg");
    const focusable = [...viewer.querySelectorAll("select, .plot, .legend input")];
    const wrong = focusable.filter((one) => {{ one.focus(); return document.activeElement !== one; }});
    return {{ page: document.documentElement.scrollWidth, wide, drawn: svg.viewBox.baseVal.width,
      width: plot.clientWidth, wrong: wrong.length,
      named: [...viewer.querySelectorAll("select")].every((one) => one.labels.length) }};"""
    found = tried(content, script, tmp_path, size)
    assert found["page"] <= size[0]
    assert found["wide"] == []
    assert abs(found["drawn"] - found["width"]) <= 1
    assert found["wrong"] == 0
    assert found["named"]


def test_colours_are_those_of_the_theme(content: str, tmp_path: Path) -> None:
    script = f"""{VIEWER}
    const seen = ["light", "dark"].map((theme) => {{
      document.documentElement.dataset.theme = theme;
      return ["observed", "point"].map((name) => getComputedStyle(plot.querySelector(`path.${{name}}`)).stroke);
    }});
    return seen;"""
    light, dark = tried(content, script, tmp_path)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    assert "none" not in (*light, *dark)
