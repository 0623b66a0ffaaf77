"""Draw the pictures of pages: `python docs/images/pages.py docs/how-to/covariates.md` runs a page as it stands.

Each figure that its code saves as `NAME.png` becomes `docs/images/PAGE-NAME.png`, if the page shows that picture.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import blocks  # noqa: E402


def draw(page: Path) -> None:
    """Run the Python of a page in an empty folder, and keep the pictures that the page shows."""
    text = page.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names: dict[str, object] = {"__name__": "__main__"}
        for block in blocks(text, in_tests=False):
            if block.language == "python" and block.is_run:
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
        for picture in Path(folder).rglob("*.png"):
            name = f"{page.stem}-{picture.name}"
            if name in text:
                colours = Image.open(picture).convert("RGB")
                small = colours.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # a third of it
                small.save(ROOT / "docs" / "images" / name, optimize=True)
                print(name)
    os.chdir(ROOT)


if __name__ == "__main__":
    mpl.use("agg")
    for one in sys.argv[1:]:
        draw(Path(one).resolve())
