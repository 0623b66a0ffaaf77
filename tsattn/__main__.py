"""`tsattn`, and `python -m tsattn`."""

import os
import sys

from tsattn.cli import main


def run() -> int:
    """Run the command line; a configuration may name classes of modules in the current folder."""
    sys.path.append(os.getcwd())  # last, so that no file there is taken for a library
    return main()


if __name__ == "__main__":
    sys.exit(run())
