"""Backbones: from a batch to a forecast."""

import itertools
import json
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.toy_windows import toy_task, toy_windows
from tsattn.attention import KINDS, attention_class
from tsattn.backbones import Backbone, ITransformer, PatchTST, Transformer, build_backbone, complete_backbone
from tsattn.backbones.task_network import check_same, difference, refuse_imports
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import TokenEmbedding
from tsattn.task import Output, Task

L, T, C = 24, 8, 3


@pytest.fixture
def task() -> Task:
    return Task("toy", L, T, ("a", "b", "c"), "h", 24)


class Flat(Backbone):
    def __init__(self, task: Task, output: Output, *, level: float = 1.0) -> None:
        super().__init__()
        self.level, self.T = level, task.prediction_length

    def forward(self, batch: Batch) -> Tensor:
        return torch.full((len(batch), self.T, batch.past.shape[-1]), self.level)


# where tokens stand: channels and positions of a transformer, positions of patches
PLACES: list[tuple[str, dict[str, Any]]] = [
    ("transformer", {"channels": channels, "positions": positions})
    for channels, positions in itertools.product(Transformer.CHANNELS, TokenEmbedding.POSITIONS)
]
PLACES += [("patchtst", {"patch_len": 5, "positions": positions}) for positions in TokenEmbedding.POSITIONS]
# every attention at each backbone, and every place with one that goes by places
PAIRS = [(kind, *PLACES[6 * at + turn % (6 - 3 * at)]) for at in (0, 1) for turn, kind in enumerate(KINDS)]
PAIRS += [("mlr", *place) for place in PLACES if ("mlr", *place) not in PAIRS]


@pytest.mark.parametrize(("attention", "kind", "more"), PAIRS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_backbone_takes_every_attention(task: Task, attention: str, kind: str, more: dict[str, Any]) -> None:
    backbone = build_backbone({"kind": kind, "d_model": 16, "num_heads": 2, "attention": attention, **more}, task)
    forecast = backbone(toy_windows(task, 5, gaps=True, dtype=torch.float32))
    assert forecast.shape == (5, T, C)
    forecast.square().sum().backward()
    # a bias of the keys moves all scores of a query alike
    idle = {name for name, p in backbone.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    assert all("key.bias" in name or "key_norm.bias" in name for name in idle), idle


@pytest.mark.parametrize(("patch_len", "stride"), [(5, 3), (24, 24), (None, None)])
def test_patchtst_sees_every_step_of_its_own_channel_alone(
    task: Task, patch_len: int | None, stride: int | None
) -> None:
    torch.manual_seed(0)
    backbone = PatchTST(task, Output(), d_model=16, num_heads=2, patch_len=patch_len, stride=stride).double().eval()
    past = toy_windows(task, 1).past.requires_grad_()
    backbone(Batch(past))[..., 1].sum().backward()
    assert past.grad is not None
    assert (past.grad[0, :, 1] != 0).all()
    assert (past.grad[0, :, [0, 2]] == 0).all()


@pytest.mark.parametrize("kind", [Transformer, PatchTST, ITransformer])
def test_a_window_is_forecast_from_its_last_value(task: Task, kind: Any) -> None:
    backbone = kind(task, Output(), d_model=16, num_heads=2, subtract_last=True).eval()
    for parameter in backbone.head.parameters():
        torch.nn.init.zeros_(parameter)
    windows = Batch(toy_windows(task, 3, dtype=torch.float32).past)
    assert torch.equal(backbone(windows), windows.past[:, -1:].expand(3, T, C)), "a head of zeros adds nothing to it"
    observed = torch.ones(3, L, C, dtype=torch.bool)
    observed[:, -4:, 1] = False
    known = windows.past[:, -1:].clone()
    known[..., 1] = windows.past[:, -5:-4, 1]
    assert torch.equal(backbone(Batch(windows.past, past_observed=observed)), known.expand(3, T, C))


@pytest.mark.parametrize(("length", "ends"), [(24, [-8, -4, 0]), (26, [-12, -8, -4, 0])])
def test_patches_are_named_by_their_ends_and_a_repeated_one_by_what_it_is(length: int, ends: list[int]) -> None:
    task = Task("toy", length, 2, ("a", "b"), "h", 24)
    for pad_end in (False, True):
        backbone = PatchTST(task, Output(), d_model=16, num_heads=2, patch_len=16, stride=4, pad_end=pad_end)
        expected = [*ends, "repeated end"] if pad_end else ends
        assert backbone.token_ends(backbone.patches.count) == expected


def solved(length: int, channels: int = C) -> tuple[Tensor, Tensor, Tensor]:
    """Maps of all but 4 steps, and waves of a day."""
    generator = torch.Generator().manual_seed(1)
    weight, waves = (torch.randn(channels, size, T, generator=generator) / 9 for size in (length - 4, 13))
    return weight, waves, torch.tensor(86_400)


def forecast_of(maps: tuple[Tensor, Tensor, Tensor], past: Tensor, time: Tensor) -> Tensor:
    weight, waves, level = maps[0].expand(C, -1, -1), maps[1].expand(C, -1, -1), past[:, -1:]
    turns = [k * 2 * torch.pi * (time % 86_400) / 86_400 for k in range(1, 7)]
    columns = torch.stack([torch.ones(len(past)), *(f(turn) for turn in turns for f in (torch.sin, torch.cos))], 1)
    moves = torch.einsum("blc,clt->btc", (past - level)[:, 4:], weight)
    return moves + torch.einsum("bf,cft->btc", columns, waves) + level


@pytest.mark.parametrize(
    ("kind", "subtract_last", "channels"),
    [(Transformer, False, C), (PatchTST, True, 1), (ITransformer, False, C), (Transformer, True, 1)],
)
def test_a_warm_start_is_the_ridge_itself(task: Task, kind: Any, subtract_last: bool, channels: int) -> None:
    windows, observed = toy_windows(task, 40, dtype=torch.float32), torch.ones(40, L, C, dtype=torch.bool)
    observed[::2, : L // 2, 1] = False
    time = 3600 * (torch.arange(L + T) + torch.arange(40)[:, None])
    windows = replace(windows, past_observed=observed, time=time)
    filled = windows.past.clone()
    filled[::2, : L // 2, 1] = filled[::2, -1:, 1]  # nothing is known before the first value
    sizes = {"d_model": 16, "num_heads": 2, "subtract_last": subtract_last}
    backbone = kind(task, Output(), **sizes, linear_path="ridge").eval()
    backbone.warm_start(lambda length: solved(length, channels))
    ridge = forecast_of(solved(L, channels), filled, time[:, L])
    torch.testing.assert_close(backbone(windows), ridge, rtol=1e-4, atol=1e-4)
    again = kind(task, Output(), **sizes, linear_path="ridge").eval()
    again.load_state_dict(backbone.state_dict())
    assert torch.equal(again(windows), backbone(windows))
    with pytest.raises(UserError, match="needs time stamps"):
        again(replace(windows, time=None))
    assert [name for name, _ in backbone.linear_path.named_parameters()] == ["time.weight", "time.bias"], "fixed maps"
    random = kind(task, Output(), **sizes, linear_path="learned").eval()
    before = random(windows)
    random.warm_start(solved)
    assert torch.equal(random(windows), before)


def test_the_quantiles_of_a_warm_start_lie_around_the_ridge(task: Task) -> None:
    levels = (0.1, 0.5, 0.75, 0.9)
    windows = replace(toy_windows(task, 40, dtype=torch.float32), time=torch.zeros(40, L + T, dtype=torch.int64))
    backbone = PatchTST(task, Output(levels), d_model=16, num_heads=2, linear_path="ridge").eval()
    backbone.warm_start(solved)
    forecast = backbone(windows)
    ridge = forecast_of(solved(L), windows.past, torch.zeros(40))
    torch.testing.assert_close(forecast[..., 1], ridge, rtol=1e-4, atol=1e-4)
    spread = windows.past.std(1, correction=0)[:, None]
    expected = spread * (NormalDist().inv_cdf(0.9) - NormalDist().inv_cdf(0.1))
    torch.testing.assert_close(forecast[..., -1] - forecast[..., 0], expected.expand(-1, T, -1), rtol=1e-3, atol=1e-4)
    for output, median in ((Output(levels), 1), (Output((0.5,)), 0), (Output(), None)):
        assert Output.from_dict(json.loads(json.dumps(output.to_dict()))) == output
        assert output.median == median
    assert Output([0.1, 0.5]) == Output((0.1, 0.5))


def test_descriptions(task: Task) -> None:
    assert isinstance(build_backbone("transformer", task), Transformer)
    mine = build_backbone({"kind": f"{__name__}.Flat", "level": 3.0}, task)
    assert mine(toy_windows(task, dtype=torch.float32)).unique().tolist() == [3.0]
    kinds: list[Any] = ["swa", {"kind": "mlr", "ranks": [8]}]
    complete = complete_backbone({"kind": "transformer", "attention": kinds})
    assert complete["attention"][0] == {"kind": "swa", "window_size": 32, "scaling": "head"}
    assert complete["attention"][1]["divide_by"] == "none"
    assert complete_backbone(complete) == complete
    blocks = Transformer(task, Output(), d_model=16, num_heads=2, attention=kinds).encoder.blocks
    assert [type(block.attention) for block in blocks] == [attention_class(kind) for kind in ("swa", "mlr")]


DAYS = {"kind": "mlr", "ranks": [4, 4], "blocks": {"calendar": ["all", "day"]}}
MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("lstm", {}, "unknown backbone 'lstm'; valid: transformer, patchtst, itransformer, dlinear, nlinear$"),
    ("transformer", {"layers": 3}, "no argument .layers. .did you mean num_layers..; valid: d_model, num_layers"),
    ("transformer", {"num_layers": 0}, "num_layers must be at least 1"),
    ("transformer", {"channels": "all"}, "channels must be one of mixed, independent, not 'all'"),
    ("transformer", {"positions": "sine"}, "positions must be one of learned, rotary, none, not 'sine'"),
    ("transformer", {"calendar": "day"}, "calendar must be true or false, not 'day'"),
    ("transformer", {"norm": "group"}, "norm must be one of layer, batch, not 'group'"),
    ("transformer", {"linear_path": True}, "linear_path must be text, not True"),
    ("transformer", {"linear_path": "lstm"}, "linear_path must be one of none, learned, ridge, not 'lstm'"),
    ("transformer", {"dropout": 2}, r"dropout must lie in \[0, 1\)"),
    ("transformer", {"attention": ["swa"]}, "lists 1 kinds for 2 layers"),
    ("patchtst", {"patch_len": 25}, "patch_len must be from 1 to the context length 24, not 25"),
    ("patchtst", {"patch_len": 0}, "patch_len must be from 1 to the context length 24, not 0"),
    ("patchtst", {"stride": 17}, "stride must be from 1 to patch_len 16, so that no step is left out, not 17"),
    ("patchtst", {"stride": 0}, "stride must be from 1 to patch_len 16"),
    ("patchtst", {"d_ff": 0}, "d_ff must be at least 1, not 0"),
    ("patchtst", {"patch_mask": 1.0}, r"patch_mask, the share of masked patches, must lie in \[0, 1\), not 1.0"),
    ("dlinear", {"kernel_size": 24}, "kernel_size must be odd, such as 25, not 24"),
    ("dlinear", {"kernel_size": 0}, "kernel_size must be at least 1"),
    ("dlinear", {"individual": 1}, "individual must be true or false, not 1"),
    ("nlinear", {"kernel_size": 25}, "backbone nlinear has no argument 'kernel_size'; valid: individual"),
]


def test_wrong_descriptions_are_refused(task: Task) -> None:
    for kind, arguments, message in MISTAKES:
        with pytest.raises(UserError, match=message):
            build_backbone({"kind": kind, **arguments}, task)
    for kind, attention, changed, message in (
        ("patchtst", DAYS, {"frequency": "1"}, "blocks by the calendar need time stamps, but the series count steps"),
        ("itransformer", "standard", {"channels": ("a",)}, "attends to channels, and the data has only one"),
        (f"{__name__}.Flat", None, {"past_covariates": ("rain",)}, "Flat uses no covariates, but the data has rain; "),
    ):
        description = {"kind": kind, **({} if attention is None else {"attention": attention})}
        with pytest.raises(UserError, match=message):
            build_backbone(description, replace(task, **changed))


MASKED = {"kind": "patchtst", "patch_len": 4, "d_model": 8, "num_heads": 2, "num_layers": 1}


def test_a_hidden_patch_is_that_of_zeros_in_its_place() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(4, 8, 11, "learned", 0.0, mask=0.3).double()
    patches, term = torch.randn(200, 11, 4).double(), torch.randn(100, 11, 8).double()
    at = embedding.position + term.repeat_interleave(2, 0)
    shown, rest = embedding.value(patches) + at, embedding.value(torch.zeros_like(patches)) + at
    tokens = embedding.train()(patches, term)
    hidden = (tokens - rest).abs().amax(-1) < 1e-12
    torch.testing.assert_close(tokens, torch.where(hidden[..., None], rest, shown), rtol=0, atol=1e-12)
    assert hidden.double().mean().item() == pytest.approx(0.3, abs=0.04)  # four standard deviations of 2200 draws
    assert hidden.any(0).all()
    assert not hidden.all(0).any(), "each series has its own"
    torch.testing.assert_close(embedding.eval()(patches, term), shown)


def test_without_a_mask_nothing_is_drawn() -> None:
    windows = toy_windows(toy_task(), dtype=torch.float32)
    found = []
    for description in (MASKED, {**MASKED, "patch_mask": 0.0}, {**MASKED, "patch_mask": 0.5}):
        torch.manual_seed(3)
        backbone = build_backbone(description, toy_task()).train()
        found.append((backbone(windows), torch.rand(())))
        backbone.eval()
        found[-1] += (backbone(windows),)
    plain, none, half = found
    assert all(torch.equal(one, other) for one, other in zip(plain, none, strict=True))
    assert not torch.allclose(plain[0], half[0])
    assert torch.equal(plain[2], half[2]), "forecasts see all patches"


def test_what_a_kind_does_not_forecast_is_refused(task: Task) -> None:
    with pytest.raises(UserError, match=r"Flat cannot forecast distribution normal; valid backbones: transf"):
        build_backbone("tests.backbones.test_backbones.Flat", task, Output((), "normal"))
    with pytest.raises(UserError, match=r"Flat forecasts points only: leave quantiles out$"):
        build_backbone("tests.backbones.test_backbones.Flat", task, Output((0.5,)))


def test_weights_of_another_model_are_refused() -> None:
    same, points = {"kind": "dlinear"}, Output()
    check_same(same, points, same, None)
    with pytest.raises(UserError, match=r"its distribution is none, but normal is asked for$"):
        check_same(same, points, same, Output((), "normal"))
    with pytest.raises(UserError, match=r"its backbone.kind is dlinear, but nlinear is asked for$"):
        check_same(same, points, {"kind": "nlinear"}, None)
    assert difference({}, {}) == "its backbone is {}, but {} is asked for"
    refuse_imports({"kind": "tsattn.errors.UserError", "sizes": [3, None]}, "the checkpoint")  # it is imported
    refuse_imports({"kind": "itransformer", "groups": [{"wind": ["max. wv (m/s)"]}]}, "the checkpoint")  # a channel
    with pytest.raises(UserError, match=r"the checkpoint needs the class some\.Attention, and loading weights"):
        refuse_imports({"kind": "patchtst", "attention": ["mlr", {"kind": "some.Attention"}]}, "the checkpoint")
