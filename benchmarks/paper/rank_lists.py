"""How many levels multi-level attention needs, what a smaller cache of keys costs, and whether heads may share keys.

    python benchmarks/paper/rank_lists.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

The language models of `language.py` at one width and rate, with MLR attention of 2, 4 and 8 levels, whose keys take
0.75, 0.47 and 0.25 of the cache of standard attention, with the paper's list of ranks (0.60), and with four heads that
have keys of their own or share them in pairs.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment
from benchmarks.paper.language import WHAT, language_runs, shared_differences
from benchmarks.paper.pairs import paired_report
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite


def _differs(models: pd.DataFrame) -> list[str]:
    return [*shared_differences(models), "One rate for all, chosen by validation for each attention of `language.py`."]


def report(records: Records, suite: Suite) -> PaperReport:
    return paired_report(
        language_runs(records), suite, "Levels, caches and shared keys", __doc__, _differs, what=WHAT, is_log=False
    )


EXPERIMENT = PaperExperiment("rank_lists", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
