"""No two modules and no two classes share a name: a name in a message or a trace means one thing."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tsattn"


def modules() -> Iterable[Path]:
    return (path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def repeated(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_modules_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        if path.stem != "base":
            places[path.stem].append(str(path.relative_to(PACKAGE)))
    assert not repeated(places), repeated(places)


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert not repeated(places), repeated(places)
