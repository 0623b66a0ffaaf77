"""Change one expression at a time in code that decides numbers, and see whether the tests of its room notice.

`python .ci/mutation.py` writes .ci/mutants.csv; with `--compare` it runs the table's caught mutants, and fails if one
escapes now. Both take parts of file names, such as `evaluation/`: rows of other files stay as they are. A mutant is
found again by its function and text, in whichever file of TARGETS.
"""

from __future__ import annotations

import ast
import csv
import importlib
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TABLE, EACH = ROOT / ".ci" / "mutants.csv", 25  # mutants of a file
LOOPS = ["tests/ops/test_against_loops.py", "-k", "reference"]
BY_PAIR = ["tests/attention/test_meaning.py", LOOPS[0], "-k", "multilevel or windowed or explicit or reference"]
SCORES = [f"tests/evaluation/test_{name}.py" for name in ("measure", "window_errors", "reductions")]
SCALES = [f"tests/{name}.py" for name in ("test_target_transform", "data/test_scaling")]
GOES_ON = ["tests/training/test_lightning.py", "tests/experiments/test_golden.py", "-k", "parts or middle or resumed"]
TARGETS: list[tuple[str, str, list[str]]] = [  # file, words in names of functions (none: all), tests
    ("tsattn/ops/full.py", "reference", LOOPS),
    (
        "tsattn/attention/patterns/unscored_patterns.py",
        "__call__ forward _mean_over _mixed",
        ["tests/attention/test_meaning.py", "-k", "weights or table or direct or equal"],
    ),
    ("tsattn/ops/masks.py", "", BY_PAIR),
    ("tsattn/ops/softmax.py", "softmax_attention expand_heads finite_as wide", BY_PAIR),
    ("tsattn/ops/multilevel_plain.py", "reference count_blocks _spread _add_global", LOOPS),
    ("tsattn/data/splits.py", "", ["tests/data/test_splits.py"]),
    ("tsattn/scaler.py", "", SCALES),
    ("tsattn/data/scaling.py", "", SCALES),
    ("tsattn/evaluation/reductions.py", "", SCORES),
    ("tsattn/evaluation/measure.py", "", SCORES),
    ("tsattn/training/callbacks.py", "ExactResume", GOES_ON),
    ("tsattn/training/execution.py", "own_random_state", ["tests/forecaster/test_threads.py"]),
]
PAIRS = ["Lt LtE", "Gt GtE", "Eq NotEq", "Is IsNot", "In NotIn", "And Or", "Add Sub", "Div Mult", "BitAnd BitOr"]
SWAPS = {getattr(ast, one): getattr(ast, other) for pair in PAIRS for one, other in (pair.split(), pair.split()[::-1])}
SWAPS[ast.FloorDiv] = ast.Mult
Mutant = tuple[str, int, str, str, str]  # file, line, function, mutation, source


def changed(node: ast.AST) -> str | None:
    """Source of what is put in the place of a node."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return f"({ast.unparse(ast.Compare(node.left, [SWAPS[type(op)]()], node.comparators))})"
        case ast.BinOp(op=op) if type(op) in SWAPS:
            return f"({ast.unparse(ast.BinOp(node.left, SWAPS[type(op)](), node.right))})"
        case ast.BoolOp(op, values):
            return f"({ast.unparse(ast.BoolOp(SWAPS[type(op)](), values))})"
        case ast.IfExp():
            return f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
        case ast.UnaryOp():
            return f"({ast.unparse(node.operand)})"
        case ast.Constant(int() | float() as value):
            return str(not value) if isinstance(value, bool) else repr(value + 1)
        case ast.Expr(ast.Call(ast.Attribute(ast.Call(ast.Name("super"))))):  # which its code could not do without
            return None
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Assign([ast.Subscript() | ast.Attribute()]):
            return "pass"
    return None


def mutants(file: str, words: str) -> Iterator[Mutant]:
    """All mutants of the functions of a file."""
    source = (ROOT / file).read_bytes()
    starts = [0, *(place + 1 for place, byte in enumerate(source) if byte == 10)]
    seen: Counter[tuple[str, str]] = Counter()

    def within(node: ast.AST, function: str, is_function: bool = False) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr):  # a message
            return
        text = changed(node) if any(word in function for word in words.split() or [function]) else None
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            is_function = isinstance(node, ast.FunctionDef)
        elif is_function and text:
            start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            mutation = f"{ast.unparse(node)} -> {text}"
            seen[function, mutation] += 1
            mutation += f" #{seen[function, mutation]}" * (seen[function, mutation] > 1)
            mutated = source[:start] + text.encode() + source[end:]
            yield file, node.lineno, function, mutation, mutated.decode()
        for name, field in ast.iter_fields(node):
            for child in field if isinstance(field, list) else [field]:
                if isinstance(child, ast.AST) and name not in ("annotation", "returns", "decorator_list"):
                    yield from within(child, function, is_function)

    yield from within(ast.parse(source), "")


def _function(space: Any, path: str) -> Any:
    for name in path.split("."):
        space = vars(space)[name] if isinstance(space, type | ModuleType) else space
    for wrapped in ("fget", "__func__", "__wrapped__", "__wrapped__"):  # as it was written, within its decorators
        space = getattr(space, wrapped, space)
    return space


def _imported(file: str) -> ModuleType:
    return importlib.import_module(file.removesuffix(".py").replace("/", "."))


def put(mutant: Mutant) -> None:
    """Give the imported function the code of the mutant."""
    module = _imported(mutant[0])
    mutated = ModuleType(module.__name__)
    exec(compile(mutant[4], str(ROOT / mutant[0]), "exec"), vars(mutated))
    now, then = _function(module, mutant[2]), _function(mutated, mutant[2])
    for part in ("__code__", "__defaults__", "__kwdefaults__"):
        setattr(now, part, getattr(then, part))


def fails(tests: list[str], mutant: Mutant | None = None) -> bool:
    """Whether tests fail, or take more than two minutes, with a mutant: in a fork, where everything is imported."""
    if not (child := os.fork()):
        code = 0
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            if mutant:
                put(mutant)
            code = pytest.main(["-xq", "--timeout=120", "-pno:cacheprovider", "-pno:xdist", *tests])
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] != 0


def write(rows: list[dict[str, str]]) -> None:
    """Write the table, in the order of files and lines."""
    with TABLE.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, ["file", "line", "function", "mutation", "caught"], lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(rows, key=lambda row: (row["file"], int(row["line"]), row["function"], row["mutation"])))


def main(compare: bool, parts: list[str]) -> int:
    """Write the table, or compare with it, for files whose names have one of the parts; for all without parts."""
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    targets = [one for one in TARGETS if any(part in one[0] for part in parts or [""])]
    for path in ("tests/conftest.py", *(one for *_, tests in targets for one in tests if one.endswith(".py"))):
        _imported(path)
    rows = list(csv.DictReader(TABLE.open(encoding="utf-8"))) if compare or parts else []
    caught = {(row["function"], row["mutation"]) for row in rows if row["caught"] == "yes"}
    found: dict[Mutant, bool] = {}
    for file, words, tests in targets:
        every = list(mutants(file, words))
        sample = random.Random(file + words).sample(every, min(EACH, len(every)))
        assert not fails(tests), f"the tests of {file} fail without a mutation: {tests}"
        for mutant in [one for one in every if one[2:4] in caught] if compare else sorted(sample):
            found[mutant] = fails(tests, mutant)
            print(*mutant[:4], "yes" if found[mutant] else "no", sep="  ", flush=True)
        if not compare:  # after each file, so that a run that is ended loses one file at most
            functions = {one[2] for one in every}
            rows = [row for row in rows if row["file"] != file or row["function"] not in functions]
            for one in sorted(sample):
                values = (one[0], str(one[1]), one[2], one[3], "yes" if found[one] else "no")
                rows.append(dict(zip(("file", "line", "function", "mutation", "caught"), values, strict=True)))
            write(rows)
    escaped = len(found) - sum(found.values())
    gone = 0 if parts else len(caught - {one[2:4] for one in found})
    print(f"{len(found)} mutants, {escaped} escaped, {gone} of the table are no longer in the code")
    return int(compare and escaped > 0)


if __name__ == "__main__":
    if "--help" in sys.argv[1:]:
        print(__doc__)
        sys.exit()
    sys.exit(main("--compare" in sys.argv[1:], [word for word in sys.argv[1:] if not word.startswith("--")]))
