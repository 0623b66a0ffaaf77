"""Arms of transformers that read prompts: their sizes, the rank of their scores, and whether they learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.paper.claims import is_lower, with_spread
from benchmarks.paper.runs import LEAST_SEEDS, chosen_by_validation, described_by
from tsattn.attention import build_attention
from tsattn.errors import UserError

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


def described_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that tell arms apart; ``kind`` is that of the attention, None for closed forms."""
    backbone = {"width": "d_model", "heads": "num_heads", "layers": "num_layers", "kind": "attention.kind"}
    backbone |= {"described": "attention", "alpha": "alpha"}
    runs = described_by(
        runs,
        **{name: f"model.backbone.{path}" for name, path in backbone.items()},
        **{name: f"model.{name}" for name in ("learning_rate", "schedule", "mup")},
        **{name: f"data.init_args.{name}" for name in ("dimensions", "batch_size")},
        steps="trainer.max_steps",
    )
    error = runs["mse"].astype("float64") / runs["dimensions"].astype("float64")
    standard = {True: ONE_HEAD, False: HEADS}
    arms = [
        standard[row.heads == 1] if row.kind == "standard" else row.attention for row in runs.itertuples(index=False)
    ]
    sizes = [_sizes(*row) for row in runs[["described", "width", "heads"]].itertuples(index=False)]
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


def _sizes(attention: Mapping[str, Any] | None, width: int | None, heads: int | None) -> tuple[float | None, ...]:
    """Return the rank and the parameters of the scores of a layer."""
    if not isinstance(attention, Mapping):
        return None, None
    D, H = int(width or 0), int(heads or 0)
    try:
        return score_rank(attention, D, H), build_attention(attention, d_model=D, num_heads=H).projection.num_params()
    except UserError:  # it does not apply
        return None, None


def score_rank(attention: Mapping[str, Any], d_model: int, num_heads: int) -> int:
    """Return the most that the rank of the bilinear form of a head can be."""
    D, r = d_model, attention.get("head_dim") or d_model // num_heads
    if attention["kind"] == "bilinear_mlr":
        blocks = attention.get("blocks") or [2**level for level in range(len(attention["ranks"]))]
        ranks = attention.get("ranks") or [r // len(blocks)] * len(blocks)
        return min(D, sum(p * min(rank, D // p) for p, rank in zip(blocks, ranks, strict=True)))
    if attention["kind"] == "mlbtc" and attention.get("levels"):
        return min(D, sum(_level_rank(level, D) for level in attention["levels"]))
    return min(D, r) if attention["kind"] == "standard" else D


def _level_rank(level: Mapping[str, Any], D: int) -> int:
    left, right = level.get("left_blocks", 1), level.get("right_blocks", 1)
    if level.get("shuffled"):
        return min(D, left * right * level["rank"])
    return int(left * min(level["rank"], D // left))


def best_arm(arms: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the arm with the least validation error; ``is_edge`` is still that of the rate."""
    best = chosen_by_validation(arms.assign(at_edge=arms["is_edge"]), ["dimensions"], ["width", "arm"])
    return best.assign(is_whole=best["is_whole"] & arms["is_whole"].all(), is_edge=best["at_edge"])


def is_better(arm: pd.DataFrame, other: pd.DataFrame, *, is_grid_ours: bool = True) -> bool | None:
    """Compare two arms by `is_lower`; too few runs decide nothing.

    Args:
        arm: from `best_arm`.
        other: likewise.
        is_grid_ours: whether nothing is decided where the worse one has its rate at the edge of those tried.
    """
    if min(len(arm), len(other)) < LEAST_SEEDS or not (arm["is_whole"].all() and other["is_whole"].all()):
        return None
    found = is_lower(list(arm["error"]), list(other["error"]))
    return None if found is not None and is_grid_ours and is_at_edge(other if found else arm) else found


def is_at_edge(arm: pd.DataFrame) -> bool:
    """Return whether the rate of an arm is the least or the greatest of those tried."""
    return bool(arm["is_edge"].any())


def all_or_none(arm: pd.DataFrame, found: Sequence[bool]) -> bool | None:
    """Return whether something holds for all seeds of an arm, or for none; None otherwise, and for too few runs."""
    if len(arm) < LEAST_SEEDS or not arm["is_whole"].all():
        return None
    return {len(arm): True, 0: False}.get(sum(found))


def said(arm: pd.DataFrame) -> str:
    """Write mean and spread of the errors of an arm, with its rate at the edge of those tried."""
    errors = arm["error"].astype("float64")
    words = with_spread(float(errors.mean()), float(errors.std()))
    return f"{words} at the edge rate {arm['learning_rate'].iloc[0]:g}" if is_at_edge(arm) else words


def prompts_table(chosen: pd.DataFrame, solved: pd.DataFrame) -> pd.DataFrame:
    """Return a row an arm, after them those of closed forms."""
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
