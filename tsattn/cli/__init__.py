"""The command line. Nothing heavy is imported before it is known to be needed."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from tsattn.cli.command_options import short_help
from tsattn.cli.words import Words, drop_output
from tsattn.errors import UserError, did_you_mean, masked, one_of, without_password
from tsattn.experiments.configs import config_names

__all__ = ["main"]

_COMMANDS = {
    "fit": "train a model, test its best checkpoint once, compare with baselines",
    "validate": "measure a trained model on the validation set",
    "test": "measure a trained model on the test set",
    "predict": "forecast beyond the end of the data",
    "attention": "draw the attention of a trained model, by layer, head and level",
    "export": "write a trained model as one file for PyTorch or an ONNX runtime",
    "tune": "search for better values of a configuration, on the validation set alone",
    "compare": "compare models that differ in one thing, or finished runs: differences with intervals",
    "benchmark": "run a suite: predictors and attentions on data sets, with a record of each run",
    "report": "write the page of a benchmark: the answer, a figure, a table, differences with intervals",
    "cost": "count parameters, flops and key cache of an attention",
    "datasets": "list, fetch and check public data sets; diagnose or convert your own file",
    "kernels": "show which native kernels are in use on this CPU, or why none",
}
_MODULES = {
    **{"validate": "score_part", "test": "score_part", "attention": "attention_figure", "export": "export_model"},
    **{"compare": "compare_runs", "report": "board_report", "cost": "cost_table"},
}
"""Of commands that are not called as their modules."""
_OF_EXPERIMENTS = ("fit", "validate", "test", "predict", "attention")
_WITH_OUTPUT = {"validate", "test", "predict", "attention", "export", "diagnose"}
"""Those whose output is not replaced unasked."""

_HELP = """usage: tsattn COMMAND ...

Long-horizon time-series forecasting with swappable structured attention.

commands:
{commands}

examples:
  tsattn fit sales.csv
  tsattn fit --config etth1_mlr.yaml
  tsattn fit --config etth1_mlr.yaml --attention swa
  tsattn test --run runs/ETTh1/transformer_mlr/TIME
  tsattn predict --run runs/ETTh1/transformer_mlr/TIME --input new.csv --output forecast.csv
  tsattn attention --run runs/ETTh1/transformer_mlr/TIME --window 0 --level all
  tsattn export --run runs/ETTh1/transformer_mlr/TIME --output model.pt2
  tsattn tune --config etth1_mlr.yaml --search search/mlr.yaml --trials 40 --timeout 2h
  tsattn compare --config co2_mlr.yaml --attention standard,swa,btt,mlr --seeds 3
  tsattn benchmark --suite ett --dry-run
  tsattn report benchmarks/results/leaderboard/ett
  tsattn cost --attention mlr --d_model 512 --num_heads 8 --tokens 1024
  tsattn datasets info weather
  tsattn kernels

options:
  COMMAND --help   list the usual options of a command; --help-all lists every option
  --version        print the version
  --debug          show the traceback of an error

A configuration is a file, the name of one in configs/, or the name of an included one:
  {configs}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: 0, 2 for a mistake or a full disk, 130 if interrupted, 141 if unread.

    SIGTERM, as a scheduler sends it at the end of the time, interrupts like Ctrl-C.

    Args:
        argv: the words after ``tsattn``; those of this process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if threading.current_thread() is not threading.main_thread():  # which alone takes signals
        return _guarded(words)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, _interrupt)
    if before[signal.SIGINT] is signal.default_int_handler:  # not ignored, as in the background of a shell
        signal.signal(signal.SIGINT, _interrupt)
    try:
        return _guarded(words)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None for one of C


# once a plain KeyboardInterrupt has left an `exec`, `python -m` ends by SIGINT, not by its exit code
class _Interrupted(KeyboardInterrupt):
    """Comes of a signal."""


def _interrupt(number: int, frame: object) -> NoReturn:
    raise _Interrupted


def _guarded(words: list[str]) -> int:
    """Run a command; what goes wrong is one sentence."""
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        code = _run(words)
        sys.stdout.flush()  # what fails at that is said here
        return code
    except (KeyboardInterrupt, Exception) as error:
        stop = _interruption(error)
        if stop is not None:
            print(masked(f"interrupted: {stop or _how_to_resume(words)}"), file=sys.stderr)
            return 130
        if isinstance(error, BrokenPipeError):  # whoever read this has seen enough
            drop_output()
            return 141
        is_memory = isinstance(error, RuntimeError) and re.search("allocate memory|out of memory", str(error))
        if isinstance(error, UserError):
            said = str(error)
        elif isinstance(error, OSError):  # such as a full disk
            reason = error.strerror or str(error) or type(error).__name__
            said = f"{error.filename}: {reason}" if error.filename else f"the system refuses to go on: {reason}"
        elif not debug and (is_memory or isinstance(error, MemoryError)):
            batch = "--data.eval_batch_size" if words[0] in _WITH_OUTPUT else "--data.batch_size"
            said = f"out of memory; reduce {'--tokens' if words[0] == 'cost' else batch}"
        else:
            raise
        if debug:
            print(masked(traceback.format_exc()), end="", file=sys.stderr)
        print(f"error: {masked(said)}", file=sys.stderr)
        return 2


def _interruption(error: BaseException | None) -> str | None:
    """How to resume after an interruption; None for an error that is none, and comes of none.

    A library that is interrupted while it is imported makes an ImportError of that.
    """
    seen: set[int] = set()  # causes may go round in a circle
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return str(error)
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _how_to_resume(words: list[str]) -> str:
    command = shlex.join(["tsattn", *map(without_password, words)])
    overwrites = any("overwrite" in word for word in words) or not {*words[:2]} & _WITH_OUTPUT
    return f"run `{command}` again{'' if overwrites else ', with `--overwrite` if its output is there'}"


def _run(words: list[str]) -> int:
    for before, word in pairwise(["", *words]):  # an empty variable of a shell, which would count as not given
        if not word or (word.startswith("-") and word.endswith("=")):
            name = word.removesuffix("=") or (before if before.startswith("-") else "a word")
            raise UserError(f"{name} is empty; give a value, or leave it out")
    if not words or words[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:10} {what}" for name, what in _COMMANDS.items())
        print(_HELP.format(commands=commands, configs=one_of(config_names())))
        return 0
    command, *rest = words
    if command == "--version":
        print(f"tsattn {importlib.metadata.version('tsattn')}")
        return 0
    if command not in _COMMANDS:
        raise UserError(f"unknown command {command!r}{did_you_mean(command, _COMMANDS)}; valid: {one_of(_COMMANDS)}")
    module = f"tsattn.cli.{_MODULES.get(command, command)}"
    if command not in _OF_EXPERIMENTS:
        return int(importlib.import_module(module).run(rest))
    if {"-h", "--help", "--help-all"} & {*rest}:
        print(short_help(command))
        if "--help-all" in rest:
            from tsattn.experiments.experiment import experiment_parser

            print()
            experiment_parser().print_help()
        return 0
    taken = Words(command, rest)  # a plain mistake does not wait for torch
    return int(importlib.import_module(module).run(taken))
