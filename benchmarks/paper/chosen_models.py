"""Forecasting models at what validation chose, compared by paired differences of their errors, and their report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import MIN_SEEDS, Claim, PaperReport, claim_of, new_axes, percent
from benchmarks.paper.experiment import BEHIND, EDGE, OURS, chosen_by_validation, listed, runs_of
from tsattn.errors import UserError
from tsattn.leaderboard.analysis import STANDARD, Analysis
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.statistics import holm
from tsattn.leaderboard.suite import Suite, label

TABLES = ["dataset", "horizon"]  # runs that are compared have these in common

_CHOSEN = "chosen"  # name of all predictors, whichever of them validation chose
_MODEL = [*TABLES, "attention"]
_PAIR = ["dataset", "horizons", "attention", "against"]
_INTERVAL = ["percent", "percent_low", "percent_high"]
_WITHOUT_NETWORK = {"ridge": "the ridge", "seasonal_naive": "seasonal naive"}

_RULE = (
    "holds: better on most data and worse on none; refuted at this size: worse on most and better on none; else "
    "undecided. Better and worse are those of the interval of 95 % of the mean over horizons, over windows, which are "
    "paired, and seeds, and of its p-value, corrected for all comparisons of these claims (Holm); nothing is decided "
    f"by a model that is worse {BEHIND} at most horizons"
)
_LEGEND = (
    "MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the standard "
    "deviation over these; `%` is the {metric} compared with standard attention, with its paired interval; `tried` is "
    "{tried} one was chosen. "
    f"{EDGE} `seconds` is the time of training with its validation, the mean of the seeds; `time` is that of a "
    "step over that of a step of standard attention with the same seed, the median; `flops` are those of the matrix "
    "products of one window's forward pass. The intervals of the table and the figure are each of one comparison; the "
    "verdicts on claims are corrected for the number of all their comparisons."
)
_CAPTION = (
    "The {metric} compared with standard attention{by}, with intervals of 95 %; green where all of it lies below 0 "
    "and red where all of it lies above."
)


def forecast_report(
    records: Records,
    suite: Suite,
    metric: str,
    title: str,
    doc: str | None,
    differs: Callable[[pd.DataFrame], Sequence[str]],
    *,
    tried: str = "of how many learning rates",
    by: str = "",
) -> PaperReport:
    """Report an experiment on forecasts; all comparisons of the questions of its suite are one family (Holm)."""
    chosen, upper = chosen_models(records, metric), metric.upper()
    compared = differences(records, chosen, STANDARD, metric)
    claims, table = answered(records, chosen, suite, metric), models_table(records, chosen, compared)
    legend, caption = _LEGEND.format(metric=upper, tried=tried), _CAPTION.format(metric=upper, by=by)
    figure = relative_figure(compared, STANDARD, metric)
    return PaperReport(title, doc, claims, table, legend, figure, caption, differs(chosen))


def chosen_models(records: Records, metric: str) -> pd.DataFrame:
    """Choose the learning rate and number of steps of each attention and table by validation; standard attention first.

    Raises:
        UserError: if no run with an attention is done.
    """
    runs = runs_of(records)
    attended = runs[(runs["attention"] != "") & (runs["status"] != "does not apply")]
    chosen = chosen_by_validation(attended, _MODEL, ["learning_rate", "steps"], f"validation_{metric}")
    if chosen.empty:
        raise UserError("no attention is done with all its seeds, so there is nothing to report")
    is_other = chosen["attention"] != STANDARD
    return chosen.assign(is_other=is_other).sort_values([*TABLES, "is_other", "attention", "seed"], ignore_index=True)


def differences(records: Records, chosen: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """Compare all attentions with one, table by table."""
    known = list(chosen[_MODEL].drop_duplicates().itertuples(index=False, name=None))
    pairs = [
        (dataset, (horizon,), model, reference)
        for dataset, horizon, model in known
        if model != reference and (dataset, horizon, reference) in known
    ]
    compared = _compared(records, chosen, pairs, metric)
    return compared.assign(horizon=[one[0] for one in compared["horizons"]])


def compared_with_ridge(records: Records, chosen: pd.DataFrame, metric: str) -> list[str]:
    """Say in a sentence how many errors lie below those of the ridge and of seasonal naive, where they were run."""
    runs, models = runs_of(records), chosen.groupby(_MODEL)[metric].mean()
    said = []
    for predictor, what in _WITHOUT_NETWORK.items():
        own = runs[(runs["predictor"] == predictor) & (runs["status"] == "done")].set_index(TABLES)[metric]
        known = models[[table in own.index for table in models.index.droplevel("attention")]]
        if not known.empty:
            below = int((known.to_numpy() < own.loc[[name[:-1] for name in known.index]].to_numpy()).sum())
            count = f"{below or 'None'} of {len(known)} errors {'is' if below <= 1 else 'are'}"
            said.append(f"{count} below the error of {what}.")
    return [f"{' '.join(said)} Attentions are compared here, with one network."] if said else []


def answered(records: Records, chosen: pd.DataFrame, suite: Suite, metric: str) -> list[Claim]:
    """Answer the questions of a suite, data by data; their models are attentions, whatever predictor is named."""
    edges = chosen.groupby(_MODEL)["is_edge"].first()
    asked: dict[str, list[tuple[str, tuple[int, ...], str, str]]] = {}
    for question in suite.questions:
        model, other = (name.rpartition(", ")[2] for name in (*question.models, question.against))
        asked[question.ask] = []
        for dataset, part in chosen.groupby("dataset", sort=False):
            of_model, of_other = (set(part.loc[part["attention"] == name, "horizon"]) for name in (model, other))
            if both := tuple(sorted(of_model & of_other)):
                asked[question.ask].append((str(dataset), both, model, other))
    compared = _compared(
        records, chosen, list(dict.fromkeys(pair for pairs in asked.values() for pair in pairs)), metric
    )
    found = {tuple(row[name] for name in _PAIR): row for row in compared.to_dict("records")}
    claims = []
    for ask, pairs in asked.items():
        parts = []
        for dataset, horizons, *names in pairs:
            row = found[(dataset, horizons, *names)]
            verdict = {"better": True, "worse": False}.get(row["verdict"])
            words = f"{dataset}: {percent(row['percent'])} ({percent(row['percent_low'])} to "
            words += f"{percent(row['percent_high'])}), {row['verdict']}"
            if verdict is not None:
                loser = names[int(verdict)]
                at_edge = sum(bool(edges[dataset, horizon, loser]) for horizon in horizons)
                if row["seeds"] < MIN_SEEDS:
                    verdict, words = None, f"{words}, too few seeds"
                elif 2 * at_edge > len(horizons):
                    verdict, words = None, f"{words}, where the rate of {loser} is at the edge of those tried"
            parts.append((words, verdict))
        seeds = sorted({found[pair]["seeds"] for pair in pairs})
        size = f"width {listed(chosen['width'])}; {' or '.join(map(str, seeds))} seeds; {listed(chosen['steps'])} steps"
        ours = ask.endswith(OURS)
        claims.append(claim_of(ask.removesuffix(OURS), parts, _RULE, is_of_paper=not ours, size=size))
    return claims


def _compared(
    records: Records, chosen: pd.DataFrame, pairs: Sequence[tuple[str, tuple[int, ...], str, str]], metric: str
) -> pd.DataFrame:
    """Compare the chosen runs of two attentions on some data, mean over horizons; p-values are corrected."""
    keys = set(chosen["key"])
    rows = {row["key"]: {**row, "predictor": _CHOSEN} for row in records.table.to_pylist() if row["key"] in keys}
    analysis = Analysis(Records.of(rows.values()))
    found = [
        analysis.difference(dataset, [label(_CHOSEN, model)], label(_CHOSEN, other), metric, list(horizons))
        for dataset, horizons, model, other in pairs
    ]
    compared = []
    for pair, one, p in zip(pairs, found, holm([one.p_value for one in found]), strict=True):
        is_open = one.verdict() in ("better", "worse") and not p < 0.05
        verdict = "undecided" if is_open else one.verdict()
        compared.append((*pair, one.percent, *one.percent_interval(), one.seeds, verdict))
    return pd.DataFrame(compared, columns=[*_PAIR, *_INTERVAL, "seeds", "verdict"])


def models_table(records: Records, chosen: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Return a row a table and model, those without attention at the end, with the difference from the reference."""
    by_model = {tuple(row[name] for name in _MODEL): row for row in compared.to_dict("records")}
    of_seed = pd.MultiIndex.from_frame(chosen[[*_MODEL, "seed"]])
    seconds = (chosen["seconds"].astype("float64") / chosen["steps"]).set_axis(of_seed)
    standard = seconds[of_seed.get_level_values("attention") == STANDARD].droplevel("attention")
    times = (seconds / standard).groupby(level=_MODEL).median()  # seeds may be of several machines
    rows = []
    for (dataset, horizon, attention), part in chosen.groupby(_MODEL, sort=False):
        difference, first = by_model.get((dataset, horizon, attention), {}), part.iloc[0]
        row = {"data": dataset, "horizon": int(horizon), "model": attention}
        row |= {"MSE": part["mse"].mean(), "spread": part["mse"].std()}
        row |= {"MAE": part["mae"].mean(), "spread of MAE": part["mae"].std()}
        row |= dict(zip(("%", "from", "to"), map(difference.get, _INTERVAL), strict=True))
        row |= {"seeds": len(part), "learning rate": float(first["learning_rate"])}
        row |= {"edge": "yes" if first["is_edge"] else "no", "steps": int(first["steps"])}
        row |= {"tried": int(first["candidates"]), "parameters": int(first["parameters"])}
        row |= {"flops": None if pd.isna(first["flops"]) else int(first["flops"]), "seconds": part["seconds"].mean()}
        rows.append({**row, "time": times[dataset, horizon, attention]})
    runs = runs_of(records)
    for one in runs[(runs["attention"] == "") & (runs["status"] == "done")].itertuples():
        row = {"data": one.dataset, "horizon": int(one.horizon), "model": one.predictor, "edge": ""}
        rows.append({**row, "MSE": one.mse, "MAE": one.mae})
    table = pd.DataFrame(rows)
    place = table.groupby(["data", "horizon"], sort=False).ngroup()  # tables in order, each with its ridge at the end
    table = table.loc[place.sort_values(kind="stable").index].reset_index(drop=True)
    return table.astype(dict.fromkeys(["horizon", "seeds", "steps", "tried", "parameters", "flops"], "Int64"))


def relative_figure(compared: pd.DataFrame, reference: str, metric: str) -> Figure:
    tables = list(dict.fromkeys(zip(compared["dataset"], compared["horizon"], strict=True)))
    attentions = list(dict.fromkeys(compared["attention"]))
    size = 2.2 + 2.9 * max(1, len(tables)), 1.5 + 0.3 * len(attentions)
    figure, (axes,) = new_axes(size, columns=len(tables), sharey=True)
    for ax, (dataset, horizon) in zip(axes, tables, strict=False):
        for row in compared[(compared["dataset"] == dataset) & (compared["horizon"] == horizon)].itertuples():
            place = attentions.index(row.attention)
            colour = "C2" if row.percent_high < 0 else "C3" if row.percent_low > 0 else "0.4"
            ax.plot([row.percent_low, row.percent_high], [place, place], color=colour, lw=2)
            ax.plot(row.percent, place, "o", color=colour)
        ax.axvline(0, color="0.7", lw=1, zorder=0)
        ax.set(title=f"{dataset}, {horizon}", xlabel=f"{metric.upper()} compared with {reference}, %")
    axes[0].set_yticks(range(len(attentions)), attentions)
    axes[0].invert_yaxis()
    return figure
