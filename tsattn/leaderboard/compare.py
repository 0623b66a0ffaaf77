"""Comparing models that differ in one thing: trained identically for it, or from run folders that are finished."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from matplotlib.figure import Figure

from tsattn.errors import UserError, one_of
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment, RunFolder
from tsattn.experiments.dotted import full_path, get_at, paths
from tsattn.experiments.experiment import OF_DATA
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.entry_run import WorkingFolder, windows_of
from tsattn.leaderboard.figure import Mark, forest
from tsattn.leaderboard.plan import Entry, Planner
from tsattn.leaderboard.records import Records, by_stretch
from tsattn.leaderboard.runner import Options, Runner
from tsattn.leaderboard.statistics import Difference

__all__ = ["Comparison", "Plan", "compare", "compare_runs", "processors"]

_BASELINES = ("ridge", "seasonal_naive", "persistence")
_ATTENTION = "model.backbone.attention"
_OF_MACHINES = ("num_workers", "resident_gb", "root", "folder", "verify")
_OF_RUNS = {*OF_DATA, *_OF_MACHINES} - {"scaling", "prediction_length", "transform"}


@dataclass(frozen=True)
class Comparison:
    """Models compared on the same test windows.

    Attributes:
        records: a row a run.
        models: names of the models that are compared; the others are compared with the first.
        baselines: names of reference forecasts, which are not part of the question.
        margin: differences below it count as equal.
    """

    records: Records
    models: tuple[str, ...]
    baselines: tuple[str, ...] = ()
    margin: float = 0.01

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a model.

        ``MSE`` and ``MAE`` are means over seeds, on the scale of the training rows. ``difference`` is that of the MSE
        from the first model's in percent, ``low`` and ``high`` are the ends of its 95 % interval, and ``reason`` says
        why there is none. The others are ``verdict``, ``seconds`` of a fit, ``parameters`` and ``seeds``.
        """
        rows = {}
        for name in (*self.models, *self.baselines):
            runs = self.records.done[self.records.done["predictor"] == name]
            row: dict[str, Any] = {"MSE": runs["mse"].mean(), "MAE": runs["mae"].mean()}
            one = None if name in (self.models[0], *self.baselines) else self.difference(name)
            ends = (math.nan, math.nan) if one is None else one.percent_interval()
            row |= {"difference": math.nan if one is None else one.percent, "low": ends[0], "high": ends[1]}
            row |= {"verdict": "" if one is None else one.verdict(self.margin)}
            row |= {"seconds": runs["seconds"].astype(float).mean(), "parameters": int(runs["parameters"].max())}
            rows[name] = {**row, "seeds": len(runs), "reason": "" if one is None else one.reason}
        return pd.DataFrame.from_dict(rows, orient="index")

    def difference(self, model: str, metric: str = "mse") -> Difference:
        """The difference of a model's error from that of the first one.

        Args:
            model: its name.
            metric: ``mse`` or ``mae``.
        """
        dataset = self._analysis.datasets[0]
        return self._analysis.difference(dataset, [model], self.models[0], metric, alike=self.models)

    @cached_property
    def _analysis(self) -> Analysis:
        return Analysis(self.records)

    def figure(self) -> Figure:
        """Differences from the first model, with their 95 % intervals."""
        columns = self.table.loc[[*self.models[1:]], ["difference", "low", "high"]]
        rows = {str(name): [Mark("MSE", *ends)] for name, *ends in columns.astype(float).itertuples()}
        axis = f"MSE compared with {self.models[0]}, % (left is better)"
        return forest(rows, title=self._title, axis=axis)

    @property
    def _title(self) -> str:
        row = self.records.done.iloc[0]
        return f"{row['dataset']}, {row['horizon']} steps ahead"

    def __str__(self) -> str:
        """The table as text of at most 80 columns, and what it says."""
        table = self.table
        shown = pd.DataFrame({"MSE": table["MSE"].map("{:.4f}".format)}, table.index)
        shown[f"vs {self.models[0]}, %"] = [_percent(row) for row in table.itertuples()]
        shown["verdict"] = table["verdict"]
        shown["s"] = table["seconds"].map(lambda seconds: f"{seconds:.3g}")
        shown["parameters"] = table["parameters"].map(lambda count: f"{count:,}" if count else "")
        seeds = self.table.loc[[*self.models], "seeds"]
        counted = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
        windows = int(self.records.done["windows"].iloc[0])
        lines = [f"{self._title}: {windows} test windows, {counted} seeds", "", shown.to_string()]
        reasons = dict.fromkeys(reason for reason in table["reason"] if reason)
        return "\n".join([*lines, *(f"no interval: {reason}" for reason in reasons)])


def compare(
    *what: str | Path | Experiment | Mapping[str, Any],
    attention: Sequence[Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 3,
    overrides: Mapping[str, Any] | None = None,
    baselines: bool = True,
    margin: float = 0.01,
    jobs: int | None = None,
    ray: str | None = None,
    folder: str | Path | None = None,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Compare models that differ in one thing.

    ``compare("co2_mlr.yaml", attention=["standard", "mlr"])`` trains each identically, with the same seeds, and resumes
    where an earlier call was interrupted. ``compare("runs/a", "runs/b")`` compares finished runs on the windows that
    they share; runs that differ by their seed alone are one model.

    Args:
        what: a configuration (its name, an `Experiment`, or plain data), or two run folders or more.
        attention: kinds or descriptions of attentions; the first is the reference.
        vary: instead, values of one dotted path: ``{"model.learning_rate": [1e-3, 1e-4]}``.
        seeds: how many, from the configuration's own on.
        overrides: values of all models, by their dotted paths.
        baselines: whether to score ridge, seasonal naive and persistence on the same windows.
        margin: differences below it count as equal; 0.01 is 1 %.
        jobs: runs at once; one for each processor by default.
        ray: the address of a Ray cluster to run on, or ``local``.
        folder: to work in; ``runs/compare/NAME`` by default.
        say: takes lines of progress.

    Raises:
        UserError: for models that cannot be compared, naming why.
        KeyboardInterrupt: if it was interrupted.
    """
    if len(what) != 1 or (isinstance(what[0], str | Path) and Path(what[0]).is_dir()):
        if attention or vary:
            raise UserError("finished runs are compared as they are: leave out attention and vary, or name one config")
        return compare_runs([str(one) for one in what], margin=margin)
    plan = Plan.of(what[0], attention, vary, seeds, overrides, baselines)
    command = "compare(...)"
    runner = plan.runner(folder, Options(jobs or processors(), command=command), say)
    runner.say_plan(lists=False)
    runner.run_all(ray, command)
    return plan.comparison(runner, margin)


@dataclass(frozen=True)
class Plan:
    """What `compare` runs.

    Attributes:
        name: of the working folder.
        models: names of the models that are compared.
        entries: their runs, and those of the baselines.
    """

    name: str
    models: tuple[str, ...]
    entries: tuple[Entry, ...]

    @classmethod
    def of(
        cls,
        config: Any,
        attention: Sequence[Any] | None = None,
        vary: Mapping[str, Sequence[Any]] | None = None,
        seeds: int = 3,
        overrides: Mapping[str, Any] | None = None,
        baselines: bool = True,
    ) -> Plan:
        """The plan of a comparison; the arguments are those of `compare`.

        Raises:
            UserError: for values that are not valid, or models that are the same.
        """
        if bool(attention) == bool(vary) or (vary and len(vary) > 1):
            raise UserError("name what differs: either attentions, or one dotted path with its values")
        path, values = (_ATTENTION, [*(attention or ())]) if attention else next(iter((vary or {}).items()))
        if len(values) < 2:
            raise UserError(f"{path} needs at least two values to compare")
        base = Experiment.read(config) if isinstance(config, str | Path) else config
        base = base if isinstance(base, Experiment) else Experiment.of(base)
        base = base.with_values(overrides)
        models = {_name(path, value): base.with_values({path: _as_given(base, path, value)}) for value in values}
        same = [name for name, one in models.items() if [*models.values()].count(one) > 1]
        if len(models) < len(values) or same:
            raise UserError(f"two of the models are the same: {' and '.join(same) or one_of(models)}; leave one out")
        of_baselines = {kind: base.with_values({"model.backbone": kind}) for kind in _BASELINES if baselines}
        entries = [*_entries(models, seeds), *_entries(of_baselines, 1)]
        reasons = [entry.reason for entry in entries if entry.predictor in models and entry.reason]
        if reasons:
            raise UserError(reasons[0])
        stem = Path(config).stem if isinstance(config, str | Path) else entries[0].dataset
        return cls(stem, tuple(models), tuple(entries))

    def runner(self, folder: str | Path | None, options: Options, say: Callable[[str], None]) -> Runner:
        """What runs it, in a folder of its own."""
        place = WorkingFolder(folder or Path("runs", "compare", self.name))
        return Runner("comparison", "", self.entries, self.entries, place, place.path / "table", options, say)

    def comparison(self, runner: Runner, margin: float) -> Comparison:
        """What the runs say.

        Raises:
            UserError: if a run of a model failed.
        """
        failed = [entry for entry in self.entries if entry.predictor in self.models and runner.state(entry) != "done"]
        if failed:
            raise UserError(f"{failed[0]} failed, so nothing can be compared; see the lines above")
        done = [(entry, runner.row(entry) or {}) for entry in self.entries if runner.state(entry) == "done"]
        names = {entry.predictor for entry, _ in done}
        records = Records.of({**row, "suite": "", **entry.labels} for entry, row in done)
        return Comparison(records, self.models, tuple(kind for kind in _BASELINES if kind in names), margin)


def compare_runs(folders: Sequence[str], *, margin: float = 0.01) -> Comparison:
    """Compare finished runs on the test windows that they share; those of one experiment with other seeds are a model.

    Args:
        folders: of runs, those of the reference first.
        margin: differences below it count as equal.

    Raises:
        UserError: naming what cannot be compared, and why.
    """
    if len(folders) < 2:
        raise UserError("name at least two run folders to compare, or one --config with --attention or --vary")
    runs = [_Run.read(folder) for folder in folders]
    first = runs[0]
    for other in runs[1:]:
        _check_same_data(first, other)
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.without_seed, []).append(run)
    if len(groups) < 2:
        raise UserError("these runs are one experiment with different seeds: name a run of another experiment, too")
    names = _names([members[0].experiment for members in groups.values()])
    keys = ["unique_id", "origin", "count"]
    shared = first.windows[keys]
    for run in runs[1:]:
        shared = shared.merge(run.windows[keys], on=keys)
    if shared.empty:
        raise UserError(f"{first.folder} and the others share no test window: test them on the same rows")
    rows = []
    for name, members in zip(names, groups.values(), strict=True):
        for run in members:
            windows = run.windows.merge(shared, on=keys)
            rows.append({**run.row, "predictor": name, **_means(windows), **by_stretch(windows, run.horizon)})
    labels = [(row["predictor"], row["seed"]) for row in rows]
    twice = [name for name, seed in labels if labels.count((name, seed)) > 1]
    if twice:
        raise UserError(f"two runs of {twice[0]} have the same seed: name one of them")
    return Comparison(Records.of(rows), tuple(names), margin=margin)


@dataclass(frozen=True)
class _Run:
    """A finished run: its experiment, and the errors of its test windows."""

    folder: str
    experiment: Experiment
    windows: pd.DataFrame
    row: Mapping[str, Any]

    @classmethod
    def read(cls, folder: str) -> _Run:
        place = RunFolder(folder)
        place.check_trained()
        if not (place.metrics.exists() and place.errors.exists()):
            raise UserError(f"the run {folder} has no test errors: finish it with `tsattn fit --resume {folder}`")
        experiment = Experiment.read(place.config)
        facts = yaml.safe_load(place.metrics.read_text())
        row = {
            "suite": "",
            "dataset": facts["data"],
            "horizon": facts["prediction_length"],
            "attention": "",
            "seed": facts["seed"] if "training" in facts else None,
            "key": f"{facts['key']} {folder}",
            "status": "done",
            "context_length": facts["context_length"],
            "parameters": facts.get("parameters") or 0,
            "seconds": place.fit_seconds,
            "experiment": experiment.to_yaml(),
        }
        return cls(folder, experiment, windows_of(ErrorTable.read(place.errors)), row)

    @property
    def horizon(self) -> int:
        return int(self.row["horizon"])

    @property
    def without_seed(self) -> str:
        return replace(self.experiment, seed=0).to_yaml()


def _check_same_data(one: _Run, other: _Run) -> None:
    """Refuse runs whose test errors are of different things."""
    described = (run.experiment.data for run in (one, other))
    known = [{"class_path": data["class_path"], **data["init_args"]} for data in described]
    for name in dict.fromkeys([*known[0], *known[1]]):
        first, second = (content.get(name) for content in known)
        if name not in _OF_RUNS and first != second:
            what = "forecast different horizons" if name == "prediction_length" else "were tested on different data"
            raise UserError(f"{one.folder} and {other.folder} {what}: data.{name} is {first!r} and {second!r}")
    counts = [run.windows.set_index(["unique_id", "origin"])["count"] for run in (one, other)]
    both = pd.concat(counts, axis=1, join="inner", keys=["one", "other"])
    if (both["one"] != both["other"]).any():
        raise UserError(f"{one.folder} and {other.folder} were tested on different values: their data have changed")


def _names(experiments: Sequence[Experiment]) -> list[str]:
    """What tells experiments apart, in a few words: the value of what differs, or its path and value."""
    contents = [{**one.to_dict(), "seed_everything": None} for one in experiments]
    kinds = [_kind(_get(content, _ATTENTION)) for content in contents]
    # arguments of other kinds differ with the kind
    of_attention = f"{_ATTENTION}." if len(set(kinds)) == len(kinds) else f"{_ATTENTION}.kind"
    differing = []
    for path in dict.fromkeys(path for content in contents for path in paths(content)):
        values = [_get(content, path) for content in contents]
        is_leaf = not all(value is None or isinstance(value, Mapping) for value in values)
        if is_leaf and any(value != values[0] for value in values) and not path.startswith(of_attention):
            differing.append(path)
    parts = [[kind] if len(set(kinds)) > 1 else [] for kind in kinds]
    for part, content in zip(parts, contents, strict=True):
        part += [_name(path, _get(content, path)) for path in differing if path != _ATTENTION]
    return _distinct([", ".join(part) for part in parts])


def _kind(attention: Any) -> str:
    layers = attention if isinstance(attention, list) else [attention]
    return ",".join(str(one.get("kind") if isinstance(one, Mapping) else one) for one in layers)


def _distinct(names: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]


def _get(content: Mapping[str, Any], path: str) -> Any:
    try:
        return get_at(content, path)
    except KeyError:
        return None


def _name(path: str, value: Any) -> str:
    """``mlr`` of an attention, ``learning_rate=0.001`` of another value."""
    if full_path(path) != _ATTENTION:
        return f"{path.rpartition('.')[2]}={value}"
    if isinstance(value, Mapping):
        given = {name: one for name, one in value.items() if name != "kind" and one is not None}
        options = ",".join(f"{name}={one}" for name, one in given.items()).replace(" ", "")
        return f"{value.get('kind')} {options}".strip()
    return ",".join(_name(path, one) for one in value) if isinstance(value, list) else str(value)


def _as_given(base: Experiment, path: str, value: Any) -> Any:
    """The value of a model: a bare kind keeps the arguments of a configuration that has this kind already."""
    given = _get(base.to_dict(), full_path(path))
    return given if isinstance(given, Mapping) and given.get("kind") == value else value


def _entries(models: Mapping[str, Experiment], seeds: int) -> Iterator[Entry]:
    planner = Planner()
    for number in range(seeds):
        for name, experiment in models.items():
            yield planner.entry(name, experiment, number)


def _means(windows: pd.DataFrame) -> dict[str, Any]:
    count = windows["count"].sum()
    return {
        "mse": float(windows["squared"].sum() / count),
        "mae": float(windows["absolute"].sum() / count),
        "windows": len(windows),
    }


def _percent(row: Any) -> str:
    if math.isnan(row.difference):
        return ""
    if math.isnan(row.low):
        return f"{row.difference:+.1f}"
    return f"{row.difference:+.1f} ({row.low:+.1f}, {row.high:+.1f})"


def processors() -> int:
    """How many processors this process may use."""
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
