"""What the runs of the conversions come to, as plain data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from conversion.arms import FINE_TUNED, ORIGINAL, ZERO_SHOT
from tsattn.leaderboard.statistics import ModelErrors, difference

__all__ = ["Records", "summary"]

Records = Mapping[tuple[Any, ...], Mapping[str, Any]]
"""Of runs, by part, number of the weights, data set and arm, as far as a part has these."""

HALF, SMALL_RISE, MOST_MASE = 0.5, 1.0, 1.01  # what is to be reached; a rise in percent


def summary(records: Records, data: Sequence[str], seeds: Sequence[int], horizon: int) -> dict[str, Any]:
    """All parts of which there are records."""
    return {
        "seen": sorted({key[2] for key, one in records.items() if one.get("seen")}),
        "output_errors": _output_errors(records, data, seeds),
        "zero_shot": _zero_shot(records, data, seeds),
        "targets": _targets(records, data, seeds),
        "structures": _structures(records, seeds),
        "fine_tuned": _fine_tuned(records, data, seeds, horizon),
        "attention_flops": next((records["flops", seed] for seed in seeds if ("flops", seed) in records), None),
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _output_errors(records: Records, data: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """By arm: the mean over data sets and layers by seed, and by layer; of data sets that all arms have."""
    found = {}
    for arm in ZERO_SHOT:
        runs = {
            seed: [records["zero_shot", seed, name, arm]["output_errors"] for name in data]
            for seed in seeds
            if all(("zero_shot", seed, name, arm) in records for name in data)
        }
        if runs:
            every = [one for group in runs.values() for one in group]
            by_seed = {seed: statistics.fmean(e for one in group for e in one.values()) for seed, group in runs.items()}
            by_layer = {layer: statistics.fmean(one[layer] for one in every) for layer in every[0]}
            found[arm] = {"mean": statistics.fmean(by_seed.values()), "by_seed": by_seed, "by_layer": by_layer}
    return found


def _zero_shot(records: Records, data: Sequence[str], seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row a data set and arm: WQL, MASE, and by how many percent the WQL rises over the original's, by seed."""
    rows = []
    for name in data:
        for arm in (ORIGINAL, *ZERO_SHOT):
            runs = {s: records["zero_shot", s, name, arm] for s in seeds if ("zero_shot", s, name, arm) in records}
            rises = {seed: rise for seed in runs if (rise := _rise(records, seed, name, arm)) is not None}
            if runs:
                row = {"data": name, "arm": arm, "seeds": len(runs), "windows": next(iter(runs.values()))["windows"]}
                row |= {metric: _mean([one[metric] for one in runs.values()]) for metric in ("wql", "mase")}
                rows.append({**row, "rise": _mean([*rises.values()]), "rise_by_seed": rises})
    return rows


def _rise(records: Records, seed: int, name: str, arm: str) -> float | None:
    own, plain = (records.get(("zero_shot", seed, name, one)) for one in (arm, ORIGINAL))
    return None if own is None or plain is None else 100 * (own["wql"] / plain["wql"] - 1)


def _targets(records: Records, data: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Each kind of `rotate` beside `copy`: its share of the errors of outputs, and of the rise of WQL.

    Half is to be reached; where the rise of `copy` is below one percent the outputs alone decide.
    """
    errors, found = _output_errors(records, data, seeds), {}
    for arm in ("rotate", "rotate_noise", "rotate_training"):
        if arm not in errors or "copy" not in errors:
            continue
        pairs = [[_rise(records, s, name, one) for one in (arm, "copy")] for s in seeds for name in data]
        both = [(one, other) for one, other in pairs if one is not None and other is not None]
        share = errors[arm]["mean"] / errors["copy"]["mean"]
        own, copied = _mean([one for one, _ in both]), _mean([other for _, other in both])
        is_small = own is None or copied is None or copied < SMALL_RISE
        met = share <= HALF and (is_small or own <= HALF * copied)  # type: ignore[operator]
        found[arm] = {"of_output_errors": share, "rise": own, "rise_of_copy": copied, "rise_counts": not is_small}
        found[arm]["met"] = met
    return found


def _structures(records: Records, seeds: Sequence[int]) -> dict[str, Any]:
    """By structure and share of the parameters: parameters of a head, and the mean errors."""
    runs = {seed: records["structures", seed]["structures"] for seed in seeds if ("structures", seed) in records}
    names = [*dict.fromkeys(name for one in runs.values() for name in one)]
    return {
        name: {
            "structure": name.partition(",")[0],
            "share": next(one[name]["share"] for one in runs.values() if name in one),
            "parameters": max(one[name]["parameters"] for one in runs.values() if name in one),
            "by_seed": {seed: one[name]["error"] for seed, one in runs.items() if name in one},
            **{
                column: statistics.fmean(one[name][column] for one in runs.values() if name in one)
                for column in ("error", "low_rank_error")
            },
        }
        for name in names
    }


def _fine_tuned(records: Records, data: Sequence[str], seeds: Sequence[int], horizon: int) -> dict[str, Any]:
    """Rows of a data set and arm, with MASE over that of the original by seed and the paired interval of the mean."""
    rows = []
    for name in data:
        for arm in FINE_TUNED:
            known = {s: records["fine_tuned", s, name, arm] for s in seeds if ("fine_tuned", s, name, arm) in records}
            if known:
                row = {"data": name, "arm": arm, "seeds": len(known)}
                row |= {metric: _mean([one[metric] for one in known.values()]) for metric in ("mase", "wql")}
                own = {s: one for s, one in known.items() if ("fine_tuned", s, name, ORIGINAL) in records}
                beside = {seed: records["fine_tuned", seed, name, ORIGINAL] for seed in own}
                if own and arm != ORIGINAL:
                    row |= paired([*own.values()], [*beside.values()], horizon)
                    row["by_seed"] = {seed: one["mase"] / beside[seed]["mase"] for seed, one in own.items()}
                rows.append(row)
    means = {}
    for arm in FINE_TUNED:
        ratios = [row["ratio"] for row in rows if row["arm"] == arm and "ratio" in row]
        if ratios:
            mean = statistics.fmean(ratios)
            means[arm] = {"ratio": mean, "data": len(ratios), "met": mean <= MOST_MASE}
    return {"rows": rows, "means": means}


def paired(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], horizon: int) -> dict[str, Any]:
    """The mean ratio of the MASE of runs to that of others of the same seeds and windows, with its interval of 95 %.

    It is missing with a single pair, or fewer than two blocks; see `tsattn.leaderboard.statistics`.
    """
    counts = np.array(runs[0]["counts"], np.float64)
    if any(one["counts"] != runs[0]["counts"] for one in (*runs, *others)):
        raise RuntimeError("runs that are compared were tested on different windows")
    # a pair starts from the same weights, whose luck it shares: each is measured by the level of its other
    own, other = (np.array([one["sums"] for one in group], np.float64) for group in (runs, others))
    levels, origins = other.mean(1, keepdims=True), np.arange(len(counts))
    table = {
        "own": ModelErrors(own / levels, counts, origins, tuple(range(len(runs)))),
        "other": ModelErrors((other / levels).mean(0, keepdims=True), counts, origins, (None,)),
    }
    found = difference([table], {"own": 1, "other": -1}, horizons=[horizon])
    low, high = (math.exp(end) for end in found.interval())
    known = {"ratio": math.exp(found.estimate), "pairs": len(runs), "blocks": found.blocks}
    return {**known, "low": None if math.isnan(low) else low, "high": None if math.isnan(high) else high}
