"""Offences against the style of prose: `python -m docs.site.prose_style PAGE...` lists those of a page or notebook."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASELINE = Path(__file__).with_name("prose_baseline.json")
"""Faults that docstrings of each room still have: `python -m docs.site.prose_style --baseline` writes what is left."""
LONGEST = 30
"""Words of the longest sentence; 25 is the rule."""
MEAN = 17
"""Words of the mean sentence of a page."""

PRIVATE = {
    r"arms?": "model",
    r"(?:ties?|tied)": "undecided, or equal within x %",
    r"luck": "seed variance",
    r"beside": "compared with, next to",
    r"(?:goes|go|going|went) on": "resume, continue",
    r"(?:comes|come|coming|came) along": "included",
    r"(?:hangs|hang) on": "depends on",
    r"told": "logged, said",
    r"anew": "again",
    r"alike": "identically",
    r"from the beginning": "from scratch",
    r"such(?! as)": "name the thing",
    r"test part": "test set",
    r"(?:those|that) of": "repeat the noun",
    r"the one \w+ the other": "name both",
}
_PRIVATE = re.compile(rf"\b(?:{'|'.join(PRIVATE)})\b", re.I)
_HEADLESS = re.compile(r"(?:What|Those|That of|The same|Of)\b(?!.*\?$)")
_NOT_PROSE = re.compile(
    r"^---\n.*?^---\n|<!--.*?-->|^(?P<indent> *)(?P<fence>```+|~~~+).*?^(?P=indent)(?P=fence) *$|^ *\|.*?$|^ *!\[.*?$"
    r"|^#+ .*?$|^ *(?:===|!!!|\?\?\?).*?$|<[^>\n]+>|^\[[^\]]+\]: .*?$",
    re.M | re.S,
)
_NUMBER = re.compile(r"(?<![\w.,:-])\d[\d.,]*(?! ?(?:%)? ?(?:CPU|bit))(?![\w-])")


@dataclass(frozen=True)
class Prose:
    """Sentences of a text.

    Attributes:
        sentences: without code, tables, headings and pictures; code in the line is the word `code`.
        wide: lines of code above 80 columns.
    """

    sentences: tuple[str, ...]
    wide: tuple[str, ...] = ()

    @property
    def lengths(self) -> list[int]:
        """Words by sentence."""
        return [len(re.findall(r"[\w'%.,/+-]*\w[\w'%.,/+-]*", sentence)) for sentence in self.sentences]

    @property
    def mean(self) -> float:
        """Words of the mean sentence; 0 without sentences."""
        return sum(self.lengths) / max(len(self.lengths), 1)

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each fault: its kind, and where."""
        for sentence, length in zip(self.sentences, self.lengths, strict=True):
            if length > LONGEST:
                yield "long", f"{length} words: {sentence}"
            for word in _PRIVATE.findall(sentence):
                yield "private", f"{word!r}: {sentence}"
            if _HEADLESS.match(sentence):
                yield "headless", sentence
            if len(_NUMBER.findall(sentence)) > 2:
                yield "numbers", sentence
        for line in self.wide:
            yield "wide", line


def _sentences(text: str) -> tuple[str, ...]:
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"``.*?``|`[^`]*`", "code", text, flags=re.S)
    text = re.sub(r"[*_]{1,2}(\S(?:.*?\S)?)[*_]{1,2}", r"\1", text)
    found = []
    for block in re.split(r"\n\s*\n|^\s*(?:[-*+]|\d+\.)\s+", text, flags=re.M):
        words = " ".join(block.split())
        found += re.split(r"(?<=[.!?:])\s+(?=[A-Z\"'(]|code\b)", words)
    return tuple(sentence for sentence in found if len(sentence.split()) > 2)


def page_prose(text: str) -> Prose:
    """The prose of a page in Markdown."""
    code = re.findall(r"^( *)```(?:python|sh|yaml|text)[^\n]*\n(.*?)^\1```", text, re.M | re.S)
    wide = [line for indent, body in code for line in body.splitlines() if len(line) - len(indent) > 80]
    return Prose(_sentences(_NOT_PROSE.sub("\n\n", text)), tuple(wide))


def notebook_prose(text: str) -> Prose:
    """The prose of a notebook in JSON: its Markdown cells; its code cells are examples."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    texts = [source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells]
    return page_prose("\n\n".join(texts))


def docstring_prose(source: str) -> Prose:
    """The docstrings of a module, without their `Args` names and shapes in code."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    plain = [
        re.sub(r"^ *(?:Args|Returns|Raises|Attributes|Yields|Example):(?: [A-Z]\w.*)?$", "", text, flags=re.M)
        for text in texts
    ]
    plain = [re.sub(r"^ +[\w*]+(?: \([^)]*\))?: ", "\n\n", text, flags=re.M) for text in plain]
    return Prose(tuple(sentence for text in plain for sentence in _sentences(text)))


def rooms() -> dict[str, int]:
    """Faults of the docstrings of each room of the package."""
    found: dict[str, int] = {}
    for path in sorted((ROOT / "tsattn").rglob("*.py")):
        room = path.relative_to(ROOT / "tsattn").parts[0].removesuffix(".py")
        found[room] = found.get(room, 0) + len([*docstring_prose(path.read_text("utf-8")).faults()])
    return found


def main(paths: list[str]) -> int:
    """Print the faults of pages and modules, and the mean length of their sentences."""
    if paths == ["--baseline"]:
        BASELINE.write_text(json.dumps(rooms(), indent=2) + "\n", "utf-8")
        return 0
    count = 0
    for path in map(Path, paths or [str(path) for path in (ROOT / "docs").rglob("*.md")]):
        text = path.read_text("utf-8")
        prose = {".py": docstring_prose, ".ipynb": notebook_prose}.get(path.suffix, page_prose)(text)
        faults = list(prose.faults())
        you = len(re.findall(r"\byour?s?\b", " ".join(prose.sentences), re.I))
        print(f"{path}: {len(prose.sentences)} sentences, mean {prose.mean:.1f} words, you {you}, {len(faults)} faults")
        for kind, where in faults:
            print(f"  {kind:9} {where[:160]}")
        count += len(faults)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
