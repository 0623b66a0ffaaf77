"""Lazy frames, such as polars' LazyFrame: their columns are checked before anything of them is computed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import pandas as pd

from tsattn.data.columns import id_columns, with_joined_ids
from tsattn.data.files import first_line
from tsattn.data.quiet import quiet
from tsattn.data.roles import check_roles, find_roles
from tsattn.data.table_options import Columns
from tsattn.errors import UserError, shown

__all__ = ["collected", "is_lazy"]


def is_lazy(table: Any) -> bool:
    """Whether this is a lazy frame of a library that narwhals knows."""
    if isinstance(table, pd.DataFrame | pd.Series):  # narwhals refuses some that are refused by their own sentences
        return False
    return isinstance(nw.from_native(table, pass_through=True), nw.LazyFrame)


def collected(
    table: Any,
    source: str,
    columns: Columns,
    weight: str | None = None,
    *,
    needs_target: bool = True,
) -> Any:
    """A lazy frame computed, of the columns that have a role; any other table as it is.

    Args:
        table: lazy or not.
        source: what it is, for messages.
        columns: those that are named.
        weight: the column of weights of rows.
        needs_target: whether the table must have a target.

    Raises:
        UserError: for a column that is lacking or holds no single values, before anything is computed, and for what the
            library says while it computes.
    """
    if not is_lazy(table):
        return table
    lazy = nw.from_native(table)
    try:
        schema = lazy.collect_schema()
    except Exception as error:  # whatever the foreign library raises
        raise UserError(f"{source} has no schema: {first_line(error)}") from error
    empty = with_joined_ids(pd.DataFrame(columns=schema.names()), columns.id_column, source)
    roles = replace(find_roles(empty, source, columns), weight=weight)
    with quiet():  # what is not used is not computed
        roles = check_roles(empty, source, roles, every_target=columns.target is None, needs_target=needs_target)
    used = [name for _, name in roles.named if name in schema]
    used += [name for name in id_columns(roles.id, schema.names()) if name not in used]
    for name in used:
        if schema[name].is_nested():
            raise UserError(f"column {shown(name)} of {source} holds {schema[name]}, not single values")
    try:
        return lazy.select(used).collect().to_native()
    except Exception as error:  # as above
        raise UserError(f"{source} cannot be computed: {first_line(error)}") from error
