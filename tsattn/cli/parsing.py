"""The parsers of the commands that take an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]  # it is public there

from tsattn.cli.attention_words import add_options
from tsattn.experiments import Experiment
from tsattn.experiments.schema import ExperimentParser, add_experiment, plain

__all__ = ["command_parser", "input_files", "parse_command"]

_DESCRIPTION = """
--attention KIND, or {kind: mlr, ranks: [4, 2, 2]}, swaps the attention of the model. --attention.ARGUMENT and
--model.backbone.ARGUMENT set one argument. --debug shows the traceback of an error.
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
    parser = ExperimentParser(prog=f"tsattn {command}", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument(
        "-c", "--config", action=ActionConfigFile, help="configuration: a file, or the name of an included one"
    )
    new = "folder of the new run (default: runs/DATA/NAME/TIME)" if command == "fit" else "folder of a finished run"
    parser.add_argument("--run", type=str | None, default=None, help=new)
    parser.add_argument("--ckpt_path", type=str | None, default=None, help="checkpoint, instead of that of the run")
    if command == "fit":
        what = "start from the weights and scale of this run of the same network"
        parser.add_argument("--start", type=str | None, default=None, help=what)
        parser.add_argument("--resume", type=str | None, default=None, help="resume this run")
        parser.add_argument("--refit", action="store_true", help="refit on all rows; predict uses that model")
    if command == "predict":
        what = "forecast beyond the end of this file"
        parser.add_argument("--input", type=str | None, default=None, help=what)
        what = "file of future covariates; several are scenarios"
        parser.add_argument("--future", type=list[str] | None, default=None, help=what)
        what = "steps to forecast (default: the trained horizon)"
        parser.add_argument("--horizon", type=int | None, default=None, help=what)
        what = "percent inside the intervals of a calibrated model, as [80, 95]"
        parser.add_argument("--level", type=float | list[float] | None, default=None, help=what)
        what = ".csv or .parquet file to write"
        parser.add_argument("--output", type=str | None, default=None, help=what)
        parser.add_argument(
            "--figure",
            type=bool | str,
            default=True,
            help=".png, .pdf or .svg file for a plot of the forecast (default: next to the output; false: none)",
        )
    if command in ("validate", "test"):
        parser.add_argument("--by", type=str | None, default=None, help="add scores by series, step or origin")
        parser.add_argument(
            "--output", type=str | None, default=None, help=".csv or .parquet file for the scores of --by"
        )
        parser.add_argument("--figure", type=str | None, default=None, help="file for a plot of the residuals")
    if command in ("validate", "test", "predict"):
        parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    if command in ("fit", "validate", "test"):
        parser.add_argument("--detail", action="store_true", help="add scores in original units, sMAPE, WAPE and WQL")
    if command == "attention":
        add_options(parser)
    add_experiment(parser)
    return parser
