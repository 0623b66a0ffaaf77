"""Forecasting arms at what validation chose, each beside another by paired differences of their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import Claim
from benchmarks.paper.planned import LEFT
from benchmarks.paper.runs import BEHIND, LEAST_SEEDS, chosen_by_validation, described_by, runs_of
from benchmarks.paper.verdicts import most
from benchmarks.paper.words import percent
from tsattn.errors import UserError
from tsattn.leaderboard.analysis import STANDARD, Analysis
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.statistics import Difference, holm
from tsattn.leaderboard.suite import label

__all__ = [
    "CAPTION",
    "INTERVALS",
    "RULE",
    "TABLES",
    "TIME",
    "Question",
    "answered",
    "arms_table",
    "beside",
    "beside_ridge",
    "best_of",
    "chosen_arms",
    "relative_figure",
    "table_name",
]

Table: TypeAlias = tuple[str, int]

_CHOSEN = "chosen"  # what all predictors are called, whichever of them validation chose

TABLES = ["dataset", "horizon"]
"""What runs must have in common to be compared."""

_WITHOUT_NETWORK = {"ridge": "the ridge", "seasonal_naive": "seasonal naive"}

_ARM = [*TABLES, "attention"]
_PAIR = [*_ARM, "against"]

RULE = (
    "holds: better in most tables and worse in none; does not hold: worse in most and better in none; else it is not "
    "decided. Better and worse are those of the interval of 95 % over windows, which are paired, and seeds, and of its "
    "p-value, corrected for all comparisons of these claims (Holm)"
)

_THEIRS = f"the rates are those of the paper, so that an arm that is worse {BEHIND} decides, too, and that is said"

INTERVALS = (
    "The intervals of the table and the figure are each of one comparison; the verdicts on claims are corrected for "
    "the number of all their comparisons."
)
"""What reports say of them."""

TIME = (
    "`seconds` is the time of training with its validation, the mean of the seeds; `time` is that of a step over that "
    "of a step of standard attention, medians of the seeds; `flops` are those of the matrix products of one window's "
    "forward pass."
)
"""What the columns of the table that say what an arm costs are."""

CAPTION = "; green where all of it lies below 0 and red where all of it lies above"
"""What captions of `relative_figure` say of its colours, after intervals were named."""


def chosen_arms(records: Records, metric: str) -> pd.DataFrame:
    """The runs of each attention at the learning rate and number of steps that validation chose, in each table.

    Args:
        records: of a suite whose predictors differ in these two, besides those without attention.
        metric: ``mse`` or ``mae``, by whose mean over seeds on the validation part it is chosen.

    Returns:
        rows of `runs_of`, with ``learning_rate`` and ``steps``, and what `chosen_by_validation` adds; in each table
        standard attention first.

    Raises:
        UserError: if no run with an attention is done.
    """
    runs = described_by(runs_of(records), learning_rate="model.learning_rate", steps="trainer.max_steps")
    attended = runs[(runs["attention"] != "") & (runs["status"] != "does not apply")]
    chosen = chosen_by_validation(attended, _ARM, ["learning_rate", "steps"], f"validation_{metric}")
    if chosen.empty:
        raise UserError("no attention is done with all its seeds, so there is nothing to report")
    is_other = chosen["attention"] != STANDARD
    return chosen.assign(is_other=is_other).sort_values([*TABLES, "is_other", "attention", "seed"], ignore_index=True)


@dataclass(frozen=True)
class Question:
    """Whether some arms are better than others.

    Attributes:
        text: that they are.
        arms: attentions, of which in each table the one with the least validation error is taken.
        others: what it is compared with, likewise.
        is_of_paper: whether the paper says so.
    """

    text: str
    arms: Sequence[str]
    others: Sequence[str]
    is_of_paper: bool = True


def best_of(chosen: pd.DataFrame, attentions: Sequence[str], metric: str) -> dict[Table, str]:
    """By table the attention with the least validation error among some, mean over seeds.

    Args:
        chosen: from `chosen_arms`.
        attentions: among which it is.
        metric: by which it is chosen.
    """
    part = chosen[chosen["attention"].isin(attentions)]
    best = chosen_by_validation(part, TABLES, ["attention"], f"validation_{metric}")
    return {(row.dataset, row.horizon): row.attention for row in best.itertuples()}


def beside(records: Records, chosen: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """Each attention compared with one of them: a row a pair, with ``percent`` and the ends of its interval.

    Args:
        records: with the errors by window.
        chosen: from `chosen_arms`.
        reference: the attention that the others are compared with.
        metric: of the errors.
    """
    known = list(chosen[_ARM].drop_duplicates().itertuples(index=False, name=None))
    pairs = [
        (dataset, horizon, attention, reference)
        for dataset, horizon, attention in known
        if attention != reference and (dataset, horizon, reference) in known
    ]
    return _compared(records, chosen, pairs, metric)


def beside_ridge(records: Records, chosen: pd.DataFrame, metric: str) -> list[str]:
    """What the arms are beside what needs no network, a sentence; none where that was not run.

    Args:
        records: of the experiment.
        chosen: from `chosen_arms`.
        metric: of the errors.
    """
    runs = runs_of(records)
    arms = chosen.groupby([*TABLES, "attention"])[metric].mean()
    said = []
    for predictor, what in _WITHOUT_NETWORK.items():
        own = runs[(runs["predictor"] == predictor) & (runs["status"] == "done")].set_index(TABLES)[metric]
        known = arms[[table in own.index for table in arms.index.droplevel("attention")]]
        if known.empty:
            continue
        others = own.loc[[name[:-1] for name in known.index]].to_numpy()
        below = int((known.to_numpy() < others).sum())
        count = f"{below or 'none'} of {len(known)} errors of an arm {'lies' if below <= 1 else 'lie'} below"
        said.append(f"Beside {what}, which takes no network, {count}.")
    return [f"{' '.join(said)} Attentions are compared here, not models."] if said else []


def answered(
    records: Records, chosen: pd.DataFrame, questions: Sequence[Question], metric: str, *, is_grid_ours: bool = True
) -> list[Claim]:
    """What the runs say to each question, table by table; all comparisons of all questions are one family (Holm).

    Args:
        records: with the errors by window.
        chosen: from `chosen_arms`.
        questions: of the experiment, all of them.
        metric: of the errors, by which the best of several arms is chosen on the validation part, too.
        is_grid_ours: whether the rates are no part of what is claimed, so that nothing is decided by an arm that is
            worse and has a rate at the edge of them; else that is said alone.
    """
    asked = []
    for question in questions:
        arms, others = (best_of(chosen, names, metric) for names in (question.arms, question.others))
        asked.append([(*table, arms[table], others[table]) for table in arms if table in others])
    compared = _compared(records, chosen, list(dict.fromkeys(pair for pairs in asked for pair in pairs)), metric)
    found = {tuple(row[name] for name in _PAIR): row for row in compared.to_dict("records")}
    arms_of = chosen.groupby(_ARM)[["is_whole", "is_edge"]].first()
    entries = runs_of(records)
    left = entries.loc[entries["status"] == LEFT, _ARM]
    claims = []
    for question, pairs in zip(questions, asked, strict=True):
        said, verdicts = [], []
        for pair in pairs:
            dataset, horizon, *names = pair
            known = arms_of.loc[[(dataset, horizon, name) for name in names]]
            forms = f" ({names[0]} beside {names[1]})" if max(len(question.arms), len(question.others)) > 1 else ""
            lacks = (left[TABLES] == [dataset, horizon]).all(axis=1)
            lacks &= left["attention"].isin([*question.arms, *question.others])  # one of them may be the best yet
            is_whole = bool(known["is_whole"].all()) and not lacks.any()
            verdict, words = _verdict(found[pair], is_whole, is_open=is_grid_ours and bool(known["is_edge"].all()))
            behind = {True: 1, False: 0}.get(verdict)
            if behind is not None and known["is_edge"].iloc[behind]:
                verdict = None if is_grid_ours else verdict
                words = f"{words}, where the rate of {names[behind]} is at the edge of those tried"
            verdicts.append(verdict)
            said.append(f"{table_name(dataset, horizon)}: {words}{forms}")
        rule = f"{RULE}; nothing is decided by an arm that is worse {BEHIND}" if is_grid_ours else f"{RULE}; {_THEIRS}"
        found_here = "; ".join(said) or "no such runs"
        claims.append(Claim(question.text, found_here, most(verdicts), rule, is_of_paper=question.is_of_paper))
    return claims


def _verdict(row: Mapping[str, Any], is_whole: bool, is_open: bool) -> tuple[bool | None, str]:
    """What one comparison says, also in words; too few runs decide nothing.

    Args:
        row: the comparison.
        is_whole: whether no run of either arm is missing.
        is_open: whether it would decide nothing whatever came out, as both arms were best at the edge of the rates.
    """
    interval = f"{percent(row['percent'])} ({percent(row['percent_low'])} to {percent(row['percent_high'])})"
    if not is_whole:
        return None, f"{interval}, runs are missing"
    if row["seeds"] < LEAST_SEEDS:
        return None, f"{interval}, too few seeds"
    if row["verdict"] not in ("better", "worse"):
        found = ", and the rates of both are at the edge of those tried" if is_open else ""
        return None, f"{interval}, {row['verdict']}{found}"
    return {"better": True, "worse": False}.get(row["verdict"]), f"{interval}, {row['verdict']}"


def _compared(
    records: Records, chosen: pd.DataFrame, pairs: Sequence[tuple[str, int, str, str]], metric: str
) -> pd.DataFrame:
    """Compare the chosen runs of two attentions in a table, whatever their rates were.

    Returns:
        A row a pair: ``dataset``, ``horizon``, ``attention``, ``against``, ``percent``, ``percent_low``,
        ``percent_high``, ``seeds``, and the ``verdict``, for which p-values are corrected for all pairs (Holm).
    """
    keys = set(chosen["key"])
    rows = {row["key"]: {**row, "predictor": _CHOSEN} for row in records.table.to_pylist() if row["key"] in keys}
    analysis = Analysis(Records.of(rows.values()))
    found: list[Difference] = [
        analysis.difference(dataset, [label(_CHOSEN, arm)], label(_CHOSEN, other), metric, [horizon])
        for dataset, horizon, arm, other in pairs
    ]
    corrected = holm([one.p_value for one in found])
    named = [dict(zip(_PAIR, pair, strict=True)) for pair in pairs]
    for row, one, p in zip(named, found, corrected, strict=True):
        low, high = one.percent_interval()
        is_open = one.verdict() in ("better", "worse") and not p < 0.05
        row |= {"percent": one.percent, "percent_low": low, "percent_high": high, "seeds": one.seeds}
        row["verdict"] = "undecided" if is_open else one.verdict()
    return pd.DataFrame(named, columns=[*_PAIR, "percent", "percent_low", "percent_high", "seeds", "verdict"])


def arms_table(records: Records, chosen: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """A row a table and arm, those without attention at the end, with the difference from the reference in percent.

    Args:
        records: of the suite.
        chosen: from `chosen_arms`.
        compared: from `beside`.
    """
    differences = compared.set_index(_ARM)[["percent", "percent_low", "percent_high"]]
    rows = []
    of_step = (chosen["seconds"].astype("float64") / chosen["steps"]).groupby([chosen[name] for name in _ARM]).median()
    for (dataset, horizon, attention), part in chosen.groupby(_ARM, sort=False):
        difference = (
            differences.loc[(dataset, horizon, attention)] if (dataset, horizon, attention) in differences.index else {}
        )
        rows.append(
            {
                "data": dataset,
                "horizon": int(horizon),
                "arm": attention,
                "MSE": part["mse"].mean(),
                "spread": part["mse"].std(),
                "MAE": part["mae"].mean(),
                "spread of MAE": part["mae"].std(),
                "%": difference.get("percent"),
                "from": difference.get("percent_low"),
                "to": difference.get("percent_high"),
                "seeds": len(part),
                "learning rate": float(part["learning_rate"].iloc[0]),
                "edge": "yes" if part["is_edge"].iloc[0] else "no",
                "steps": int(part["steps"].iloc[0]),
                "tried": int(part["candidates"].iloc[0]),
                "parameters": int(part["parameters"].iloc[0]),
                "flops": None if pd.isna(part["flops"].iloc[0]) else int(part["flops"].iloc[0]),
                "seconds": part["seconds"].mean(),
                "time": of_step[dataset, horizon, attention] / of_step.get((dataset, horizon, STANDARD), math.nan),
            }
        )
    runs = runs_of(records)
    for row in runs[(runs["attention"] == "") & (runs["status"] == "done")].itertuples():
        without = {"data": row.dataset, "horizon": int(row.horizon), "arm": row.predictor, "edge": ""}
        rows.append({**without, "MSE": row.mse, "MAE": row.mae})
    table = pd.DataFrame(rows)
    places = {key: place for place, key in enumerate(dict.fromkeys(zip(table["data"], table["horizon"], strict=True)))}
    table["place"] = [places[key] for key in zip(table["data"], table["horizon"], strict=True)]
    table = table.sort_values("place", kind="stable", ignore_index=True).drop(columns="place")
    whole = ["horizon", "seeds", "steps", "tried", "parameters", "flops"]
    return table.astype(dict.fromkeys(whole, "Int64"))


def relative_figure(compared: pd.DataFrame, reference: str, metric: str) -> Figure:
    """The differences from the reference in percent, with their intervals: a panel a table, a line an attention."""
    tables = list(dict.fromkeys(zip(compared["dataset"], compared["horizon"], strict=True)))
    attentions = list(dict.fromkeys(compared["attention"]))
    figure = Figure(figsize=(2.2 + 2.9 * max(1, len(tables)), 1.5 + 0.3 * len(attentions)), layout="constrained")
    axes = figure.subplots(1, max(1, len(tables)), sharey=True, squeeze=False)[0]
    for ax, (dataset, horizon) in zip(axes, tables, strict=False):
        part = compared[(compared["dataset"] == dataset) & (compared["horizon"] == horizon)].set_index("attention")
        for place, attention in enumerate(attentions):
            if attention not in part.index:
                continue
            row = part.loc[attention]
            colour = "C2" if row["percent_high"] < 0 else "C3" if row["percent_low"] > 0 else "0.4"
            ax.plot([row["percent_low"], row["percent_high"]], [place, place], color=colour, lw=2)
            ax.plot(row["percent"], place, "o", color=colour)
        ax.axvline(0, color="0.7", lw=1, zorder=0)
        ax.set(title=table_name(dataset, horizon), xlabel=f"{metric.upper()} beside {reference}, %")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(attentions)), attentions)
    axes[0].invert_yaxis()
    return figure


def table_name(dataset: str, horizon: int) -> str:
    """``ETTh1, 96``."""
    return f"{dataset}, {horizon}"
