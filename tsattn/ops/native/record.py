"""Record the kernels that a run uses, and restore them in a resumed run.

The last digits of a run depend on the attention kernel, and its dropout masks on the dropout kernel.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tsattn.errors import UserError, one_of
from tsattn.ops.dropout import native_dropout_left, takes_native_dropout
from tsattn.ops.native.chunking import ChunkSizes, chunk_sizes, sizes_taken, tuned_file
from tsattn.ops.native.kernel_compiler import sets_of_this_cpu
from tsattn.ops.native.library import find_library, kernels_taken, load_kernels, set_in_use

logger = logging.getLogger("tsattn")


def kernels_in_use() -> dict[str, Any]:
    """The kernels' instruction set (``off`` without kernels), their sizes, and if they do dropout, as plain data."""
    if load_kernels() is None:
        return {"set": "off"}
    return {"set": set_in_use(), "sizes": asdict(chunk_sizes()), "dropout": takes_native_dropout()}


def kernel_facts(word: str = "auto") -> dict[str, str]:
    """Describe which kernels a value of ``TSATTN_KERNELS`` finds on this machine, or why none: sentences by name."""
    found, facts = find_library(word), {"instruction sets": one_of(one.name for one in sets_of_this_cpu())}
    if found.library is None or found.instruction_set is None:
        facts["in use"] = f"none: {found.why_none}"
    else:
        facts["in use"] = f"{found.instruction_set.name}, {found.library.tsattn_lanes()} numbers at once"
        facts["from"] = f"{'this package' if found.came_along else 'compiled here'}: {found.path}"
    if found.compiler:
        facts["compiler"] = f"{' '.join(found.compiler.command)}: {found.compiler.version}"
    if found.library is not None:
        sizes, path = chunk_sizes(), tuned_file()
        origin = f"measured: {path}" if path is not None and path.is_file() else "by the sizes of the caches"
        blocks = f"{sizes.shared_blocks} blocks of queries"
        long = f"{sizes.shared_blocks_long} where keys pass the second cache"
        facts["sizes"] = f"{sizes.chunk_keys} keys by {blocks} ({long}), {origin}"
    wrong = dict.fromkeys(str(one) for one in found.complaints if str(one) != found.why_none)
    return facts | ({"went wrong": "; ".join(wrong)} if wrong else {})


@contextlib.contextmanager
def kernels_as_noted(noted: Mapping[str, Any] | None) -> Iterator[None]:
    """Use the kernels that a run began with, as `kernels_in_use` recorded them; no kernels for None.

    If they are not available, log it and use this machine's kernels. Results are as good, but their last digits change.
    Dropout masks change too if only one of the two machines has kernels.
    """
    noted = {"set": "off"} if noted is None else noted
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(kernels_taken(noted["set"]))
        except UserError as error:
            what = "its last digits change" if load_kernels() else "its last digits and what dropout drops change"
            logger.warning("the run was begun with other kernels, so %s: %s", what, error)
        else:
            stack.enter_context(sizes_taken(ChunkSizes(**noted["sizes"]) if "sizes" in noted else None))
        if not noted.get("dropout"):
            stack.enter_context(native_dropout_left())
        yield
