"""Multi-level attention forecasts ETTh1 with a lower error than standard attention.

    python benchmarks/paper/etth1.py [--size small|full] [--jobs N] [--dry-run] [--report-only] [--output DIR]

Encoder transformers of two layers, whose tokens are single hours of all channels, forecast ETTh1 with standard
attention, MLR attention of 2, 4 and 8 levels, MLR attention whose blocks are the days of the calendar, sliding windows
and BTT. For every arm alike the learning rate, and after how many steps of a training at that rate it is taken, have
the least validation error.
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
from tsattn.leaderboard.standings import STANDARD

__all__ = ["EXPERIMENT", "main", "report"]

METRIC = "mae"
_LEVELS = {"mlr_2": "two levels", "mlr_4": "four levels"}


def report(records: Records) -> PaperReport:
    """The report of the records."""
    chosen = described_by(
        chosen_arms(records, METRIC),
        width="model.backbone.d_model",
        steps="trainer.max_steps",
        interval="trainer.val_check_interval",
        batch_size="data.init_args.batch_size",
    )
    compared = beside(records, chosen, STANDARD, METRIC)

    def each(column: str) -> str:
        return ", ".join(f"{value:g}" for value in sorted(chosen[column].dropna().unique()))

    return PaperReport(
        title="Forecasts of ETTh1",
        about=[" ".join((__doc__ or "").split("\n\n")[-1].split())],
        claims=[
            compared_claim(f"MLR attention of {words} has a lower MAE than standard attention.", compared, arm)
            for arm, words in _LEVELS.items()
        ],
        table=arms_table(records, chosen, compared),
        legend="MSE and MAE are those of scaled values over all test windows, the mean of the seeds, and `spread` the "
        "standard deviation over these; `%` is the MAE beside that of standard attention, with its paired interval; "
        "`rates` is of how many learning rates one was chosen.",
        figure=relative_figure(compared, STANDARD, METRIC),
        caption="The MAE beside that of standard attention by horizon, with intervals of 95 %.",
        differs=[
            f"Width {each('width')}, trained in batches of {each('batch_size')} windows; the paper has a width of 512.",
            f"Weights are taken after that multiple of {each('interval')} steps, up to {each('steps')}, which has the "
            "least validation error of the run; the paper tries 200 and 1000 steps.",
            "The learning rate is the best of 1e-5, 2e-4 and 5e-3, in the mean of the seeds.",
            "Intervals are over time and seeds; verdicts are corrected for the number of comparisons.",
        ],
    )


EXPERIMENT = PaperExperiment("etth1", __doc__ or "", report)


def main() -> int:
    return EXPERIMENT.main()


if __name__ == "__main__":
    sys.exit(main())
