"""Find pretrained weights by folder or by name on the hub, and open them as a pipeline."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tsattn.chronos.families import check_implementations, configured_family
from tsattn.errors import UserError, first_line, folder_path, number_of, one_of

RECORD = "adapted.json"  # file in the folder of an adapted model, see `AdaptedChronos.save`
DTYPES = ("auto", "float32", "bfloat16")

_ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# errors of chronos-forecasting and transformers for a wrong configuration, or weights that do not load
_DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RuntimeError)


@dataclass(frozen=True)
class NamedWeights:
    """Weights by the name that the user gave: a folder on disk is preferred to the hub."""

    name: str
    folder: Path | None = None  # folder of a Chronos model, adapted or not
    revision: str | None = None  # revision of a model on the hub

    @classmethod
    def of(cls, weights: Any, revision: str | None = None) -> NamedWeights:
        """Find weights by name or path; a `Path` is never a name on the hub."""
        if not isinstance(weights, str | PathLike):
            raise UserError(f"weights must be the name or folder of a Chronos model, not {weights!r}")
        name, path = str(weights), folder_path(weights)
        folder = path if name and path.is_dir() else None
        if folder is not None and revision is not None:
            raise UserError(f"{name} is a folder, and only models on the hub have revisions: leave revision out")
        on_hub = isinstance(weights, str) and _ON_HUB.fullmatch(name) and not name.endswith(".safetensors")
        if folder is None and not on_hub:
            raise UserError(
                "weights must be the folder of a Chronos model, original or adapted, or its name on the hub "
                f"such as amazon/chronos-bolt-small, not {name!r}; the included model is `kind: tiny`"
            )
        return cls(name, folder, revision)

    @property
    def is_adapted(self) -> bool:
        """Whether `AdaptedChronos.save` wrote the folder."""
        return self.folder is not None and (self.folder / RECORD).exists()


def check_extra() -> None:
    """Raise `UserError` if chronos-forecasting is missing; the message names the extra."""
    for package in ("chronos", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise UserError("Chronos models need chronos-forecasting: pip install 'tsattn[chronos]'")


def open_pipeline(
    name_or_path: str | PathLike[str], *, revision: str | None = None, device: str = "cpu", dtype: str = "auto"
) -> Any:
    """Open the pipeline of a pretrained model from safetensors; no code of the model runs.

    Args:
        name_or_path: the folder of a Chronos model, or its name on the hub, such as ``amazon/chronos-bolt-small``.
        revision: the commit, tag or branch of a model on the hub; a commit pins the weights.
        device: device of the model.
        dtype: ``auto`` (the saved type), ``float32`` or ``bfloat16``.

    Raises:
        UserError: without chronos-forecasting; or if the model does not exist, cannot be reached, or has weights that
            do not fit its configuration.
    """
    check_extra()
    if dtype not in DTYPES:
        raise UserError(f"dtype of a Chronos model must be one of {one_of(DTYPES)}, not {dtype!r}")
    named = NamedWeights.of(name_or_path, revision)
    if named.is_adapted:
        raise UserError(f"{named.name} holds an adapted model: open it with tsattn.chronos.load_adapted")
    return _opened(named, device, dtype)


def _opened(named: NamedWeights, device: str, dtype: str) -> Any:
    import chronos  # noqa: F401, which tells transformers of its models
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    where, pinned = str(named.folder or named.name), {"revision": named.revision} if named.revision else {}
    # the message below names missing or unfit weights; transformers would print a table and draw random numbers
    options = {"use_safetensors": True, "ignore_mismatched_sizes": True, "output_loading_info": True, **pinned}
    try:
        with _quiet():
            config = AutoConfig.from_pretrained(where, trust_remote_code=False, **pinned)
            family = configured_family(config)
            check_implementations(config)
            model, found = family.model_class().from_pretrained(where, device_map=device, dtype=dtype, **options)
            pipeline = family.pipeline_of(model)
    except OSError as error:
        if named.folder is not None:
            raise UserError(f"{where} holds no Chronos model in safetensors: {first_line(error)}") from error
        at = f" at revision {named.revision}" if named.revision else ""
        raise UserError(
            f"the model {where}{at} is neither a folder, nor in the local cache, nor found on the hub, which may be "
            f"out of reach: {first_line(error)}"
        ) from error
    except (*_DAMAGE, SafetensorError, StrictDataclassError) as error:
        why = f"its configuration lacks {error}" if isinstance(error, KeyError) else first_line(error)
        raise UserError(f"{where} cannot be opened as a Chronos model: {why}") from error
    for kind, what in (
        ("missing_keys", "lacks weights of its model"),
        ("unexpected_keys", "holds weights that its model has not got"),
        ("mismatched_keys", "holds weights of other shapes than its model"),
    ):
        if names := sorted(name if isinstance(name, str) else name[0] for name in found[kind]):
            more = f" and {number_of(len(names) - 2, 'other')}" if len(names) > 2 else ""
            raise UserError(f"{where} is damaged: it {what}, {one_of(names[:2])}{more}")
    if not all(bool(part.isfinite().all()) for part in model.parameters()):
        raise UserError(f"{where} is damaged: it holds weights that are not finite")
    return pipeline


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide progress and reports of reading weights; downloads are still shown."""
    from transformers.utils import logging as theirs

    level = theirs.get_verbosity()
    before = theirs.set_tqdm_hook(lambda make, args, options: make(*args, **{**options, "disable": True}))
    theirs.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        theirs.set_tqdm_hook(before)
        theirs.set_verbosity(level)
