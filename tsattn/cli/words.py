"""Words of a command that takes an experiment.

jsonargparse parses the experiment. What is said of backbone and attention is set in the parsed description, by the
rules of `overrides` in Python: naming another kind must drop the arguments of the old one, and the kind may stand in
any configuration that is read; jsonargparse has no type for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tsattn.cli.command_options import Pair, as_pairs, flat, option_names, taken
from tsattn.errors import UserError, one_of
from tsattn.experiments.configs import config_names, find_config, read_config
from tsattn.experiments.run_folder import LIMITS, RunFolder

if TYPE_CHECKING:
    from tsattn.experiments import Experiment

__all__ = ["Words", "drop_output", "say", "session", "take_descriptions"]

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


class Words:
    """Words after a command, taken apart; nothing heavy is imported before `experiment`.

    Attributes:
        typed: the whole command.
        options: those of the command.
        pairs: those of the experiment, with their values.
        limits: of the Trainer, that a resumed run is given.
    """

    def __init__(self, command: str, words: list[str]) -> None:
        given = taken(command, words)
        self.command, self.options, self.pairs = command, given.options, given.others
        self.typed, self.limits = ["tsattn", command, *words], dict[str, Any]()
        if command != "fit":
            self.pairs += [(word, None) for word in given.free]
            if not any(name.endswith(".help") for name, _ in self.pairs):
                self._reopen()
        elif not words:
            raise UserError(
                f"fit needs a configuration: --config NAME, a file or one of {one_of(config_names())}; "
                "or a table of your own: --data CSVDataModule --data.path FILE"
            )
        else:
            self._take_table(given.free)
            if self.options.resume is not None:
                self._resume(as_pairs(words))
            elif self.options.start is not None:
                run = RunFolder(self.options.start)
                run.check_trained()
                if all(name != "--config" for name, _ in self.pairs):
                    self.pairs.insert(0, ("--config", str(run.config)))
        for number, (name, value) in enumerate(self.pairs):  # before anything heavy
            if name == "--config" and value is not None:
                path = find_config(value)
                read_config(path)
                self.pairs[number] = name, str(path)

    def _take_table(self, free: list[str]) -> None:
        """Put the path of a table behind all configurations, whose data it replaces, and before options of the data."""
        tables = [word for word in free if word.lower().endswith(_TABLES) or Path(word).is_dir()]
        paths = list(dict.fromkeys(f"--data.path {value}" for name, value in self.pairs if name == "--data.path"))
        if len(tables) + len(paths) > 1:
            raise UserError(f"fit reads one table, and is given {one_of([*tables, *paths])}; give one")
        if tables:
            from tsattn.data.mapped import is_panel_folder

            kind = "MappedDataModule" if is_panel_folder(Path(tables[0])) else "CSVDataModule"
            of_data = [pair for pair in self.pairs if pair[0].startswith("--data.")]
            others = [pair for pair in self.pairs if pair not in of_data]
            self.pairs = [*others, ("--data", kind), ("--data.path", tables[0]), *of_data]
        self.pairs += [(word, None) for word in free if word not in tables]

    def _reopen(self) -> None:
        """Put the configuration of a finished run first, and take its checkpoint: to forecast, that of a refit."""
        for name, value in self.pairs:
            if name in ("--trainer.devices", "--trainer.num_nodes") and value not in ("1", "auto", "[0]"):
                raise UserError(
                    f"{self.command} runs on one device, so that no window counts twice: {name} must be 1, not {value}"
                )
        options = self.options
        if options.run is None:
            if options.ckpt_path is None:
                raise UserError(f"{self.command} needs a trained model: --run DIR, the folder that `fit` has written")
            return
        run, has_input = RunFolder(options.run), getattr(options, "input", None) is not None
        run.check_trained()
        # which rows a window of a part begins at is decided by the split
        is_beyond = self.command == "predict" or (self.command == "attention" and options.window is None)
        idle = _KNOWN + (("resident_gb", *_SPLIT) if is_beyond else ())
        idle += ("", "class_path", "path", "root", "folder", "verify") if has_input else ()
        data = read_config(run.config).get("data")
        arguments = (data.get("init_args") or {}) if isinstance(data, dict) else {}
        valid = [name for name in option_names(self.command) if "." not in name and name not in ("--run", "--config")]
        valid += [*(f"--data.{name}" for name in arguments if name not in idle), *(f"--trainer.{x}" for x in _TRAINER)]
        for name, _ in self.pairs:
            if name == "--config":
                what = f"{self.command} --run takes the configuration of the run"
                raise UserError(f"{what}; valid beside it are {one_of(valid)}")
            root, part = _parts(name)
            is_idle = root in ("model", "attention", "seed_everything") or (root == "data" and part in idle)
            if is_idle or (root == "trainer" and part not in (*_TRAINER, *_REFUSED)):
                beside = "--run and --input" if has_input and root == "data" else "--run"
                what = f"{name} would do nothing beside {beside}: a trained model stays as it is"
                raise UserError(f"{what}; valid are {one_of(valid)}")
        self.pairs.insert(0, ("--config", str(run.config)))
        options.ckpt_path = options.ckpt_path or str(run.forecasting_checkpoint() if is_beyond else run.best)

    def _resume(self, typed: list[Pair]) -> None:
        """Resume a run as it was: limits of the Trainer are all that may be given."""
        limits = [f"--trainer.{name}" for name in LIMITS]
        if any(name not in (*limits, "--resume", "--refit", "--detail") for name, _ in typed):
            raise UserError(
                f"fit --resume DIR goes on with a run as it was, and takes no other option than {one_of(limits)}, "
                "to train it longer, and --refit"
            )
        if missing := [name for name, value in self.pairs if value is None]:
            raise UserError(f"{missing[0]} needs a value")
        run = RunFolder(self.options.resume)
        self.limits = {name.removeprefix("--trainer."): value for name, value in self.pairs}
        run.check_resumable(longer=bool(self.limits) or (self.options.refit and not run.refit.exists()))
        self.pairs.insert(0, ("--config", str(run.config)))

    def check_trained(self, predictor: str) -> None:
        """Refuse typed options of a training for a predictor that is not trained; those of a file may stay."""
        useful = {"model": _FITTED, "trainer": (*_TRAINER, *_REFUSED, "fast_dev_run")}
        for name, _ in self.pairs:
            root, option = _parts(name)
            if option and option not in useful.get(root, (option,)):
                valid = [*(f"--model.{one}" for one in _FITTED), *(f"--trainer.{one}" for one in _TRAINER)]
                raise UserError(f"{name} would do nothing: {predictor} is not trained; valid are {one_of(valid)}")

    def experiment(self) -> Experiment:
        """Parse the experiment; a SystemExit ends the command where the words ask to print the configuration."""
        from tsattn.experiments.configs import with_values
        from tsattn.experiments.experiment import Experiment, parsed_words, plain

        descriptions, pairs = take_descriptions(self.pairs)
        own = [name for name in option_names(self.command) if "." not in name]
        parts = parsed_words(flat(pairs), f"tsattn {self.command}", tuple(own))
        if descriptions:
            parts.model.backbone = with_values(plain(parts), descriptions)["model"]["backbone"]
        if self.options.print_config:
            print(yaml.safe_dump(plain(parts), sort_keys=False), end="")
            raise SystemExit(0)
        return Experiment.of_parts(parts)

    def input_files(self, experiment: Experiment) -> list[str | None]:
        """The file of the data, and that of ``--input``, where there are such."""
        return [(experiment.data.get("init_args") or {}).get("path"), getattr(self.options, "input", None)]


def _parts(name: str) -> tuple[str, str]:
    """Section and argument of a flag, as ``data`` and ``path``."""
    root, _, rest = name.removeprefix("--").partition(".")
    return root, rest.removeprefix("init_args.").partition(".")[0].removesuffix("+")


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
