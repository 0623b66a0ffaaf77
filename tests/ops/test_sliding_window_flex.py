"""Sliding windows by FlexAttention: as it stands on a CPU (forward only), compiled on CUDA where there is one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tsattn.ops import sliding_window, sliding_window_attention
from tsattn.ops.masks import without_padding
from tsattn.ops.sliding_window import TILE, sliding_window_attention_flex, window_block_mask

T = 300


def tokens(case: str, length: int = T, device: str = "cpu") -> dict[str, Any]:
    places = torch.arange(length)
    said: dict[str, Any] = {
        "plain": {},
        "causal": {"causal": True},
        "padded": {"key_mask": places[None] >= torch.tensor([[130], [7]])},
        "row of padding": {"key_mask": torch.stack([places < 0, places >= 0])},
        "globals": {"global_tokens": (places % 97 == 3)[None], "causal": True},
        "globals of each row": {"global_tokens": torch.stack([places == 5, places == 250])},
        "own positions": {"positions": torch.stack([places, places.flip(0) + 3]), "causal": True},
        "gaps": {"positions": 2 * places[None]},
    }[case]
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in said.items()}


CASES = ("plain", "causal", "padded", "row of padding", "globals", "globals of each row", "own positions", "gaps")


def call(q: Tensor, k: Tensor, v: Tensor, window_size: int, said: dict[str, Any]) -> Tensor:
    whole: dict[str, Any] = {
        "positions": torch.arange(q.shape[2], device=q.device)[None],
        "causal": False,
        "key_mask": None,
        "global_tokens": None,
        **said,
    }
    return sliding_window_attention_flex(q, k, v, window_size=window_size, scale=0.3, **whole)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("case", "window_size"), [*((case, 140) for case in CASES), ("globals", 1), ("padded", 1000)])
def test_equals_the_reference(case: str, window_size: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, T, width) for heads, width in ((4, 16), (2, 16), (2, 24)))
    said = tokens(case)
    expected = sliding_window_attention(q, k, v, window_size=window_size, scale=0.3, impl="reference", **said)
    q, k, v = without_padding(said.get("key_mask"), q, k, v)  # as the other implementations are given them
    torch.testing.assert_close(call(q, k, v, window_size, said), expected, rtol=1e-5, atol=1e-5)


def test_few_components_are_left_to_another_path() -> None:
    """Its kernel takes 16 at least; asked on a device that says it is CUDA."""
    for widths in ((16, 16), (8, 8), (4, 16), (16, 8)):
        q, v = (SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32, shape=(1, 1, T, w)) for w in widths)
        reason = sliding_window._why_not_flex(q, v, None, 0.0)
        assert reason is None if widths == (16, 16) else "no fewer than 16 components" in str(reason)


def test_only_tiles_that_a_window_touches_are_visited() -> None:
    length = 1000
    window_size = 100
    mask = window_block_mask(torch.arange(length)[None], window_size)
    places = torch.arange(length)
    near = (places[:, None] - places).abs() < window_size
    filled = torch.nn.functional.pad(near, (0, -length % TILE, 0, -length % TILE))
    touched = filled.unflatten(0, (-1, TILE)).unflatten(2, (-1, TILE)).any(1).any(-1)
    assert torch.equal(mask.to_dense()[0, 0].bool(), touched)


@pytest.mark.parametrize(
    ("case", "window_size", "in_order"),
    [
        *((case, (20, 140)[turn % 2], False) for turn, case in enumerate(CASES)),
        ("plain", 20, True),
        ("causal", 140, True),
    ],
)
def test_no_pair_is_missed_and_whole_tiles_need_no_mask(case: str, window_size: int, in_order: bool) -> None:
    said = {**tokens(case), "in_order": in_order}
    positions = said.pop("positions", torch.arange(T)[None])
    mask = window_block_mask(positions, window_size, **said)
    assert mask.full_kv_num_blocks is not None
    assert mask.full_kv_indices is not None
    b, n, s = torch.meshgrid(torch.arange(2), torch.arange(T), torch.arange(T), indexing="ij")
    seen = mask.mask_mod(b, torch.zeros_like(b), n, s)
    rows = mask.kv_num_blocks.shape[0]
    if in_order:
        far = (n - s).abs() >= window_size
        assert torch.equal(seen, ~(far | (n < s)) if said.get("causal") else ~far)
    for row in range(2):
        of = row if rows > 1 else 0
        for own in range(-(-T // TILE)):
            whole = mask.full_kv_indices[of, 0, own, : mask.full_kv_num_blocks[of, 0, own]].tolist()
            partly = mask.kv_indices[of, 0, own, : mask.kv_num_blocks[of, 0, own]].tolist()
            for other in range(-(-T // TILE)):
                pairs = seen[row, own * TILE : (own + 1) * TILE, other * TILE : (other + 1) * TILE]
                assert other not in whole or bool(pairs.all())
                assert other in (*whole, *partly) or not pairs.any()


@pytest.mark.gpu
@pytest.mark.parametrize("widths", [(8, 8), (4, 8), (64, 64)])
def test_what_auto_takes_on_the_gpu(widths: tuple[int, int]) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 512, widths[i], device="cuda", requires_grad=True) for i in (0, 0, 1))
    outs = [sliding_window_attention(q, k, v, window_size=20, impl=impl) for impl in ("auto", "reference")]
    torch.testing.assert_close(*outs, rtol=2e-3, atol=2e-3)
    outs[0].sum().backward()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "dtype"), [(case, (torch.float32, torch.bfloat16)[turn % 2]) for turn, case in enumerate(CASES[1:6])]
)
def test_values_and_gradients_on_the_gpu(case: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    said = tokens(case, 1000, "cuda")
    wide = [torch.randn(2, 4, 1000, 64, device="cuda") for _ in range(3)]
    results = []
    for impl in ("flex", "reference"):
        leaves = [t.to(dtype).to(dtype if impl == "flex" else torch.float32).requires_grad_() for t in wide]
        out = sliding_window_attention(*leaves, window_size=100, scale=0.3, impl=impl, **said)
        results.append([out.float(), *(g.float() for g in torch.autograd.grad(out.float().square().sum(), leaves))])
    tolerance = 1e-3 if dtype == torch.float32 else 3e-2
    for one, other in zip(*results, strict=True):
        assert float((one - other).abs().max()) <= tolerance * max(0.5, float(other.abs().max()))
