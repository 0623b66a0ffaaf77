"""Parts of a suite for machines that know nothing of each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from tsattn.errors import UserError
from tsattn.leaderboard.plan import Entry

__all__ = ["Shard"]


@dataclass(frozen=True)
class Shard:
    """One of several parts, which are the same whoever asks.

    Attributes:
        number: from 1.
        count: how many parts there are.
    """

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The part that ``2/8`` means.

        Raises:
            UserError: for anything else.
        """
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UserError(f"--shard must be a part of how many, as 2/8, not {text}")
        return cls(int(number), int(count))

    def of(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries of this part, in their order.

        What is fitted once for several, members and their ensembles and all that takes the values of one study, is in
        one part.
        """
        entries = list(entries)
        if self.count == 1:
            return entries
        heads: dict[str, str] = {}

        def head(name: str) -> str:
            while heads.setdefault(name, name) != name:
                name = heads[name]
            return name

        for entry in entries:
            names = _names(entry)
            for name in names[1:]:
                one, other = sorted((head(names[0]), head(name)))
                heads[other] = one
        return [entry for entry in entries if _number(head(_names(entry)[0])) % self.count == self.number - 1]


def _names(entry: Entry) -> list[str]:
    """What connects an entry to others."""
    own = [entry.key] if entry.key and not entry.studies else []
    members = list(entry.members) if not entry.studies else []
    return [*entry.studies, *own, *members] or [entry.name]


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
