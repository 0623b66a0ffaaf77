"""YAML as every file of this package is read."""

from __future__ import annotations

import re
from typing import Any

import yaml

__all__ = ["parsed"]

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, and reads ``1e-3`` as a number, which YAML 1.1 takes for text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def parsed(text: str) -> Any:
    """The plain data in a text.

    Raises:
        yaml.YAMLError: for what is no YAML, or has a key twice in one mapping.
    """
    return yaml.load(text, Loader=_Loader)
