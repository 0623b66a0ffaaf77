"""Measure how often the leaderboard's intervals hold the truth, and how often its verdicts find a difference.

    python benchmarks/interval_coverage.py

Simulates test errors with known differences, and counts. Writes `coverage.csv` and `coverage.md` in some minutes on one
core. `former_method.csv` beside them has the power of the method used before, measured once on the same simulation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import lfilter

from tsattn.leaderboard.statistics import Difference, Estimate, ModelErrors, difference, holm, over_data_sets

FOLDER = Path(__file__).parent / "results/statistics"
MODELS = ("standard", "swa", "btt", "mlr")
PAIR = {"mlr": 1.0, "standard": -1.0}
SEED_SD, TIME_SE = 0.01, 0.005  # relative to the error; the second of the difference of a pair
DIFFERENCES = (0.01, 0.02)
DEFAULT = "default"
SHARES = {"n/40": 1 / 40, "n/20": 1 / 20, "n/10": 1 / 10, "n/4": 1 / 4, DEFAULT: None}
MEMORY = 0.9  # of the steps' errors, AR(1)


@dataclass(frozen=True)
class Case:
    """A kind of test: how many origins each horizon has, and how models are trained."""

    name: str
    origins: Mapping[int, int]
    seeds: int
    spread: float = 1.0  # of mlr's seeds, in those of the others
    memory: float = MEMORY
    shares: Sequence[str] = (DEFAULT,)


SMALL = {12: 2400, 24: 2400, 48: 2400, 60: 2400}
ETTH1 = {96: 2785, 192: 2689, 336: 2545, 720: 2161}
CASES = [
    *(Case("four horizons", SMALL, seeds, shares=list(SHARES)) for seeds in (2, 5)),
    *(Case("unequal seed spread", SMALL, seeds, 3.0) for seeds in (2, 5)),
    *(Case("ETTh1's sizes", ETTH1, seeds) for seeds in (2, 5)),
    *(Case("one horizon", {48: 2400}, seeds) for seeds in (2, 3, 5)),
    *(Case("one horizon, unequal spread", {48: 2400}, seeds, 3.0) for seeds in (2, 3, 5)),
    Case("long memory", SMALL, 5, memory=0.99),
]


def steps(rng: np.random.Generator, count: int, memory: float) -> NDArray[np.float64]:
    """`(count,)` heavy-tailed values that remember each other, with variance 1."""
    noise = rng.standard_t(4, count + 500) / np.sqrt(2)
    return np.asarray(lfilter([np.sqrt(1 - memory**2)], [1, -memory], noise)[500:])


def windows(values: NDArray[np.float64], horizon: int, origins: int) -> NDArray[np.float64]:
    """`(origins,)` means over a horizon."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[horizon : horizon + origins] - sums[:origins]) / horizon


def time_scale(case: Case) -> float:
    """How large a model's own variation over time must be, for the standard error of a pair that we want."""
    of_mean = np.mean([np.sqrt((1 + case.memory) / (1 - case.memory) / count) for count in case.origins.values()])
    return float(TIME_SE / of_mean / np.sqrt(2))


def tables(case: Case, scale: float, rng: np.random.Generator) -> list[dict[str, ModelErrors]]:
    """One draw of a test in which all models are equally good."""
    length = max(horizon + count for horizon, count in case.origins.items())
    common, *own = (steps(rng, length, case.memory) for _ in range(1 + len(MODELS)))
    drawn = []
    for horizon, count in case.origins.items():
        level = np.maximum(1 + 0.3 * windows(common, horizon, count), 0.2) * (1 + horizon / 2000)
        table = {}
        for name, values in zip(MODELS, own, strict=True):
            sd = SEED_SD * (case.spread if name == "mlr" else 1)
            errors = level * np.maximum(1 + scale * windows(values, horizon, count), 0.05)
            sums = errors * (1 + sd * rng.standard_normal((case.seeds, 1)))
            table[name] = ModelErrors(sums, np.ones(count), np.arange(count), tuple(range(case.seeds)))
        drawn.append(table)
    return drawn


def moved(found: Estimate, by: float) -> Difference:
    """The same result had the first model's error been lower by a share: nothing else changes."""
    assert isinstance(found, Difference)
    return Difference(**{**vars(found), "estimate": found.estimate + np.log(1 - by)})


def measure(case: Case, draws: int) -> Iterator[dict[str, object]]:
    """Rows of the table, one for each length of blocks."""
    rng, scale, horizons = np.random.default_rng(len(case.name) * 10 + case.seeds), time_scale(case), [*case.origins]
    found: dict[str, list[Difference]] = {share: [] for share in case.shares}
    families = []
    for _ in range(draws):
        drawn = tables(case, scale, rng)
        for share in case.shares:
            block = {"block_share": SHARES[share]} if SHARES[share] else {}
            found[share].append(difference(drawn, PAIR, horizons=horizons, **block))
        others = [{name: 1.0, "standard": -1.0} for name in ("swa", "btt")]
        family = [found[DEFAULT][-1], *(difference(drawn, weights, horizons=horizons) for weights in others)]
        families.append(holm([one.p_value for one in family]).min() < 0.05)
    for share, results in found.items():
        yield {
            "case": case.name,
            "seeds": case.seeds,
            "blocks": share,
            **counted(results),
            "holm_family": np.mean(families) if share == DEFAULT else np.nan,
            **{f"power_{by:.0%}": np.mean([moved(one, by).verdict() == "better" for one in results]) for by in DIFFERENCES},
            "equal_within_1%": np.mean([one.verdict().startswith("equal") for one in results]),
            "median_df": np.median([one.df for one in results]),
        }


def counted(results: Sequence[Estimate]) -> dict[str, float]:
    """Coverage and false positives where the truth is 0."""
    held = np.mean([one.interval()[0] <= 0 <= one.interval()[1] for one in results])
    return {"coverage": float(held), "false_positives": float(np.mean([one.p_value < 0.05 for one in results]))}


def measure_claims(draws: int) -> Iterator[dict[str, object]]:
    """Rows for means over data sets, whose differences are uncertain by 0.2 to 2.8 %."""
    rng = np.random.default_rng(0)
    for sets in (7, 45):
        for between in (0.0, 0.012):
            claims = []
            for _ in range(draws):
                true = np.exp(rng.uniform(np.log(0.002), np.log(0.028), sets))
                errors = true * np.sqrt(rng.chisquare(10, sets) / 10)
                values = between * rng.standard_normal(sets) + true * rng.standard_normal(sets)
                pairs = zip(values, errors, strict=True)
                claims.append(
                    over_data_sets(
                        {
                            str(place): Estimate(estimate=float(value), standard_error=float(error), df=10)
                            for place, (value, error) in enumerate(pairs)
                        }
                    )
                )
            power = {
                f"power_{by:.0%}": np.mean([one.estimate + np.log(1 - by) + (one.interval()[1] - one.estimate) < 0 for one in claims])
                for by in DIFFERENCES
            }
            name = f"{sets} data sets, between-set sd {between:.1%}"
            yield {"case": name, **counted(claims), **power}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=FOLDER)
    options = parser.parse_args()
    rows = [row for case in CASES for row in measure(case, options.draws)]
    table = pd.DataFrame([*rows, *measure_claims(5 * options.draws)])
    table.to_csv(options.output / "coverage.csv", index=False, float_format="%.4f")
    print(table.to_string())


if __name__ == "__main__":
    main()
