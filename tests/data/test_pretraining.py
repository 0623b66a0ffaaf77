"""Generated and mixed series, the same for the same seed, and windows of them on their own scale, some short."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from pretraining_data import (
    PretrainingDataModule,
    composed_covariance,
    kernel_covariances,
    mixed_series,
    own_scale,
    seasonal_covariance,
    seasonal_series,
    shortened,
    synthetic_series,
)
from scipy.linalg import toeplitz

from tsattn.batch import Batch, WindowUnits
from tsattn.data import CO2DataModule, Panel
from tsattn.data.public.public_data import CardSource
from tsattn.errors import UserError
from tsattn.experiments import resume, run

SIZES: dict[str, Any] = {"context_length": 32, "prediction_length": 8, "length": 64, "shortest": 4}


def small(**changes: Any) -> PretrainingDataModule:
    return PretrainingDataModule(**{**SIZES, "synthetic": 8, "seasonal": 4, "mixed": 5, "public": ["co2"], **changes})


def test_series_are_cut_into_parts_of_windows() -> None:
    data, again, other = small(), small(), small(data_seed=2)
    for one in (data, again, other):
        one.setup("fit")
    assert data.task.counts_steps
    assert len(data.splits) == 17
    assert {(split.train_end, split.val_end, split.test_end) for split in data.splits} == {(48, 56, 64)}
    assert len(data.windows("train")) == 17 * (48 - 40 + 1)
    assert len(data.windows("val")) == len(data.windows("test")) == 17
    assert torch.equal(again.series.values, data.series.values)
    assert not torch.equal(other.series.values, data.series.values)


def test_only_training_rows_of_real_series_are_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = CO2DataModule().load_frame()
    changed = frame.copy()
    changed.iloc[int(0.7 * len(frame)) :] = 1e6
    before = small(synthetic=0).source.load()
    monkeypatch.setattr(CO2DataModule, "load_frame", lambda self: changed)
    assert np.array_equal(small(synthetic=0).source.load().values, before.values, equal_nan=True)


@pytest.mark.real_data
def test_the_shipped_configuration_reads_no_ett_and_no_vic_electricity(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    load = CardSource.wide

    def wide(self: CardSource) -> Panel:
        read.append(self.card.name)
        return load(self)

    monkeypatch.setattr(CardSource, "wide", wide)
    path = Path(__file__).parents[2] / "benchmarks" / "chronos_tiny.yaml"
    arguments = yaml.safe_load(path.read_text())["data"]["init_args"]
    data = PretrainingDataModule(**{**arguments, "synthetic": 3, "seasonal": 1, "mixed": 30})
    data.setup("fit")
    assert sorted(read) == ["exchange_rate", "national_illness", "weather"]
    assert len(data.panel or ()) == 34
    assert np.nanmax(np.abs(data.panel.values)) < 40, "numbers that stand for missing values are masked"


def test_shortened_windows_know_their_last_steps() -> None:
    torch.manual_seed(0)
    whole = Batch(torch.randn(4000, 32, 1), torch.randn(4000, 8, 1))
    batch = shortened(whole, 0.5, 4)
    assert torch.equal(batch.past, whole.past)
    known = batch.past_observed[..., 0].int()
    assert torch.equal(known.cummax(1).values, known)
    lengths = known.sum(1)
    assert lengths.min() >= 4
    assert 0.45 < (lengths == 32).float().mean() < 0.56
    few, many = (lengths <= 8).float().mean(), ((lengths > 16) & (lengths < 32)).float().mean()
    assert abs(few - many) < 0.05, "as many from 4 to 8 as from 16 to 32"
    assert shortened(whole, 0.0, 4) is whole
    gone = torch.rand(4000, 32, 1) > 0.5
    assert not (shortened(Batch(whole.past, past_observed=gone), 1.0, 4).past_observed & ~gone).any()


def test_windows_are_brought_to_their_own_scale() -> None:
    torch.manual_seed(0)
    observed = torch.rand(5, 32, 1) > 0.3
    observed[4] = False
    batch = Batch(50 + 7 * torch.randn(5, 32, 1), torch.randn(5, 8, 1), past_observed=observed)
    scaled = own_scale(batch)
    for row in range(4):
        seen = batch.past[row][observed[row]]
        for one, other in ((scaled.past[row], batch.past[row]), (scaled.target[row], batch.target[row])):
            torch.testing.assert_close(one, (other - seen.mean()) / seen.std(correction=0), rtol=1e-4, atol=1e-4)
    assert torch.equal(scaled.past[4], batch.past[4]), "one of which nothing is known stays"
    units = WindowUnits(torch.full((5, 1), 1e4), torch.full((5, 1), 3.0))
    again = own_scale(replace(batch, units=units))
    torch.testing.assert_close(again.units.restore(again.past), units.restore(batch.past), rtol=1e-6, atol=1e-3)
    flat = own_scale(Batch(torch.ones(1, 32, 1), torch.full((1, 8, 1), 2.0)))
    assert flat.target.isfinite().all()


@pytest.mark.usefixtures("undrawn", "short_ridge")
def test_training_windows_alone_are_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run trains on windows of their own scale, validates on those of the series, and goes on where it stopped."""
    seen: dict[bool, list[Batch]] = {True: [], False: []}
    change = PretrainingDataModule.on_before_batch_transfer

    def watched(self: PretrainingDataModule, batch: Batch, dataloader_idx: int) -> Batch:
        changed, is_training = change(self, batch, dataloader_idx), bool(self.trainer and self.trainer.training)
        seen[is_training].append(changed)
        assert (changed is batch) != is_training
        return changed

    monkeypatch.setattr(PretrainingDataModule, "on_before_batch_transfer", watched)
    counts = {"synthetic": 6, "seasonal": 6, "mixed": 0}
    experiment = {
        "seed_everything": 1,
        "data": {"class_path": "pretraining_data.PretrainingDataModule", "init_args": {**SIZES, **counts}},
        "model": {"backbone": {"kind": "chronos_bolt", "patch_len": 4, "d_model": 16}, "quantiles": [0.1, 0.5, 0.9]},
        "trainer": {"max_steps": 3, "accelerator": "cpu"},
    }
    run(experiment, tmp_path / "run")
    assert len(seen[True]) == 3
    assert seen[False]
    assert all((batch.past_observed is not None) for batch in seen[True])
    resume(tmp_path / "run", {"max_steps": 5})
    assert len(seen[True]) == 5
    with pytest.raises(UserError, match="forecasts other series by its weights"):
        small().source.at(tmp_path / "other.csv")


def test_generated_series_are_decided_by_their_seed_and_of_covariances() -> None:
    for make in (synthetic_series, seasonal_series):
        series = make(13, 96, seed=4)
        assert np.array_equal(series[:5], make(5, 96, seed=4)), "fewer are the first of more"
        assert not np.allclose(series, make(13, 96, seed=5))
        assert make(0, 96).shape == (0, 96)
        assert np.allclose([series.mean(axis=1), series.std(axis=1) - 1], 0)
    rng, bank = np.random.default_rng(0), kernel_covariances(40)
    kept = [part.copy() for part in bank]
    columns = [toeplitz(seasonal_covariance(120, rng)) for _ in range(20)]
    for whole in [*columns, *(composed_covariance(bank, rng) for _ in range(30))]:
        assert np.allclose(whole, whole.T)
        assert np.linalg.eigvalsh(whole).min() > -1e-8 * np.abs(whole).max()
    assert all(np.array_equal(one, other) for one, other in zip(bank, kept, strict=True)), "the bank stays as it is"
    for wrong, message in (
        ({"length": 50}, "length 50 is too short: context_length 32 and three times prediction_length 8, .* 56 steps"),
        ({"synthetic": 0, "seasonal": 0, "mixed": 0}, "no series to train on"),
        ({"public": []}, "mixed series need public data sets"),
        ({"shortened": 1.5}, "shortened must be a share from 0 to 1, not 1.5"),
        ({"shortest": 33}, "shortest must be at most context_length 32, not 33"),
        ({"seasonal": -1}, "seasonal must be at least 0"),
    ):
        with pytest.raises(UserError, match=message):
            small(**wrong)


@pytest.mark.filterwarnings("error")
def test_mixtures_are_of_the_sources_alone() -> None:
    steps = np.arange(900.0)
    sources = {"waves": [np.sin(steps / 5), np.cos(steps / 9)], "line": [steps[:50]]}
    mixed, again = (mixed_series(sources, 400, 100, seed=2) for _ in range(2))
    assert len(mixed) == 400
    assert {len(one) for one in mixed} == {50, 100}
    assert np.allclose([(one.mean(), one.std()) for one in mixed], (0, 1))
    assert all(np.array_equal(one, other) for one, other in zip(mixed, again, strict=True))
    lines = [one for one in mixed if np.allclose(np.diff(one, 2), 0)]
    assert 5 < len(lines) < 80, "the smaller source comes, too, but less often"
    gone = np.sin(np.arange(300.0))
    gone[40:60] = np.nan
    mixed = mixed_series({"gone": [gone, np.full(300, np.nan)], "flat": [np.ones(300)]}, 30, 200)
    assert all(np.isfinite(one).any() for one in mixed), "constants are left out"
    assert any(np.isnan(one).any() for one in mixed), "missing values stay so"
