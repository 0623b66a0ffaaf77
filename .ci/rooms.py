"""Lines of each room of the package beside its ceiling: `make lint` fails where a room that is done is above it."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tsattn"
CEILINGS = {
    ("structured",): 880,
    ("ops",): 5600,
    ("attention",): 3400,
    ("layers", "backbones"): 2634,
    ("data",): 5800,
    ("evaluation",): 950,
    ("training",): 1700,
    ("ridge", "predictors"): 2720,
    ("chronos",): 2550,
    ("pretrained",): 850,
    ("experiments",): 1600,
    ("forecaster",): 2300,
    ("tuning",): 900,
    ("leaderboard",): 4100,
    ("cli",): 1600,
    ("figures", "diagnosis", "peers"): 1600,
    ("",): 1100,
}
"""Lines of Python, templates and texts, of rooms that share a ceiling; "" are the files at the top."""
DONE = (
    *("leaderboard", "structured", "ops", "attention", "layers", "backbones", "evaluation", "training", "ridge"),
    *("predictors", "chronos", "pretrained", "forecaster", "tuning", "figures", "diagnosis", "peers", "", "cli"),
    *("experiments", "data"),
)
"""Rooms that keep to their ceilings from now on."""
TEXTS = ("*.py", "*.jinja", "*.txt")


def lines(room: str) -> tuple[int, int]:
    """Lines and files of a room."""
    files = [*PACKAGE.glob("*.py")] if not room else [path for kind in TEXTS for path in (PACKAGE / room).rglob(kind)]
    return sum(len(path.read_text("utf-8").splitlines()) for path in files), len(files)


def main() -> int:
    """Print the table, and say whether a room that is done is above its ceiling."""
    above, all_lines, all_files = [], 0, 0
    for rooms, ceiling in CEILINGS.items():
        counts = [lines(room) for room in rooms]
        number, files = (sum(column) for column in zip(*counts, strict=True))
        name = ", ".join(rooms) or "top level"
        print(
            f"{name:30}{number:7,} lines{files:5} files   ceiling {ceiling:6,}{'  above' if number > ceiling else ''}"
        )
        if number > ceiling and set(rooms) <= set(DONE):
            above.append(name)
        all_lines, all_files = all_lines + number, all_files + files
    print(f"{'all':30}{all_lines:7,} lines{all_files:5} files   ceiling 41,500, 300 files")
    if above:
        print(f"above the ceiling: {', '.join(above)}", file=sys.stderr)
    return int(bool(above))


if __name__ == "__main__":
    sys.exit(main())
