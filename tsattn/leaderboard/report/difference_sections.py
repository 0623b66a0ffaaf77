"""Sections of differences: paired, confirmed, and by rank."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from tsattn.errors import number_of
from tsattn.leaderboard.comparisons import COMPARISON
from tsattn.leaderboard.rank_tests import Ranking, posthocs
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.board_figures import difference_figure, rank_figure
from tsattn.leaderboard.report.parts import Cell, Column, ReportFigure, ReportTable, Section
from tsattn.leaderboard.report.wording import (
    DASH,
    MINUS,
    each_row,
    listed,
    number_cell,
    p_value,
    percent,
    percent_cell,
    rough_percent,
)
from tsattn.leaderboard.standings import STANDARD, RankedArm

__all__ = ["compared_in_short", "confirmation_section", "confirmed_in_short", "difference_section", "rank_section"]

_COMPARED = [
    Column("data set", has_filter=True),
    Column("horizon", is_number=True, has_filter=True),
    Column("predictor", has_filter=True),
    Column("attention", has_filter=True),
    Column("against", "standard attention of the same predictor, or the ridge", has_filter=True),
    Column("score", has_filter=True),
]


_JUDGED = ("better", "worse", "tie")
_PLURALS = {"tie": "ties"}
_UNDECIDED = {
    "one seed": "of single models, whose luck of the seed is not known",
    "no interval": "without an interval, for too few windows for two blocks, or not the same windows",
}


def difference_section(analysis: Analysis) -> Section:
    """Every comparison, and a figure for each data set of those with standard attention."""
    found = analysis.comparisons
    columns = [
        *_COMPARED,
        Column(
            "verdict", "better or worse where Holm's p-value is below 0.05 and the interval is off 0", has_filter=True
        ),
        Column(
            "loss",
            "that training reduced; where that of standard attention is another, this alone can make a difference",
            has_filter=True,
        ),
        Column("difference", "relative to the error of what it is compared with", is_number=True),
        Column("95 % interval", "of the relative difference, uncorrected", is_number=True),
        Column("absolute", "difference of the errors", is_number=True),
        Column("p", "of a single comparison", is_number=True),
        Column("Holm p", "corrected for every comparison of this table", is_number=True),
        Column("detectable", "what would have been found in 80 of 100 cases after correction", is_number=True),
        Column("seeds", "pairs, or runs of the arm and of what it is compared with", is_number=True),
        Column("blocks", "of time, beside each other; few tell little", is_number=True),
    ]
    rows = [
        [
            *_named_cells(analysis, row),
            _verdict_cell(row),
            _loss_cell(row),
            percent_cell(row.percent),
            number_cell(row.percent_low, _interval(row)),
            number_cell(row.difference, f"{row.difference:+.4f}".replace("-", MINUS)),
            number_cell(row.p, p_value(row.p)),
            number_cell(row.holm, p_value(row.holm)),
            number_cell(row.percent_detectable, rough_percent(row.percent_detectable)),
            number_cell(row.seeds, f"{row.seeds} pairs" if row.is_paired else f"{row.seeds} / {row.reference_seeds}"),
            number_cell(row.blocks, f"{row.blocks:.1f}"),
        ]
        for row in each_row(found)
    ]
    figures = []
    own = found[(found["against"] == STANDARD) & (found["metric"] == "mse") & found["low"].notna()]
    for number, dataset in enumerate(dict.fromkeys(own["dataset"]), 1):
        label = f"{dataset}: MSE beside standard attention of the same predictor, by horizon, with 95 % intervals"
        svg = difference_figure(own[own["dataset"] == dataset], f"difference-svg-{number}", label)
        figures.append(ReportFigure(f"difference-figure-{number}", label, svg))
    table = ReportTable("difference-table", "Every comparison", columns, rows)
    tables = [table, *_by_block_length(analysis)]
    return Section("differences", "Differences", _difference_text(analysis), [*figures, *tables])


def _by_block_length(analysis: Analysis) -> list[ReportTable]:
    """What is left of the differences from standard attention with longer and shorter blocks; nothing where there are
    none.
    """
    found = analysis.by_block_length
    columns = [
        *(column for column in _COMPARED if column.name != "against"),
        Column("block", "its length, in test windows", is_number=True),
        Column("blocks", "of time, beside each other; few tell little", is_number=True),
        Column("verdict", has_filter=True),
        Column("95 % interval", "of the relative difference, uncorrected", is_number=True),
        Column("p", "of a single comparison", is_number=True),
        Column("Holm p", "corrected for every comparison of the table above", is_number=True),
    ]
    rows = [
        [
            *(cell for place, cell in enumerate(_named_cells(analysis, row)) if COMPARISON[place] != "against"),
            number_cell(row.block_length, f"{row.block_length:,}"),
            number_cell(row.blocks, f"{row.blocks:.1f}"),
            _verdict_cell(row),
            number_cell(row.percent_low, _interval(row)),
            number_cell(row.p, p_value(row.p)),
            number_cell(row.holm, p_value(row.holm)),
        ]
        for row in each_row(found)
    ]
    title = "Differences from standard attention, by the length of the blocks of time"
    return [ReportTable("block-length-table", title, columns, rows)] if rows else []


def confirmation_section(analysis: Analysis) -> Section | None:
    """What fresh seeds say of what the others found; None where no seeds are there for it."""
    fresh = analysis.confirmation
    if fresh is None:
        return None
    seeds = listed(analysis.fresh_seeds)
    found = analysis.comparisons
    chosen = found[found["verdict"].isin(["better", "worse"]) & (found["against"] == STANDARD)]
    if not len(chosen):
        none = (
            f"The seeds other than {seeds} found no difference from standard attention, so there is nothing to "
            "confirm. How large one would have been found stands in the column detectable, comparison by comparison."
        )
        return Section("confirmation", "Confirmation", [none])
    text = [
        f"Seeds {seeds} have no part in any other section: no mean, choice, rank or comparison is of them. The other "
        f"seeds found {len(chosen)} differences from standard attention. These alone are compared here, by the means "
        "of the fresh seeds alone, and corrected for their number; how far seeds lie apart is learnt from all of them. "
        "The test windows are the same."
    ]
    columns = [
        *_COMPARED,
        Column("loss", "that training reduced, where it differs beside that of standard attention", has_filter=True),
        Column("other seeds", "relative difference that was found", is_number=True),
        Column("fresh seeds", "relative difference", is_number=True),
        Column("95 % interval", "with the fresh seeds", is_number=True),
        Column("Holm p", "with the fresh seeds, corrected for this table", is_number=True),
        Column("confirmed", has_filter=True),
    ]
    rows = []
    by_key = {tuple(row): number for number, row in enumerate(fresh[COMPARISON].itertuples(index=False, name=None))}
    for row in each_row(chosen):
        place = by_key.get(tuple(getattr(row, name) for name in COMPARISON))
        cells = [*_named_cells(analysis, row), _loss_cell(row), percent_cell(row.percent)]
        if place is None:
            rows.append([*cells, *(Cell(DASH) for _ in range(3)), Cell("no run with a fresh seed", mark="warning")])
            continue
        one = fresh.iloc[place]
        is_confirmed = one["verdict"] == row.verdict
        rows.append(
            [
                *cells,
                percent_cell(one["percent"]),
                number_cell(one["percent_low"], f"{percent(one['percent_low'])} to {percent(one['percent_high'])}"),
                number_cell(one["holm"], p_value(one["holm"])),
                Cell("yes", mark="better") if is_confirmed else Cell(f"no: {one['verdict']}", mark="tie"),
            ]
        )
    table = ReportTable(
        "confirmation-table", f"Differences found without seeds {seeds}, and with them alone", columns, rows
    )
    return Section("confirmation", "Confirmation", text, [table])


def confirmed_in_short(analysis: Analysis) -> str:
    """Which differences between attentions fresh seeds confirmed, and how large they are with these; empty where
    there are no such seeds.
    """
    fresh = analysis.confirmation
    if fresh is None:
        return ""
    seeds = listed(analysis.fresh_seeds)
    own = analysis.against_standard
    chosen = own[own["verdict"].isin(["better", "worse"])]
    first = f"Seeds {seeds} chose nothing, and confirm."
    if not len(chosen):
        return f"{first} The other seeds found no attention that differs from standard attention."
    verdicts = fresh.set_index(COMPARISON)
    said, not_run = [], 0
    for row in each_row(chosen):
        key = tuple(getattr(row, name) for name in COMPARISON)
        if key not in verdicts.index:
            not_run += 1
        elif verdicts.loc[key, "verdict"] == row.verdict:
            that = percent(verdicts.loc[key, "percent"])
            said.append(f"{row.attention} on {row.dataset} at {row.horizon} ({row.metric.upper()} {that})")
    found = f"{first} The other seeds found {number_of(len(chosen), 'difference')} from standard attention"
    if not_run == len(chosen):
        return f"{found}, between arms that have no run with a fresh seed."
    without = f", {not_run} of them between arms that have no run with a fresh seed" if not_run else ""
    return f"{found}{without}; they confirm {len(said) or 'none'}{': ' if said else ''}{'; '.join(said)}."


def rank_section(analysis: Analysis) -> Section:
    """Friedman's test, and diagrams of critical differences."""
    found = analysis.rankings
    if isinstance(found, str):
        return Section("ranks", "Ranks", [found])
    text = [
        "Mean ranks by MSE over tables of data set and horizon, 1 the lowest. Bars join what Nemenyi's test does not "
        "tell apart at the 5 % level. Ranks say how often, not by how much; and horizons of one data set are not "
        "independent, so that these tests are too sure of themselves."
        if found
        else "Ranks need three arms that are all done in two tables at least."
    ]
    parts: list[ReportFigure | ReportTable] = []
    for number, ranking in enumerate(found, 1):
        label = f"Mean ranks of {ranking.what} over {len(ranking.tables)} tables"
        svg = rank_figure(ranking, posthocs(), f"rank-svg-{number}", label)
        parts.append(ReportFigure(f"rank-figure-{number}", f"{label}. {_rank_caption(ranking)}", svg))
    if found:
        columns = [Column("among", has_filter=True), Column("arm"), Column("mean rank", is_number=True)]
        rows = [
            [Cell(ranking.what), Cell(str(arm)), number_cell(float(rank), f"{rank:.2f}")]
            for ranking in found
            for arm, rank in ranking.ranks.items()
        ]
        parts.append(ReportTable("rank-table", "Mean ranks", columns, rows))
    return Section("ranks", "Ranks", text, parts)


def _difference_text(analysis: Analysis) -> list[str]:
    found, own = analysis.comparisons, analysis.against_standard
    if not len(found):
        return ["There is nothing to compare yet: no attention is done beside standard attention or the ridge."]
    text = [compared_in_short(own, analysis.mixes)]
    text.append(
        f"Each of the {len(found)} comparisons differences the errors of the same windows, and draws both blocks of "
        "time and seeds anew (see the method). P-values are corrected by Holm's procedure for all of them. Where "
        "there is a tie, the column detectable says how large a difference would have been found."
    )
    if len(analysis.by_block_length):
        text.append(
            "How long the blocks of time are is a choice. A last table says what comes of each difference from "
            "standard attention with half, twice and four times as many windows in each: one that is lost with longer "
            "blocks is a lead, which other windows have to confirm."
        )
    single = int((found["verdict"] == "one seed").sum())
    if single:
        text.append(
            f"{single} comparisons are of single models: no arm of their predictor has two seeds at any horizon, so "
            "that the luck of the seed is not in their intervals, and they decide nothing."
        )
    lacking = int((found["verdict"] == "no interval").sum())
    if lacking:
        text.append(f"{lacking} comparisons have no interval: too few windows for two blocks, or not the same windows.")
    return text


def compared_in_short(own: pd.DataFrame, mixes: Collection[str] = ()) -> str:
    """How many comparisons with standard attention are ties, and what would have been detected.

    Args:
        own: comparisons of attentions with standard attention.
        mixes: predictors that are mixes of others, whose comparisons are counted apart: they are of the same trainings,
            and a member that is the same for both makes a difference smaller, and what would be detected too.
    """
    is_mix = own["predictor"].isin([*mixes])
    if not is_mix.any() or is_mix.all():
        return _counted(own)
    judged = own[is_mix & own["verdict"].isin(_JUDGED)]
    counts = judged["verdict"].value_counts()
    words = [f"{counts[word]} {_PLURALS.get(word, word)}" for word in ("tie", "better", "worse") if word in counts]
    diluted = f" Mixes of the same trainings add no evidence: {listed(words)}." if words else ""
    return _counted(own[~is_mix]) + diluted


def _counted(own: pd.DataFrame) -> str:
    if not len(own):
        return "No attention is done beside standard attention of the same predictor yet."
    judged = own[own["verdict"].isin(_JUDGED)]
    counts = own["verdict"].value_counts()
    undecided = [
        f"{counts[word]} {'is' if counts[word] == 1 else 'are'} {why}"
        for word, why in _UNDECIDED.items()
        if word in counts
    ]
    why = f" {listed(undecided)}." if undecided else ""
    if not len(judged):
        return f"None of {len(own)} comparisons of an attention with standard attention (MSE and MAE) is decided.{why}"
    ties = int(counts.get("tie", 0))
    that = " that are decided" if undecided else ""
    words = [f"{counts[word]} {word}" for word in ("better", "worse") if word in counts]
    if ties == len(judged):
        sentence = f"All {ties} comparisons of an attention with standard attention (MSE and MAE){that} are ties."
    else:
        sentence = (
            f"Of {len(judged)} comparisons of an attention with standard attention (MSE and MAE){that} {ties} are "
            f"ties, {listed(words)}{_of_other_losses(judged)}."
        )
    sentence += why
    mse = judged[(judged["verdict"] == "tie") & (judged["metric"] == "mse")]["percent_detectable"]
    if len(mse):
        least, median, most = (rough_percent(value) for value in (mse.min(), mse.median(), mse.max()))
        sentence += (
            f" The smallest difference that would have been detected in place of these ties, in MSE: {least} in the "
            f"sharpest comparison, {median} in the median one, {most} in the least sharp."
        )
    return sentence


def _of_other_losses(judged: pd.DataFrame) -> str:
    """How many of the differences are between arms that were trained by different losses."""
    decided = judged[judged["verdict"] != "tie"]
    count = int(decided["is_other_loss"].sum())
    if not count:
        return ""
    which = "all of these" if count == len(decided) > 1 else "it is" if len(decided) == 1 else f"{count} of these"
    which = which if which == "it is" else f"{which} {'is' if count == 1 else 'are'}"
    return f"; {which} between arms that were trained by different losses, which alone can make the difference"


def _rank_caption(ranking: Ranking) -> str:
    p = p_value(ranking.p)
    p = p if ranking.p < 0.001 else f"= {p}"
    sentence = f"Friedman's test: p {p}; critical difference {ranking.critical_difference:.2f}."
    if ranking.left_out:
        few = [str(arm) for arm in ranking.left_out]
        sentence += f" Not done in all of these tables, and left out: {'; '.join(few)}."
    return sentence


def _named_cells(analysis: Analysis, row: object) -> list[Cell]:
    values = [getattr(row, name) for name in COMPARISON]
    cells = [Cell(str(value)) for value in values]
    cells[1] = number_cell(float(values[1]), str(values[1]))
    cells[5] = Cell(str(values[5]).upper())
    if analysis.board.is_ablation(RankedArm("", str(values[3]))):
        cells[3] = Cell(str(values[3]), note="ablation")
    return cells


def _loss_cell(row: object) -> Cell:
    loss, reference, is_other = (getattr(row, name) for name in ("loss", "reference_loss", "is_other_loss"))
    return Cell(f"{loss} / {reference}", mark="warning") if is_other else Cell(loss or DASH)


def _verdict_cell(row: object) -> Cell:
    verdict = str(getattr(row, "verdict"))  # noqa: B009  a row of itertuples, whose type nobody knows
    return Cell(verdict, mark=verdict if verdict in ("better", "worse", "tie") else "")


def _interval(row: object) -> str:
    low, high = (getattr(row, f"percent_{end}") for end in ("low", "high"))
    return DASH if pd.isna(low) else f"{percent(low)} to {percent(high)}"
