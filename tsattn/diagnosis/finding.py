"""What is found in a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import pandas as pd

__all__ = ["Finding", "as_frame"]


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        series: its id, or of a wide table its column; empty where it is of no single series.
        column: the column of the table.
        kind: see `tsattn.diagnosis.KINDS`.
        count: how many there are.
        where: the first of them, or all, in words.
        sentence: what it is and what to do about it.
    """

    series: Any
    column: str
    kind: str
    count: int
    where: str
    sentence: str


def as_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """A row a finding, a column an attribute."""
    names = [field.name for field in fields(Finding)]
    return pd.DataFrame([asdict(finding) for finding in findings], columns=names)
