"""The words of the command line: `help.txt` defines help, parser and reference of every command.

A line that begins with `#` begins a page. A paragraph of indented lines is a group of options under its title; other
paragraphs are prose. A line of a group names the option and a word for its value, its effect, and its default. Three
dots after the value mean that the option may be repeated. If commands share a table, their letters come first.

jsonargparse parses the experiment, but not the options of backbone and attention. These are set in the parsed
description, by the rules of `overrides` in Python: naming another kind must drop the arguments of the old kind. The
kind may come from any configuration that is read; jsonargparse has no type for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from tsattn.attention import KINDS
from tsattn.descriptions import parsed
from tsattn.errors import UserError, did_you_mean, one_of
from tsattn.experiments.configs import config_names, find_config, get_at, read_config, with_values
from tsattn.experiments.run_folder import LIMITS, RunFolder
from tsattn.predictors import build_predictor, predictor_kinds

if TYPE_CHECKING:
    from tsattn.experiments import Experiment

Pair = tuple[str, str | None]  # a flag and its value

OF_EXPERIMENTS = ("fit", "validate", "test", "predict", "attention")
"""Commands that take an experiment."""
_SHARED = {
    **{name: ("experiments", name[0]) for name in OF_EXPERIMENTS},
    **{name: ("runs", name[0]) for name in ("compare", "benchmark")},
    **{f"datasets {name}": ("tables", name[0]) for name in ("list", "info", "fetch", "convert", "diagnose")},
    "datasets check": ("tables", "k"),
}
"""The table that a page shares with other pages, and its letter in the table."""
_OPEN: dict[str, str | tuple[str, ...]] = dict.fromkeys((*OF_EXPERIMENTS, "tune", "compare"), "-")
_OPEN |= {"cost": ("--attention.", "--model.backbone.attention.")}
"""Commands that take unlisted flags, and the beginnings of these flags."""
_DTYPES = ("float64", "float32", "bfloat16", "float16")
_ONCE = ("--run", "--resume", "--start", "--ckpt_path", "--input", "--output", "--figure", "--data.path")


def _split(text: str) -> list[str]:
    return [*dict.fromkeys(name.strip() for name in text.split(",") if name.strip())]


def _seconds(text: str) -> float:
    text = text.strip() + "s" * text.strip().isdigit()
    found = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()) if found else (0, 0, 0, 0)
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _whole(text: str) -> int:
    if not re.fullmatch("-?[0-9]+", text.strip()):  # `int` would accept 1_6 and +16
        raise ValueError(text)
    return int(text)


def _numbers(text: str) -> str | list[int]:
    return text if text.isalpha() else [*map(_whole, text.strip("[]").split(","))]


def _is_percent(level: Any) -> bool:
    return all(type(one) in (int, float) for one in (level if isinstance(level, list) else [level]))


_TYPES: dict[str, tuple[Callable[[str], Any], Callable[[Any], bool], str]] = {
    "N": (_whole, lambda number: number >= 1, "a whole number of at least 1"),
    "K": (_whole, lambda number: number >= 2, "a whole number of at least 2"),
    "NUMBER": (_whole, lambda _: True, "a whole number"),
    "SHARE": (float, lambda _: True, "a number"),
    "MARGIN": (float, lambda share: 0 < share < 1, "between 0 and 1"),
    "NAMES": (_split, bool, "names with commas between them"),
    "STEPS": (
        lambda x: [*map(_whole, _split(x))],
        lambda x: x and min(x) > 0,
        "whole numbers of at least 1, with commas between them",
    ),
    "NUMBERS": (_numbers, lambda some: isinstance(some, str) or min(some) >= 0, "all, or numbers such as 0,2"),
    "TIME": (_seconds, bool, "a time like 90s, 30m, 2h or 1h30m"),
    "DTYPE": (str, lambda name: name in _DTYPES, f"one of {one_of(_DTYPES)}"),
    "PART": (str, lambda name: name in ("test", "val"), "test or val"),
    "PERCENT": (yaml.safe_load, _is_percent, 'a number, or a list, such as "[80, 95]"'),
}
"""For each word for a value: its reader, its check, and a description for messages. Other words are text."""


class Option(NamedTuple):
    """An option or a free word: its name, a word for its value or "", its effect, its default as YAML."""

    name: str
    value: str
    what: str
    default: str

    def parsed(self, text: str | None) -> Any:
        """Convert the typed value; raise `UserError` if it is missing or invalid."""
        if not self.value:
            if text is not None:
                raise UserError(f"{self.name} takes no value: write {self.name} alone, without {text}")
            return True
        if text is None:
            raise UserError(f"{self.name} needs a value")
        if self.value == "DIR" and Path(text).is_file():
            raise UserError(f"{self.name} must be a folder, but {text} is a file")
        if self.default == "true":
            return {"true": True, "false": False}.get(text.lower(), text)
        read, is_valid, what = _TYPES.get(self.value, (str, lambda _: True, ""))
        with contextlib.suppress(ValueError, yaml.YAMLError):
            if is_valid(value := read(text)):
                return value
        raise UserError(f"{self.name} must be {what}, not {text}")


class Group(NamedTuple):
    """Options under a title."""

    title: str
    options: tuple[Option, ...]


@lru_cache
def page(name: str) -> tuple[str | Group, ...]:
    """The paragraphs of a page; its usage comes first."""
    text = Path(__file__).with_name("help.txt").read_text("utf-8")
    pages = dict(part.split("\n", 1) for part in f"\n{text}".split("\n# ")[1:])
    table, letter = _SHARED.get(name, ("", ""))
    parts: list[str | Group] = []
    for source in (name, table):
        for title, *lines in map(str.splitlines, filter(None, pages.get(source, "").strip().split("\n\n"))):
            if not lines or title.endswith(":") or not all(line.startswith("  ") for line in lines):
                parts.append("\n".join([title, *lines]))
                continue
            split = (line.split(maxsplit=1) if source == table else [letter, line.strip()] for line in lines)
            options = tuple(_option(rest) for letters, rest in split if letter in letters)
            parts += [Group(title, options)] if options else []
    if table == "tables" and isinstance(parts[0], Group):
        free = [one.name for one in parts[0].options if not one.name.startswith("-")]
        parts.insert(0, " ".join(["tsattn", name, *free, "[options]"]))
    elif name not in pages:
        parts.insert(0, f"tsattn {name} --run DIR [options]\ntsattn {name} --config NAME --ckpt_path FILE [options]")
    return tuple(parts)


def _option(line: str) -> Option:
    name, _, rest = line.partition(" ")
    what, _, default = rest.strip().partition(" == ")
    value, _, after = what.partition(" ")
    return Option(name, *(value, after.strip()) if value.isupper() else ("", what), default)


def groups(name: str) -> list[Group]:
    """The groups of a page."""
    return [part for part in page(name) if isinstance(part, Group)]


COMMANDS = {one.name: one.what for one in groups("tsattn")[0].options}
"""Purpose of each command."""
ACTIONS = [one.name for one in groups("datasets")[0].options]
"""Actions of `datasets`."""


def own_options(name: str) -> dict[str, Option]:
    """The options and free words of a page that are not keys of a configuration, by name."""
    listed = [option for group in groups(name) for option in group.options]
    if name in OF_EXPERIMENTS or name == "cost":
        keys = ("--config", "--data", "--attention", "--seed_everything")  # without a dot
        listed = [one for one in listed if "." not in one.name and one.name not in keys]
    return {one.name: one for one in listed if one.name != "--help-all"}


def help_text(name: str) -> str:
    """The text that `--help` prints."""
    lines = []
    for part in page(name):
        if isinstance(part, str):
            lines += ["", part]
            continue
        lines += ["", f"{part.title}:"]
        width = 37 if any(option.name.startswith("-") for option in part.options) else 10
        for option, value, what, default in part.options:
            shown = f"{option} {value}".strip()
            lines.append(f"  {shown:{width}} {what}{f' (default: {default})' if default else ''}")
    if name == "fit":
        lines += ["", f"kinds of model: {one_of(predictor_kinds())}", f"kinds of attention: {one_of(KINDS)}"]
    usage, *rest = lines[1:]
    return "\n".join([usage if name == "tsattn" else "usage:\n  " + usage.replace("\n", "\n  "), *rest])


def as_pairs(words: Iterable[str], command: str) -> list[Pair]:
    """Pair flags with their values, by the page of a command; a word without a flag has no partner."""
    flags, pairs = {one.name for one in own_options(command).values() if not one.value}, list[Pair]()
    for word in words:
        flag, value = pairs[-1] if pairs else ("", None)
        # a finished run takes no free words, so a word is a value, which `Option.parsed` may refuse
        takes = flag not in flags or command in OF_EXPERIMENTS[1:] or word.lower() in ("true", "false")
        if word.startswith("-") and not re.fullmatch(r"-[\d.].*|-inf|-nan", word):
            name, equals, text = re.sub("^-c=?(?=.)", "--config=", word).partition("=")
            pairs.append(("--config" if name == "-c" else name, text if equals else None))
        elif flag.startswith("-") and value is None and takes:
            pairs[-1] = (flag, word)
        else:
            pairs.append((word, None))
    return pairs


def flat(pairs: Iterable[Pair]) -> list[str]:
    """The words of pairs, in order."""
    return [word for pair in pairs for word in pair if word is not None]


def as_yaml(name: str, text: str | None, or_text: bool = False) -> Any:
    """Read the typed value of an option as YAML, or as text if `or_text`; raise `UserError` if that fails."""
    if text is None:
        raise UserError(f"{name} needs a value: {name}=VALUE")
    try:
        return text if text.startswith("#") else parsed(text)  # `#id` is a column, not a comment
    except yaml.YAMLError as error:
        if or_text:
            return text
        raise UserError(f"{name} must be a value, or values with commas between them, not {text!r}") from error


def say(text: str) -> None:
    """Print a line at once. After the reader closes the output, print nothing, so that the work continues."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Discard all further output, including buffered text."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # stdout is no file, or closed
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Silence Lightning, show warnings as lines, and raise errors as `user_errors` does."""
    from tsattn.experiments.experiment import user_errors
    from tsattn.training.execution import quiet_lightning

    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning's, not the user's
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(logging.Formatter("warning: %(message)s"))
    shown.setLevel(logging.WARNING)
    logging.getLogger("tsattn").addHandler(shown)
    try:
        with quiet_lightning(), user_errors():
            yield
    finally:
        logging.getLogger("tsattn").removeHandler(shown)


_TABLES = (".csv", ".csv.gz", ".parquet", ".pq", ".arrow", ".feather")
_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
_KNOWN = (  # options of the data that a trained model fixes
    *("context_length", "prediction_length", "season_length", "batch_size", "scaling", "frequency", "val_windows"),
    "transform",
    *("target", "past_covariates", "future_covariates", "static", "weight_column", "series_weights", "row_weights"),
)
_TRAINER = ("accelerator", "precision", "plugins", "deterministic", "benchmark", "enable_progress_bar")
# these options are refused elsewhere, with their messages
_REFUSED = ("devices", "num_nodes", "limit_test_batches", "limit_predict_batches", "overfit_batches", "barebones")
# options of the model that have an effect without a training, too
_FITTED = ("backbone", "quantiles", "distribution", "selection", "calibrate")


class Words:
    """Words after a command, parsed by its page; a `UserError` names an invalid word.

    For a command of an experiment, the configuration of a run folder or table is added. No heavy module is imported
    before `experiment` is called.

    Attributes:
        command: the command with its action.
        typed: the whole command.
        given: its words, as flags with their values.
        options: the options of the page, with their defaults.
        free: words without a flag.
        pairs: flags that the page does not list, such as keys of a configuration, with their values.
        limits: limits of the Trainer for a resumed run.
    """

    def __init__(self, command: str, words: list[str]) -> None:
        if command == "fit" and not words:
            names = f"--config NAME, a file or one of {one_of(config_names())}"
            raise UserError(f"fit needs a configuration: {names}; or a table of your own: tsattn fit FILE")
        self.command, self.typed = command, ["tsattn", *command.split(), *words]
        self.options, self.limits = Namespace(), dict[str, Any]()
        self.free, self.pairs, self.given = list[str](), list[Pair](), as_pairs(words, command)
        self._take()
        if command not in OF_EXPERIMENTS:
            return
        if command == "fit":
            self._take_table()
        self.pairs += [(word, None) for word in self.free]
        options = self.options
        if command != "fit":
            if not any(name.endswith(".help") for name, _ in self.pairs):
                self._reopen()
        elif options.resume is not None:
            self._resume()
        elif options.start is not None:
            run = RunFolder(options.start)
            run.check_trained()
            if all(name != "--config" for name, _ in self.pairs):
                self.pairs.insert(0, ("--config", str(run.config)))
        for number, (name, value) in enumerate(self.pairs):  # before heavy imports
            if name == "--config" and value is not None:
                path = find_config(value)
                read_config(path)
                self.pairs[number] = name, str(path)

    def _take(self) -> None:
        known = own_options(self.command)
        values: dict[str, list[Any]] = {one: [] for one in known if one.startswith("-")}
        for flag in (*_ONCE, *({"--config"} & known.keys())):  # elsewhere configurations are merged
            if len({*(paths := [text for one, text in self.given if one == flag and text])}) > 1:
                raise UserError(f"{flag} is given {len(paths)} times, as {one_of(paths)}; give it once")
        for flag, text in self.given:
            if flag in values:
                values[flag].append(known[flag].parsed(text))
            elif flag.startswith("-"):
                self.pairs.append((flag, text))
            else:
                self.free.append(flag)
        for flag, given in values.items():
            option, is_many = known[flag], known[flag].value.endswith("...")
            default = yaml.safe_load(option.default) if option.default else None if option.value else False
            value = (given or None) if is_many else given[-1] if given else default
            setattr(self.options, flag[2:].replace("-", "_"), value)
        begins, valid = _OPEN.get(self.command), _option_names(self.command)
        places = [one for one in known if one not in values]  # names of free words
        takes_all = begins == "-" or any("..." in one for one in places)
        for word in [*(flag for flag, _ in self.pairs), *([] if takes_all else self.free[len(places) :])]:
            if begins is None or not f"{word}.".startswith(begins):
                raise UserError(f"unknown argument {word}{did_you_mean(word, valid)}; valid: {one_of(valid)}")

    def _take_table(self) -> None:
        """Let a typed table, with the typed options of data, replace the data of all configurations."""
        tables = [one for one in self.free if one.lower().endswith(_TABLES) or Path(one).is_dir()]
        if not tables:
            return
        paths = {f"--data.path {value}": None for name, value in self.pairs if name == "--data.path"}
        if len(tables) + len(paths) > 1:
            raise UserError(f"fit reads one table, and is given {one_of([*tables, *paths])}; give one")
        from tsattn.data.mapped import is_panel_folder

        kind = "MappedDataModule" if is_panel_folder(Path(tables[0])) else "CSVDataModule"
        self.free.remove(tables[0])
        self.pairs += [("--data", kind), ("--data.path", tables[0])]
        self.pairs.sort(key=lambda pair: pair[0].startswith("--data."))  # options after the class that takes them

    def _reopen(self) -> None:
        """Put the configuration of a finished run first, and choose its checkpoint: of a refit, if it forecasts."""
        for name, value in self.pairs:
            if name in ("--trainer.devices", "--trainer.num_nodes") and value not in ("1", "auto", "[0]"):
                what = f"{self.command} runs on one device, so that no window counts twice"
                raise UserError(f"{what}: {name} must be 1, not {value}")
        options = self.options
        if options.run is None:
            if options.ckpt_path is None:
                raise UserError(f"{self.command} needs a trained model: --run DIR, the folder that `fit` has written")
            return
        run, has_input = RunFolder(options.run), getattr(options, "input", None) is not None
        run.check_trained()
        # the split decides where the windows of a part begin; a forecast beyond the data does not need it
        is_beyond = self.command == "predict" or (self.command == "attention" and options.window is None)
        idle = _KNOWN + (("resident_gb", *_SPLIT) if is_beyond else ())
        idle += ("", "class_path", "path", "root", "folder", "verify") if has_input else ()
        arguments = get_at(read_config(run.config), "data.init_args", None) or {}
        valid = [name for name in _option_names(self.command) if "." not in name and name not in ("--run", "--config")]
        valid += [*(f"--data.{name}" for name in arguments if name not in idle), *(f"--trainer.{x}" for x in _TRAINER)]
        if any(name == "--config" for name, _ in self.pairs):
            what = f"{self.command} --run uses the configuration of the run: leave out --config"
            raise UserError(f"{what}; valid with --run are {one_of(valid)}")
        useful = {**dict.fromkeys(("model", "attention", "seed_everything"), ()), "trainer": (*_TRAINER, *_REFUSED)}
        beside = "--run and --input" if has_input else "--run"
        self._refuse_idle(useful, f" with {beside}: a trained model is not changed", valid, idle)
        self.pairs.insert(0, ("--config", str(run.config)))
        options.ckpt_path = options.ckpt_path or str(run.forecasting_checkpoint() if is_beyond else run.best)

    def _resume(self) -> None:
        limits = [f"--trainer.{name}" for name in LIMITS]
        if any(name not in (*limits, "--resume", "--refit", "--detail") for name, _ in self.given):
            what = "fit --resume DIR keeps the configuration of the run; the only other options are"
            raise UserError(f"{what} {one_of(limits)}, to train it longer, --refit and --detail")
        if missing := [name for name, value in self.pairs if value is None]:
            raise UserError(f"{missing[0]} needs a value")
        run = RunFolder(self.options.resume)
        self.limits = {name.removeprefix("--trainer."): value for name, value in self.pairs}
        run.check_resumable(longer=bool(self.limits) or (self.options.refit and not run.refit.exists()))
        self.pairs.insert(0, ("--config", str(run.config)))

    def check_trained(self, predictor: str) -> None:
        """Refuse typed options of a training if the predictor is not trained; options in a file may stay."""
        useful = {"model": ("", *_FITTED), "trainer": ("", *_TRAINER, *_REFUSED, "fast_dev_run")}
        valid = [f"--{root}.{one}" for root, names in (("model", _FITTED), ("trainer", _TRAINER)) for one in names]
        self._refuse_idle(useful, f": {predictor} is not trained", valid)

    def _refuse_idle(
        self, useful: Mapping[str, Iterable[str]], why: str, valid: list[str], idle: Iterable[str] = ()
    ) -> None:
        """Refuse flags without effect: `idle` options of data, and options that are not `useful` in their section."""
        for name, _ in self.pairs:
            root, _, rest = name.removeprefix("--").partition(".")
            part = rest.removeprefix("init_args.").partition(".")[0].removesuffix("+")
            if part not in useful.get(root, (part,)) or (root == "data" and part in idle):
                raise UserError(f"{name} would do nothing{why}; valid are {one_of(valid)}")

    def experiment(self) -> Experiment:
        """Parse the experiment. With `--print_config`, print the configuration and raise SystemExit."""
        from tsattn.experiments.experiment import Experiment, parsed_words, plain

        descriptions, pairs = take_descriptions(self.pairs)
        own = [name for name in _option_names(self.command) if "." not in name]
        parts = parsed_words(flat(pairs), f"tsattn {self.command}", (*own, *["--horizon"] * (self.command == "fit")))
        if descriptions:
            parts.model.backbone = with_values(plain(parts), descriptions)["model"]["backbone"]
        if {"--data.context_length", "--data.init_args.context_length"} & dict(pairs).keys():  # a typed context wins
            predictor = build_predictor(plain(parts)["model"]["backbone"])
            parts.model.backbone = predictor.with_context(parts.data.init_args["context_length"]).description
        if self.options.print_config:
            print(yaml.safe_dump(plain(parts), sort_keys=False), end="")
            raise SystemExit(0)
        return Experiment.of_parts(parts)

    def input_files(self, experiment: Experiment) -> list[str | None]:
        """The paths of the data file and of ``--input``; None if not given."""
        return [get_at(experiment.data, "init_args.path", None), getattr(self.options, "input", None)]


def _option_names(name: str) -> list[str]:
    listed = dict.fromkeys(one.name for group in groups(name) for one in group.options)
    return [one for one in listed if one.startswith("-") and not one.endswith(".ARGUMENT")]


def take_descriptions(pairs: list[Pair]) -> tuple[dict[str, Any], list[Pair]]:
    """Separate options of backbone and attention, as values by dotted path, from the other flags.

    Arguments may come before their kind; a second kind removes all arguments before it.
    """
    found: dict[str, Any] = {}
    left, named = list[Pair](), set[str]()
    for name, value in pairs:
        path = name.removeprefix("--")
        path = f"model.backbone.{path}" if f"{name}.".startswith("--attention.") else path
        if not f"{path}.".startswith("model.backbone."):
            left.append((name, value))
            continue
        *_, argument = path.removeprefix("model.backbone").removeprefix(".attention").partition(".")
        if "." in argument:
            raise UserError(f"unknown argument {name}; {name.rpartition('.')[0]} is a single value: set it as a whole")
        root = path.removesuffix(".kind")
        if argument in ("", "kind") and root in named:
            found = {one: of for one, of in found.items() if not f"{one}.".startswith(f"{root}.")}
        named |= {root} if argument in ("", "kind") else set()
        found[path] = as_yaml(name, value, or_text=True)  # the backbone checks the value
    return found, left
