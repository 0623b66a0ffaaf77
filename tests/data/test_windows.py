"""Windows and batches of many series: each of one series, with its own covariates and categories."""

from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.data.many_series import COLUMNS, LENGTHS, SIZES, L, T, long_frame, prepared
from tests.wide_panels import wide_panel
from tsattn.data import FrameDataModule, Series, WindowDataset, panel_from_frame, scaled_series, windows
from tsattn.data.windows import ShuffledBatches, TrainingLoader
from tsattn.errors import UserError
from tsattn.scaler import Scaler

CONTEXT, HORIZON, C = 12, 5, 3


def series_of(rows: int, missing: bool) -> Series:
    values = np.random.default_rng(1).standard_normal((rows, C))
    if missing:
        values[::7, 1] = np.nan
    frame = pd.DataFrame(values, index=pd.date_range("2020-01-01", periods=rows, freq="h"))
    return scaled_series(wide_panel(frame, "toy"), Scaler((0.0,) * C, (1.0,) * C))


def test_windows_by_their_number() -> None:
    series = series_of(50, True)
    before = series.values.clone()
    dataset = WindowDataset(series, range(CONTEXT, 46), CONTEXT, HORIZON)
    assert torch.equal(dataset[7].past, dataset.__getitems__([7]).past)
    for number in (-1, len(dataset)):
        with pytest.raises(IndexError, match="numbered from 0 to 33"):
            dataset[number]
    dataset.__getitems__([0, 1]).past.zero_()
    assert torch.equal(series.values, before), "a batch does not share memory with the series"
    batch = series.windows(torch.tensor([0]), torch.tensor([50]), CONTEXT, 0)
    assert batch.target is batch.target_observed is None
    assert (batch.past.shape, batch.time.shape) == ((1, CONTEXT, C), (1, CONTEXT))
    with pytest.raises(UserError, match="2 ranges of origins were given for 1 series"):
        WindowDataset(series, [range(13, 15), range(13, 15)], CONTEXT, HORIZON)


def test_windows_are_cut_when_asked_for_not_copied_ahead() -> None:
    series = series_of(20_000, False)
    dataset = WindowDataset(series, range(CONTEXT, 19_000), CONTEXT, HORIZON)
    assert dataset.series.values.data_ptr() == series.values.data_ptr()
    held = [part for part in vars(dataset).values() if isinstance(part, Tensor)]
    assert sum(part.nbytes for part in held) <= 100, "no more than a range a series"


@pytest.mark.parametrize(("season", "share"), [(1, 0.3), (3, 0.0), (7, 0.3)])
def test_windows_know_their_targets_and_last_seasons_in_original_units(season: int, share: float) -> None:
    rng, lengths = np.random.default_rng(2), [40, 5, 30]
    y = np.round(100 + 9 * rng.standard_normal(sum(lengths)), 1)
    y[rng.random(len(y)) < share] = np.nan
    if share:
        y[2:40:7] = np.nan  # one place is never known
    days = [pd.date_range("2020-01-01", periods=length) for length in lengths]
    frame = pd.DataFrame({"unique_id": np.repeat([*"abc"], lengths), "ds": np.concatenate(days), "y": y})
    series = scaled_series(panel_from_frame(frame), Scaler((103.0,), (7.0,)))
    origins = [range(1, 37), range(3, 4), range(20, 28)]
    batch = WindowDataset(series, origins, 8, 2, [season]).__getitems__([*range(sum(map(len, origins)))])
    starts = np.cumsum([0, *lengths])
    ends = [(starts[number], starts[number] + row) for number, rows in enumerate(origins) for row in rows]
    np.testing.assert_array_equal(batch.units.target[..., 0], [y[end : end + 2] for _, end in ends])
    known = batch.units.seasons[season]
    for window, (start, end) in enumerate(ends):
        for place in range(season):
            row = end - season + place
            of_place = [y[i] for i in range(row, start - 1, -season) if not np.isnan(y[i])]
            of_any = [y[i] for i in range(row, start - 1, -1) if not np.isnan(y[i])]
            of_series = [y[i] for i in range(end - 1, start - 1, -1) if not np.isnan(y[i])]
            expected = (of_place or of_any or of_series or [103.0])[0]
            assert known.original[window, place, 0] == expected, (window, place)
            assert known.scaled[window, place, 0] == np.float32((expected - 103.0) / 7.0)


def test_windows_never_cross_series() -> None:
    compared = []

    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(
        lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
        missing=st.booleans(),
        context=st.integers(1, 25),
        horizon=st.integers(1, 8),
        seed=st.integers(0, 5),
    )
    @example(lengths=[3, 2, 1], missing=False, context=25, horizon=1, seed=0)
    @example(lengths=[40, 1, 40], missing=True, context=4, horizon=8, seed=1)
    def check(lengths: list[int], missing: bool, context: int, horizon: int, seed: int) -> None:
        compared.append(compared_windows(lengths, missing, context, horizon, seed))

    check()
    assert sum(map(bool, compared)) > 25, "most drawn series have windows"


def compared_windows(lengths: list[int], missing: bool, context: int, horizon: int, seed: int) -> int:
    """How many windows are the slices cut one by one, in any order, padded where a series begins too late."""
    torch.manual_seed(seed)
    rows, S = sum(lengths), len(lengths)
    widths = {"values": 2, "past_covariates": 1, "future_covariates": 3}
    parts = {name: 1 + torch.rand(rows, width) for name, width in widths.items()}
    known = {name: torch.rand(rows, width) > (0.2 if missing else -1) for name, width in widths.items()}
    masks = {f"{name}_observed": mask if missing else None for name, mask in known.items()}
    series = Series(
        **parts,
        observed=masks.pop("values_observed"),
        **masks,
        time=torch.arange(rows) * 7 + 1000,
        starts=torch.tensor([0, *np.cumsum(lengths)]),
        mean=torch.zeros(S, 2),
        scale=torch.ones(S, 2),
        static=torch.arange(2 * S).view(S, 2),
    )
    ranges = [range(min(1 + n % 3, n), max(1, n - horizon + 1), 1 + n % 2) for n in lengths]
    wanted = [(number, origin) for number, origins in enumerate(ranges) for origin in origins]
    dataset = WindowDataset(series, ranges, context, horizon)
    assert len(dataset) == len(wanted)
    if not wanted:
        return 0
    order = torch.randperm(len(wanted)).tolist()
    batch = dataset.__getitems__(order)
    assert batch.series_id.tolist() == [wanted[index][0] for index in order]
    for place, index in enumerate(order):
        number, origin = wanted[index]
        own = slice(*series.starts[number : number + 2].tolist())
        here, pad = slice(max(0, origin - context), origin + horizon), max(0, context - origin)

        def cut(part: torch.Tensor, own: slice = own, here: slice = here, pad: int = pad) -> torch.Tensor:
            piece = part[own][here]
            return torch.cat([torch.zeros(pad, *piece.shape[1:], dtype=piece.dtype), piece])

        time = cut(series.time)
        time[:pad] = series.time[own][0]
        assert torch.equal(batch.time[place], time)
        assert torch.equal(batch.static[place], series.static[number])
        found = {"values": (torch.cat([batch.past[place], batch.target[place]]), None)}
        if batch.past_observed is None:
            assert not missing
            assert pad == 0
        else:
            mask = torch.cat([batch.past_observed[place], batch.target_observed[place]])
            found["values"] = (found["values"][0], mask)
        for name in ("past_covariates", "future_covariates"):
            mask = getattr(batch, f"{name}_observed")
            found[name] = (getattr(batch, name)[place], None if mask is None else mask[place])
        for name, (part, mask) in found.items():
            assert torch.equal(part, cut(parts[name])[: len(part)]), name
            expected = cut(known[name])[: len(part)]
            assert (expected if mask is None else mask).equal(expected), name
    return len(order)


def test_batches_hold_the_rows_of_the_frame() -> None:
    """From the frame to the batch and back, covariates and categories included."""
    frame = long_frame(LENGTHS)
    data = prepared(frame, **COLUMNS)
    task, scaler, ids = data.task, data.scaler, list(LENGTHS)
    batch = next(iter(data.train_dataloader()))
    mean, scale = np.array(scaler.covariate_mean), np.array(scaler.covariate_scale)
    for place, number in enumerate(batch.series_id.tolist()):
        own = frame[frame.unique_id == ids[number]].set_index("ds")
        stamps = pd.to_datetime(batch.time[place].numpy(), unit="s")
        seen = slice(None) if batch.past_observed is None else batch.past_observed[place, :, 0].numpy()
        rows, past = own.loc[stamps], own.loc[stamps[:L]][seen]
        restored = batch.target[place, :, 0].double() * scaler.series_scale[number][0] + scaler.series_mean[number][0]
        np.testing.assert_allclose(restored, rows.y[L:], atol=1e-3)
        rain = batch.past_covariates[place, :, 0].double().numpy()[seen] * scale[0] + mean[0]
        np.testing.assert_allclose(rain, past.rain, atol=1e-4)
        price = batch.future_covariates[place, L:, 0].double() * scale[1] + mean[1]
        np.testing.assert_allclose(price, rows.price[L:], atol=1e-4)
        named = [task.categories[k][code] for k, code in enumerate(batch.static[place].tolist())]
        assert named == [own.kind.iloc[0], own.town.iloc[0]]
    # categories keep their numbers, and unseen ones have none
    part = long_frame({"a": 60, "b": 60, "c": 60}, ahead=T).query("unique_id != 'a'")
    other = FrameDataModule(part.assign(town=part.town.replace("t2", "t9")), **SIZES, **COLUMNS)
    other.prepare("predict", task, scaler)
    (batch,) = other.predict_dataloader()
    assert batch.static.tolist() == [[1, 1], [2, -1]]


def listed(batches: ShuffledBatches) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


SHARES = st.tuples(st.integers(1, 60), st.integers(1, 9))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(sizes=SHARES, epoch=st.integers(0, 3))
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
@given(sizes=SHARES, total=st.integers(1, 40), position=st.integers(0, 40))
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
    @given(sizes=SHARES, world=st.integers(2, 4))
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
    assert len(shared) > 50, "batches were drawn"


def test_a_checkpoint_counts_the_batches_that_were_seen() -> None:
    def loader() -> TrainingLoader:
        batches = ShuffledBatches(50, 8, seed=1, total=12)
        return TrainingLoader(Numbers(), batches, collate_fn=lambda batch: batch)

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


@pytest.mark.parametrize("drawn", [1, 2, 1000])
def test_of_very_many_windows_as_many_are_drawn(drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_PERMUTED", 10)
    monkeypatch.setattr(windows, "_DRAWN", drawn)
    batches = ShuffledBatches(25, 10, seed=1, total=9)
    found = listed(batches)
    assert [len(batch) for batch in found] == [10, 10, 5] * 3
    assert len(set(map(tuple, found))) == 9
    rest = ShuffledBatches(25, 10, seed=1, total=9)
    rest.position = 4
    assert listed(rest) == found[4:]
