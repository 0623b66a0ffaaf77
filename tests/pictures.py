"""Pictures that are made and saved, but empty: drawing takes longer than a short training."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

save_drawn = Figure.savefig


def save_empty(figure: Figure, path: Any, **options: Any) -> None:
    """What takes the place of `Figure.savefig` in tests that look at no picture."""
    save_drawn(Figure(figsize=(1, 1)), path, **options)
