"""Which blocks MLR attention is given: by number, by the calendar, or cut at change points of the context.

    python benchmarks/paper/blocks.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers whose tokens are single steps forecast ETTm1, and demand and temperature of Victoria, 96 steps ahead from
long contexts. MLR attention has a level of all pairs and one of blocks: equal ones whose number is the length of the
context in days, rounded up; the days of the calendar; or as many pieces as of the first, cut where the level of the
context changes most. Beside it are standard attention, windows of a day,
and linear attention (Katharopoulos et al. 2020), a reference without a softmax.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

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
from benchmarks.paper.runs import EDGE, described_by, listed
from tsattn.leaderboard.analysis import STANDARD
from tsattn.leaderboard.records import Records

__all__ = ["EXPERIMENT", "main", "report"]

METRIC = "mse"

_ask = partial(Question, is_of_paper=False)

_QUESTIONS = (
    _ask("Blocks by number forecast better than standard attention.", ["numbers"], [STANDARD]),
    _ask("Blocks by the calendar (days) forecast better than standard attention.", ["days"], [STANDARD]),
    _ask("Blocks cut at change points forecast better than standard attention.", ["change_points"], [STANDARD]),
    _ask("The days of the calendar are better blocks than about as many of equal length.", ["days"], ["numbers"]),
    _ask(
        "Pieces between change points are better blocks than as many of equal length.", ["change_points"], ["numbers"]
    ),
    _ask("Windows of a day forecast better than standard attention.", ["swa"], [STANDARD]),
    _ask("Linear attention forecasts better than standard attention (a reference).", ["linear"], [STANDARD]),
)


def report(records: Records) -> PaperReport:
    """The report of the records."""
    chosen = chosen_arms(records, METRIC)
    compared = beside(records, chosen, STANDARD, METRIC)
    sizes = described_by(
        chosen,
        width="model.backbone.d_model",
        context="data.init_args.context_length",
        batch_size="data.init_args.batch_size",
        every="data.init_args.every",
    )
    return PaperReport(
        title="Which blocks",
        about=[paragraph(__doc__)],
        claims=answered(records, chosen, _QUESTIONS, METRIC),
        table=arms_table(records, chosen, compared),
        legend="MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the "
        "standard deviation over these; `%` is the MSE beside that of standard attention, with its paired interval; "
        f"`tried` is of how many learning rates one was chosen. {EDGE} {TIME} {INTERVALS}",
        figure=relative_figure(compared, STANDARD, METRIC),
        caption=f"The MSE beside that of standard attention, with intervals of 95 %{CAPTION}.",
        differs=[
            "The paper cuts blocks by number, and leaves others open.",
            f"Contexts of {listed(sizes['context'])} steps, width {listed(sizes['width'])}, {listed(chosen['steps'])} "
            f"training steps of {listed(sizes['batch_size'])} windows: a short training, in which an arm that learns "
            "fast is ahead of one that would come further.",
            f"Of the windows for validation and testing {_scored(sizes['every'])} scored: neighbours share all but one "
            "of their steps.",
            "Change points are found greedily, by binary segmentation: each cut is the best one after those before it, "
            "and another set of as many may be better.",
            "Trained on the squared error, by which everything is chosen and judged, too.",
            "Days are those of the time stamps: of ETTm1 as they are, of Victoria in UTC, where they begin at 10 or 11 "
            "o'clock local time. A context that is no whole number of days touches one more than there are blocks by "
            "number or pieces, in a third to two thirds of the windows; its first and last are parts of days.",
            "Logits are divided by the root of the size of a head, whatever the levels, and queries and keys are not "
            "normalised, as all arms but linear attention have it.",
            *beside_ridge(records, chosen, METRIC),
        ],
    )


def _scored(every: pd.Series) -> str:
    """How many of the windows are."""
    strides = {int(one) for one in every.dropna().unique()} or {1}
    return " or ".join("all are" if one == 1 else f"one in {one} is" for one in sorted(strides))


EXPERIMENT = PaperExperiment("blocks", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
