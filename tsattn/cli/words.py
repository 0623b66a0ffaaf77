"""Words of a command: its own options, a run folder, the experiment, and the parsers of commands that take none.

jsonargparse parses the experiment. Three things are done to words before: a run folder brings its configuration, a path
of a table becomes `--data`, and what is said of backbone and attention is set in the parsed description, by the rules
of `overrides` in Python. For that, jsonargparse has no type: naming another kind must drop the arguments of the old
one, and the kind may stand in any configuration that is read.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from tsattn.cli.command_options import own_options
from tsattn.errors import UserError, one_of
from tsattn.experiments.configs import config_names, find_config, read_config, sentence
from tsattn.experiments.run_folder import LIMITS, RunFolder

if TYPE_CHECKING:
    from tsattn.experiments import Experiment

__all__ = ["SentenceParser", "Words", "as_pairs", "at_least", "count", "drop_output", "names", "parse_command", "say"]
__all__ += ["session", "share", "take_descriptions", "without_options"]

Pair = tuple[str, str | None]  # a flag and its value

_FLAGS = ("--overwrite", "--refit", "--detail", "--print_config")  # which have no value
_ONE_PATH = ("--run", "--resume", "--start", "--ckpt_path", "--input", "--output", "--figure", "--data.path")
_TABLES = (".csv", ".csv.gz", ".parquet", ".pq", ".arrow", ".feather")
# of the data, what a trained model knows already
_KNOWN = (
    *("context_length", "prediction_length", "batch_size", "scaling", "frequency", "val_windows", "transform"),
    *("target", "past_covariates", "future_covariates", "static", "weight_column", "series_weights", "row_weights"),
)
_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
_TRAINER = ("accelerator", "precision", "plugins", "deterministic", "benchmark", "enable_progress_bar")
# these have a sentence of their own
_REFUSED = ("devices", "num_nodes", "limit_test_batches", "limit_predict_batches", "overfit_batches", "barebones")
# of the model, what means something without a training, too
_FITTED = ("backbone", "quantiles", "distribution", "selection", "calibrate")


def say(text: str) -> None:
    """Print a line at once; once nobody reads it any more, say no more and go on, as work is not to be lost by that."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Let what is printed from now on, and what is left to be printed at the end, go nowhere."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:  # no file, or a closed one
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


def parse_command(command: str, words: list[str]) -> tuple[Experiment, Namespace]:
    """The experiment that the words after a command describe, and its other options."""
    taken = Words(command, words)
    return taken.experiment(), taken.options


class Words:
    """Words after a command, taken apart; nothing heavy is imported before `experiment`.

    Attributes:
        typed: the whole command.
        options: those of the command.
        pairs: those of the experiment, with their values.
        limits: of the Trainer, that a resumed run is given.
    """

    def __init__(self, command: str, words: list[str]) -> None:
        self.command, self._own = command, own_options(command)
        self.typed = ["tsattn", command, *words]
        self.limits: dict[str, Any] = {}
        typed = as_pairs(words)
        self._check(typed)
        self.options, self.pairs = Namespace(), [pair for pair in typed if pair[0] not in self._own]
        for name, option in self._own.items():
            default = yaml.safe_load(option.default) if option.default else None
            given = [option.parsed(value) for flag, value in typed if flag == name]
            value = given[-1] if given else default if option.value else False
            setattr(self.options, name[2:], (given or None) if name == "--future" else value)
        if command == "fit":
            self._take_table()
        if command == "fit" and not typed:
            raise UserError(
                f"fit needs a configuration: --config NAME, a file or one of {one_of(config_names())}; "
                "or a table of your own: --data CSVDataModule --data.path FILE"
            )
        if command == "fit" and self.options.resume is not None:
            self._resume()
        elif command == "fit" and self.options.start is not None:
            run = RunFolder(self.options.start)
            run.check_trained()
            if all(name not in ("-c", "--config") for name, _ in self.pairs):
                self.pairs = [("--config", str(run.config)), *self.pairs]
        elif command != "fit" and not any(name.endswith(".help") for name, _ in typed):
            self._reopen({name for name, _ in typed})
        for number, (name, value) in enumerate(self.pairs):  # before anything heavy
            if name in ("-c", "--config") and value is not None:
                path = find_config(value)
                read_config(path)
                self.pairs[number] = name, str(path)

    def _check(self, pairs: list[Pair]) -> None:
        for name, value in pairs:
            if name in _FLAGS and value is not None:
                raise UserError(f"{name} takes no value, not {value}: give it, or leave it out")
        for name in _ONE_PATH:
            given = [*dict.fromkeys(value for flag, value in pairs if flag == name and value is not None)]
            if len(given) > 1:
                raise UserError(f"{name} is given {len(given)} times, as {one_of(given)}; give it once")
        if self.command == "fit" and ("--resume", None) in pairs:
            raise _not_to_resume()

    def _take_table(self) -> None:
        """Put the path of a table behind all configurations, whose data it replaces, and before options of the data."""
        tables = [name for name, value in self.pairs if value is None and not name.startswith("-") and _is_table(name)]
        paths = [f"--data.path {value}" for name, value in self.pairs if name == "--data.path"]
        if len(tables) + len(paths) > 1 and tables:
            raise UserError(f"fit reads one table, and is given {one_of([*tables, *paths])}; give one")
        if not tables:
            return
        others = [pair for pair in self.pairs if pair[0] not in tables]
        last = max((at for at, (name, _) in enumerate(others, 1) if name in ("-c", "--config")), default=0)
        moved = [pair for pair in others[:last] if pair[0].startswith("--data.")]
        first = [pair for pair in others[:last] if pair not in moved]
        table: list[Pair] = [("--data", _class_of(tables[0])), ("--data.path", tables[0])]
        self.pairs = [*first, *table, *moved, *others[last:]]

    def _reopen(self, typed: set[str]) -> None:
        """Put the configuration of a finished run first, and take its checkpoint: to forecast, that of a refit."""
        for name, value in self.pairs:
            if name in ("--trainer.devices", "--trainer.num_nodes") and value not in ("1", "auto", "[0]"):
                raise UserError(
                    f"{self.command} runs on one device, so that no window counts twice: {name} must be 1, not {value}"
                )
        if self.options.run is None:
            if self.options.ckpt_path is None:
                raise UserError(f"{self.command} needs a trained model: --run DIR, the folder that `fit` has written")
            return
        run, has_input = RunFolder(self.options.run), "--input" in typed
        run.check_trained()
        # which rows a window of a part begins at is decided by the split
        is_beyond = self.command == "predict" or (self.command == "attention" and "--window" not in typed)
        idle = _KNOWN + (("resident_gb", *_SPLIT) if is_beyond else ())
        idle += ("path", "root", "folder", "verify") if has_input else ()
        data = read_config(run.config).get("data")
        arguments = (data.get("init_args") or {}) if isinstance(data, dict) else {}
        valid = [*(name for name in self._own if name not in ("--run", "--ckpt_path")), "--ckpt_path"]
        valid += [*(f"--data.{name}" for name in arguments if name not in idle), *(f"--trainer.{x}" for x in _TRAINER)]
        for name, _ in self.pairs:
            if name in ("-c", "--config"):
                what = f"{self.command} --run takes the configuration of the run"
                raise UserError(f"{what}; valid beside it are {one_of(valid)}")
            root, part = _parts(name)
            does_nothing = root in ("model", "attention", "seed_everything") or (root == "data" and part in idle)
            does_nothing |= root == "trainer" and part not in (*_TRAINER, *_REFUSED)
            if does_nothing or (has_input and name in ("--data", "--data.class_path")):
                also = " and --input" if has_input and root == "data" else ""
                what = f"{name} would do nothing beside --run{also}: a trained model stays as it is"
                raise UserError(f"{what}; valid are {one_of(valid)}")
        self.pairs = [("--config", str(run.config)), *self.pairs]
        self.options.ckpt_path = self.options.ckpt_path or str(run.forecasting_checkpoint() if is_beyond else run.best)

    def _resume(self) -> None:
        """Resume a run as it was: limits of the Trainer are all that may be given."""
        names = [f"--trainer.{name}" for name in LIMITS]
        others = {name for name in self._own if getattr(self.options, name[2:]) not in (None, False)}
        for name, value in self.pairs:
            if value is None and name in names:
                raise UserError(f"{name} needs a value")
        if any(name not in names for name, _ in self.pairs) or not others <= {"--resume", "--refit", "--detail"}:
            raise _not_to_resume()
        run = RunFolder(self.options.resume)
        self.limits = {name.removeprefix("--trainer."): value for name, value in self.pairs}
        run.check_resumable(longer=bool(self.limits) or (self.options.refit and not run.refit.exists()))
        self.pairs = [("--config", str(run.config)), *self.pairs]

    def check_trained(self, predictor: str) -> None:
        """Refuse typed options of a training for a predictor that is not trained; those of a file may stay."""
        trainer = (*_TRAINER, *_REFUSED, "fast_dev_run")
        for name, _ in self.pairs:
            root, option = _parts(name)
            if option and option not in {"model": _FITTED, "trainer": trainer}.get(root, (option,)):
                valid = [*(f"--model.{one}" for one in _FITTED), *(f"--trainer.{one}" for one in _TRAINER)]
                raise UserError(f"{name} would do nothing: {predictor} is not trained; valid are {one_of(valid)}")

    def experiment(self) -> Experiment:
        """Parse the experiment; a SystemExit ends the command where the words ask to print the configuration."""
        from tsattn.experiments.configs import with_values
        from tsattn.experiments.experiment import Experiment, parsed_words, plain

        descriptions, pairs = take_descriptions(self.pairs)
        words, prints = list[str](), False
        for name, value in pairs:
            if name == "--print_config":
                prints = True
            else:
                words += [name] if value is None else [name, value]
        parts = parsed_words(words, f"tsattn {self.command}", ("--attention", *self._own))
        if descriptions:
            parts.model.backbone = with_values(plain(parts), descriptions)["model"]["backbone"]
        if prints:
            print(yaml.safe_dump(plain(parts), sort_keys=False), end="")
            raise SystemExit(0)
        return Experiment.of_parts(parts)

    def input_files(self, experiment: Experiment) -> list[str | None]:
        """The file of the data, and that of ``--input``, where there are such."""
        return [(experiment.data.get("init_args") or {}).get("path"), getattr(self.options, "input", None)]


def _not_to_resume() -> UserError:
    names = one_of(f"--trainer.{name}" for name in LIMITS)
    return UserError(
        f"fit --resume DIR goes on with a run as it was, and takes no other option than {names}, "
        "to train it longer, and --refit"
    )


def _parts(name: str) -> tuple[str, str]:
    """Section and argument of a flag, as ``data`` and ``path``."""
    root, _, rest = name.removeprefix("--").partition(".")
    return root, rest.removeprefix("init_args.").partition(".")[0].removesuffix("+")


def _class_of(path: str) -> str:
    """The DataModule that reads a table: a folder that `datasets convert` has written is known by its records."""
    from tsattn.data.mapped import is_panel_folder

    return "MappedDataModule" if is_panel_folder(Path(path)) else "CSVDataModule"


def as_pairs(words: Iterable[str]) -> list[Pair]:
    """Flags with their values; a word without a flag stands alone."""
    pairs: list[Pair] = []
    for word in words:
        if word.startswith("-") and not re.fullmatch(r"-[\d.].*|-inf|-nan", word):
            name, equals, value = word.partition("=")
            pairs.append((name, value if equals else None))
        elif pairs and pairs[-1][1] is None and pairs[-1][0].startswith("-") and pairs[-1][0] != "--print_config":
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append((word, None))
    return pairs


def _is_table(word: str) -> bool:
    return word.lower().endswith(_TABLES) or Path(word).is_dir()


def without_options(options: tuple[str, ...], words: list[str]) -> list[str]:
    """Words without some options and their values."""
    return [word for pair in as_pairs(words) if pair[0] not in options for word in pair if word is not None]


def take_descriptions(pairs: list[Pair]) -> tuple[dict[str, Any], list[Pair]]:
    """Take what is said of backbone and attention, by dotted paths, from the other flags.

    Arguments may stand before the kind that they are of; naming a kind once more starts afresh.
    """
    found: dict[str, Any] = {}
    left, named = [], set()
    for name, value in pairs:
        is_attention = f"{name}.".startswith("--attention.")
        path = (f"model.backbone.{name.removeprefix('--')}" if is_attention else name).removeprefix("--")
        if not f"{path}.".startswith("model.backbone."):
            left.append((name, value))
            continue
        if value is None:
            raise UserError(f"{name} needs a value")
        *_, argument = path.removeprefix("model.backbone").removeprefix(".attention").partition(".")
        if "." in argument:
            raise UserError(f"unknown argument {name}; {name.rpartition('.')[0]} is one value, set it whole")
        root = path.removesuffix(".kind")
        if argument in ("", "kind"):
            if root in named:
                found = {one: of for one, of in found.items() if not f"{one}.".startswith(f"{root}.")}
            named.add(root)
        try:
            found[path] = yaml.safe_load(value)
        except yaml.YAMLError:
            found[path] = value
    return found, left


class SentenceParser(argparse.ArgumentParser):
    """Parser of a command that takes no experiment: a `UserError` where argparse would print its usage and exit."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Raise one sentence."""
        if refused := re.fullmatch(r"argument (--\w+): (must be .*)", message):
            raise UserError(f"{refused[1]} {refused[2]}")
        options = [name for action in self._actions for name in action.option_strings]
        raise UserError(sentence(message, options=options, prog=self.prog))


def at_least(least: int) -> Callable[[str], int]:
    """The type of whole numbers from here on."""

    def whole(text: str) -> int:
        if not re.fullmatch(r"\d+", text.strip()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text}")
        return int(text)

    return whole


count = at_least(1)


def share(text: str) -> float:
    """A number between 0 and 1."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be between 0 and 1, not {text}")


def names(text: str) -> list[str]:
    """Names with commas between them."""
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"must be names with commas between them, not {text!r}")
    return list(dict.fromkeys(found))
