"""The language model learns from its text, sees no later character, and writes with caches as it does without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.paper import write_text
from benchmarks.paper.character_transformer import CharacterTransformer
from benchmarks.paper.text_windows import SYMBOLS, TextDataModule
from tsattn import run
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.experiments import Hooks
from tsattn.task import Output, Task

T = 16
ATTENTIONS: dict[str, Any] = {
    "standard": "standard",
    "mlr": {"kind": "mlr", "ranks": [4, 2, 2], "align": "start"},
    "swa": {"kind": "swa", "window_size": 3},
    "global_swa": {"kind": "global_swa", "window_size": 3},
}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text that says over and over what comes next, with a sign of two bytes."""
    path = tmp_path / "words.txt"
    path.write_text("the quick é fox, " * 60)
    return path


def module(text: Path | None, **changed: Any) -> TextDataModule:
    sizes: dict[str, Any] = {"prediction_length": T, "val_draws": 4, "test_draws": 5, **changed}
    data = TextDataModule(None if text is None else str(text), **sizes)
    data.setup("fit")
    return data


def network(attention: Any = "standard", **options: Any) -> CharacterTransformer:
    torch.manual_seed(0)
    task = Task("words", T + 1, T, ("text",), "1", 1)
    sizes: dict[str, Any] = {"d_model": 16, "num_layers": 2, "num_heads": 2, **options}
    return CharacterTransformer(task, Output(), **sizes, attention=attention).double().eval()


def test_windows_are_pieces_of_their_part_of_the_text(text: Path) -> None:
    data = module(text)
    whole = text.read_bytes()
    assert b"".join(bytes(data.part_of(part).tolist()) for part in ("train", "val", "test")) == whole
    assert len(data.part_of("train")) == round(0.9 * len(whole))
    for part, count in (("val", 4), ("test", 5)):
        own = bytes(data.part_of(part).tolist())
        (batch,) = data.eval_dataloader(part)
        pieces = [bytes(piece.tolist()) for piece in batch.past[..., 0].to(torch.uint8)]
        assert len(pieces) == count
        assert all(len(piece) == T + 1 and piece in own for piece in pieces)
        assert own.startswith(pieces[0])
        assert own.endswith(pieces[-1])
        assert batch.target.abs().max() == 0
    drawn = data.draw(300, torch.Generator().manual_seed(1))
    train = bytes(data.part_of("train").tolist())
    pieces = [bytes(piece.tolist()) for piece in drawn.past.to(torch.uint8)]
    assert all(piece in train for piece in pieces)
    assert len(set(pieces)) > 10


def test_texts_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("x" * (20 * (T + 1)))
    with pytest.raises(
        UserError, match="the text short has 340 bytes, too few for pieces of 16: it takes 360 bytes or more"
    ):
        module(short)
    with pytest.raises(UserError, match=r"the text .*none\.txt cannot be read: No such file"):
        module(tmp_path / "none.txt")
    with pytest.raises(UserError, match="context_length prediction_length \\+ 1"):
        CharacterTransformer(Task("words", 16, 16, ("text",), "1", 1), Output())
    with pytest.raises(UserError, match="positions must be one of rotary, learned, not 'none'"):
        network(positions="none")


def test_the_forecast_is_the_surprise_at_each_character() -> None:
    model = network(ATTENTIONS["mlr"])
    text = torch.randint(SYMBOLS, (3, T + 1), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        surprise = model(Batch(text[..., None].double()))
        assert surprise.shape == (3, T, 1)
        chances = model.scores(text[:, :-1]).softmax(-1)
    expected = -chances.gather(-1, text[:, 1:, None]).log()
    assert torch.allclose(surprise.double(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_no_later_character_is_seen(kind: str) -> None:
    model = network(ATTENTIONS[kind])
    text = torch.randint(SYMBOLS, (1, T), generator=torch.Generator().manual_seed(1))
    other = text.clone()
    other[:, 9] = (other[:, 9] + 1) % SYMBOLS
    with torch.no_grad():
        one, two = model.scores(text), model.scores(other)
    assert torch.equal(one[:, :9], two[:, :9])
    assert not torch.allclose(one[:, 9:], two[:, 9:])


@pytest.mark.parametrize(
    ("kind", "prompt", "positions"),
    [("standard", 1, "rotary"), ("mlr", 5, "rotary"), ("swa", 5, "learned"), ("global_swa", 1, "learned")],
)
def test_writing_with_caches_is_writing_without(kind: str, prompt: int, positions: str) -> None:
    model = network(ATTENTIONS[kind], positions=positions)
    start = torch.randint(SYMBOLS, (2, prompt), generator=torch.Generator().manual_seed(1))
    count = T - prompt

    def written(caches: Any, seed: int | None) -> torch.Tensor:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return model.write(start, count, caches=caches, generator=generator)

    for seed in (None, 3):
        plain = written(None, seed)
        assert plain.shape == (2, T)
        assert torch.equal(plain[:, :prompt], start)
        assert torch.equal(written(model.encoder.new_caches(2), seed), plain)
    assert not torch.equal(written(None, 3), written(None, 4))
    with pytest.raises(UserError, match="can be followed by"):
        model.write(start, count + 1, caches=None)
    # step by step, the scores are those of the whole text
    text = written(None, 3)
    caches = model.encoder.new_caches(2)
    with torch.no_grad():
        steps = torch.cat([model.scores(part, caches) for part in text.split([prompt, *[1] * count], dim=1)], dim=1)
        assert torch.allclose(steps, model.scores(text), atol=1e-10)


def test_it_learns_a_text_by_heart(text: Path, tmp_path: Path) -> None:
    backbone = {
        "kind": "benchmarks.paper.character_transformer.CharacterTransformer",
        **{"d_model": 32, "num_layers": 1, "num_heads": 1, "attention": ATTENTIONS["standard"]},
    }
    data = {"text": str(text), "prediction_length": T, "val_draws": 8, "test_draws": 8, "batch_size": 16}
    result = run(
        {
            "seed_everything": 1,
            "data": {"class_path": "benchmarks.paper.text_windows.TextDataModule", "init_args": data},
            "model": {"backbone": backbone, "loss": "mae", "selection": "mae", "learning_rate": 0.01},
            "trainer": {"max_steps": 60, "accelerator": "cpu"},
        },
        hooks=Hooks(beside=False),
    )
    scores = result.errors.scores()
    assert scores["mae_scaled"] < 1.0, "nats a character, of a text without a surprise after some characters"
    assert scores["mae_scaled"] > 0.0


def test_a_trained_model_goes_on_with_a_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick fox " * 100)
    kind = "benchmarks.paper.character_transformer.CharacterTransformer"
    experiment = {
        "seed_everything": 1,
        "data": {
            "class_path": "benchmarks.paper.text_windows.TextDataModule",
            "init_args": {"text": str(text), "prediction_length": 40, "val_draws": 2, "test_draws": 2},
        },
        "model": {"backbone": {"kind": kind, "d_model": 16, "num_layers": 1}, "loss": "mae"},
        "trainer": {"max_steps": 2, "accelerator": "cpu"},
    }
    run(experiment, tmp_path / "run", hooks=Hooks(beside=False))
    capsys.readouterr()
    words = [str(tmp_path / "run"), "--prompt", "the é"]
    assert write_text.main([*words, "--characters", "30"]) == 0
    assert capsys.readouterr().out.startswith("the é")
    assert write_text.main([*words, "--characters", "39"]) == 2
    assert "error: a text of 1 to 1 characters can be followed by 39" in capsys.readouterr().err
    assert write_text.main([str(tmp_path / "none")]) == 2
    assert "holds no finished run" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        write_text.main([*words, "--characters", "0"])
