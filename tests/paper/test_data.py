"""Drawn windows and pieces of texts are those that were asked for, and suites compare like with like."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.paper.prompts import PromptDataModule, flat_prompts, pairs_of
from benchmarks.paper.text_windows import TextDataModule, check_text_task
from benchmarks.paper.thinned_windows import ThinnedDataModule
from benchmarks.paper.waves import WaveDataModule
from tests.docs.blocks import ROOT
from tsattn import PublicDataModule, run
from tsattn.attention import build_attention
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.experiments import Hooks, resume
from tsattn.leaderboard.suite import read_suite
from tsattn.task import Task


def set_up(data: Any) -> Any:
    data.setup("fit")
    return data


def small(**changed: Any) -> PromptDataModule:
    return set_up(PromptDataModule(**{"dimensions": 3, "val_draws": 5, "test_draws": 7, **changed}))


def test_a_prompt_is_laid_flat() -> None:
    x, y = torch.arange(12.0).reshape(1, 3, 4), torch.tensor([[100.0, 200, 300]])
    flat = flat_prompts(x, y)
    assert flat.tolist() == [[0, 1, 2, 3, 100, 4, 5, 6, 7, 200, 8, 9, 10, 11]], "the last value is not there"
    points, values = pairs_of(Batch(flat[..., None]), 4)
    assert torch.equal(points, x)
    assert torch.equal(values, y[:, :2])


@pytest.mark.parametrize(("part", "sizes"), [("val", [3, 2]), ("test", [3, 3, 1])])
def test_windows_for_scoring_are_linear_prompts_of_which_the_last_value_counts(part: str, sizes: list[int]) -> None:
    batches = list(small(eval_batch_size=3).eval_dataloader(part))
    assert [len(one) for one in batches] == sizes
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
            weights.append(tuple(np.round(w, 3)))
    assert len(set(weights)) == len(weights), "each prompt has weights of its own"
    first, again, other = (small(data_seed=seed).windows(part).__getitems__([0]).past for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dimensions_rise_in_equal_stages() -> None:
    for d, share, at in (
        (8, 0.06, {0.0: 2, 0.0099: 2, 0.0101: 3, 0.0299: 4, 0.0301: 5, 0.0599: 7, 0.06: 8, 1.0: 8}),
        (3, 0.5, {0.0: 1, 0.24: 1, 0.26: 2, 0.5: 3}),
        (5, 0.0, {0.0: 5, 1.0: 5}),
        (1, 0.06, {0.0: 1}),
    ):
        data = PromptDataModule(dimensions=d, curriculum=share)
        assert {done: data.dimensions_at(done) for done in at} == at


class Seen(Callback):
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
    kind = "benchmarks.paper.prompt_transformer.PromptTransformer"
    own = {"dimensions": 2, "batch_size": 3, "val_draws": 4, "test_draws": 5, **data}
    experiment = {
        "data": {"class_path": "benchmarks.paper.prompts.PromptDataModule", "init_args": own},
        "model": {"backbone": {"kind": kind, "d_model": 4, "num_layers": 1, "num_heads": 2}},
        "trainer": {"max_steps": 6, "val_check_interval": 2, "accelerator": "cpu", **(trainer or {})},
    }
    run(experiment, folder, hooks=Hooks(callbacks=[seen], with_baselines=False))
    validated = [batch.past for batch in seen.validated]
    assert all(torch.equal(past, validated[0]) for past in validated), "validation is the same each time"
    return seen.batches


def test_a_training_sees_new_prompts_at_each_step_those_of_its_seed() -> None:
    batches, again = trained(), trained()
    assert [len(batch) for batch in batches] == [3] * 6
    rows = torch.cat([batch.past[..., 0] for batch in batches])
    assert len(rows.unique(dim=0)) == 18
    assert torch.equal(rows, torch.cat([batch.past[..., 0] for batch in again]))
    last = batches[-1]
    assert torch.equal(last.target[:, :-1, 0], pairs_of(last, 2)[1])
    assert last.target_observed.all()
    with pytest.raises(UserError, match=r"drawn once a step: leave trainer\.accumulate_grad_batches out"):
        trained(trainer={"accumulate_grad_batches": 2})


def test_a_training_that_goes_on_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    whole = trained(curriculum=0.5)
    dimensions = [int((pairs_of(batch, 2)[0].abs().amax((0, 1)) > 0).sum()) for batch in whole]
    assert dimensions == [1, 1, 1, 2, 2, 2], "the curriculum is followed"
    assert [int(batch.target_observed[0].sum()) for batch in whole] == [2 * d for d in dimensions]
    before, after = Seen(most=5), Seen()
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "run", before, curriculum=0.5)
    resume(tmp_path / "run", hooks=Hooks(callbacks=[after], with_baselines=False))
    done = 6 - len(after.batches)
    assert 0 < done <= 5
    for one, other in zip(whole, [*before.batches[:done], *after.batches], strict=True):
        assert torch.equal(one.past, other.past)


def test_waves_are_sums_of_sines_and_noise() -> None:
    def drawn(noise: float) -> np.ndarray:
        data = WaveDataModule(context_length=40, prediction_length=20, periods=[6, 15], noise=noise)
        found = data.draw(50, torch.Generator().manual_seed(1))
        return torch.cat([found.past, found.target], dim=1).double().numpy()

    series = drawn(0.0)
    turns = 2 * math.pi * np.arange(60)[:, None] / np.array([6, 15])
    basis = np.concatenate([np.sin(turns), np.cos(turns)], axis=1)
    found, *_ = np.linalg.lstsq(basis, series.T, rcond=None)
    assert np.abs(basis @ found - series.T).max() < 1e-5
    heights = np.hypot(found[:2], found[2:])
    assert 0.5 <= heights.min() < 0.6
    assert 1.4 < heights.max() <= 1.5
    assert (drawn(0.3) - series).std() == pytest.approx(0.3, rel=0.05)


T = 16


def text_data(text: Path, **changed: Any) -> TextDataModule:
    return set_up(TextDataModule(str(text), **{"prediction_length": T, "val_draws": 4, "test_draws": 5, **changed}))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text that says over and over what comes next, with a sign of two bytes."""
    path = tmp_path / "words.txt"
    path.write_text("the quick é fox, " * 60)
    return path


def test_windows_are_pieces_of_their_part_of_the_text(text: Path) -> None:
    data, whole = text_data(text), text.read_bytes()
    parts = {part: bytes(data.part_of(part).tolist()) for part in ("train", "val", "test")}
    assert b"".join(parts.values()) == whole
    assert len(parts["train"]) == round(0.9 * len(whole))
    for part, count in (("val", 4), ("test", 5)):
        (batch,) = data.eval_dataloader(part)
        pieces = [bytes(piece.tolist()) for piece in batch.past[..., 0].to(torch.uint8)]
        assert len(pieces) == count
        assert all(len(piece) == T + 1 and piece in parts[part] for piece in pieces)
        assert parts[part].startswith(pieces[0])
        assert parts[part].endswith(pieces[-1])
        assert batch.target.abs().max() == 0
    drawn = data.draw(300, torch.Generator().manual_seed(1))
    pieces = [bytes(piece.tolist()) for piece in drawn.past.to(torch.uint8)]
    assert all(piece in parts["train"] for piece in pieces)
    assert len(set(pieces)) > 10


def test_texts_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("x" * (20 * (T + 1)))
    with pytest.raises(UserError, match="has 340 bytes, too few for pieces of 16: it takes 360 bytes or more"):
        text_data(short)
    with pytest.raises(UserError, match=r"the text .*none\.txt cannot be read: "):
        text_data(tmp_path / "none.txt")
    with pytest.raises(UserError, match="context_length prediction_length \\+ 1"):
        check_text_task(Task("words", 16, 16, ("text",), "1", 1))


@pytest.mark.real_data
def test_every_third_window_is_scored_and_all_are_trained_on() -> None:
    sizes = {"context_length": 24, "prediction_length": 8}
    whole, thinned = set_up(PublicDataModule("ETTh1", **sizes)), set_up(ThinnedDataModule("ETTh1", 3, **sizes))
    assert thinned.task.data == "ETTh1_every_3"
    assert len(thinned.windows("train")) == len(whole.windows("train"))
    assert thinned.scaler == whole.scaler
    for part in ("val", "test"):
        numbers = np.arange(0, len(whole.windows(part)), 3)
        few = thinned.windows(part).__getitems__(np.arange(len(numbers)))
        many = whole.windows(part).__getitems__(numbers)
        assert len(thinned.windows(part)) == len(numbers)
        assert torch.equal(few.past, many.past)
        assert torch.equal(few.target, many.target)
    assert sum(len(batch.past) for batch in thinned.eval_dataloader("test")) == len(thinned.windows("test"))
    assert len(thinned.with_context(48).windows("test")) == len(thinned.windows("test"))


@pytest.mark.parametrize("name", ["mlbtc_prompts_h100", "mlbtc_prompts_small"])
def test_models_of_mlbtc_have_as_many_parameters_as_standard_attention(name: str) -> None:
    suite, counts = read_suite(ROOT / "benchmarks" / "paper" / "suites" / f"{name}.yaml"), {}
    for attention in suite.attentions.values():
        sizes = {"d_model": 16 if name.endswith("small") else 64, "num_heads": 8}
        weights = build_attention(attention.description, **sizes).projection.parameters()
        counts[attention.name] = sum(one.numel() for one in weights if one.dim() > 1)  # without standard's biases
    if name.endswith("small"):  # or as heads of rank 2 or 3
        assert sorted(counts.values()) == [512] * 4 + [768] * 4
        assert (counts["standard"], counts["low_rank_2"], counts["low_rank_3"]) == (512, 512, 768)
    else:
        assert [*counts.values()] == [counts["standard"]] * 5
