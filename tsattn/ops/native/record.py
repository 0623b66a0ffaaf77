"""What a run notes of the kernels, and how one that goes on takes them from there.

The last digits depend on those of attention, and what is dropped on that of dropout.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tsattn.errors import UserError
from tsattn.ops.dropout import native_dropout_left, takes_native_dropout
from tsattn.ops.native.chunking import ChunkSizes, chunk_sizes, sizes_taken
from tsattn.ops.native.library import kernels_taken, load_kernels, set_in_use

__all__ = ["kernels_as_noted", "kernels_in_use"]

logger = logging.getLogger("tsattn")


def kernels_in_use() -> dict[str, Any]:
    """The instruction set of the kernels in use, ``off`` without, how they cut their work, and if dropout is theirs.

    Plain data.
    """
    if load_kernels() is None:
        return {"set": "off"}
    return {"set": set_in_use(), "sizes": asdict(chunk_sizes()), "dropout": takes_native_dropout()}


@contextlib.contextmanager
def kernels_as_noted(noted: Mapping[str, Any] | None) -> Iterator[None]:
    """Within it, the kernels in use are those that a run was begun with, as `kernels_in_use` gave them.

    Where they cannot be had, that is logged, and those of this machine are in use: the result is as good, but its last
    digits are others, and so is what is dropped in training where only one of both has kernels.

    Args:
        noted: None for a run from before there were kernels; without ``dropout``, from before it was among them.
    """
    noted = {"set": "off"} if noted is None else noted
    sizes = ChunkSizes(**noted["sizes"]) if "sizes" in noted else None
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(kernels_taken(noted["set"]))
        except UserError as error:
            what = "its last digits change" if load_kernels() else "its last digits and what dropout drops change"
            logger.warning("the run was begun with other kernels, so %s: %s", what, error)
        else:
            stack.enter_context(sizes_taken(sizes))
        if not noted.get("dropout"):
            stack.enter_context(native_dropout_left())
        yield
