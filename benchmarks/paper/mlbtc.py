"""Which form of MLBTC: levels, blocks left and right, and ranks, with as many parameters as standard attention.

    python benchmarks/paper/mlbtc.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers forecast ETTh1 with scores of one, two, four or three levels that are of low rank, block-diagonal
(bilinear MLR) or shuffled between their two factors (BTT). Each form has the parameters of the scores that standard
attention has, and the learning rate with the least validation error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

from benchmarks.paper.chosen_arms import (
    TABLES,
    arms_table,
    beside,
    best_of,
    chosen_arms,
    compared_claim,
    relative_figure,
    table_name,
)
from benchmarks.paper.claims import Claim, PaperReport, described_by
from benchmarks.paper.experiment import PaperExperiment
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.standings import STANDARD

__all__ = ["EXPERIMENT", "family", "main", "report"]

METRIC = "mse"
LOW_RANK, DIAGONAL, SHUFFLED, MIXED = "low rank", "block-diagonal", "shuffled", "low rank and shuffled"

_QUESTIONS = (
    ((DIAGONAL, SHUFFLED, MIXED), (STANDARD,), "Some form of MLBTC forecasts better than standard attention."),
    ((DIAGONAL,), (LOW_RANK,), "Levels of blocks (bilinear MLR) are better than low rank alone."),
    ((SHUFFLED,), (LOW_RANK,), "One shuffled level (BTT) is better than low rank alone."),
    ((MIXED,), (SHUFFLED,), "A shuffled level beside one of low rank is better than a shuffled one alone."),
    ((MIXED,), (DIAGONAL,), "A shuffled level beside one of low rank is better than levels of blocks."),
)


def family(attention: Mapping[str, Any]) -> str:
    """What a form is made of: `LOW_RANK`, `DIAGONAL`, `SHUFFLED`, `MIXED`, or ``standard``.

    Args:
        attention: its description.
    """
    if attention["kind"] != "mlbtc":
        return str(attention["kind"])
    levels = attention["levels"]
    if any(level.get("shuffled") for level in levels):
        return SHUFFLED if all(level.get("shuffled") for level in levels) else MIXED
    blocks = (max(level.get("left_blocks", 1), level.get("right_blocks", 1)) for level in levels)
    return DIAGONAL if max(blocks) > 1 else LOW_RANK


def report(records: Records) -> PaperReport:
    """The report of the records."""
    chosen = described_by(
        chosen_arms(records, METRIC),
        described="model.backbone.attention",
        width="model.backbone.d_model",
        steps="trainer.max_steps",
    )
    chosen = chosen.assign(family=[family(one) for one in chosen["described"]])
    compared = beside(records, chosen, STANDARD, METRIC)
    width, steps = (", ".join(f"{value:g}" for value in sorted(chosen[name].unique())) for name in ("width", "steps"))
    return PaperReport(
        title="Which form of MLBTC",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[_answer(records, chosen, *question) for question in _QUESTIONS],
        table=arms_table(records, chosen, compared),
        legend="MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the "
        "standard deviation over these; `%` is the MSE beside that of standard attention, with its paired interval. A "
        "form is named after its levels: `shuffled_4x4` has 4 blocks left and right, `rank_2_and_4x8` a level of rank "
        "2 and a shuffled one of 4 blocks left and 8 right, `mlr_1_2` levels of 1 and 2 blocks.",
        figure=relative_figure(compared, STANDARD, METRIC),
        caption="The MSE beside that of standard attention, with intervals of 95 %.",
        differs=[
            "The paper defines the family, and tries its members BTT and bilinear MLR.",
            f"Width {width}, {steps} training steps.",
        ],
        asked_by="what the paper leaves open",
    )


def _answer(
    records: Records, chosen: pd.DataFrame, families: tuple[str, ...], others: tuple[str, ...], text: str
) -> Claim:
    """The form of some families that validation chose, beside that of others."""
    parts = []
    for name, of in (("form", families), ("others", others)):
        attentions = list(chosen.loc[chosen["family"].isin(of), "attention"].unique())
        parts.append(best_of(chosen, attentions, name, METRIC))
    if any(part.empty for part in parts):
        return compared_claim(text, chosen.iloc[:0], "form")
    runs = pd.concat(parts, ignore_index=True)
    forms = {}
    for (dataset, horizon), part in runs.groupby(TABLES):
        one, other = (part.loc[part["attention"] == name, "form"].iloc[0] for name in ("form", "others"))
        forms[table_name(dataset, horizon)] = f" ({one} beside {other})"
    return compared_claim(text, beside(records, runs, "others", METRIC), "form", forms)


EXPERIMENT = PaperExperiment("mlbtc", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
