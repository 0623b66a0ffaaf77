"""The help of the commands that take an experiment: what people use, without a second's wait."""

from __future__ import annotations

__all__ = ["short_help"]


def short_help(command: str) -> str:
    """To be written."""
    return command
