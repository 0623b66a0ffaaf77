"""Multi-level attention makes more of the same computation in language models than standard attention and windows do.

    python benchmarks/paper/language.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Causal transformers of six layers, whose heads have 64 components, read pieces of a text character by character (bytes
of UTF-8; by default the documentation strings of Python's standard library). Their loss is the cross-entropy of the
next character, on text that chose nothing; of each model and width the learning rate is chosen by validation.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd

from benchmarks.paper.character_transformer import forward_flops
from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment, listed, runs_of
from benchmarks.paper.pairs import paired_report
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite

NAMES = {
    "standard": "standard attention",
    "mlr": "MLR attention",
    "swa": "sliding windows",
    "global_swa": "global attention with sliding windows",
}
WHAT = (
    "it is the cross-entropy in nats a character; flops are those of a forward pass of one piece without the read-out, "
    "in closed form"
)


def language_runs(records: Records) -> pd.DataFrame:
    """Return the runs with their loss and their flops in closed form, which count alike for all attentions."""
    runs = runs_of(records)
    described = zip(runs["backbone"], runs["horizon"], runs["status"], strict=True)
    costs = [float(forward_flops(one, int(T))) if status == "done" else None for one, T, status in described]
    return runs.assign(error=runs["mae"], validation=runs["validation_mae"], cost=costs)


def shared_differences(models: pd.DataFrame) -> list[str]:
    return [
        f"Pieces of {listed(models['horizon'])} characters, widths {listed(models['width'])}, "
        f"{listed(models['layers'])} layers, {listed(models['steps'])} steps of {listed(models['batch_size'])} pieces. "
        "The paper has 6 layers and pieces of 1024 tokens of OpenWebText, and trains so long that far context pays: a "
        "few hundred steps teach little but the use of near characters.",
        "Bytes in the place of tokens of several characters.",
        "Logits are scaled by 1 / sqrt(r) of the head; queries and keys are not normalised. The paper's MLR attention "
        "scales the logits of a level by 1 / r_l, divides by the number of levels that a pair shares, and normalises "
        "queries and keys.",
    ]


def _differs(models: pd.DataFrame) -> list[str]:
    return [
        *shared_differences(models),
        "The weights of the two parts of global attention with sliding windows are averaged; the authors add them.",
        "Attentions are compared at the same width: that with the lower loss counts if it has no more flops.",
    ]


def report(records: Records, suite: Suite) -> PaperReport:
    how = {"what": WHAT, "is_log": False, "by_cost": True}
    return paired_report(language_runs(records), suite, "Language models", __doc__, _differs, **how)


EXPERIMENT = PaperExperiment("language", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
