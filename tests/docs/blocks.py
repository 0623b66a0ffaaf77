"""The code of the README and of the pages of `docs/`, as the tests run it.

The Python blocks of a page run from first to last in one namespace, in an empty folder, with trainings cut short
(`SHORTER`). Of a shell block each command of tsattn is tried by itself (`tests/docs/commands.py`). What a reader need
not see stands in comments, of three kinds, each on lines of its own; the built site leaves them out:

    <!-- run
    sales = pd.DataFrame(...)  # runs where it stands: frames that the blocks after it need, or assertions
    -->

    <!-- in tests: num_samples=100 becomes num_samples=2 -->        in all blocks of the page, one of which must have it

    <!-- not run: it downloads weights -->                          the block after it, which is compiled all the same

In both, `runs/ETTh1/transformer_mlr/TIME`, the same of `co2`, `runs/sales` and `runs/...` stand for the folder of a
finished run on a toy.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
SHORTER = {
    r"max_steps=\d+": "max_steps=2",
    r'"max_steps": \d+': '"max_steps": 2',
    r'"trainer\.max_(steps|epochs)": \d+': '"trainer.max_steps": 2',
}
RUN_FOLDER = re.compile(r"\bruns/((?:ETTh1|co2)/transformer_mlr/TIME|sales|\.\.\.)(?=[\s\"'/]|$)")

_SHELL = ("sh", "bash", "shell", "console")
_COMMENT = re.compile(r"<!-- (?P<what>run|in tests:|not run:)(?P<text>.*?)-->", re.S)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```", re.M | re.S)
_PIECE = re.compile(f"{_COMMENT.pattern}|{_FENCE.pattern}", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """Code of a page: its language, `python` for hidden code, and the line that it begins in."""

    language: str
    code: str
    line: int
    is_run: bool = True


def blocks(text: str, *, in_tests: bool = True) -> list[Block]:
    """All code of a page in its order, hidden code too; in tests with the changes that the page names for them."""
    found: list[Block] = []
    why_not = None
    for piece in _PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 1
        if piece["what"] == "run":
            found.append(Block("python", dedent(piece["text"]), line))
        elif piece["what"] == "not run:":
            why_not = piece["text"].strip()
            assert why_not, f"line {line}: not run, without a reason"
        elif piece["language"]:
            found.append(Block(piece["language"], dedent(piece["code"]), line + 1, is_run=why_not is None))
            why_not = None
    assert why_not is None, f"no block follows what is not run: {why_not}"
    if not in_tests:
        return found
    changes = [change["text"].strip() for change in _COMMENT.finditer(text) if change["what"] == "in tests:"]
    for long, becomes, short in (change.partition(" becomes ") for change in changes):
        assert becomes, f"in tests: OLD becomes NEW, not {long}"
        assert any(long in block.code for block in found), f"no block of the page has {long}"
        found = [Block(block.language, block.code.replace(long, short), block.line, block.is_run) for block in found]
    return found


def shortened(code: str) -> str:
    for long, short in SHORTER.items():
        code = re.sub(long, short, code)
    return code


def run_python(path: Path, run_folder: Path | None = None) -> dict[str, object]:
    """Run the Python of a page in the current folder; an error's trace names the page and its line.

    Args:
        path: of the page.
        run_folder: of a finished run, for pages that read one.

    Returns:
        what the code has named.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text("utf-8")):
        if block.language != "python":
            continue
        code = shortened(block.code)
        if run_folder is not None:
            code = RUN_FOLDER.sub(run_folder.as_posix(), code)
        compiled = compile("\n" * (block.line - 1) + code, str(path), "exec")
        if block.is_run:
            exec(compiled, names)
    return names


def commands(text: str) -> list[list[str]]:
    """Every command of tsattn on a page, as words; those of a package of one's own are tried in `test_registration`."""
    found = []
    for block in blocks(text):
        if block.language in _SHELL and block.is_run:
            lines = block.code.replace("\\\n", " ").splitlines()
            matches = (re.search(r"(?:-m tsattn|^\$? *(?:srun .*)?tsattn) (?P<words>.*)", line) for line in lines)
            found += [match["words"] for match in matches if match and "my_package" not in match["words"]]
    return [shlex.split(words, comments=True) for words in found]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
