from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsattn.data import batch_order
from tsattn.data.batch_order import ShuffledBatches, TrainingLoader, spread


def listed(batches: ShuffledBatches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


SIZES = st.tuples(st.integers(1, 60), st.integers(1, 9))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(sizes=SIZES, epoch=st.integers(0, 3))
def test_an_epoch_has_every_window_once(sizes: tuple[int, int], epoch: int) -> None:
    batches = ShuffledBatches(*sizes, seed=1)
    batches.set_epoch(epoch)
    found = listed(batches)
    assert len(found) == len(batches)
    assert sorted(chain(*found)) == list(range(sizes[0]))
    assert all(len(batch) == sizes[1] for batch in found[:-1])


def test_seed_and_epoch_decide_the_order() -> None:
    orders = []
    for seed, epoch in ((1, 0), (1, 1), (2, 0)):
        batches = ShuffledBatches(50, 8, seed)
        batches.set_epoch(epoch)
        orders.append(listed(batches))
        assert listed(batches) == orders[-1]
    assert all(one != other for one, other in pairwise([*orders, orders[0]]))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(sizes=SIZES, total=st.integers(1, 40), position=st.integers(0, 40))
def test_it_goes_on_at_any_batch_through_all_epochs(sizes: tuple[int, int], total: int, position: int) -> None:
    position = min(position, total)
    whole = listed(ShuffledBatches(*sizes, seed=1, total=total))
    assert len(whole) == total
    one_by_one = []
    for epoch in range(total):
        batches = ShuffledBatches(*sizes, seed=1)
        batches.set_epoch(epoch)
        one_by_one += listed(batches)
    assert whole == one_by_one[:total], "the epochs, one after the other"
    rest = ShuffledBatches(*sizes, seed=1, total=total)
    rest.position = position
    assert listed(rest) == whole[position:]


def test_processes_share_every_batch() -> None:
    shared = []

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given(sizes=SIZES, world=st.integers(2, 4))
    def check(sizes: tuple[int, int], world: int) -> None:
        windows, size = sizes
        alone = listed(ShuffledBatches(windows, size * world, seed=1))
        shares = [listed(ShuffledBatches(windows, size, 1, rank, world)) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1, "or one would wait for the others for ever"
        assert len(shares[0]) == windows // (size * world) + (windows % (size * world) >= world)
        for batch, *parts in zip(alone, *shares, strict=False):
            assert len({len(part) for part in parts}) == 1, "each counts alike in the mean of the gradients"
            together = list(chain(*parts))
            assert len(set(together)) == len(together)
            assert set(together) <= set(batch)
            assert len(batch) - len(together) < world
            shared.append(together)

    check()
    assert len(shared) > 100, "batches were drawn"


def test_a_checkpoint_counts_the_batches_that_were_seen() -> None:
    def loader() -> TrainingLoader:
        batches = ShuffledBatches(50, 8, seed=1, total=12)
        return TrainingLoader(Numbers(), batches, collate_fn=lambda batch: batch)  # type: ignore[arg-type]

    whole = [batch.tolist() for batch in loader()]
    first = loader()
    seen = [batch.tolist() for _, batch in zip(range(5), first, strict=False)]
    assert first.state_dict() == {"seen": 5}
    second = loader()
    second.load_state_dict({"seen": 5})
    assert seen + [batch.tolist() for batch in second] == whole
    assert second.state_dict() == {"seen": 12}


class Numbers:
    """A data set that answers with the numbers that it is asked for."""

    def __getitems__(self, indices: np.ndarray) -> np.ndarray:
        return indices


def test_some_windows_are_spread_over_all_of_them() -> None:
    assert spread(7, 7) == spread(7, 9) == range(7)
    numbers = spread(1000, 30)
    stretches = np.arange(31) * 1000 // 30
    assert ((numbers >= stretches[:-1]) & (numbers < stretches[1:])).all(), "one of each stretch"
    assert len(set(np.diff(numbers))) > 5, "not at equal distances"
    np.testing.assert_array_equal(numbers, spread(1000, 30))


@pytest.mark.parametrize("drawn", [1, 2, 1000])
def test_of_very_many_windows_as_many_are_drawn(drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_order, "_PERMUTED", 10)
    monkeypatch.setattr(batch_order, "_DRAWN", drawn)
    batches = ShuffledBatches(25, 10, seed=1, total=9)
    found = listed(batches)
    assert [len(batch) for batch in found] == [10, 10, 5] * 3
    assert len(set(map(tuple, found))) == 9
    rest = ShuffledBatches(25, 10, seed=1, total=9)
    rest.position = 4
    assert listed(rest) == found[4:]
