"""Ask a worker in the environment of the peers: started at the first request, ended with this process."""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tsattn.errors import UserError

__all__ = ["VARIABLE", "PeerProcess", "peer_process", "peers_python"]

VARIABLE = "TSATTN_PEERS"
_FOLDER = Path(__file__).parents[2] / ".venv-peers"  # next to the package, where `make peers` makes it
_SCRIPT = Path(__file__).with_name("peer_worker.py")


def peers_python(what: str) -> Path:
    """Find the Python that runs the peers, for `what`: named by ``TSATTN_PEERS``, or made by ``make peers``."""
    named = os.environ.get(VARIABLE)
    if named and (not os.access(named, os.X_OK) or Path(named).is_dir()):
        raise UserError(f"{VARIABLE} must be the python of an environment with the peers, not {named}")
    python = Path(named).absolute() if named else _FOLDER / "bin" / "python"
    if not python.exists():
        raise UserError(
            f"{what} runs in an environment of its own, which is not there: `make peers` makes it, or {VARIABLE} "
            "names the python of one"
        )
    return python


class PeerProcess:
    """A worker, see `tsattn.peers.peer_worker`, and a folder for files that go with it."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self._folder = TemporaryDirectory(prefix="tsattn-peers-")
        self.folder = Path(self._folder.name)
        self._errors = self.folder / "stderr.txt"
        self._lock = threading.Lock()
        # -I: neither this environment's paths nor the folder of the script
        command = [str(python), "-I", "-W", "ignore", str(_SCRIPT)]
        with self._errors.open("wb") as errors:
            # in a session of its own, since Ctrl-C is for this process, which then ends that one
            self._process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=errors, text=True, start_new_session=True)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and return the worker's facts; a UserError has its refusal, or its last words."""
        line, process = json.dumps({**request, "threads": torch.get_num_threads()}), self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                words = process.stdout.readline()
            except BrokenPipeError:
                words = ""
            except BaseException:  # the answer to come would be taken for that to the next request
                self.stop()
                raise
        if not words:
            said = [line.strip() for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
            last = said[-1][:300] if said else "it said nothing"
            raise UserError(f"the process of the peers ({self.python}) ended with exit code {process.wait()}: {last}")
        answer = json.loads(words)
        if "error" in answer:
            raise UserError(str(answer["error"]))
        facts: dict[str, Any] = answer["facts"]
        return facts

    def stop(self) -> None:
        """End it, whatever it does, and remove its files."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


_PROCESSES: dict[tuple[int, Path], PeerProcess] = {}  # a fork must not ask the worker of its parent
_STARTING = threading.Lock()


def peer_process(what: str) -> PeerProcess:
    """Return the worker of this process, started if there is none; see `peers_python`."""
    python = peers_python(what)
    with _STARTING:
        found = _PROCESSES.get((os.getpid(), python))
        if found is None or not found.is_alive:
            try:
                found = _PROCESSES[os.getpid(), python] = PeerProcess(python)
            except OSError as error:
                raise UserError(f"{python} cannot be run: {error.strerror or error}") from error
            atexit.register(found.stop)
    return found
