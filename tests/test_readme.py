"""The README promises nothing that does not run, and fits on two screens; `tests/docs` is of the pages it leads to."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks
from tsattn.attention import KINDS
from tsattn.backbones import BACKBONES
from tsattn.data import DATA_MODULES
from tsattn.predictors import PREDICTORS

README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"\]\(([^)#]+)")


def test_it_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= 150


def test_its_forecast_from_a_frame_is_that_of_the_first_page() -> None:
    """Where it runs."""
    (shown,) = [block.code for block in blocks(README) if block.language == "python"]
    assert shown in [block.code for block in blocks((ROOT / "docs" / "index.md").read_text("utf-8"))]


def test_every_page_of_the_site_is_one_step_or_two_away() -> None:
    """From the README, or from a page that the README shows."""
    near = {(ROOT / link).resolve() for link in LINK.findall(README) if not link.startswith("http")}
    near |= {
        (page.parent / link).resolve()
        for page in [page for page in near if page.suffix == ".md"]
        for link in LINK.findall(page.read_text("utf-8"))
    }
    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts} <= near


@pytest.mark.parametrize(
    ("thing", "table", "name"),
    [
        ("an attention", KINDS, "KINDS"),
        ("a data set", DATA_MODULES, "DATA_MODULES"),
        ("a backbone", BACKBONES, "BACKBONES"),
        ("a predictor", PREDICTORS, "PREDICTORS"),
    ],
)
def test_a_newcomer_finds_where_to_add(thing: str, table: dict[str, str], name: str) -> None:
    """The line of the README names a page, a folder and a table, and the page each step."""
    (line,) = re.findall(rf"^\| \*\*add {thing}\*\* \| (.*) \|$", README, re.MULTILINE)
    (page,) = LINK.findall(line)
    assert f"`{name}`" in line
    (folder,) = re.findall(r"`(tsattn/[\w/]+)`", line)
    assert any(
        (ROOT / path.replace(".", "/")).parent.with_suffix(".py").is_relative_to(ROOT / folder)
        for path in table.values()
    )
    steps = (ROOT / page).read_text("utf-8")
    assert f"`{name}` of `tsattn/{'/'.join(Path(folder).parts[1:2])}/__init__.py`" in steps
    for path in re.findall(r"`((?:tsattn|tests|data)/[\w/.]+)`", steps):
        assert (ROOT / path).exists(), path
