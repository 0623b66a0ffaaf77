"""The page and its Markdown: what they hold, how they are built, and that names from records are never markup."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace

import pandas as pd
import pytest

from tests.leaderboard.html_page import Node, Page
from tests.leaderboard.invented import ABLATIONS, ATTENTIONS, record, records, refused
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.contents import sections_of, title_of
from tsattn.leaderboard.report.difference_sections import compared_in_short, confirmed_in_short, difference_section
from tsattn.leaderboard.report.markdown_text import markdown_report
from tsattn.leaderboard.report.page import page
from tsattn.leaderboard.report.parts import ReportTable, Section
from tsattn.leaderboard.report.published import read_published, shipped_numbers
from tsattn.leaderboard.report.readme_part import readme_part
from tsattn.leaderboard.standings import RankedArm, Standings

RESAMPLES = 400
SECTIONS = [
    *("summary", "chosen", "headline", "differences", "confirmation", "ranks", "ablations", "cost", "horizons"),
    *("published", "forecasts", "failed", "refused", "provenance", "method"),
]


def analysed(found: Records, fresh: tuple[int, ...] = (), resamples: int = RESAMPLES) -> Analysis:
    file = shipped_numbers()
    assert file is not None
    return Analysis(Standings(found), read_published(file), fresh, why_no_pictures="No models.", resamples=resamples)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analysed(records(windows=700, shifts={"mlr": -8.0, "uniform": 15.0}), (4, 5), 8000)


@pytest.fixture(scope="module")
def sections(analysis: Analysis) -> list[Section]:
    return sections_of(analysis)


@pytest.fixture(scope="module")
def content(analysis: Analysis, sections: list[Section]) -> str:
    return page(title_of(analysis), sections)


@pytest.fixture(scope="module")
def tree(content: str) -> Node:
    return Page(content).root


def table_of(sections: list[Section], name: str) -> ReportTable:
    return next(part for section in sections for part in section.parts if part.name == name)  # type: ignore[return-value]


def cells(table: ReportTable) -> list[dict[str, str]]:
    return [{column.name: cell.text for column, cell in zip(table.columns, row, strict=True)} for row in table.rows]


def cells_of(section: Section) -> list[list[dict[str, str]]]:
    return [cells(part) for part in section.parts if isinstance(part, ReportTable)]


def test_it_holds_every_section_under_a_heading(tree: Node) -> None:
    found = tree.all("section")
    assert [section.attributes["id"] for section in found] == SECTIONS
    for section in found:
        (heading,) = section.all("h2")
        assert heading.attributes["id"] == section.attributes["aria-labelledby"]
        assert heading.words()
        assert section.all("p") or section.all("table")
    links = [link.attributes["href"] for nav in tree.all("nav") for link in nav.all("a")]
    assert links == [f"#{name}" for name in SECTIONS]
    assert len(tree.all("h1")) == 1


def test_nothing_comes_from_elsewhere(content: str, tree: Node) -> None:
    assert not re.search(r"https?:|//[a-z]", re.sub(r"<script>.*?</script>", "", content, flags=re.DOTALL))
    for node in tree.everything():
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = node.attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), (node.tag, name, value)
        assert node.tag not in ("iframe", "img", "object", "embed")
    assert not re.search(r"@import|url\((?!#)", content)


def test_every_name_is_one(tree: Node) -> None:
    names = [node.attributes["id"] for node in tree.everything() if "id" in node.attributes]
    assert len(names) == len(set(names))
    for node in tree.everything():
        for attribute in ("aria-labelledby", "aria-describedby"):
            if attribute in node.attributes:
                assert node.attributes[attribute] in names
        for value in filter(None, node.attributes.values()):
            for target in re.findall(r"url\(#([^)]+)\)", value) + re.findall(r"^#(.+)$", value):
                assert target in names, target


def test_tables_are_ones_that_can_be_read_aloud(tree: Node) -> None:
    tables = tree.all("table")
    assert len(tables) >= 9
    for table in tables:
        (caption,) = table.all("caption")
        assert caption.words()
        heads = table.all("thead")[0].all("th")
        assert all(head.attributes["scope"] == "col" for head in heads)
        for row in table.all("tbody")[0].all("tr"):
            assert len(row.children) == len(heads)
            assert row.children[0].attributes["scope"] == "row"
    for figure in tree.all("figure"):
        (svg,) = figure.all("svg")
        assert svg.attributes["role"] == "img"
        assert svg.attributes["aria-label"]
        assert figure.all("figcaption")[0].words()


def test_figures_have_the_colours_and_the_text_of_the_page(content: str, tree: Node) -> None:
    for svg in tree.all("svg"):
        assert svg.all("text"), "text is text"
        assert not svg.all("style")
    drawings = "".join(re.findall(r"<svg.*?</svg>", content, re.DOTALL))
    assert not re.search(r"#[0-9a-f]{6}\b", drawings), "each colour is one of the page, other ones in the dark"
    used = set(re.findall(r"var\(--([\w-]+)\)", content)) - {"drawn-width"}
    style = content.split("<style>")[1].split("</style>")[0]
    for block in re.findall(r"\{[^{}]*color-scheme:[^{}]*\}", style):
        assert used <= set(re.findall(r"--([\w-]+):", block))


def test_names_are_never_markup() -> None:
    bad = "<img src=x onerror=alert(1)>&\"'|*_`"
    found = [record("ETTh1", 24, bad, "standard", 1, windows=300), record("ETTh1", 24, bad, "a<b", 1, windows=300)]
    found.append(refused("ETTh1", 24, "x", bad, "failed", f"{bad}\n\n# no heading</td>"))
    analysis = analysed(Records.of(found))
    sections = sections_of(analysis)
    tree = Page(page(bad, sections)).root
    assert not tree.all("img")
    assert bad in tree.all("h1")[0].text
    assert any(bad in cell.text for cell in tree.all("td"))
    text = markdown_report(bad, sections)
    assert "<img" not in text.replace("\\<img", "")
    assert "\n# no heading" not in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1, "a cell for each column"


def test_means_are_those_of_the_records(analysis: Analysis, sections: list[Section]) -> None:
    done = analysis.board.done[~analysis.board.done["seed"].isin(analysis.fresh_seeds)]
    rows = {(row["predictor"], row["attention"]): row for row in cells(table_of(sections, "headline-table"))}
    own = done[(done["dataset"] == "ETTm1") & (done["predictor"] == "patchtst") & (done["attention"] == "mlr")]
    means = own.groupby("horizon")[["mse", "mae"]].mean().mean()
    assert rows["patchtst", "mlr"]["ETTm1"] == f"{means['mse']:.3f} / {means['mae']:.3f}"
    assert rows["itransformer", "btt"]["ETTm1"] == "–"  # noqa: RUF001
    chosen = cells(table_of(sections, "chosen-table"))
    assert {row["arm"] for row in chosen if row["chosen by"] == "validation"} == {"patchtst, mlr"}


def test_mase_and_wql_stand_where_records_have_them() -> None:
    kinds = {"ridge": (1.25, None), "chronos_tiny": (0.875, 0.0625), "dlinear": (None, None)}
    known = [
        record("ETTh1", horizon, kind, "", None, windows=100, mase=mase, wql=wql)
        for kind, (mase, wql) in kinds.items()
        for horizon in (24, 48)
    ]
    sections = sections_of(analysed(Records.of(known)))
    rows = {(row["predictor"], row["horizon"]): row for row in cells(table_of(sections, "horizon-table"))}
    dash = rows["dlinear", "24"]["MASE"]
    assert [rows[kind, "24"]["MASE"] for kind in kinds] == ["1.250", "0.875", dash]
    assert [rows[kind, "48"]["WQL"] for kind in kinds] == [dash, "0.0625", dash]
    means = {row["predictor"]: row["ETTh1"] for row in cells(table_of(sections, "scaled-table"))}
    assert means == {"ridge": f"1.250 / {dash}", "chronos_tiny": "0.875 / 0.0625"}
    text = markdown_report("Leaderboard", sections)
    assert "| MSE | MAE | MASE | WQL | skill |" in text
    assert "MASE / WQL, means over horizons and seeds" in page("Leaderboard", sections)


def test_old_records_make_the_report_that_they_made(sections: list[Section]) -> None:
    text = markdown_report("Leaderboard", sections)
    assert "MASE" not in text
    assert "WQL" not in text
    assert "| MSE | MAE | skill |" in text
    headline = next(one for one in sections if one.name == "headline")
    assert [part.name for part in headline.parts] == ["headline-table"]
    # MASE alone, as point forecasts have
    alone = sections_of(analysed(Records.of([record("ETTh1", 24, "ridge", "", None, windows=100, mase=1.5)])))
    (row,) = cells(table_of(alone, "scaled-table"))
    assert row["ETTh1"] == "1.500"
    assert "WQL" not in cells(table_of(alone, "horizon-table"))[0]


def test_what_pretraining_has_seen_is_marked() -> None:
    words = {"chronos-tiny": "seen", "chronos-bolt-small": "unknown", "ridge": "", "other": "unseen", "older": None}
    known = [
        record("weather", horizon, kind, "", None, windows=100, mase=1.0, pretraining=word)
        for kind, word in words.items()
        for horizon in (24, 48)
    ]
    sections = sections_of(analysed(Records.of(known)))
    rows = {row["predictor"]: row["pretraining"] for row in cells(table_of(sections, "horizon-table"))}
    dash = rows.pop("older")
    assert rows == {"chronos-tiny": "seen", "chronos-bolt-small": "unknown", "ridge": dash, "other": "unseen"}
    for name in ("headline-table", "scaled-table"):
        notes = {row[0].text: row[2].note for row in table_of(sections, name).rows}
        assert "its training part seen in pretraining" in notes["chronos-tiny"], name
        assert "perhaps seen in pretraining" in notes["chronos-bolt-small"], name
        assert not any("seen" in notes[kind] for kind in ("ridge", "other", "older")), name
    alone = sections_of(analysed(Records.of([record("weather", 24, "ridge", "", None, windows=100)])))
    assert "pretraining" not in cells(table_of(alone, "horizon-table"))[0]


def test_a_tie_is_called_one(analysis: Analysis, sections: list[Section]) -> None:
    rows = cells(table_of(sections, "difference-table"))
    assert len(rows) == len(analysis.comparisons)
    swa = [row for row in rows if row["attention"] == "swa" and row["against"] == "standard"]
    assert {row["verdict"] for row in swa} == {"tie"}
    assert all(row["detectable"].endswith("%") for row in swa)
    table = table_of(sections, "headline-table")
    notes = {(row[0].text, row[1].text): row[2].note for row in table.rows}
    assert notes["patchtst", "swa"].startswith("standard: tie")
    text = " ".join(next(section for section in sections if section.name == "differences").text)
    assert re.search(r"Of \d+ comparisons .* \d+ are ties, \d+ better", text)


def test_what_differs_is_shown_by_the_length_of_blocks(analysis: Analysis, sections: list[Section]) -> None:
    rows = cells(table_of(sections, "block-length-table"))
    found = analysis.by_block_length
    assert len(rows) == len(found) > 0
    for cell, row in zip(rows, found.to_dict("records"), strict=True):
        assert cell["verdict"] == row["verdict"]
        assert cell["block"] == str(row["block_length"])
        assert (cell["attention"], cell["horizon"]) == (row["attention"], str(row["horizon"]))
    (section,) = (one for one in sections if one.name == "differences")
    assert sum("other windows have to confirm" in text for text in section.text) == 1
    alike = dict.fromkeys((*ATTENTIONS, *ABLATIONS), 0.0)
    none = difference_section(Analysis(Standings(records(windows=300, shifts=alike)), resamples=200))
    assert not any(part.name == "block-length-table" for part in none.parts)
    assert not any("other windows have to confirm" in text for text in none.text)


def test_a_difference_of_arms_with_other_losses_is_not_one_of_attentions() -> None:
    losses = {"standard": "mae", "mlr": "mse", "swa": "mae"}
    made = records(datasets=("ETTh1",), seeds=(1, 2), shifts={"mlr": -30.0, "swa": -30.0}, windows=700)
    trained = [
        replace(one, row={**one.row, "experiment": f"model: {{loss: {losses[one.row['attention']]}}}\n"})
        if one.row["attention"] in losses
        else one
        for one in made.each()
    ]
    analysis = analysed(Records.of(trained), resamples=4000)
    assert analysis.verdict("ETTh1", RankedArm("patchtst", "mlr"), "standard") == "better throughout (another loss)"
    assert analysis.verdict("ETTh1", RankedArm("patchtst", "swa"), "standard") == "better throughout"
    assert "another" not in analysis.verdict("ETTh1", RankedArm("patchtst", "mlr"), "ridge"), "which was not trained"
    sections = sections_of(analysis)
    found = {(row["attention"], row["against"]): row["loss"] for row in cells(table_of(sections, "difference-table"))}
    assert found["mlr", "standard"] == "mse / mae"
    assert (found["swa", "standard"], found["mlr", "ridge"]) == ("mae", "mse")
    text = " ".join(next(section for section in sections if section.name == "differences").text)
    assert re.search(r" of these are between arms that were trained by different losses, which alone can make", text)
    assert "losses" not in " ".join(sections_of(analysed(made, resamples=4000))[0].text)


def test_what_is_of_one_seed_is_said_to_be() -> None:
    shifts = {"mlr": -30.0}
    analysis = analysed(records(datasets=("ETTh1",), seeds=(1,), shifts=shifts, windows=700), resamples=4000)
    arm = RankedArm("patchtst", "mlr")
    assert analysis.verdict("ETTh1", arm, "standard") == "one seed at 24, 48"
    several = analysed(records(datasets=("ETTh1",), seeds=(1, 2), shifts=shifts, windows=700), resamples=4000)
    assert several.verdict("ETTh1", arm, "standard") == "better throughout"
    (differences,) = [section for section in sections_of(analysis) if section.name == "differences"]
    assert "comparisons are of single models" in " ".join(differences.text)
    table = next(part for part in differences.parts if isinstance(part, ReportTable))
    assert {row[6].text for row in table.rows} == {"one seed"}


def test_published_numbers_say_where_they_come_from(sections: list[Section]) -> None:
    rows = cells(table_of(sections, "published-table"))
    here = [row for row in rows if row["from"] == "here"]
    assert [row["model"] for row in here] == ["patchtst, mlr", "ridge"] * 2
    others = [row for row in rows if row["from"] == "published"]
    assert {row["data set"] for row in others} == {"ETTh1", "ETTm1"}
    assert all(row["source"] and row["look-back"] for row in others)
    assert {row["all windows"] for row in others} == {"yes", "no"}


def test_what_failed_and_what_does_not_apply_is_listed(sections: list[Section]) -> None:
    (failed,) = cells(table_of(sections, "failed-table"))
    assert (failed["predictor"], failed["attention"]) == ("itransformer", "mlbtc")
    assert failed["error"].startswith("the loss is not a number")
    (none,) = cells(table_of(sections, "refused-table"))
    assert "which have no order" in none["reason"]


def test_fresh_seeds_have_a_section_where_they_are_asked_for(sections: list[Section]) -> None:
    rows = cells(table_of(sections, "confirmation-table"))
    assert {row["confirmed"] for row in rows if row["attention"] == "mlr" and row["against"] == "standard"} >= {"yes"}
    assert any(row["confirmed"] == "no run with a fresh seed" for row in rows)


def test_what_fresh_seeds_could_not_confirm_is_counted(analysis: Analysis) -> None:
    fresh = analysis.confirmation
    assert fresh is not None
    whole = confirmed_in_short(analysis)
    ((number, confirmed),) = re.findall(r"found (\d+) differences from standard attention; they confirm (\d+): ", whole)
    here = whole.count("mlr on ETTm1")
    assert 0 < here < int(number)

    def without(rows: pd.Series[bool]) -> str:
        other = copy(analysis)
        vars(other)["confirmation"] = fresh[~rows]
        return confirmed_in_short(other)

    found = f"found {number} differences from standard attention"
    lacking = "between arms that have no run with a fresh seed"
    part = without((fresh["attention"] == "mlr") & (fresh["dataset"] == "ETTm1"))
    assert f"{found}, {here} of them {lacking}; they confirm {int(confirmed) - here}: " in part
    assert without(fresh["attention"].notna()).endswith(f"{found}, {lacking}.")


def test_fresh_seeds_are_in_that_section_alone(analysis: Analysis, sections: list[Section]) -> None:
    """Else what they confirm would be a choice and a mean that they had a part in."""
    entries = records(windows=700, shifts={"mlr": -8.0, "uniform": 15.0})
    others = Records.of([one for one in entries.each() if one.row["seed"] not in (4, 5)])
    alone = analysed(others, resamples=8000)
    for mine, theirs in (
        (analysis.scores, alone.scores),
        (analysis.means, alone.means),
        (analysis.choices, alone.choices),
    ):
        pd.testing.assert_frame_equal(mine, theirs)
    assert [one.ranks.to_dict() for one in analysis.rankings] == [one.ranks.to_dict() for one in alone.rankings]
    by_name = {section.name: section for section in sections_of(alone)}
    for section in sections:
        if section.name not in ("summary", "confirmation", "provenance", "forecasts"):
            assert cells_of(section) == cells_of(by_name[section.name]), section.name
    mine, theirs = (" ".join(readme_part(one).split()) for one in (analysis, alone))
    confirmed = confirmed_in_short(analysis)
    assert f" {confirmed}" in mine
    assert mine.replace(f" {confirmed}", "") == theirs
    (own,) = [section for section in sections if section.name == "confirmation"]
    assert "Seeds 4 and 5 have no part in any other section" in own.text[0]


def test_what_validation_chooses_among_all_arms_is_said() -> None:
    found = [
        record("ETTh1", 24, "patchtst", "mlr", 1, windows=100, mse=0.4, validation_mse=0.6),
        record("ETTh1", 24, "dlinear", "", 1, windows=100, mse=0.7, mae=0.5, validation_mse=0.5),
    ]
    sections = {section.name: section for section in sections_of(analysed(Records.of(found)))}
    chosen = cells(table_of([*sections.values()], "chosen-table"))
    assert [(row["chosen by"], row["arm"]) for row in chosen] == [
        ("validation", "patchtst, mlr"),
        ("validation among all arms", "dlinear"),
    ]
    text = " ".join(sections["summary"].text)
    assert "On ETTh1 validation chose patchtst, mlr among the arms that hold a trained attention" in text
    assert "Among all arms it chose dlinear: 0.700 / 0.500." in text
    one = sections_of(analysed(Records.of(found[:1])))
    assert [row["chosen by"] for row in cells(table_of(one, "chosen-table"))] == ["validation"]
    assert "Among all arms" not in " ".join(one[0].text)


def test_where_the_ridge_has_other_windows_no_skill_is_given_and_it_is_said() -> None:
    found = [
        record("ETTh1", 24, "ridge", "", None, windows=300),
        record("ETTh1", 24, "patchtst", "mlr", 1, windows=600),
    ]
    sections = {section.name: section for section in sections_of(analysed(Records.of(found)))}
    assert "not beside the ridge, which was tested on other windows" in " ".join(sections["summary"].text)
    assert "that of the ridge" not in " ".join(sections["summary"].text)
    assert "have no skill beside it: on ETTh1 24." in " ".join(sections["horizons"].text)
    rows = table_of([*sections.values()], "chosen-table").rows
    assert rows[0][7].note == "on other windows"


def test_a_ridge_is_named_by_its_context_and_penalty() -> None:
    text = "model: {{backbone: {{kind: ridge, alpha: {}, context_length: [24, 104]}}}}"
    found = [
        record("ETTh1", 24, "ridge", "", None, parameters=24 * 104, experiment=text.format("[1, 10]")),
        record("ETTh1", 48, "ridge", "", None, parameters=48 * 24, experiment=text.format("[1, 10]")),
        record("ETTm1", 24, "ridge", "", None, parameters=24 * 512, experiment=text.format("1000.0")),
        record("ETTm1", 48, "ridge", "", None, parameters=48 * 512, experiment=text.format("1000.0")),
    ]
    sections = sections_of(analysed(Records.of(found)))
    names = [row["predictor"] for row in cells(table_of(sections, "horizon-table"))]
    chosen = ["ridge (context 104, alpha chosen)", "ridge (context 24, alpha chosen)"]
    assert names == [*chosen, "ridge (context 512)", "ridge (context 512)"]
    here = [row["model"] for row in cells(table_of(sections, "published-table")) if row["from"] == "here"]
    assert here == ["ridge (context 24 to 104, alpha chosen)", "ridge (context 512)"]


def test_whoever_has_fewer_windows_is_not_said_to_have_all() -> None:
    found = [
        record("ETTh1", 96, "ridge", "", None, windows=300),
        record("ETTh1", 96, "patchtst", "mlr", 1, windows=600),
    ]
    rows = cells(table_of(sections_of(analysed(Records.of(found))), "published-table"))
    here = {row["model"]: row["all windows"] for row in rows if row["from"] == "here"}
    assert here == {"patchtst, mlr": "yes", "ridge": "no"}


def test_mixes_of_the_same_trainings_are_no_evidence_of_their_own() -> None:
    found = [
        record("ETTh1", 24, name, kind, seed, windows=300, weight=weight)
        for name, weight in (("patchtst", 1.0), ("patchtst+ridge", 0.5))
        for kind in ("standard", "swa")
        for seed in (1, 2)
    ]
    analysis = analysed(Records.of(found))
    assert analysis.mixes == {"patchtst+ridge"}
    text = compared_in_short(analysis.against_standard, analysis.mixes)
    assert text.startswith("All 2 comparisons of an attention")
    assert text.endswith("Mixes of the same trainings add no evidence: 2 ties.")
    assert compared_in_short(analysis.against_standard).startswith("All 4 comparisons")


def test_a_verdict_on_some_horizons_says_by_how_much_there() -> None:
    """The mean over all of them stands beside it, and is another one."""
    kinds = ("patchtst", "standard", (1, 2)), ("patchtst", "mlr", (1, 2)), ("ridge", "", (None,))
    found = [
        record("ETTh1", horizon, name, kind, seed, windows=windows)
        for horizon, windows in ((24, 600), (720, 700))
        for name, kind, seeds in kinds
        for seed in seeds
    ]
    analysis = analysed(Records.of(found))
    for arm, against in (("mlr", "standard"), ("mlr", "ridge"), ("standard", "ridge")):
        said = analysis.mean_verdict("ETTh1", RankedArm("patchtst", arm), against)
        assert not said or re.search(
            r"^\w+ \([+\N{MINUS SIGN}][\d.]+ % over the other horizons\), no interval at 720$", said
        )
    assert "over the other horizons" in " ".join(sections_of(analysis)[0].text)


def test_what_is_not_decided_is_counted_as_what_it_is() -> None:
    single = [record("ETTh1", 24, "patchtst", kind, 1, windows=300) for kind in ("standard", "swa", "mlr")]
    several = [record("ETTm1", 24, "patchtst", kind, s, windows=300) for kind in ("standard", "swa") for s in (1, 2)]
    alone = compared_in_short(analysed(Records.of(single)).against_standard)
    assert alone.startswith(
        "None of 4 comparisons of an attention with standard attention (MSE and MAE) is decided. 4 are"
    )
    both = compared_in_short(analysed(Records.of([*single, *several])).against_standard)
    assert both.startswith(
        "All 2 comparisons of an attention with standard attention (MSE and MAE) that are decided are"
    )
    assert "4 are of single models" in both
    assert "without an interval" not in both


def test_runs_are_counted_once_and_trainings_alone_have_windows() -> None:
    one = record("ETTh1", 24, "patchtst", "mlr", 1, windows=300, trained_windows="10 of 40")
    naive = record("ETTh1", 24, "persistence", "", None, windows=300, trained_windows="none")
    shared = [replace(run, row={**run.row, "suite": "another"}) for run in (one, naive)]
    sections = {section.name: section for section in sections_of(analysed(Records.of([one, naive, *shared])))}
    assert sections["summary"].text[0].startswith("2 runs are done")
    assert sections["provenance"].text[0].endswith("a part of their windows: ETTh1: 10 of 40.")


def test_where_nothing_is_found_there_is_nothing_to_confirm() -> None:
    sections = sections_of(analysed(records(datasets=("ETTh1",), shifts={}, windows=300), (4, 5)))
    (own,) = [section for section in sections if section.name == "confirmation"]
    assert not own.parts
    assert "nothing to confirm" in own.text[0]


def test_it_is_the_same_again() -> None:
    pages = []
    for _ in range(2):
        analysis = analysed(records(datasets=("ETTh1",), windows=300))
        pages.append(page(title_of(analysis), sections_of(analysis)))
    assert pages[0] == pages[1]


def test_markdown_says_what_tables_and_columns_are(sections: list[Section]) -> None:
    text = markdown_report("Leaderboard", sections)
    for section in sections:
        for part in section.parts:
            if isinstance(part, ReportTable):
                assert f"*{part.caption}*\n\n|" in text
    explanation = "*Holm p*: corrected for every comparison of this table"
    assert text.count(explanation) == 1


def test_markdown_holds_the_same_tables(sections: list[Section]) -> None:
    text = markdown_report("Leaderboard", sections)
    for section in sections:
        assert f"\n## {section.title}\n" in text
        for part in section.parts:
            if isinstance(part, ReportTable) and part.rows:
                head = f"| {' | '.join(column.name for column in part.columns)} |"
                assert head in text
                body = text.split(head)[1].split("\n\n")[0].strip().splitlines()
                assert len(body) == 1 + len(part.rows)


@pytest.mark.parametrize(
    "found",
    [
        [],
        [refused("ETTh1", 24, "patchtst", "mlr", "failed", "no")],
        [record("ETTh1", 24, "ridge", "", None, windows=100)],
        [record("ETTh1", 24, "patchtst", "mlr", 1, windows=100)],
        [record("ETTh1", 24, "patchtst", kind, 1, windows=30) for kind in ("standard", "mlr")],
        [record("ETTh1", 24, "patchtst", "mlr", 1, windows=100, flops=None, validation_mse=None, parameters=None)],
    ],
    ids=["nothing", "failed alone", "ridge alone", "one arm", "few windows", "facts missing"],
)
def test_whatever_is_there_is_reported(found: list[object]) -> None:
    analysis = analysed(Records.of(found))  # type: ignore[arg-type]
    sections = sections_of(analysis)
    Page(page(title_of(analysis), sections))
    assert markdown_report(title_of(analysis), sections)


def test_what_is_done_so_far_is_reported_before_anything_can_be_compared() -> None:
    first = [record("ETTh1", 24, "ridge", "", None), record("ETTh1", 24, "patchtst", "standard", 1)]
    for runs in (first[:1], first):
        found = analysed(Records.of(runs))
        text = markdown_report(title_of(found), sections_of(found))
        assert f"{len(runs)} run{'s are' if len(runs) > 1 else ' is'} done" in text
    assert "No attention is done beside standard attention of the same predictor yet." in text
