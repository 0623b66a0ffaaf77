"""Maps in use: shared by processes, read-only, and never listed window by window."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from tests.data.mapped.tables_to_map import LONG, assert_same_batches, mapped, values_file
from tsattn.data.mapped import source as mapped_source
from tsattn.errors import UserError


def test_series_pickles_as_the_name_of_its_folder(path: Path) -> None:
    data = mapped(path, **LONG)
    packed = pickle.dumps(data)
    assert len(packed) < data.series.values.nbytes / 2
    copy = pickle.loads(packed)
    for name in ("values", "observed", "time", "starts", "mean", "scale"):
        assert torch.equal(getattr(copy.series, name), getattr(data.series, name))
    values_file(data).rename(data.folder / "gone")
    with pytest.raises(FileNotFoundError):
        pickle.loads(packed)
    mapped(path, **{**LONG, "target": "y"})
    with pytest.raises(UserError, match="was built anew while it was in use"):
        pickle.loads(packed)


def test_loader_processes_share_the_map(path: Path) -> None:
    data = mapped(path, **LONG)
    # a process that is spawned, not forked, gets its windows pickled
    windows = pickle.loads(pickle.dumps(data.windows("test")))
    loader = DataLoader(windows, 50, num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="fork")
    assert_same_batches(loader, data.test_dataloader(), atol=0)


def test_maps_are_read_only_and_shared(path: Path) -> None:
    data = mapped(path, **LONG)
    name = data.series.build  # type: ignore[attr-defined]
    (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if name in line]
    assert line.split()[1] == "r--s"


def test_no_list_of_windows_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = mapped(path, **LONG)
    monkeypatch.setattr("tsattn.data.batch_order._PERMUTED", 10)
    loader = data.train_dataloader()
    monkeypatch.setattr(torch, "randperm", lambda *args, **kwargs: pytest.fail("all windows were listed"))
    assert sum(len(batch) for batch in loader) == len(data.windows("train"))


@pytest.mark.slow
def test_benchmark_of_memory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "larger_than_memory.py"
    spec = importlib.util.spec_from_file_location("larger_than_memory", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(mapped_source, "_CELLS", 1 << 20)
    words = ["--gigabytes", "0.05", "--steps", "5", "--out", str(tmp_path), "--folder", str(tmp_path)]
    module.main(words)  # other tests of this process have memory of their own: the size is not looked at
    report = json.loads((tmp_path / "larger_than_memory.json").read_text())
    assert report["values_gb"] == pytest.approx(0.05, rel=0.01)
    assert report["training"]["steps"] == 5
    assert report["max_rss_anon_gb"] > 0
    assert [file.name for file in tmp_path.iterdir()] == ["larger_than_memory.json"]
