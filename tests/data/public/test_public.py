"""The cards of the data sets say what the files, the code and `data/README.md` say."""

import re
import runpy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import REAL_ROOT
from tsattn.data import CARDS, CO2DataModule, Panel, PublicDataModule, future_index, season_length
from tsattn.data.public import public_data
from tsattn.data.public.cards import Card, Oddity
from tsattn.data.stamps import time_stamps
from tsattn.data.tables import read_cells, rows_of
from tsattn.errors import UserError

HORIZONS = (96, 192, 336, 720)
COUNTS = {
    **dict.fromkeys(["ETTh1", "ETTh2"], (2785, 2689, 2545, 2161)),
    **dict.fromkeys(["ETTm1", "ETTm2"], (11425, 11329, 11185, 10801)),
}


@cache
def whole(name: str, clean: bool = False) -> Panel:
    """The whole file of a data set, read once for all tests."""
    data = PublicDataModule(name, clean=clean)
    data.prepare_data()
    return data.source.load()


def prepared(name: str, horizon: int = 96, context: int = 336, clean: bool = False) -> PublicDataModule:
    data = PublicDataModule(name, clean=clean, context_length=context, prediction_length=horizon)
    data.panel = whole(name, clean)
    data.setup("fit")
    return data


@pytest.mark.real_data
@pytest.mark.parametrize("name", COUNTS)
def test_number_of_test_windows_is_the_literature_s(name: str) -> None:
    steps = 24 if name.startswith("ETTh") else 96
    for horizon, count in zip(HORIZONS, COUNTS[name], strict=True):
        data = prepared(name, horizon)
        windows = data.windows("test")
        assert len(windows) == count
        assert len(data.windows("val")) == count
        assert len(data.windows("test", context_length=2 * 336)) == count
        assert len(data.windows("train")) == 12 * 30 * steps - 336 - horizon + 1
        if horizon == 96:
            assert sum(map(len, data.test_dataloader())) == count
        assert windows[0].time[0, 336] == data.series.time[16 * 30 * steps]
        assert windows[count - 1].time[0, -1] == data.series.time[20 * 30 * steps - 1]


def test_names_and_options_that_are_none_are_refused() -> None:
    valid = ", ".join(name for name in CARDS if name != "co2")
    for name, meant in (("etth1", " (did you mean ETTh1?)"), ("co2", "")):
        with pytest.raises(UserError, match=re.escape(f"unknown data set {name!r}{meant}; valid: {valid}")):
            PublicDataModule(name)
    with pytest.raises(UserError, match=r"but ETTm2 has none; valid: weather$"):
        PublicDataModule("ETTm2", clean=True)


@pytest.mark.real_data
def test_until_leaves_out_what_came_later() -> None:
    data = PublicDataModule("vic_electricity", until="2014-05-27", context_length=96, prediction_length=48)
    data.setup("fit")
    everything, rows = whole("vic_electricity"), len(data.panel.time)
    assert data.panel.time[-1] < pd.Timestamp("2014-05-27", tz=data.panel.time.tz) <= everything.time[rows]
    np.testing.assert_array_equal(data.panel.values, everything.values[:rows])
    (split,) = data.splits
    assert (split.train_end, split.val_end, split.test_end) == (int(0.7 * rows), rows - int(0.2 * rows), rows)
    assert data.name == data.task.data == "vic_electricity_until_2014-05-27"
    with pytest.raises(UserError, match="'soon' is not a date"):
        PublicDataModule("weather", until="soon")
    for date in ("2001-01-01", "2031-01-01"):
        with pytest.raises(UserError, match=rf"until must lie within vic_electricity, .*, not at {date} 00:00:00"):
            PublicDataModule("vic_electricity", until=date).setup("fit")
    with pytest.raises(UserError, match="ETTh1 is split by months from its beginning"):
        PublicDataModule("ETTh1", until="2018-03-01")


@pytest.mark.real_data
def test_clean_masks_exactly_the_sentinels() -> None:
    data = prepared("weather", clean=True)
    raw = pd.read_csv(f"{REAL_ROOT}/weather.csv").iloc[:, 1:].to_numpy()
    sentinel = raw == -9999
    assert sentinel.sum(0)[sentinel.any(0)].tolist() == [1, 30, 50]
    np.testing.assert_array_equal(np.isnan(data.panel.values), sentinel)
    np.testing.assert_array_equal(data.panel.values[~sentinel], raw[~sentinel])
    assert data.name == data.task.data == "weather_clean"
    train = np.where(sentinel, np.nan, raw)[:36887]
    np.testing.assert_allclose(data.scaler.mean, np.nanmean(train, 0), rtol=1e-9)
    np.testing.assert_allclose(data.scaler.scale, np.nanstd(train, 0), rtol=1e-9)
    # every window of the training part that sees a sentinel row knows it
    batch = data.windows("train")[7244 - 336]
    assert batch.time[0, 336] == data.series.time[7244]
    np.testing.assert_array_equal(batch.target_observed[0].numpy(), ~sentinel[7244 : 7244 + 96])


@pytest.mark.real_data
@pytest.mark.parametrize("clean", [False, True])
def test_a_file_to_forecast_from_is_read_as_the_card_says_but_must_be_regular(clean: bool, tmp_path: Path) -> None:
    lines = Path(f"{REAL_ROOT}/weather.csv").read_bytes().splitlines(keepends=True)
    data = prepared("weather", horizon=24, clean=clean)
    other = PublicDataModule("weather", clean=clean, context_length=100, prediction_length=24)
    known = replace(data.task, context_length=100), data.scaler
    for name, rows in (("head", lines[7001:7301]), ("repeat", lines[18701:19101])):
        (tmp_path / f"{name}.csv").write_bytes(b"".join([lines[0], *rows]))
    other.forecast_from(tmp_path / "head.csv")
    other.prepare("predict", *known)
    (batch,) = other.predict_dataloader()
    assert (batch.past_observed is not None) is clean
    if clean:
        assert int((~batch.past_observed).sum()) == 1 + 34  # wv once, OT 34 times
    other.forecast_from(tmp_path / "repeat.csv")
    with pytest.raises(UserError, match="repeats the row before; sort the rows"):
        other.setup("predict")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small file of numbers alone where `solar` is looked for, and a card that fits it."""
    rows, columns = 400, 3
    values = np.random.default_rng(0).uniform(0, 9, (rows, columns)).round(2)
    path = tmp_path / "solar_AL.txt"
    np.savetxt(path, values, delimiter=",", fmt="%.2f")
    card = replace(CARDS["solar"], rows=rows, columns=columns, target="2", last="2006-01-03 18:30:00")
    monkeypatch.setitem(CARDS, "solar", card)
    return path


def test_a_file_of_numbers_alone_gets_the_time_of_its_card(bare: Path) -> None:
    data = PublicDataModule("solar", root=str(bare.parent), context_length=24, prediction_length=12)
    data.setup("fit")
    np.testing.assert_array_equal(data.panel.values, np.loadtxt(bare, delimiter=","))
    assert data.task.channels == ("0", "1", "2")
    assert data.panel.time[[0, -1]].tolist() == [pd.Timestamp("2006-01-01"), pd.Timestamp("2006-01-03 18:30")]
    assert data.task.frequency == "10min"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: lines[:-1], "has 399 rows x 3 channels, but solar has 400 x 3"),
        (lambda lines: [f"{line},1" for line in lines], "has 400 rows x 4 channels, but solar has 400 x 3"),
        (lambda lines: ["a,b,c", *lines[1:]], "line 1: a in column 0 is not a number"),
        (lambda lines: [*lines[:7], "1,,2", *lines[8:]], "line 8: the value of 1 is missing"),
    ],
    ids=["short", "wide", "header", "missing"],
)
def test_another_file_of_numbers_alone_is_refused(
    bare: Path, edit: Callable[[list[str]], list[str]], message: str
) -> None:
    bare.write_text("\n".join(edit(bare.read_text().splitlines())))
    with pytest.raises(UserError, match=message) as caught:
        PublicDataModule("solar", root=str(bare.parent)).load_frame()
    assert str(bare) in str(caught.value)


ROOT = Path(__file__).parents[3]
README = (ROOT / "data" / "README.md").read_text()
HELD = [card.name for card in CARDS.values() if card.sha256]


def test_the_readme_is_made_of_the_cards() -> None:
    with_cards = runpy.run_path(str(ROOT / ".ci" / "cards.py"))["with_cards"]
    assert with_cards(README) == README, "python .ci/cards.py"
    changed = README.replace("Zhou et al.", "Nobody")
    assert with_cards(changed) == README != changed
    assert with_cards(README.replace("\n## co2\n", "\n## co3\n")) == README


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_cards_agree_with_themselves(card: Card) -> None:
    assert CARDS[card.name] is card
    assert card.season == season_length(card.frequency)
    split = card.split(range(card.rows))
    assert 0 < split.train_end < split.val_end < split.test_end <= card.rows
    assert (split.test_end == card.rows) is not card.name.startswith("ETT")
    assert max(card.horizons) <= split.val_end - split.train_end
    assert all(len(found) == 64 for found in (*card.sums, card.reported_sha256 or "0" * 64))
    assert (card.file is None) == (card.url is None)
    assert card.url is None or card.url.removesuffix(".gz").endswith(f"/{card.file}")
    data = CO2DataModule() if card.file is None else PublicDataModule(card.name)
    assert type(data).__name__ == card.module
    assert data.rule.split(range(card.rows)) == split


@pytest.mark.real_data
@pytest.mark.parametrize("name", HELD)
def test_the_file_is_as_its_card_says(name: str) -> None:
    assert len(HELD) == 8
    card = CARDS[name]
    path = Path(REAL_ROOT) / card.file
    assert public_data.differences(card, path.parent) == []
    panel = public_data.read_card(card, path)
    frame, frequency = panel.to_frame().set_index(panel.time_name), panel.frequency
    stamps, known = pd.DatetimeIndex(frame.index), []
    if card.on_grid and card.date_column is not None:  # those in the file, in whose place the frame has a grid
        stamps = time_stamps(read_cells(path)[card.date_column], rows_of(path))
        steps = pd.Series(stamps[1:] - stamps[:-1])
        usual = steps.mode()[0]
        frequency = card.frequency if stamps[0] + usual == future_index(stamps[0], card.frequency, 1)[0] else str(usual)
        known = [
            (row + 1, str(stamps[row + 1]), steps[row] / pd.Timedelta(1, "min"))
            for row in np.flatnonzero(steps != usual)
        ]
    assert (str(stamps[0]), str(stamps[-1]), frequency) == (card.first, card.last, card.frequency)
    assert known == [(one.row, one.stamp, one.minutes) for one in card.oddities if one.kind == "uneven_step"]
    assert card.target in frame
    text = path.read_bytes()
    header = text.partition(b"\n")[0].decode(errors="replace")
    assert {column for column in header.strip("\r").split(",") if "\ufffd" in column} == set(card.renamed)
    if any(oddity.kind == "crlf" for oddity in card.oddities):
        assert text.count(b"\r\n") == text.count(b"\n")
    for oddity in card.oddities:
        if oddity.column:
            assert_odd(oddity, frame[oddity.column].to_numpy(), stamps)


def assert_odd(oddity: Oddity, values: np.ndarray, stamps: pd.DatetimeIndex) -> None:
    if oddity.kind != "flat":
        is_odd = values == oddity.value if oddity.kind == "sentinel" else np.isnan(values)
        assert is_odd.sum() == oddity.cells
        return
    row = int(stamps.searchsorted(pd.Timestamp(oddity.first)))
    others = np.flatnonzero(values[row:] != values[row])
    assert (others[0], values[row]) == (oddity.rows, oddity.value)
    assert values[row - 1] != values[row]
