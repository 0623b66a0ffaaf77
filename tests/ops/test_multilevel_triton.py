"""The Triton kernel of multi-level attention, under Triton's interpreter, or on a CUDA device where there is one."""

from __future__ import annotations

import pytest
import torch

from tests.ops.triton_cases import DEVICE, DOUBLING, EIGHT, Case, check_case, make_blocks, needs_triton
from tsattn.ops import multilevel_triton
from tsattn.ops.masks import RegularBlocks
from tsattn.ops.multilevel_triton import TileSizes, multilevel_attention_triton


@needs_triton
@pytest.mark.parametrize(
    ("tokens", "causal", "padded"),
    [(1, True, True), (7, False, True), (7, True, False), (33, True, True), (33, False, False), (64, False, False)],
)
def test_equals_the_reference_at_every_length(
    tokens: int, causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, counts = (((8, 6, 4, 2), (1, 2, 6, 12)), ((12,), (1,)))[tokens == 33]
    case = Case(tokens, ranks=ranks, counts=counts, causal=causal, padded=padded, batch=1 + padded)
    check_case(case, monkeypatch)


@needs_triton
@pytest.mark.parametrize(
    ("tiles", "causal", "padded"), [((32, 16), False, False), ((16, 32), True, True), ((32, 16), True, False)]
)
def test_eight_levels_use_every_kind_of_tile(
    tiles: tuple[int, int], causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_case(Case(98, causal=causal, padded=padded, tiles=tiles, max_length=128), monkeypatch)


@needs_triton
def test_the_sizes_of_real_runs_are_exact_too() -> None:
    check_case(Case(130, causal=True))
    check_case(Case(140, dtype=torch.bfloat16))


@needs_triton
@pytest.mark.parametrize(
    ("ranks", "counts"),
    [
        ((5, 3, 4), (2, 6, 18)),
        ((3,) * 8, DOUBLING),
        ((40, 20, 10), (1, 3, 6)),
        ((2, 30), (1, 4)),
        ((16, 16, 16, 16), (1, 2, 4, 8)),
    ],
)
def test_ranks_and_blocks(ranks: tuple[int, ...], counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(Case(50, ranks=ranks, counts=counts, causal=len(ranks) == 3), monkeypatch)


@needs_triton
def test_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype, causal in ((torch.bfloat16, True), (torch.float16, False)):
        check_case(Case(65, dtype=dtype, causal=causal, padded=causal, ranks=(8, 6, 4), counts=(1, 2, 4)), monkeypatch)


@needs_triton
def test_more_keys_or_more_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    for tokens, keys in ((40, 70), (70, 40), (1, 50)):
        case = Case(tokens, keys, ranks=(8, 4), counts=(1, 2), causal=True)
        check_case(case, monkeypatch, query_positions=torch.arange(tokens)[None] + max(0, keys - tokens))


@needs_triton
def test_grouped_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    check_case(Case(40, heads=6, groups=2, ranks=(8, 4), counts=(1, 2)), monkeypatch)
    check_case(Case(40, heads=2, groups=2, ranks=(8, 4), counts=(1, 2)), monkeypatch)


@needs_triton
def test_rows_with_blocks_and_positions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shift = torch.tensor([[0], [13]])
    positions = torch.arange(50)[None] + shift
    blocks = make_blocks((1, 3, 9), positions, 90)
    case = Case(50, ranks=(8, 6, 4), counts=(1, 3, 9), causal=True, padded=True, batch=2)
    check_case(
        case, monkeypatch, query_blocks=blocks, key_blocks=blocks, query_positions=positions, key_positions=positions
    )
    check_case(case, monkeypatch, query_blocks=blocks, key_blocks=blocks[:, 1:], query_positions=positions)


@needs_triton
def test_positions_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    positions = torch.randperm(50, generator=torch.Generator().manual_seed(0))[None]
    case = Case(50, ranks=(8, 6, 4), counts=(1, 3, 9), causal=True)
    blocks = make_blocks(case.counts, positions, 50)
    check_case(
        case, monkeypatch, query_blocks=blocks, key_blocks=blocks, query_positions=positions, key_positions=positions
    )


@needs_triton
def test_blocks_that_do_not_nest_and_ids_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    time = torch.arange(50)
    blocks = torch.stack([time // 30, time // 7, time % 2])[:, None]
    check_case(Case(50, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=blocks, key_blocks=blocks)
    far = blocks + 2**40
    check_case(Case(33, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=far[..., :33],
            key_blocks=far[..., :33])  # fmt: skip
    narrow = blocks.to(torch.int32)
    check_case(Case(33, ranks=(8, 6, 4), counts=()), monkeypatch, query_blocks=narrow[..., :33],
            key_blocks=narrow[..., :33])  # fmt: skip


@needs_triton
@pytest.mark.parametrize(("rows", "causal"), [(1, True), (2, False)])
def test_global_tokens_share_every_level(rows: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(50, ranks=(8, 6, 4), counts=(2, 4, 12), batch=2, causal=causal, padded=True)
    everywhere = torch.zeros(rows, 50, dtype=torch.bool)
    everywhere[0, [3, 40]] = True
    everywhere[-1, 16:32] = True  # a whole tile
    check_case(case, monkeypatch, global_queries=everywhere, global_keys=everywhere)
    check_case(case, monkeypatch, global_queries=everywhere, global_keys=torch.zeros_like(everywhere))


@needs_triton
def test_a_query_without_keys_gives_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[0] = False
    mask[1, :9] = False
    case = Case(40, ranks=(8, 4), counts=(1, 2), causal=True, batch=2)
    out, grad_q, grad_k, grad_v = check_case(case, monkeypatch, key_mask=mask)
    for t in (out, grad_q, grad_k, grad_v):
        assert not t[0].any()
        assert not t[1, :, :9].any()


@needs_triton
def test_logits_of_ten_thousand_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (100 * torch.randn(1, 1, 40, 12, generator=generator).to(DEVICE) for _ in range(2))
    v = torch.randn(1, 1, 40, 8, generator=generator).to(DEVICE)
    case = Case(40, ranks=(8, 4), counts=(1, 2), width=8, causal=True, scale=1.0)
    # such weights are 0 or 1, so that only rounding is left of the gradients of q and k, times 100
    check_case(case, monkeypatch, tensors=(q, k, v), tolerance=2e-2)


@needs_triton
@pytest.mark.parametrize("causal", [False, True])
def test_regular_blocks_are_found_from_their_numbers_and_kept(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(16, 32, 4, 2, parts=2))
    regular = RegularBlocks(7, 43, numbers=(1, 2, 10), max_length=50)
    places = torch.arange(7, 50)[None]
    blocks = make_blocks((1, 2, 10), places, 50).to(DEVICE)
    wide = torch.randn(3, 1, 2, 43, 18, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    shared = {"ranks": (8, 6, 4), "query_blocks": blocks, "key_blocks": blocks, "causal": causal}
    results = []
    for said in ({}, {"regular": regular}, {"regular": regular}):
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


@needs_triton
def test_any_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    for scale in (0.3, 0.0, -0.5):
        check_case(Case(33, ranks=(8, 4), counts=(1, 2), scale=scale), monkeypatch)


@needs_triton
def test_inputs_that_are_views(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    case = Case(40, ranks=(8, 4), counts=(1, 2), batch=2, heads=2, groups=2, width=12)
    wide = torch.randn(2, 40, 3, 2, 12, generator=generator).to(DEVICE)
    q, k, v = wide.permute(2, 0, 3, 1, 4)  # heads inside tokens, all three in one tensor
    check_case(case, monkeypatch, tensors=(q, k, v))
    turned = torch.randn(2, 2, 12, 40, generator=generator).to(DEVICE).transpose(-1, -2)
    one = torch.randn(1, 1, 40, 12, generator=generator).to(DEVICE).expand(2, 2, 40, 12)
    every_other = torch.randn(4, 2, 40, 12, generator=generator).to(DEVICE)[::2]
    check_case(case, monkeypatch, tensors=(turned, one, every_other))


@needs_triton
def test_an_expanded_output_gradient_and_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilevel_triton, "tile_sizes", lambda *_: TileSizes(16, 16, 4, 2))
    q, k, v = (torch.ones(1, 1, 20, 4, device=DEVICE, requires_grad=True) for _ in range(3))
    ids = torch.zeros(1, 1, 20, dtype=torch.long, device=DEVICE)
    multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids).sum().backward()
    assert v.grad is not None
    torch.testing.assert_close(v.grad, torch.ones_like(v))
    with torch.no_grad():
        assert not multilevel_attention_triton(q, k, v, ranks=[4], query_blocks=ids, key_blocks=ids).requires_grad


@needs_triton
def test_the_same_twice_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(40, ranks=(8, 6, 4), counts=(1, 2, 4), heads=2, groups=1, causal=True)
    for first, second in zip(check_case(case, monkeypatch), check_case(case, monkeypatch), strict=True):
        assert torch.equal(first, second)


@needs_triton
def test_no_tokens() -> None:
    q = torch.ones(1, 1, 3, 4, device=DEVICE, requires_grad=True)
    empty = torch.ones(1, 1, 0, 4, device=DEVICE)
    ids = torch.zeros(1, 1, 3, dtype=torch.long, device=DEVICE)
    out = multilevel_attention_triton(q, empty, empty, ranks=[4], query_blocks=ids, key_blocks=ids[..., :0])
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), q)[0].any()


@needs_triton
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


@needs_triton
@pytest.mark.gpu
def test_memory_on_the_gpu_is_linear() -> None:
    T = 16384
    q, k, v = (torch.randn(1, 8, T, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    ids = make_blocks(DOUBLING, torch.arange(T)[None], T).cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    multilevel_attention_triton(q, k, v, ranks=EIGHT, query_blocks=ids, key_blocks=ids).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 0.05 * 8 * T * T * 2


@needs_triton
@pytest.mark.parametrize(
    ("first", "causal", "counts"), [(0, False, (1, 2, 4)), (16, True, (1, 4, 4)), (0, True, (1, 2, 8))]
)
def test_boundaries_at_multiples_of_sixteen(
    first: int, causal: bool, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = RegularBlocks(first, 75, numbers=counts, max_length=128)
    places = torch.arange(first, first + 75)
    blocks = make_blocks(counts, places[None], 128)
    case = Case(75, ranks=(8, 6, 4), counts=counts, causal=causal, heads=2, groups=1, tiles=(32, 64))
    check_case(case, monkeypatch, query_blocks=blocks, key_blocks=blocks, regular=regular)
