"""Where the python of the peers' environment is."""

from __future__ import annotations

import os
from pathlib import Path

from tsattn.errors import UserError

__all__ = ["VARIABLE", "peers_python"]

VARIABLE = "TSATTN_PEERS"
_FOLDER = Path(__file__).parents[2] / ".venv-peers"  # beside the package, where `make peers` makes it


def peers_python(what: str) -> Path:
    """The python that runs the peers.

    Args:
        what: needs it, as the message begins.

    Raises:
        UserError: if there is none, saying how to come to one.
    """
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
