"""muP: which parameter learns at which rate, how it starts, and that this makes the change independent of the width."""

import copy
import math
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from tsattn.attention import KINDS, build_attention
from tsattn.attention.projections import BilinearMLRProjection, BTTProjection, MLBTCProjection
from tsattn.backbones import Transformer
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import DirectHead, TokenEmbedding
from tsattn.layers.optim import adamw, cap_rms_, mup_groups, mup_init_, rate_schedule
from tsattn.structured import LevelShape, block_sizes
from tsattn.task import Output, Task

L, T, C = 24, 8, 2
RATE, DECAY = 1e-3, 0.01


def transformer(width: int, attention: Any = "standard", **more: Any) -> Transformer:
    torch.manual_seed(0)
    task = Task("toy", L, T, ("a", "b"), "h", 24)
    options = {"num_heads": 4, "dropout": 0.0, **more}
    return Transformer(task, Output(), d_model=width, attention=attention, **options)


def rates(module: nn.Module, **options: Any) -> dict[str, tuple[float, float]]:
    """Rate and decay of each parameter, by name; each must be in one group alone."""
    groups = mup_groups(module, RATE, DECAY, **options)
    found = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert len(found) == sum(len(group["params"]) for group in groups)
    named = {name: found.pop(id(p)) for name, p in module.named_parameters()}
    assert not found
    return named


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_one_rate(kind: str) -> None:
    width = 32
    backbone = transformer(width, kind)
    fans = {}
    for number, block in enumerate(backbone.encoder.blocks):
        factors = block.attention.projection.mup_fans().items()  # type: ignore[operator, union-attr]
        fans |= {f"encoder.blocks.{number}.attention.projection.{name}": fan_in for name, (fan_in, _) in factors}
    for name, (rate, decay) in rates(backbone).items():
        parameter = backbone.get_parameter(name)
        if name.startswith(("tokens.", "head.time")) or name.endswith("pattern.table") or parameter.dim() == 1:
            expected = RATE
        elif name in fans:
            expected = RATE * 768 / fans.pop(name)
        else:
            expected = RATE * 768 / (2 * width if name.endswith("feedforward.3.weight") else width)
        assert rate == pytest.approx(expected), name
        assert rate * decay == pytest.approx(RATE * DECAY if parameter.dim() > 1 else 0), name
    assert not fans


def test_rates_are_relative_to_the_base_width() -> None:
    layer = nn.Linear(32, 5)
    assert rates(layer, base_width=64)["weight"] == (2 * RATE, DECAY / 2)
    layer.weight.requires_grad_(False)
    assert [len(group["params"]) for group in mup_groups(layer, RATE, DECAY)] == [1]
    with pytest.raises(UserError, match="base_width must be at least 1"):
        mup_groups(layer, RATE, DECAY, base_width=0)


def test_fan_ins_are_those_of_the_blocks() -> None:
    width, heads, rank = 24, 2, 3
    a, b, c, d = block_sizes(width)
    for side in BTTProjection.SIDES:
        btt = BTTProjection(width, heads, None, rank, side)
        assert btt.mup_fans() == {"left": (c * rank, heads * a), "right": (d, heads * b * rank)}
        assert rates(btt) == {
            "left": (pytest.approx(RATE * 768 / (c * rank)), pytest.approx(DECAY * c * rank / 768)),
            "right": (pytest.approx(RATE * 768 / d), pytest.approx(DECAY * d / 768)),
        }
    mlr = BilinearMLRProjection(width, heads, None, [4, 2], [1, 3])
    assert mlr.mup_fans() == {"left.0": (24, 8), "left.1": (8, 4), "right.0": (24, 8), "right.1": (8, 4)}
    shapes = [LevelShape(2, 4, 6, shuffled=True), LevelShape(3, 2, 2)]
    mlbtc = MLBTCProjection(width, heads, None, shapes)
    # the left factors sum over 2 * 6 inputs of the first level and 3 of the second
    assert mlbtc.mup_fans() == {"left.0": (15, 12), "left.1": (15, 24), "right.0": (4, 16), "right.1": (12, 6)}
    assert build_attention("standard", d_model=24, num_heads=2).projection.mup_fans() == {}


@pytest.mark.parametrize("kind", ["standard", "btt", "bilinear_mlr", "mlbtc"])
def test_hidden_weights_start_with_variance_one_over_fan_in_or_at_their_cap(kind: str) -> None:
    width = 256
    backbone = transformer(width, kind, num_layers=1)
    projection = backbone.encoder.blocks[0].attention.projection
    fans = {f"encoder.blocks.0.attention.projection.{name}": fans for name, fans in projection.mup_fans().items()}
    before = copy.deepcopy(backbone.state_dict())
    mup_init_(backbone)
    after = backbone.state_dict()
    zero = ("attention.output.", "head.value.")
    for name, (rate, _) in rates(backbone).items():
        if any(part in name for part in zero):
            assert not after[name].any(), name
        elif rate == RATE:
            assert torch.equal(after[name], before[name]), name
        else:
            assert not torch.equal(after[name], before[name]), name
            fan_in, fan_out = fans.get(name, (1, 1))
            count = after[name].numel()
            variance = float(after[name].square().mean()) * 768 * RATE / rate / min(1, fan_out / fan_in)
            assert variance == pytest.approx(1, abs=5 * math.sqrt(2 / count)), name
    batch = Batch(torch.randn(3, L, C), torch.randn(3, T, C))
    level = batch.past.mean(1, keepdim=True)
    torch.testing.assert_close(backbone(batch), level.expand(3, T, C))


@pytest.mark.parametrize(("kind", "width"), [(kind, (32, 96, 768)[turn % 3]) for turn, kind in enumerate(KINDS)])
def test_the_cap_leaves_what_was_just_initialised(kind: str, width: int) -> None:
    torch.manual_seed(0)
    attention = build_attention(kind, d_model=width, num_heads=4, max_length=16)
    mup_init_(attention)
    before = copy.deepcopy(attention.state_dict())
    cap_rms_(attention)
    for name, value in attention.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=1e-6, atol=0)


def test_the_cap_scales_large_structured_factors_and_nothing_else() -> None:
    attention = build_attention("btt", d_model=64, num_heads=2)
    projection = attention.projection
    assert isinstance(projection, BTTProjection)
    limits = {name: math.sqrt(min(fans)) / fans[0] for name, fans in projection.mup_fans().items()}
    with torch.no_grad():
        projection.left.normal_(std=50)
        projection.right.normal_(std=1e-3)
        attention.value.weight.fill_(100)
    left, others = projection.left.clone(), {n: p.clone() for n, p in attention.named_parameters() if "left" not in n}
    cap_rms_(attention)
    rms = projection.left.square().mean().sqrt()
    assert float(rms.detach()) == pytest.approx(limits["left"])
    torch.testing.assert_close(projection.left / projection.left.norm(), left / left.norm())
    for name, value in others.items():
        assert torch.equal(attention.get_parameter(name), value), name
    with torch.no_grad():
        projection.left.zero_()
    cap_rms_(attention)
    assert not projection.left.any()


def test_a_module_declares_its_own_roles() -> None:
    class Odd(nn.Module):
        mup_roles: ClassVar[dict[str, str]] = {"inner": "middle"}

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

    with pytest.raises(UserError, match="mup_roles of Odd must be input or output, not 'middle'"):
        mup_groups(Odd(), RATE, DECAY)
    without = TokenEmbedding(3, 8, L, "none", 0.0)
    assert {rate for rate, _ in rates(without).values()} == {RATE}
    assert rates(DirectHead(L, T, 16, C))["value.weight"][0] == RATE * 768 / 16


def change_of_the_encoder(width: int, mup: bool, attention: Any, steps: int = 1) -> float:
    """RMS of what a few steps change of the encoder's output, which alone they are to move towards a fixed target."""
    backbone = transformer(width, attention)
    encoder = nn.Sequential(backbone.tokens, backbone.encoder)
    if mup:
        mup_init_(encoder)
        optimizer = torch.optim.AdamW(mup_groups(encoder, 1e-5, 0.0, base_width=32))
    else:
        optimizer = adamw([encoder], 1e-5, 0.0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, L, C, generator=generator)
    direction = torch.randn(width, generator=generator)
    with torch.no_grad():
        before = encoder(x)
    for _ in range(steps):
        optimizer.zero_grad()
        (encoder(x) @ direction / width).mean().backward()
        optimizer.step()
        if mup:
            cap_rms_(encoder)
    return float((encoder(x) - before).detach().square().mean().sqrt())


@pytest.mark.parametrize(
    ("kind", "scaling", "steps"),
    [*(("standard", None, 1), ("mlr", "mup", 4), ("btt", "mup", 1), ("bilinear_mlr", None, 4))],
)
def test_coordinates_change_alike_at_every_width(kind: str, scaling: str | None, steps: int) -> None:
    attention = kind if scaling is None else {"kind": kind, "scaling": scaling}
    growth = {
        mup: change_of_the_encoder(128, mup, attention, steps) / change_of_the_encoder(32, mup, attention, steps)
        for mup in (True, False)
    }
    assert 0.5 < growth[True] < 2 < growth[False]


def test_logits_of_bilinear_mlr_change_alike_where_the_ranks_grow_with_the_width() -> None:
    """By the authors' factor `8 / (p_l r_l)` for this; by the root of it they change by the root of the width.

    Where the ranks stay they fall no faster than the cap, whose share of `1 / sqrt(fan_in)` falls by that root.
    """

    def growth(scaling: str, factor: int) -> float:
        described = {"kind": "bilinear_mlr", "scaling": scaling}
        ranks = [[rank * times for rank in (8, 4, 4)] for times in (1, factor)]
        small, large = (
            change_of_the_logits(w, {**described, "ranks": r}) for w, r in zip((64, 1024), ranks, strict=True)
        )
        return large / small

    assert 0.5 < growth("mup_language", 16) < 2 < growth("mup", 16)
    assert math.sqrt(64 / 1024) < growth("mup", 1) < 1


class SecondToken(nn.Module):
    """Values that are 1 for the second of two tokens and 0 for the first: what is mixed is the weight of the second."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        return torch.arange(2, dtype=x.dtype)[None, :, None].repeat(len(x), 1, self.width)


def change_of_the_logits(width: int, description: dict[str, Any], steps: int = 3) -> float:
    """What steps change of the logit of a token over another's, which alone they are to raise; a mean over 4 heads."""
    torch.manual_seed(0)
    attention = build_attention(description, d_model=width, num_heads=4, max_length=8).double()
    attention.value, attention.output = SecondToken(width), nn.Identity()  # type: ignore[assignment]
    mup_init_(attention)
    optimizer = torch.optim.AdamW(mup_groups(attention, 1e-3, 0.0, base_width=64))
    x = torch.randn(1, 2, width, dtype=torch.float64)

    def logit() -> Tensor:
        mixed: Tensor = attention(x)
        return mixed[0, 0, :: width // 4].logit().mean()

    before = logit().item()
    for _ in range(steps):
        optimizer.zero_grad()
        (-logit()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return logit().item() - before


@pytest.mark.parametrize(("kind", "qk_norm"), [("standard", True), ("mlr", False), ("mlbtc", True)])
def test_logits_change_alike_at_every_width_of_a_head(kind: str, qk_norm: bool) -> None:
    """By `scaling: mup`, for queries and keys learn to be alike; by `head` they change by the root of the width."""
    growth = {
        scaling: change_of_the_logits(1024, description) / change_of_the_logits(64, description)
        for scaling in ("mup", "head")
        for description in [{"kind": kind, "scaling": scaling, "qk_norm": qk_norm}]
    }
    assert 0.5 < growth["mup"] < 2 < growth["head"]


def test_warm_up_then_cosine() -> None:
    optimizer = adamw([nn.Linear(3, 3)], learning_rate=1.0, weight_decay=0.1)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    schedule = rate_schedule(optimizer, warmup_steps=4, total_steps=20)
    rates = []
    for _ in range(20):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates[:4] == sorted(rates[:4])
    assert max(rates) == rates[4] == 1.0
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)
    constant = rate_schedule(optimizer, warmup_steps=4, total_steps=20, schedule="constant")
    assert [constant.lr_lambdas[0](step) for step in (1, 4, 5, 19, 100)] == [0.4, 1, 1, 1, 1]
