"""Records that are saved as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, get_type_hints

from tsattn.descriptions import check_types
from tsattn.errors import shown

__all__ = ["PlainData", "typed"]


@dataclass(frozen=True)
class PlainData:
    """A record of numbers, texts and tuples of these, however deep; tuples are lists where it is saved.

    A record within it is saved as its own plain data, which `from_dict` of the outer one has to read.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain data (str, int, float, list), as checkpoints and JSON store it."""
        return {field.name: _lists(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Raises:
            TypeError: for anything but its fields, each of them by name.
            UserError: for a value of another type than its field has.
        """
        return cls(**typed(data, get_type_hints(cls), cls.__name__))


def typed(data: object, types: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Plain data that was saved, with tuples for lists.

    Args:
        data: by name.
        types: the annotation of each name.
        what: the data are, for messages.

    Raises:
        TypeError: for anything but these names, each of them.
        UserError: for a value of another type.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"{what} must be a mapping, not {shown(repr(data))}")
    for name in {**types, **data}:
        if name not in types or name not in data:
            raise TypeError(f"{what} {'lacks' if name in types else 'has no'} {shown(repr(name))}")
    values = {name: _tuples(data[name]) for name in types}
    check_types(values, types, what)
    return values


def _lists(value: Any) -> Any:
    if isinstance(value, PlainData):
        return value.to_dict()
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
