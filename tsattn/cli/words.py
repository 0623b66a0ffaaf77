"""Rewriting the words of a command before they are parsed: short names, configurations by name, run folders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tsattn.cli.run_words import Pair, of_a_resumed_run, of_a_start, of_a_trained_run
from tsattn.descriptions import DEFAULT_BACKBONE
from tsattn.errors import UserError, one_of
from tsattn.experiments.configs import config_names, find_config, read_config

__all__ = ["prepare", "take_attention"]

_FLAGS = ("--overwrite", "--refit", "--detail")  # which have no value
_ONE_PATH = ("--run", "--resume", "--start", "--ckpt_path", "--input", "--output", "--figure", "--data.path")
_BACKBONE = "--model.backbone"
_ATTENTION = "--model.backbone.attention"


def prepare(words: list[str]) -> list[str]:
    """The words of a command in the form that the parser takes.

    Every `--name=value` becomes two words. A configuration is found by its bare name. `--attention` stands for
    `--model.backbone.attention`; flags that reach into the description of backbone or attention are merged with that of
    the configuration into one complete description. `--run DIR` of a finished run brings its configuration and best
    checkpoint, `fit --resume DIR` that of an unfinished one, or one that is to be trained longer, and its last;
    `fit --start DIR` the configuration of a run, unless another is named.

    Raises:
        UserError: if a configuration or run folder is not there, a flag would do nothing beside the folder, or a
            description cannot be merged.
    """
    command, *rest = words
    pairs = _pairs(rest)
    for name, value in pairs:
        if name in _FLAGS and value is not None:
            raise UserError(f"{name} takes no value, not {value}: give it, or leave it out")
    for name in _ONE_PATH:  # of which the parser would take the last, without a word
        given = [*dict.fromkeys(value for flag, value in pairs if flag == name and value is not None)]
        if len(given) > 1:
            raise UserError(f"{name} is given {len(given)} times, as {one_of(given)}; give it once")
    wants_help = any(name in ("-h", "--help") or name.endswith(".help") for name, _ in pairs)
    if command != "fit" and not wants_help:
        _check_one_device(command, pairs)
        folders = [value for name, value in pairs if name == "--run"]
        if folders:
            pairs = of_a_trained_run(command, pairs, folders[-1])
        elif all(name != "--ckpt_path" for name, _ in pairs):
            raise UserError(f"{command} needs a trained model: --run DIR, the folder that `fit` has written")
    if command == "fit" and any(name == "--resume" for name, _ in pairs) and not wants_help:
        pairs = of_a_resumed_run(pairs)
    if command == "fit" and any(name == "--start" for name, _ in pairs) and not wants_help:
        pairs = of_a_start(pairs)
    if command == "fit" and not pairs:
        raise UserError(
            f"fit needs a configuration: --config NAME, a file or one of {one_of(config_names())}; "
            "or a table of your own: --data CSVDataModule --data.path FILE"
        )
    pairs = _with_scenarios(pairs)
    plain, configs, overrides = [], [], []
    for name, value in pairs:
        if name in ("-c", "--config") and value is not None:
            configs.append(find_config(value))
            read_config(configs[-1])
            value = str(configs[-1])
        elif _names(name, "--attention"):
            name = _ATTENTION + name.removeprefix("--attention")
        if _names(name, _BACKBONE):
            overrides.append(_override(name, value))
        else:
            plain += [name] if value is None else [name, value]
    if overrides:
        merged = _merge(_configured_backbone(configs), overrides, _BACKBONE)
        plain += [_BACKBONE, merged if isinstance(merged, str) else json.dumps(merged)]
    return [command, *plain]


def _with_scenarios(pairs: list[Pair]) -> list[Pair]:
    """With all files of `--future` as one list, in their order."""
    files = [value for name, value in pairs if name == "--future"]
    if not files or None in files:
        return pairs
    return [*(pair for pair in pairs if pair[0] != "--future"), ("--future", json.dumps(files))]


def _check_one_device(command: str, pairs: list[Pair]) -> None:
    """Refuse several devices where each window must count once; those of the training do not matter there."""
    for name, value in pairs:
        if name in ("--trainer.devices", "--trainer.num_nodes") and value not in ("1", "auto", "[0]"):
            raise UserError(
                f"{command} runs on one device, so that no window counts twice: {name} must be 1, not {value}"
            )


def take_attention(words: list[str]) -> tuple[Any, list[str]]:
    """The description that `--attention` and `--attention.ARGUMENT` spell, and the words that are left.

    Returns:
        the description, unchecked, or None where there is no such flag; the words without those flags.

    Raises:
        UserError: if a flag lacks its value, or an argument is set of what has none.
    """
    overrides, left = [], []
    for name, value in _pairs(words):
        if _names(name, "--attention"):
            overrides.append(_override(name, value))
        else:
            left += [name] if value is None else [name, value]
    return (_merge("standard", overrides, "--attention") if overrides else None), left


def _pairs(words: list[str]) -> list[Pair]:
    """Flags with their values; a word without a flag stands alone."""
    pairs: list[Pair] = []
    for word in words:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            # the parser takes the form of a printed configuration only after an equals sign
            joined = name == "--print_config"
            pairs.append((word, None) if joined else (name, value if equals else None))
        elif pairs and pairs[-1][1] is None and _takes_value(pairs[-1][0]):
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append((word, None))
    return pairs


def _takes_value(name: str) -> bool:
    return name.startswith("-") and name not in ("-h", "--help") and "print_config" not in name


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _configured_backbone(configs: list[Path]) -> object:
    """The description of the backbone in the last configuration that has one."""
    backbone: object = DEFAULT_BACKBONE
    for path in configs:
        model = read_config(path).get("model")
        backbone = (model.get("backbone") if isinstance(model, Mapping) else None) or backbone
    return backbone


def _names(flag: str, root: str) -> bool:
    """Whether a flag names a description or reaches into it."""
    return flag == root or flag.startswith(f"{root}.")


def _override(flag: str, value: str | None) -> tuple[str, Any]:
    if value is None:
        raise UserError(f"{flag} needs a value")
    return flag, _value(value)


def _merge(description: object, overrides: list[tuple[str, Any]], root: str) -> object:
    """The description with the flags applied in order; naming a kind starts a description afresh.

    Arguments that stand before the first kind are of it. Flags of the attention come last, wherever they stand: they
    must outlive another kind of backbone.
    """
    own, attention = ([one for one in overrides if _names(one[0], _ATTENTION) is its] for its in (False, True))
    for name, value in [*_kind_first(own, root), *_kind_first(attention, _ATTENTION)]:
        path = name.removeprefix(root).split(".")[1:]
        description = _set(description, path, value, root)
    return description


def _kind_first(overrides: list[tuple[str, Any]], root: str) -> list[tuple[str, Any]]:
    first = next((at for at, (flag, _) in enumerate(overrides) if flag == root or flag.endswith(".kind")), 0)
    return [*overrides[first : first + 1], *overrides[:first], *overrides[first + 1 :]]


def _set(description: object, path: list[str], value: Any, name: str) -> object:
    if not path:
        return value
    if path == ["kind"]:
        return {"kind": value}
    if isinstance(description, str):
        description = {"kind": description}
    if not isinstance(description, Mapping):
        raise UserError(f"{name} is {description!r}, so {name}.{path[0]} cannot be set alone; give all of {name}")
    if name == _BACKBONE and path[0] == "attention":
        attention = description.get("attention") or "standard"
        return {**description, "attention": _set(attention, path[1:], value, _ATTENTION)}
    if len(path) > 1:
        raise UserError(f"unknown argument {name}.{'.'.join(path)}; {name}.{path[0]} is one value, set it whole")
    return {**description, path[0]: value}


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
