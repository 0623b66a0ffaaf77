"""Arms of transformers that read prompts: what tells them apart, what their scores can hold, and whether they learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.paper.runs import LEAST_SEEDS, chosen_by_validation, described_by
from benchmarks.paper.verdicts import is_lower
from benchmarks.paper.words import with_spread
from tsattn.attention import build_attention
from tsattn.errors import UserError

__all__ = [
    "ARM",
    "FAILED",
    "HEADS",
    "LEARNT",
    "LEGEND",
    "ONE_HEAD",
    "arms_of_prompts",
    "best_arm",
    "described_prompts",
    "fails",
    "is_at_edge",
    "is_better",
    "learns",
    "prompts_table",
    "said",
    "score_rank",
    "solved_prompts",
]

FAILED, LEARNT = 0.5, 0.1
"""Errors over d above which all seeds must lie of an arm that fails, and below which of one that learns: predicting 0
has an error of 1, and least squares has none."""

HEADS, ONE_HEAD = "standard, low-rank heads", "standard, one head of full rank"

ARM = ["dimensions", "width", "arm"]
"""What tells arms apart."""

LEGEND = (
    "`error` is the squared error of the last value over d, the mean of the seeds, and `spread` its standard deviation "
    "over them; `rank` is that of the bilinear form of a head, at most; `scores` is how many parameters queries and "
    "keys of a layer have; flops are those of a forward pass of one prompt; `seconds` are the median of the seeds; "
    "`rates` is of how many learning rates one was chosen."
)
"""What the columns of `prompts_table` are."""


def described_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with what tells their arms apart; ``kind`` is that of the attention, None of closed forms.

    Args:
        runs: from `runs_of`.
    """
    runs = described_by(
        runs,
        dimensions="data.init_args.dimensions",
        width="model.backbone.d_model",
        heads="model.backbone.num_heads",
        layers="model.backbone.num_layers",
        kind="model.backbone.attention.kind",
        described="model.backbone.attention",
        learning_rate="model.learning_rate",
        steps="trainer.max_steps",
        batch_size="data.init_args.batch_size",
        alpha="model.backbone.alpha",
        schedule="model.schedule",
        mup="model.mup",
    )
    error = runs["mse"].astype("float64") / runs["dimensions"].astype("float64")
    arms = [_arm(*row) for row in runs[["kind", "heads", "attention"]].itertuples(index=False)]
    sizes = [_sizes(*row) for row in runs[["described", "width", "heads"]].itertuples(index=False)]
    return runs.assign(error=error, arm=arms, rank=[one[0] for one in sizes], scores=[one[1] for one in sizes])


def arms_of_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    """Those that have an attention, of each arm at the learning rate that validation chose; standard ones first.

    Args:
        runs: from `described_prompts`.
    """
    chosen = chosen_by_validation(runs[runs["kind"].notna()], ARM, ["learning_rate"])
    places = [{HEADS: 0, ONE_HEAD: 1}.get(arm, 2) for arm in chosen["arm"]]
    return chosen.assign(place=places).sort_values(["dimensions", "width", "place", "arm"], ignore_index=True)


def solved_prompts(runs: pd.DataFrame) -> pd.DataFrame:
    """Those of closed forms, which no training has a part in; ``arm`` is ``least squares`` or ``ridge, penalty 1``.

    Args:
        runs: from `described_prompts`.
    """
    solved = runs[runs["kind"].isna() & (runs["status"] == "done")]
    names = [f"ridge, penalty {alpha:g}" if alpha else "least squares" for alpha in solved["alpha"]]
    return solved.assign(arm=names)


def _arm(kind: str | None, heads: int | None, attention: str) -> str:
    if kind == "standard":
        return ONE_HEAD if heads == 1 else HEADS
    return attention


def _sizes(attention: Mapping[str, Any] | None, width: int | None, heads: int | None) -> tuple[float | None, ...]:
    """The rank and the parameters of the scores of a layer; None of what has no attention."""
    if not isinstance(attention, Mapping):
        return None, None
    D, H = int(width or 0), int(heads or 0)
    try:
        built = build_attention(attention, d_model=D, num_heads=H)
    except UserError:  # what does not apply
        return None, None
    return score_rank(attention, D, H), built.projection.num_params()


def score_rank(attention: Mapping[str, Any], d_model: int, num_heads: int) -> int:
    """The most that the rank of the bilinear form of a head can be.

    Args:
        attention: its description.
        d_model: D.
        num_heads: H.
    """
    D = d_model
    r = attention.get("head_dim") or D // num_heads
    if attention["kind"] == "btt":
        return D
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
    """Of some arms of one number of dimensions the runs of the one with the least validation error.

    Args:
        arms: rows of `arms_of_prompts`; where seeds of one of them are missing, those of none are whole.

    Returns:
        rows of these; ``is_edge`` is still that of the rate.
    """
    best = chosen_by_validation(arms.assign(at_edge=arms["is_edge"]), ["dimensions"], ["width", "arm"])
    return best.assign(is_whole=best["is_whole"] & arms["is_whole"].all(), is_edge=best["at_edge"])


def is_better(arm: pd.DataFrame, other: pd.DataFrame, *, is_grid_ours: bool = True) -> bool | None:
    """Whether an arm has lower errors than another, see `is_lower`; None also of too few runs.

    Args:
        arm: from `best_arm`.
        other: likewise.
        is_grid_ours: whether nothing is decided where the one with the higher errors has its rate at the edge of those
            tried, as the rates are no part of what is claimed.
    """
    if min(len(arm), len(other)) < LEAST_SEEDS or not (arm["is_whole"].all() and other["is_whole"].all()):
        return None
    found = is_lower(list(arm["error"]), list(other["error"]))
    return None if found is not None and is_grid_ours and is_at_edge(other if found else arm) else found


def is_at_edge(arm: pd.DataFrame) -> bool:
    """Whether the rate of an arm is the least or the greatest of those tried."""
    return bool(arm["is_edge"].any())


def learns(arm: pd.DataFrame) -> bool | None:
    """Whether all seeds of an arm lie below `LEARNT`, or none; None of what lies between, or has too few runs."""
    return _all_or_none(arm, arm["error"] < LEARNT)


def fails(arm: pd.DataFrame) -> bool | None:
    """Whether all seeds of an arm lie above `FAILED`, or none; None of what lies between, or has too few runs."""
    return _all_or_none(arm, arm["error"] > FAILED)


def _all_or_none(arm: pd.DataFrame, found: Sequence[bool]) -> bool | None:
    if len(arm) < LEAST_SEEDS or not arm["is_whole"].all():
        return None
    return {len(arm): True, 0: False}.get(sum(found))


def said(arm: pd.DataFrame) -> str:
    """Mean and spread of the errors of an arm as words, with the rate if that is at the edge of those tried."""
    errors = arm["error"].astype("float64")
    words = with_spread(float(errors.mean()), float(errors.std()))
    return f"{words} at the edge rate {arm['learning_rate'].iloc[0]:g}" if is_at_edge(arm) else words


def prompts_table(chosen: pd.DataFrame, solved: pd.DataFrame) -> pd.DataFrame:
    """A row an arm, after them those of closed forms.

    Args:
        chosen: from `arms_of_prompts`.
        solved: from `solved_prompts`.
    """
    rows: list[dict[str, Any]] = []
    for (d, width, arm), part in chosen.groupby(ARM, sort=False):
        rows.append(
            {
                "d": int(d),
                "width": int(width),
                "arm": arm,
                "rank": int(part["rank"].iloc[0]),
                "scores": int(part["scores"].iloc[0]),
                "error": part["error"].mean(),
                "spread": part["error"].std(),
                "seeds": len(part),
                "learning rate": float(part["learning_rate"].iloc[0]),
                "edge": "yes" if part["is_edge"].iloc[0] else "no",
                "rates": int(part["candidates"].iloc[0]),
                "parameters": int(part["parameters"].iloc[0]),
                "flops": int(part["flops"].iloc[0]),
                "seconds": part["seconds"].astype("float64").median(),
            }
        )
    rows += [
        {"d": int(row.dimensions), "arm": row.arm, "error": row.error, "edge": ""}
        for row in solved.itertuples(index=False)
    ]
    table = pd.DataFrame(rows)
    whole = [name for name in ("width", "rank", "scores", "seeds", "rates", "parameters", "flops") if name in table]
    return table.astype(dict.fromkeys(whole, "Int64")).sort_values(["d", "width"], kind="stable", ignore_index=True)
