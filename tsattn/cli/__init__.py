"""The command line. Heavy modules are imported only when a command needs them."""

from __future__ import annotations

import importlib
import importlib.metadata
import shlex
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NoReturn

from tsattn.cli.words import ACTIONS, COMMANDS, OF_EXPERIMENTS, Words, drop_output, help_text
from tsattn.errors import UserError, did_you_mean, is_out_of_memory, masked, one_of, without_password
from tsattn.experiments.configs import config_names

__all__ = ["main"]

_MODULES = {
    **dict.fromkeys(("validate", "test", "predict", "attention"), "trained_run"),
    **dict.fromkeys(("compare", "report"), "benchmark"),
    **dict.fromkeys(("cost", "datasets", "kernels", "export"), "without_experiment"),
}
"""Modules of commands whose name differs from their module's."""
_MEANT = {"train": "fit", "evaluate": "test", "forecast": "`fit FILE`, then `predict --run DIR`"}
"""Words of other tools for a command."""
_WITH_OUTPUT = {"validate", "test", "predict", "attention", "export", "diagnose"}
"""Commands that replace existing output only with `--overwrite`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code: `0`; `2` for an error, `130` if interrupted, `141` if output is closed.

    SIGTERM, which a scheduler sends at the time limit, interrupts like Ctrl-C.

    Args:
        argv: the words after ``tsattn``; by default the arguments of this process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        return _guarded(words)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, _interrupt)
    if before[signal.SIGINT] is signal.default_int_handler:  # a shell ignores SIGINT in the background
        signal.signal(signal.SIGINT, _interrupt)
    try:
        return _guarded(words)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: the handler was set from C


# a plain KeyboardInterrupt that left an `exec` would make `python -m` end by SIGINT instead of the exit code
class _Interrupted(KeyboardInterrupt):
    """Interruption by a signal."""


def _interrupt(number: int, frame: object) -> NoReturn:
    raise _Interrupted


def _guarded(words: list[str]) -> int:
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        _run(words)
        sys.stdout.flush()  # errors of this flush are reported below
        return 0
    except (KeyboardInterrupt, Exception) as error:
        stop = _interruption(error)
        if stop is not None:
            command = shlex.join(["tsattn", *map(without_password, words)])
            overwrites = any("overwrite" in word for word in words) or not {*words[:2]} & _WITH_OUTPUT
            again = f"run `{command}` again{'' if overwrites else ', with `--overwrite` if its output file exists'}"
            print(masked(f"interrupted: {stop or again}"), file=sys.stderr)
            return 130
        if isinstance(error, BrokenPipeError):  # the reader of the output has closed it
            drop_output()
            return 141
        if isinstance(error, UserError):
            said = str(error)
        elif isinstance(error, OSError):  # such as a full disk
            reason = error.strerror or str(error) or type(error).__name__
            said = f"{error.filename}: {reason}" if error.filename else f"the operating system reports: {reason}"
        elif not debug and is_out_of_memory(error):
            batch = "--data.eval_batch_size" if words[0] in _WITH_OUTPUT else "--data.batch_size"
            said = f"out of memory; reduce {'--tokens' if words[0] == 'cost' else batch}"
        else:
            raise
        if debug:
            print(masked(traceback.format_exc()), end="", file=sys.stderr)
        print(f"error: {masked(said)}", file=sys.stderr)
        return 2


def _interruption(error: BaseException | None) -> str | None:
    """How to resume if an interruption caused this error, which may be a library's ImportError; else None."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:  # causes may form a circle
        if isinstance(error, KeyboardInterrupt):
            return str(error)
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None


def _check_name(name: str, valid: Collection[str], what: str) -> None:
    if name not in valid:
        raise UserError(f"unknown {what} {name!r}{did_you_mean(name, valid)}; valid: {one_of(valid)}")


def _run(words: list[str]) -> None:
    for before, word in pairwise(["", *words]):  # an empty shell variable would be read as a missing word
        if not word or (word.startswith("-") and word.endswith("=")):
            name = word.removesuffix("=") or (before if before.startswith("-") else "a word")
            raise UserError(f"{name} is empty; give a value, or leave it out")
    command, *rest = words or ["--help"]
    if command in ("-h", "--help", "help"):
        return print(f"{help_text('tsattn')}\n\nA configuration is a file, or one of {one_of(config_names())}.")
    if command == "--version":
        return print(f"tsattn {importlib.metadata.version('tsattn')}")
    if command in _MEANT:
        raise UserError(f"unknown command {command!r} (did you mean {_MEANT[command]}?)")
    _check_name(command, COMMANDS, "command")
    page, asks = command, not {"-h", "--help", "--help-all"}.isdisjoint(rest)
    if command == "datasets" and rest and not (asks and rest[0].startswith("-")):
        action, *rest = rest
        if action.startswith("-"):
            raise UserError(f"datasets needs an action; valid: {one_of(ACTIONS)}")
        _check_name(action, ACTIONS, "action")
        page = f"datasets {action}"
    if asks or page == "datasets":
        print(help_text(page))
        if "--help-all" in rest and command in OF_EXPERIMENTS:
            from tsattn.experiments.experiment import experiment_parser

            print()
            experiment_parser().print_help()
        return None
    given = Words(page, rest)
    module = importlib.import_module(f"tsattn.cli.{_MODULES.get(command, command)}")
    return getattr(module, page.replace(" ", "_"))(given)  # type: ignore[no-any-return]
