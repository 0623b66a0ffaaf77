"""`tsattn benchmark`, `compare` and `report`: many runs, and what their records say."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tsattn.cli.words import Given, Pair, as_pairs, flat, say, session
from tsattn.descriptions import parsed
from tsattn.errors import UserError, number_of, one_of
from tsattn.experiments.configs import config_names, find_config

if TYPE_CHECKING:
    from tsattn.leaderboard.runner import Options, Runner

_SUITES = "suites/*.yaml"
_PLACES = ("--folder", "--output")


def find_suite(name: str) -> Path:
    """The file of a suite, by its path or the name of an included one."""
    path = Path(name)
    if path.is_file():
        return path
    short, included = path.name.removesuffix(".yaml"), config_names(_SUITES)
    if f"suites/{short}.yaml" in included and str(path.parent) in (".", "suites"):
        return find_config(f"suites/{short}", "suite", _SUITES)
    raise UserError(f"no suite {name}: neither a file nor one of {one_of(Path(one).stem for one in included)}")


def _how(options: Any, jobs: int, command: str) -> Options:
    from tsattn.errors import import_ray
    from tsattn.leaderboard.runner import Options

    if options.ray is not None:
        import_ray("--ray")  # before the data are read
    return Options(options.jobs or jobs, options.threads, options.retry_failed, command)


def _was_run(runner: Runner, options: Any, command: str) -> bool:
    """Run what is left, or only list it."""
    runner.say_plan(lists=options.dry_run)
    if not options.dry_run:
        runner.run_all(options.ray, command)
    return not options.dry_run


def benchmark(given: Given) -> None:
    """Run what is left of a suite."""
    options = given.options
    if options.suite is None:
        raise UserError(f"benchmark needs a suite: --suite NAME, a file or one of {one_of(config_names(_SUITES))}")
    file = find_suite(options.suite)
    for name in _PLACES:
        place = getattr(options, name.removeprefix("--"))
        if place is not None and Path(place).is_file():
            raise UserError(f"{name} is a folder, but {place} is a file; name another")

    from tsattn.leaderboard.entry_run import WorkingFolder
    from tsattn.leaderboard.plan import Planner
    from tsattn.leaderboard.runner import Runner
    from tsattn.leaderboard.suite import read_suite

    # where files lie says nothing on another machine
    shown = flat(pair for pair in as_pairs(given.typed) if pair[0] not in _PLACES)
    how = _how(options, 1, shlex.join(["tsattn", "benchmark", *shown]))
    with session():
        suite, planner = read_suite(file), Planner()
        chosen = {"data": options.data, "predictors": options.predictor, "attentions": options.attention}
        part = suite.narrowed(**chosen, horizons=options.horizon, seeds=options.seeds)
        output = Path(options.output or Path("benchmarks", "results", "leaderboard", suite.name))
        folder = WorkingFolder(options.folder or Path("runs", "leaderboard", suite.name))
        whole = planner.plan(suite)
        entries = whole if part == suite else planner.plan(part)
        runner = Runner(suite.name, suite.text, whole, entries, folder, output, how, say)
        if not _was_run(runner, options, shlex.join(["tsattn", "benchmark", *given.typed])):
            return
    say(f"records: {output}")
    if not options.no_report:
        _write_report([str(output)], output, [])


def compare(given: Given) -> None:
    """Compare models that are trained for it, or finished runs."""
    options, overrides = given.options, given_overrides(given.others)

    from tsattn.leaderboard.compare import Plan, compare_runs

    with session():
        if given.free:
            if options.config or options.attention or options.vary or overrides:
                raise UserError("finished runs are compared as they are: name run folders alone, or a --config")
            comparison, name = compare_runs(given.free, margin=options.margin), "comparison"
            output = Path(options.output or ".")
        else:
            if options.config is None:
                raise UserError("name what to compare: --config NAME --attention standard,mlr, or two run folders")
            attention = None if options.attention is None else given_values("--attention", options.attention)
            plan = Plan.of(options.config, attention, _varied(options.vary), options.seeds, overrides)
            command = shlex.join(["tsattn", "compare", *given.typed])
            runner = plan.runner(options.folder, _how(options, plan.jobs, command), say)
            if not _was_run(runner, options, command):
                return
            comparison, name = plan.comparison(runner, options.margin), plan.differs
            output = Path(options.output or runner.folder.path)
        say(f"\n{comparison}\n")
        file = output / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        comparison.figure().savefig(file, dpi=150)
        say(f"figure: {file}")


def given_overrides(pairs: list[Pair]) -> dict[str, Any]:
    """Dotted options as values by their paths."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        if not name.startswith("--") or "." not in name:
            raise UserError(f"compare has no option {name}; see `tsattn compare --help`")
        if text is None:
            raise UserError(f"{name} needs a value: {name}=VALUE")
        values[name.removeprefix("--")] = _parsed(name, text)
    return values


def _varied(words: list[str] | None) -> dict[str, list[Any]] | None:
    split = [word.partition("=") for word in words or ()]
    if without := [path for path, equals, _ in split if not equals]:
        raise UserError(f"--vary needs values: --vary {without[0]}=A,B")
    return {path: given_values(f"--vary {path}", text) for path, _, text in split} or None


def given_values(what: str, text: str) -> list[Any]:
    """Values with commas between them; each may be YAML, as ``{kind: mlr, ranks: [8, 8]}``."""
    return _parsed(what, f"[{text}]")  # type: ignore[no-any-return]


def _parsed(what: str, text: str) -> Any:
    try:
        return parsed(text)
    except yaml.YAMLError as error:
        raise UserError(f"{what} must be a value, or values with commas between them, not {text!r}") from error


def report(given: Given) -> None:
    """Write the page of records."""
    options, records = given.options, given.free
    if not records:
        raise UserError("report needs records: name a folder with records.parquet, as `benchmark` writes it")
    for source in map(Path, records):
        if (source / "config.yaml").is_file():
            raise UserError(f"{source} is a run: see its forecast.png, or `tsattn compare {source} OTHER_RUN`")
    if options.output is None and len(records) > 1:
        raise UserError("several records make one page: name its folder with --output DIR")
    output = Path(options.output or (records[0] if Path(records[0]).is_dir() else Path(records[0]).parent))
    if output.suffix in (".html", ".md"):
        raise UserError(f"--output is a folder, not {output.name}: pass --output {output.parent}")
    _write_report(records, output, [Path(file) for file in options.readme or []])


def _write_report(records: list[str], output: Path, readme: list[Path]) -> None:
    from tsattn.leaderboard.analysis import Analysis
    from tsattn.leaderboard.page import HTML, MARKDOWN, write_readme, write_report
    from tsattn.leaderboard.published import read_published, shipped_numbers
    from tsattn.leaderboard.records import Records

    published = shipped_numbers()
    analysis = Analysis(Records.read(*records), read_published(published) if published else ())
    page = write_report(analysis, output)
    failed = f", {len(analysis.failed)} failed" if len(analysis.failed) else ""
    say(f"{number_of(len(analysis.runs), 'run')}{failed}: {output / HTML}, {output / MARKDOWN}")
    for file in readme:
        write_readme(file, page, output)
        say(f"{file}: its part is that of these records")
