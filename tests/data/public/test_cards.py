"""The cards of the data sets say what the files, the code and `data/README.md` say."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import REAL_ROOT
from tsattn.data import CARDS, CO2DataModule, PublicDataModule, season_length
from tsattn.data.public.card_file import differences
from tsattn.data.public.cards import Card, Flat, Note, Sentinel, UnevenStep

README = (Path(__file__).parents[3] / "data" / "README.md").read_text()
HELD = [card.name for card in CARDS.values() if card.sha256]


def test_all_the_data_sets_are_there() -> None:
    assert list(CARDS) == [
        *("ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "exchange_rate", "national_illness"),
        *("electricity", "traffic", "solar", "vic_electricity", "co2"),
    ]
    assert all(name == card.name for name, card in CARDS.items())
    assert len(HELD) == 8


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_the_readme_shows_each_card_whole(card: Card) -> None:
    section = README.split(f"## {card.name}\n")[1].split("\n## ")[0]
    table = "\n".join(f"| {word} | {text} |" for word, text in card.facts())
    notes = "\n".join(f"- {oddity}" for oddity in card.oddities)
    assert section.strip() == "\n\n".join(part for part in (f"| | |\n| --- | --- |\n{table}", notes) if part)
    for said in (card.licence, card.source, card.sha256 or card.licence, card.url or card.licence):
        assert said in section


def test_the_readme_has_no_other_card() -> None:
    headings = [line.removeprefix("## ") for line in README.splitlines() if line.startswith("## ")]
    assert headings == [*CARDS, "Your own file"]


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_cards_agree_with_themselves(card: Card) -> None:
    assert card.season == season_length(card.frequency)
    split = card.split(card.rows)
    assert 0 < split.train_end < split.val_end < split.test_end <= card.rows
    assert (split.test_end == card.rows) is not card.name.startswith("ETT")
    assert max(card.horizons) <= split.val_end - split.train_end
    assert all(len(found) == 64 for found in (*card.sums, card.reported_sha256 or "0" * 64))
    assert (card.file is None) == (card.url is None)
    assert card.url is None or card.url.removesuffix(".gz").endswith(f"/{card.file}")


def test_the_module_of_each_card_splits_as_the_card_says() -> None:
    for card in CARDS.values():
        data = CO2DataModule() if card.file is None else PublicDataModule(card.name)
        assert type(data).__name__ == card.module
        assert data.split(pd.date_range("2000-01-01", periods=card.rows, freq="h")) == card.split(card.rows)


@pytest.mark.real_data
@pytest.mark.parametrize("name", HELD)
def test_the_file_is_as_its_card_says(name: str) -> None:
    card = CARDS[name]
    assert differences(card, Path(f"{REAL_ROOT}/{card.file}")) == []


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("ETTh1", {"sha256": "0" * 64}, "its sha256 is f18de3ad"),
        ("ETTh1", {"rows": 17421}, "rows: 17420, not 17421"),
        ("ETTh1", {"columns": 8}, "channels: 7, not 8"),
        ("ETTh1", {"first": "2016-07-01 01:00:00"}, "first time stamp: 2016-07-01 00:00:00, not 2016-07-01 01:00:00"),
        ("ETTh1", {"last": "2018-06-26 20:00:00"}, "last time stamp: 2018-06-26 19:00:00, not"),
        ("ETTh1", {"frequency": "15min"}, "frequency: h, not 15min"),
        ("ETTh1", {"target": "HEAT"}, "it has no channel 'HEAT'; its channels are HUFL"),
        ("ETTh1", {"channels": ("OT", "HEAT")}, "has no column 'HEAT'"),
        ("ETTh1", {"oddities": (Flat("MUFL", "2016-12-05 07:00:00", 72, 0),)}, "MUFL is 0 for 73 rows from"),
        ("ETTh1", {"oddities": (Flat("MUFL", "2016-12-05 08:00:00", 72, 0),)}, "MUFL is 0 for 0 rows from"),
        ("ETTh1", {"oddities": (Flat("HEAT", "2016-12-05 08:00:00", 72, 0),)}, "it has no channel 'HEAT'"),
        ("ETTh1", {"oddities": (Sentinel("OT", -9999, 1),)}, "OT: 0 cells, where the card says: OT has -9999"),
        ("weather", {"on_grid": False}, "2020-05-12 06:00:00 repeats the row before"),
        ("weather", {"frequency": "15min"}, "frequency: 0 days 00:10:00, not 15min"),
        ("weather", {"oddities": (Note("none"),)}, "headers with U+FFFD: PAR ("),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_is_not_as_the_card_says_is_reported(name: str, change: dict[str, object], said: str) -> None:
    card = replace(CARDS[name], **change)  # type: ignore[arg-type]
    assert said in " / ".join(differences(card, Path(f"{REAL_ROOT}/{card.file}")))


@pytest.mark.real_data
def test_uneven_steps_and_line_ends_are_reported(tmp_path: Path) -> None:
    card = CARDS["weather"]
    lines = Path(f"{REAL_ROOT}/weather.csv").read_bytes().split(b"\r\n")
    path = tmp_path / "weather.csv"
    path.write_bytes(b"\r\n".join([*lines[:19045], *lines[19046:]]))  # without the repeated time stamp
    found = " / ".join(differences(card, path))
    assert "rows: 52695, not 52696" in found
    assert "one step after the row before: [(21513, '2020-05-29 11:10:00', 100)], not" in found
    assert "line ends" not in found
    path.write_bytes(b"\n".join(lines))
    found = " / ".join(differences(replace(card, sha256=None), path))
    assert found.endswith("not all lines end in CR LF")
    even = tuple(oddity for oddity in card.oddities if not isinstance(oddity, UnevenStep))
    (said,) = differences(replace(card, oddities=even), Path(f"{REAL_ROOT}/weather.csv"))
    assert said.startswith(
        "time stamps that do not come one step after the row before: [(19044, '2020-05-12 06:00:00', 0)"
    )


@pytest.mark.real_data
@pytest.mark.parametrize("station", [1, 2])
def test_ett_is_hourly_as_a_sample_not_a_mean(station: int) -> None:
    hourly, quarterly = (PublicDataModule(f"ETT{letter}{station}").load_frame() for letter in "hm")
    common = hourly.index.intersection(quarterly.index)
    same = (hourly.loc[common] - quarterly.loc[common]).abs().lt(1e-3).to_numpy().mean()
    mean = (hourly.loc[common] - quarterly.resample("h").mean().loc[common]).abs().lt(1e-3).to_numpy().mean()
    assert same > 0.9 > mean


def test_cards_are_read_without_anything_heavy() -> None:
    code = (
        "import sys; import tsattn.data.public.cards; "
        "sys.exit(bool({'torch', 'pandas', 'lightning', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
