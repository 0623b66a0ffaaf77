"""Which form of MLBTC: levels, blocks left and right, and ranks, with as many weights as standard attention.

    python benchmarks/paper/mlbtc.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers forecast ETTh1 with scores of one, two, four or three levels that are of low rank, block-diagonal
(bilinear MLR) or shuffled between their two factors (BTT). The scores of each form have as many weights as those of
standard attention, whose biases come on top, and the learning rate with the least validation error.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.paper.chosen_arms import (
    CAPTION,
    INTERVALS,
    TIME,
    Question,
    answered,
    arms_table,
    beside,
    beside_ridge,
    chosen_arms,
    relative_figure,
)
from benchmarks.paper.claims import PaperReport, paragraph
from benchmarks.paper.experiment import PaperExperiment
from benchmarks.paper.runs import EDGE, described_by, listed, runs_of
from tsattn.leaderboard.analysis import STANDARD
from tsattn.leaderboard.records import Records

__all__ = ["ALL", "DIAGONAL", "EXPERIMENT", "LOW_RANK", "MIXED", "NAMES", "SHUFFLED", "family", "main", "report"]

METRIC = "mse"
LOW_RANK, DIAGONAL, SHUFFLED, MIXED = "low rank", "block-diagonal", "shuffled", "low rank and shuffled"
ALL = "low rank, block-diagonal and shuffled"

_QUESTIONS = (
    ((DIAGONAL, SHUFFLED, MIXED, ALL), (STANDARD,), "Some form of MLBTC forecasts better than standard attention."),
    (
        (LOW_RANK,),
        (STANDARD,),
        "Low rank alone, which has the form of standard attention and begins as MLBTC does, is better than that.",
    ),
    ((DIAGONAL,), (LOW_RANK,), "Levels of blocks (bilinear MLR) are better than low rank alone."),
    ((SHUFFLED,), (LOW_RANK,), "One shuffled level (BTT) is better than low rank alone."),
    ((MIXED,), (SHUFFLED,), "A shuffled level beside one of low rank is better than a shuffled one alone."),
    ((MIXED,), (DIAGONAL,), "A shuffled level beside one of low rank is better than levels of blocks."),
)


NAMES = (
    "A form is named after its levels: `shuffled_4x4` has 4 blocks left and right, `rank_2_and_4x8` a level of rank 2 "
    "and a shuffled one of 4 blocks left and 8 right, `mlr_1_2` levels of 1 and 2 blocks."
)
"""What the names of forms mean."""


def family(attention: Mapping[str, Any]) -> str:
    """What a form is made of: `LOW_RANK`, `DIAGONAL`, `SHUFFLED`, `MIXED`, `ALL`, or ``standard``.

    Args:
        attention: its description.
    """
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
    """The report of the records."""
    chosen = described_by(
        chosen_arms(records, METRIC),
        width="model.backbone.d_model",
        context="data.init_args.context_length",
    )
    planned = described_by(runs_of(records), described="model.backbone.attention")
    planned = planned[(planned["attention"] != "") & (planned["status"] != "does not apply")].drop_duplicates(
        "attention"
    )
    forms = {name: family(one) for name, one in zip(planned["attention"], planned["described"], strict=True)}
    compared = beside(records, chosen, STANDARD, METRIC)

    def arms(families: Sequence[str]) -> list[str]:
        return [name for name, one in forms.items() if one in families]

    questions = [
        Question(text, arms(families), arms(others), is_of_paper=False) for families, others, text in _QUESTIONS
    ]
    return PaperReport(
        title="Which form of MLBTC",
        about=[paragraph(__doc__)],
        claims=answered(records, chosen, questions, METRIC),
        table=arms_table(records, chosen, compared),
        legend="MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the "
        "standard deviation over these; `%` is the MSE beside that of standard attention, with its paired interval; "
        f"`tried` is of how many learning rates one was chosen. {EDGE} {NAMES} {TIME} {INTERVALS}",
        figure=relative_figure(compared, STANDARD, METRIC),
        caption=f"The MSE beside that of standard attention, with intervals of 95 %{CAPTION}.",
        differs=[
            "The paper defines the family, and tries its members BTT and bilinear MLR.",
            f"Contexts of {listed(chosen['context'])} hours, width {listed(chosen['width'])}, "
            f"{listed(chosen['steps'])} training steps.",
            "Trained on the squared error, by which everything is chosen and judged, too.",
            "Logits are divided by the root of the width, those of standard attention by that of the size of a head; "
            "those of MLBTC begin about three times as large as those of standard attention, whichever the form, so "
            "that only comparisons among its forms are of structure alone.",
            "Of a family the form with the least validation error answers; families have different numbers of forms.",
            *beside_ridge(records, chosen, METRIC),
        ],
    )


EXPERIMENT = PaperExperiment("mlbtc", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
