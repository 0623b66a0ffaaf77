"""`cost` as a person types it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.test_bad_input import refusal
from tests.docs.blocks import ROOT
from tests.ops.native.kernels_there import needs_kernels
from tsattn.attention import KINDS
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


def test_the_page_shows_the_table_as_it_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--attention", "mlr", *SIZES]) == 0
    assert capsys.readouterr().out.splitlines()[0] in (ROOT / "docs/concepts/cost.md").read_text("utf-8").splitlines()


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


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_cost(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(["--attention", kind, "--d_model", "16", "--num_heads", "2", "--tokens", "32", "--causal"], capsys)
    assert len(rows) == 9
    assert len(set(rows["score parameters, all heads"])) == 1


def test_the_note_says_what_the_reference_does_where_it_does_more(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, said in {"swa": True, "mlr": True, "standard": False, "btt": False}.items():
        assert main(["cost", "--attention", kind, *SIZES]) == 0
        assert ("are measured on the plain reference" in capsys.readouterr().out) is said


@pytest.mark.parametrize(
    "words",
    [
        ["--attention", "{kind: mlr, ranks: [32, 16, 16]}"],
        ["--attention={kind: mlr, ranks: [32, 16, 16]}"],
        ["--attention.kind", "mlr", "--attention.ranks=[32, 16, 16]"],
        ["--attention", "{kind: mlr, ranks: [60, 4]}", "--attention.ranks", "[32, 16, 16]"],
        ["--attention", "swa", "--attention.window_size", "4", "--attention", "mlr", "--attention.ranks=[32, 16, 16]"],
    ],
)
def test_a_description_is_written_as_for_fit(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    rows = table([*words, *SIZES], capsys)
    assert rows["flops to form scores, a head"][0] == 2 * 1024**2 * (32 + 8 + 4)


def test_causal_dtype_and_max_length(capsys: pytest.CaptureFixture[str]) -> None:
    window = ["--attention", "{kind: swa, window_size: 32}", *SIZES]
    assert table(window, capsys)["flops to form scores, a head"][0] == 2 * 1024 * 63 * 64
    assert table([*window, "--causal"], capsys)["flops to form scores, a head"][0] == 2 * 1024 * 32 * 64
    assert table([*window, "--dtype", "bfloat16"], capsys)["cached key bytes, bfloat16"][0] == 2 * 8 * 32 * 64
    assert table([*window, "--causal"], capsys)["cached key bytes, float32"] == [4 * 8 * 32 * 64] * 2
    levels = ["--attention", "{kind: mlr, ranks: [32, 32]}", *SIZES, "--max_length", "2048"]
    assert table(levels, capsys)["flops to form scores, a head"][0] == 2 * 1024**2 * 64  # all in the second block


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "cost needs --attention and --d_model and --num_heads and --tokens"),
        (["--attention", "mlr", "--d_model", "64", "--num_heads", "4"], "cost needs --tokens"),
        (SIZES, "cost needs --attention"),
        ([*SIZES, "--attention"], "--attention needs a value"),
        ([*SIZES, "--attention.ranks"], "--attention.ranks needs a value"),
        ([*SIZES, "--attention", "fast"], "unknown attention 'fast'; valid: standard, swa"),
        ([*SIZES, "--attention", "mlr", "--attention.ranks", "[4, 1]"], "ranks [4, 1] sum to 5, but must sum to the"),
        ([*SIZES, "--attention", "mlr", "--attention.window", "4"], "mlr has no argument 'window'; valid: ranks"),
        ([*SIZES, "--attention", "[swa, mlr]"], "attention must be one of standard, swa"),
        ([*SIZES, "--attention", "[swa]", "--attention.kind", "mlr", "--attention.a.b", "1"], "--attention.a.b"),
        ([*SIZES, "--attention", "[swa]", "--attention.ranks", "1"], "--attention is ['swa'], so --attention.ranks"),
        (["--attention", "mlr", "--tokens"], "--tokens needs a value"),
        (["--attention", "mlr", "--tokens", "many"], "--tokens must be a whole number of at least 1, not many"),
        (["--attention", "mlr", "--tokens", "0"], "--tokens must be a whole number of at least 1, not 0"),
        (["--attention", "mlr", "--tokens", "-3"], "--tokens must be a whole number of at least 1, not -3"),
        (["--attention", "mlr", "--tokens", "1.5"], "--tokens must be a whole number of at least 1, not 1.5"),
        (["--num_heads", "x"], "--num_heads must be a whole number of at least 1, not x"),
        (["--dtype", "int8"], "--dtype must be one of float64, float32, bfloat16, float16, not int8"),
        (["--token", "9"], "unknown argument --token (did you mean --tokens?); valid: --attention, --d_model"),
        (["--causal", "9"], "unknown argument 9; valid: --attention"),
        (["--causal=9"], "unknown argument 9; valid: --attention"),
        (["mlr", *SIZES], "unknown argument mlr"),
        (["--attention", "mlr", *SIZES, "--max_length", "9"], "1024 tokens are more than max_length 9"),
        (["--attention", "mlr", *SIZES, "--num_heads", "7"], "num_heads 7 must divide d_model 512"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_wrong_words(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refusal(["cost", *words], capsys)


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["cost", "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for option in ("attention", "d_model", "num_heads", "tokens", "max_length", "dtype", "causal"):
        assert f"--{option}" in said


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from tsattn.cli import main\ntry: main(sys.argv[1:])\nfinally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, "cost", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
