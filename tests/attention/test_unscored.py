"""The ablations, written out with Python loops: the token itself, equal weights, learned weights of places."""

import pytest
import torch
from torch import Tensor

from tests.attention.cases import CASES, D_MODEL, NUM_HEADS, UNSCORED, build, each_impl
from tests.attention.cases import tokens as random_tokens
from tsattn.attention import Attention, build_attention
from tsattn.errors import UserError

T = 11


def weight(attention: Attention, case: str, head: int, i: int, keys: list[int]) -> Tensor:
    """The weights with which query i mixes these keys."""
    kind = CASES[case]["kind"]
    if kind == "identity":
        return torch.tensor([float(j == i) for j in keys]).double()
    if kind == "uniform":
        return torch.full((len(keys),), 1 / len(keys), dtype=torch.float64)
    table = attention.pattern.table
    first = table.shape[1] - T if attention.pattern.align == "end" else 0
    return torch.softmax(torch.stack([table[head, first + i, first + j] for j in keys]), 0)


@pytest.mark.parametrize(
    ("case", "causal"), [(case, turn % 2 == 0) for turn, case in enumerate([*UNSCORED, *UNSCORED[:1]])]
)
def test_weights_are_those_of_the_definition(case: str, causal: bool) -> None:
    attention = build(case, length=16, causal=causal)
    x = torch.randn(1, T, D_MODEL, dtype=torch.float64)
    values = attention.value(x)[0].unflatten(-1, (attention.num_kv_heads, attention.head_dim))
    rows = []
    for i in range(T):
        keys = [*range(i + 1)] if causal else [*range(T)]
        heads = []
        for head in range(NUM_HEADS):
            group = head * attention.num_kv_heads // NUM_HEADS
            mixing = weight(attention, case, head, i, keys)
            heads.append(sum(w * values[j, group] for w, j in zip(mixing, keys, strict=True)))
        rows.append(torch.cat(heads))
    expected = attention.output(torch.stack(rows))[None]
    for _ in each_impl(attention):
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", ["identity-grouped", "uniform-grouped", "fixed_mixing"])
def test_there_are_no_parameters_that_do_nothing(case: str) -> None:
    attention = build(case, length=16)
    names = {"value.weight", "value.bias", "output.weight", "output.bias"}
    if CASES[case]["kind"] == "fixed_mixing":
        names |= {"pattern.table"}
        assert attention.pattern.num_params() == NUM_HEADS * 16 * 16
    assert {name for name, _ in attention.named_parameters()} == names
    attention(torch.randn(2, 16, D_MODEL, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in attention.parameters())


@pytest.mark.parametrize("kind", ["identity", "uniform"])
def test_equal_weights_are_scores_of_zero(kind: str) -> None:
    """As standard attention whose queries are zero, over a window of one token or over all, biases included."""
    scored = build_attention(
        {"kind": "swa", "window_size": 1} if kind == "identity" else "standard", d_model=16, num_heads=4, causal=True
    )
    torch.nn.init.zeros_(scored.projection.query.weight)
    torch.nn.init.zeros_(scored.projection.query.bias)
    attention = build_attention(kind, d_model=16, num_heads=4, causal=True)
    attention.load_state_dict(
        {name: part for name, part in scored.state_dict().items() if not name.startswith("projection")}
    )
    x, bias = torch.randn(2, 9, 16), torch.randn(2, 4, 9, 9)
    mask = torch.arange(9) > torch.tensor([[3], [-1]])
    for more in ({}, {"bias": bias}, {"attention_mask": mask}, {"positions": torch.randperm(9)}):
        expected, found = scored(x, **more), attention(x, **more)
        real = mask if "attention_mask" in more else torch.ones_like(mask)
        torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-6)


def test_what_direct_does_not_take_is_refused() -> None:
    x = torch.randn(1, 5, 16)
    for kind in ("identity", "uniform"):
        attention = build_attention({"kind": kind, "impl": "direct"}, d_model=16, num_heads=4)
        with pytest.raises(UserError, match=r"^impl direct cannot compute this attention: it takes no bias, which re"):
            attention(x, bias=torch.zeros(5, 5))
    for kind in ("identity", "uniform", "fixed_mixing"):
        attention = build_attention(
            {"kind": kind, "impl": "direct", "dropout": 0.5}, d_model=16, num_heads=4, max_length=5
        )
        with pytest.raises(UserError, match="it takes no dropout of weights, which reference does"):
            attention.train()(x)


def test_a_table_has_so_many_places() -> None:
    with pytest.raises(UserError, match="fixed_mixing attention needs max_length, the number of its places"):
        build_attention("fixed_mixing", d_model=16, num_heads=4)
    attention = build("fixed_mixing", length=8)
    x = random_tokens(9)
    with pytest.raises(UserError, match="9 tokens are more than max_length 8, the most it is made for"):
        attention(x)
    with pytest.raises(UserError, match="positions must lie from 0 to 7, the places of the learned table"):
        attention(x[:, :3], positions=torch.tensor([3, 8, 1]))
    with pytest.raises(UserError, match=r"cannot decode step by step with align=end, .* needs align=start$"):
        build("fixed_mixing", length=8, causal=True).new_cache(1)
