"""The files of a machine: a row for each figure, what was reached, and the picture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from attention_speed.figure import draw
from attention_speed.rows import Row

__all__ = ["Results"]


@dataclass(frozen=True)
class Results:
    """`SLUG.csv`, `SLUG.json` and `SLUG.png` in a folder."""

    folder: Path
    slug: str

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.slug}.{ending}"

    def about(self) -> dict[str, Any]:
        """What the JSON file says; nothing where there is none."""
        file = self.path("json")
        return json.loads(file.read_text()) if file.exists() else {}

    def rows(self) -> pd.DataFrame:
        """The table."""
        file = self.path("csv")
        return pd.read_csv(file) if file.exists() else pd.DataFrame({"part": []})

    def replace_part(self, part: str, rows: list[Row]) -> None:
        """Keep the rows of a part instead of those that there are of it."""
        kept = self.rows()
        new = pd.DataFrame([row.as_record() for row in rows])
        kept = kept[kept["part"] != part]
        table = new if kept.empty else pd.concat([kept, new])
        self.folder.mkdir(parents=True, exist_ok=True)
        table.to_csv(self.path("csv"), index=False)

    def write_about(self, about: dict[str, Any]) -> None:
        self.path("json").write_text(json.dumps(about, indent=2) + "\n")

    def draw(self) -> None:
        """The picture, once there is something to draw."""
        rows = self.rows()
        if (rows["part"] == "attention").any():
            draw(rows, self.path("png"), self.about())
