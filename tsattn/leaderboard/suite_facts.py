"""What a table of records says of its suites besides their runs: what was planned, which seeds confirm, caveats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

__all__ = ["SuiteFacts", "merged_facts"]


@dataclass(frozen=True)
class SuiteFacts:
    """Of one suite. Older files say nothing of all but the first three.

    Attributes:
        horizons: by data set, those that were planned: a mean over fewer is none.
        fresh_seeds: those that chose nothing, and confirm what the others find.
        caveats: sentences that every report of the records prints.
        planned: by data set, how many runs the whole suite has there.
        seeds: by data set, those of these runs.
        kinds: by the name of an attention, the kinds of its layers.
        without: by the name of a predictor that takes an attention, what is left of it without the part that does: a
            name, empty where nothing is left.
    """

    horizons: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fresh_seeds: tuple[int, ...] = ()
    caveats: tuple[str, ...] = ()
    planned: Mapping[str, int] = field(default_factory=dict)
    seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """From what `to_dict` gives."""
        parts: dict[str, Any] = {
            name: {key: tuple(some) for key, some in content.get(name, {}).items()} for name in _LISTS
        }
        parts |= {name: dict(content.get(name, {})) for name in _SINGLE}
        return cls(**parts, fresh_seeds=tuple(content["fresh_seeds"]), caveats=tuple(content["caveats"]))

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        lists = {name: {key: [*some] for key, some in sorted(getattr(self, name).items())} for name in _LISTS}
        single = {name: dict(sorted(getattr(self, name).items())) for name in _SINGLE}
        return {**lists, **single, "fresh_seeds": [*self.fresh_seeds], "caveats": [*self.caveats]}

    def after(self, before: SuiteFacts) -> Self:
        """The same, with what an earlier table of the suite says of other data sets, attentions and predictors."""
        both: dict[str, Any] = {name: {**getattr(before, name), **getattr(self, name)} for name in (*_LISTS, *_SINGLE)}
        return replace(self, **both)


_LISTS, _SINGLE = ("horizons", "seeds", "kinds"), ("planned", "without")


def merged_facts(parts: Iterable[Mapping[str, SuiteFacts]]) -> dict[str, SuiteFacts]:
    """Of several tables, the later ones in force, but for data sets that they do not plan."""
    found: dict[str, SuiteFacts] = {}
    for part in parts:
        for name, facts in part.items():
            found[name] = facts.after(found[name]) if name in found else facts
    return found
