"""What holds while a command runs: Lightning's own words kept away, and warnings shown as lines."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

from tsattn.experiments.schema import user_errors
from tsattn.training.execution import quiet_lightning

__all__ = ["session"]


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Lightning's own words kept away, warnings shown as lines, and errors as `user_errors` has them."""
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning's, not the user's
    shown = logging.StreamHandler(sys.stderr)  # what is done to the data beyond reading them
    shown.setFormatter(logging.Formatter("warning: %(message)s"))
    shown.setLevel(logging.WARNING)
    logging.getLogger("tsattn").addHandler(shown)
    try:
        with quiet_lightning(), user_errors():
            yield
    finally:
        logging.getLogger("tsattn").removeHandler(shown)
