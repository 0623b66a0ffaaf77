"""How a table is read: which column is what, and what users may say of the rest. Names and defaults stand here alone.

`FrameDataModule`, `Forecaster` and `diagnose` take them as arguments of the same names, which `given_options` gathers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any

from tsattn.data.columns import column_name, column_names, joined_name
from tsattn.data.grid import normalise_frequency
from tsattn.data.text_format import TextFormat
from tsattn.data.weights import RowWeights
from tsattn.errors import UserError, shown

__all__ = ["COLUMNS", "READING", "Columns", "TableOptions", "TextFormat", "given_options"]


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what, as users name them.

    Attributes:
        id_column: column of series ids of a long table; found by itself if named ``unique_id`` or ``item_id``. Several
            columns make up one: of ``[store, item]`` it is called ``store/item``, its ids are such as ``A/7``.
        time_column: column of time stamps; found by itself if named ``ds``, ``timestamp`` or ``date``, or an index of
            time stamps or periods.
        target: the column or columns to forecast; found by itself if named ``y`` or ``target`` in a long table. In a
            wide one every column without another role is a target unless this lists them; it must where one of several
            is called ``y`` or ``target``.
        past_covariates: columns known for the past only: of numbers, bools, or categories, which are pandas
            Categoricals and text of which no cell is a number.
        future_covariates: columns known for the future too, of the same kinds.
        static: columns of categories that are constant within a series.

    Raises:
        UserError: for what is no name.
    """

    id_column: str | None = None
    time_column: str | None = None
    target: str | Sequence[str] | None = None
    past_covariates: Sequence[str] = ()
    future_covariates: Sequence[str] = ()
    static: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "id_column", joined_name(self.id_column, "id_column"))
        object.__setattr__(self, "time_column", column_name(self.time_column, "time_column"))
        for name in ("target", "past_covariates", "future_covariates", "static"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None and name == "target" else column_names(given, name))

    @property
    def columns(self) -> Columns:
        """These names alone."""
        return Columns(**{name: getattr(self, name) for name in COLUMNS})

    def plain(self) -> dict[str, Any]:
        """The names alone, by argument."""
        return asdict(self.columns)


COLUMNS = tuple(field.name for field in fields(Columns))


@dataclass(frozen=True)
class TableOptions(Columns):
    """What decides the panel of a table, beside the table.

    Attributes:
        frequency: pandas frequency of the stamps, as text, offset or length of time, or a whole number for steps; None
            infers it, even where there are gaps.
        max_filled: the share of the rows of a series that may be filled.
        weight_column: column of weights, each how much the targets of its row count in a training; None without.
        text: how text is written, the dates of a frame too.

    Raises:
        UserError: for what is none of these.
    """

    frequency: str | None = None
    max_filled: float = 0.5
    weight_column: str | None = None
    text: TextFormat = TextFormat()  # noqa: RUF009  # it is frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frequency is not None:
            object.__setattr__(self, "frequency", normalise_frequency(self.frequency))
        object.__setattr__(self, "weight_column", column_name(self.weight_column, "weight_column"))
        share = self.max_filled
        if not isinstance(share, Real) or isinstance(share, bool) or not 0 <= share <= 1:
            raise UserError(
                f"max_filled must be from 0 to 1, a share of the rows of a series, not {shown(repr(share))}"
            )


_TEXT = tuple(field.name for field in fields(TextFormat))
_WEIGHTS = ("series_weights", "row_weights")
READING: dict[str, Any] = {
    **{field.name: field.default for field in fields(TableOptions) if field.name != "text"},
    **{field.name: field.default for field in fields(TextFormat)},
    **dict.fromkeys(_WEIGHTS),
}
"""The arguments by which users say how a table is read, and what they are by default."""


def given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `TableReader` that arguments of users describe.

    Args:
        given: arguments by name, those of `READING` among them; what is not there is as by default.

    Raises:
        UserError: for what text or weights cannot be.
    """
    plain = {name: given[name] for name in READING if name in given and name not in (*_TEXT, *_WEIGHTS)}
    text = TextFormat(**{name: given[name] for name in _TEXT if name in given})
    return {**plain, "text": text, "weights": RowWeights.of(**{name: given.get(name) for name in _WEIGHTS})}
