"""iTransformer: channels without an order, groups of them as blocks, covariates as tokens of their own."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.backbones.cases import SMALL, randomised
from tests.toy_windows import LEVELS, toy_task, toy_windows
from tsattn.attention import build_attention
from tsattn.attention.maps import attention_map
from tsattn.backbones import build_backbone
from tsattn.batch import Batch
from tsattn.errors import UserError
from tsattn.layers import CovariateTokens, Encoder, FlattenHead, InstanceNorm, QuantileFan, TokenEmbedding
from tsattn.task import Output, Task

WITHOUT_ORDER = ["standard", "btt", "bilinear_mlr", "mlbtc", "identity", "uniform"]
GROUPS = [[0, 0, 0, 0], [0, 1, 0, 1]]
MLR = {"kind": "mlr", "ranks": [4, 4]}


def build(task: Task, output: Output = Output(), **arguments: Any) -> Any:
    torch.manual_seed(0)
    return randomised(build_backbone({"kind": "itransformer", **SMALL, **arguments}, task, output)).double().eval()


def with_channels(windows: Batch, order: list[int]) -> Batch:
    observed = None if windows.past_observed is None else windows.past_observed[..., order]
    return replace(windows, past=windows.past[..., order], past_observed=observed)


@pytest.mark.parametrize("attention", WITHOUT_ORDER)
def test_channels_in_another_order_are_forecast_alike(attention: str) -> None:
    covariates = WITHOUT_ORDER.index(attention) % 2 == 0
    levels = LEVELS if covariates else ()
    task = toy_task(C=5, covariates=covariates)
    backbone = build(task, Output(levels), attention=attention, linear_path="learned", calendar=covariates)
    windows, order = toy_windows(task, gaps=True), [3, 0, 4, 1, 2]
    forecast = backbone(windows)
    torch.testing.assert_close(backbone(with_channels(windows, order)), forecast[:, :, order], rtol=1e-9, atol=1e-9)
    if attention != "identity":  # whose channels do not see each other
        moved = replace(windows, past=windows.past + torch.randn(24, 1).double() * (torch.arange(5) == 2))
        assert (backbone(moved)[1] - forecast[1]).abs().amax(0).gt(1e-6).all(), "each channel looks at each other"


def test_it_is_what_its_parts_are() -> None:
    """Tokens of whole contexts, an encoder over channels, one linear map of each token to the horizon."""
    task = toy_task(C=4)
    backbone = build(task, Output(LEVELS), attention="standard")
    torch.manual_seed(0)
    fan = QuantileFan(LEVELS)
    tokens = TokenEmbedding(24, 16, 4, "none", 0.0)
    encoder = Encoder([build_attention("standard", d_model=16, num_heads=2) for _ in range(2)], 32, 0.0)
    parts = nn.ModuleDict({"tokens": tokens, "encoder": encoder, "head": FlattenHead(1, 8, 16, 3)}).double()
    parts.load_state_dict(backbone.state_dict())
    windows = toy_windows(task, gaps=True)
    norm = InstanceNorm(windows.past, windows.past_observed)
    rows = []
    for channel in encoder(tokens(norm.normalised().transpose(1, 2))).unbind(1):
        raw = parts["head"].flat(channel).view(-1, 8, 3)
        rows.append(fan(raw[..., 0], raw[..., 1:]))
    torch.testing.assert_close(backbone(windows), norm.restore(torch.stack(rows, 2)))


def test_an_attention_that_favours_near_tokens_is_refused() -> None:
    task = toy_task(C=4)
    for kind in ("swa", "global_swa", "mlr"):
        for attention in (kind, ["standard", kind]):
            with pytest.raises(
                UserError, match=f"^attention {kind} needs an order of tokens, and the channels .* have none"
            ):
                build_backbone({"kind": "itransformer", **SMALL, "attention": attention}, task)
    backbone = build_backbone({"kind": "itransformer", **SMALL, "attention": "fixed_mixing"}, task)
    backbone(toy_windows(task, dtype=torch.float32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in backbone.parameters())


@pytest.mark.parametrize(
    "groups",
    [GROUPS, [["x", "x", "x", "x"], ["even", "odd", "even", "odd"]], ["all", {"even": ["a", "c"], "odd": ["d", "b"]}]],
)
def test_groups_are_the_blocks_of_each_level(groups: list[Any]) -> None:
    backbone = build(toy_task(C=4), attention=MLR, groups=groups)
    blocks, further = backbone.groups.blocks(torch.device("cpu"))
    assert blocks.tolist() == [[level] for level in GROUPS]
    assert further is None
    # a channel of another group is seen by the first 4 components alone
    attention = backbone.encoder.blocks[0].attention
    x = torch.randn(1, 4, 16).double()
    q, k = (t[0, 0] for t in attention.projection(x, x))
    shared = torch.tensor(GROUPS[1])[:, None] == torch.tensor(GROUPS[1])
    logits = (q[:, :4] @ k[:, :4].T + (q[:, 4:] @ k[:, 4:].T) * shared) * attention.scale
    torch.testing.assert_close(attention_map(attention, x, blocks=blocks)[0, 0], logits.softmax(-1))


def test_channels_in_another_order_have_their_groups_with_them() -> None:
    task, order = toy_task(C=4, covariates=True), [2, 0, 3, 1]
    arguments: dict[str, Any] = {"attention": [MLR, "standard"], "calendar": True}
    backbone = build(task, groups=GROUPS, **arguments)
    other = build(task, groups=[[level[place] for place in order] for level in GROUPS], **arguments)
    other.load_state_dict(backbone.state_dict())
    windows = toy_windows(task, gaps=True)
    forecast = backbone(windows)
    torch.testing.assert_close(other(with_channels(windows, order)), forecast[:, :, order], rtol=1e-9, atol=1e-9)
    alike = build(task, groups=[GROUPS[0], [0, 0, 1, 1]], **arguments)
    alike.load_state_dict(backbone.state_dict())
    assert not torch.allclose(alike(windows), forecast)


def test_each_token_of_a_covariate_with_categories_has_its_name() -> None:
    categories = ((), ("x", "y", "z"), (), ("u", "v"))
    backbone = build(replace(toy_task(C=2, covariates=True), covariate_categories=categories))
    assert backbone.token_ends(9) == ["a", "b", "rain", *["wind"] * 3, "price", *["holiday"] * 2]


def test_tokens_of_covariates_lie_in_every_group() -> None:
    task = toy_task(C=4, covariates=True)
    backbone = build(task, attention=MLR, groups=GROUPS, calendar=True)
    count = 2 + 2 + 6
    assert CovariateTokens.count(task, True) == count
    blocks, further = backbone.groups.blocks(torch.device("cpu"))
    assert blocks.shape == (2, 1, 4 + count)
    assert further.tolist() == [False] * 4 + [True] * count
    seen: list[dict[str, Tensor]] = []
    attention = backbone.encoder.blocks[0].attention
    attention.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    backbone(toy_windows(task))
    assert seen[0]["global_tokens"] is further


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"groups": "all"}, "groups must be a list or null, not 'all'"),
    ({"groups": []}, r"groups must be a list of levels, coarse to fine, not \[\]"),
    ({"groups": [[0, 0, 1]]}, "level 1 of groups lists 3 groups for 4 channels"),
    ({"groups": ["all", [0, 0, 1, 1.5]]}, "level 2 of groups must hold whole numbers or names of groups, not 1.5"),
    ({"groups": ["some"]}, "level 1 of groups must be a list with a group for each channel, a mapping .*, not 'some"),
    ({"groups": [{"x": ["a", "OT"]}]}, "level 1 of groups names a channel 'OT' that the data lacks; valid: a, b, c, d"),
    ({"groups": [{"x": ["a", "b"], "y": ["c"]}]}, "level 1 of groups has no group for d"),
    ({"groups": [{"x": ["a", "b"], "y": ["b", "c", "d"]}]}, "level 1 of groups puts channel b into 2 groups"),
    ({"groups": [{"x": "abcd"}]}, "level 1 of groups must give a list of channels for group x, not 'abcd'"),
    ({"groups": ["all"]}, "groups have 1 level, but attention mlr has 2 ranks: give one level for each rank"),
    ({"groups": GROUPS, "attention": "btt"}, "groups need attention mlr, and no layer has it"),
    ({"groups": GROUPS, "attention": ["swa", MLR]}, "attention swa needs an order of tokens"),
    (
        {"groups": GROUPS, "attention": {**MLR, "blocks": [1, 2]}},
        "attention mlr takes its blocks from groups here: leave blocks out",
    ),
]


def test_wrong_arguments_are_refused() -> None:
    for arguments, message in MISTAKES:
        with pytest.raises(UserError, match=message) as caught:
            build_backbone({"kind": "itransformer", **SMALL, "attention": MLR, **arguments}, toy_task(C=4))
        assert "\n" not in str(caught.value)


def test_a_covariate_is_a_token_and_its_place_is_known() -> None:
    """The tokens of channels come first; those of covariates tell which they are."""
    task = replace(toy_task(C=4, covariates=True), static=(), categories=())
    backbone = build(task)
    windows = toy_windows(task)
    tokens = backbone.tokens(InstanceNorm(windows.past).normalised().transpose(1, 2))
    whole = backbone.covariates.append(tokens, windows)
    assert torch.equal(whole[:, :4], tokens)
    numbers = torch.cat([windows.past_covariates, windows.future_covariates[:, :24]], -1)
    weight, which = backbone.covariates.value.weight, backbone.covariates.which
    torch.testing.assert_close(whole[:, 4:], torch.einsum("blk,dl->bkd", numbers, weight) + which)
    swapped = replace(windows, past_covariates=windows.past_covariates.flip(-1))
    assert not torch.allclose(backbone(swapped), backbone(windows))
