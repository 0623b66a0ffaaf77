"""The scores of several predictors as text."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from tsattn.errors import number_of, rounded
from tsattn.evaluation import ErrorTable
from tsattn.evaluation.reductions import short_name

__all__ = ["group_table", "score_table", "verdict"]

_SCALED = ("mse_scaled", "mae_scaled", "mase", "crps_scaled")
_DETAILS = ("mse_original", "mae_original", "rmse_original", "crps_original", "smape", "wape", "wql")


def score_table(title: str, tables: Mapping[str, ErrorTable], *, detail: bool = False) -> str:
    """The scores, one predictor a line, the least scaled MSE marked.

    MSE, MAE and CRPS are on the scale that is trained on. CRPS and the coverage of the central intervals in percent are
    blank for a point forecast, and left out where nothing forecasts quantiles.

    Args:
        title: stands above.
        tables: of errors, by what they are called.
        detail: add a second table: scores in original units, sMAPE, WAPE and WQL.
    """
    scores = {name: table.scores() for name, table in tables.items()}
    best = min((one["mse_scaled"] for one in scores.values() if math.isfinite(one["mse_scaled"])), default=None)
    marked = {name for name, one in scores.items() if one["mse_scaled"] == best}
    notes = _left_out(max(map(_without_mase, scores.values()), default=0))
    lines = [title, *_lines(scores, marked)]
    lines += ["", "in original units", *_lines(scores, columns=_DETAILS)] if detail else []
    more = "" if detail else "; --detail adds original units"
    return "\n".join([*lines, "", f"* lowest MSE. MSE, MAE, CRPS: standardised scale{more}", *notes])


def group_table(title: str, frame: pd.DataFrame, name: str) -> str:
    """Scores of one predictor, one group a line; marked where its scaled MSE is the least of all predictors.

    Args:
        title: stands above.
        frame: of `tsattn.evaluation.scores_by`.
        name: of the predictor.
    """
    own = frame.loc[name]
    # in both, the groups are in one order
    others = [frame.loc[other]["mse_scaled"].to_numpy() for other in frame.index.unique(0) if other != name]
    is_best = np.all([own["mse_scaled"].to_numpy() < other for other in others], axis=0)
    scores = {str(label): {str(key): value for key, value in row.items()} for label, row in own.iterrows()}
    marked = {label for label, is_marked in zip(scores, np.broadcast_to(is_best, len(own)), strict=True) if is_marked}
    notes = _left_out(sum(map(_without_mase, scores.values())))
    lines = [title, *_lines(scores, marked, str(own.index.name))]
    return "\n".join([*lines, "", "* lower MSE than every baseline", *notes])


def verdict(tables: Mapping[str, ErrorTable], context_length: int | None) -> list[str]:
    """Compare the scaled MSE of the first predictor with the baselines, in sentences.

    Args:
        tables: of errors, by what they are called.
        context_length: steps that the first predictor sees, if `--data.context_length` sets them; else None.
    """
    name, *others = tables
    mse = {one: table.scores()["mse_scaled"] for one, table in tables.items()}
    naive = next((one for one in others if one.startswith("seasonal naive")), "persistence")
    ridge = re.search(r"^ridge \(context (\d+).*", "\n".join(others), re.MULTILINE)
    called = {naive: naive.partition(" (")[0], **({ridge[0]: "the linear model"} if ridge else {})}
    parts = [
        f"{_change(mse[name] / mse[one])} {what}" for one, what in called.items() if one in others and mse[one] > 0
    ]
    said = [f"{name}: MSE {', '.join(parts)}."] if parts else []
    if said and ridge and context_length is not None and mse[ridge[0]] < mse[name] and int(ridge[1]) > context_length:
        said.append(
            f"The linear model saw {ridge[1]} steps, yours {context_length}; try --data.context_length {ridge[1]}."
        )
    return said


def _change(ratio: float) -> str:
    percent = round(100 * abs(ratio - 1))
    return f"{percent} % {'below' if ratio < 1 else 'above'}" if percent else "within 0.5 % of"


def _without_mase(scores: Mapping[str, float]) -> float:
    return scores.get("mase_left_out", 0)


def _left_out(count: float) -> list[str]:
    """The note under a table whose MASE leaves out targets."""
    targets = number_of(int(count), "target")
    return [f"MASE leaves out {targets} of series without a seasonal error, such as constant ones"] if count else []


def _lines(
    scores: Mapping[str, Mapping[str, float]],
    marked: Collection[str] = (),
    head: str = "",
    columns: Sequence[str] = _SCALED,
) -> list[str]:
    names = dict.fromkeys(name for one in scores.values() for name in one)
    covered = [name for name in names if name.startswith("coverage_") and name.count("_") == 1]
    shown = [name for name in (*columns, *(covered if columns is _SCALED else ())) if name in names]
    rows = {head: [*map(short_name, shown)]}
    rows |= {name: [_cell(score, one.get(score)) for score in shown] for name, one in scores.items()}
    widths = [max(8, 2 + max(map(len, column))) for column in zip(*rows.values(), strict=True)]
    width = max(map(len, rows))
    return [
        f"{name:{width}}{''.join(map(str.rjust, cells, widths))}{' *' if name in marked else ''}".rstrip()
        for name, cells in rows.items()
    ]


def _cell(score: str, value: float | None) -> str:
    return "" if value is None else rounded(value)
