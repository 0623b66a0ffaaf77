"""Patches: every step in one, the newest step last in the last."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsattn.errors import UserError
from tsattn.layers import Patches


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int]:
    L = draw(st.integers(1, 60))
    patch_len = draw(st.integers(1, L))
    return L, patch_len, draw(st.integers(1, patch_len))


@given(sizes())
def test_no_step_is_left_out_and_the_last_patch_ends_at_the_last_step(sizes: tuple[int, int, int]) -> None:
    L, patch_len, stride = sizes
    patches = Patches(L, patch_len, stride)
    steps = torch.arange(L, dtype=torch.float32)
    cut = patches(steps[None])[0]
    assert cut.shape == (patches.count, patch_len)
    assert set(cut.flatten().tolist()) == set(steps.tolist())
    assert torch.equal(cut[-1], steps[-patch_len:])
    # in front of the first step stands the first step again
    assert torch.equal(cut.diff(dim=1).clamp(min=0), cut.diff(dim=1))
    assert torch.equal(cut[1:, -1] - cut[:-1, -1], torch.full((patches.count - 1,), float(stride)))


@given(sizes())
def test_one_more_patch_repeats_the_last_step(sizes: tuple[int, int, int]) -> None:
    L, patch_len, stride = sizes
    plain, padded = Patches(L, patch_len, stride), Patches(L, patch_len, stride, pad_end=True)
    steps = torch.arange(L, dtype=torch.float64)[None]
    cut = padded(steps)
    assert padded.count == plain.count + 1 == cut.shape[1]
    assert torch.equal(cut[:, :-1], plain(steps))
    known = steps[0, L - patch_len + stride :]
    assert torch.equal(cut[0, -1], torch.cat([known, steps[0, -1:].expand(stride)]))
    assert torch.equal(padded.ends(steps), torch.cat([plain.ends(steps), steps[:, -1:]], 1))
    assert torch.equal(padded.ends(steps), cut[..., -1])
    observed = torch.rand(1, L) > 0.3
    means, counts = padded.means(steps, observed)
    for one, other in zip((means, counts), plain.means(steps, observed), strict=True):
        assert torch.equal(one[:, :-1], other)
    seen = observed[0, L - patch_len + stride :]
    assert counts[0, -1] == seen.sum()
    assert means[0, -1] == (known[seen].mean() if seen.any() else 0)


def test_sizes_that_leave_steps_out_are_refused() -> None:
    for sizes, message in (
        ((8, 9, 1), "patch_len must be from 1 to the context length 8, not 9"),
        ((8, 0, 1), "patch_len must be from 1 to the context length 8, not 0"),
        ((8, 4, 5), "stride must be from 1 to patch_len 4, so that no step is left out, not 5"),
        ((8, 4, 0), "stride must be from 1 to patch_len 4"),
    ):
        with pytest.raises(UserError, match=message):
            Patches(*sizes)
