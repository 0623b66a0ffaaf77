"""Whether the environment of the peers is there."""

import pytest

from tsattn.errors import UserError
from tsattn.peers.predictors import peers_python

__all__ = ["needs_peers"]


def _is_there() -> bool:
    try:
        peers_python("this")
    except UserError:
        return False
    return True


needs_peers = pytest.mark.skipif(
    not _is_there(),
    reason="no environment of the peers, `make peers`, so neuralforecast and statsforecast are not tested",
)
