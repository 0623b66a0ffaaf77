"""`tsattn benchmark`, `compare` and `report`: run many models and summarise their records."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.cli.words import Pair, Words, as_yaml, flat, say, session
from tsattn.errors import UserError, import_ray, one_of
from tsattn.experiments.configs import config_names, find_config

if TYPE_CHECKING:
    from tsattn.leaderboard.runner import Options


def _how(options: Any, jobs: int, command: str) -> Options:
    from tsattn.leaderboard.runner import Options

    if options.ray is not None:
        import_ray("--ray")  # before the data are read
    return Options(options.jobs or jobs, options.threads, options.retry_failed, command)


def benchmark(words: Words) -> None:
    """Run the unfinished runs of a suite."""
    options = words.options
    if options.suite is None:
        names = one_of(config_names("suites/*.yaml"))
        raise UserError(f"benchmark needs a suite: --suite NAME, a file or one of {names}")
    file = find_config(options.suite, "suite", "suites")

    from tsattn.leaderboard.page import write_pages
    from tsattn.leaderboard.runner import Runner

    # paths of this machine mean nothing on another machine
    shown = flat(pair for pair in words.given if pair[0] not in ("--folder", "--output"))
    how = _how(options, 1, shlex.join(["tsattn", "benchmark", *shown]))
    limits = {"data": options.data, "predictors": options.predictor, "attentions": options.attention}
    limits |= {"horizons": options.horizon, "seeds": options.seeds}
    with session():
        runner = Runner.of_suite(file, limits, options.folder, options.output, how, say)
        if not runner.run_all(options.ray, shlex.join(words.typed), lists=options.dry_run):
            return
    say(f"records: {runner.output}")
    if runner.output is not None and not options.no_report:
        write_pages([runner.output], runner.output, [], say)


def compare(words: Words) -> None:
    """Train and compare models, or compare finished runs."""
    options, overrides = words.options, given_overrides(words.pairs)

    from tsattn.leaderboard.compare import Plan, compare_runs

    with session():
        if words.free:
            if options.config or options.attention or options.vary or overrides:
                raise UserError("finished runs are compared as they are: leave out experiment options such as --config")
            comparison, name = compare_runs(words.free, margin=options.margin), "comparison"
            output = Path(options.output or ".")
        else:
            if options.config is None:
                raise UserError("name what to compare: --config NAME --attention standard,mlr, or two run folders")
            attention = None if options.attention is None else given_values("--attention", options.attention)
            split = [word.partition("=") for word in options.vary or ()]
            if without := [path for path, equals, _ in split if not equals]:
                raise UserError(f"--vary needs values: --vary {without[0]}=A,B")
            varied = {path: given_values(f"--vary {path}", text) for path, _, text in split} or None
            names = [path for path, *_ in split]
            if twice := [path for path in names if names.count(path) > 1]:
                raise UserError(f"--vary names {twice[0]} more than once: give all its values in one list")
            plan = Plan.of(options.config, attention, varied, options.seeds, overrides)
            command = shlex.join(words.typed)
            runner = plan.runner(options.folder, _how(options, plan.jobs, command), say)
            if not runner.run_all(options.ray, command, lists=options.dry_run):
                return
            comparison, name = plan.comparison(runner, options.margin), plan.differs
            output = Path(options.output or runner.folder.path)
        say(f"\n{comparison}\n")
        file = output / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        comparison.figure().savefig(file, dpi=150)
        say(f"figure: {file}")


def given_overrides(pairs: list[Pair]) -> dict[str, Any]:
    """Values of dotted options, by path."""
    if strange := [name for name, _ in pairs if not name.startswith("--") or "." not in name]:
        raise UserError(f"compare has no option {strange[0]}; see `tsattn compare --help`")
    return {name.removeprefix("--"): as_yaml(name, text) for name, text in pairs}


def given_values(what: str, text: str) -> list[Any]:
    """Parse values with commas between them; each may be YAML, such as ``{kind: mlr, ranks: [8, 8]}``."""
    return as_yaml(what, f"[{text}]")  # type: ignore[no-any-return]


def report(words: Words) -> None:
    """Write a page that reports records."""
    options, records = words.options, words.free
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
    from tsattn.leaderboard.page import write_pages

    write_pages(records, output, options.readme or [], say)
