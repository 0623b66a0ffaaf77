"""Ask a worker in the environment of the peers: started at the first request, ended with this process."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
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
    if named:
        if not os.access(named, os.X_OK) or Path(named).is_dir():
            raise UserError(f"{VARIABLE} must be the python of an environment with the peers, not {named}")
        return Path(named).absolute()
    python = _FOLDER / "bin" / "python"
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
        self._owner = os.getpid()  # which alone may ask it
        self._folder = tempfile.TemporaryDirectory(prefix="tsattn-peers-")
        self.folder = Path(self._folder.name)
        self._errors = self.folder / "stderr.txt"
        self._lock = threading.Lock()
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                # -I: neither this environment's paths nor the folder of the script
                [str(python), "-I", "-W", "ignore", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            )

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and return the worker's facts; a UserError has its refusal, or its last words."""
        line = json.dumps({**request, "threads": torch.get_num_threads()})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
                words = self._process.stdout.readline()
            except BrokenPipeError:
                words = ""
            except BaseException:  # the answer to come would be taken for that to the next request
                self.stop()
                raise
        if not words:
            code = self._process.wait()
            said = [line.strip() for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
            last = said[-1][:300] if said else "it said nothing"
            raise UserError(f"the process of the peers ({self.python}) ended with exit code {code}: {last}")
        answer = json.loads(words)
        if "error" in answer:
            raise UserError(str(answer["error"]))
        facts: dict[str, Any] = answer["facts"]
        return facts

    def stop(self) -> None:
        """End it, whatever it does, and remove its files."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            self._folder.cleanup()


_PROCESSES: dict[Path, PeerProcess] = {}
_STARTING = threading.Lock()


def peer_process(what: str) -> PeerProcess:
    """Return the worker of this process, started if there is none; see `peers_python`."""
    python = peers_python(what)
    with _STARTING:
        found = _PROCESSES.get(python)
        if found is None or not found.is_alive:
            try:
                found = _PROCESSES[python] = PeerProcess(python)
            except OSError as error:
                raise UserError(f"{python} cannot be run: {error.strerror or error}") from error
            atexit.register(found.stop)
    return found
