"""`cost` as a person types it."""

import pytest

from tests.ops.native.kernels_there import needs_kernels
from tsattn.cli import main
from tsattn.ops.native.library import set_in_use

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
    for more, reason in (
        ([], "it needs causal=True."),
        (["--causal", "--attention.align=end"], "it needs align=start."),
    ):
        assert main(["cost", *words, *more]) == 0
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith("The cache is not measured: MLRAttention cannot decode step by step")
        assert said.endswith(reason)
