"""The records of the suite `accuracy` as a page: each change compared with its base.

    tsattn benchmark --suite accuracy
    python benchmarks/accuracy.py

A network is compared with `base`, another attention with standard attention of the same predictor, a mean of seeds with
one training, and `base` itself with the ridge.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from measuring import RESULTS, new_parser

from tsattn.errors import UserError
from tsattn.leaderboard.analysis import METRICS, STANDARD, Analysis
from tsattn.leaderboard.page import PageTable, interval_text, made
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.suite import label
from tsattn.saved_folders import write_text

BASE, RIDGE = label("base", STANDARD), "ridge"
HEADS = ("change", "compared with", "MSE", "difference in MSE (95 % interval)", "verdict", "in MAE", "verdict")


def base_of(analysis: Analysis, model: str) -> str:
    """Return what a model changes."""
    predictor, attention = analysis.parts[model]
    if attention != STANDARD:
        return label(predictor, STANDARD)
    return RIDGE if model == BASE else BASE


def section(analysis: Analysis, dataset: str) -> list[str]:
    models, rows = analysis.models[dataset], []
    networks = [one for one in models if "ensemble" not in analysis.kinds[one]]
    decided = {f"{verdict} in {metric.upper()}": [] for metric in METRICS for verdict in ("better", "worse")}
    for model in models:
        if model == RIDGE:
            continue
        base = base_of(analysis, model)
        alike = [one for one in models if (one in networks) == (model in networks)]
        row = [f"`{model}`", f"`{base}`", f"{analysis.score(dataset, model):.3f}"]
        for metric in METRICS:
            found = analysis.difference(dataset, [model], base, metric, alike=alike)
            verdict = found.verdict(analysis.margin([dataset]))
            row += [interval_text(found), verdict]
            decided.get(f"{verdict} in {metric.upper()}", []).append(f"`{model}`")
        rows.append(row)
    said = [f"- {verdict[0].upper()}{verdict[1:]}: {', '.join(names) or 'none'}." for verdict, names in decided.items()]
    ridge = f"The ridge has an MSE of {analysis.score(dataset, RIDGE):.3f}."
    return [f"## {dataset}", "", *said, "", ridge, "", PageTable(HEADS, rows).markdown, ""]


def page(analysis: Analysis) -> str:
    comparisons = sum(len(METRICS) * (len(models) - 1) for models in analysis.models.values())
    head = (
        f"Each change is compared with its base, at horizon {analysis.horizons[analysis.datasets[0]][0]}. "
        "Intervals include what another test period and other seeds would change. "
        f"Nothing is corrected: of {comparisons} comparisons, chance alone decides about {comparisons / 20:.0f}."
    )
    lines = ["# What helps PatchTST", "", head, ""]
    lines += [line for dataset in analysis.datasets for line in section(analysis, dataset)]
    lines += ["## How it was made", "", *(f"- {sentence}" for sentence in made(analysis))]
    return "\n".join([*lines, "- This page: `python benchmarks/accuracy.py`."]) + "\n"


def main(words: Sequence[str] | None = None) -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--records", type=Path, default=RESULTS / "accuracy", help="folder of the records")
    options = parser.parse_args(words)
    try:
        text = page(Analysis(Records.read(options.records)))
    except UserError as error:
        parser.error(str(error))
    output = options.records.with_suffix(".md")
    write_text(output, text)
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
