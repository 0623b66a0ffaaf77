"""Reference of Python: a page for each room of the package, with every name that it exports."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache
from typing import Any

import tsattn
from docs.site.markdown_parts import prose, table
from tsattn.attention import KINDS
from tsattn.backbones import BACKBONES
from tsattn.predictors import PREDICTORS

__all__ = ["name_pages", "names_by_room"]

_MODULES = {
    "tsattn.attention.caches": ["Cache", "NewTokens", "TokenRows"],
    "tsattn.attention.cost": ["attention_cost", "closed_form", "measured", "measured_key_bytes"],
    "tsattn.attention.maps": ["attention_levels", "attention_map", "attention_zones"],
    "tsattn.attention.projections": [
        *("BTTProjection", "BilinearMLRProjection", "LowRankProjection", "MLBTCProjection", "NoProjection"),
        *("LevelNorm", "Projection", "ProjectionCost", "RotaryEmbedding", "key_heads"),
    ],
    "tsattn.batch": ["Batch"],
    "tsattn.data.matching": ["appended", "with_future"],
    "tsattn.errors": ["UserError"],
    "tsattn.leaderboard.analysis": ["Analysis", "Answer", "Pair"],
    "tsattn.leaderboard.compare": ["Comparison", "compare"],
    "tsattn.leaderboard.figure": ["Mark", "forest"],
    "tsattn.leaderboard.records": ["Records"],
    "tsattn.leaderboard.statistics": [
        *("Claim", "Difference", "Estimate", "ModelErrors", "SeedVariance"),
        *("difference", "holm", "over_data_sets", "seed_variance"),
    ],
    "tsattn.leaderboard.suite": ["Question", "Suite", "read_suite"],
    "tsattn.pretrained.guesses": ["GUESSES", "Guesses", "guess"],
    "tsattn.pretrained.tiny": ["TinyOptions", "load_tiny", "save_tiny"],
    "tsattn.scaler": ["Scaler"],
    "tsattn.task": ["Output", "Task"],
    "tsattn.training.losses": ["masked_loss"],
    "tsattn.layers.optim": ["MupModule", "adamw", "mup_groups", "mup_init_"],
}
"""Modules that people import from, beside the packages that export names, and those names."""

_TABLES = {"tsattn.attention": KINDS, "tsattn.backbones": BACKBONES, "tsattn.predictors": PREDICTORS}
"""Kinds whose classes are names of a room, too."""

_INTERNALS = re.compile(
    r"tsattn\.(cli|layers|ops|optim|structured|attention\.(caches|patterns|projections)"
    r"|leaderboard\.(?!compare).*|pretrained\.guesses|training\.losses)\b"
)
"""Modules that only those who extend tsattn import from."""

_METHODS = ("fit", "predict", "plot", "evaluate", "cross_validate", "fine_tune", "sample", "save", "export")
"""Methods of a Forecaster that are listed first."""

_TOP = {
    "Forecast frames": ("Forecaster", "load", "diagnose", "UserError"),
    "Run configurations": ("run", "compare", "resume", "Experiment", "Result"),
    "Read data": (*("FrameDataModule", "CSVDataModule", "CO2DataModule"), *("PublicDataModule", "ForecastDataModule")),
    "Build models": ("build_predictor", "build_backbone", "build_attention"),
}
"""Names of the top level by what they are for; the rest is for models of your own."""

_INDEX = """# tsattn

Import these names from `tsattn`. Each is loaded when you first use it, so that `import tsattn` takes no time.

```python
from tsattn import CO2DataModule, Forecaster

frame = CO2DataModule().load_frame()
forecaster = Forecaster("tiny", prediction_length=52)
print(forecaster.predict(frame).head())
```

[Forecaster](tsattn.forecaster.md) is the class that most programs need.

{names}
## Modules

{rooms}
"""


@cache
def names_by_room() -> dict[str, dict[str, str]]:
    """The paths of what each package exports, and of the modules beside these that people import from; each once."""
    found: dict[str, dict[str, str]] = {}
    seen: set[object] = set()
    packages = [info.name for info in pkgutil.walk_packages(tsattn.__path__, "tsattn.") if info.ispkg]
    for path in sorted([*packages, *_MODULES], key=lambda path: (path.count("."), path)):
        module = importlib.import_module(path)
        exported = _MODULES.get(path) or [*getattr(module, "__all__", [])]
        paths = {name: f"{path}.{name}" for name in exported}
        paths |= {kind.rpartition(".")[2]: kind for kind in _TABLES.get(path, {}).values()}
        own = {name: where for name, where in paths.items() if _key(module, name) not in seen}
        seen |= {_key(module, name) for name in own}
        if own:
            found[path] = dict(sorted(own.items(), key=lambda pair: pair[0].lower()))
    return found


def _key(module: Any, name: str) -> object:
    """The same for the same class or function, wherever it is a name; constants are what they are where they are."""
    one = getattr(module, name)
    return one if inspect.isclass(one) or inspect.isroutine(one) else (module.__name__, name)


def name_pages() -> dict[str, str]:
    """The pages of rooms by path, and the first one, which lists the names of the top level in groups."""
    rooms = names_by_room()
    modules = {room: importlib.import_module(room) for room in rooms}
    homes = {_key(modules[room], name): path for room, names in rooms.items() for name, path in names.items()}
    rest = [name for name in tsattn.__all__ if not any(name in names for names in _TOP.values())]
    parts = []
    for title, names in {**_TOP, "Write your own": rest}.items():
        top = [(f"[`{name}`][{homes[_key(tsattn, name)]}]", _first(getattr(tsattn, name))) for name in names]
        parts.append(f"## {title}\n\n{table(('name', 'what it is'), top)}")
    listed = [(f"[{room}]({room}.md)", _first(modules[room])) for room in sorted(rooms) if not _INTERNALS.match(room)]
    index = _INDEX.format(names="\n".join(parts), rooms=table(("module", "what is in it"), listed))
    folders = {room: "internals" if _INTERNALS.match(room) else "python" for room in sorted(rooms)}
    return {"python/tsattn": index, **{f"{folders[room]}/{room}": _room(room, rooms[room]) for room in folders}}


def _room(path: str, names: dict[str, str]) -> str:
    module = importlib.import_module(path)
    parts = [f"# {'Forecaster' if path == 'tsattn.forecaster' else path}\n", _text(module), ""]
    rows = [(f"[`{name}`][{where}]", _first(getattr(module, name))) for name, where in names.items()]
    if len(names) > 4:
        parts += [table(("name", "what it is"), rows)]
    return "\n".join([*parts, *(_directive(getattr(module, name), where) for name, where in names.items())])


def _directive(one: Any, path: str) -> str:
    """What mkdocstrings makes the entry of, with what a class has of bases that have no entry of their own."""
    inherited = _inherited(one) if inspect.isclass(one) else []
    options = f"    options:\n      inherited_members: [{', '.join(inherited)}]\n" if inherited else ""
    if one is tsattn.Forecaster:
        names = [name for name in dir(one) if not name.startswith("_") and name not in _METHODS]
        options += f"      group_by_category: false\n      members: [{', '.join([*_METHODS, *names])}]\n"
    return f"::: {path}\n{options}"


def _inherited(cls: type[Any]) -> list[str]:
    listed = {_key(importlib.import_module(room), name) for room, names in names_by_room().items() for name in names}
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("tsattn.") and base not in listed]
    found = {name: one for base in bases for name, one in vars(base).items() if name not in vars(cls)}
    methods = {name for name, one in found.items() if inspect.isroutine(one) or isinstance(one, property | classmethod)}
    return sorted(name for name in methods if not name.startswith("_") and found[name].__doc__)


def _text(module: Any) -> str:
    """The docstring of a module, without what it says of its own files."""
    return inspect.cleandoc(module.__doc__ or "").replace("``", "`")


def _first(one: Any) -> str:
    """The first sentence of a docstring; nothing for what is no class, function or module."""
    if not (inspect.isclass(one) or inspect.isroutine(one) or inspect.ismodule(one)):
        return ""
    return prose((inspect.getdoc(one) or "").partition("\n\n")[0])
