"""`python -m tsattn`."""

import sys

from tsattn.cli import main

if __name__ == "__main__":
    sys.exit(main())
