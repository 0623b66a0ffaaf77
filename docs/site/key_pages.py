"""Reference of YAML: every key of a configuration, of a suite and of a search space."""

from __future__ import annotations

import argparse
import re
from itertools import takewhile
from textwrap import dedent
from types import ModuleType
from typing import Any

from jsonargparse import ArgumentParser

from docs.site.markdown_parts import Entry, code_block, definitions, table, type_words, yaml_value
from tsattn.data import DATA_MODULES
from tsattn.descriptions import imported
from tsattn.experiments.configs import config_names, find_config
from tsattn.experiments.experiment import ExperimentParser, add_experiment
from tsattn.leaderboard import suite
from tsattn.tuning import search as searches

__all__ = ["configuration_page", "search_page", "suite_page"]

_CONFIGURATION = """# Configuration

A configuration is YAML with four keys: `seed_everything`, `data`, `model` and `trainer`. Train it by
`tsattn fit --config NAME`; print it with all defaults by adding `--print_config`. You can set each key as an option of
the [command line](commands/index.md), by its dotted path. In Python you override it:
`tsattn.run("co2_mlr.yaml", overrides={"model.loss": "mae"})`.

This is `etth1_mlr.yaml`:
"""

_DATA = """## data

`class_path:` names the class, `init_args:` holds its arguments. Leave `init_args` out in an option:
`--data CSVDataModule --data.path mine.csv`. Name your own class by its import path.

### Every class
"""

_TRAINER = """## trainer

These are the arguments of Lightning's Trainer, with our defaults. Name a `logger` by its name. Describe other classes
by `class_path` and `init_args`.
"""

_NAMES = """## Included configurations

Use their names from any folder.
"""

_SUITE = """# Suites

A suite lists data sets, horizons, predictors, attentions and seeds. `tsattn benchmark --suite FILE` runs every
combination. Use an included suite by its name.
"""

_SEARCH = """# Search spaces

A search space lists the values that `tsattn tune --config NAME --search FILE` tries, around a configuration. Use an
included search space by its name.
"""

_SEARCH_KEYS = {
    "parameters": "values to try, by the dotted paths of a configuration",
    "objectives": "`[error]` by default; add `flops`, `parameters`, `seconds` or `memory`, for a Pareto front",
    "constraints": "upper bounds of `parameters`, `flops` or `memory`: `{memory: 2 GB}`",
    "sampler": "`tpe` by default, `random`, or `grid`, which tries every combination",
    "pruner": "`median` by default, which ends trials that are worse than the median, or `none`",
}
_PARAMETER_KEYS = {
    "type": "`float`, `int` or `categorical`",
    "low": "lowest value of a number",
    "high": "highest value, included",
    "log": "draw a number evenly on a logarithmic scale; `false` by default",
    "step": "distance between the values of a number",
    "choices": "values of a categorical parameter: a list, or a mapping of names to values",
    "when": "values of other parameters that this one needs: `{attention.kind: mlr}`",
}


def configuration_page() -> str:
    """Every key of a configuration, with type, default and meaning."""
    parser = ExperimentParser(prog="tsattn")
    add_experiment(parser)
    actions = {action.dest: action for action in parser._actions}
    parts = [_CONFIGURATION, code_block("yaml", find_config("etth1_mlr").read_text("utf-8"))]
    parts += ["## seed_everything\n", definitions([_entry(actions["seed_everything"])]), _DATA]
    classes = {name: _class_entries(path) for name, path in DATA_MODULES.items()}
    common = set.intersection(*({entry.name for entry in entries} for entries in classes.values()))
    usual = {entry.name: entry for entry in classes["CSVDataModule"] if entry.name in common}
    parts.append(definitions(usual.values()))
    for name, entries in classes.items():
        differing = [entry for entry in entries if entry != usual.get(entry.name)]
        own = [entry._replace(anchor=f"{name}.{entry.name}") for entry in differing]
        parts += [f"### {name}\n", definitions(own) if own else "It has no arguments of its own.\n"]
    for section in ("model", "trainer"):
        parts.append(_TRAINER if section == "trainer" else "## model\n")
        mine = [one for dest, one in actions.items() if dest.startswith(f"{section}.") and not dest.endswith(".help")]
        parts.append(definitions(map(_entry, mine)))
    parts += [_NAMES, _listed("*.yaml")]
    return "\n".join(parts)


def suite_page() -> str:
    """Every key of a suite."""
    parts = [_SUITE, _example(suite)]
    for title, keys in suite.KEYS.items():
        parts += [f"## {title}\n", _keys(keys)]
    parts += ["## Included suites\n", _listed("suites/*.yaml")]
    return "\n".join(parts)


def search_page() -> str:
    """Every key of a search space."""
    parts = [_SEARCH, _example(searches), "## Keys\n", _keys(_SEARCH_KEYS)]
    parts += ["## A parameter\n", "A list of choices, or a mapping with these keys:\n", _keys(_PARAMETER_KEYS)]
    parts += ["## Included search spaces\n", _listed("search/*.yaml")]
    return "\n".join(parts)


def _example(module: ModuleType) -> str:
    """The YAML in the docstring of the module that reads it."""
    return code_block("yaml", dedent((module.__doc__ or "").partition("::\n")[2].strip("\n")))


def _keys(keys: dict[str, str]) -> str:
    return definitions(Entry(name, what) for name, what in keys.items())


def _class_entries(path: str) -> list[Entry]:
    """The arguments of a class of data, those that it hands on to others too."""
    parser = ArgumentParser()
    parser.add_class_arguments(imported(path), "data", fail_untyped=False)
    return [_entry(action) for action in parser._actions if action.dest.startswith("data.")]


def _entry(action: argparse.Action) -> Entry:
    what = re.sub(r"\s*Default: ``[^`]*``\.?", "", action.help or "")  # Lightning's, where ours is another
    hint: Any = getattr(action, "_typehint", action.type)
    default = "" if action.required else yaml_value(action.default)
    return Entry(action.dest, what, type_words(hint), default, action.dest, action.required)


def _listed(pattern: str) -> str:
    """Included files, with the comment that each begins with."""
    rows = []
    for name in config_names(pattern):
        lines = find_config(name).read_text("utf-8").splitlines()
        comments = [line.lstrip("# ") for line in takewhile(lambda line: line.startswith("# "), lines)]
        rows.append((f"`{name}`", " ".join(comments)))
    return table(("name", "what it is"), rows)
