"""The notebooks run from first cell to last, and their committed outputs are what a reader should see.

Remake the outputs of a copy in an empty folder, as notebooks write files: `jupyter nbconvert --to notebook --execute
--inplace NAME.ipynb --ExecutePreprocessor.record_timing=False`.
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from traitlets.config import Config

from tests.processes import Worker
from tsattn.cli import main

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_BYTES = 400_000

# an absolute path of a machine, not a word with a slash, a closing tag or the address of a page
PATH = re.compile(r"(?<![\w.:/<])/[\w.-]+/[\w./-]+|\b[A-Z]:\\\w|\bsite-packages\b")

# notes of tsattn on a table, which a notebook shows as a terminal does
NOTE = re.compile(r"the frame: .*|\d+ of \d+ series .*")

# what takes long, and what shows outputs of the same kinds sooner
HURRIED = {
    "attention_tour": {'"max_steps": 400': '"max_steps": 2'},
    "tiny": {
        '"max_steps": 200': '"max_steps": 2',
        'SPLIT = {"val_rows": 2_880, "test_rows": 2_880,': 'SPLIT = {"val_rows": 600, "test_rows": 100,',
        '"val_windows": 256': '"val_windows": 16',
        "frame.iloc[-2_880 - 512 :]": "frame.iloc[-600:]",
    },
    "own_data": {
        '"max_steps": 150': '"max_steps": 2',
        '"max_steps": 80': '"max_steps": 2',
        "--trainer.max_steps 150": "--trainer.max_steps 2",
    },
    "quickstart": {'"max_steps": 200': '"max_steps": 2'},
}

CASES = [
    pytest.param(path, marks=pytest.mark.real_data if path.stem == "tiny" else (), id=path.stem) for path in NOTEBOOKS
]
notebooks = pytest.mark.parametrize("path", CASES)


def read(path: Path) -> Any:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def hurry(notebook: Any, changes: dict[str, str]) -> None:
    for long, short in changes.items():
        found = [cell for cell in code_cells(notebook) if long in cell.source]
        assert found, f"the notebook has no {long}"
        for cell in found:
            cell.source = cell.source.replace(long, short)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> list[set[str]]:
    """What each output of a cell is: the types that it can be displayed as, or the name of its stream."""
    kinds: list[set[str]] = []
    for output in cell.outputs:
        kind = set(output.get("data", {output.get("name", "error"): None}))
        # how often a stream is flushed is chance
        if output.output_type != "stream" or kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


def written(cell: Any) -> list[str]:
    texts = [output["text"] for output in cell.outputs if "text" in output]
    for output in cell.outputs:
        texts += [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return texts


@notebooks
def test_committed_outputs_are_whole_and_clean(path: Path) -> None:
    notebook = read(path)
    assert path.stat().st_size <= MAX_BYTES
    assert notebook.metadata.kernelspec.name == "python3"
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run it from first cell to last"
    assert any("image/png" in kinds for cell in cells for kinds in shown(cell)), "no figure is committed"
    for cell in cells:
        assert not [output for output in cell.outputs if output.output_type == "error"]
        said = "".join(output["text"] for output in cell.outputs if output.get("name") == "stderr")
        assert [line for line in said.splitlines() if not NOTE.fullmatch(line)] == []
        assert not PATH.search(cell.source)
        for text in written(cell):
            assert not PATH.search(text), text
            assert not re.search(r"Warning\b|Traceback", text), text
    assert not PATH.search(json.dumps(notebook.metadata))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder; no kernel, configuration or history of the user's own is found."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.slow
def test_a_notebook_runs_in_a_new_kernel(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(ROOT / "notebooks" / "quickstart.ipynb")
    committed = [shown(cell) for cell in code_cells(notebook)]
    hurry(notebook, HURRIED["quickstart"])
    manager = KernelManager(kernel_name="python3")
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv[0] = sys.executable
    NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(work)}}).execute()
    assert [shown(cell) for cell in code_cells(notebook)] == committed


def run_cells(sources: list[str], folder: Path) -> None:
    """Run cells as a kernel does, but in this process, and write down what each one shows, in kind."""
    os.chdir(folder)
    now: list[list[str]] = []

    class Stream(io.StringIO):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.kind = [name]

        def write(self, text: str) -> int:
            if text and now[-1:] != [self.kind]:
                now.append(self.kind)
            return len(text)

    def tsattn(command: str) -> None:
        program, *words = shlex.split(command)
        assert program == "tsattn"
        with contextlib.redirect_stderr(sys.stdout):
            assert main(words) == 0

    config = Config({"HistoryManager": {"hist_file": ":memory:"}})
    shell: Any = InteractiveShell.instance(config=config)
    shell.system, shell.enable_gui = tsattn, lambda gui=None: None
    shell.displayhook.write_output_prompt = lambda: None
    shell.displayhook.write_format_data = lambda data, _=None: now.append(sorted(data))
    shell.display_pub.publish = lambda data, *_, **__: now.append(sorted(data))
    streams = sys.stdout, sys.stderr
    found = []
    for source in sources:
        now.clear()
        sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
        result = shell.run_cell(source, store_history=True)
        sys.stdout, sys.stderr = streams
        result.raise_error()
        found.append([*now])
    (folder / "shown.json").write_text(json.dumps(found))
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("path", [one for one in CASES if one.id != "quickstart"])
def test_notebooks_run(path: Path, work: Path) -> None:
    """Every cell, from first to last in an empty folder; it shows what was committed, in kind. Trainings are short."""
    notebook = read(path)
    committed = [[sorted(kind) for kind in shown(cell)] for cell in code_cells(notebook)]
    hurry(notebook, HURRIED[path.stem])
    sources = [cell.source for cell in code_cells(notebook)]
    worker = Worker([], work.parent, partial(run_cells, sources, work))
    assert worker.end() == 0, worker.said()
    found = json.loads((work / "shown.json").read_text())
    for source, kinds, expected in zip(sources, found, committed, strict=True):
        assert kinds == expected, source
