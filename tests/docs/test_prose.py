"""Pages keep the style of prose; docstrings come closer to it, room by room."""

import json
import re

from docs.site.prose_style import BASELINE, MEAN, docstring_prose, notebook_prose, page_prose, rooms
from tests.docs.blocks import ROOT, pages

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_pages_are_plain() -> None:
    for page in (*pages(), *NOTEBOOKS):
        prose = (page_prose if page.suffix == ".md" else notebook_prose)(page.read_text("utf-8"))
        assert not [*prose.faults()], page
        assert prose.mean <= MEAN, page
        assert re.search(r"\byour?s?\b", " ".join(prose.sentences), re.I), f"{page}: nobody is addressed"


def test_docstrings_do_not_get_worse() -> None:
    """`python -m docs.site.prose_style FILE.py` lists faults; with `--baseline` it writes how many are left."""
    found, left = rooms(), json.loads(BASELINE.read_text("utf-8"))
    assert found == {room: left.get(room, 0) for room in found}, "fewer are kept by `--baseline`, more are mended"


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
