"""Which form of MLBTC learns in context: low rank, levels of blocks, shuffled levels, at equal parameters.

    python benchmarks/paper/mlbtc_prompts.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers are trained on the prompts of `in_context.py` with scores of one, two or more levels that are of low rank,
block-diagonal (bilinear MLR) or shuffled between their two factors (BTT). A form is named after its levels: `mlr_1_2`
has levels of 1 and 2 blocks, `shuffled_4x2` has 4 blocks left and 2 right, `rank_1_and_2x2` a level of rank 1 and a
shuffled one.
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
    differs = ("The paper defines the family, and tries its members BTT and bilinear MLR.",)
    return prompts_report(records, suite, "Which form of MLBTC learns in context", __doc__, differs)


EXPERIMENT = PaperExperiment("mlbtc_prompts", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
