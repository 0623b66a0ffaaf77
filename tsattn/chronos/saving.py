"""The folder of an adapted Chronos model: JSON that records the swap, and safetensors.

A plain loader of Chronos or transformers cannot open it: its `config.json` names a type of model that they do not know,
and its weights a file that they do not look for. Nothing in it runs code.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from tsattn.checks import folder_path
from tsattn.chronos.adapted_chronos import AdaptedChronos, Swap
from tsattn.chronos.models.families import FAMILIES, IMPLEMENTATIONS
from tsattn.chronos.models.named_weights import RECORD
from tsattn.chronos.models.pipelines import check_extra
from tsattn.data.files import first_line
from tsattn.errors import UserError, shown
from tsattn.saved_folders import CHECKSUMS, check_checksums, restore_folder, whole_folder, write_checksums

__all__ = ["add_biases", "load_adapted", "plain_record", "rebuilt", "save_adapted"]

FORMAT, VERSION = "tsattn adapted chronos", 1
WEIGHTS = "adapted.safetensors"
CONFIG = {"model_type": "tsattn-adapted-chronos", "note": "opened by tsattn.chronos.load_adapted alone"}
PACKAGES = ("tsattn", "torch", "transformers", "chronos-forecasting")


def save_adapted(adapted: AdaptedChronos, folder: str | PathLike[str], *, overwrite: bool = False) -> Path:
    """Write an adapted model into a folder, all or nothing; the original is not in it.

    Raises:
        UserError: if the folder exists and may not be overwritten, or cannot be written.
    """
    path = folder_path(folder)
    model: Any = adapted.model
    with whole_folder(path, record=RECORD, what="an adapted model", overwrite=overwrite) as partial:
        save_model(model, str(partial / WEIGHTS))
        record = {
            "format": FORMAT,
            "version": VERSION,
            "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
            **plain_record(adapted),
        }
        (partial / RECORD).write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        (partial / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n", encoding="utf-8")
        write_checksums(partial, sorted(partial.iterdir()))
    return path


def load_adapted(folder: str | PathLike[str], *, device: str = "cpu") -> AdaptedChronos:
    """The adapted model in a folder, with its attention in place; its original is not there.

    Raises:
        UserError: for another folder, one that is damaged, or where the extra `chronos` is not installed.
    """
    path = folder_path(folder)
    restore_folder(path, RECORD)
    if not (path / RECORD).exists():
        raise UserError(f"{path} is not the folder of an adapted model: it has no {RECORD}")
    if not {RECORD, WEIGHTS} <= {*check_checksums(path)}:
        raise UserError(f"{path} is damaged: {CHECKSUMS} lacks {RECORD} or {WEIGHTS}")
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise UserError(f"{path} is not the folder of an adapted model")
        if record["version"] != VERSION:
            raise UserError(f"{path} was written by another version of tsattn, {record['packages']['tsattn']}")
        adapted = rebuilt(record)
        _fill(adapted.model, path / WEIGHTS)
    except UserError:
        raise
    except Exception as error:  # an edit may lead anywhere
        raise UserError(f"{path} is damaged: {first_line(error)[:200]}") from error
    adapted.model.eval().to(device)
    return adapted


def plain_record(adapted: AdaptedChronos) -> dict[str, Any]:
    """What a model is built from again, but for its weights, as plain data."""
    model: Any = adapted.model
    generation = getattr(model, "generation_config", None)
    return {
        "family": adapted.family.name,
        "source": {"name": model.config._name_or_path, "revision": getattr(model.config, "_commit_hash", None)},
        "attention_implementation": model.config._attn_implementation,
        "config": json.loads(model.config.to_json_string(use_diff=False)),
        "generation_config": None if generation is None else json.loads(generation.to_json_string(use_diff=False)),
        "swaps": {
            name: {"attention": _plain(swap.attention), "convert": swap.convert} for name, swap in adapted.swaps.items()
        },
        "score_errors": adapted.score_errors,
    }


def rebuilt(record: dict[str, Any]) -> AdaptedChronos:
    """The model of a `plain_record`, with its attention in place, in eval mode; its weights mean nothing.

    Raises:
        UserError: where the extra `chronos` is not installed.
        KeyError: for a record that lacks something; also other errors of Python, for one that is damaged.
    """
    check_extra()
    family = FAMILIES[record["family"]]
    if record["attention_implementation"] not in IMPLEMENTATIONS:  # transformers downloads some, and runs them
        raise ValueError(f"{shown(record['attention_implementation'])} is no attention_implementation")
    with torch.random.fork_rng():
        pipeline = family.unloaded(record["config"], record["attention_implementation"])
        if record["generation_config"] is not None:
            pipeline.inner_model.generation_config = _generation(record["generation_config"])
        swaps = {name: Swap(**swap) for name, swap in record["swaps"].items()}
        adapted = AdaptedChronos(pipeline, None, family, swaps)
        if swaps:
            for _ in adapted.swap():
                pass
    adapted.score_errors = record["score_errors"]
    adapted.model.eval()
    return adapted


def add_biases(model: nn.Module, names: Iterable[str]) -> None:
    """Give layers the biases that weights of these names fill: those that take the mean off rotated keys.

    They are trained where the weights of their layers are.
    """
    for name in names:
        parent, _, last = name.rpartition(".")
        held = model.get_submodule(parent)
        if last == "bias" and getattr(held, last, True) is None:
            weight: Any = held.weight
            bias = nn.Parameter(torch.empty_like(weight[:, 0]), requires_grad=weight.requires_grad)
            held.register_parameter(last, bias)


def _plain(description: Any) -> Any:
    """A description as JSON has it."""
    return description if isinstance(description, str) else dict(description)


def _generation(saved: dict[str, Any]) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig.from_dict(saved)


def _fill(model: nn.Module, file: Path) -> None:
    """Give a model the weights in a file, each in the type that it was saved in.

    Raises:
        RuntimeError: if the file holds others than the model has.
    """
    with safe_open(str(file), framework="pt") as saved:
        names = [*saved.keys()]
        add_biases(model, names)
        for name in names:
            parent, _, last = name.rpartition(".")
            own = getattr(model.get_submodule(parent), last)
            own.data = own.data.to(saved.get_tensor(name).dtype)
    load_model(model, str(file), strict=True)
