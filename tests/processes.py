"""Commands in processes of their own, which start as forks of one that has imported everything."""

import importlib
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import forkserver, spawn
from pathlib import Path
from typing import Any

import docstring_parser  # noqa: F401  for the forks, as all that is not used here
import numpy as np
import optuna  # noqa: F401
import sklearn.linear_model  # noqa: F401
import torch
import torch.utils.tensorboard
from matplotlib.figure import Figure
from tensorboard.summary.writer import event_file_writer

from tests.pictures import save_empty
from tsattn.backbones import patchtst  # noqa: F401
from tsattn.cli import fit, main  # noqa: F401
from tsattn.data import mapped, public  # noqa: F401
from tsattn.figures import forecasts  # noqa: F401
from tsattn.leaderboard import analysis, runner, workers  # noqa: F401
from tsattn.predictors import naive, ridge  # noqa: F401
from tsattn.training.callbacks import FiniteLoss

# its server imports everything once, and each process starts as a fork of it
_FORKS = multiprocessing.get_context("forkserver")
# this file is imported while tests are collected, when none has changed the environment; a test may be in any folder
_PATH = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
_BEFORE_TESTS = {**os.environ, "PYTHONPATH": _PATH}
_server: int | None = None


def serve() -> None:
    """Start the server, if there is none yet: what a command then starts in this process are forks of it, too.

    A fork has the environment, folder and time zone of the process that starts it, and random numbers of its own, as a
    new process has. Unlike one it has imported everything before. So what imports, PyTorch and the interpreter read
    once (`OMP_NUM_THREADS`, `PYTHONHASHSEED`, `MPLBACKEND`), and the umask, are those of the server. Tests of these,
    and of what a command imports, need a new process.
    """
    global _server
    server: Any = forkserver._forkserver
    if server._forkserver_pid not in (None, _server):
        server._stop()  # a command or a library has started it, without this file
    _FORKS.set_forkserver_preload([__name__])
    now = dict(os.environ)
    _set_environment(_BEFORE_TESTS)
    try:
        forkserver.ensure_running()
    finally:
        _set_environment(now)
    _server = server._forkserver_pid


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


_told, _prepare = spawn.get_preparation_data, spawn.prepare


def _tell(name: str) -> dict[str, Any]:
    """Add the environment to what a fork is told; Python leaves it that in which the server was started."""
    return {**_told(name), "environment": dict(os.environ)}


def _become(data: Mapping[str, Any]) -> None:
    """Make a fork, before it unpickles anything, what it is told to be."""
    _set_environment(data["environment"])
    time.tzset()
    np.random.seed()  # noqa: NPY002  # as Python's are; those of PyTorch begin alike in every process
    _prepare(data)


spawn.get_preparation_data, spawn.prepare = _tell, _become  # also in the server, so in forks of forks


def _run(words: Sequence[str], output: str, before: Callable[[], None]) -> None:
    with open(output, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["tsattn", *words]
    torch.set_num_threads(1)
    # the forks of a fork come from the same server: Python 3.11 starts another one, which would import everything anew
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[method-assign]
    Figure.savefig = save_empty  # type: ignore[assignment,method-assign]
    before()
    sys.exit(main(list(words)))


def nothing() -> None:
    """What comes before a command that is run as it is."""


LIMIT = 1000.0  # seconds for what takes a few, on a machine that has much else to do


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat")
        return not state.exists() or state.read_text().split(") ")[1][0] != "Z"  # ended, and not yet waited for
    except (OSError, IndexError):
        return False


def wait_for(what: Callable[[], object], why: Callable[[], str] = lambda: "it never came") -> None:
    """Wait until something holds.

    Args:
        what: says whether it does.
        why: says what to tell where it never does.
    """
    until = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < until, why()
        time.sleep(0.02)


class Worker:
    """A process that runs a command; what it says goes into a file.

    Args:
        words: of the command.
        folder: where that file is made.
        before: called in the process before the command; it can be pickled.
    """

    def __init__(self, words: Sequence[str], folder: Path, before: Callable[[], None] = nothing) -> None:
        handle, name = tempfile.mkstemp(suffix=".txt", dir=folder)
        os.close(handle)
        self.output = Path(name)
        serve()
        self.process = _FORKS.Process(target=_run, args=(words, name, before))
        self.process.start()

    def said(self) -> str:
        return self.output.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def end(self) -> int:
        self.process.join(LIMIT)
        if self.process.exitcode is None:
            self.kill()
            raise AssertionError(f"it did not end: {self.said()}")
        return self.process.exitcode


def signal_at(step: int, number: int, training: int = 1) -> None:
    """From now on this process sends itself a signal when the first batch after a step of a training begins."""
    begun: list[Any] = []

    def begin(self: FiniteLoss, trainer: Any, module: Any) -> None:
        begun.append(module)

    def stop(self: FiniteLoss, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if len(begun) == training and trainer.global_step == step:
            begun.append(None)  # once
            os.kill(os.getpid(), number)

    FiniteLoss.on_train_start = begin  # type: ignore[method-assign]
    FiniteLoss.on_train_batch_start = stop  # type: ignore[method-assign]


def flushed_at_once() -> None:
    """From now on the curve for TensorBoard is written at once, by a thread of its own."""
    begin = event_file_writer._AsyncWriterThread.__init__

    def at_once(self: Any, queue: Any, writer: Any, seconds: float) -> None:
        begin(self, queue, writer, 0)

    event_file_writer._AsyncWriterThread.__init__ = at_once


def limit_files(size: int) -> None:
    """From now on no file of this process grows beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def signal_in(module: str, name: str, number: int) -> None:
    """From now on this process sends itself a signal when a function is called."""
    then_in(module, name, partial(os.kill, os.getpid(), number))


def then_in(module: str, name: str, happens: Callable[[], object]) -> None:
    """From now on something happens when a function, or a method as `Class.method`, is called for the first time."""
    owner: Any = importlib.import_module(module)
    *classes, last = name.split(".")
    for one in classes:
        owner = getattr(owner, one)
    whole = getattr(owner, last)

    def once(*given: Any, **options: Any) -> Any:
        setattr(owner, last, whole)
        happens()
        return whole(*given, **options)

    setattr(owner, last, once)
