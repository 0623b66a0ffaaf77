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

from tsattn.cli.output import drop_output
from tsattn.errors import UserError, one_of
from tsattn.passwords import masked, without_password

__all__ = ["main"]

_COMMANDS = {
    "fit": "train a model, test its best checkpoint once, and print its errors beside the baselines'",
    "validate": "measure a trained model on the validation windows",
    "test": "measure a trained model on the test windows",
    "predict": "forecast beyond the end of the data",
    "attention": "draw what the attention of a trained model looks at, by layer, head and level",
    "export": "write a trained model as one file that torch alone, or an ONNX runtime, forecasts with",
    "tune": "search for better values of a configuration, by validation alone",
    "compare": "train models that differ in one thing, or take finished runs: differences with intervals",
    "benchmark": "run a suite: predictors and attentions on data sets, a record of each run",
    "report": "write the page of a benchmark: the answer, a figure, a table, differences with intervals",
    "cost": "parameters, flops and key cache of an attention, in closed form and as measured",
    "datasets": "public data sets: list, show a card, fetch, check; diagnose a file of your own before training",
    "kernels": "the native kernels of attention on a CPU: which are in use, from where, or why none",
}

# the modules of commands whose words are not those of an experiment
_OWN_WORDS = {
    "benchmark": "benchmark",
    "compare": "compare_runs",
    "cost": "cost_table",
    "datasets": "datasets",
    "export": "export_model",
    "kernels": "kernels",
    "report": "board_report",
    "tune": "tune",
}

# those whose output is not replaced unasked
_WITH_OUTPUT = {"validate", "test", "predict", "attention", "export", "diagnose"}

_HELP = """usage: python -m tsattn COMMAND ...

Long-horizon time-series forecasting with swappable structured attention.

commands:
{commands}

examples:
  python -m tsattn fit --config etth1_mlr.yaml
  python -m tsattn fit --config etth1_mlr.yaml --attention swa
  python -m tsattn test --run runs/ETTh1/transformer_mlr/TIME
  python -m tsattn predict --run runs/ETTh1/transformer_mlr/TIME --input new.csv --output forecast.csv
  python -m tsattn attention --run runs/ETTh1/transformer_mlr/TIME --window 0 --level all
  python -m tsattn export --run runs/ETTh1/transformer_mlr/TIME --output model.pt2
  python -m tsattn tune --config etth1_mlr.yaml --search search/mlr.yaml --trials 40 --timeout 2h
  python -m tsattn compare --config co2_mlr.yaml --attention standard,swa,btt,mlr --seeds 3
  python -m tsattn benchmark --suite ett --dry-run
  python -m tsattn report benchmarks/results/leaderboard/ett
  python -m tsattn cost --attention mlr --d_model 512 --num_heads 8 --tokens 1024
  python -m tsattn datasets info weather
  python -m tsattn kernels

options:
  COMMAND --help   the options of a command; of fit those that people use, and --help-all for every one
  --version        the version
  --debug          show the traceback of an error, too

A configuration is looked for as the file given, then in configs/, then among those that come with tsattn:
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


class _Interrupted(KeyboardInterrupt):
    """Comes of a signal.

    Once a plain KeyboardInterrupt has left an `exec`, as libraries use it, `python -m` ends by SIGINT, not by its exit
    code.
    """


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
        if isinstance(error, UserError | OSError):
            if debug:
                print(masked(traceback.format_exc()), end="", file=sys.stderr)
            print(f"error: {masked(_sentence(error))}", file=sys.stderr)
            return 2
        is_memory = isinstance(error, RuntimeError) and re.search("allocate memory|out of memory", str(error))
        if debug or not (is_memory or isinstance(error, MemoryError)):
            raise
        print("error: the memory of this machine is not enough; ask for less at once", file=sys.stderr)
        return 2


def _interruption(error: BaseException | None) -> str | None:
    """What an interruption says about going on; None where an error is none, and comes of none.

    A library that is interrupted while it is imported makes an ImportError of that.
    """
    seen: set[int] = set()  # causes may go round in a circle
    while error is not None and not isinstance(error, KeyboardInterrupt):
        seen.add(id(error))
        error = error.__cause__ or error.__context__
        error = None if id(error) in seen else error
    return None if error is None else str(error)


def _how_to_resume(words: list[str]) -> str:
    command = shlex.join(["python", "-m", "tsattn", *map(without_password, words)])
    overwrites = any("overwrite" in word for word in words) or not {*words[:2]} & _WITH_OUTPUT
    return f"run `{command}` again{'' if overwrites else ', with `--overwrite` if its output is there'}"


def _sentence(error: UserError | OSError) -> str:
    """What is wrong; of the system's errors, such as a full disk, with the file if it names one."""
    if isinstance(error, UserError):
        return str(error)
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else f"the system refuses to go on: {reason}"


def _run(words: list[str]) -> int:
    for before, word in pairwise(["", *words]):  # an empty variable of a shell, which would count as not given
        if not word or (word.startswith("-") and word.endswith("=")):
            name = word.removesuffix("=") or (before if before.startswith("-") else "a word")
            raise UserError(f"{name} is empty; give a value, or leave it out")
    if not words or words[0] in ("-h", "--help", "help"):
        from tsattn.experiments.configs import config_names

        commands = "\n".join(f"  {name:10} {what}" for name, what in _COMMANDS.items())
        print(_HELP.format(commands=commands, configs=one_of(config_names())))
        return 0
    command, *rest = words
    if command == "--version":
        print(f"tsattn {importlib.metadata.version('tsattn')}")
        return 0
    if command not in _COMMANDS:
        raise UserError(f"unknown command {command!r}; valid: {one_of(_COMMANDS)}")
    if command in _OWN_WORDS:
        run = importlib.import_module(f"tsattn.cli.{_OWN_WORDS[command]}").run
        return int(run(rest))
    if any(word in ("-h", "--help") for word in rest):
        from tsattn.cli.short_help import short_help

        print(short_help(command))
        return 0
    if "--help-all" in rest:
        from tsattn.cli.parsing import command_parser

        command_parser(command).print_help()
        return 0
    from tsattn.cli.words import prepare

    prepared = prepare(words)[1:]
    if command == "fit":
        from tsattn.cli.fit import fit

        return fit(prepared, words)
    if command == "predict":
        from tsattn.cli.predict import predict

        return predict(prepared)
    if command == "attention":
        from tsattn.cli.attention_figure import draw_attention

        return draw_attention(prepared)
    from tsattn.cli.score_part import measure_part

    return measure_part(command, prepared)
