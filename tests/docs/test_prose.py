"""Pages keep the style of prose; docstrings come closer to it, room by room."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, pages
from tests.docs.prose import BASELINE, MEAN, docstring_prose, notebook_prose, page_prose, rooms

LEFT = json.loads(BASELINE.read_text("utf-8"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("page", [*pages(), *NOTEBOOKS], ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_is_plain(page: Path) -> None:
    prose = (page_prose if page.suffix == ".md" else notebook_prose)(page.read_text("utf-8"))
    assert not [*prose.faults()]
    assert prose.mean <= MEAN
    assert re.search(r"\byour?s?\b", " ".join(prose.sentences), re.I), "nobody is addressed"


@pytest.mark.parametrize("room", rooms())
def test_docstrings_do_not_get_worse(room: str) -> None:
    found, left = rooms()[room], LEFT.get(room, 0)
    assert found <= left, f"more than the {left} known faults: `python -m tests.docs.prose tsattn/{room}/FILE.py`"
    assert found == left, "better than before: `python -m tests.docs.prose --baseline` keeps it so"


def test_faults_are_found() -> None:
    page = """# A title of What such arms are

What came is beside the point. You see 1, 2 and 3 of `such` numbers, such as these.

| a tie | in a table |
<!-- a tie in a comment -->

```python
x = 1  # a comment that is so long that nobody can read it on a screen of eighty columns
```
"""
    kinds = [kind for kind, _ in page_prose(page + " ".join(["word"] * 31)).faults()]
    assert kinds == ["private", "headless", "numbers", "long", "wide"]
    source = '"""Those of a module."""\ndef f(x):\n    """Return.\n\n    Args:\n        x: one of the arms.\n    """\n'
    assert [kind for kind, _ in docstring_prose(source).faults()] == ["private", "headless", "private"]
