"""Opening a pretrained Chronos pipeline by name or folder."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from tsattn.errors import UserError, one_of
from tsattn.pretrained.bolt_file import find_weights, shipped_names

__all__ = ["check_extra", "open_pipeline"]

DTYPES = ("auto", "float32", "bfloat16")

WEIGHTS_SUFFIX = ".safetensors"  # of a file of `tsattn.pretrained.bolt_file`
RECORD = "adapted.json"  # what a folder of an adapted model holds, see `tsattn.chronos.saving`


def check_extra() -> None:
    """Refuse where chronos-forecasting is not installed.

    Raises:
        UserError: naming the extra that brings it.
    """
    for package in ("chronos", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise UserError("Chronos models need chronos-forecasting: pip install 'tsattn[chronos]'")


def open_pipeline(
    name_or_path: str | PathLike[str], *, revision: str | None = None, device: str = "cpu", dtype: str = "auto"
) -> Any:
    """The pipeline of a pretrained model, as chronos-forecasting opens it: from safetensors, running no code from it.

    Args:
        name_or_path: a folder, the name of a model on the hub, ``amazon/chronos-bolt-small``, or what
            `tsattn.pretrained.bolt_file` holds: a name that ships with the package, or a ``.safetensors`` file.
        revision: the commit, tag or branch of a model on the hub; a commit pins the weights.
        device: where it is put.
        dtype: ``auto``, as it was saved, ``float32`` or ``bfloat16``.

    Returns:
        A `ChronosPipeline`, `ChronosBoltPipeline` or `Chronos2Pipeline`.

    Raises:
        UserError: if chronos-forecasting is not installed, or there is no such model, or it cannot be reached.
    """
    check_extra()
    if dtype not in DTYPES:
        raise UserError(f"dtype of a Chronos model must be one of {one_of(DTYPES)}, not {dtype!r}")
    if not isinstance(name_or_path, str | PathLike):
        raise UserError(f"a Chronos model is opened by a name or folder, not by {name_or_path!r}")
    name = str(name_or_path)
    folder = Path(name).expanduser()
    if name in shipped_names() or (name.endswith(WEIGHTS_SUFFIX) and folder.is_file()):
        if revision is not None:
            raise UserError(f"{name} is no model on the hub, which alone has revisions: leave revision out")
        return _bolt(name if name in shipped_names() else str(folder), device, dtype)
    if folder.is_dir():
        if (folder / RECORD).exists():
            raise UserError(f"{name} holds an adapted model: tsattn.chronos.load_adapted opens it")
        if revision is not None:
            raise UserError(f"{name} is a folder, which has no revisions: leave revision out")
        name = str(folder)
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"there is no folder {name}; give that of a Chronos model, or a name such as amazon/chronos-2")
    from chronos import BaseChronosPipeline

    pinned = {} if revision is None else {"revision": revision}
    try:
        with _without_bars():
            return BaseChronosPipeline.from_pretrained(
                name, device_map=device, dtype=dtype, use_safetensors=True, trust_remote_code=False, **pinned
            )
    except (OSError, ValueError, AssertionError) as error:
        if folder.is_dir():
            raise UserError(f"{name} is no folder of a Chronos model in safetensors: {first_line(error)}") from error
        at = "" if revision is None else f" at revision {revision}"
        raise UserError(
            f"the model {name}{at} is neither a folder, nor in the local cache, nor found on the hub, which may be out "
            f"of reach: {first_line(error)}"
        ) from error


def _bolt(weights: str, device: str, dtype: str) -> Any:
    """The pipeline of a model that this package has pretrained."""
    import torch

    from tsattn.chronos.bolt_pipeline import bolt_pipeline

    pipeline = bolt_pipeline(find_weights(weights))
    pipeline.inner_model.to(device, torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    return pipeline


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Reading weights takes a moment, and transformers shows its progress; bars of downloads are others and stay."""
    from transformers.utils import logging

    def hidden(make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return make(*args, **{**options, "disable": True})

    before = logging.set_tqdm_hook(hidden)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
