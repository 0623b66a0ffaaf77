"""The words that a run folder brings: of a trained model, and of a training that goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tsattn.cli.attention_words import OPTIONS as ATTENTION_OPTIONS
from tsattn.errors import UserError, one_of
from tsattn.experiments.configs import read_config
from tsattn.experiments.run_folder import LIMITS, RunFolder

__all__ = ["Pair", "check_trained_options", "of_a_resumed_run", "of_a_start", "of_a_trained_run"]

Pair = tuple[str, str | None]  # a flag and its value

# of the data, what a trained model knows already
_KNOWN = (
    *("context_length", "prediction_length", "batch_size", "scaling", "frequency", "val_windows"),
    "transform",
    *("target", "past_covariates", "future_covariates", "static"),
    *("weight_column", "series_weights", "row_weights"),
)
_SPLIT = ("train_fraction", "val_fraction", "val_rows", "test_rows", "val_from", "test_from")
_TRAINER = ("accelerator", "precision", "plugins", "deterministic", "benchmark", "enable_progress_bar")
# of the model, what means something without a training, too
_FITTED = ("backbone", "quantiles", "distribution", "selection", "calibrate")
_OWN = {
    **dict.fromkeys(("validate", "test"), ("--by", "--detail", "--output", "--figure", "--overwrite")),
    "predict": ("--horizon", "--level", "--future", "--input", "--output", "--figure", "--overwrite"),
    "attention": tuple(ATTENTION_OPTIONS),
}
# these have a sentence of their own
_REFUSED = ("devices", "num_nodes", "limit_test_batches", "limit_predict_batches", "overfit_batches", "barebones")


def of_a_trained_run(command: str, pairs: list[Pair], folder: str | None) -> list[Pair]:
    """The configuration and checkpoint of a finished run, before what was typed: to forecast, that of a refit if any.

    Raises:
        UserError: if it is no such run, or for a flag that would do nothing; the message names those that do something.
    """
    if folder is None:
        raise UserError("--run needs a folder")
    run = RunFolder(folder)
    run.check_trained()
    data = read_config(run.config).get("data")
    arguments = data.get("init_args") if isinstance(data, Mapping) else None
    has_input = any(name == "--input" for name, _ in pairs)
    # which rows a window of a part begins at is decided by the split
    is_beyond = command == "predict" or (command == "attention" and all(name != "--window" for name, _ in pairs))
    idle = _KNOWN + (("resident_gb", *_SPLIT) if is_beyond else ())
    if has_input:
        idle += ("path", "root", "folder", "verify")
    trainer = _TRAINER
    own = _OWN.get(command, ())
    valid = [
        *own,
        "--ckpt_path",
        *(f"--data.{name}" for name in arguments or {} if name not in idle),
        *(f"--trainer.{name}" for name in trainer),
    ]
    for name, _ in pairs:
        if name in ("-c", "--config"):
            raise UserError(f"{command} --run takes the configuration of the run; valid beside it are {one_of(valid)}")
        if _does_nothing(name, idle, trainer) or (has_input and name in ("--data", "--data.class_path")):
            also = " and --input" if has_input and name.startswith("--data") else ""
            raise UserError(
                f"{name} would do nothing beside --run{also}: a trained model stays as it is; valid are {one_of(valid)}"
            )
    best = run.forecasting_checkpoint() if is_beyond else run.best
    return [("--config", str(run.config)), ("--ckpt_path", str(best)), *pairs]


def of_a_resumed_run(pairs: list[Pair]) -> list[Pair]:
    """What goes on with a run as it was: its configuration.

    A limit of the Trainer takes the place of all those that the run had.

    Raises:
        UserError: for any other flag than these and ``--refit``, or a folder that nothing can go on with.
    """
    folder = dict(pairs)["--resume"]
    flags = [pair for pair in pairs if pair[0] in ("--refit", "--detail")]
    limits = {name: value for name, value in pairs if name not in ("--resume", "--refit", "--detail")}
    names = [f"--trainer.{name}" for name in LIMITS]
    if folder is None or not limits.keys() <= set(names):
        raise UserError(
            f"fit --resume DIR goes on with a run as it was, and takes no other option than {one_of(names)}, "
            "to train it longer, and --refit"
        )
    run = RunFolder(folder)
    run.check_resumable(longer=bool(limits) or (("--refit", None) in flags and not run.refit.exists()))
    if limits:
        limits = {"--trainer.max_steps": "-1", "--trainer.max_epochs": "-1", "--trainer.max_time": "null", **limits}
    return [("--config", str(run.config)), ("--resume", folder), *flags, *limits.items()]


def of_a_start(pairs: list[Pair]) -> list[Pair]:
    """The configuration of the run that a training starts from, before what was typed, unless another is named.

    Raises:
        UserError: for a folder without a trained model.
    """
    folder = dict(pairs)["--start"]
    if folder is None:
        raise UserError("--start needs the folder of a run")
    run = RunFolder(folder)
    run.check_trained()
    is_named = any(name in ("-c", "--config") for name, _ in pairs)
    return pairs if is_named else [("--config", str(run.config)), *pairs]


def check_trained_options(words: Iterable[str], name: str) -> None:
    """Refuse options of a training that were typed for a predictor that is not trained; those of a file may stay.

    Args:
        words: of the command, prepared.
        name: of the predictor.

    Raises:
        UserError: naming the option, and those that do something.
    """
    trainer = (*_TRAINER, *_REFUSED, "fast_dev_run")
    for word in words:
        root, _, option = word.removeprefix("--").partition(".")
        option = option.partition(".")[0].removesuffix("+")
        idle = (root == "model" and option not in _FITTED) or (root == "trainer" and option not in trainer)
        if word.startswith("--") and option and idle:
            valid = [*(f"--model.{one}" for one in _FITTED), *(f"--trainer.{one}" for one in _TRAINER)]
            raise UserError(f"{word} would do nothing: {name} is not trained; valid are {one_of(valid)}")


def _does_nothing(name: str, idle: Iterable[str], trainer: Iterable[str]) -> bool:
    """Whether a flag changes neither which data a trained model is given nor how it computes."""
    if "print_config" in name:
        return False
    root, _, rest = name.removeprefix("--").partition(".")
    part = rest.removeprefix("init_args.").partition(".")[0].removesuffix("+")
    if root == "data":
        return part in idle
    if root == "trainer":
        return part not in (*trainer, *_REFUSED)
    return root in ("model", "attention", "seed_everything")
