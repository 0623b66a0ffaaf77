"""Compiles the native kernels into a wheel, which then is one for this platform; without a compiler it is for any.

An editable install gets none: its sources change, so kernels are compiled when they are first used.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path(__file__).parents[1] / "tsattn" / "ops" / "native"


class KernelBuildHook(BuildHookInterface):
    """A library for each instruction set of this machine's architecture, beside the sources, which are always there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what the wheel is for."""
        if self.target_name != "wheel" or version == "editable":
            return
        self.folder = tempfile.mkdtemp(prefix="tsattn-build-")
        made = self._compiled(Path(self.folder))
        for path in made:
            build_data["force_include"][str(path)] = f"tsattn/ops/native/compiled/{path.name}"
        if made:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away what was compiled."""
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def _compiled(self, folder: Path) -> list[Path]:
        # read as a file: importing the package would need torch
        compilation = runpy.run_path(str(NATIVE / "kernel_compiler.py"))
        sets = compilation["sets_of_machine"]()
        if os.environ.get("TSATTN_KERNELS") == "off":
            return self._none("TSATTN_KERNELS=off")
        if os.name != "posix" or not sets:
            return self._none(f"there are none for {platform.system()} on {platform.machine()}")
        try:
            compilers = compilation["compilers"]()
        except compilation["CompileError"] as error:
            return self._none(str(error))
        if not compilers:
            return self._none("there is no C++ compiler")
        made = []
        for one in sets:
            for compiler in compilers:
                path = folder / f"{one.name}.so"
                try:
                    compilation["compile_library"](compiler, one.flags, path)
                except compilation["CompileError"] as error:
                    self.app.display_warning(f"tsattn: no kernels for {one.name}: {error}")
                    continue
                self.app.display_info(f"tsattn: kernels for {one.name}, by {compiler.version}")
                made.append(path)
                break
        return made or self._none("none could be compiled")

    def _none(self, reason: str) -> list[Path]:
        self.app.display_warning(f"tsattn: a wheel without compiled kernels, as {reason}; they compile when first used")
        return []


def platform_tag() -> str:
    """What wheels call this platform; of a Python for several architectures, the one that is compiled for."""
    name = sysconfig.get_platform()
    if name.startswith("macosx") and name.endswith("universal2"):
        name = name.removesuffix("universal2") + platform.machine()
    return name.replace("-", "_").replace(".", "_")
