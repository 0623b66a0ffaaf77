"""`cost` and `kernels` as a person types them."""

from pathlib import Path

import pytest

from tests.cli.toy_run import refusal
from tests.ops.native.conftest import empty_cache, found, nothing_said, without_compiler
from tests.ops.native.kernels_there import needs_kernels
from tsattn.cli import main
from tsattn.ops.native import library
from tsattn.ops.native.kernel_compiler import sets_of_this_cpu
from tsattn.ops.native.library import KernelLibrary, set_in_use

SIZES = ["--d_model", "512", "--num_heads", "8", "--tokens", "1024"]


def table(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, list[int]]:
    """The rows that are printed, name -> closed form and, where there is one, what was measured."""
    assert main(["cost", *words]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    head, *lines = captured.out.partition("\n\n")[0].splitlines()
    assert head.split("  ")[-1].strip() == "measured"
    assert max(len(line) for line in (head, *lines)) == len(head)  # aligned
    return {line[:36].strip(): [int(number.replace(",", "")) for number in line[36:].split()] for line in lines}


@needs_kernels
def test_the_kernel_executes_the_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks of 256 tokens are whole tiles of every width but that of six keys by sixteen queries."""
    words = ["--attention=swa", "--attention.window_size=4", "--attention=mlr", "--attention.ranks=[32, 16, 16]"]
    (executed,) = table([*words, *SIZES], capsys)["flops executed on a CPU, with values"]
    exact = 8 * 2 * 1024**2 * (64 + 44)
    if set_in_use() == "avx2":
        assert exact < executed < 1.01 * exact
    else:
        assert executed == exact


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSATTN_KERNELS", "off")
    rows = table(["--attention", "mlr", "--attention.ranks", "[32, 16, 16]", *SIZES], capsys)
    (executed,) = rows.pop("flops executed on a CPU, with values")
    assert 8 * 2 * 1024**2 * (64 + 44) < executed < 8 * 2 * 1024**2 * (64 + 96)
    assert rows == {
        "score parameters, a head": [2 * 512 * 64],
        "score parameters, all heads": [2 * 512 * 512] * 2,
        "flops to make queries and keys": [2 * 1024 * 2 * 512 * 512] * 2,
        "flops to form scores, a head": [2 * 1024**2 * (32 + 8 + 4), 2 * 1024**2 * 64],
        "flops to form scores, all heads": [8 * 2 * 1024**2 * (32 + 8 + 4), 8 * 2 * 1024**2 * 64],
        "cached key numbers, a key head": [1024 * (32 + 8 + 4)],
        "cached key numbers, all key heads": [8 * 1024 * (32 + 8 + 4)],
        "cached key bytes, float32": [4 * 8 * 1024 * (32 + 8 + 4)],
    }


def test_the_cache_is_measured_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--attention", "{kind: mlr, ranks: [32, 16, 16], align: start}", *SIZES]
    assert table([*words, "--causal"], capsys)["cached key bytes, float32"] == [4 * 8 * 1024 * (32 + 8 + 4)] * 2
    words[0] = "--model.backbone.attention"  # as `fit` has it
    assert table([*words, "--causal"], capsys)["cached key bytes, float32"] == [4 * 8 * 1024 * (32 + 8 + 4)] * 2
    for more, reason in (([], "it needs causal=True."), (["--causal", "--attention.align=end"], "give align=start.")):
        assert main(["cost", *words, *more]) == 0
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith("The cache is not measured: MLRAttention cannot decode step by step")
        assert said.endswith(reason)


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
