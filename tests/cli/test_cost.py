"""`cost` as a person types it."""

from __future__ import annotations

import pytest

from tests.cli.test_bad_input import refusal
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
    rows = table(["--attention", "mlr", "--attention.ranks", "[32, 16, 16]", *SIZES], capsys)
    (executed,) = rows["flops executed on a CPU, with values"]
    exact = 8 * 2 * 1024**2 * (64 + 44)
    if set_in_use() == "avx2":
        assert exact < executed < 1.01 * exact
    else:
        assert executed == exact


def test_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSATTN_KERNELS", "off")
    rows = table(["--attention", "mlr", "--attention.ranks", "[32, 16, 16]", *SIZES], capsys)
    assert rows["score parameters, a head"] == [2 * 512 * 64]
    assert rows["score parameters, all heads"] == [2 * 512 * 512] * 2
    assert rows["flops to make queries and keys"] == [2 * 1024 * 2 * 512 * 512] * 2
    assert rows["flops to form scores, a head"] == [2 * 1024**2 * (32 + 8 + 4), 2 * 1024**2 * 64]
    assert rows["flops to form scores, all heads"] == [8 * 2 * 1024**2 * (32 + 8 + 4), 8 * 2 * 1024**2 * 64]
    (executed,) = rows["flops executed on a CPU, with values"]
    assert 8 * 2 * 1024**2 * (64 + 44) < executed < 8 * 2 * 1024**2 * (64 + 96)
    assert rows["cached key numbers, a key head"][0] == 1024 * (32 + 8 + 4)
    assert rows["cached key numbers, all key heads"][0] == 8 * 1024 * (32 + 8 + 4)
    assert rows["cached key bytes, float32"] == [4 * 8 * 1024 * (32 + 8 + 4)]


def test_the_cache_is_measured_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--attention", "{kind: mlr, ranks: [32, 16, 16], align: start}", *SIZES]
    assert table([*words, "--causal"], capsys)["cached key bytes, float32"] == [4 * 8 * 1024 * (32 + 8 + 4)] * 2
    for more, reason in (
        ([], "it needs causal=True."),
        (["--causal", "--attention.align=end"], "it needs align=start."),
    ):
        assert main(["cost", *words, *more]) == 0
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith("The cache is not measured: MLRAttention cannot decode step by step")
        assert said.endswith(reason)


@pytest.mark.parametrize(
    "words",
    [
        ["--attention", "{kind: mlr, ranks: [32, 16, 16]}"],
        ["--attention", "swa", "--attention.window_size", "4", "--attention", "mlr", "--attention.ranks=[32, 16, 16]"],
    ],
)
def test_a_description_is_written_as_for_fit(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = table([*words, *SIZES], capsys)
    assert rows["flops to form scores, a head"][0] == 2 * 1024**2 * (32 + 8 + 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "cost needs --attention and --d_model and --num_heads and --tokens"),
        ([*SIZES, "--attention"], "--attention needs a value"),
        ([*SIZES, "--attention", "mlr", "--attention.ranks", "[4, 1]"], "ranks [4, 1] sum to 5, but must sum to the"),
        ([*SIZES, "--attention", "[swa, mlr]"], "attention must be one of standard, swa"),
        ([*SIZES, "--attention", "[swa]", "--attention.kind", "mlr", "--attention.a.b", "1"], "--attention.a.b"),
        ([*SIZES, "--attention", "[swa]", "--attention.ranks", "1"], "attention is a list of 1, so there is no"),
        (["--attention", "mlr", "--tokens", "many"], "--tokens must be a whole number of at least 1, not many"),
        (["--attention", "mlr", "--tokens", "0"], "--tokens must be a whole number of at least 1, not 0"),
        (["--dtype", "int8"], "--dtype must be one of float64, float32, bfloat16, float16, not int8"),
        (["--token", "9"], "unknown argument --token (did you mean --tokens?); valid: --attention, --d_model"),
        (["--causal", "9"], "unknown argument 9; valid: --attention"),
        (["--attention", "mlr", *SIZES, "--max_length", "9"], "1024 tokens are more than max_length 9"),
        (["--attention", "mlr", *SIZES, "--num_heads", "7"], "num_heads 7 must divide d_model 512"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refusal(["cost", *words], capsys)
