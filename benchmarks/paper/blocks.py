"""Which blocks MLR attention is given: by number, by the calendar, or cut at change points of the context.

    python benchmarks/paper/blocks.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers whose tokens are single steps forecast ETTm1, and demand and temperature of Victoria, 96 steps ahead from
long contexts. MLR attention has a level of all pairs and one of blocks: equal ones whose number is the length of the
context in days, rounded up; the days of the calendar; or as many pieces as of the first, cut where the level of the
context changes most. It is compared with standard attention and windows of a day.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

from benchmarks.paper.chosen_models import compared_with_ridge, forecast_report
from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment, listed
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite

METRIC = "mse"


def report(records: Records, suite: Suite) -> PaperReport:

    def differs(chosen: pd.DataFrame) -> list[str]:
        strides = {int(one) for one in chosen["every"].dropna().unique()} or {1}
        scored = " or ".join("all are" if one == 1 else f"one in {one} is" for one in sorted(strides))
        return [
            "The paper cuts blocks by number, and leaves others open.",
            f"Contexts of {listed(chosen['context'])} steps, width {listed(chosen['width'])}, "
            f"{listed(chosen['steps'])} training steps of {listed(chosen['batch_size'])} windows: a short training, in "
            "which a model that learns fast is ahead of one that would come further.",
            f"Of the windows for validation and testing {scored} scored: neighbours share all but one of their steps.",
            "Change points are found greedily, by binary segmentation: each cut is the best one after those before it, "
            "and another set of as many may be better.",
            "Trained on the squared error, by which everything is chosen and judged, too.",
            "Days are those of the time stamps: of ETTm1 as they are, of Victoria in UTC, where they begin at 10 or 11 "
            "o'clock local time. A context that is no whole number of days touches one more than there are blocks by "
            "number or pieces, in a third to two thirds of the windows; its first and last are parts of days.",
            "Logits are divided by the root of the size of a head, whatever the levels, and queries and keys are not "
            "normalised.",
            *compared_with_ridge(records, chosen, METRIC),
        ]

    return forecast_report(records, suite, METRIC, "Which blocks", __doc__, differs)


EXPERIMENT = PaperExperiment("blocks", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
