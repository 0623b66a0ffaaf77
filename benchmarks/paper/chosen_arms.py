"""Forecasting arms at what validation chose, each beside another by paired differences of their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import LEAST_SEEDS, Claim, chosen_by_validation, described_by, runs_of
from tsattn.errors import UserError
from tsattn.leaderboard.comparisons import compare_all
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.wording import percent
from tsattn.leaderboard.standings import STANDARD, Standings

__all__ = [
    "RULE",
    "TABLES",
    "arms_table",
    "beside",
    "best_of",
    "chosen_arms",
    "compared_claim",
    "relative_figure",
    "table_name",
]

TABLES = ["dataset", "horizon"]
"""What runs must have in common to be compared."""

RULE = (
    "better in one table at least and worse in none: by the interval of 95 % over windows, which are paired, and "
    "seeds, and by its p-value, corrected for the number of comparisons (Holm)"
)


def chosen_arms(records: Records, metric: str) -> pd.DataFrame:
    """The runs of each attention at the learning rate that validation chose, in each table.

    Args:
        records: of a suite whose predictors differ in their learning rate, besides those without attention.
        metric: ``mse`` or ``mae``, by whose mean over seeds on the validation part it is chosen.

    Returns:
        rows of `runs_of`, with ``learning_rate``, and ``candidates``, of how many rates one was chosen; in each table
        standard attention first.

    Raises:
        UserError: if no run with an attention is done.
    """
    runs = described_by(runs_of(records), learning_rate="model.learning_rate")
    attended = runs[(runs["attention"] != "") & (runs["status"] != "does not apply")]
    chosen = chosen_by_validation(attended, [*TABLES, "attention"], ["learning_rate"], f"validation_{metric}")
    if chosen.empty:
        raise UserError("no attention is done with all its seeds, so there is nothing to report")
    is_other = chosen["attention"] != STANDARD
    return chosen.assign(is_other=is_other).sort_values([*TABLES, "is_other", "attention", "seed"], ignore_index=True)


def best_of(chosen: pd.DataFrame, attentions: Sequence[str], name: str, metric: str) -> pd.DataFrame:
    """In each table the runs of the attention with the least validation error among some, under another name.

    Args:
        chosen: from `chosen_arms`.
        attentions: among which it is.
        name: that takes the place of the attention's; ``form`` keeps its own.
        metric: by which it is chosen.
    """
    part = chosen[chosen["attention"].isin(attentions)]
    best = chosen_by_validation(part, TABLES, ["attention"], f"validation_{metric}")
    return best.assign(form=best["attention"], attention=name)


def beside(records: Records, runs: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """Each attention beside one of them: see `tsattn.leaderboard.comparisons.compare_all`.

    Args:
        records: with the errors by window.
        runs: of one choice a table and attention, see `chosen_arms`.
        reference: the attention that the others are compared with.
        metric: of the errors.
    """
    # the statistics compare with what is called standard
    names = {name: STANDARD if name == reference else f"{name} " for name in runs["attention"].unique()}
    renamed = dict(zip(runs["key"], runs["attention"].map(names), strict=True))
    known = {row["key"]: row for row in runs.to_dict("records")}
    picked = [
        replace(one, row={**one.row, "predictor": "chosen", "attention": renamed[one.row["key"]]})
        for one in {record.row["key"]: record for record in records.each()}.values()
        if one.row["key"] in known
    ]
    compared = compare_all(Standings(Records.of(picked)))
    compared = compared[compared["metric"] == metric]
    return compared.assign(attention=compared["attention"].str.strip()).reset_index(drop=True)


def compared_claim(text: str, compared: pd.DataFrame, attention: str, forms: Mapping[str, str] | None = None) -> Claim:
    """What the comparisons of an attention say, table by table.

    Args:
        text: that it is better.
        compared: from `beside`.
        attention: that the claim is about.
        forms: by the name of a table, what it and the reference stand for there, in words.
    """
    rows = compared[compared["attention"] == attention]
    if rows.empty:
        return Claim(text, "no such runs", None, RULE)
    said = []
    for row in rows.itertuples():
        table = table_name(row.dataset, row.horizon)
        interval = f"{percent(row.percent)} ({percent(row.percent_low)} to {percent(row.percent_high)})"
        said.append(f"{table}: {interval}, {row.verdict}{(forms or {}).get(table, '')}")
    few = bool((rows[["seeds", "reference_seeds"]].min(axis=1) < LEAST_SEEDS).any())
    verdicts = set(rows["verdict"])
    holds = None if few or "no interval" in verdicts else "better" in verdicts and "worse" not in verdicts
    return Claim(text, "; ".join(said), holds, RULE)


def arms_table(records: Records, chosen: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """A row a table and arm, those without attention at the end, with the difference from the reference in percent.

    Args:
        records: of the suite.
        chosen: from `chosen_arms`.
        compared: from `beside`.
    """
    differences = compared.set_index([*TABLES, "attention"])[["percent", "percent_low", "percent_high", "verdict"]]
    rows = []
    for (dataset, horizon, attention), part in chosen.groupby([*TABLES, "attention"], sort=False):
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
                "": difference.get("verdict", ""),
                "seeds": len(part),
                "learning rate": float(part["learning_rate"].iloc[0]),
                "rates": int(part["candidates"].iloc[0]),
                "parameters": int(part["parameters"].iloc[0]),
                "flops": None if pd.isna(part["flops"].iloc[0]) else int(part["flops"].iloc[0]),
                "seconds": part["seconds"].mean(),
            }
        )
    runs = runs_of(records)
    for row in runs[(runs["attention"] == "") & (runs["status"] == "done")].itertuples():
        without = {"data": row.dataset, "horizon": int(row.horizon), "arm": row.predictor, "": ""}
        rows.append({**without, "MSE": row.mse, "MAE": row.mae})
    table = pd.DataFrame(rows)
    places = {key: place for place, key in enumerate(dict.fromkeys(zip(table["data"], table["horizon"], strict=True)))}
    table["place"] = [places[key] for key in zip(table["data"], table["horizon"], strict=True)]
    table = table.sort_values("place", kind="stable", ignore_index=True).drop(columns="place")
    whole = ["horizon", "seeds", "rates", "parameters", "flops"]
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
            colour = {"better": "C2", "worse": "C3"}.get(row["verdict"], "0.4")
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
