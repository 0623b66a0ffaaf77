"""The parsers of the commands that take an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]  # it is public there

from tsattn.cli.attention_words import add_options
from tsattn.experiments import Experiment
from tsattn.experiments.schema import ExperimentParser, add_experiment, plain

__all__ = ["command_parser", "input_files", "parse_command"]

_DESCRIPTION = """
--attention KIND (or a description, as {kind: mlr, ranks: [4, 2, 2]}) switches the attention of the backbone;
--attention.ARGUMENT and --model.backbone.ARGUMENT set one argument of it. --debug shows the traceback of an error.
"""


def parse_command(command: str, words: Sequence[str]) -> tuple[Experiment, Namespace]:
    """The experiment that the words of a command describe, and its other options.

    Args:
        command: its name.
        words: after it, prepared by `tsattn.cli.words.prepare`.

    Raises:
        UserError: for a word that is not valid; the message lists what is.
    """
    parsed = command_parser(command).parse_args([*words])
    return Experiment.of(plain(parsed)), parsed


def input_files(experiment: Experiment, options: Namespace) -> list[str | None]:
    """The file of the data, and that of ``--input``, where there are such."""
    return [(experiment.data.get("init_args") or {}).get("path"), vars(options).get("input")]


def command_parser(command: str) -> ExperimentParser:
    """The parser of a command, with all its options."""
    parser = ExperimentParser(prog=f"python -m tsattn {command}", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("-c", "--config", action=ActionConfigFile, help="a configuration, a file or its bare name")
    new = ", or for fit a new one (default: runs/DATA/NAME/TIME)" if command == "fit" else ""
    parser.add_argument("--run", type=str | None, default=None, help=f"the run folder: of a finished run{new}")
    parser.add_argument("--ckpt_path", type=str | None, default=None, help="a checkpoint, instead of that of a run")
    if command == "fit":
        what = "the folder of a run, whose weights and scale the training of the same network starts from"
        parser.add_argument("--start", type=str | None, default=None, help=what)
        parser.add_argument("--resume", type=str | None, default=None, help="go on with the run in this folder")
        parser.add_argument(
            "--refit", action="store_true", help="fit once more, to all rows, and forecast with what comes of that"
        )
    if command == "predict":
        what = "forecast beyond the end of this file, or of a folder of Parquet"
        parser.add_argument("--input", type=str | None, default=None, help=what)
        what = "a file of future covariates after the end of the series; several are scenarios"
        parser.add_argument("--future", type=list[str] | None, default=None, help=what)
        parser.add_argument("--horizon", type=int | None, default=None, help="steps (default: those trained for)")
        what = "percent that intervals are to hold, as [80, 95], of a calibrated model"
        parser.add_argument("--level", type=float | list[float] | None, default=None, help=what)
        what = "a .csv or .parquet file to write, or a folder"
        parser.add_argument("--output", type=str | None, default=None, help=what)
        what = "forecast a folder on the Ray cluster at this address"
        parser.add_argument("--ray", type=str | None, default=None, help=what)
        parser.add_argument(
            "--figure",
            type=bool | str,
            default=True,
            help="a .png, .pdf or .svg file to draw the forecast into (default: beside the output; false: none)",
        )
    if command in ("validate", "test"):
        parser.add_argument("--by", type=str | None, default=None, help="scores by series, step or origin, too")
        parser.add_argument("--output", type=str | None, default=None, help="a .csv or .parquet file for these scores")
        parser.add_argument("--figure", type=str | None, default=None, help="a file to draw the residuals into")
    if command in ("validate", "test", "predict"):
        parser.add_argument("--overwrite", action="store_true", help="replace files that are there")
    if command == "attention":
        add_options(parser)
    add_experiment(parser)
    return parser
