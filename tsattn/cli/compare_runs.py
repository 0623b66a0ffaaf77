"""`tsattn compare`: train models that differ in one thing, or compare finished runs; one table and one figure."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import yaml

from tsattn.cli.benchmark import add_running_options
from tsattn.cli.words import SentenceParser, as_pairs, count, say, session, share
from tsattn.descriptions import parsed
from tsattn.errors import UserError

__all__ = ["run"]

_DESCRIPTION = """\
Compare models on the same test windows: train them identically but for one thing, or name finished runs.

Repeat the command to resume: a finished run is never repeated."""

_ENDING = """\
Options of `fit` that are written as --SECTION.NAME=VALUE hold for all models: --trainer.max_steps=200."""


def run(words: list[str]) -> int:
    """Compare; the exit code is 0, or a `UserError` is raised."""
    joined = []  # a dotted option and its value are one word, or argparse takes the value for a run
    for name, value in as_pairs(words):
        joined += [name] if value is None else [f"{name}={value}"] if "." in name else [name, value]
    options, others = _parser().parse_known_args(joined)
    overrides = _overrides(others)

    from tsattn.leaderboard.compare import Plan, compare_runs
    from tsattn.leaderboard.runner import Options
    from tsattn.ray_cluster import import_ray

    with session():
        if options.runs:
            if options.config or options.attention or options.vary or overrides:
                raise UserError("finished runs are compared as they are: name run folders alone, or a --config")
            comparison, name = compare_runs(options.runs, margin=options.margin), "comparison"
            output = Path(options.output or ".")
        else:
            if options.config is None:
                raise UserError("name what to compare: --config NAME --attention standard,mlr, or two run folders")
            if options.ray is not None:
                import_ray("--ray")
            attention = None if options.attention is None else _values("--attention", options.attention)
            plan = Plan.of(options.config, attention, _varied(options.vary), options.seeds, overrides)
            jobs = options.jobs or plan.jobs
            command = shlex.join(["tsattn", "compare", *words])
            how = Options(jobs, options.threads, options.retry_failed, command)
            runner = plan.runner(options.folder, how, say)
            runner.say_plan(lists=options.dry_run)
            if options.dry_run:
                return 0
            runner.run_all(options.ray, command)
            comparison, name = plan.comparison(runner, options.margin), plan.differs
            output = Path(options.output or runner.folder.path)
        say(f"\n{comparison}\n")
        file = output / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        comparison.figure().savefig(file, dpi=150)
        say(f"figure: {file}")
    return 0


def _overrides(words: list[str]) -> dict[str, Any]:
    """Dotted options as values by their paths."""
    values: dict[str, Any] = {}
    for name, text in as_pairs(words):
        if not name.startswith("--") or "." not in name:
            raise UserError(f"compare has no option {name}; see `tsattn compare --help`")
        if text is None:
            raise UserError(f"{name} needs a value: {name}=VALUE")
        values[name.removeprefix("--")] = _parsed(name, text)
    return values


def _varied(words: list[str] | None) -> dict[str, list[Any]] | None:
    if not words:
        return None
    found = {}
    for word in words:
        path, has_values, text = word.partition("=")
        if not has_values:
            raise UserError(f"--vary needs values: --vary {word}=A,B")
        found[path] = _values(f"--vary {path}", text)
    return found


def _values(what: str, text: str) -> list[Any]:
    """Values with commas between them; each may be YAML, as ``{kind: mlr, ranks: [8, 8]}``."""
    values: list[Any] = _parsed(what, f"[{text}]")
    return values


def _parsed(what: str, text: str) -> Any:
    try:
        return parsed(text)
    except yaml.YAMLError as error:
        raise UserError(f"{what} must be a value, or values with commas between them, not {text!r}") from error


def _parser() -> argparse.ArgumentParser:
    usage = """tsattn compare --config NAME --attention A,B [--seeds N] [options]
       tsattn compare --config NAME --vary PATH=A,B [options]
       tsattn compare RUN RUN [RUN ...]"""
    parser = SentenceParser(prog="tsattn compare", usage=usage, description=_DESCRIPTION, epilog=_ENDING)
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folders of finished runs, the reference first")
    parser.add_argument("-c", "--config", metavar="NAME", help="a file, or the name of an included configuration")
    parser.add_argument("--attention", metavar="A,B", help="attentions to compare, the reference first: standard,mlr")
    parser.add_argument("--vary", action="append", metavar="PATH=A,B", help="values of another option, instead")
    parser.add_argument("--seeds", type=count, default=3, metavar="N", help="seeds of each model (default: 3)")
    parser.add_argument("--margin", type=share, default=0.01, help="differences below it are equal (default: 0.01)")
    add_running_options(parser, jobs=None)
    parser.add_argument("--folder", metavar="DIR", help="working folder (default: runs/compare/NAME)")
    parser.add_argument("--output", metavar="DIR", help="folder of the figure (default: the working folder, or here)")
    return parser
