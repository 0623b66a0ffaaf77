"""Memory that a training keeps from step to step, and gives back at its end."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tsattn
from tests.experiments.golden import NETWORK, described
from tsattn.training import kept_memory
from tsattn.training.kept_memory import memory_kept

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another library of C than glibc")


def page_faults() -> int:
    """Of making and freeing 48 MiB five times, more than glibc keeps by itself: pages that the system hands out."""
    import resource

    for _ in range(15):  # until a place is found that fits each time
        torch.ones(12 * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(12 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@needs_glibc
def test_what_is_freed_is_taken_again_until_the_end() -> None:
    before = page_faults()
    if before < 50:
        pytest.skip("this system keeps freed memory by itself")
    with memory_kept():
        within = page_faults()
    assert within < before / 10


@needs_glibc
@pytest.mark.skipif(platform.system() != "Linux", reason="what is resident is read from Linux")
def test_at_the_end_what_is_free_goes_to_the_system() -> None:
    with memory_kept():
        parts = [torch.ones(2**20) for _ in range(100)]
        del parts
        within = resident()
    assert resident() < within - 300 * 2**20


@needs_glibc
@pytest.mark.parametrize("said", ["MALLOC_TRIM_THRESHOLD_=0", "GLIBC_TUNABLES=glibc.malloc.perturb=1"])
def test_what_the_environment_says_stays(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*said.split("=", 1))
    monkeypatch.setattr(kept_memory, "_glibc", lambda: pytest.fail("looked for"))
    with memory_kept():
        pass


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    monkeypatch.setattr("ctypes.CDLL", lambda name: Other())
    with memory_kept():
        pass


def test_a_training_on_a_cpu_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        steps.append("kept")
        yield
        steps.append("given back")

    monkeypatch.setattr(importlib.import_module("tsattn.training.train"), "memory_kept", noted)
    tsattn.run(described(tmp_path, NETWORK, trainer={"max_steps": 1, "val_check_interval": 1}), test=False)
    assert steps == ["kept", "given back"]
