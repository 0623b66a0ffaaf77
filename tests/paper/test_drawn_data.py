"""Drawn windows are those that were asked for, the same where they must be and new where they must be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.paper.drawn_data import DrawnDataModule
from benchmarks.paper.prompts import PromptDataModule, flat_prompts, pairs_of
from benchmarks.paper.waves import WaveDataModule
from tsattn import run
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.experiments import Hooks, resume


def set_up(data: DrawnDataModule) -> DrawnDataModule:
    data.setup("fit")
    return data


def small(**changed: Any) -> PromptDataModule:
    data = PromptDataModule(**{"dimensions": 3, "val_draws": 5, "test_draws": 7, **changed})
    set_up(data)
    return data


def test_a_prompt_is_laid_flat() -> None:
    x = torch.arange(12.0).reshape(1, 3, 4)
    y = torch.tensor([[100.0, 200, 300]])
    flat = flat_prompts(x, y)
    assert flat.tolist() == [[0, 1, 2, 3, 100, 4, 5, 6, 7, 200, 8, 9, 10, 11]], "the last value is not there"
    points, values = pairs_of(Batch(flat[..., None]), 4)
    assert torch.equal(points, x)
    assert torch.equal(values, y[:, :2])


@pytest.mark.parametrize("part", ["val", "test"])
def test_windows_for_scoring_are_linear_prompts_of_which_the_last_value_counts(part: str) -> None:
    data = small(eval_batch_size=3)
    batches = list(data.eval_dataloader(part))
    assert [len(one) for one in batches] == ([3, 2] if part == "val" else [3, 3, 1])
    weights = []
    for batch in batches:
        x, y = pairs_of(batch, 3)
        assert batch.past_observed is None or batch.past_observed.all()
        assert batch.target_observed[0, :, 0].tolist() == [False] * 5 + [True]
        for points, values, last in zip(x.double(), y.double(), batch.target[:, -1, 0], strict=True):
            # six pairs in three dimensions: five decide the weights, and the sixth has to fit
            w, residual, *_ = np.linalg.lstsq(points[:-1].numpy(), values.numpy(), rcond=None)
            assert residual == pytest.approx(0, abs=1e-8)
            assert float(points[-1].numpy() @ w) == pytest.approx(float(last), abs=1e-4)
            weights.append(w)
    assert len({tuple(np.round(w, 3)) for w in weights}) == len(weights), "each prompt has weights of its own"


def test_windows_for_scoring_are_the_same_each_time_and_decided_by_their_seed() -> None:
    first, again, other = (small(data_seed=seed).windows("test").__getitems__([0]).past for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    val, test = (small().windows(part).__getitems__([0]).past for part in ("val", "test"))
    assert not torch.equal(val, test)


@pytest.mark.parametrize(
    ("d", "share", "at"),
    [
        (8, 0.06, {0.0: 2, 0.0099: 2, 0.0101: 3, 0.0299: 4, 0.0301: 5, 0.0599: 7, 0.06: 8, 1.0: 8}),
        (3, 0.5, {0.0: 1, 0.24: 1, 0.26: 2, 0.5: 3}),
        (5, 0.0, {0.0: 5, 1.0: 5}),
        (1, 0.06, {0.0: 1}),
    ],
)
def test_dimensions_rise_in_equal_stages(d: int, share: float, at: dict[float, int]) -> None:
    data = PromptDataModule(dimensions=d, curriculum=share)
    assert {done: data.dimensions_at(done) for done in at} == at


class Seen(Callback):
    """Keeps the batches of a training, which it may interrupt."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.batches: list[Batch] = []
        self.validated: list[Batch] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if len(self.batches) == self.most:
            raise KeyboardInterrupt
        self.batches.append(batch)

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, *_: Any) -> None:
        self.validated.append(batch)


def trained(
    folder: Path | None = None, seen: Seen | None = None, trainer: dict[str, Any] | None = None, **data: Any
) -> list[Batch]:
    seen = seen or Seen()
    experiment = {
        "data": {
            "class_path": "benchmarks.paper.prompts.PromptDataModule",
            "init_args": {"dimensions": 2, "batch_size": 3, "val_draws": 4, "test_draws": 5, **data},
        },
        "model": {
            "backbone": {
                "kind": "benchmarks.paper.prompt_transformer.PromptTransformer",
                "d_model": 4,
                "num_layers": 1,
                "num_heads": 2,
            }
        },
        "trainer": {"max_steps": 6, "val_check_interval": 2, "accelerator": "cpu", **(trainer or {})},
    }
    run(experiment, folder, hooks=Hooks(callbacks=[seen], beside=False))
    validated = [batch.past for batch in seen.validated]
    assert all(torch.equal(past, validated[0]) for past in validated), "validation is the same each time"
    return seen.batches


def test_a_training_sees_new_prompts_at_each_step_those_of_its_seed() -> None:
    batches, again = trained(), trained()
    assert len(batches) == 6
    assert [len(batch) for batch in batches] == [3] * 6
    rows = torch.cat([batch.past[..., 0] for batch in batches])
    assert len(rows.unique(dim=0)) == 18
    assert torch.equal(rows, torch.cat([batch.past[..., 0] for batch in again]))
    _, y = pairs_of(batches[-1], 2)
    assert batches[-1].target is not None
    assert torch.equal(batches[-1].target[:, :-1, 0], y)
    assert batches[-1].target_observed is not None
    assert batches[-1].target_observed.all()


def test_a_training_that_goes_on_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    whole = trained(curriculum=0.5)
    before, after = Seen(most=5), Seen()
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", before, curriculum=0.5)
    resume(tmp_path / "run", hooks=Hooks(callbacks=[after], beside=False))
    done = 6 - len(after.batches)
    assert 0 < done <= 5
    for one, other in zip(whole, [*before.batches[:done], *after.batches], strict=True):
        assert torch.equal(one.past, other.past)


def test_steps_of_several_batches_are_refused() -> None:
    with pytest.raises(UserError, match=r"drawn once a step: leave trainer\.accumulate_grad_batches out"):
        trained(trainer={"accumulate_grad_batches": 2})


def test_a_curriculum_of_all_steps_is_followed_in_training() -> None:
    batches = trained(curriculum=1.0)
    dimensions = [int((pairs_of(batch, 2)[0].abs().amax((0, 1)) > 0).sum()) for batch in batches]
    assert dimensions == [1] * 6, "the second dimension comes at the end"
    batches = trained(curriculum=0.5)
    dimensions = [int((pairs_of(batch, 2)[0].abs().amax((0, 1)) > 0).sum()) for batch in batches]
    assert dimensions == [1, 1, 1, 2, 2, 2]
    scored = [int(batch.target_observed[0].sum()) for batch in batches if batch.target_observed is not None]
    assert scored == [2, 2, 2, 4, 4, 4]


def test_waves_are_sums_of_sines_and_noise() -> None:
    quiet = WaveDataModule(context_length=40, prediction_length=20, periods=[6, 15], noise=0.0)
    drawn = quiet.draw(50, torch.Generator().manual_seed(1))
    series = torch.cat([drawn.past, drawn.target], dim=1).double().numpy()
    turns = 2 * math.pi * np.arange(60)[:, None] / np.array([6, 15])
    basis = np.concatenate([np.sin(turns), np.cos(turns)], axis=1)
    found, *_ = np.linalg.lstsq(basis, series.T, rcond=None)
    assert np.abs(basis @ found - series.T).max() < 1e-5
    heights = np.hypot(found[:2], found[2:])
    assert 0.5 <= heights.min() < 0.6
    assert 1.4 < heights.max() <= 1.5
    noisy = WaveDataModule(context_length=40, prediction_length=20, periods=[6, 15], noise=0.3)
    louder = noisy.draw(50, torch.Generator().manual_seed(1))
    rest = torch.cat([louder.past, louder.target], dim=1).double().numpy() - series
    assert rest.std() == pytest.approx(0.3, rel=0.05)
