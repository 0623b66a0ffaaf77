"""Networks and closed forms of the experiments: causal, of the right tokens, and as their definitions say."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.paper.character_transformer import CharacterTransformer
from benchmarks.paper.prompt_solutions import PromptRidge
from benchmarks.paper.prompt_transformer import PromptTransformer
from benchmarks.paper.prompts import flat_prompts
from benchmarks.paper.text_windows import SYMBOLS
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.task import Output, Task

D, N = 3, 6
PROMPTS = Task("prompts", N * (D + 1) - 1, N, ("0",), "1", 1)
SHUFFLED = {"rank": 1, "left_blocks": 4, "right_blocks": 4, "shuffled": True}


def prompts(count: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, N, D, generator=generator)
    return x, (x @ torch.randn(count, D, 1, generator=generator))[..., 0]


def batch_of(x: Tensor, y: Tensor) -> Batch:
    return Batch(flat_prompts(x, y)[..., None])


def prompt_network(attention: Any) -> PromptTransformer:
    torch.manual_seed(0)
    return PromptTransformer(PROMPTS, Output(), d_model=16, num_layers=2, num_heads=8, attention=attention).eval()


@pytest.mark.parametrize(
    "attention", [{"kind": "btt", "tt_rank": 2}, {"kind": "mlbtc", "levels": [{"rank": 1}, SHUFFLED]}], ids=str
)
def test_no_forecast_sees_its_value_or_what_comes_later(attention: Any) -> None:
    model = prompt_network(attention)
    x, y = prompts()
    with torch.no_grad():
        before = model(batch_of(x, y))
        assert before.shape == (2, N, 1)
        for i in range(N):
            changed, moved = y.clone(), x.clone()
            changed[:, i] += 3
            moved[:, i] += 3
            after, there = model(batch_of(x, changed)), model(batch_of(moved, y))
            assert torch.equal(before[:, : i + 1], after[:, : i + 1]), "no forecast up to it changes"
            assert (before[:, i + 1 :] != after[:, i + 1 :]).all() or i == N - 1, "all later ones do"
            assert torch.equal(before[:, :i], there[:, :i])
            assert (before[:, i:] != there[:, i:]).all(), "a forecast sees its own point"


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_closed_forms_are_those_of_numpy(alpha: float) -> None:
    predictor = PromptRidge(alpha=alpha)
    predictor.build(PROMPTS)
    x, y = prompts(4)
    y = y + 0.1 * torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    found = predictor(batch_of(x, y))[..., 0]
    assert not found[:, 0].any()
    for b, i in np.ndindex(4, N - 1):
        points, values, now = x[b, : i + 1].double().numpy(), y[b, : i + 1].double().numpy(), float(found[b, i + 1])
        inverse = np.linalg.inv(points.T @ points + alpha * np.eye(D)) @ points.T if alpha else np.linalg.pinv(points)
        assert now == pytest.approx(float(x[b, i + 1].double().numpy() @ inverse @ values), rel=1e-6, abs=1e-6)


T = 16
ATTENTIONS: dict[str, Any] = {
    "standard": "standard",
    "mlr": {"kind": "mlr", "ranks": [4, 2, 2], "align": "start"},
    "swa": {"kind": "swa", "window_size": 3},
    "global_swa": {"kind": "global_swa", "window_size": 3},
}


def network(attention: Any = "standard", **options: Any) -> CharacterTransformer:
    torch.manual_seed(0)
    task = Task("words", T + 1, T, ("text",), "1", 1)
    sizes: dict[str, Any] = {"d_model": 16, "num_layers": 2, "num_heads": 2, **options}
    return CharacterTransformer(task, Output(), **sizes, attention=attention).double().eval()


def random_text(count: int, length: int) -> Tensor:
    return torch.randint(SYMBOLS, (count, length), generator=torch.Generator().manual_seed(1))


def test_the_forecast_is_the_surprise_at_each_character() -> None:
    model, text = network(ATTENTIONS["mlr"]), random_text(3, T + 1)
    with torch.no_grad():
        surprise = model(Batch(text[..., None].double()))
        assert surprise.shape == (3, T, 1)
        chances = model.scores(text[:, :-1]).softmax(-1)
    assert torch.allclose(surprise.double(), -chances.gather(-1, text[:, 1:, None]).log(), atol=1e-5)
    with pytest.raises(UserError, match="positions must be one of rotary, learned, not 'none'"):
        network(positions="none")


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_no_later_character_is_seen(kind: str) -> None:
    model, text = network(ATTENTIONS[kind]), random_text(1, T)
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
    model, start, count = network(ATTENTIONS[kind], positions=positions), random_text(2, prompt), T - prompt

    def written(caches: Any, seed: int | None) -> Tensor:
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
    text, caches = written(None, 3), model.encoder.new_caches(2)
    with torch.no_grad():
        steps = torch.cat([model.scores(part, caches) for part in text.split([prompt, *[1] * count], dim=1)], dim=1)
        assert torch.allclose(steps, model.scores(text), atol=1e-10)
