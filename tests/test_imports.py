"""The way of data runs one way: lower packages never import higher ones."""

import ast
import re
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


def test_a_module_of_the_adapter_imports_only_those_before_it() -> None:
    modules = re.findall(r"`(\w+)`", (PACKAGE / "chronos" / "__init__.py").read_text().split('"""')[1])
    modules.remove("chronos")  # the extra
    assert {path.stem for path in (PACKAGE / "chronos").glob("*.py")} == {"__init__", *modules}
    for place, name in enumerate(modules):
        for node in ast.walk(ast.parse((PACKAGE / "chronos" / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tsattn.chronos."):
                other = str(node.module).split(".")[2]
                assert other in modules[:place], f"{name} imports {other}"


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
