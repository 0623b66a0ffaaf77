"""Where a result comes from: the state of the code, the versions of libraries, and the machine."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

from tsattn.experiments.run_folder import versions

__all__ = ["cpu_name", "git_state", "library_versions"]

_NOT_CODE = "benchmarks/results"  # what a benchmark writes itself


def git_state() -> str:
    """The commit that the package is at, with ``+changes`` if it is not quite that; empty where there is no git."""
    home = Path(__file__).parent
    try:
        top = _git(home, "rev-parse", "--show-toplevel").strip()
        commit = _git(home, "rev-parse", "HEAD").strip()
        if not _git(Path(top), "ls-files", str(Path(__file__))).strip():
            return ""  # installed somewhere inside the repository of something else
        changes = _git(Path(top), "status", "--porcelain", "--", ".", f":(exclude){_NOT_CODE}")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}{'+changes' if changes.strip() else ''}"


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def cpu_name() -> str:
    """The model of the CPU, as the system calls it."""
    file = Path("/proc/cpuinfo")
    if file.exists():
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def library_versions() -> str:
    """The versions of Python and of the libraries, and the platform, as JSON."""
    known: dict[str, Any] = versions([], "")
    left_out = ("format", "command", "device", "threads")
    return json.dumps({name: value for name, value in known.items() if name not in left_out})
