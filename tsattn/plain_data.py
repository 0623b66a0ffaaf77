"""Records that are saved as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

__all__ = ["PlainData"]


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
            TypeError: for a field that the record does not have, or one that is lacking.
        """
        return cls(**{name: _tuples(value) for name, value in data.items()})


def _lists(value: Any) -> Any:
    if isinstance(value, PlainData):
        return value.to_dict()
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
