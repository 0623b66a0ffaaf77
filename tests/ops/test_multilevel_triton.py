"""The Triton kernel of multi-level attention, under Triton's interpreter, or on a CUDA device where there is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.ops.triton_cases import DEVICE, DOUBLING, EIGHT, Case, check_case, make_blocks, needs_triton
from tsattn.ops import multilevel_triton
from tsattn.ops.masks import RegularBlocks
from tsattn.ops.multilevel_triton import TileSizes, multilevel_attention_triton

pytestmark = needs_triton

FOUR: dict[str, Any] = {"ranks": (8, 6, 4, 2), "counts": (1, 2, 6, 12)}
EVERY_TILE: dict[str, Any] = {"tokens": 67, "max_length": 128}  # of eight levels
CASES = {
    "one token": Case(1, **FOUR, causal=True, padded=True, batch=2),
    "part of a tile": Case(7, **FOUR, padded=True, batch=2),
    "causal": Case(7, **FOUR, causal=True),
    "whole tiles": Case(64, **FOUR),
    "one level": Case(33, ranks=(12,), counts=(1,), causal=True, padded=True, batch=2),
    "every tile": Case(**EVERY_TILE),
    "every tile, padded": Case(**EVERY_TILE, tiles=(16, 32), causal=True, padded=True),
    "odd ranks": Case(35, ranks=(5, 3, 4), counts=(2, 6, 18), causal=True, scale=0.3),
    "narrow levels": Case(35, ranks=(3,) * 8, counts=DOUBLING, scale=-0.5),
    "three chunks": Case(35, ranks=(40, 20, 10), counts=(1, 3, 6), causal=True),
    "a wide last level": Case(35, ranks=(2, 30), counts=(1, 4), heads=4, groups=2),
    "whole chunks": Case(35, ranks=(16, 16, 16, 16), counts=(1, 2, 4, 8), heads=2, groups=2),
    "no scale": Case(33, ranks=(8, 4), counts=(1, 2), scale=0.0),
    "bfloat16": Case(37, ranks=(8, 6, 4), counts=(1, 2, 4), dtype=torch.bfloat16, causal=True, padded=True),
    "float16": Case(37, ranks=(8, 6, 4), counts=(1, 2, 4), dtype=torch.float16),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(CASES[case], monkeypatch)


def test_the_sizes_of_real_runs_are_exact_too() -> None:
    check_case(Case(67, causal=True))
    check_case(Case(71, dtype=torch.bfloat16))


def test_more_keys_or_more_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    for tokens, keys in ((20, 37), (37, 20), (1, 35)):
        case = Case(tokens, keys, ranks=(8, 4), counts=(1, 2), causal=True)
        check_case(case, monkeypatch, query_positions=torch.arange(tokens)[None] + max(0, keys - tokens))


def test_rows_with_blocks_and_positions_of_their_own_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = torch.arange(35)[None] + torch.tensor([[0], [13]])
    drawn = torch.randperm(35, generator=torch.Generator().manual_seed(0))[None]
    for places, padded in ((shifted, True), (drawn, False)):
        blocks = make_blocks((1, 3, 9), places, 48)
        case = Case(35, ranks=(8, 6, 4), counts=(1, 3, 9), causal=True, padded=padded, batch=len(places))
        given = {"query_blocks": blocks, "query_positions": places}
        check_case(case, monkeypatch, **given, key_blocks=blocks, key_positions=places)
        if padded:
            check_case(case, monkeypatch, **given, key_blocks=blocks[:, 1:])


def test_blocks_that_do_not_nest_and_ids_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    time = torch.arange(35)
    blocks = torch.stack([time // 20, time // 7, time % 2])[:, None]
    check_case(Case(35, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=blocks, key_blocks=blocks)
    for few in ((blocks + 2**40)[..., :19], blocks.to(torch.int32)[..., :19]):
        check_case(Case(19, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=few, key_blocks=few)


@pytest.mark.parametrize(("rows", "causal", "of_keys"), [(1, True, True), (2, False, True), (2, True, False)])
def test_global_tokens_share_every_level(
    rows: int, causal: bool, of_keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(35, ranks=(8, 6, 4), counts=(2, 4, 12), batch=2, causal=causal, padded=True)
    everywhere = torch.zeros(rows, 35, dtype=torch.bool)
    everywhere[0, [3, 33]] = True
    everywhere[-1, 16:32] = True  # a whole tile
    check_case(case, monkeypatch, global_queries=everywhere, global_keys=everywhere & of_keys)


def test_a_query_without_keys_gives_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.ones(2, 35, dtype=torch.bool)
    mask[0] = False
    mask[1, :9] = False
    case = Case(35, ranks=(8, 4), counts=(1, 2), causal=True, batch=2)
    out, grad_q, grad_k, grad_v = check_case(case, monkeypatch, key_mask=mask)
    for t in (out, grad_q, grad_k, grad_v):
        assert not t[0].any()
        assert not t[1, :, :9].any()


def test_logits_of_ten_thousand_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (100 * torch.randn(1, 1, 35, 12, generator=generator).to(DEVICE) for _ in range(2))
    v = torch.randn(1, 1, 35, 8, generator=generator).to(DEVICE)
    case = Case(35, ranks=(8, 4), counts=(1, 2), width=8, causal=True, scale=1.0)
    # such weights are 0 or 1, so that only rounding is left of the gradients of q and k, times 100
    check_case(case, monkeypatch, tensors=(q, k, v), tolerance=2e-2)


def test_regular_blocks_are_found_from_their_numbers_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(16, 32, 4, 2, parts=2))
    regular = RegularBlocks(7, 43, numbers=(1, 2, 10), max_length=50)
    places = torch.arange(7, 50)[None]
    blocks = make_blocks((1, 2, 10), places, 50).to(DEVICE)
    wide = torch.randn(3, 1, 1, 43, 18, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    shared = {"ranks": (8, 6, 4), "query_blocks": blocks, "key_blocks": blocks, "causal": True}
    results = []
    for said in ({}, {"regular": regular}):
        leaves = [t.detach().requires_grad_() for t in wide]
        with torch.inference_mode():  # what is kept must be of use to gradients later
            multilevel_attention_triton(*wide, **shared, **said)
        out = multilevel_attention_triton(*leaves, **shared, **said)
        results.append([out.detach(), *torch.autograd.grad(out.square().sum(), leaves)])
    for known, *others in zip(*results, strict=True):
        assert all(torch.equal(known, other) for other in others)
    mask = torch.arange(43, device=DEVICE)[None] > 7
    masked = multilevel_attention_triton(*wide, **shared, key_mask=mask)
    assert torch.equal(multilevel_attention_triton(*wide, **shared, key_mask=mask, regular=regular), masked)
    assert not torch.equal(masked, results[0][0])


def test_inputs_that_are_views(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    case = Case(35, ranks=(8, 4), counts=(1, 2), batch=2, heads=2, groups=2, width=12)
    wide = torch.randn(2, 35, 3, 2, 12, generator=generator).to(DEVICE)
    q, k, v = wide.permute(2, 0, 3, 1, 4)  # heads inside tokens, all three in one tensor
    check_case(case, monkeypatch, tensors=(q, k, v))
    turned = torch.randn(2, 2, 12, 35, generator=generator).to(DEVICE).transpose(-1, -2)
    one = torch.randn(1, 1, 35, 12, generator=generator).to(DEVICE).expand(2, 2, 35, 12)
    every_other = torch.randn(4, 2, 35, 12, generator=generator).to(DEVICE)[::2]
    check_case(case, monkeypatch, tensors=(turned, one, every_other))


def test_an_expanded_output_gradient_and_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(16, 16, 4, 2))
    q, k, v = (torch.ones(1, 1, 20, 4, device=DEVICE, requires_grad=True) for _ in range(3))
    ids = torch.zeros(1, 1, 20, dtype=torch.long, device=DEVICE)
    multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids).sum().backward()
    assert v.grad is not None
    torch.testing.assert_close(v.grad, torch.ones_like(v))
    with torch.no_grad():
        assert not multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids).requires_grad


def test_the_same_twice_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(35, ranks=(8, 6, 4), counts=(1, 2, 4), heads=2, groups=1, causal=True)
    for first, second in zip(check_case(case, monkeypatch), check_case(case, monkeypatch), strict=True):
        assert torch.equal(first, second)


def test_no_tokens() -> None:
    q = torch.ones(1, 1, 3, 4, device=DEVICE, requires_grad=True)
    empty = torch.ones(1, 1, 0, 4, device=DEVICE)
    ids = torch.zeros(1, 1, 3, dtype=torch.long, device=DEVICE)
    out = multilevel_attention_triton(q, empty, empty, ranks=[4], query_blocks=ids, key_blocks=ids[..., :0])
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("tokens", "dtype", "causal"),
    [
        (1000, torch.float32, True),
        (1024, torch.float16, True),
        (1024, torch.bfloat16, True),
        (4096, torch.bfloat16, True),
        (4096, torch.float32, False),
    ],
)
def test_long_sequences_on_the_gpu(tokens: int, dtype: torch.dtype, causal: bool) -> None:
    check_case(Case(tokens, dtype=dtype, causal=causal, padded=causal, batch=2, heads=4, groups=2, width=64))


@pytest.mark.gpu
def test_memory_on_the_gpu_is_linear() -> None:
    T = 16384
    q, k, v = (torch.randn(1, 8, T, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ids = make_blocks(DOUBLING, torch.arange(T)[None], T).cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    multilevel_attention_triton(q, k, v, ranks=EIGHT, query_blocks=ids, key_blocks=ids).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 0.05 * 8 * T * T * 2


@pytest.mark.parametrize(("first", "causal", "counts"), [(16, False, (1, 4, 4)), (0, True, (1, 2, 8))])
def test_boundaries_at_multiples_of_sixteen(
    first: int, causal: bool, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = RegularBlocks(first, 75, numbers=counts, max_length=128)
    places = torch.arange(first, first + 75)
    blocks = make_blocks(counts, places[None], 128)
    case = Case(75, ranks=(8, 6, 4), counts=counts, causal=causal, tiles=(32, 64))
    check_case(case, monkeypatch, query_blocks=blocks, key_blocks=blocks, regular=regular)
