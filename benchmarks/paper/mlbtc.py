"""Which form of MLBTC: levels, blocks left and right, and ranks, with as many weights as standard attention.

    python benchmarks/paper/mlbtc.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers forecast ETTh1 with scores of one, two, four or three levels that are of low rank, block-diagonal
(bilinear MLR) or shuffled between their two factors (BTT). The scores of each form have as many weights as those of
standard attention, whose biases come on top, and the learning rate with the least validation error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

from benchmarks.paper.chosen_arms import Question, beside_ridge, forecast_report
from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment
from benchmarks.paper.runs import described_by, listed, runs_of
from tsattn.leaderboard.analysis import STANDARD
from tsattn.leaderboard.records import Records

METRIC = "mse"
LOW_RANK, DIAGONAL, SHUFFLED, MIXED = "low rank", "block-diagonal", "shuffled", "low rank and shuffled"
ALL = "low rank, block-diagonal and shuffled"
NAMES = (
    "A form is named after its levels: `shuffled_4x4` has 4 blocks left and right, `rank_2_and_4x8` a level of rank 2 "
    "and a shuffled one of 4 blocks left and 8 right, `mlr_1_2` levels of 1 and 2 blocks."
)
_QUESTIONS = (
    ((DIAGONAL, SHUFFLED, MIXED, ALL), STANDARD, "Some form of MLBTC forecasts better than standard attention."),
    (
        (LOW_RANK,),
        STANDARD,
        "Low rank alone, which has the form of standard attention and begins as MLBTC does, is better than that.",
    ),
    ((DIAGONAL,), LOW_RANK, "Levels of blocks (bilinear MLR) are better than low rank alone."),
    ((SHUFFLED,), LOW_RANK, "One shuffled level (BTT) is better than low rank alone."),
    ((MIXED,), SHUFFLED, "A shuffled level beside one of low rank is better than a shuffled one alone."),
    ((MIXED,), DIAGONAL, "A shuffled level beside one of low rank is better than levels of blocks."),
)


def family(attention: Mapping[str, Any]) -> str:
    """Return the family of a described attention: `LOW_RANK`, `DIAGONAL`, `SHUFFLED`, `MIXED`, `ALL`, or its kind."""
    if attention["kind"] != "mlbtc":
        return str(attention["kind"])
    levels = attention["levels"]
    straight = [level for level in levels if not level.get("shuffled")]
    blocks = [max(level.get("left_blocks", 1), level.get("right_blocks", 1)) for level in straight]
    if len(straight) == len(levels):
        return DIAGONAL if max(blocks) > 1 else LOW_RANK
    if not straight:
        return SHUFFLED
    return ALL if max(blocks) > 1 else MIXED


def report(records: Records) -> PaperReport:
    """Report the records."""
    planned = described_by(runs_of(records), described="model.backbone.attention")
    planned = planned[(planned["attention"] != "") & (planned["status"] != "does not apply")]
    families = {row.attention: family(row.described) for row in planned.itertuples()}

    def arms(*asked: str) -> list[str]:
        return [name for name, one in families.items() if one in asked]

    def differs(chosen: pd.DataFrame) -> list[str]:
        return [
            "The paper defines the family, and tries its members BTT and bilinear MLR.",
            f"Contexts of {listed(chosen['context'])} hours, width {listed(chosen['width'])}, "
            f"{listed(chosen['steps'])} training steps.",
            "Trained on the squared error, by which everything is chosen and judged, too.",
            "Logits are divided by the root of the width, those of standard attention by that of the size of a head; "
            "those of MLBTC begin about three times as large as those of standard attention, whichever the form, so "
            "that only comparisons among its forms are of structure alone.",
            "Of a family the form with the least validation error answers; families have different numbers of forms.",
            *beside_ridge(records, chosen, METRIC),
        ]

    questions = [Question(text, arms(*asked), arms(other)) for asked, other, text in _QUESTIONS]
    return forecast_report(records, METRIC, "Which form of MLBTC", __doc__, questions, differs, note=f" {NAMES}")


EXPERIMENT = PaperExperiment("mlbtc", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
