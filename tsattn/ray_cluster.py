"""A Ray cluster that is there already, or one that is started here."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from typing import Any

from tsattn.errors import UserError

__all__ = ["connect", "import_ray"]

_LOCAL = "local"


def import_ray(what: str) -> Any:
    """Ray itself, which `what` needs, as the message says it."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"{what} needs Ray: pip install 'tsattn[ray]'") from error
    return ray


def connect(address: str, processors: int | None = None) -> Any:
    """Ray, connected to a cluster; ``shutdown()`` leaves it.

    The address ``local`` starts one here that ends with this process, of so many processors or all of this machine.
    """
    ray = import_ray("--ray")
    _check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what goes wrong is raised
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == _LOCAL:
        options |= {"num_cpus": processors, "include_dashboard": False}
    ends = signal.getsignal(signal.SIGTERM)  # Ray takes it over, and ends without a sentence
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise UserError(f"the Ray cluster at {address} cannot be used: {said}") from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ends or signal.SIG_DFL)
    return ray


def _check_address(address: str) -> None:
    """Refuse an address that nothing answers at, which Ray itself would try for many minutes."""
    if address in (_LOCAL, "auto"):
        return
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10):
            return
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster answers at {address}; valid is its HOST:PORT, or local to start one"
        ) from error
