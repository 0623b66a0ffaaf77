"""Panels in files: shared by processes, read-only, and never listed window by window."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.data.mapped.tables_to_map import (
    LONG,
    ROLES,
    assert_same_batches,
    assert_same_panel,
    full_frame,
    mapped,
    saved,
)
from tsattn.data import mapped as mapped_tables
from tsattn.data.mapped import open_panel
from tsattn.errors import UserError


def test_panel_and_series_pickle_as_the_names_of_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.row_ranges._IN_MEMORY", 100)  # scaled series lie in files, too
    data = mapped(saved(full_frame(tz="Europe/Berlin"), tmp_path / "t.parquet"), **LONG, **ROLES)
    assert data.panel is not None
    packed = pickle.dumps(data)
    assert len(packed) < data.panel.values.nbytes / 2
    copy = pickle.loads(packed)
    assert_same_panel(copy.panel, data.panel)
    assert copy.panel.is_mapped
    part = data.panel.select(channels=("z",)).take(np.array([1, 2]))
    assert_same_panel(pickle.loads(pickle.dumps(part)), part)
    assert torch.equal(copy.series.values, data.series.values)
    (data.folder / "values.npy").write_bytes(b"x")
    with pytest.raises(UserError, match=r"values\.npy was written anew while it was in use; start again"):
        pickle.loads(packed)


def test_loader_processes_share_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsattn.data.row_ranges._IN_MEMORY", 100)
    data = mapped(saved(full_frame(), tmp_path / "t.parquet"), **LONG, **ROLES)
    # a process that is spawned, not forked, gets its windows pickled
    windows = pickle.loads(pickle.dumps(data.windows("test")))
    loader = DataLoader(windows, 50, num_workers=1, collate_fn=lambda batch: batch, multiprocessing_context="fork")
    assert_same_batches(loader, data.test_dataloader())


def test_files_are_read_only_and_shared(path: Path) -> None:
    data = mapped(path, **LONG)
    (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if f"{data.folder}/values.npy" in line]
    assert line.split()[1] == "r--s"
    assert data.panel is not None
    with pytest.raises(ValueError, match="read-only"):
        data.panel.values[0] = 1


def test_no_list_of_windows_is_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = mapped(path, **LONG)
    monkeypatch.setattr("tsattn.data.batch_order._PERMUTED", 10)
    loader = data.train_dataloader()
    monkeypatch.setattr(torch, "randperm", lambda *args, **kwargs: pytest.fail("all windows were listed"))
    assert sum(len(batch) for batch in loader) == len(data.windows("train"))


def test_folders_that_are_no_panels_are_refused(path: Path, tmp_path: Path) -> None:
    folder = mapped(path, **LONG).folder
    index = json.loads((folder / "panel.json").read_text())
    for text, message in {
        json.dumps({**index, "format": 99}): "has format 99; this version reads",
        "{": "is damaged; convert the table anew",
        "[]": "is damaged; convert the table anew",
    }.items():
        (folder / "panel.json").write_text(text)
        with pytest.raises(UserError, match=message):
            open_panel(folder)
    with pytest.raises(UserError, match=r"has no panel\.json; convert a table with `datasets convert`"):
        open_panel(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["few", "many"])
def test_benchmark_of_memory_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "larger_than_memory.py"
    spec = importlib.util.spec_from_file_location("larger_than_memory", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(mapped_tables, "_CELLS", 1 << 20)
    sizes = ["--gigabytes", "0.02"] if shape == "few" else ["--shape", "m5", "--share", "0.002"]
    words = [*sizes, "--steps", "5", "--out", str(tmp_path), "--folder", str(tmp_path)]
    module.main(words)  # other tests of this process have memory of their own: the size is not looked at
    name = "larger_than_memory.json" if shape == "few" else "m5_shape.json"
    report = json.loads((tmp_path / name).read_text())
    assert report["training"]["steps"] == 5
    assert report["max_rss_anon_gb"] > 0
    assert [file.name for file in tmp_path.iterdir()] == [name]
