"""Keeping away what Lightning says of its own workings."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator

__all__ = ["quiet_lightning"]

_NOISE = (
    r".*does not have many workers.*",
    r".*The number of training batches.*",
    r".*Experiment logs directory.*",
    r".*Checkpoint directory .* exists and is not empty.*",
    r".*LeafSpec.*",
    r".*isinstance\(treespec.*",
    r".*callbacks used to create the checkpoint need to be provided.*",
    r".*lr_scheduler.step\(\).*",
    r".*GPU available but not used.*",
    r".*`srun` command is available.*",  # on every machine of a cluster
    r".*LightningCLI's args parameter.*",  # the words of a subprocess are those of this process
)


_lock = threading.Lock()
_quiet = contextlib.ExitStack()
_inside = 0  # of all threads: what is quiet belongs to the process


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Without what Lightning says of its own workings, until the last thread that asked for it is done."""
    global _inside
    with _lock:
        if not _inside:
            _quiet.enter_context(_silenced())
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _quiet.close()


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [one.level for one in loggers]
    excepthook = threading.excepthook

    def without_writers(failed: threading.ExceptHookArgs) -> None:
        if type(failed.thread).__name__ != "_AsyncWriterThread":  # TensorBoard raises it again in the main thread
            excepthook(failed)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="lightning")
        for pattern in _NOISE:
            warnings.filterwarnings("ignore", pattern)
        try:
            for one in loggers:
                one.setLevel(logging.WARNING)
            threading.excepthook = without_writers
            yield
        finally:
            threading.excepthook = excepthook
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)
