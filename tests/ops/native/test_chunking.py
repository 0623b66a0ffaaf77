"""How the kernel cuts its work, and how a run that goes on takes that over."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.ops.native.kernels_there import needs_kernels
from tsattn.cli import main
from tsattn.ops import full_attention
from tsattn.ops.native import chunking, size_tuning
from tsattn.ops.native.chunking import ChunkSizes, chunk_sizes, forget_sizes, sizes_by_caches, sizes_taken
from tsattn.ops.native.library import kernels_taken, set_in_use, why_no_kernels
from tsattn.ops.native.record import kernels_as_noted, kernels_in_use

pytestmark = needs_kernels

OTHERS = ChunkSizes(40, 3, 5, 1000)


@pytest.fixture
def _new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    assert why_no_kernels() is None
    monkeypatch.setattr(chunking, "cache_folder", lambda: tmp_path / "kernels")
    forget_sizes()
    yield
    forget_sizes()


def results() -> list[Tensor]:
    torch.manual_seed(0)
    leaves = [torch.randn(2, 3, 700, 16, requires_grad=True) for _ in range(3)]
    out = full_attention(*leaves, causal=True, impl="native")
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


def test_sizes_change_no_more_than_rounding() -> None:
    expected = results()
    for sizes in (OTHERS, ChunkSizes(8, 1, 1, 1), ChunkSizes(1000, 40, 40, 2**40)):
        with sizes_taken(sizes):
            found = results()
        assert any(not torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(results(), expected, strict=True))


def test_sizes_come_from_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    for first, second, chunk in ((49152, 2**20, 128), (32768, 2**18, 80), (2**20, 2**22, 256), (0, 0, 80)):
        monkeypatch.setattr(chunking.os, "sysconf", lambda name, f=first, s=second: f if "1" in name else s)
        assert sizes_by_caches() == ChunkSizes(chunk, 4, 8, (second or 2**20) - 1)


def test_a_run_is_gone_on_with_as_it_was_begun() -> None:
    with sizes_taken(OTHERS), kernels_taken("portable"):
        noted, expected = kernels_in_use(), results()
    assert noted == {"set": "portable", "sizes": {**noted["sizes"], "chunk_keys": 40}, "dropout": True}
    assert set_in_use() != "portable"
    with kernels_as_noted(json.loads(json.dumps(noted))):
        assert (set_in_use(), chunk_sizes()) == ("portable", OTHERS)
        assert all(torch.equal(one, other) for one, other in zip(results(), expected, strict=True))
    assert set_in_use() != "portable"


@pytest.mark.parametrize("noted", [None, {"set": "off"}])
def test_a_run_from_before_goes_on_without_kernels(noted: dict[str, str] | None) -> None:
    with kernels_as_noted(noted):
        assert why_no_kernels() is not None
        assert kernels_in_use() == {"set": "off"}
    assert why_no_kernels() is None


def test_kernels_that_cannot_be_had_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), kernels_as_noted({"set": "neon", "sizes": kernels_in_use()["sizes"]}):
        assert why_no_kernels() is None
    assert "begun with other kernels" in caplog.text
    assert "neon" in caplog.text


@pytest.mark.usefixtures("_new_home")
def test_what_is_measured_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(size_tuning, "SHORT", (1, 1, 96, 8))
    monkeypatch.setattr(size_tuning, "LONG", (1, 1, 128, 8))
    monkeypatch.setattr(
        size_tuning,
        "_in_turns",
        lambda candidates, shape, backward: {value: {256: 1.0, 16: 1.0}.get(value, 2.0) for value in candidates},
    )
    assert main(["kernels", "--tune"]) == 0
    assert chunk_sizes() == ChunkSizes(256, 16, 16, sizes_by_caches().long_bytes)
    said = capsys.readouterr().out
    assert "256 keys by 16 blocks of queries" in said
    assert "measured" in said
    path = chunking.tuned_file()
    assert path is not None
    for spoilt in ("{", "{}", '{"sizes": {"chunk_keys": -1}}', path.read_text().replace("256", "1")):
        path.write_text(spoilt)
        forget_sizes()
        assert chunk_sizes() == sizes_by_caches()


@pytest.mark.usefixtures("_new_home")
def test_it_is_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_tuning, "SHORT", (1, 1, 96, 8))
    monkeypatch.setattr(size_tuning, "LONG", (1, 1, 128, 8))
    lines: list[str] = []
    assert size_tuning.tune_sizes(lines.append) == chunk_sizes()
    assert len(lines) == len(size_tuning.CHUNKS) + 2 * len(size_tuning.BLOCKS)
    assert sum(line.endswith("*") for line in lines) == 3
