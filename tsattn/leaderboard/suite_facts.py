"""What a table of records says of its suites besides their runs: what was planned, which seeds confirm, caveats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

__all__ = ["SuiteFacts", "merged_facts"]


@dataclass(frozen=True)
class SuiteFacts:
    """Of one suite.

    Attributes:
        horizons: by data set, those that were planned: a mean over fewer is none.
        fresh_seeds: those that chose nothing, and confirm what the others find.
        caveats: sentences that every report of the records prints.
    """

    horizons: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fresh_seeds: tuple[int, ...] = ()
    caveats: tuple[str, ...] = ()

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """From what `to_dict` gives."""
        horizons = {name: tuple(some) for name, some in content["horizons"].items()}
        return cls(horizons, tuple(content["fresh_seeds"]), tuple(content["caveats"]))

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        horizons = {name: list(some) for name, some in sorted(self.horizons.items())}
        return {"horizons": horizons, "fresh_seeds": [*self.fresh_seeds], "caveats": [*self.caveats]}

    def with_horizons(self, before: Mapping[str, tuple[int, ...]]) -> Self:
        """The same, with those of other data sets that were planned before."""
        return type(self)({**before, **self.horizons}, self.fresh_seeds, self.caveats)


def merged_facts(parts: Iterable[Mapping[str, SuiteFacts]]) -> dict[str, SuiteFacts]:
    """Of several tables, the later ones in force, but for data sets that they do not plan."""
    found: dict[str, SuiteFacts] = {}
    for part in parts:
        for name, facts in part.items():
            found[name] = facts.with_horizons(found[name].horizons) if name in found else facts
    return found
