"""The process in which peers run: started when it is first asked, ended with this one."""

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
from tsattn.peers.environment import peers_python

__all__ = ["PeerProcess", "peer_process"]

_SCRIPT = Path(__file__).with_name("peer_worker.py")


class PeerProcess:
    """A worker, see `tsattn.peers.peer_worker`, and a folder for the files that are exchanged with it.

    Args:
        python: that runs it.

    Attributes:
        folder: of the files; it goes with the process.
        owner: the process that started it, which alone may ask it.
    """

    def __init__(self, python: Path) -> None:
        self.python = python
        self.owner = os.getpid()
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
        return self.owner == os.getpid() and self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What the worker says to a request, in plain data.

        Raises:
            UserError: for what it refuses or fails at, and if it ends without an answer, with its last words.
        """
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
                raise self._died()
        answer = json.loads(words)
        if "error" in answer:
            raise UserError(str(answer["error"]))
        facts: dict[str, Any] = answer["facts"]
        return facts

    def stop(self) -> None:
        """End it, whatever it does, and remove its files."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
            self._folder.cleanup()

    def _died(self) -> UserError:
        code = self._process.wait()
        said = [line.strip() for line in self._errors.read_text(errors="replace").splitlines() if line.strip()]
        last = said[-1][:300] if said else "it said nothing"
        return UserError(f"the process of the peers ({self.python}) ended with exit code {code}: {last}")


_PROCESSES: dict[Path, PeerProcess] = {}
_STARTING = threading.Lock()


def peer_process(what: str) -> PeerProcess:
    """The worker of this process, started if there is none.

    Args:
        what: needs it, as messages begin.

    Raises:
        UserError: if there is no environment of the peers.
    """
    python = peers_python(what)
    with _STARTING:
        found = _PROCESSES.get(python)
        if found is None or not found.is_alive:
            found = _PROCESSES[python] = _started(python)
    return found


def _started(python: Path) -> PeerProcess:
    try:
        process = PeerProcess(python)
    except OSError as error:
        raise UserError(f"{python} cannot be run: {error.strerror or error}") from error
    atexit.register(process.stop)
    return process
