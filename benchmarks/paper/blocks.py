"""Which blocks MLR attention is given: by number, by the calendar, or cut at change points of the context.

    python benchmarks/paper/blocks.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Transformers whose tokens are single steps forecast ETTm1 and the demand of Victoria 96 steps ahead from long contexts.
MLR attention has a level of all pairs and one of blocks: as many as days by number, the days of the calendar (UTC), or
as many pieces cut where the level of the context changes most. Beside it are standard attention, windows of a day,
and linear attention (Katharopoulos et al. 2020), a reference without a softmax.
"""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a file, which finds what lies beside it but not the folder above
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.paper.chosen_arms import arms_table, beside, chosen_arms, compared_claim, relative_figure
from benchmarks.paper.claims import PaperReport, described_by
from benchmarks.paper.experiment import PaperExperiment
from tsattn.leaderboard.records import Records

__all__ = ["EXPERIMENT", "main", "report"]

METRIC = "mse"

_QUESTIONS = (
    ("numbers", "standard", "Blocks by number forecast better than standard attention."),
    ("days", "standard", "Blocks by the calendar forecast better than standard attention."),
    ("change_points", "standard", "Blocks cut at change points forecast better than standard attention."),
    ("days", "numbers", "The days of the calendar are better blocks than as many of equal length."),
    ("change_points", "numbers", "Pieces between change points are better blocks than as many of equal length."),
    ("linear", "standard", "Linear attention forecasts better than standard attention (a reference)."),
)


def report(records: Records) -> PaperReport:
    """The report of the records."""
    chosen = chosen_arms(records, METRIC)
    compared = {name: beside(records, chosen, name, METRIC) for name in dict.fromkeys(one for _, one, _ in _QUESTIONS)}
    sizes = described_by(
        chosen, width="model.backbone.d_model", context="data.init_args.context_length", steps="trainer.max_steps"
    )

    def each(column: str) -> str:
        return ", ".join(f"{value:g}" for value in sorted(sizes[column].dropna().unique()))

    return PaperReport(
        title="Which blocks",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[compared_claim(text, compared[reference], arm) for arm, reference, text in _QUESTIONS],
        table=arms_table(records, chosen, compared["standard"]),
        legend="MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the "
        "standard deviation over these; `%` is the MSE beside that of standard attention, with its paired interval.",
        figure=relative_figure(compared["standard"], "standard", METRIC),
        caption="The MSE beside that of standard attention, with intervals of 95 %.",
        differs=[
            "The paper cuts blocks by number, and leaves others open.",
            f"Contexts of {each('context')} steps, width {each('width')}, {each('steps')} training steps.",
        ],
        asked_by="what the paper leaves open",
    )


EXPERIMENT = PaperExperiment("blocks", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
