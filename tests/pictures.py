"""Pictures that are made and saved, but empty: drawing takes longer than a short training."""

from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.figure import Figure

save_drawn = Figure.savefig


def save_empty(figure: Figure, path: Any, **options: Any) -> None:
    """What takes the place of `Figure.savefig` in tests that look at no picture."""
    save_drawn(Figure(figsize=(1, 1)), path, **options)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", save_drawn)


@pytest.fixture(scope="package", autouse=True)
def empty_pictures() -> Iterator[None]:
    """For the conftest of a folder of tests: all that its tests and shared runs save is empty."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Figure, "savefig", save_empty)
        yield
