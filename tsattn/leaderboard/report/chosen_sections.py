"""The section of what validation chose, beside what it must be seen beside."""

from __future__ import annotations

import math

import pandas as pd

from tsattn.errors import number_of
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.parts import Cell, Column, ReportTable, Section
from tsattn.leaderboard.report.wording import (
    DASH,
    PAIR,
    each_row,
    listed,
    number_cell,
    p_value,
    percent,
    percent_cell,
    rough_percent,
    score_pair,
    seed_counts,
)
from tsattn.leaderboard.standings import RIDGE, STANDARD, RankedArm
from tsattn.leaderboard.summaries import ROLLING

__all__ = ["chosen_section"]


def chosen_section(analysis: Analysis) -> Section:
    """For each data set the arm that validation chose, beside what it must be seen beside."""
    tables = [_chosen_table(analysis)]
    if len(analysis.chosen_means):
        tables.append(_chosen_means_table(analysis))
    return Section("chosen", "What validation chose", _chosen_text(analysis), tables)


def _chosen_table(analysis: Analysis) -> ReportTable:
    columns = [
        Column("data set"),
        Column("chosen by", "on which errors; by test is what nobody could have chosen"),
        Column("arm"),
        Column("weight", "of what holds a trained attention, in the forecast", is_number=True),
        Column("MSE / MAE", f"{PAIR}, mean over horizons and seeds", is_number=True),
        Column("seeds", "runs at a horizon, the fewest to the most", is_number=True),
        Column("without it", "the same arm without the member that holds the attention", is_number=True),
        Column("ridge", PAIR, is_number=True),
        Column("beside standard", "of the same predictor: the mean MSE, paired and corrected, as under this table"),
        Column("beside the ridge", "the mean MSE, paired and corrected, as under this table"),
    ]
    rows = [row for dataset in analysis.deciding.datasets for row in _chosen_rows(analysis, dataset)]
    by = (
        "validation, rolling origins and test"
        if len(analysis.choices.query("by == @ROLLING"))
        else "validation and test"
    )
    caption = f"Chosen by {by}: means over horizons and seeds"
    return ReportTable("chosen-table", caption, columns, rows)


def _chosen_rows(analysis: Analysis, dataset: str) -> list[list[Cell]]:
    """A row an arm; one that is chosen twice says so in its row."""
    said: dict[RankedArm, list[Cell]] = {}
    for by, among in (
        ("validation", "attention"),
        ("validation", "all"),
        (ROLLING, "attention"),
        ("test", "attention"),
    ):
        best = analysis.chosen(dataset, among, by)
        if best is None:
            continue
        is_of_all = among == "all"
        arm = RankedArm(best["predictor"], best["attention"])
        if arm not in said:
            said[arm] = _chosen_row(analysis, best, arm, by, is_of_all)
        elif not is_of_all:
            known = said[arm][1]
            word = "the lowest test MSE" if by == "test" else by
            note = f"{known.note}, {word}" if known.note else f"and {word}"
            said[arm][1] = Cell(known.text, mark=known.mark, note=note)
    return [*said.values()]


def _chosen_row(analysis: Analysis, best: pd.Series, arm: RankedArm, by: str, is_of_all: bool) -> list[Cell]:
    dataset = best["dataset"]
    ridge = analysis.mean_of(dataset, RankedArm(RIDGE))
    is_standard = arm.attention == STANDARD
    standard = "standard itself" if is_standard else analysis.mean_verdict(dataset, arm, STANDARD)
    return [
        Cell(dataset),
        _chosen_by(by, is_of_all),
        Cell(str(arm), mark="dim" if by == "test" else "" if is_of_all else "strong"),
        number_cell(best["weight"], f"{best['weight']:.2g}"),
        number_cell(best["mse"], score_pair(best["mse"], best["mae"])),
        number_cell(best["seeds"], seed_counts(best["seeds"], best["most_seeds"])),
        number_cell(best["without_mse"], _without(best, arm)),
        _ridge_cell(ridge, best["skill"], analysis.deciding.label(RankedArm(RIDGE), dataset)),
        _verdict_cell(standard),
        _verdict_cell(analysis.mean_verdict(dataset, arm, RIDGE)),
    ]


def _without(best: pd.Series, arm: RankedArm) -> str:
    if not arm.attention:
        return DASH
    if not best["without"]:
        return "nothing is left"
    return f"{best['without']}: {score_pair(best['without_mse'], best['without_mae'])}"


def _chosen_text(analysis: Analysis) -> list[str]:
    text = [
        "For each data set, the arm with the lowest validation MSE among those that hold a trained attention, alone "
        "or in an ensemble with a weight of 0.25 or more. Its test errors had no part in that choice. Where validation "
        "among all arms, also those without an attention, chooses another, that stands under it. So does the arm with "
        "the lowest test MSE of those with an attention, where it is another; nobody could have chosen it, and its "
        "errors are flattered.",
        "Of a trained arm the validation error is somewhat too low: the same windows chose the step whose weights are "
        "kept, and the values of its study. A closed form, and a fixed mix, choose nothing there. So a choice among "
        "all arms leans towards what is trained; a choice among attentions treats all of them alike.",
    ]
    if (origins := analysis.compared_origins) is not None and len(origins):
        blocks = listed(sorted({str(len(one)) for one in origins["origins"]}))
        steps = listed(sorted({str(one) for one in origins["horizon"]}))
        sentence = (
            f"Rolling origins are the second selector: every arm with its first seed, fitted before each of {blocks} "
            f"blocks of rows that end where the test part begins, and validated on it, at horizon {steps} alone."
        )
        assert analysis.recorded_origins is not None
        if others := len(analysis.recorded_origins) - len(origins):
            sentence += f" {others} more scores are at another horizon or of another number of blocks, and left out."
        text.append(sentence)
    text += _unknown_origins(analysis)
    lacking = [name for name in analysis.deciding.datasets if analysis.chosen(name) is None]
    if lacking:
        text.append(f"Nothing is chosen on {listed(lacking)}: no arm with an attention is done at all horizons yet.")
    if len(analysis.chosen_means):
        text.append(
            "What validation and rolling origins chose is compared with standard attention of the same predictor and "
            "with the ridge by its mean MSE over all horizons. These comparisons are few, and corrected for their own "
            "number; their intervals take the luck of time and seeds for the same at all horizons, which makes them "
            "rather too wide. Single horizons, among all others: see differences."
        )
    return text


def _unknown_origins(analysis: Analysis) -> list[str]:
    """Which scores on rolling origins are left out, as nothing says that they are of these arms."""
    if analysis.origins is None or analysis.recorded_origins is None:
        return []
    unknown = len(analysis.origins) - len(analysis.recorded_origins)
    one = f"{number_of(unknown, 'score')} on rolling origins {'is' if unknown == 1 else 'are'} left out, of experiments"
    return [f"{one} that are not among these records, or that the file does not name."] if unknown else []


def _chosen_means_table(analysis: Analysis) -> ReportTable:
    columns = [
        Column("data set", has_filter=True),
        Column("arm"),
        Column("against", "standard attention of the same predictor, or the ridge", has_filter=True),
        Column("verdict", "better or worse where Holm's p-value is below 0.05", has_filter=True),
        Column("difference", "of the mean MSE, relative to that of what it is compared with", is_number=True),
        Column("95 % interval", "of the relative difference, uncorrected", is_number=True),
        Column("Holm p", "corrected for the comparisons of this table", is_number=True),
        Column("detectable", "what would have been found in 80 of 100 cases after correction", is_number=True),
        Column("horizons", "over which means are taken"),
    ]
    rows = []
    for row in each_row(analysis.chosen_means):
        arm = RankedArm(row.predictor, row.attention)
        interval = f"{percent(row.percent_low)} to {percent(row.percent_high)}"
        rows.append(
            [
                *(Cell(row.dataset), Cell(str(arm)), Cell(row.against)),
                _verdict_cell(analysis.mean_verdict(row.dataset, arm, row.against)),
                percent_cell(row.percent),
                number_cell(row.percent_low, DASH if math.isnan(row.percent_low) else interval),
                number_cell(row.holm, p_value(row.holm)),
                number_cell(row.percent_detectable, rough_percent(row.percent_detectable)),
                Cell(listed(row.horizons)),
            ]
        )
    return ReportTable("chosen-means-table", "What was chosen, beside standard attention and the ridge", columns, rows)


def _chosen_by(by: str, is_of_all: bool) -> Cell:
    if by == "test":
        return Cell("test", mark="dim", note="not a choice")
    return Cell(f"{by} among all arms") if is_of_all else Cell(by, mark="chosen")


def _ridge_cell(ridge: pd.Series | None, skill: float, label: str) -> Cell:
    if ridge is None:
        return Cell(DASH)
    notes = [label.removeprefix(RIDGE).strip(" ()")]
    notes += ["on other windows"] if math.isnan(skill) and not math.isnan(ridge["mse"]) else []
    note = ", ".join(filter(None, notes))
    return number_cell(ridge["mse"], score_pair(ridge["mse"], ridge["mae"]), note=note)


def _verdict_cell(text: str) -> Cell:
    word = text.split(" ")[0].rstrip(";")
    return Cell(text or DASH, mark=word if word in ("tie", "better", "worse") and ";" not in text else "")
