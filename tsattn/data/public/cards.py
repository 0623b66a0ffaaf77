"""Cards of the public data sets: what each file is, from where, how it is split, and what is odd about it.

Plain data that imports nothing heavy: `python -m tsattn datasets list` reads it without torch or pandas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tsattn.data.split_rule import BenchmarkShares, ByShare, EttMonths
from tsattn.data.splits import Split
from tsattn.errors import UserError, one_of

__all__ = [
    "CARDS",
    "BrokenHeaders",
    "Card",
    "CrLf",
    "Flat",
    "Missing",
    "Note",
    "Oddity",
    "Sentinel",
    "UnevenStep",
    "card_of",
]


@dataclass(frozen=True)
class Note:
    """Something that the file cannot show by itself."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Flat:
    """A column that keeps one value for `rows` rows from the time stamp `first` on."""

    column: str
    first: str
    rows: int
    value: float

    def __str__(self) -> str:
        return f"{self.column} is {self.value:g} for {self.rows} rows from {self.first}"


@dataclass(frozen=True)
class Sentinel:
    """A number that stands for a missing value in `cells` cells of a column."""

    column: str
    value: float
    cells: int

    def __str__(self) -> str:
        return f"{self.column} has {self.value:g} for a missing value in {self.cells} {_plural('row', self.cells)}"


@dataclass(frozen=True)
class Missing:
    """`cells` missing values in a column; they are masked, never dropped, never scored."""

    column: str
    cells: int

    def __str__(self) -> str:
        return f"{self.column} is missing in {self.cells} rows, which are masked, never dropped, never scored"


@dataclass(frozen=True)
class UnevenStep:
    """A row (from 0) whose time stamp does not come one step after that of the row before, but `minutes` after it."""

    row: int
    stamp: str
    minutes: int

    def __str__(self) -> str:
        how = f"comes {self.minutes} minutes after the row before" if self.minutes else "is written twice in a row"
        return f"the time stamp {self.stamp} (row {self.row + 1}) {how}"


@dataclass(frozen=True)
class BrokenHeaders:
    """Column names in which letters were lost: pairs of the name in the file and the one used here."""

    renamed: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        names = one_of(repaired for _, repaired in self.renamed)
        return (
            f"letters of {len(self.renamed)} headers are U+FFFD in the file, and are repaired when it is read: {names}"
        )


@dataclass(frozen=True)
class CrLf:
    """Lines that end in CR LF."""

    def __str__(self) -> str:
        return "lines end in CR LF"


Oddity: TypeAlias = Note | Flat | Sentinel | Missing | UnevenStep | BrokenHeaders | CrLf


@dataclass(frozen=True)
class Card:
    """What is known of a public data set.

    Attributes:
        name: how it is called here.
        title: what it holds.
        file: the name of its CSV file; None if it is embedded in a package.
        url: where the file is downloaded from; None if it is embedded.
        source: who made it, and where it was published.
        licence: of the data; or that none is stated.
        sha256: of the file that this card was checked against; None if it was not at hand.
        same_content: sums of copies that differ from that file in their line ends only, and are accepted too.
        reported_sha256: the sum that other projects report of a file that was not at hand.
        rows: number of rows.
        columns: number of channels.
        first: first time stamp, as pandas prints it.
        last: last time stamp, as the file writes it.
        frequency: pandas frequency of the rows.
        season: steps in the season that the seasonal naive forecast repeats.
        parts: how it is split: ``ett``, 12, 4 and 4 months of 30 days; ``benchmark``, 70, 10 and 20 percent as
            `BenchmarkShares` rounds; ``fractions``, the same as `ByShare` rounds.
        horizons: prediction lengths that are usually reported.
        target: the channel that univariate forecasts usually take.
        date_column: the column of time stamps; None for a file of numbers alone, without a header.
        channels: the columns to read, where the file holds others too; empty for all of them.
        on_grid: whether rows are taken in file order on a regular grid from `first`, whatever their time stamps say.
        oddities: what a careful reader of the file would like to know.
    """

    name: str
    title: str
    source: str
    licence: str
    rows: int
    columns: int
    first: str
    last: str
    frequency: str
    season: int
    horizons: tuple[int, ...]
    target: str
    file: str | None = None
    url: str | None = None
    sha256: str | None = None
    same_content: tuple[str, ...] = ()
    reported_sha256: str | None = None
    parts: Literal["ett", "benchmark", "fractions"] = "benchmark"
    date_column: str | None = "date"
    channels: tuple[str, ...] = ()
    on_grid: bool = False
    oddities: tuple[Oddity, ...] = ()

    @property
    def sums(self) -> tuple[str, ...]:
        """The sums that the file may have; empty if none is known for certain."""
        return (() if self.sha256 is None else (self.sha256,)) + self.same_content

    @property
    def module(self) -> str:
        """The class that reads it."""
        return "CO2DataModule" if self.file is None else "PublicDataModule"

    @property
    def renamed(self) -> dict[str, str]:
        """Column names of the file, and those used here, where they differ."""
        return {
            broken: repaired
            for oddity in self.oddities
            if isinstance(oddity, BrokenHeaders)
            for broken, repaired in oddity.renamed
        }

    @property
    def sentinels(self) -> tuple[Sentinel, ...]:
        """The numbers that stand for missing values."""
        return tuple(oddity for oddity in self.oddities if isinstance(oddity, Sentinel))

    @property
    def rule(self) -> BenchmarkShares | ByShare | EttMonths:
        """Where the parts of this data set end."""
        if self.parts == "ett":
            return EttMonths(self.season)  # which is a day
        return BenchmarkShares() if self.parts == "benchmark" else ByShare(0.7, 0.1)

    def split(self, num_rows: int) -> Split:
        """The parts of a file of this data set with so many rows."""
        return self.rule.split(range(num_rows))

    def facts(self) -> list[tuple[str, str]]:
        """The card as pairs of a word and what there is to say, in the order of reading."""
        split = self.split(self.rows)
        months = "12, 4 and 4 months of 30 days in the order of time; the rows after that belong to no part"
        how = months if self.parts == "ett" else "70, 10 and 20 percent in the order of time"
        sizes = f"{split.train_end}, {split.val_end - split.train_end} and {split.test_end - split.val_end} rows"
        pairs = [
            ("what", self.title),
            ("source", self.source),
            ("licence", self.licence),
            ("file", self.file or "none: embedded in a package that tsattn requires"),
            ("download", self.url or "none needed"),
            ("sha256", self.sha256 or "none: the file was not at hand"),
            ("also accepted", f"{one_of(self.same_content)} (other line ends, same content)"),
            ("others report", f"sha256 {self.reported_sha256}"),
            ("rows x channels", f"{self.rows} x {self.columns}"),
            ("time", f"{self.first} to {self.last}"),
            ("frequency", f"{self.frequency}, a season of {self.season} steps"),
            ("split", f"{how}: {sizes}"),
            ("usual horizons", one_of(map(str, self.horizons))),
            ("usual target", f"{self.target}, where one channel is forecast alone"),
            ("channels", one_of(self.channels)),
            ("class", self.module),
        ]
        left_out = {"also accepted": not self.same_content, "channels": not self.channels}
        left_out |= {"others report": self.reported_sha256 is None, "sha256": self.file is None}
        return [(word, text) for word, text in pairs if not left_out.get(word)]


def card_of(name: str, *, files_only: bool = False) -> Card:
    """The card of the data set with this name.

    Args:
        name: of the data set.
        files_only: whether it must be read from a file.

    Raises:
        UserError: listing the valid names.
    """
    valid = [card.name for card in CARDS.values() if card.file or not files_only]
    if name not in valid:
        raise UserError(f"unknown data set {name!r}; valid: {one_of(valid)}")
    return CARDS[name]


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


_LONG = (96, 192, 336, 720)

_ETT_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/"

# the collection that the authors of Autoformer and TimesNet publish their data sets in
_LIBRARY_URL = "https://huggingface.co/datasets/thuml/Time-Series-Library/resolve/main/"

_NO_LICENCE = "none stated with the file"

_NOT_AT_HAND = Note(
    "the file was not at hand when this card was written: rows, columns and times are those that the literature gives"
)


def _ett(name: str, sha256: str, *oddities: Oddity) -> Card:
    """ETTh1 and ETTh2 (hourly), ETTm1 and ETTm2 (every 15 minutes)."""
    hourly = name.startswith("ETTh")
    station = name[-1]
    return Card(
        name=name,
        title=f"load (six channels) and oil temperature (OT) of electricity transformers at station {station}, China",
        source="Zhou et al., Informer (AAAI 2021), repository zhouhaoyi/ETDataset, folder ETT-small",
        licence="CC BY-ND 4.0: share unmodified, with attribution",
        file=f"{name}.csv",
        url=f"{_ETT_URL}{name}.csv",
        sha256=sha256,
        rows=17420 if hourly else 69680,
        columns=7,
        first="2016-07-01 00:00:00",
        last="2018-06-26 19:00:00" if hourly else "2018-06-26 19:45:00",
        frequency="h" if hourly else "15min",
        season=24 if hourly else 96,
        parts="ett",
        horizons=_LONG,
        target="OT",
        oddities=(*oddities, *([Note(f"it is ETTm{station} sampled on the hour, not a mean")] if hourly else [])),
    )


_CARDS = (
    _ett(
        "ETTh1",
        "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
        Flat("HUFL", "2016-12-05 09:00:00", 58, 0),
        Flat("HULL", "2016-12-05 09:00:00", 58, 0),
        Flat("MUFL", "2016-12-05 07:00:00", 73, 0),
        Flat("MULL", "2016-12-05 08:00:00", 72, 0),
    ),
    _ett(
        "ETTh2",
        "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
        Flat("MUFL", "2017-04-19 19:00:00", 1025, 88.2979965209961),
        Flat("LULL", "2017-04-24 12:00:00", 503, -28.15699958801269),
        Flat("LUFL", "2017-01-23 23:00:00", 378, 2.1640000343322754),
    ),
    _ett(
        "ETTm1",
        "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e",
        Flat("HUFL", "2016-12-05 08:15:00", 235, 0),
        Flat("HULL", "2016-12-05 08:30:00", 234, 0),
        Flat("MUFL", "2016-12-05 06:30:00", 293, 0),
        Flat("MULL", "2016-12-05 07:15:00", 290, 0),
    ),
    _ett(
        "ETTm2",
        "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd",
        Flat("MUFL", "2017-04-19 19:00:00", 4100, 88.2979965209961),
        Flat("LULL", "2017-04-24 11:30:00", 2012, -28.15699958801269),
        Flat("LUFL", "2017-01-23 22:45:00", 1510, 2.1640000343322754),
    ),
    Card(
        name="weather",
        title="21 meteorological channels at a station in Jena, Germany, every 10 minutes of 2020",
        source="Max Planck Institute for Biogeochemistry, Jena; the copy published with Wu et al., Autoformer "
        "(NeurIPS 2021), collection thuml/Time-Series-Library",
        licence=_NO_LICENCE,
        file="weather.csv",
        url=f"{_LIBRARY_URL}weather/weather.csv",
        sha256="34ee981d07313e51da2a50bb600072c8ae4a69cb4b0651f4cb93a069d7a2ba63",
        rows=52696,
        columns=21,
        first="2020-01-01 00:10:00",
        last="2021-01-01 00:00:00",
        frequency="10min",
        season=144,
        horizons=_LONG,
        target="OT",
        on_grid=True,
        oddities=(
            Sentinel("wv (m/s)", -9999, 1),
            Sentinel("max. PAR (µmol/m²/s)", -9999, 30),
            Sentinel("OT", -9999, 50),
            Note("the benchmark keeps these numbers as they are; clean=true masks them as missing: none is scored"),
            UnevenStep(19044, "2020-05-12 06:00:00", 0),
            UnevenStep(21514, "2020-05-29 11:10:00", 100),
            Note(
                "as in the literature, rows are taken in file order on a regular grid of 10 minutes from the first "
                "time stamp, so that time is 10 minutes ahead of the file after the repeat and 80 minutes behind it "
                "after the gap"
            ),
            BrokenHeaders(
                (
                    ("SWDR (W/m\ufffd)", "SWDR (W/m²)"),
                    ("PAR (\ufffdmol/m\ufffd/s)", "PAR (µmol/m²/s)"),
                    ("max. PAR (\ufffdmol/m\ufffd/s)", "max. PAR (µmol/m²/s)"),
                )
            ),
            CrLf(),
        ),
    ),
    Card(
        name="exchange_rate",
        title="exchange rates of the currencies of eight countries, a row a day",
        source="Lai et al., LSTNet (SIGIR 2018); the copy published with Wu et al., Autoformer (NeurIPS 2021), "
        "collection thuml/Time-Series-Library",
        licence=_NO_LICENCE,
        file="exchange_rate.csv",
        url=f"{_LIBRARY_URL}exchange_rate/exchange_rate.csv",
        sha256="d55e7aa2641009814a18ba3279431b13f6d413b0eab195b9ff21988d8cf94e97",
        same_content=("48b4d9d3d508f5104162e85b9a6042e3557fde11aa9f2944eba8c0d0efc89842",),
        rows=7588,
        columns=8,
        first="1990-01-01 00:00:00",
        last="2010-10-10 00:00:00",
        frequency="D",
        season=7,
        horizons=_LONG,
        target="OT",
        oddities=(
            Note(
                "the dates cannot be real: they count every day from 1990-01-01, written 1990/1/1 0:00, and end in "
                "2010, where the source says 1990 to 2016; the calendar and the season of 7 days mean nothing here"
            ),
            Flat("4", "2000-01-10 00:00:00", 190, 0.120824),
        ),
    ),
    Card(
        name="national_illness",
        title="influenza-like illness in the United States, a row a week: two ratios, four counts and their total (OT)",
        source="Centers for Disease Control and Prevention, ILINet; the copy published with Wu et al., Autoformer "
        "(NeurIPS 2021), collection thuml/Time-Series-Library",
        licence="public domain in the United States, as a work of its government; none stated with the file",
        file="national_illness.csv",
        url=f"{_LIBRARY_URL}illness/national_illness.csv",
        sha256="8594cecb98c6f2f9dc014eca11c4d5d1e38ad5ce6ed0592d4abe65b146fce395",
        same_content=("93601f64d2566dc796ca4305adad8b8560c2db1a1ff04543c3bd813a7263570a",),
        rows=966,
        columns=7,
        first="2002-01-01 00:00:00",
        last="2020-06-30 00:00:00",
        frequency="W-TUE",
        season=52,
        horizons=(24, 36, 48, 60),
        target="OT",
        oddities=(
            Note(
                "ratios of a few percent stand beside counts of up to millions, so that errors in original units are "
                "those of OT almost alone"
            ),
        ),
    ),
    Card(
        name="electricity",
        title="hourly electricity consumption of 321 customers in Portugal",
        source="Trindade, ElectricityLoadDiagrams20112014, UCI repository; as cut by Lai et al., LSTNet (SIGIR 2018); "
        "the copy published with Wu et al., Autoformer (NeurIPS 2021), collection thuml/Time-Series-Library",
        licence="CC BY 4.0 at the UCI repository; none stated with the file",
        file="electricity.csv",
        url=f"{_LIBRARY_URL}electricity/electricity.csv",
        reported_sha256="7e45845d54c5219bad0ae6bc1b5316cf8ff9cead5d33fa998a5a51c2e4a497ad",
        rows=26304,
        columns=321,
        first="2016-07-01 02:00:00",
        last="2019-07-02 01:00:00",
        frequency="h",
        season=24,
        horizons=_LONG,
        target="OT",
        oddities=(
            _NOT_AT_HAND,
            Note("the dates are not those of the measurements, which are of 2012 to 2014"),
        ),
    ),
    Card(
        name="traffic",
        title="hourly occupancy, between 0 and 1, at 862 sensors on highways of the San Francisco Bay area",
        source="California Department of Transportation, PeMS; as cut by Lai et al., LSTNet (SIGIR 2018); the copy "
        "published with Wu et al., Autoformer (NeurIPS 2021), collection thuml/Time-Series-Library",
        licence=_NO_LICENCE,
        file="traffic.csv",
        url=f"{_LIBRARY_URL}traffic/traffic.csv",
        reported_sha256="cb06463d56fa17d87f47027cd9389ceae82a69eddee51cdb61480e120dab0b16",
        rows=17544,
        columns=862,
        first="2016-07-01 02:00:00",
        last="2018-07-02 01:00:00",
        frequency="h",
        season=24,
        horizons=_LONG,
        target="OT",
        oddities=(
            _NOT_AT_HAND,
            Note("the dates are not those of the measurements, which are of 2015 and 2016"),
        ),
    ),
    Card(
        name="solar",
        title="power of 137 photovoltaic plants in Alabama, every 10 minutes of 2006",
        source="National Renewable Energy Laboratory, Solar Power Data for Integration Studies; as cut by Lai et al., "
        "LSTNet (SIGIR 2018), repository laiguokun/multivariate-time-series-data",
        licence=_NO_LICENCE,
        file="solar_AL.txt",
        url="https://raw.githubusercontent.com/laiguokun/multivariate-time-series-data/master/"
        "solar-energy/solar_AL.txt.gz",
        reported_sha256="230327ef72d2abb387939d4a35d6fd34f1066071bc7c40ce7ecf5531a0122ac2",
        rows=52560,
        columns=137,
        first="2006-01-01 00:00:00",
        last="2006-12-31 23:50:00",
        frequency="10min",
        season=144,
        horizons=_LONG,
        target="136",
        date_column=None,
        on_grid=True,
        oddities=(
            _NOT_AT_HAND,
            Note(
                "the file holds numbers alone: channels are named 0 to 136, and rows are taken in file order on a "
                "regular grid of 10 minutes from the start of 2006"
            ),
        ),
    ),
    Card(
        name="vic_electricity",
        title="half-hourly electricity demand in the state of Victoria, Australia, and the temperature in Melbourne",
        source="O'Hara-Wild et al., tsibbledata; the copy of repository skforecast/skforecast-datasets",
        licence="BSD-3-Clause, of the repository that the copy is in",
        file="vic_electricity.csv",
        url="https://raw.githubusercontent.com/skforecast/skforecast-datasets/main/data/vic_electricity.csv",
        sha256="6fa81bc3552f8822e984900f727584b82b3f10f41d78a1a0cdda2879a29a122e",
        rows=52608,
        columns=2,
        first="2011-12-31 13:00:00+00:00",
        last="2014-12-31 12:30:00+00:00",
        frequency="30min",
        season=48,
        horizons=(48, 336),
        target="Demand",
        date_column="Time",
        channels=("Demand", "Temperature"),
        oddities=(
            Note("time stamps are UTC, while demand follows the local day, which starts at 13:00 or 14:00 UTC"),
            Note("two more columns, Date (the local day) and Holiday (TRUE or FALSE), are left out"),
        ),
    ),
    Card(
        name="co2",
        title="weekly atmospheric CO2 at Mauna Loa, in parts per million",
        source="Keeling and Whorf, Scripps CO2 program, as shipped inside statsmodels",
        licence="public domain",
        rows=2284,
        columns=1,
        first="1958-03-29 00:00:00",
        last="2001-12-29 00:00:00",
        frequency="W-SAT",
        season=52,
        horizons=(52,),
        target="co2",
        parts="fractions",
        oddities=(Missing("co2", 59),),
    ),
)

CARDS: dict[str, Card] = {card.name: card for card in _CARDS}
