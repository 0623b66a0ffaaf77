"""The way of data runs one way: lower packages never import higher ones."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "tsattn"

# neutral ground: records and helpers that everything may use and that use nothing of the package but each other
GROUND = {"errors", "batch", "task", "scaler", "descriptions", "saved_folders"}
LAYERS = [
    *("structured", "ops", "attention", "layers", "backbones", "diagnosis", "evaluation", "ridge", "training"),
    *("predictors", "chronos", "pretrained", "peers", "figures", "experiments", "forecaster", "tuning"),
    *("leaderboard", "cli"),
]
# what each may import beside the ground and the layers below it
BESIDE: dict[str, set[str]] = {"data": set(), **{part: {"data"} for part in LAYERS[LAYERS.index("diagnosis") :]}}


# the rooms of the adapter, in their order; "" is the files beside them
ROOMS_OF_CHRONOS = ["bolt", ""]


def imports() -> dict[str, set[str]]:
    """For each top-level part of the package, the parts that it imports."""
    graph: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if part in ("__init__", "__main__"):
            continue
        targets = graph.setdefault(part, set())
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: relative import"
                names = [f"tsattn.{alias.name}" for alias in node.names] if node.module == "tsattn" else []
                modules = [str(node.module), *names]
            else:
                continue
            targets |= {module.split(".")[1] for module in modules if module.startswith("tsattn.")}
    return graph


def test_no_arrow_goes_back() -> None:
    graph = imports()
    assert set(graph) == GROUND | set(LAYERS) | set(BESIDE), "a new part needs its place here"
    for part, targets in graph.items():
        below = set(LAYERS[: LAYERS.index(part)]) if part in LAYERS else set()
        allowed = GROUND | below | BESIDE.get(part, set()) | {part}
        assert targets <= allowed, f"tsattn.{part} must not import {sorted(targets - allowed)}"


def test_a_room_of_the_adapter_uses_only_those_before_it() -> None:
    home = PACKAGE / "chronos"
    for path in home.rglob("*.py"):
        room = path.parent.name if path.parent != home else ""
        for node in ast.walk(ast.parse(path.read_text())):
            if path == home / "__init__.py" or not isinstance(node, ast.ImportFrom):
                continue
            target = str(node.module).split(".")
            if target[:2] == ["tsattn", "chronos"]:
                other = target[2] if len(target) == 4 else ""
                assert ROOMS_OF_CHRONOS.index(other) <= ROOMS_OF_CHRONOS.index(room), f"{path} imports {node.module}"


def test_backbones_know_nothing_of_lightning_or_data() -> None:
    for part in ("structured", "ops", "attention", "layers", "backbones"):
        for path in (PACKAGE / part).glob("*.py"):
            assert "lightning" not in path.read_text().lower(), path


def test_importing_the_package_costs_nothing() -> None:
    code = "import tsattn, sys; assert 'torch' not in sys.modules; tsattn.Attention; assert 'torch' in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_public_names_exist() -> None:
    import tsattn

    for name in tsattn.__all__:
        assert getattr(tsattn, name).__name__ == name
    assert dir(tsattn) == tsattn.__all__
