"""The page: its answer, its table, its details, its figure, on paper and in a browser."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

from tests.leaderboard.browser import CHROMIUM, DESK, PHONE, tried
from tests.leaderboard.invented import board, row, rows
from tsattn.errors import UserError
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.figure import COLOURS, Mark, forest, inline_svg
from tsattn.leaderboard.page import BEGIN, END, HTML, PICTURE, Page, PageTable, page_of, with_part, write_report
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
    first, equal, second, *intervals, by_set, mean = page_of(analysis()).answer
    assert first == "On average over 3 of 3 data sets, `mlr` is better than `standard`."
    assert equal == "`swa` is equal within 1 %."
    assert second == "Intervals (95 %) of the mean differences:"
    assert [re.sub(r"\d+\.\d", "x", text) for text in sorted(intervals)] == [
        f"`mlr` {MINUS}x % to {MINUS}x %.",
        f"`swa` {MINUS}x % to +x %.",
    ]
    assert by_set == "Compared with the ridge, `standard` is better on 3 data sets."
    assert mean == f"Its mean difference lies between {MINUS}4.2 % and {MINUS}3.5 %: better."
    both = [*rows("ETTh1", 24, {"standard": 0.0, "mlr": -3.0}), *rows("ETTh2", 24, {"standard": 0.0, "mlr": 3.0})]
    first = page_of(analysis(Records.of(both))).answer[0]
    assert first == "On ETTh1 and ETTh2, `mlr` on ETTh1 is better than `standard`, and `mlr` on ETTh2 is worse."
    undecided = page_of(analysis(Records.of(rows("ETTh1", 24, {"standard": 0.0, "swa": 9.0}))))
    assert undecided.answer[0] == "On ETTh1, no attention is measurably better than `standard`, and `swa` is worse."
    assert undecided.table.rows[0][-1] == "`swa` +9.0 % (+7.7 to +10.3) worse"


def test_the_table_has_a_column_for_each_attention_and_the_lowest_error_in_bold() -> None:
    table = page_of(analysis()).table
    assert [*table.heads] == [*("data set", "`standard`", "`mlr`", "`swa`", "ridge", "seasonal naive", "verdict, MSE")]
    verdict = f"`mlr` {MINUS}3.0 % ({MINUS}3.5 to {MINUS}2.5) better; `swa` equal within 1 %"
    assert [*table.rows[0]] == ["ETTh1", "0.400", "**0.388**", "0.400", "0.416", "1.000", verdict]
    found = [{**one, "mse": 0.3} if one["predictor"] == "persistence" else one for one in rows("ETTh1", 24)]
    naive = page_of(analysis(Records.of(found)))
    assert "**" not in "".join(naive.table.rows[0])
    assert "On ETTh1, `persistence` has the lowest test MSE: 0.300." in naive.notes


def test_two_models_without_a_baseline_have_a_page() -> None:
    plain = [row("ETTh1", 24, predictor, "standard", 1) for predictor in ("patchtst", "transformer")]
    assert page_of(analysis(Records.of(plain))).table.rows
    apart = [row("ETTh1", horizon, f"model{horizon}", "standard", 1) for horizon in (24, 48)]
    assert page_of(analysis(Records.of(apart))).answer == ["On ETTh1, no model has all horizons."]


NAMES = [f"set {number}" for number in range(14)]
HELPS = {"models": ["patchtst, mlr"], "against": "patchtst, standard"}


def page_of_many(*questions: dict[str, object]) -> Page:
    data = [{"name": name, "source": f"source {place // 2}", "class_path": "X"} for place, name in enumerate(NAMES)]
    models = {
        "attentions": {"standard": "standard", "mlr": "mlr"},
        "predictors": {"patchtst": "patchtst", "ridge": "ridge"},
    }
    content = {"data": data, "horizons": [24], **models, "questions": [*questions]}
    found = board(NAMES, [24], shifts={"standard": 0.0, "mlr": -3.0}).table.to_pylist()
    return page_of(Analysis(Records.of(found, {"invented": yaml.safe_dump(content)})))


def test_of_many_data_sets_the_means_are_shown() -> None:
    page = page_of_many({"ask": "Does it help?", **HELPS})
    ((ask, _, _, data, size, _, verdict),) = page.table.rows
    assert (ask, verdict) == ("Does it help?", "better")
    assert data == "14 data sets of 7 sources: lower on 14, higher on 0 (sign test: p 0.00012)"
    assert size.startswith(f"MSE {MINUS}3.0 % (")
    assert [*page.rows] == ["patchtst: mlr\n/ standard"]
    assert page.questions is None
    assert page.details[0].table is not None
    assert len(page.details[0].table.rows) == 14


def test_each_question_of_many_data_sets_has_a_row_that_says_what_it_asks() -> None:
    asked = [HELPS, {**HELPS, "metric": "mae"}, {**HELPS, "data": NAMES[:3], "horizons": [24]}]
    asked += [{"models": ["patchtst, standard"], "against": "ridge"}, HELPS]
    page = page_of_many(*({"ask": f"Question {place}?", **question} for place, question in enumerate(asked)))
    everywhere, mlr = "at all horizons\non set 0 and 13 more", "patchtst: mlr\n/ standard"
    assert [*page.rows] == [
        f"{mlr}\nMSE\n{everywhere}",
        f"{mlr}\nMAE\n{everywhere}",
        f"{mlr}\nMSE\nat 24\non set 0 and 2 more",
        f"patchtst, standard\n/ ridge\nMSE\n{everywhere}",
        f"{mlr}\nMSE\n{everywhere}\n(question 5)",
    ]
    assert len(page.table.rows) == 5
    assert page.caption.startswith("Test MSE or MAE, mean over data sets")
    assert page.axis == "difference in MSE or MAE, %"


def test_no_table_is_wider_than_seven_columns_and_nothing_is_said_twice(folder: Path) -> None:
    text = (folder / "report.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert max(line.count("|") for line in lines) <= 8
    sentences = [line for line in text.splitlines() if line and not line.startswith(("|", "<", "!"))]
    assert len(sentences) == len(set(sentences))
    assert f"![Error compared with the ridge]({PICTURE})" in text
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
