"""Whether multi-level attention forecasts ETTh1 with a lower error than standard attention.

    python benchmarks/paper/etth1.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Encoder transformers of two layers, whose tokens are single hours of all channels, forecast ETTh1 with standard
attention, MLR attention of 2, 4 and 8 levels, MLR attention whose blocks are the days of the calendar, sliding windows
and BTT. For every arm alike the learning rate, one of a few, and the number of steps at that rate, 200 or 1000, have
the least validation error, mean of the seeds.
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
    TABLES,
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

METRIC = "mae"
_WIDTH = 512  # of the paper

_OF_THE_PAPER = "MLR attention of {} levels has a lower MAE than standard attention."
_ask = partial(Question, is_of_paper=False)
_QUESTIONS = (
    Question(_OF_THE_PAPER.format("two"), ["mlr_2"], [STANDARD]),
    Question(_OF_THE_PAPER.format("four"), ["mlr_4"], [STANDARD]),
    _ask("MLR attention of eight levels has a lower MAE than standard attention.", ["mlr_8"], [STANDARD]),
    _ask("MLR attention whose blocks are days has a lower MAE than standard attention.", ["mlr_days"], [STANDARD]),
    _ask("Sliding windows have a lower MAE than standard attention.", ["swa"], [STANDARD]),
    _ask("BTT has a lower MAE than standard attention.", ["btt"], [STANDARD]),
)


def report(records: Records) -> PaperReport:
    """The report of the records."""
    chosen = chosen_arms(records, METRIC)
    compared = beside(records, chosen, STANDARD, METRIC)
    sizes = described_by(
        chosen,
        width="model.backbone.d_model",
        context="data.init_args.context_length",
        hidden="model.backbone.d_ff",
        batch_size="data.init_args.batch_size",
        dropout="model.backbone.dropout",
    )
    return PaperReport(
        title="Forecasts of ETTh1",
        about=[paragraph(__doc__)],
        # at another width others than the rates of the paper may be the best
        claims=answered(records, chosen, _QUESTIONS, METRIC, is_grid_ours=set(sizes["width"]) != {_WIDTH}),
        table=arms_table(records, chosen, compared),
        legend="MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the "
        "standard deviation over these; `%` is the MAE beside that of standard attention, with its paired interval; "
        f"`tried` is how many pairs of a rate and a number of steps there were, of which one was chosen. {EDGE} "
        f"{TIME} {INTERVALS}",
        figure=relative_figure(compared, STANDARD, METRIC),
        caption=f"The MAE beside that of standard attention by horizon, with intervals of 95 %{CAPTION}.",
        differs=[
            f"Width {listed(sizes['width'])}, with {listed(sizes['hidden'])} hidden units of the token-wise networks, "
            f"trained in batches of {listed(sizes['batch_size'])} windows with a dropout of "
            f"{_dropout(sizes)}, on contexts of {listed(sizes['context'])} hours; the paper has a width of {_WIDTH}.",
            "A training of 1000 steps goes on with that of 200, and all windows are scored after each.",
            "Trained on the squared error, and chosen and judged by the absolute one.",
            "Logits are divided by the root of the size of a head, whatever the levels, and queries and keys are as "
            "the projections give them, so that one level is standard attention exactly; the paper divides those of a "
            "level by its rank and normalises queries and keys.",
            "The eighth of eight levels has more blocks than a context of 96 hours has tokens, and the seventh two "
            "tokens a block at most: they add little but the score of a token with itself.",
            *_of_edges(chosen),
            *beside_ridge(records, chosen, METRIC),
            "BTT has another number of parameters of the scores than the other arms, and begins with larger logits.",
            "Blocks by days, sliding windows and BTT are not in the paper's table"
            + "".join(f"; {one}" for one in _at_some_horizons(chosen))
            + ".",
        ],
    )


def _of_edges(chosen: pd.DataFrame) -> list[str]:
    """How many arms were best at the edge of what was tried."""
    tables = chosen.groupby([*TABLES, "attention"])[["is_edge"]].first()
    at_edge = int(tables["is_edge"].sum())
    if not at_edge:
        return []
    is_alike = len(set(chosen["steps"])) == 1
    also = f", and all with {listed(chosen['steps'])} steps" if is_alike else ""
    return [
        f"{at_edge} of {len(tables)} choices of validation {'is' if at_edge == 1 else 'are'} at the edge of the "
        f"rates{also}: models that are trained as briefly as that are not at their best, and what they differ in might "
        "turn round."
    ]


def _dropout(sizes: pd.DataFrame) -> str:
    return " or ".join(f"{one:g}" for one in sorted(sizes["dropout"].dropna().unique())) or "0.1"


def _at_some_horizons(chosen: pd.DataFrame) -> list[str]:
    """Of each arm that is run at fewer horizons than standard attention, at which."""
    horizons = chosen.groupby("attention", sort=False)["horizon"].unique()
    return [
        f"{attention} is run at {listed(pd.Series(found))} steps alone"
        for attention, found in horizons.items()
        if STANDARD in horizons and len(found) < len(horizons[STANDARD])
    ]


EXPERIMENT = PaperExperiment("etth1", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
