"""A Ray cluster that is there already, or one that is started here."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from typing import Any

from tsattn.errors import UserError


def import_ray(what: str) -> Any:
    """Import Ray; `what` names in the message what needs it."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"{what} needs Ray: pip install 'tsattn[ray]'") from error
    return ray


def connect(address: str, processors: int | None = None) -> Any:
    """Connect to a Ray cluster, or start one by the address ``local``, which ends with this process."""
    ray = import_ray("--ray")
    if address not in ("local", "auto"):  # Ray itself would try an address that nothing answers at for minutes
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, ValueError, OverflowError) as error:
            what = f"no Ray cluster answers at {address}; valid is its HOST:PORT, or local to start one"
            raise UserError(what) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what goes wrong is raised
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
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
