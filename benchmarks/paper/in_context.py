"""Heads of too low a rank fail at regression in context, where BTT and bilinear MLR learn.

    python benchmarks/paper/in_context.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers are trained on prompts of 2 d pairs `(x, w . x)`, and scored by the error of the last value of 3200 new
prompts, over d: predicting 0 has an error of 1. Of each arm the learning rate is chosen by validation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.paper.claims import (
    LEAST_SEEDS,
    Claim,
    PaperReport,
    chosen_by_validation,
    described_by,
    runs_of,
)
from benchmarks.paper.experiment import PaperExperiment
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.wording import with_spread

__all__ = ["EXPERIMENT", "main", "report"]

LEARNT = 0.5
"""The share of the error of the low-rank heads that an arm must stay below where they fail."""

_HEADS, _ONE_HEAD = "standard, low-rank heads", "standard, one head of full rank"
_ARM = ["dimensions", "width", "arm"]
_KIND = {"btt": "BTT", "bilinear_mlr": "bilinear MLR"}


def report(records: Records) -> PaperReport:
    """The report of the records."""
    runs = _described(runs_of(records))
    solved = runs[runs["kind"].isna() & (runs["status"] == "done")]
    chosen = chosen_by_validation(runs[runs["kind"].notna()], _ARM, ["learning_rate"])
    places = [{_HEADS: 0, _ONE_HEAD: 1}.get(arm, 2) for arm in chosen["arm"]]
    chosen = chosen.assign(place=places).sort_values(["dimensions", "width", "place", "arm"], ignore_index=True)
    table = _table(chosen, solved)
    return PaperReport(
        title="In-context regression",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[_claim(chosen, kind) for kind in _KIND] + [_rank_claim(chosen), _cost_claim(chosen)],
        table=table,
        legend="`error` is the squared error of the last value over d, the mean of the seeds, and `spread` its "
        "standard deviation over them; `rank` is that of the bilinear form of a head, at most; flops are those of a "
        "forward pass of one prompt; `rates` is of how many learning rates one was chosen.",
        figure=_figure(chosen),
        caption="The error of the last value over d, against the flops of a prompt (left) and the width (right): mean "
        "of the seeds, and each of them as a dot.",
        differs=_differences(chosen),
    )


def _described(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with what tells their arms apart; ``kind`` is that of the attention, None of closed forms."""
    runs = described_by(
        runs,
        dimensions="data.init_args.dimensions",
        width="model.backbone.d_model",
        heads="model.backbone.num_heads",
        layers="model.backbone.num_layers",
        kind="model.backbone.attention.kind",
        learning_rate="model.learning_rate",
        steps="trainer.max_steps",
        batch_size="data.init_args.batch_size",
        curriculum="data.init_args.curriculum",
        alpha="model.backbone.alpha",
        schedule="model.schedule",
        mup="model.mup",
    )
    error = runs["mse"].astype("float64") / runs["dimensions"].astype("float64")
    arms = [_arm(*row) for row in runs[["kind", "heads", "attention"]].itertuples(index=False)]
    return runs.assign(error=error, arm=arms, rank=[_rank(row["values"]) for _, row in runs.iterrows()])


def _arm(kind: str | None, heads: int | None, attention: str) -> str:
    if kind == "standard":
        return _ONE_HEAD if heads == 1 else _HEADS
    return attention


def _rank(values: dict) -> float | None:  # type: ignore[type-arg]
    """The most that the rank of the bilinear form of a head can be; None of what has no attention."""
    backbone = values.get("model", {}).get("backbone", {})
    attention = backbone.get("attention")
    if not isinstance(attention, dict):
        return None
    D, r = backbone["d_model"], backbone["d_model"] // backbone["num_heads"]
    if attention["kind"] == "standard":
        return r
    if attention["kind"] == "bilinear_mlr":
        blocks = attention["blocks"] or [2**level for level in range(len(attention["ranks"]))]
        ranks = attention["ranks"] or [r // len(blocks)] * len(blocks)
        return min(D, sum(p * rank for p, rank in zip(blocks, ranks, strict=True)))
    return D


def _seeds(runs: pd.DataFrame) -> list[float]:
    return [float(error) for error in runs["error"]]


def _said(errors: Iterable[float]) -> str:
    series = pd.Series(list(errors))
    return with_spread(float(series.mean()), float(series.std()))


def _pairs(chosen: pd.DataFrame) -> list[tuple[tuple[int, int], pd.DataFrame, pd.DataFrame]]:
    """For each dimension and width where low-rank heads have a rank below d: them, and all others."""
    found = []
    for (d, width), part in chosen.groupby(["dimensions", "width"]):
        heads = part[part["arm"] == _HEADS]
        if len(heads) and float(heads["rank"].iloc[0]) < d:
            found.append(((int(d), int(width)), heads, part[part["arm"] != _HEADS]))
    return found


def _beats(arm: pd.DataFrame, heads: pd.DataFrame) -> bool | None:
    """Whether an arm learns where low-rank heads fail; None with too few seeds."""
    own, others = _seeds(arm), _seeds(heads)
    if min(len(own), len(others)) < LEAST_SEEDS:
        return None
    return max(own) < min(others) and sum(own) / len(own) < LEARNT * sum(others) / len(others)


def _judged(chosen: pd.DataFrame, choose: str) -> tuple[str, bool | None]:
    """The best arm of a family, by validation, beside low-rank heads, at each width where those have too low a rank."""
    said, verdicts = [], []
    for (d, width), heads, others in _pairs(chosen):
        family = others[others["arm"] == choose] if choose == _ONE_HEAD else others[others["kind"] == choose]
        if choose == "bilinear_mlr":
            family = family[family["rank"] > heads["rank"].iloc[0]]  # one level is the low-rank form
        if family.empty:
            continue
        best = chosen_by_validation(family, ["dimensions", "width"], ["arm"])
        verdicts.append(_beats(best, heads))
        said.append(
            f"d {d}, width {width}: {_said(best['error'])} ({best['arm'].iloc[0]}) beside {_said(heads['error'])} "
            f"(heads of rank {int(heads['rank'].iloc[0])})"
        )
    known = [one for one in verdicts if one is not None]
    holds = None if not known or len(known) < len(verdicts) else any(known)
    return "; ".join(said) or "no such runs", holds


_RULE = (
    f"at one width at least, every seed below all those of the heads, and the mean below {LEARNT:g} of theirs; the arm "
    "chosen by validation"
)


def _claim(chosen: pd.DataFrame, kind: str) -> Claim:
    found, holds = _judged(chosen, kind)
    return Claim(
        f"Where heads have a rank below d, they fail, and {_KIND[kind]} of the same width learns.", found, holds, _RULE
    )


def _rank_claim(chosen: pd.DataFrame) -> Claim:
    found, holds = _judged(chosen, _ONE_HEAD)
    return Claim("It is the rank that they lack: one head of full rank learns at the same width.", found, holds, _RULE)


def _cost_claim(chosen: pd.DataFrame) -> Claim:
    """Whether structured attention reaches what low-rank heads reach at less cost."""
    said, verdicts = [], []
    for d, part in chosen.groupby("dimensions"):
        means = part.groupby(["width", "arm", "kind"]).agg(
            error=("error", "mean"), flops=("flops", "mean"), seeds=("error", "size")
        )
        means = means.reset_index()
        heads = means[means["arm"] == _HEADS]
        others = means[means["kind"].isin(_KIND)]
        if heads.empty or others.empty:
            continue
        best = heads.loc[heads["error"].idxmin()]
        cheaper = others[(others["flops"] <= best["flops"]) & (others["error"] < best["error"])]
        verdicts.append(None if means["seeds"].min() < LEAST_SEEDS else bool(len(cheaper)))
        text = f"d {int(d)}: heads come to {best['error']:.3g} with {best['flops']:,.0f} flops"
        if len(cheaper):
            one = cheaper.loc[cheaper["error"].idxmin()]
            text += f", {one['arm']} to {one['error']:.3g} with {one['flops']:,.0f}"
        else:
            text += ", and nothing comes below that with as many"
        said.append(text)
    holds = None if not verdicts or None in verdicts else all(verdicts)
    rule = "an arm of BTT or bilinear MLR has a lower mean error at no more flops than the best of low-rank heads"
    return Claim("For the same computation BTT and bilinear MLR have a lower error.", "; ".join(said), holds, rule)


def _table(chosen: pd.DataFrame, solved: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (d, width, arm), part in chosen.groupby(_ARM, sort=False):
        rows.append(
            {
                "d": int(d),
                "width": int(width),
                "arm": arm,
                "rank": int(part["rank"].iloc[0]),
                "error": part["error"].mean(),
                "spread": part["error"].std(),
                "seeds": len(part),
                "learning rate": float(part["learning_rate"].iloc[0]),
                "rates": int(part["candidates"].iloc[0]),
                "parameters": int(part["parameters"].iloc[0]),
                "flops": int(part["flops"].iloc[0]),
                "seconds": part["seconds"].astype("float64").mean(),
            }
        )
    for row in solved.itertuples(index=False):
        name = f"ridge, penalty {row.alpha:g}" if row.alpha else "least squares"
        rows.append({"d": int(row.dimensions), "arm": name, "error": row.error})
    table = pd.DataFrame(rows)
    whole = [name for name in ("width", "rank", "seeds", "rates", "parameters", "flops") if name in table]
    return table.astype(dict.fromkeys(whole, "Int64")).sort_values(["d", "width"], kind="stable", ignore_index=True)


def _figure(chosen: pd.DataFrame) -> Figure:
    dimensions = sorted(chosen["dimensions"].unique())
    figure = Figure(figsize=(10, 4.2 * max(1, len(dimensions))), layout="constrained")
    axes = figure.subplots(max(1, len(dimensions)), 2, squeeze=False, sharey="row")
    arms = list(dict.fromkeys(chosen["arm"]))
    for d, line in zip(dimensions, axes, strict=False):
        for ax, cost, label in zip(line, ("flops", "width"), ("flops of a prompt", "width"), strict=True):
            for number, arm in enumerate(arms):
                part = chosen[(chosen["dimensions"] == d) & (chosen["arm"] == arm)]
                if part.empty:
                    continue
                part = part.assign(cost=part[cost].astype("float64"))
                means = part.groupby("cost")["error"].mean()
                colour, marker = f"C{number % 10}", "osD^vP*X"[number % 8]
                ax.plot(means.index, means, color=colour, marker=marker, lw=1.2, label=arm)
                ax.plot(part["cost"], part["error"], ".", color=colour, ms=4, alpha=0.6)
            ax.set(xscale="log", yscale="log", xlabel=label, title=f"d = {d}")
            ax.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("error of the last value, over d")
    axes[0, 1].legend(frameon=False, fontsize=8)
    return figure


def _differences(chosen: pd.DataFrame) -> list[str]:
    def each(column: str) -> str:
        return ", ".join(f"{value:g}" for value in sorted(chosen[column].dropna().unique())) or "none"

    return [
        f"d {each('dimensions')}, widths {each('width')}, {each('layers')} layers, {each('steps')} steps of "
        f"{each('batch_size')} prompts, and learning rates among which {each('learning_rate')} were chosen; the paper "
        "has d from 16 to 128, widths from 16 to 1024, 6 layers and 500,000 steps of 64.",
        "The learning rate "
        + ("falls along a cosine after its warm-up." if "cosine" in set(chosen["schedule"]) else "is constant.")
        + " The structured arms "
        + ("follow" if chosen["mup"].any() else "do not follow")
        + " the muP rules.",
        "The weights with the least validation error are scored, on 3200 prompts that are the same for all arms.",
        "Gradients are clipped to a norm of 1.",
        "A prompt of fewer pairs, in the curriculum, is one whose later values do not count.",
    ]


EXPERIMENT = PaperExperiment("in_context", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
