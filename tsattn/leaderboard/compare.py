"""Compare models that differ in one thing: train them identically, or read finished run folders."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from matplotlib.figure import Figure

from tsattn.errors import UserError, is_number, number_of, one_of, shown, whole_number
from tsattn.evaluation import ErrorTable
from tsattn.experiments import Experiment, RunFolder
from tsattn.experiments.configs import full_path, get_at
from tsattn.experiments.experiment import NOT_IN_KEY, OF_DATA
from tsattn.experiments.measuring import device_type
from tsattn.leaderboard.analysis import Analysis
from tsattn.leaderboard.entry_run import WorkingFolder, windows_of
from tsattn.leaderboard.figure import Mark, forest
from tsattn.leaderboard.plan import Entry, Planner, differences
from tsattn.leaderboard.records import Records, by_stretch
from tsattn.leaderboard.runner import Options, Runner
from tsattn.leaderboard.statistics import Difference
from tsattn.training.train import all_fits

_BASELINES = ("ridge", "seasonal_naive", "persistence")
_ATTENTION = "model.backbone.attention"
_OF_MACHINES = ("num_workers", "resident_gb", "root", "folder", "verify")
_OF_RUNS = {*OF_DATA, *_OF_MACHINES} - {"scaling", "prediction_length"}  # errors are on the scale, before a transform
_FIXED = ("seed_everything", "data.class_path")


@dataclass(frozen=True)
class Comparison:
    """Models compared on the same test windows.

    Attributes:
        records: one row per run.
        models: names of the compared models; the first is the reference.
        baselines: names of reference forecasts, which are not part of the question.
        margin: differences below it count as equal.
    """

    records: Records
    models: tuple[str, ...]
    baselines: tuple[str, ...] = ()
    margin: float = 0.01

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per model.

        ``MSE`` and ``MAE`` are means over seeds, on the scale of the training rows. ``difference`` is the difference in
        MSE from the first model, in percent, by the seeds that both have. ``low`` and ``high`` are the ends of its 95 %
        interval; ``reason`` says why it is missing. Other columns are ``verdict``, ``seconds`` of a fit, ``parameters``
        and ``seeds``.
        """
        rows = {}
        for name in (*self.models, *self.baselines):
            runs = self._runs(name)
            row: dict[str, Any] = {"MSE": runs["mse"].mean(), "MAE": runs["mae"].mean()}
            one = None if name in (self.models[0], *self.baselines) else self.difference(name)
            ends = (math.nan, math.nan) if one is None else one.percent_interval()
            row |= {"difference": math.nan if one is None else one.percent, "low": ends[0], "high": ends[1]}
            row |= {"verdict": "" if one is None else one.verdict(self.margin)}
            row |= {"seconds": runs["seconds"].astype(float).mean(), "parameters": int(runs["parameters"].max())}
            rows[name] = {**row, "seeds": len(runs), "reason": "" if one is None else one.reason}
        return pd.DataFrame.from_dict(rows, orient="index")

    def _runs(self, name: str) -> pd.DataFrame:
        """The runs of a model with the seeds that the first model has, too; all if it shares none."""
        own, first = (self.records.done[self.records.done["predictor"] == one] for one in (name, self.models[0]))
        is_shared = own["seed"].isin(first["seed"].dropna())
        return own[is_shared] if is_shared.any() else own

    def difference(self, model: str, metric: str = "mse") -> Difference:
        """Compare a model's error with the error of the first model.

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
        axis = f"MSE compared with {self.models[0]}, %\n(left is better)"
        return forest(rows, title=self._title, axis=axis)

    @property
    def _title(self) -> str:
        row = self.records.done.iloc[0]
        return f"{row['dataset']}, {row['horizon']} steps ahead"

    def __str__(self) -> str:
        """The table as text of at most 80 columns, with the reasons for missing intervals."""
        table = self.table
        shown = pd.DataFrame({"MSE": table["MSE"].map("{:.4f}".format)}, table.index)
        shown[f"vs {self.models[0]}, %"] = [_percent(row) for row in table.itertuples()]
        shown["verdict"] = table["verdict"]
        shown["fit, s"] = table["seconds"].map(lambda seconds: f"{seconds:.3g}")
        shown["parameters"] = table["parameters"].map(lambda count: f"{count:,}" if count else "")
        by_model = {name: [*self._runs(name)["seed"].dropna()] for name in self.models}
        seeds = int(table.loc[[*self.models], "seeds"].max())
        windows = int(self.records.done["windows"].iloc[0])
        lines = [f"{self._title}: {windows} test windows, {number_of(seeds, 'seed')}", "", shown.to_string()]
        lines += [f"no interval: {reason}" for reason in dict.fromkeys(table["reason"]) if reason]
        for name, own in by_model.items():
            if 0 < len(own) < seeds:
                listed = f"seed{'s' * (len(own) > 1)} {', '.join(map(str, own))}"
                lines.append(f"the figures of {name} are of {listed} alone")
        return re.sub(r" +$", "", "\n".join(lines), flags=re.M)


def compare(
    *what: str | Path | Experiment | Mapping[str, Any],
    attention: Sequence[Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 3,
    overrides: Mapping[str, Any] | None = None,
    baselines: bool = True,
    margin: float = 0.01,
    jobs: int | None = None,
    retry_failed: bool = False,
    ray: str | None = None,
    folder: str | Path | None = None,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Compare models that differ in one thing.

    ``compare("co2_mlr.yaml", attention=["standard", "mlr"])`` trains each model identically, with the same seeds, and
    resumes an interrupted call. ``compare("runs/a", "runs/b")`` compares finished runs on the windows that they share;
    runs that differ only in their seed count as one model.

    Args:
        what: a configuration (its name, an `Experiment`, or plain data), or two run folders or more.
        attention: kinds or descriptions of attentions; the first is the reference.
        vary: instead, values of one dotted path: ``{"model.learning_rate": [1e-3, 1e-4]}``.
        seeds: how many, counted from the seed of the configuration.
        overrides: options of all models, by their dotted paths.
        baselines: whether to score ridge, seasonal naive and persistence on the same windows.
        margin: differences below it count as equal; 0.01 is 1 %.
        jobs: runs at once; by default one for each processor, and one on a GPU.
        retry_failed: whether to repeat runs that failed before.
        ray: the address of a Ray cluster to run on, or ``local``.
        folder: to work in; ``runs/compare/NAME`` by default.
        say: called with each line of progress.

    Raises:
        UserError: if models cannot be compared; the message says why.
        KeyboardInterrupt: if it was interrupted.
    """
    if jobs is not None:
        whole_number("jobs", jobs)
    if not (is_number(margin) and 0 < margin < 1):
        raise UserError(f"margin must lie between 0 and 1, not {shown(margin)}")
    if len(what) != 1 or (isinstance(what[0], str | Path) and Path(what[0]).is_dir()):
        if attention or vary or overrides:
            raise UserError("finished runs are compared as they are: leave out attention, vary and overrides")
        return compare_runs([str(one) for one in what], margin=margin)
    plan = Plan.of(what[0], attention, vary, seeds, overrides, baselines)
    command = "compare(...)"
    runner = plan.runner(folder, Options(jobs or plan.jobs, retry_failed=retry_failed, command=command), say)
    runner.run_all(ray, command)
    return plan.comparison(runner, margin)


@dataclass(frozen=True)
class Plan:
    """The runs of `compare`: models, which differ in the option named `differs`, and baselines."""

    name: str
    differs: str
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
        """Plan a comparison from the arguments of `compare`; a `UserError` for invalid values."""
        if bool(attention) == bool(vary) or (vary and not (isinstance(vary, Mapping) and len(vary) == 1)):
            raise UserError("name what differs: either attentions, or one dotted path with its values")
        path, values = (_ATTENTION, attention) if attention else next(iter((vary or {}).items()))
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UserError(f"{path} needs a list of values to compare, not {shown(values)}")
        whole_number("seeds", seeds)
        if len(values) < 2:
            raise UserError(f"{path} needs at least two values to compare")
        if full_path(path) in _FIXED:
            raise UserError(f"{path} is the same for all models; vary another option, or use --seeds")
        read = Experiment.read if isinstance(config, str | Path) else Experiment.of
        base = (config if isinstance(config, Experiment) else read(config)).with_values(overrides)
        own = get_at(base.to_dict(), full_path(path), None)
        kept = {own["kind"]: own} if isinstance(own, Mapping) and "kind" in own else {}  # a bare kind keeps these
        given = [kept.get(value, value) if isinstance(value, str) else value for value in values]
        models = {_name(path, value): base.with_values({path: one}) for value, one in zip(values, given, strict=True)}
        if len(models) < len(values):
            raise UserError(f"two of the models are the same: {one_of(models)}; leave one out")
        first, *others = models
        for name in others:
            _check_same_data(first, models[first], name, models[name])
        planner = Planner()
        planned = [(number, planner.entry(name, models[name], number)) for number in range(seeds) for name in models]
        entries = [entry for number, entry in planned if number == 0 or entry.seed is not None]  # untrained: once
        if reasons := [entry.reason for entry in entries if entry.reason]:
            raise UserError(reasons[0])
        by_key: dict[str, str] = {}
        for entry in entries[: len(models)]:
            if (other := by_key.setdefault(entry.key, entry.predictor)) != entry.predictor:
                raise UserError(f"two of the models are the same: {other} and {entry.predictor}; leave one out")
        for kind in _BASELINES if baselines else ():
            entries.append(planner.entry(kind, base.with_values({"model.backbone": kind})))
        stem = Path(config).stem if isinstance(config, str | Path) else entries[0].dataset
        return cls(stem, path.rpartition(".")[2], tuple(models), tuple(entries))

    def runner(self, folder: str | Path | None, options: Options, say: Callable[[str], None]) -> Runner:
        """Return the runner of this plan, with its working folder."""
        place = WorkingFolder(folder or Path("runs", "compare", self.name))
        return Runner("comparison", "", self.entries, self.entries, place, None, options, say)

    @property
    def jobs(self) -> int:
        """How many runs at once: one per processor, or one on a GPU."""
        experiment = next(entry.experiment for entry in self.entries if entry.experiment is not None)
        return int(joblib.cpu_count()) if device_type(experiment) == "cpu" else 1

    def comparison(self, runner: Runner, margin: float) -> Comparison:
        """Compare the models with finished runs; a `UserError` unless the first and another model have some."""
        done = [(entry, runner.row(entry) or {}) for entry in self.entries if runner.state(entry) == "done"]
        names = {entry.predictor for entry, _ in done}
        models = tuple(name for name in self.models if name in names)
        if len(models) < 2 or models[0] != self.models[0]:
            lost = next(name for name in self.models if name not in names)
            raise UserError(f"all runs of {lost} failed: read their logs, then repeat the command with --retry-failed")
        records = Records.of({**row, "suite": "", **entry.labels} for entry, row in done)
        return Comparison(records, models, tuple(kind for kind in _BASELINES if kind in names), margin)


def compare_runs(folders: Sequence[str], *, margin: float = 0.01) -> Comparison:
    """Compare finished runs, the reference first, on shared windows; a `UserError` says what cannot be compared."""
    if len(folders) < 2:
        raise UserError("name at least two run folders to compare, or one --config with --attention or --vary")
    runs = [_Run.read(folder) for folder in folders]
    first = runs[0]
    for other in runs[1:]:
        _check_same_data(first.folder, first.experiment, other.folder, other.experiment, left_out={"path"})
        if first.fingerprint != other.fingerprint:
            both = f"{first.folder} and {other.folder}"
            raise UserError(f"{both} were tested on different values: their data have changed")
    groups: dict[str, list[_Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(_content(run.experiment), default=str), []).append(run)
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
            mse, mae = windows[["squared", "absolute"]].sum() / windows["count"].sum()
            scores = {"mse": mse, "mae": mae, "windows": len(windows)}
            rows.append({**run.row, "predictor": name, **scores, **by_stretch(windows, run.row["horizon"])})
    labels = [(row["predictor"], row["seed"]) for row in rows]
    twice = [name for name, seed in labels if labels.count((name, seed)) > 1]
    if twice:
        raise UserError(f"two runs of {twice[0]} have the same seed: name one of them")
    if mixed := {name for name, seed in labels if seed is None} & {name for name, seed in labels if seed is not None}:
        raise UserError(f"some runs of {min(mixed)} have no seed: name runs with a seed alone")
    return Comparison(Records.of(rows), tuple(names), margin=margin)


@dataclass(frozen=True)
class _Run:
    """A finished run: its experiment, and the errors of its test windows."""

    folder: str
    experiment: Experiment
    windows: pd.DataFrame
    row: Mapping[str, Any]
    fingerprint: str | None

    @classmethod
    def read(cls, folder: str) -> _Run:
        place = RunFolder(folder)
        place.check_trained()
        if not (place.metrics.exists() and place.errors.exists()):
            raise UserError(f"the run {folder} has no test errors: finish it with `tsattn fit --resume {folder}`")
        experiment = Experiment.read(place.config)
        facts = json.loads(place.metrics.read_text())
        row = {
            "suite": "",
            "dataset": facts["data"],
            "horizon": facts["prediction_length"],
            "attention": "",
            "seed": facts["seed"] if any("training" in fit for fit in all_fits(facts)) else None,
            "key": f"{facts['key']} {folder}",
            "status": "done",
            "context_length": facts["context_length"],
            "parameters": facts.get("parameters") or 0,
            "seconds": place.fit_seconds,
            "experiment": experiment.to_yaml(),
        }
        try:
            windows = windows_of(ErrorTable.read(place.errors))
        except UserError as error:
            raise UserError(f"{folder}: {error}") from error
        return cls(folder, experiment, windows, row, place.noted("fingerprint"))


def _check_same_data(
    name: str, one: Experiment, other_name: str, other: Experiment, left_out: Collection[str] = ()
) -> None:
    """Refuse experiments with another horizon, scale, split or file: their errors are not comparable."""
    known = [{"class_path": part.data["class_path"], **part.data["init_args"]} for part in (one, other)]
    for argument in dict.fromkeys([*known[0], *known[1]]):
        first, second = (content.get(argument) for content in known)
        if argument not in _OF_RUNS and argument not in left_out and first != second:
            what = "forecast different horizons" if argument == "prediction_length" else "are tested on different data"
            raise UserError(f"{name} and {other_name} {what}: data.{argument} is {first!r} and {second!r}")


def _content(experiment: Experiment) -> dict[str, Any]:
    """Return the part of an experiment that decides its result: no seed, machine, file or log."""
    content = {**experiment.to_dict(), "seed_everything": None}
    content["trainer"] = {name: one for name, one in content["trainer"].items() if name not in NOT_IN_KEY}
    arguments = content["data"]["init_args"].items()
    content["data"]["init_args"] = {name: one for name, one in arguments if name not in (*_OF_MACHINES, "path")}
    return content


def _names(experiments: Sequence[Experiment]) -> list[str]:
    """Name experiments by their differences: kinds of predictor and attention, and options with their value."""
    contents = [*map(_content, experiments)]
    predictors = [str(content["model"]["backbone"]["kind"]) for content in contents]
    attentions = [_kind(get_at(content, _ATTENTION, None)) for content in contents]
    parts = [
        [*([one] if len(set(predictors)) > 1 else []), *([kind] if kind and len(set(attentions)) > 1 else [])]
        for one, kind in zip(predictors, attentions, strict=True)
    ]
    # kinds that differ are in the names already; their arguments differ with them
    same = _ATTENTION if len(set(attentions)) == len(attentions) else f"{_ATTENTION}.kind"
    left_out = same if len(set(predictors)) == 1 else "model.backbone"
    for path, values in differences(contents):
        if not path.startswith(left_out):
            for part, value in zip(parts, values, strict=True):
                part += [_name(path, value)] if value is not None and path != _ATTENTION else []
    names = [", ".join(part) or one for part, one in zip(parts, predictors, strict=True)]
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]


def _kind(attention: Any) -> str:
    layers = attention if isinstance(attention, list) else [] if attention is None else [attention]
    return ",".join(str(one.get("kind") if isinstance(one, Mapping) else one) for one in layers)


def _name(path: str, value: Any) -> str:
    """Name the model of a value: ``mlr`` for an attention, ``learning_rate=0.001`` for another option."""
    if full_path(path) != _ATTENTION:
        return f"{path.rpartition('.')[2]}={value}"
    if isinstance(value, Mapping):
        given = {name: one for name, one in value.items() if name != "kind" and one is not None}
        options = ",".join(f"{name}={one}" for name, one in given.items()).replace(" ", "")
        return f"{value.get('kind')} {options}".strip()
    return ",".join(_name(path, one) for one in value) if isinstance(value, list) else str(value)


def _percent(row: Any) -> str:
    if math.isnan(row.difference):
        return ""
    if math.isnan(row.low):
        return f"{row.difference:+.1f}"
    return f"{round(row.difference, 1) + 0.0:+.1f} ({row.low:+.1f}, {row.high:+.1f})"
