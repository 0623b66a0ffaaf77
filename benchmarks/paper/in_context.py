"""Whether heads of too low a rank lag behind BTT and bilinear MLR at regression in context.

    python benchmarks/paper/in_context.py [--size small|h100] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers are trained on prompts of 2 d pairs `(x, w . x)`, and scored by the error of the last value of 3200 new
prompts, over d: predicting 0 has an error of 1. Of each model the learning rate is chosen by validation.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pandas as pd
import torch

from benchmarks.paper.claims import PaperReport
from benchmarks.paper.experiment import PaperExperiment, listed, runs_of
from benchmarks.paper.pairs import paired_report
from tsattn.attention import build_attention
from tsattn.errors import UserError
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import Suite

_WHAT = (
    "it is the squared error of the last value, over d; `rank` is that of the bilinear form of a head, at most; "
    "`scores` is how many parameters queries and keys of a layer have; flops are those of a forward pass of one prompt"
)


def prompts_report(
    records: Records, suite: Suite, title: str, doc: str | None, differs: tuple[str, ...] = ()
) -> PaperReport:
    """Report an experiment on prompts."""
    runs = runs_of(records)
    d = runs["dimensions"].astype("float64")
    described = (json.dumps(one.get("attention")) for one in runs["backbone"])
    sizes = [sizes_of(*one) for one in zip(described, runs["width"], runs["heads"], strict=True)]
    runs = runs.assign(error=runs["mse"] / d, validation=runs["validation_mse"] / d, cost=runs["flops"])
    runs = runs.assign(rank=[one[0] for one in sizes], scores=[one[1] for one in sizes])

    def all_differ(models: pd.DataFrame) -> list[str]:
        falls = "falls along a cosine after its warm-up." if "cosine" in set(models["schedule"]) else "is constant."
        follow = "follow" if models["mup"].any() else "do not follow"
        return [
            f"d {listed(models['dimensions'])}, widths {listed(models['width'])}, {listed(models['layers'])} layers, "
            f"{listed(models['steps'])} steps of {listed(models['batch_size'])} prompts. The paper has d from 16 to "
            "128, widths from 16 to 1024, 6 layers and 500,000 steps of 64.",
            f"The learning rate, one of {listed(runs['learning_rate'])}, {falls} The structured models {follow} the "
            "muP rules.",
            "BTT normalises its mapped keys, and no other model its queries or keys.",
            "Models of one width differ in the parameters of their scores (column `scores`).",
            "Standard attention begins with logits of about a third of those of BTT, MLBTC and one level of bilinear "
            "MLR, of which L levels begin with sqrt(L) times those: part of what they gain may be that.",
            *differs,
        ]

    return paired_report(runs, suite, title, doc, all_differ, what=_WHAT, columns=("rank", "scores"))


@cache
def sizes_of(attention: str, width: float | None, heads: float | None) -> tuple[float | None, ...]:
    """Return the most that the rank of a head's bilinear form can be, and the parameters of the scores of a layer."""
    described = json.loads(attention)
    if not isinstance(described, dict):
        return None, None
    torch.manual_seed(0)
    try:
        projection = build_attention(described, d_model=int(width or 0), num_heads=int(heads or 0)).projection
    except UserError:  # it does not apply
        return None, None
    return int(torch.linalg.matrix_rank(projection.double().to_dense()[0])), projection.num_params()


def report(records: Records, suite: Suite) -> PaperReport:
    return prompts_report(records, suite, "In-context regression", __doc__)


EXPERIMENT = PaperExperiment("in_context", __doc__ or "", report)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
