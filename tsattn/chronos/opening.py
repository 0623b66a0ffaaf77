"""Find pretrained weights by a shipped name, a file, a folder or a name on the hub, and open them as a pipeline."""

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

import torch
from safetensors import SafetensorError

from tsattn.backbones import complete_backbone
from tsattn.chronos.bolt.bolt_file import bolt_config, load_bolt, named_file, read_model, shipped_names, to_chronos_bolt
from tsattn.chronos.bolt.bolt_network import UNSCALED
from tsattn.chronos.families import Bolt, check_implementations, configured_family
from tsattn.errors import UserError, first_line, folder_path, number_of, one_of

RECORD = "adapted.json"  # in the folder of an adapted model, see `AdaptedChronos.save`
DTYPES = ("auto", "float32", "bfloat16")

_ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# what chronos-forecasting and transformers raise on a configuration that is not right, or weights that do not load
_DAMAGE = (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, RuntimeError)


@dataclass(frozen=True)
class NamedWeights:
    """Weights by their name as it was typed: a shipped name comes first, then the disk, then the hub."""

    name: str
    file: Path | None = None  # of a `ChronosBolt`
    folder: Path | None = None  # of a Chronos model, or of an adapted one
    revision: str | None = None  # of a model on the hub

    @classmethod
    def of(cls, weights: Any, revision: str | None = None) -> NamedWeights:
        """Find the weights of a name or path; a path object is never a shipped name or one on the hub."""
        if not isinstance(weights, str | PathLike):
            raise UserError(f"a Chronos model is opened by a name or folder, not by {weights!r}")
        name, file, path = str(weights), named_file(weights), folder_path(weights)
        folder = path if file is None and name and path.is_dir() else None
        if (file or folder) and revision is not None:
            raise UserError(f"{name} is no model on the hub, which alone has revisions: leave revision out")
        on_hub = isinstance(weights, str) and _ON_HUB.fullmatch(name) and not name.endswith(".safetensors")
        if not (file or folder or on_hub):
            raise UserError(
                f"weights must be {', '.join(shipped_names())}, the path of a .safetensors file of a pretrained model, "
                "the folder of a Chronos model or of an adapted one, or the name of one on the hub such as "
                f"amazon/chronos-bolt-small, not {name!r}"
            )
        return cls(name, file, folder, revision)

    @property
    def is_adapted(self) -> bool:
        """Whether `AdaptedChronos.save` wrote the folder."""
        return self.folder is not None and (self.folder / RECORD).exists()


def check_extra() -> None:
    """Refuse to go on without chronos-forecasting; the message names the extra."""
    for package in ("chronos", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise UserError("Chronos models need chronos-forecasting: pip install 'tsattn[chronos]'")


def open_pipeline(
    name_or_path: str | PathLike[str], *, revision: str | None = None, device: str = "cpu", dtype: str = "auto"
) -> Any:
    """Open the pipeline of a pretrained model from safetensors; no code of the model runs.

    Args:
        name_or_path: a shipped name, ``chronos-tiny``; the path of a ``.safetensors`` file of a pretrained model; a
            folder; or a name on the hub, ``amazon/chronos-bolt-small``.
        revision: the commit, tag or branch of a model on the hub; a commit pins the weights.
        device: where to put it.
        dtype: ``auto``, as it was saved, ``float32`` or ``bfloat16``.

    Raises:
        UserError: without chronos-forecasting; or if the model does not exist, cannot be reached, or has other weights
            than its configuration asks for.
    """
    check_extra()
    if dtype not in DTYPES:
        raise UserError(f"dtype of a Chronos model must be one of {one_of(DTYPES)}, not {dtype!r}")
    named = NamedWeights.of(name_or_path, revision)
    if named.is_adapted:
        raise UserError(f"{named.name} holds an adapted model: tsattn.chronos.load_adapted opens it")
    if named.file is None:
        return _opened(named, device, dtype)
    pipeline = _own_bolt(named.file)
    pipeline.inner_model.eval().to(device, torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    return pipeline


def _opened(named: NamedWeights, device: str, dtype: str) -> Any:
    import chronos  # noqa: F401, which tells transformers of its models
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    where, pinned = str(named.folder or named.name), {"revision": named.revision} if named.revision else {}
    # weights that lack or that fit nothing are for the sentence below, in place of a table and random numbers
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
            raise UserError(f"{where} is no folder of a Chronos model in safetensors: {first_line(error)}") from error
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


def _own_bolt(path: Path) -> Any:
    """The pipeline of chronos-forecasting with the weights of a `ChronosBolt`, whose model computes the same."""
    model = read_model(path)
    given = complete_backbone(model.description)
    attention = given["attention"]
    layers = attention if isinstance(attention, list) else [attention]
    is_plain = all({**one, "kind": "standard", "scaling": 1.0} == one and not one.get("qk_norm") for one in layers)
    if not is_plain or given["arcsinh"]:
        raise UserError(f"{path} has other attention than Chronos-Bolt, {UNSCALED}, or arcsinh: it cannot be adapted")
    config = bolt_config(given, model.context_length, model.prediction_length, model.quantiles)
    pipeline = Bolt.unloaded(config, "sdpa")
    pipeline.inner_model.load_state_dict(to_chronos_bolt(load_bolt(path).state_dict()))
    return pipeline


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress of reading weights and the report on them; downloads still show."""
    from transformers.utils import logging as theirs

    level = theirs.get_verbosity()
    before = theirs.set_tqdm_hook(lambda make, args, options: make(*args, **{**options, "disable": True}))
    theirs.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        theirs.set_tqdm_hook(before)
        theirs.set_verbosity(level)
