"""Sections of the records themselves: what was run and how, what failed, what does not apply, and pictures."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from tsattn.errors import number_of
from tsattn.leaderboard.comparisons import RESAMPLES
from tsattn.leaderboard.experiment_text import backbone_of
from tsattn.leaderboard.own_seconds import own_seconds
from tsattn.leaderboard.report.analysis import Analysis
from tsattn.leaderboard.report.difference_sections import compared_in_short, confirmed_in_short
from tsattn.leaderboard.report.parts import Cell, Column, ReportTable, Section
from tsattn.leaderboard.report.wording import DASH, each_row, listed, number_cell, score_pair
from tsattn.leaderboard.standings import RIDGE, STANDARD, RankedArm, Standings

__all__ = [
    "failed_section",
    "forecast_section",
    "method_section",
    "provenance_section",
    "refused_section",
    "summary_section",
]

_ENTRY = [
    Column("data set", has_filter=True),
    Column("horizon", is_number=True),
    Column("predictor", has_filter=True),
    Column("attention", has_filter=True),
    Column("seed", is_number=True),
]


def summary_section(analysis: Analysis) -> Section:
    """What came out, in a few sentences."""
    board = analysis.board
    counts = board.entries["status"].value_counts()
    done = len(board.done)  # one that suites share once
    words = ["1 run is done" if done == 1 else f"{done:,} runs are done"]
    words += [f"{counts['failed']} failed"] if "failed" in counts else []
    if (refused := int(counts.get("does not apply", 0))) > 0:
        words.append(f"{refused} {'does' if refused == 1 else 'do'} not apply")
    known = {*board.entries["dataset"]}
    text = [f"{listed(words)}, on {listed([name for name in board.datasets if name in known])}.{_kinds_of(board.done)}"]
    text += _not_run(board)
    for dataset in analysis.board.datasets:
        best = analysis.chosen(dataset)
        if best is None:
            continue
        arm = RankedArm(best["predictor"], best["attention"])
        chose = f"On {dataset} validation chose {arm} among the arms that hold a trained attention"
        words = [f"{chose}: MSE / MAE {score_pair(best['mse'], best['mae'])}"]
        if not pd.isna(best["skill"]):
            ridge = analysis.mean_verdict(dataset, arm, RIDGE)
            side = "below" if best["skill"] >= 0 else "above"
            words.append(
                f"its MSE is {abs(best['skill']):.1f} % {side} that of the ridge{f': {ridge}' if ridge else ''}"
            )
        elif (mean := analysis.mean_of(dataset, RankedArm(RIDGE))) is not None and not pd.isna(mean["mse"]):
            words.append("not beside the ridge, which was tested on other windows")
        if arm.attention != STANDARD and (verdict := analysis.mean_verdict(dataset, arm, STANDARD)):
            words.append(f"beside standard attention: {verdict}")
        sentence = f"{'; '.join(words)}."
        of_all = analysis.chosen(dataset, "all")
        if of_all is not None and (other := RankedArm(of_all["predictor"], of_all["attention"])) != arm:
            sentence += f" Among all arms it chose {other}: {score_pair(of_all['mse'], of_all['mae'])}."
        text.append(sentence)
    own = analysis.against_standard
    if len(own):
        text.append(f"Attention against attention. {compared_in_short(own, analysis.mixes)}")
    if confirmed := confirmed_in_short(analysis):
        text.append(confirmed)
    text += [f"Caveat: {one}" for facts in analysis.board.suites.values() for one in facts.caveats]
    return Section("summary", "In short", text)


def _kinds_of(done: pd.DataFrame) -> str:
    """How many of the runs were trained, are made of others that were, or need no training; nothing of no run."""
    trained = done.loc[done["seed"].notna(), "experiment"]
    mixes = sum(backbone_of(text)["kind"] == "ensemble" for text in trained)
    counts = (len(trained) - mixes, mixes, len(done) - len(trained))
    words = (
        number_of(counts[0], "training"),
        f"{counts[1]} {'mix' if counts[1] == 1 else 'mixes'} of such",
        f"{counts[2]} without training",
    )
    found = [word for word, count in zip(words, counts, strict=True) if count]
    return f" They are {listed(found)}." if len(found) > 1 else ""


def _not_run(board: Standings) -> list[str]:
    """What is planned and nobody has run yet, by data set, and the seeds that no run has; nothing where all is done."""
    left: dict[str, int] = dict.fromkeys(board.datasets, 0)
    total = dict(left)
    seeds: dict[str, set[int]] = {name: set() for name in left}
    for name, facts in board.suites.items():
        own = board.entries[(board.entries["suite"] == name) & board.entries["status"].isin(["done", "failed"])]
        for dataset, planned in facts.planned.items():
            part = own[own["dataset"] == dataset]
            total[dataset] = total.get(dataset, 0) + planned
            left[dataset] = left.get(dataset, 0) + max(0, planned - len(part))
            if len(part):  # else all seeds are missing, as all runs are
                seeds.setdefault(dataset, set()).update({*facts.seeds.get(dataset, ())} - {*part["seed"].dropna()})
    few = [f"{left[name]:,} of {total[name]:,} on {name}" for name in left if left[name]]
    lacking = [f"{listed(sorted(some))} on {name}" for name, some in seeds.items() if some]
    text = [f"Planned and not run yet: {listed(few)}."] if few else []
    return [*text, *([f"No run has the planned seeds {'; '.join(lacking)}."] if lacking else [])]


def failed_section(analysis: Analysis) -> Section:
    """Runs that failed, with their errors."""
    return _listed_entries(
        analysis,
        "failed",
        "failed",
        "Failed runs",
        "error",
        "Nothing failed.",
        "None of them is in any mean or comparison.",
    )


def refused_section(analysis: Analysis) -> Section:
    """Combinations that make no sense, with the reason."""
    return _listed_entries(
        analysis,
        "does not apply",
        "refused",
        "What does not apply",
        "reason",
        "Every combination applies.",
        "These combinations are refused by the models themselves.",
    )


def forecast_section(analysis: Analysis) -> Section:
    """The best and the worst test windows of what was chosen."""
    text = ["The test windows with the lowest and the highest squared errors of a run of what validation chose."]
    if not analysis.pictures:
        text = [analysis.why_no_pictures]
    return Section("forecasts", "Forecasts", text, analysis.pictures)


def provenance_section(analysis: Analysis) -> Section:
    """By what code, on which machines, when, and how long."""
    done = analysis.board.entries[analysis.board.entries["status"] != "does not apply"]
    columns = [
        Column("suite"),
        *(Column(name, is_number=True) for name in ("runs", "first", "last")),
        *(
            Column("hours", "of training, each training once", is_number=True),
            Column("code", "commit of the working tree"),
        ),
        Column("machine"),
        *(Column(name, is_prose=True) for name in ("versions", "command")),
    ]
    names = ["suite", "git", "cpu", "device", "threads", "versions", "command"]
    is_done = done["status"] == "done"
    done = done.assign(own=own_seconds(done[is_done]).reindex(done.index, fill_value=0.0))
    rows = []
    for (suite, git, cpu, device, threads, versions, command), part in done.groupby(names, dropna=False, sort=True):
        first, last = part["finished"].min(), part["finished"].max()
        seconds = float(part["own"].sum())
        commit, _, changes = str(git).partition("+")
        rows.append(
            [
                *(
                    Cell(str(suite)),
                    number_cell(len(part), f"{len(part):,}"),
                    Cell(f"{first:%Y-%m-%d}"),
                    Cell(f"{last:%Y-%m-%d}"),
                ),
                number_cell(seconds, f"{seconds / 3600:,.1f}"),
                Cell(f"{commit[:10]}{'+' + changes if changes else ''}", mark="warning" if changes else ""),
                Cell(
                    f"{cpu}, {device}, {_number(threads)} threads"
                    if _number(threads) != "1"
                    else f"{cpu}, {device}, 1 thread"
                ),
                *(Cell(_versions(versions)), Cell(str(command))),
            ]
        )
    part = done[~done["trained_windows"].isin(["all", "none", ""]) & done["trained_windows"].notna()]
    by = part.groupby("dataset")["trained_windows"].agg(lambda values: "; ".join(sorted(set(values))))
    parts = [f"{name}: {by[name]}" for name in analysis.board.datasets if name in by.index]
    text = (
        [f"Every test window was scored. Trainings that saw a part of their windows: {'. '.join(parts)}."]
        if parts
        else []
    )
    table = ReportTable("provenance-table", "Code, machines and dates", columns, rows)
    return Section("provenance", "How it was run", text, [table])


def method_section(analysis: Analysis) -> Section:
    """How it is compared."""
    resamples = f"{analysis.resamples or RESAMPLES:,}"
    return Section(
        "method",
        "How it is compared",
        [
            "Scores are errors over all test windows, summed and divided by the number of observed targets, on the "
            "scale of the training part. Values, weights and arms are chosen on validation, and no run is made twice; "
            "what the authors of a suite knew of test errors when they wrote it, its caveats say.",
            "Paired differences: errors of two arms in the same windows are differenced. What the luck of a seed does "
            "is learnt relative to the error, from all horizons of a data set together unless Bartlett's test at the "
            "25 % level says that these differ, otherwise from each alone. Where both arms have as "
            "many parameters and the same seeds, and enough of these, runs of one seed are pairs, too; so they are, by "
            "an analysis of variance of arms and seeds, where both are of one predictor with the same seeds, and an F "
            "test at the 10 % level says that these do something to all its attentions alike. Elsewhere seeds are "
            "exchangeable within each arm, and arms that share seeds count for less where these move all alike "
            "(Satterthwaite). Luck is taken to be alike for all attentions of the predictor, but for one "
            "whose runs lie further apart than those of the others by an F test at the 10 % level: that has its own.",
            f"Intervals and p-values come from {resamples} resamples: circular blocks of origins, at least a horizon "
            "long since windows overlap, and for each resample other seeds. Deviations are widened for what few "
            "blocks and few seeds are known to miss, and have the tails of Student's t, which are integrated, so that "
            "small p-values hang on no single resample. A horizon of 720 steps fits three times into the test part of "
            "the hourly ETT: only large differences can be seen there. What is said holds where differences of arms "
            "forget within a block: intervals are too short for those that last longer.",
            "A comparison is better or worse where its interval is off 0 and its p-value, corrected by Holm's "
            "procedure for every comparison of the board, is below 0.05; all else is a tie. A tie is no proof of "
            "equality: the column detectable says what would have been detected in 80 of 100 cases, at the level at "
            "which Holm's procedure is strictest.",
            "Skill is by how many percent an MSE lies below that of the closed-form ridge on the same windows.",
        ],
    )


def _listed_entries(analysis: Analysis, status: str, name: str, title: str, word: str, none: str, some: str) -> Section:
    own = analysis.board.entries
    own = own[own["status"] == status]
    if not len(own):
        return Section(name, title, [none])
    rows = [
        [
            *(
                Cell(row.dataset),
                number_cell(row.horizon, str(row.horizon)),
                Cell(row.predictor),
                Cell(row.attention or DASH),
            ),
            *(Cell(DASH) if pd.isna(row.seed) else number_cell(row.seed, str(row.seed)), Cell(row.reason)),
        ]
        for row in each_row(own)
    ]
    return Section(
        name, title, [some], [ReportTable(f"{name}-table", title, [*_ENTRY, Column(word, is_prose=True)], rows)]
    )


def _versions(text: Any) -> str:
    """The packages of a record that decide most, in a line."""
    try:
        content = json.loads(text)
    except (TypeError, ValueError):
        return str(text)
    return (
        ", ".join(f"{name} {version}" for name, version in content.items()) if isinstance(content, dict) else str(text)
    )


def _number(value: Any) -> str:
    return "?" if pd.isna(value) else str(int(value))
