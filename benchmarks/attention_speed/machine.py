"""The machine that measures: what its results are filed under, and what a reader of them must know."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from tsattn.ops.native.library import VARIABLE, find_library

__all__ = ["describe", "has_bfloat16", "slug_of", "this_command"]

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")


def cpu() -> dict[str, Any]:
    """Its name, its family and model where the name leaves them open, and the instructions that matter here."""
    file = Path("/proc/cpuinfo")
    said: dict[str, str] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        name, _, value = line.partition(":")
        said.setdefault(name.strip(), value.strip())
    about: dict[str, Any] = {"cpu": said.get("model name") or platform.processor() or platform.machine()}
    if not re.search(r"\d", short_name(about["cpu"])) and "cpu family" in said:
        about |= {"cpu_family": int(said["cpu family"]), "cpu_model": int(said["model"])}
    listed = (said.get("flags") or said.get("Features") or "").split()
    return {**about, "flags": [flag for flag in FLAGS if flag in listed]}


def short_name(name: str) -> str:
    """A name without trademarks and clock rates."""
    return re.sub(r"\((R|TM)\)|\bCPU\b|@.*", " ", name)


def describe(device: str, dtype: torch.dtype) -> dict[str, Any]:
    """What a reader must know of the machine and the programs on it."""
    found = find_library(os.environ.get(VARIABLE, ""))
    return {
        **({"gpu": torch.cuda.get_device_name()} if device == "cuda" and torch.cuda.is_available() else {}),
        **cpu(),
        "cores": os.cpu_count(),
        "kernels": None if found.instruction_set is None else found.instruction_set.name,
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": str(dtype).removeprefix("torch."),
    }


def this_command() -> str:
    """The benchmark that runs, with the names of files and folders alone: where they lay is of no use to a reader."""
    script, *words = sys.argv
    given = [Path(word).name if "/" in word else word for word in words]
    return shlex.join(["python", f"benchmarks/{Path(script).name}", *given])


def has_bfloat16(about: dict[str, Any]) -> bool:
    """Whether the CPU multiplies in bfloat16."""
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(about["flags"]))


def slug_of(about: dict[str, Any]) -> str:
    """The name of a machine's files: of its GPU and numbers, else of its CPU."""
    if "gpu" in about:
        words = [about["gpu"], about["dtype"]]
    else:
        words = [short_name(about["cpu"])]
        if "cpu_family" in about:
            words.append(f"family {about['cpu_family']} model {about['cpu_model']}")
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")
