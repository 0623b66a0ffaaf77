"""The pages promise nothing that does not run: their Python, their commands."""

import gc
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from tests.docs.blocks import ROOT, RUN_FOLDER, blocks, commands, pages, run_python
from tests.docs.commands import try_command
from tsattn.cli import COMMANDS as KNOWN

SITE = [page for page in pages() if any(block.language == "python" for block in blocks(page.read_text("utf-8")))]
COMMANDS = {" ".join(words): words for page in pages() for words in commands(page.read_text("utf-8"))}


@pytest.mark.parametrize("page", SITE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # for modules that a page writes
    reads_a_run = any(RUN_FOLDER.search(block.code) for block in blocks(page.read_text("utf-8")))
    run_folder = request.getfixturevalue("toy_run")[1] if reads_a_run else None
    run_python(page, run_folder)
    plt.close("all")
    gc.collect()  # classes of the page, which would be found by their names


@pytest.mark.parametrize("words", COMMANDS.values(), ids=list(COMMANDS))
def test_every_command_is_one_that_runs(
    words: list[str], toy_run: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try_command(words, toy_run, tmp_path, monkeypatch)


def test_every_command_stands_on_some_page() -> None:
    assert {words[0] for words in COMMANDS.values()} >= set(KNOWN)
