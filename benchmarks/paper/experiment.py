"""Experiments of the paper: those that the leaderboard runs, those that are timed, and the report of either."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from typing_extensions import override

from benchmarks.measuring import MachineTable, describe, slug_of
from benchmarks.paper.claims import PaperReport, write_outcome
from tsattn.errors import UserError, number_of
from tsattn.experiments import Experiment
from tsattn.experiments.configs import get_at
from tsattn.leaderboard.plan import Planner
from tsattn.leaderboard.records import FILE, LABELS, Records
from tsattn.leaderboard.suite import Suite, read_suite

RESULTS = Path(__file__).parents[1] / "results" / "paper"
OURS = " (ours)"  # ends a question that the paper does not answer
EDGE = "`edge` says whether the rate is the least or the greatest of those tried, so that one beyond may be better."
BEHIND = "with its rate at the edge of those tried"

PATHS = {
    **{name: f"model.{name}" for name in ("learning_rate", "schedule", "mup", "backbone")},
    **{"width": "model.backbone.d_model", "hidden": "model.backbone.d_ff", "heads": "model.backbone.num_heads"},
    **{"layers": "model.backbone.num_layers", "kind": "model.backbone.attention.kind"},
    **{name: f"model.backbone.{name}" for name in ("dropout", "alpha")},
    **{name: f"data.init_args.{name}" for name in ("batch_size", "every", "dimensions")},
    **{"context": "data.init_args.context_length", "steps": "trainer.max_steps"},
}
"""Values of experiments that reports look at, by the name of their column."""

_INTERRUPTED = 130  # an exit code
_STILL = 5.0  # times the median of the same model: a run that takes longer stood still
_BREAK = pd.Timedelta(minutes=1)
_SAME = ("tsattn", "torch", "kernels", "settings")  # rows of others are measured again

_EPILOG = """\
All options of `tsattn benchmark` work too: --jobs N for N runs at once, --retry-failed, --threads, --ray.
Repeat the command to resume: no finished run is repeated. The output folder holds records.parquet, and, once no run is
left, report.md, table.csv, figure.png and claims.json made of it."""


def new_parser(name: str, doc: str | None, **more: Any) -> argparse.ArgumentParser:
    raw, script = argparse.RawDescriptionHelpFormatter, f"python benchmarks/paper/{name}.py"
    parser = argparse.ArgumentParser(prog=script, description=(doc or "").strip(), formatter_class=raw, **more)
    parser.add_argument(
        "--report-only", action="store_true", help="write the report of what is there, with how many runs are left"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be run, and end")
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"default: benchmarks/results/paper/{name}")
    return parser


@dataclass(frozen=True)
class PaperExperiment:
    """An experiment that the leaderboard runs, of the suites ``NAME_small.yaml`` and ``NAME_h100.yaml`` (a GPU)."""

    name: str
    doc: str
    report: Callable[[Records, Suite], PaperReport]
    suites: Path = Path(__file__).parent / "suites"

    def main(self, words: Sequence[str] | None = None) -> int:
        """Run what is left of the suite and write its report; return the exit code of `tsattn benchmark`."""
        parser = new_parser(self.name, self.doc, epilog=_EPILOG, allow_abbrev=False)
        parser.add_argument("--size", choices=("small", "h100"), default="small", help="two cores, or a GPU")
        parser.add_argument("--folder", type=Path, metavar="DIR", help="of the runs (default: runs/paper/SUITE)")
        options, how = parser.parse_known_args(words)
        if any(word.split("=")[0] == "--suite" for word in how):
            parser.error("the suite is that of the experiment: --size small or --size h100")
        if options.report_only and how:
            parser.error(f"with --report-only nothing is run: leave {how[0]} out")
        suite, command = f"{self.name}_{options.size}", parser.prog
        if options.size != "small":
            command += f" --size {options.size}"
        file = self.suites / f"{suite}.yaml"
        output = options.output or RESULTS / (self.name if options.size == "small" else suite)
        if not options.report_only:
            run = [*how, "--output", str(output), "--folder", str(options.folder or Path("runs/paper", suite))]
            code = _run(file, [*run, *(["--dry-run"] if options.dry_run else [])])
            if code or options.dry_run:
                return code
        left = 0
        try:
            if not (output / FILE).is_file():
                raise UserError(f"nothing was run into {output} yet: run it without --report-only")
            records = Records.read(output)
            left = left_of(records, file)
            if left and not options.report_only:
                raise UserError(f"{number_of(left, 'run')} of {suite} left: the report is made when all are done")
            runs = runs_of(records)
            made = how_made(runs, command, suite)
            write_outcome(output, self.report(records, read_suite(file)), made, command, left)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 0 if left and not options.report_only else 2
        print(f"report: {output / 'report.md'}")
        return 0


def _run(file: Path, how: Sequence[str]) -> int:
    from tsattn.cli import main as tsattn

    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    code = tsattn(["benchmark", "--suite", str(shown), "--no-report", *how])
    if code == _INTERRUPTED:
        print("repeat your command to resume: it also makes the report", file=sys.stderr)
    return code


class _WithoutData(Planner):
    """Plans without reading data, and so without keys."""

    @override
    def key(self, experiment: Experiment) -> str:
        return ""


def left_of(records: Records, suite: Path) -> int:
    known = {tuple(row[name] for name in LABELS) for row in records.table.to_pylist()}
    planned = _WithoutData().plan(read_suite(suite))
    return sum(one.experiment is not None and tuple(one.labels.values()) not in known for one in planned)


def runs_of(records: Records) -> pd.DataFrame:
    """Return a row an entry, with a column for each value of its experiment in `PATHS`, None where it has none.

    Raises:
        UserError: if no run is done.
    """
    frame = records.frame
    if not (frame["status"] == "done").any():
        raise UserError("no run is done, so there is nothing to report")
    experiments = [yaml.load(text, yaml.CSafeLoader) if text else {} for text in frame["experiment"]]
    return frame.assign(**{name: [get_at(one, path, None) for one in experiments] for name, path in PATHS.items()})


def chosen_by_validation(
    runs: pd.DataFrame, model: Sequence[str], candidate: Sequence[str], error: str = "validation_mse"
) -> pd.DataFrame:
    """Choose for each model (columns) the candidate (columns) with the least validation error, mean over seeds.

    A candidate is not chosen if one of its runs failed, or another one of the model has more seeds. ``candidates`` is
    their number, and ``is_edge`` whether the first column of that has the least or greatest of several tried.
    """
    parts = [runs.iloc[:0].assign(candidates=0, is_edge=False)]
    for _, part in runs.groupby([*model], dropna=False, sort=False):
        groups = part.groupby([*candidate], dropna=False, sort=False)
        whole = groups.filter(lambda group: bool((group["status"] == "done").all()))
        if not len(whole):
            continue
        sizes = whole.groupby([*candidate], dropna=False)["seed"].transform("size")
        whole = whole[sizes == sizes.max()]
        means = whole.groupby([*candidate], dropna=False)[error].transform("mean")
        best, tried = whole[means == means.min()], part[candidate[0]]
        ends = {tried.min(), tried.max()} if pd.api.types.is_numeric_dtype(tried) else set()
        is_edge = len(ends) > 1 and best[candidate[0]].iloc[0] in ends
        parts.append(best.assign(candidates=len(groups), is_edge=is_edge))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def listed(values: pd.Series) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values.dropna().unique())) or "none"


def _versions(known: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {known[name]}" for name in ("tsattn", "torch", "python") if known.get(name))


def how_made(runs: pd.DataFrame, command: str, suite: str) -> str:
    counts, done = runs["status"].value_counts(), runs[runs["status"] == "done"]
    others = "".join(f", {count} {status}" for status, count in counts.items() if status != "done")
    planned = int((runs["status"] != "does not apply").sum())
    lines = [
        f"`{command}`, the suite `{suite}`: {int(counts['done'])} of {number_of(planned, 'run')} done{others}, on "
        f"{' and '.join(sorted(set(done['cpu'])))} ({' and '.join(sorted(set(done['device'])))}); "
        f"{_versions(json.loads(done.iloc[-1]['versions'] or '{}'))}."
    ]
    lines += [
        f"- failed: {row.dataset}, {row.horizon}: {row.predictor} {row.attention}, seed {row.seed}: {row.reason}"
        for row in runs[runs["status"] == "failed"].itertuples(index=False)
    ]
    clock = f"By the clock the runs took {clock_seconds(runs) / 3600:.1f} hours."
    counted = _counted_seconds(runs)
    if still := int((counted < runs.loc[counted.index, "seconds"]).sum()):
        clock += (
            f" {number_of(still, 'run')} took over {_STILL:g} times as long as the median of the same predictor and "
            f"attention, as where the machine stands still, and {'counts' if still == 1 else 'count'} as {_STILL:g} "
            "times that."
        )
    return "\n".join(lines) + f"\n\n{clock}"


def _counted_seconds(runs: pd.DataFrame) -> pd.Series:
    """Return the seconds of each finished run, at most five times the median of its model."""
    done = runs[(runs["status"] == "done") & runs["seconds"].notna()]
    seconds = done["seconds"].astype("float64")
    models = [done[name] for name in ("dataset", "horizon", "predictor", "attention")]
    return seconds.clip(upper=_STILL * seconds.groupby(models, dropna=False).transform("median"))


def clock_seconds(runs: pd.DataFrame) -> float:
    """Return the time by the clock in which at least one run was going on; breaks up to a minute count."""
    seconds = _counted_seconds(runs)
    ends = pd.to_datetime(runs.loc[seconds.index, "finished"], utc=True)
    spans = pd.DataFrame({"begin": ends - pd.to_timedelta(seconds, unit="s"), "end": ends}).sort_values("begin")
    reached = spans["end"].cummax().shift()  # when all earlier runs have ended
    is_break = ~(spans["begin"] <= reached + _BREAK)
    lasted = spans["end"] - reached.where(~is_break, spans["begin"])
    return float(lasted.clip(lower=pd.Timedelta(0)).sum().total_seconds())


# experiments that are timed


def all_machines(folder: Path, settings: Mapping[str, Any]) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Read the rows of all machines that measured by some settings, with ``machine``, and the facts about each."""
    parts, known = [pd.DataFrame()], []
    for file in sorted((folder / "machines").glob("*.json")):
        about = json.loads(file.read_text())
        if about["settings"] == settings:
            known.append(about)
            parts.append(pd.read_csv(file.with_suffix(".csv")).assign(machine=_called(about)))
    return pd.concat(parts, ignore_index=True), known


def timed_parser(name: str, doc: str | None, seconds: float, turns_of: str) -> argparse.ArgumentParser:
    """Make the parser of a timed experiment, with the options that `measure_and_report` takes."""
    parser = new_parser(name, doc)
    parser.set_defaults(output=RESULTS / name)
    parser.add_argument("--seconds", type=float, default=seconds, help=f"for the turns of {turns_of}, if 5 are done")
    parser.add_argument("--again", action="store_true", help="measure again what was measured here already")
    return parser


def measure_and_report(
    options: argparse.Namespace,
    settings: Mapping[str, Any],
    parts: tuple[str, Sequence[int]],
    measure: Callable[[int], pd.DataFrame],
    report: Callable[[pd.DataFrame], PaperReport],
    command: str,
    device: str = "cpu",
) -> int:
    """Measure what this machine has not measured yet, and report what all machines have; return the exit code.

    `parts` is a column of the rows, and the numbers in it that are asked for, of which `measure` makes rows. Rows of
    other versions or `settings`, plain data, are measured again. A machine has ``machines/NAME.csv`` and ``NAME.json``.
    """
    column, numbers = parts
    if not options.report_only:
        here = describe(device, torch.float32 if device == "cpu" else torch.bfloat16)
        facts = {"tsattn": importlib.metadata.version("tsattn"), **here, "settings": dict(settings)}
        files = MachineTable(options.output / "machines", slug_of(facts))
        about, rows = files.about(), files.rows()
        if options.again or any(about.get(name) != facts.get(name) for name in _SAME):
            about, rows = {"seconds": 0}, pd.DataFrame()
        done = set() if rows.empty else set(rows[column])
        for number in numbers:
            print(f"{column} {number}: {'measured' if number in done else 'to be measured'}", flush=True)
            if number not in done and not options.dry_run:
                began = time.monotonic()
                rows = pd.concat([rows, measure(number)], ignore_index=True)
                about = {**facts, "seconds": round(about["seconds"] + time.monotonic() - began, 1)}
                files.write(rows, about)
        if options.dry_run:
            return 0
    rows, known = all_machines(options.output, settings)
    if rows.empty:
        print(f"error: nothing was measured in {options.output}: run it without --report-only", file=sys.stderr)
        return 2
    lines = [f"- {_called(about)}: {about['seconds'] / 60:.0f} minutes; {_versions(about)}" for about in known]
    made = "\n".join([f"`{command}`, by the clock:", *lines])
    write_outcome(options.output, report(rows[rows[column].isin(numbers)]), made, command)
    print(f"report: {options.output / 'report.md'}")
    return 0


def _called(about: Mapping[str, Any]) -> str:
    if "gpu" in about:
        return f"{about['gpu']}, {about['dtype']}"
    model = f" (family {about['cpu_family']} model {about['cpu_model']})" if "cpu_family" in about else ""
    return f"{about['cpu']}{model}, one thread"
