"""Keeps torchmetrics, which Lightning imports, from opening transformers where that is installed.

One module of torchmetrics imports two classes of transformers for its doctests alone. That takes more than a second of
every start, opens huggingface_hub, and in a notebook prints what tqdm says of missing widgets. While that one module is
read, names stand in for the two classes; what computes its metric imports transformers itself, when it is called.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from typing_extensions import override

__all__ = ["keep_lean"]

_MODULE = "torchmetrics.functional.text.bert"
_HEAVY = "transformers"
_NAMES = ("AutoModel", "AutoTokenizer")


def keep_lean() -> None:
    """See the module; nothing is done where torchmetrics was imported before."""
    if _MODULE not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the one module, as everything else would, once."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithoutTransformers(spec.loader)
        return spec


class _WithoutTransformers(Loader):
    """Loads a module while names stand in for classes of transformers, unless that is there already."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    @override
    def exec_module(self, module: ModuleType) -> None:
        if _HEAVY in sys.modules:
            self._loader.exec_module(module)
            return
        stand_in = ModuleType(_HEAVY)
        for name in _NAMES:
            setattr(stand_in, name, None)
        sys.modules[_HEAVY] = stand_in
        try:
            self._loader.exec_module(module)
        finally:
            del sys.modules[_HEAVY]
