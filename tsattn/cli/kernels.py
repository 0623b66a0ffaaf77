"""`tsattn kernels`: the native kernels on a CPU, which are in use here, and how they came."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tsattn.cli.words import SentenceParser
from tsattn.errors import UserError, one_of

if TYPE_CHECKING:
    from tsattn.ops.native.library import KernelLibrary

__all__ = ["run"]

_DESCRIPTION = """\
The native kernels on a CPU, of attention and dropout: the instruction sets that this CPU has, the library that is in
use and where it is from, or why there is none. TSATTN_KERNELS is auto by default, off, or the name of an instruction
set."""


def run(words: list[str]) -> int:
    """Say which kernels are in use, or why none; the exit code is 0, or a `UserError` is raised."""
    options = _parser().parse_args(words)
    from tsattn.ops.native.library import VARIABLE, build_library, find_library

    word = os.environ.get(VARIABLE, "auto")
    if options.build:
        built = build_library(word)
        print(f"{'built':20}{built.path}")
    if options.tune:
        from tsattn.ops.native.library import why_no_kernels
        from tsattn.ops.native.size_tuning import tune_sizes

        if why_no_kernels() is not None:
            raise UserError(f"there are no kernels to measure: {why_no_kernels()}")
        tune_sizes(print)
    print(_report(find_library(word)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = SentenceParser(prog="tsattn kernels", description=_DESCRIPTION)
    parser.add_argument("--build", action="store_true", help="compile the kernels again on this machine")
    what = "measure the fastest chunk sizes on this machine, and keep them"
    parser.add_argument("--tune", action="store_true", help=what)
    return parser


def _report(found: KernelLibrary) -> str:
    """A line a fact."""
    from tsattn.ops.native.chunking import chunk_sizes, tuned_file
    from tsattn.ops.native.kernel_compiler import sets_of_this_cpu

    facts = [("instruction sets", one_of(one.name for one in sets_of_this_cpu()))]
    if found.library is None or found.instruction_set is None:
        facts.append(("in use", f"none: {found.why_none}"))
    else:
        facts.append(("in use", f"{found.instruction_set.name}, {found.library.tsattn_lanes()} numbers at once"))
        facts.append(("from", f"this package: {found.path}" if found.came_along else f"compiled here: {found.path}"))
    if found.compiler:
        facts.append(("compiler", f"{' '.join(found.compiler.command)}: {found.compiler.version}"))
    if found.library is not None:
        sizes, path = chunk_sizes(), tuned_file()
        origin = f"measured: {path}" if path is not None and path.is_file() else "by the sizes of the caches"
        long = f"{sizes.shared_blocks_long} where keys pass the second cache"
        cut = f"{sizes.chunk_keys} keys by {sizes.shared_blocks} blocks of queries ({long})"
        facts.append(("sizes", f"{cut}, {origin}"))
    facts += [("went wrong", str(one)) for one in found.complaints if str(one) != found.why_none]
    return "\n".join(f"{name:20}{what}" for name, what in facts)
