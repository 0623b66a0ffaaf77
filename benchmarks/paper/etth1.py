"""Whether multi-level attention forecasts ETTh1 with a lower error than standard attention.

    python benchmarks/paper/etth1.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Encoder transformers of two layers, whose tokens are single hours of all channels, forecast ETTh1 with standard
attention, MLR attention of 2, 4 and 8 levels, MLR attention whose blocks are the days of the calendar, sliding windows
and BTT. For every model the learning rate, one of a few, and the number of steps at that rate, 200 or 1000, have
the least validation error, mean of three seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

from benchmarks.paper.chosen_models import TABLES, compared_with_ridge, forecast_report
from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment, listed
from tsattn.leaderboard.analysis import STANDARD
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite

METRIC = "mae"
_WIDTH = 512  # of the paper


def report(records: Records, suite: Suite) -> PaperReport:

    def differs(chosen: pd.DataFrame) -> list[str]:
        dropout = " or ".join(f"{one:g}" for one in sorted(chosen["dropout"].dropna().unique())) or "0.1"
        return [
            f"Width {listed(chosen['width'])}, with {listed(chosen['hidden'])} hidden units of the token-wise networks,"
            f" trained in batches of {listed(chosen['batch_size'])} windows with a dropout of {dropout}, on contexts "
            f"of {listed(chosen['context'])} hours; the paper has a width of {_WIDTH}.",
            "The run of 1000 steps resumes the run of 200. All windows are scored after each.",
            "Trained on the squared error, and chosen and judged by the absolute one.",
            "Logits are divided by the root of the size of a head, whatever the levels, and queries and keys are as "
            "the projections give them, so that one level is standard attention exactly; the paper divides those of a "
            "level by its rank and normalises queries and keys.",
            "The eighth of eight levels has more blocks than a context of 96 hours has tokens, and the seventh two "
            "tokens a block at most: they add little but the score of a token with itself.",
            *_of_edges(chosen),
            *compared_with_ridge(records, chosen, METRIC),
            "BTT has another number of parameters of the scores than the other models, and begins with larger logits.",
            f"Blocks by days, sliding windows and BTT are not in the paper's table{_at_some_horizons(chosen)}.",
        ]

    return forecast_report(
        records,
        suite,
        METRIC,
        "Forecasts of ETTh1",
        __doc__,
        differs,
        tried="how many pairs of a rate and a number of steps there were, of which",
        by=" by horizon",
    )


def _of_edges(chosen: pd.DataFrame) -> list[str]:
    tables = chosen.groupby([*TABLES, "attention"])[["is_edge"]].first()
    at_edge = int(tables["is_edge"].sum())
    also = f", and all with {listed(chosen['steps'])} steps" if len(set(chosen["steps"])) == 1 else ""
    sentence = (
        f"{at_edge} of {len(tables)} choices of validation {'is' if at_edge == 1 else 'are'} at the edge of the "
        f"rates{also}: models that are trained as briefly as that are not at their best, and what they differ in might "
        "turn round."
    )
    return [sentence] if at_edge else []


def _at_some_horizons(chosen: pd.DataFrame) -> str:
    horizons = chosen.groupby("attention", sort=False)["horizon"].unique()
    return "".join(
        f"; {attention} is run at {listed(pd.Series(found))} steps alone"
        for attention, found in horizons.items()
        if STANDARD in horizons and len(found) < len(horizons[STANDARD])
    )


EXPERIMENT = PaperExperiment("etth1", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
