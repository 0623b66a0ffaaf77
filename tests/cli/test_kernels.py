"""`kernels` as a person types it."""

from pathlib import Path

import pytest

from tests.cli.toy_run import refusal
from tests.ops.native.conftest import empty_cache, found, nothing_said, without_compiler
from tsattn.cli import main
from tsattn.ops.native import library
from tsattn.ops.native.kernel_compiler import sets_of_this_cpu
from tsattn.ops.native.library import KernelLibrary

__all__ = ["found", "nothing_said"]  # fixtures

HERE = ", ".join(one.name for one in sets_of_this_cpu())


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    assert main(["kernels", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return {line[:20].strip(): line[20:] for line in captured.out.splitlines()}


def test_it_tells_what_is_in_use_and_from_where(found: KernelLibrary, capsys: pytest.CaptureFixture[str]) -> None:
    facts = said(capsys)
    assert facts["instruction sets"] == HERE
    assert facts["in use"] == f"{found.instruction_set.name}, {found.library.tsattn_lanes()} numbers at once"
    assert facts["from"].endswith(f": {found.path}")
    assert ("compiler" in facts) == (found.compiler is not None)


def test_it_tells_why_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TSATTN_KERNELS", "off")
    assert said(capsys) == {"instruction sets": HERE, "in use": "none: TSATTN_KERNELS=off"}
    monkeypatch.delenv("TSATTN_KERNELS")
    monkeypatch.setattr(library, "COMPILED", tmp_path)
    without_compiler(tmp_path, monkeypatch)
    empty_cache(tmp_path, monkeypatch)
    reason = "there is no C++ compiler, and this tsattn came without compiled kernels for this CPU"
    assert said(capsys)["in use"] == f"none: {reason}"


def test_mistakes_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_compiler(tmp_path, monkeypatch)
    empty_cache(tmp_path, monkeypatch)
    assert "the kernels cannot be built: there is no C++ compiler" in refusal(["kernels", "--build"], capsys)
    monkeypatch.setenv("TSATTN_KERNELS", "on")
    assert "TSATTN_KERNELS must be one of auto, off, avx512_bf16" in refusal(["kernels"], capsys)
