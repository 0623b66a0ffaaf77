"""Whether heads of too low a rank fail at regression in context, where BTT and bilinear MLR learn.

    python benchmarks/paper/in_context.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers are trained on prompts of 2 d pairs `(x, w . x)`, and scored by the error of the last value of 3200 new
prompts, over d: predicting 0 has an error of 1. Of each arm the learning rate is chosen by validation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
import torch
from matplotlib.figure import Figure

from benchmarks.paper.claims import PaperReport, claim_of, is_lower, new_axes, with_spread
from benchmarks.paper.experiment import BEHIND, EDGE, MIN_SEEDS, PaperExperiment, chosen_by_validation, listed, runs_of
from tsattn.attention import build_attention
from tsattn.errors import UserError
from tsattn.leaderboard.analysis import STANDARD
from tsattn.leaderboard.records import Records

# errors over d: all seeds of an arm that fails lie above the first, of one that learns below the second; predicting 0
# has an error of 1, and least squares has none
FAILED, LEARNT = 0.5, 0.1
HEADS, ONE_HEAD = "standard, low-rank heads", "standard, one head of full rank"
ARM = ["dimensions", "width", "arm"]
LEGEND = (
    "`error` is the squared error of the last value over d, the mean of the seeds, and `spread` its standard deviation "
    "over them; `rank` is that of the bilinear form of a head, at most; `scores` is how many parameters queries and "
    "keys of a layer have; flops are those of a forward pass of one prompt; `seconds` are the median of the seeds; "
    "`rates` is of how many learning rates one was chosen."
)
_FEW_DIMENSIONS = 4
_KIND = {"btt": "BTT", "bilinear_mlr": "bilinear MLR"}

_LEARNS = (
    f"at most widths of heads of a rank below d: all seeds of the heads above {FAILED:g}, and all of the arm, which "
    f"validation chose, below {LEARNT:g}; it does not hold where all seeds of the heads lie below {LEARNT:g}, or where "
    f"they fail and no seed of the arm lies below; nothing is decided by an arm or heads that do not learn {BEHIND}, "
    "nor at a width beside which nothing stands"
)
_LOWER = (
    "at most widths of heads of a rank below d: of all arms of a higher rank {} that which validation chose has a "
    "lower error with every seed, and the interval of 95 % of the difference of mean logarithms excludes 0; nothing is "
    f"decided by what has the higher error {BEHIND}, nor at a width beside which nothing stands; intervals are not "
    "corrected for the number of widths"
)
_LEARNT_AT_SMALL = (
    "So short a training in so few dimensions shows how far heads of too low a rank lag, more than that they fail. Of "
    "the sizes that were looked at with seed 1 width 16 is the one at which BTT and bilinear MLR came below 0.1, by "
    "other rates and schedules than those run here with three seeds. In 8 "
    "dimensions (width 16) heads did fail: after 6000 steps heads, BTT and bilinear MLR came to 0.56, 0.27 and 0.10, "
    "each at the best of up to four rates, and after 7000, along another schedule, to 0.59, 0.45 and 0.16 at a rate of "
    "0.004; what learns there takes more steps than a small size has."
)


def report(records: Records) -> PaperReport:
    runs = described_prompts(runs_of(records))
    chosen, solved = arms_of_prompts(runs), solved_prompts(runs)
    fails = "Where heads have a rank below d, they fail, and {} of the same width learns."
    full = "It is the rank that they lack: one head of full rank learns at the same width."
    lower = "At the same width {} has a lower error than heads of a rank below d."
    cheaper = "For the same {} BTT and bilinear MLR have a lower error than heads of a rank below d."
    scores, no_more, of_kind = "parameters of the scores", "with no more", _LOWER.format("of this kind")
    return PaperReport(
        title="In-context regression",
        doc=__doc__,
        claims=[
            *(claim_of(fails.format(name), _beside_heads(chosen, "kind", kind, _learns), _LEARNS)
              for kind, name in _KIND.items()),
            claim_of(full, _beside_heads(chosen, "arm", ONE_HEAD, _learns), _LEARNS),
            *(claim_of(lower.format(name), _beside_heads(chosen, "kind", kind, _is_lower), of_kind)
              for kind, name in _KIND.items()),
            claim_of(cheaper.format("computation"), _at_cost(chosen, "flops"), _LOWER.format(f"{no_more} flops")),
            claim_of(  # the paper compares models of equal computation
                cheaper.format(scores), _at_cost(chosen, "scores"), _LOWER.format(f"{no_more} {scores}"),
                is_of_paper=False,
            ),
        ],
        table=prompts_table(chosen, solved),
        legend=f"{LEGEND} {EDGE}",
        figure=_figure(chosen, solved),
        caption="The error of the last value over d, against the flops of a prompt (left) and the width (right): mean "
        "of the seeds, and each of them as a dot. Dashed, ridge regression; least squares have no error to speak of.",
        differs=_differences(runs, chosen),
    )  # fmt: skip


def described_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    error, standard = runs["mse"].astype("float64") / runs["dimensions"].astype("float64"), {1: ONE_HEAD}
    arms = [standard.get(row.heads, HEADS) if row.kind == STANDARD else row.attention for row in runs.itertuples()]
    described = (json.dumps(one.get("attention")) for one in runs["backbone"])
    sizes = [sizes_of(*one) for one in zip(described, runs["width"], runs["heads"], strict=True)]
    return runs.assign(error=error, arm=arms, rank=[one[0] for one in sizes], scores=[one[1] for one in sizes])


def arms_of_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    """Choose the learning rate of each arm with an attention by validation; standard ones first."""
    chosen = chosen_by_validation(runs[runs["kind"].notna()], ARM, ["learning_rate"])
    places = [{HEADS: 0, ONE_HEAD: 1}.get(arm, 2) for arm in chosen["arm"]]
    return chosen.assign(place=places).sort_values(["dimensions", "width", "place", "arm"], ignore_index=True)


def solved_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of closed forms; ``arm`` is ``least squares`` or ``ridge, penalty 1``."""
    solved = runs[runs["kind"].isna() & (runs["status"] == "done")]
    return solved.assign(arm=[f"ridge, penalty {alpha:g}" if alpha else "least squares" for alpha in solved["alpha"]])


@cache
def sizes_of(attention: str, width: float | None, heads: float | None) -> tuple[float | None, ...]:
    """Return the most that the rank of a head's bilinear form can be, and the parameters of the scores of a layer."""
    described = json.loads(attention)
    if not isinstance(described, dict):
        return None, None
    torch.manual_seed(0)
    try:
        projection = build_attention(described, d_model=int(width or 0), num_heads=int(heads or 0)).projection
    except UserError:  # it does not apply
        return None, None
    return int(torch.linalg.matrix_rank(projection.double().to_dense()[0])), projection.num_params()


def best_arm(arms: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the arm with the least validation error; ``is_edge`` is still that of the rate."""
    best = chosen_by_validation(arms.assign(at_edge=arms["is_edge"]), ["dimensions"], ["width", "arm"])
    return best.assign(is_edge=best["at_edge"])


def is_better(arm: pd.DataFrame, other: pd.DataFrame) -> bool | None:
    """Compare two of `best_arm` by `is_lower`; too few runs decide nothing, nor does the edge of the grid."""
    if min(len(arm), len(other)) < MIN_SEEDS:
        return None
    found = is_lower(list(arm["error"]), list(other["error"]))
    return None if found is not None and is_at_edge(other if found else arm) else found


def is_at_edge(arm: pd.DataFrame) -> bool:
    return bool(arm["is_edge"].any())


def all_or_none(arm: pd.DataFrame, found: Sequence[bool]) -> bool | None:
    """Return whether something holds for all seeds of an arm, or for none; None otherwise, and for too few runs."""
    return None if len(arm) < MIN_SEEDS else {len(arm): True, 0: False}.get(sum(found))


def said(arm: pd.DataFrame) -> str:
    """Write mean and spread of the errors of an arm, with its rate at the edge of those tried."""
    errors = arm["error"].astype("float64")
    words = with_spread(float(errors.mean()), float(errors.std()))
    return f"{words} at the edge rate {arm['learning_rate'].iloc[0]:g}" if is_at_edge(arm) else words


def prompts_table(chosen: pd.DataFrame, solved: pd.DataFrame) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for (d, width, arm), part in chosen.groupby(ARM, sort=False):
        first = part.iloc[0]
        row = {"d": int(d), "width": int(width), "arm": arm, "rank": int(first["rank"]), "scores": int(first["scores"])}
        row |= {"error": part["error"].mean(), "spread": part["error"].std(), "seeds": len(part)}
        row |= {"learning rate": float(first["learning_rate"]), "edge": "yes" if first["is_edge"] else "no"}
        row |= {"rates": int(first["candidates"]), "parameters": int(first["parameters"]), "flops": int(first["flops"])}
        rows.append({**row, "seconds": part["seconds"].astype("float64").median()})
    for one in solved.itertuples(index=False):
        rows.append({"d": int(one.dimensions), "arm": one.arm, "error": one.error, "edge": ""})
    table = pd.DataFrame(rows)
    whole = [name for name in ("width", "rank", "scores", "seeds", "rates", "parameters", "flops") if name in table]
    return table.astype(dict.fromkeys(whole, "Int64")).sort_values(["d", "width"], kind="stable", ignore_index=True)


def _of_low_rank(chosen: pd.DataFrame) -> list[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Return for each dimension and width from d on where heads have a rank below d: its name, them, all others.

    Bilinear MLR of one level is of the same form, and begins with larger logits, as all structured arms do: it stands
    for the heads where validation prefers it.
    """
    found = []
    for (d, width), part in chosen.groupby(["dimensions", "width"]):
        heads = part[part["arm"] == HEADS]
        if len(heads) and float(heads["rank"].iloc[0]) < d <= width:  # a narrower model holds no vector of d numbers
            alike = part[(part["rank"] == heads["rank"].iloc[0]) & part["kind"].isin([STANDARD, "bilinear_mlr"])]
            found.append((f"d {int(d)}, width {int(width)}", best_arm(alike), part[part["arm"] != HEADS]))
    return found


Verdict = Callable[[pd.DataFrame, pd.DataFrame], tuple[bool | None, str]]


def _beside_heads(chosen: pd.DataFrame, column: str, asked: str, decide: Verdict) -> Iterator[tuple[str, bool | None]]:
    """Decide by width whether the best of some arms learns where heads fail, or has a lower error than they."""
    for name, heads, others in _of_low_rank(chosen):
        family = others[(others[column] == asked) & (others["rank"] > heads["rank"].iloc[0])]  # one level is low-rank
        if family.empty:
            yield f"{name}: nothing of this kind beside heads", None
            continue
        best = best_arm(family)
        verdict, why = decide(heads, best)
        more = float(best["scores"].iloc[0]) / float(heads["scores"].iloc[0])
        parameters = f"{'as many' if more == 1 else f'{more:.3g} times the'} parameters of the scores"
        arm = f"{said(best)} ({best['arm'].iloc[0]}, {parameters})"
        yield f"{name}: {arm} beside {said(heads)} ({_heads(heads)}){why}", verdict


def _is_lower(heads: pd.DataFrame, best: pd.DataFrame) -> tuple[bool | None, str]:
    return is_better(best, heads), ""


def _learns(heads: pd.DataFrame, best: pd.DataFrame) -> tuple[bool | None, str]:
    """Decide whether heads fail where another arm learns; and say why not."""
    if all_or_none(heads, heads["error"] < LEARNT):
        return False, ", which learn, too"
    fails, verdict = all_or_none(heads, heads["error"] > FAILED), all_or_none(best, best["error"] < LEARNT)
    if not fails:
        return None, "" if fails is None else ", which neither fail nor learn"
    is_open = verdict is not None and is_at_edge(heads if verdict else best)
    return (None if is_open else verdict), ""


def _heads(heads: pd.DataFrame) -> str:
    rank, arm = int(heads["rank"].iloc[0]), heads["arm"].iloc[0]
    return f"heads of rank {rank}{'' if arm == HEADS else f', as {arm}'}"


def _at_cost(chosen: pd.DataFrame, cost: str) -> Iterator[tuple[str, bool | None]]:
    """Decide whether structured attention has a lower error than heads at no more cost, at whatever width."""
    for name, heads, _ in _of_low_rank(chosen):
        d, rank, most_cost = (heads[column].iloc[0] for column in ("dimensions", "rank", cost))
        is_cheaper = (chosen["dimensions"] == d) & (chosen["rank"] > rank) & (chosen[cost] <= most_cost)
        cheaper = chosen[chosen["kind"].isin(_KIND) & is_cheaper]
        found = f"{name}: {_heads(heads)} come to {said(heads)} with {most_cost:,.0f}"
        if cheaper.empty:
            yield f"{found}, and nothing has so few", None
            continue
        best = best_arm(cheaper)
        arm = f"{best['arm'].iloc[0]} of width {int(best['width'].iloc[0])}"
        yield f"{found}, {arm} to {said(best)} with {best[cost].iloc[0]:,.0f}", is_better(best, heads)


def _figure(chosen: pd.DataFrame, solved: pd.DataFrame) -> Figure:
    dimensions = sorted(chosen["dimensions"].unique())
    figure, axes = new_axes((11, 4.2 * max(1, len(dimensions))), len(dimensions), 2, sharey="row")
    styles = {arm: (f"C{n % 10}", "osD^vP*X"[n % 8]) for n, arm in enumerate(dict.fromkeys(chosen["arm"]))}
    # a closed form so far below all others that these would be one line is left out
    shown = solved[solved["error"] > float(chosen["error"].min()) / 10]
    for d, line in zip(dimensions, axes, strict=False):
        own = chosen[chosen["dimensions"] == d]
        for ax, cost, label in zip(line, ("flops", "width"), ("flops of a prompt", "width"), strict=True):
            for arm, part in own.astype({cost: "float64"}).groupby("arm", sort=False):
                means, (colour, marker) = part.groupby(cost)["error"].mean(), styles[arm]
                ax.plot(means.index, means, color=colour, marker=marker, lw=1.2, label=arm)
                ax.plot(part[cost], part["error"], ".", color=colour, ms=4, alpha=0.6)
            for row in shown[shown["dimensions"] == d].itertuples():
                ax.axhline(row.error, color="0.5", lw=1, ls="--", zorder=0, label=row.arm)
            ax.set(xscale="log", yscale="log", xlabel=label, title=f"d = {d}")
        widths = sorted(chosen["width"].unique())
        line[1].set_xticks(widths, labels=[f"{width:g}" for width in widths])
        line[1].xaxis.minorticks_off()
        line[0].set_ylabel("error of the last value, over d")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _differences(runs: pd.DataFrame, chosen: pd.DataFrame) -> list[str]:
    tried = runs.loc[runs["kind"].notna(), "learning_rate"]
    widths = chosen.groupby("arm")["width"].unique()
    at_one = [str(arm) for arm, found in widths.items() if len(found) == 1 < chosen["width"].nunique()]
    falls = "falls along a cosine after its warm-up." if "cosine" in set(chosen["schedule"]) else "is constant."
    follow = "follow" if chosen["mup"].any() else "do not follow"
    return [
        f"d {listed(chosen['dimensions'])}, widths {listed(chosen['width'])}, {listed(chosen['layers'])} layers, "
        f"{listed(chosen['steps'])} steps of {listed(chosen['batch_size'])} prompts, and the learning rates "
        f"{listed(tried)}; the paper has d from 16 to 128, widths from 16 to 1024, 6 layers and 500,000 steps of 64.",
        f"The learning rate {falls} The structured arms {follow} the muP rules.",
        "BTT normalises its mapped keys, and no other arm its queries or keys.",
        "Arms of one width differ in the parameters of their scores (column `scores`): BTT has more than heads, and "
        "so have bilinear MLR and MLBTC with more components than these; the last claim asks for as many.",
        "Standard attention begins with logits of about a third of those of BTT, MLBTC and bilinear MLR of one level, "
        "and bilinear MLR of L levels with sqrt(L) times those. Heads of low rank are standard attention or bilinear "
        "MLR of one level, whichever validation prefers where both were run: that is so for BTT and MLBTC, while what "
        "several levels gain beside it may in part be that their logits begin larger.",
        "Of a kind the form with the least validation error answers, and kinds have different numbers of forms: of the "
        "best of many, a claim that it is lower is wrong more often, and one that it is not less often, than of one.",
        *([f"Of one width alone, unlike the others, are: {', '.join(at_one)}."] if at_one else []),
        "The weights with the least validation error are scored, on 3200 prompts that are the same for all arms.",
        "Gradients are clipped to a norm of 1.",
        "A prompt of fewer pairs, in the curriculum, is one whose later values do not count.",
        *([_LEARNT_AT_SMALL] if chosen["dimensions"].max() <= _FEW_DIMENSIONS else []),
    ]


EXPERIMENT = PaperExperiment("in_context", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
