"""The cards of the data sets say what the files, the code and `data/README.md` say."""

from __future__ import annotations

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import REAL_ROOT
from tsattn.data import CARDS, CO2DataModule, PublicDataModule, season_length
from tsattn.data.public.cards import Card, Oddity
from tsattn.data.public.public_data import differences
from tsattn.saved_folders import sha256 as sha256_of


def flat(column: str, first: str, rows: int) -> Oddity:
    return Oddity(kind="flat", column=column, first=first, rows=rows, value=0.0)


ROOT = Path(__file__).parents[3]
README = (ROOT / "data" / "README.md").read_text()
HELD = [card.name for card in CARDS.values() if card.sha256]


def test_all_the_data_sets_are_there() -> None:
    assert list(CARDS) == [
        *("ETTh1", "ETTh2", "ETTm1", "ETTm2", "weather", "exchange_rate", "national_illness"),
        *("electricity", "traffic", "solar", "vic_electricity", "co2"),
    ]
    assert all(name == card.name for name, card in CARDS.items())
    assert len(HELD) == 8


def test_the_readme_is_made_of_the_cards() -> None:
    with_cards = runpy.run_path(str(ROOT / ".ci" / "cards.py"))["with_cards"]
    assert with_cards(README) == README, "python .ci/cards.py"
    changed = README.replace("Zhou et al.", "Nobody")
    assert with_cards(changed) == README != changed
    assert with_cards(README.replace("\n## co2\n", "\n## co3\n")) == README


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_cards_agree_with_themselves(card: Card) -> None:
    assert card.season == season_length(card.frequency)
    split = card.split(range(card.rows))
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
        assert data.rule.split(range(card.rows)) == card.split(range(card.rows))


@pytest.mark.real_data
@pytest.mark.parametrize("name", HELD)
def test_the_file_is_as_its_card_says(name: str) -> None:
    card = CARDS[name]
    assert differences(card, Path(f"{REAL_ROOT}/{card.file}")) == []


@pytest.fixture
def hourly(tmp_path: Path) -> tuple[Card, Path]:
    """A small file of 40 hours, and the card of `ETTh1` made to fit it."""
    path = tmp_path / "hourly.csv"
    stamps = pd.date_range("2016-07-01", periods=40, freq="h")
    frame = pd.DataFrame({"date": stamps, "MUFL": range(1, 41), "OT": range(2, 42)})
    frame.loc[7:11, "MUFL"] = 0
    frame.to_csv(path, index=False)
    sizes = {"rows": 40, "columns": 2, "last": str(stamps[-1])}
    oddities = (flat("MUFL", "2016-07-01 07:00:00", 5),)
    return replace(CARDS["ETTh1"], sha256=sha256_of(path), oddities=oddities, **sizes), path


@pytest.fixture
def uneven(tmp_path: Path) -> tuple[Card, Path]:
    """A small file of 10 minutes, a stamp repeated, a header broken, lines that end in CR LF, and its card."""
    path = tmp_path / "uneven.csv"
    stamps = [str(stamp) for stamp in pd.date_range("2020-01-01 00:10", periods=20, freq="10min")]
    stamps.insert(9, stamps[8])
    rows = [f"{stamp},{-9999 if row == 4 else row},{row / 2}" for row, stamp in enumerate(stamps)]
    path.write_bytes("\r\n".join(["date,PAR (\ufffdmol),OT", *rows, ""]).encode())
    oddities = (
        Oddity(kind="sentinel", column="PAR (\u00b5mol)", value=-9999, cells=1),
        Oddity(kind="uneven_step", row=9, stamp=stamps[8]),
        Oddity(kind="broken_headers", renamed=(("PAR (\ufffdmol)", "PAR (\u00b5mol)"),)),
        Oddity(kind="crlf"),
    )
    sizes = {"rows": 21, "columns": 2, "last": stamps[-1]}
    return replace(CARDS["weather"], sha256=sha256_of(path), same_content=(), oddities=oddities, **sizes), path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sha256": "0" * 64}, "its sha256 is "),
        ({"rows": 41}, "rows: 40, not 41"),
        ({"columns": 8}, "channels: 2, not 8"),
        ({"first": "2016-07-01 01:00:00"}, "first time stamp: 2016-07-01 00:00:00, not 2016-07-01 01:00:00"),
        ({"last": "2018-06-26 20:00:00"}, "last time stamp: 2016-07-02 15:00:00, not"),
        ({"frequency": "15min"}, "frequency: h, not 15min"),
        ({"target": "HEAT"}, "it has no channel 'HEAT'; its channels are MUFL, OT"),
        ({"channels": ("OT", "HEAT")}, "has no target column HEAT"),
        ({"oddities": (flat("MUFL", "2016-07-01 07:00:00", 4),)}, "MUFL is 0 for 5 rows from"),
        ({"oddities": (flat("MUFL", "2016-07-01 08:00:00", 4),)}, "MUFL is 0 for 0 rows from"),
        ({"oddities": (flat("HEAT", "2016-07-01 08:00:00", 4),)}, "it has no channel 'HEAT'"),
        (
            {"oddities": (Oddity(kind="sentinel", column="OT", value=-9999, cells=1),)},
            "OT: 0 cells, where the card says: OT has -9999",
        ),
    ],
)
def test_what_is_not_as_the_card_says_is_reported(hourly: tuple[Card, Path], change: dict[str, Any], said: str) -> None:
    card, path = hourly
    assert differences(card, path) == []
    assert said in " / ".join(differences(replace(card, **change), path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"on_grid": False}, "2020-01-01 01:30:00 repeats the row before"),
        ({"frequency": "15min"}, "frequency: 0 days 00:10:00, not 15min"),
        ({"oddities": (Oddity(kind="note", text="none"),)}, "headers with U+FFFD: PAR ("),
    ],
)
def test_what_is_not_as_the_card_of_an_uneven_file_says_is_reported(
    uneven: tuple[Card, Path], change: dict[str, Any], said: str
) -> None:
    card, path = uneven
    assert differences(card, path) == []
    assert said in " / ".join(differences(replace(card, **change), path))


def test_a_date_that_is_none_is_reported_though_a_grid_takes_its_place(uneven: tuple[Card, Path]) -> None:
    card, path = uneven
    path.write_bytes(path.read_bytes().replace(b"2020-01-01 01:00:00", b"never"))
    assert "line 7: never in column date is not a date" in " / ".join(differences(card, path))


def test_uneven_steps_and_line_ends_are_reported(uneven: tuple[Card, Path]) -> None:
    card, path = uneven
    content = path.read_bytes()
    even = tuple(oddity for oddity in card.oddities if oddity.kind != "uneven_step")
    (said,) = differences(replace(card, oddities=even), path)
    assert said == (
        "time stamps that do not come one step after the row before: [(9, '2020-01-01 01:30:00', 0)], not []"
    )
    lines = content.split(b"\r\n")
    path.write_bytes(b"\r\n".join([*lines[:10], *lines[11:15], *lines[16:]]))  # without the repeat, and a row less
    found = " / ".join(differences(card, path))
    assert "rows: 19, not 21" in found
    assert "one step after the row before: [(13, '2020-01-01 02:30:00', 20)], not" in found
    assert "line ends" not in found
    path.write_bytes(b"\n".join(lines))
    assert differences(replace(card, sha256=None), path)[-1] == "not all lines end in CR LF"


def test_cards_are_read_without_anything_heavy() -> None:
    code = (
        "import sys; import tsattn.data.public.cards; "
        "sys.exit(bool({'torch', 'pandas', 'lightning', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
