"""The pages promise nothing that does not run: their Python, their commands."""

import gc
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from tests.docs.blocks import ROOT, RUN_FOLDER, blocks, commands, pages, run_python, shortened
from tests.docs.commands import try_command
from tsattn.cli import COMMANDS as KNOWN

SITE = [page for page in pages() if any(block.language == "python" for block in blocks(page.read_text("utf-8")))]
COMMANDS = {" ".join(words): words for page in pages() for words in commands(page.read_text("utf-8"))}

PAGE = """
<!-- in tests: size=100 becomes size=2 -->
<!-- run
start = 1 -->

=== "Python"

    ```python title="here"
    end = start + 1
    Model(size=100, max_steps=500)
    ```

<!-- not run: there is no such thing -->
```python
import nothing_of_the_kind
```

```sh
pip install something
python -m tsattn cost --attention mlr \\
    --tokens 8  # a comment
tsattn kernels
```
"""


def test_hidden_blocks_tabs_and_reasons_are_read() -> None:
    hidden, shown, not_run, shell = blocks(PAGE)
    assert hidden.code.strip() == "start = 1"
    assert shown.code == "end = start + 1\nModel(size=2, max_steps=500)\n"
    assert shortened(shown.code).endswith("Model(size=2, max_steps=2)\n")
    assert PAGE.splitlines()[shown.line - 1].strip() == "end = start + 1"
    assert [block.is_run for block in (hidden, shown, not_run, shell)] == [True, True, False, True]
    assert commands(PAGE) == [["cost", "--attention", "mlr", "--tokens", "8"], ["kernels"]]


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
