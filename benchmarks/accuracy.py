"""What helped the suite `accuracy` and what did not: its records as a page, each arm beside what it changes.

    python -m tsattn benchmark --suite accuracy --output benchmarks/results/accuracy
    python benchmarks/accuracy.py

Each arm stands beside the one that it differs from in one thing: a network beside `base`, another attention beside
standard attention of the same predictor, a mix beside its first member alone, and closed forms and `base` beside the
ridge. Differences are paired, and corrected for all that are made, see `tsattn.leaderboard.comparisons`. What is said
to have helped follows from their verdicts; arms that were planned and have no record are listed as not run.

Writes `accuracy.md`, beside the folder of the records unless `--output` names another file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from peer_speed.tables import row_of

from tsattn.cli.benchmark import find_suite
from tsattn.errors import UserError, number_of
from tsattn.leaderboard.comparisons import Pair, compare_pairs
from tsattn.leaderboard.own_seconds import own_seconds
from tsattn.leaderboard.records import Records
from tsattn.leaderboard.report.wording import DASH, listed, percent, rough_percent, score_pair, with_spread
from tsattn.leaderboard.standings import RIDGE, STANDARD, RankedArm, Standings
from tsattn.leaderboard.suite import Arm, Suite
from tsattn.leaderboard.suite_file import read_suite
from tsattn.predictors import build_predictor
from tsattn.saved_folders import write_text

RECORDS = Path(__file__).parent / "results" / "accuracy"
BASE = RankedArm("base", STANDARD)
_VALIDATION = ["validation_mse", "validation_mae"]
_HEADS = ("arm", "beside", "runs", "validation MSE / MAE", "test MSE", "test MAE", "MSE beside", "is", "MAE beside")
_HEADS += ("is", "runs below", "seconds")


@dataclass(frozen=True)
class Tried:
    """An arm that a suite has at a data set and horizon, and what it stands beside."""

    dataset: str
    horizon: int
    arm: RankedArm
    beside: RankedArm

    @property
    def pair(self) -> Pair:
        return Pair(self.dataset, self.horizon, self.arm, self.beside)


def planned(suite: Suite) -> list[Tried]:
    """All that is in a suite, but for the ridge, which stands beside nothing; by data set."""
    found = []
    for name, data in suite.data.items():
        for horizon in suite.horizons:
            for predictor in suite.predictors.values():
                for attention in _attentions(suite, predictor):
                    arm = RankedArm(predictor.name, attention)
                    parts = [data.limits, predictor.limits]
                    parts += [suite.attentions[attention].limits] if attention else []
                    allowed = all(one.allow(name, horizon, predictor.name, attention) for one in parts)
                    if allowed and arm != RankedArm(RIDGE):
                        found.append(Tried(name, horizon, arm, _beside(suite, arm)))
    return found


def _attentions(suite: Suite, predictor: Arm) -> list[str]:
    """Those that a predictor is run with; an empty one where it has no slot."""
    parts = [suite.predictors[one] for one in predictor.mix.of] if predictor.mix is not None else [predictor]
    kinds = [build_predictor(part.backbone) for part in parts if part.backbone is not None and part.has_attentions]
    return [*suite.attentions] if any("attention" in kind.arguments for kind in kinds) else [""]


def _beside(suite: Suite, arm: RankedArm) -> RankedArm:
    mix = suite.predictors[arm.predictor].mix
    if arm.attention and arm.attention != STANDARD:
        return RankedArm(arm.predictor, STANDARD)
    if mix is not None and arm.attention:
        return RankedArm(mix.of[0], arm.attention)
    backbone = suite.predictors[arm.predictor].backbone
    is_closed = mix is not None or (backbone is not None and not build_predictor(backbone).is_trained)
    return RankedArm(RIDGE) if is_closed or arm == BASE else BASE


def rows(suite: Suite, board: Standings, resamples: int | None = None) -> pd.DataFrame:
    """A row for all that was planned.

    Returns:
        ``dataset``, ``horizon``, ``arm``, ``beside``, ``reason`` (why it has no score; empty where it has), ``runs``,
        ``validation_mse`` and so on (means over seeds, with ``mse_spread`` and ``mae_spread``), ``seconds``,
        ``runs_below`` (how many of its runs have a lower test MSE than the other's run of that seed, of how many), and
        of each comparison ``mse_percent``, ``mse_low``, ``mse_high``, ``mse_detectable`` (all in percent) and
        ``mse_verdict``, ``mse_freedom``; the same for MAE. NaN or None where there is nothing.
    """
    plan = planned(suite)
    there = [one for one in plan if {one.arm, one.beside} <= {*board.arms_of(one.dataset, one.horizon)}]

    def alike(arm: RankedArm) -> str:
        """All networks are of nearly the same size; what is mixed with a ridge has less luck, or none."""
        return "network" if suite.predictors[arm.predictor].mix is None else "mix"

    compared = compare_pairs(board, [one.pair for one in there], resamples=resamples, alike=alike)
    known = {
        (one.dataset, one.horizon, RankedArm(one.predictor, one.attention), one.metric): one
        for one in compared.itertuples(index=False)
    }
    found = []
    for one in plan:
        runs, others = (board.runs(one.dataset, one.horizon, arm) for arm in (one.arm, one.beside))
        row: dict[str, Any] = {"dataset": one.dataset, "horizon": one.horizon, "arm": one.arm, "beside": one.beside}
        row |= {"reason": "" if len(runs) else _reason(board, one), "runs": len(runs)}
        row |= {name: runs[name].astype(float).mean() for name in ("mse", "mae", *_VALIDATION, "seconds")}
        row |= {f"other_{name}": others[name].astype(float).mean() for name in ("mse", *_VALIDATION)}
        row |= {f"{metric}_spread": runs[metric].std() for metric in ("mse", "mae")}
        row["runs_below"] = _below(runs, others)
        for metric in ("mse", "mae"):
            this = known.get((one.dataset, one.horizon, one.arm, metric))
            row[f"{metric}_verdict"] = "" if this is None else this.verdict
            row[f"{metric}_freedom"] = np.nan if this is None else this.seed_freedom
            for name in ("percent", "percent_low", "percent_high", "percent_detectable"):
                short = name.removeprefix("percent_")
                row[f"{metric}_{short}"] = np.nan if this is None else getattr(this, name)
        found.append(row)
    return pd.DataFrame(found)


def _reason(board: Standings, one: Tried) -> str:
    entries = board.entries
    names = {"dataset": one.dataset, "horizon": one.horizon}
    names |= {"predictor": one.arm.predictor, "attention": one.arm.attention}
    own = entries[np.logical_and.reduce([entries[name] == value for name, value in names.items()])]
    return "not run" if own.empty else f"{own['status'].iloc[0]}: {own['reason'].iloc[0]}"


def _below(runs: pd.DataFrame, others: pd.DataFrame) -> str:
    """Of the runs with a run of the same seed beside them, or all beside what has none, those with the lower MSE."""
    if runs.empty or others.empty:
        return DASH
    of_seed = {seed: mse for seed, mse in zip(others["seed"], others["mse"], strict=True) if not pd.isna(seed)}
    pairs = [
        (mse, of_seed.get(seed) if of_seed else others["mse"].iloc[0])
        for seed, mse in zip(runs["seed"], runs["mse"], strict=True)
    ]
    there = [(mse, other) for mse, other in pairs if other is not None]
    return f"{sum(mse < other for mse, other in there)} of {len(there)}" if there else DASH


def _named(arm: RankedArm) -> str:
    return f"`{arm.predictor}`" if arm.attention in ("", STANDARD) else f"`{arm.predictor}` with {arm.attention}"


def _verdict(row: Any, metric: str) -> str:
    """In bold where it is none of no difference."""
    word = getattr(row, f"{metric}_verdict") or DASH
    return f"**{word}**" if word in ("better", "worse") else word


def _difference(row: Any, metric: str) -> str:
    middle, low, high = (getattr(row, f"{metric}_{name}") for name in ("percent", "low", "high"))
    if np.isnan(middle):
        return DASH
    return percent(middle) if np.isnan(low) else f"{percent(middle)} ({percent(low)} to {percent(high)})"


def table(part: pd.DataFrame, board: Standings) -> list[str]:
    """One data set and horizon, the ridge first."""
    lines = [row_of(_HEADS), row_of(["---"] * len(_HEADS))]
    dataset, horizon = part["dataset"].iloc[0], part["horizon"].iloc[0]
    ridge = board.runs(dataset, horizon, RankedArm(RIDGE))
    if len(ridge):
        one = ridge[["mse", "mae", *_VALIDATION, "seconds"]].astype(float).iloc[0]
        scores = score_pair(*one[_VALIDATION]), with_spread(one["mse"], np.nan), with_spread(one["mae"], np.nan)
        lines.append(row_of(["`ridge`", DASH, 1, *scores, *[DASH] * 5, f"{one['seconds']:.0f}"]))
    for row in part.itertuples():
        if row.reason:
            lines.append(row_of([_named(row.arm), _named(row.beside), row.reason, *[DASH] * (len(_HEADS) - 3)]))
            continue
        scores = score_pair(row.validation_mse, row.validation_mae), with_spread(row.mse, row.mse_spread)
        cells = [_named(row.arm), _named(row.beside), row.runs, *scores, with_spread(row.mae, row.mae_spread)]
        cells += [cell for metric in ("mse", "mae") for cell in (_difference(row, metric), _verdict(row, metric))]
        lines.append(row_of([*cells, row.runs_below, f"{row.seconds:.0f}"]))
    return lines


def findings(part: pd.DataFrame) -> Iterator[str]:
    """Sentences on one data set and horizon, from the verdicts."""
    for metric in ("mse", "mae"):
        word = part[f"{metric}_verdict"]
        better, worse, ties, single = (part[word == one] for one in ("better", "worse", "tie", "one seed"))
        parts = [f"{_changes(better, metric)} helped", f"{_changes(worse, metric)} did harm"]
        if not len(better) + len(worse) + len(ties):
            parts = ["nothing was judged"]
        if len(ties):
            least, names = ties[f"{metric}_detectable"], listed([_named(arm) for arm in ties["arm"]])
            parts.append(
                f"of {number_of(len(ties), 'arm')} it could not be told: {names}; differences would have been detected "
                f"from {rough_percent(least.min())} to {rough_percent(least.max())} on"
            )
        yield f"**{metric.upper()}**: {'; '.join(parts)}."
        leads = ties[(ties[f"{metric}_low"] > 0) | (ties[f"{metric}_high"] < 0)]
        if len(leads):
            yield (
                "Leads, no findings, as their intervals are without 0 before the correction alone: "
                f"{_changes(leads, metric)}."
            )
        if len(single):
            yield f"Single trainings, whose seed may be all there is to them: {_changes(single, metric)}."
    silent = part[part["mse_verdict"].isin(["", "no interval"]) & (part["reason"] == "")]
    if len(silent):
        yield f"Without an interval: {listed([_named(arm) for arm in silent['arm']])}."
    absent = part[part["reason"] != ""]
    if len(absent):
        yield f"Planned, and without a score: {listed([_named(arm) for arm in absent['arm']])}."
    yield from _validation(part[part["reason"] == ""])


def _changes(part: pd.DataFrame, metric: str) -> str:
    names = [
        f"{_named(row.arm)} ({percent(getattr(row, f'{metric}_percent'))} beside {_named(row.beside)})"
        for row in part.itertuples()
    ]
    return listed(names) or "nothing"


def _validation(part: pd.DataFrame) -> Iterator[str]:
    """Whether validation would have said so."""
    beside = part.dropna(subset=["mse", "other_mse", "validation_mse", "other_validation_mse"])
    if len(beside) > 1:
        said = np.sign(beside["validation_mse"] - beside["other_validation_mse"])
        came = np.sign(beside["mse"] - beside["other_mse"])
        own = beside[["arm", "validation_mse", "mse"]]
        ridge = beside.loc[beside["beside"] == RankedArm(RIDGE), ["beside", "other_validation_mse", "other_mse"]]
        arms = pd.concat([own, ridge.set_axis(own.columns, axis=1)[:1]], ignore_index=True)
        rank = arms["validation_mse"].corr(arms["mse"], method="spearman")
        chosen, best = (arms.loc[arms[name].idxmin()] for name in ("validation_mse", "mse"))
        place = int((arms["mse"] < chosen["mse"]).sum()) + 1
        by_test = (
            "also the least on test" if place == 1 else f"place {place} on test, where {_named(best['arm'])} is first"
        )
        yield (
            f"**Validation**: it and the test MSE moved the same way in {int((said == came).sum())} of {len(beside)} "
            f"comparisons, and their rank correlation over all arms is {rank:.2f}. The least validation MSE is that of "
            f"{_named(chosen['arm'])}, {by_test}."
        )
        told = beside[beside["mse_verdict"].isin(["better", "worse"])]
        if len(told):
            agrees = int((said == came)[told.index].sum())
            differences = number_of(len(told), "difference")
            yield f"Of the {differences} in MSE that could be told, validation agrees with {agrees}."


def over_all(found: pd.DataFrame) -> Iterator[str]:
    """What holds on each data set that an arm was run on, and how much the comparisons know of seeds."""
    scored = found[found["reason"] == ""]
    several = [(arm, part) for arm, part in scored.groupby("arm", sort=False) if len(set(part["dataset"])) > 1]
    for metric in ("mse", "mae") if several else ():
        parts = []
        for verdict in ("better", "worse"):
            names = [_named(arm) for arm, part in several if (part[f"{metric}_verdict"] == verdict).all()]
            parts.append(f"{verdict} on each of them {listed(names) or 'none'}")
        yield f"Of {len(several)} arms that were run on several data sets, in {metric.upper()}: {'; '.join(parts)}."
    judged = found[found["mse_verdict"].isin(["better", "worse", "tie"])]
    freedom = judged.loc[judged["mse_freedom"] > 0, "mse_freedom"]  # closed forms have none
    if len(freedom):
        yield (
            f"The luck of seeds is known by {freedom.min():g} to {freedom.max():g} degrees of freedom. With few, "
            "intervals are wide, and a tie says little more than that more seeds are needed."
        )


def page(suite: Suite, board: Standings, resamples: int | None = None) -> str:
    """All of it, in Markdown."""
    found = rows(suite, board, resamples)
    done = board.done
    compared = int(found[["mse_verdict", "mae_verdict"]].isin(["better", "worse", "tie"]).sum().sum())
    lines = ["# What helps PatchTST", ""]
    lines += [
        "Errors on the train-standardised scale, over all test windows; means over seeds, ± their standard deviation. "
        f"Differences in percent, with 95 % intervals; {compared} comparisons, corrected by Holm's procedure. *Runs "
        "below*: those of a lower test MSE than the run of the same seed beside them. The luck of seeds is learnt from "
        "all networks of a data set together, and from all mixes. Made by `python "
        f"benchmarks/accuracy.py` of what `{listed(_unique(done['command'])) or DASH}` recorded.",
        "",
    ]
    for (dataset, horizon), part in found.groupby(["dataset", "horizon"], sort=False):
        lines += [f"## {dataset}, horizon {horizon}", "", *table(part, board), ""]
        lines += [f"- {sentence}" for sentence in findings(part)] + [""]
    if all_of_them := [f"- {sentence}" for sentence in over_all(found)]:
        lines += ["## Over all", "", *all_of_them, ""]
    return "\n".join([*lines, *_about(done)]) + "\n"


def _about(done: pd.DataFrame) -> list[str]:
    """What the records were made on and by."""
    versions = [
        ", ".join(f"{name} {value}" for name, value in json.loads(one).items()) for one in _unique(done["versions"])
    ]
    threads = [number_of(int(one), "thread") for one in _unique(done["threads"])]
    seconds = own_seconds(done).sum()
    machines, devices = listed(_unique(done["cpu"])) or DASH, listed(_unique(done["device"])) or DASH
    commits = listed([str(one)[:10] for one in _unique(done["git"])]) or DASH
    return [
        f"{number_of(len(done), 'run')}, {seconds / 3600:.1f} hours of training, on {machines}, {devices}, "
        f"{listed(threads) or DASH}; {'; '.join(versions) or DASH}; git {commits}."
    ]


def _unique(column: pd.Series) -> list[Any]:
    return [*dict.fromkeys(column.dropna())]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="accuracy", help="its name, or a file")
    parser.add_argument("--records", type=Path, default=RECORDS, help="the folder that it wrote into")
    parser.add_argument("--output", type=Path, help="the file that is written")
    options = parser.parse_args(words)
    try:
        board = Standings(Records.read(options.records))
        text = page(read_suite(find_suite(options.suite)), board)
    except UserError as error:
        parser.error(str(error))
    output = options.output or options.records.with_suffix(".md")
    write_text(output, text)
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
