"""Opening a pretrained Chronos pipeline by name or folder."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tsattn.chronos.models.families import check_implementations, configured_family
from tsattn.chronos.models.named_weights import NamedWeights
from tsattn.data.files import first_line
from tsattn.errors import UserError, number_of, one_of

__all__ = ["check_extra", "open_pipeline"]

DTYPES = ("auto", "float32", "bfloat16")

# what chronos-forecasting and transformers raise on a configuration that is not right, or weights that do not load
_DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RuntimeError)


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
    """The pipeline of a pretrained model, from safetensors, running no code from it.

    Args:
        name_or_path: a name that ships with the package, ``chronos-tiny``, the path of a ``.safetensors`` file of
            `tsattn.chronos.bolt.bolt_file`, a folder, or the name of a model on the hub, ``amazon/chronos-bolt-small``:
            the first of these that there is.
        revision: the commit, tag or branch of a model on the hub; a commit pins the weights.
        device: where it is put.
        dtype: ``auto``, as it was saved, ``float32`` or ``bfloat16``.

    Returns:
        A `ChronosPipeline`, `ChronosBoltPipeline` or `Chronos2Pipeline`.

    Raises:
        UserError: if chronos-forecasting is not installed, or there is no such model, it cannot be
            reached, or its weights are not those that its configuration asks for.
    """
    check_extra()
    if dtype not in DTYPES:
        raise UserError(f"dtype of a Chronos model must be one of {one_of(DTYPES)}, not {dtype!r}")
    named = NamedWeights.of(name_or_path, revision)
    if named.is_adapted:
        raise UserError(f"{named.name} holds an adapted model: tsattn.chronos.load_adapted opens it")
    return _theirs(named, device, dtype) if named.file is None else _bolt(named.file, device, dtype)


def _theirs(named: NamedWeights, device: str, dtype: str) -> Any:
    """The pipeline of a model of chronos-forecasting."""
    import chronos  # noqa: F401, which tells transformers of its models
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    where = named.name if named.folder is None else str(named.folder)
    pinned = {} if named.revision is None else {"revision": named.revision}
    # weights that lack or that fit nothing are for the sentence below, in place of a table and random numbers
    options = {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True, **pinned}
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(where, trust_remote_code=False, **pinned)
            family = configured_family(config)
            check_implementations(config)
            model, found = family.model_class().from_pretrained(where, device_map=device, dtype=dtype, **options)
            pipeline = family.around(model)
    except OSError as error:
        if named.folder is not None:
            raise UserError(f"{where} is no folder of a Chronos model in safetensors: {first_line(error)}") from error
        at = "" if named.revision is None else f" at revision {named.revision}"
        raise UserError(
            f"the model {where}{at} is neither a folder, nor in the local cache, nor found on the hub, which may be "
            f"out of reach: {first_line(error)}"
        ) from error
    except (*_DAMAGE, SafetensorError, StrictDataclassError) as error:
        why = f"its configuration lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise UserError(f"{where} cannot be opened as a Chronos model: {why}") from error
    for names, what in (
        (found["missing_keys"], "lacks weights of its model"),
        (found["unexpected_keys"], "holds weights that its model has not got"),
        ([name for name, *_ in found["mismatched_keys"]], "holds weights of other shapes than its model"),
    ):
        if names:
            some = sorted(names)
            more = f" and {number_of(len(some) - 2, 'other')}" if len(some) > 2 else ""
            raise UserError(f"{where} is damaged: it {what}, {one_of(some[:2])}{more}")
    if not all(bool(part.isfinite().all()) for part in model.parameters()):
        raise UserError(f"{where} is damaged: it holds weights that are not finite")
    return pipeline


def _bolt(file: Path, device: str, dtype: str) -> Any:
    """The pipeline of a model that this package has pretrained."""
    import torch

    from tsattn.chronos.models.bolt_pipeline import bolt_pipeline

    pipeline = bolt_pipeline(file)
    pipeline.inner_model.to(device, torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    return pipeline


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress of reading weights, which takes a moment, and the report on them; downloads still show."""
    from transformers.utils import logging as theirs

    def hidden(make: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return make(*args, **{**options, "disable": True})

    before, level = theirs.set_tqdm_hook(hidden), theirs.get_verbosity()
    theirs.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        theirs.set_tqdm_hook(before)
        theirs.set_verbosity(level)
