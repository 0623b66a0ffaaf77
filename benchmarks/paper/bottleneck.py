"""In eight dimensions, heads of too low a rank fail at regression in context where one head of full rank learns.

    python benchmarks/paper/bottleneck.py [--size small] [--jobs N] [--dry-run] [--report-only] [--output DIR]

The transformers of `in_context.py`, with twice the dimensions and 2.6 times the steps. Predicting 0 has an error of 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment
from benchmarks.paper.in_context import prompts_report
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite


def report(records: Records, suite: Suite) -> PaperReport:
    return prompts_report(records, suite, "The bottleneck of low rank", __doc__, ("One rate for all models.",))


EXPERIMENT = PaperExperiment("bottleneck", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
