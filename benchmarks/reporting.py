"""Records of benchmarks: the command, the machine and the versions with the numbers, written whole, and tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from measuring import describe, this_command

from tsattn.saved_folders import write_text

RESULTS = Path(__file__).parent / "results"


def new_parser(doc: str | None, folder: Path = RESULTS, *, toy: str = "") -> argparse.ArgumentParser:
    """Make a parser with ``--output``, and ``--dry-run`` where `toy` says what that does."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", "--out", type=Path, default=folder, metavar="DIR", help="folder to write into")
    if toy:
        said = f"{toy}, whose figures mean nothing; needs --output"
        parser.add_argument("--dry-run", action="store_true", help=said)
    return parser


def parse(parser: argparse.ArgumentParser, words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the words; a dry run into the folder of the committed results is refused. Torch gets one thread."""
    options = parser.parse_args(words)
    if getattr(options, "dry_run", False) and options.output == parser.get_default("output"):
        parser.error("--dry-run needs an --output of its own: its figures mean nothing")
    torch.set_num_threads(1)
    return options


def about(*packages: str) -> dict[str, Any]:
    """Return the command, the machine, and the versions of tsattn, torch and further packages."""
    versions = {name: version(name) for name in ("tsattn", "torch", *packages)}
    machine = {**describe("cpu", torch.float32), "threads": 1}
    return {"command": this_command(), "machine": machine, "versions": versions}


def write_record(file: Path, record: dict[str, Any], page: str = "") -> None:
    """Write a record as JSON, and its page next to it as Markdown."""
    write_text(file, json.dumps(record, indent=2) + "\n")
    if page:
        write_text(file.with_suffix(".md"), page)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table and an empty one."""
    return [*(f"| {' | '.join(map(str, line))} |" for line in (head, ["---"] * len(head), *rows)), ""]


def made_by(record: dict[str, Any]) -> str:
    """Write the command, the machine and the versions of a record in a line."""
    packages = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    return f"`{record['command']}`, {record['machine']['cpu']}, one thread; {packages}."
