"""The scores of several predictors as text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tsattn.evaluation import ErrorTable

__all__ = ["score_table"]

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
    width = max(map(len, scores))
    covered = list(
        dict.fromkeys(
            name for one in scores.values() for name in one if name.startswith(_COVERAGE) and name.count("_") == 1
        )
    )
    has_quantiles = any("wql" in one for one in scores.values())
    above = f"{'':{width}}  {'scaled':^17}  {'original units':^21}"
    heads = f"{'':{width}}  {'MSE':>8} {'MAE':>8}  {'MSE':>10} {'MAE':>10}"
    if has_quantiles:
        above += f"  {'':8}  {'quantiles':^19}{'  % inside' if covered else ''}"
        heads += f"  {'MASE':>8}  {'WQL':>8} {'CRPS':>10} " + "".join(
            f" {name.removeprefix(_COVERAGE):>5}" for name in covered
        )
    lines = [title, above, heads.rstrip()]
    for name, one in scores.items():
        mark = " *" if one["mse_scaled"] == best else ""
        line = f"{name:{width}}  {one['mse_scaled']:8.3f} {one['mae_scaled']:8.3f}"
        line += f"  {one['mse_original']:10.4g} {one['mae_original']:10.4g}"
        if has_quantiles:
            line += f"  {one['mase']:8.3f}"
        if "wql" in one:
            line += f"  {one['wql']:8.4f} {one['crps_original']:10.4g} "
            line += "".join(f" {100 * one[name]:5.1f}" for name in covered)
        lines.append(f"{line}{mark}")
    return "\n".join([*lines, "", "* lowest scaled MSE"])
