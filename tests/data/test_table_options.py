"""The arguments by which users say how a table is read stand in one list, which all signatures follow."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from tsattn import Forecaster, diagnose
from tsattn.cli.command_options import own_options
from tsattn.data import CSVDataModule, DataOptions, FrameDataModule, MappedDataModule, PublicDataModule, TableReader
from tsattn.data.table_options import COLUMNS, READING, Columns, TableOptions, TextFormat
from tsattn.errors import UserError

FEWER = {
    DataOptions: set(),
    Forecaster: {*READING} - {*COLUMNS, "frequency"},
    diagnose: {"format", "max_filled", "weight_column", "series_weights", "row_weights"},
}


@pytest.mark.parametrize("taker", FEWER)
def test_signatures_have_the_names_and_defaults_of_the_one_list(taker: Any) -> None:
    own = {name: one.default for name, one in inspect.signature(taker).parameters.items() if name in READING}
    assert own == {name: default for name, default in READING.items() if name not in FEWER[taker]}


def test_the_command_line_has_a_word_for_each_column() -> None:
    pages = (own_options(f"datasets {action}") for action in ("convert", "diagnose"))
    convert, diagnose = ({name[2:] for name in page if name.startswith("--")} - {"overwrite"} for page in pages)
    assert {*COLUMNS} <= convert <= {*READING}
    assert {*COLUMNS} <= diagnose <= {*READING, "context_length", "prediction_length", "output"}


def test_options_of_a_reader_are_taken_apart_and_put_together() -> None:
    given = {"target": "y", "static": ["a"], "frequency": "15T", "decimal": ",", "separator": ";", "other": 1}
    reader = TableReader.of(given, strict=True)
    assert reader == TableReader(target=["y"], static=("a",), frequency="15min", text=TextFormat(";", ","), strict=True)
    assert reader.columns == Columns(target="y", static="a")
    assert type(reader.options) is TableOptions
    assert reader.plain() == {
        **{field.name: field.default for field in fields(Columns)},
        **{"target": ("y",), "static": ("a",)},
    }
    with pytest.raises(UserError, match="max_filled must be from 0 to 1"):
        TableOptions(max_filled=True)


@pytest.mark.parametrize("kind", [CSVDataModule, MappedDataModule, FrameDataModule, PublicDataModule])
def test_the_command_line_knows_every_type(kind: type[Any]) -> None:
    parser = ArgumentParser()
    parser.add_class_arguments(kind, "data")
    assert not [one.dest for one in parser._actions if "Unvalidated" in str(getattr(one, "_typehint", ""))]


def test_no_name_is_no_column_of_ids() -> None:
    with pytest.raises(UserError, match=r"id_column must name a column, not \[\]"):
        Columns(id_column=[])
