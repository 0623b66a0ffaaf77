"""The keys of a search space: what its reader takes, and what the reference says of each."""

from __future__ import annotations

__all__ = ["CATEGORICAL", "NUMBER", "PARAMETER", "SEARCH"]

SEARCH = {
    "parameters": "what is searched for: a mapping of a configuration's dotted paths to what each may be",
    "objectives": "`[error]` by default; beside it `flops`, `parameters`, `seconds` or `memory`, for a Pareto front",
    "constraints": "the most of `parameters`, `flops` or `memory` that a trial may have: `{memory: 2 GB}`",
    "sampler": "`tpe` by default, `random`, or `grid`, which tries every combination",
    "pruner": "`median` by default, which ends trials that fall behind, or `none`",
}
PARAMETER = {
    "type": "`float`, `int` or `categorical`",
    "low": "the least value of a number",
    "high": "the greatest, included",
    "log": "whether a number is drawn evenly on a logarithmic scale; `false` by default",
    "step": "the distance of the values of a number",
    "choices": "of a categorical one: a list of values, or a mapping of names to values",
    "when": "values of other parameters for which this one is there: `{attention.kind: mlr}`",
}
CATEGORICAL = tuple(key for key in PARAMETER if key not in ("low", "high", "log", "step"))
NUMBER = tuple(key for key in PARAMETER if key != "choices")
