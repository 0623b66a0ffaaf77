"""The scores of several predictors as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from tsattn.errors import number_of
from tsattn.evaluation import ErrorTable

__all__ = ["group_table", "score_table"]

_COVERAGE = "coverage_"


def score_table(title: str, tables: Mapping[str, ErrorTable]) -> str:
    """The scores, one predictor a line, the least scaled MSE marked.

    Where a predictor forecasts quantiles there are its WQL, its CRPS in original units, and the coverage of its central
    intervals in percent, which are blank for a point forecast, and the MASE of each.

    Args:
        title: stands above.
        tables: of errors, by what they are called.
    """
    scores = {name: table.scores() for name, table in tables.items()}
    best = min((one["mse_scaled"] for one in scores.values() if math.isfinite(one["mse_scaled"])), default=None)
    marked = {name for name, one in scores.items() if one["mse_scaled"] == best}
    notes = _left_out(max(map(_without_mase, scores.values()), default=0), scores)
    return "\n".join([*_lines(title, scores, marked), "", "* lowest scaled MSE", *notes])


def group_table(title: str, frame: pd.DataFrame, name: str) -> str:
    """The same scores of one predictor, one group a line; marked where its scaled MSE is below that of all others.

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
    lines = _lines(title, scores, marked, str(own.index.name))
    notes = _left_out(sum(map(_without_mase, scores.values())), scores)
    return "\n".join([*lines, "", f"* the scaled MSE of {name} is below that of every baseline", *notes])


def _without_mase(scores: Mapping[str, float]) -> float:
    return scores.get("mase_left_out", 0)


def _left_out(count: float, scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What stands under a table with MASE of targets that it leaves out."""
    if not count or not any("wql" in one for one in scores.values()):
        return []
    return [
        f"MASE leaves out {number_of(int(count), 'target')} of series without a seasonal error, such as constant ones"
    ]


def _lines(title: str, scores: Mapping[str, Mapping[str, float]], marked: set[str], head: str = "") -> list[str]:
    width = max(map(len, (head, *scores)))
    covered = list(
        dict.fromkeys(
            name for one in scores.values() for name in one if name.startswith(_COVERAGE) and name.count("_") == 1
        )
    )
    has_quantiles = any("wql" in one for one in scores.values())
    above = f"{'':{width}}  {'scaled':^17}  {'original units':^21}"
    heads = f"{head:{width}}  {'MSE':>8} {'MAE':>8}  {'MSE':>10} {'MAE':>10}"
    if has_quantiles:
        above += f"  {'':8}  {'quantiles':^19}{'  % inside' if covered else ''}"
        heads += f"  {'MASE':>8}  {'WQL':>8} {'CRPS':>10} " + "".join(
            f" {name.removeprefix(_COVERAGE):>5}" for name in covered
        )
    lines = [title, above, heads.rstrip()]
    for name, one in scores.items():
        mark = " *" if name in marked else ""
        line = f"{name:{width}}  {one['mse_scaled']:8.3f} {one['mae_scaled']:8.3f}"
        line += f"  {one['mse_original']:10.4g} {one['mae_original']:10.4g}"
        if has_quantiles:
            line += f"  {one['mase']:8.3f}"
        if "wql" in one:
            line += f"  {one['wql']:8.4f} {one['crps_original']:10.4g} "
            line += "".join(f" {100 * one[name]:5.1f}" for name in covered)
        lines.append(f"{line}{mark}")
    return lines
