"""Learned vectors in the place of the numbers of categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

__all__ = ["CategoryVectors", "count_numbers"]

_WIDTH = 8  # of a vector, at most


def count_numbers(categories: Sequence[Sequence[str]], columns: int) -> int:
    """How many numbers `CategoryVectors` gives for so many columns."""
    return sum(_width(known) for known in categories) if categories else columns


class CategoryVectors(nn.Module):
    """Columns of a step, each category replaced by a learned vector; columns of numbers stay as they are.

    A vector has as many numbers as there are categories, and at most 8. A category that training has not seen has the
    mean of all vectors, which is a category of its own that every other one trains; so has what is padded.

    Args:
        categories: of each column, none for one of numbers; empty where all are numbers.
    """

    mup_roles: ClassVar[dict[str, str]] = {"vectors": "input"}  # see tsattn.optim

    def __init__(self, categories: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.is_category = [bool(known) for known in categories]
        self.vectors = nn.ModuleList(nn.Embedding(len(known), _width(known)) for known in categories if known)

    def forward(self, columns: Tensor) -> Tensor:
        """`(B, N, numbers)` of `(B, N, columns)`, where a category is a number from 1 on, and 0 is one not seen."""
        if not any(self.is_category):
            return columns
        parts: list[Tensor] = []
        tables = (table for table in self.vectors if isinstance(table, nn.Embedding))
        for column, is_category in zip(columns.unbind(-1), self.is_category, strict=True):
            if is_category:
                weight: Tensor = next(tables).weight
                vectors = torch.cat([weight.mean(0, keepdim=True), weight])
                parts.append(vectors[column.round().long()].to(columns.dtype))
            else:
                parts.append(column[..., None])
        return torch.cat(parts, -1)


def _width(known: Sequence[str]) -> int:
    return min(_WIDTH, len(known)) if known else 1
