"""Values that a microbatch's events leave out and only the table's rows hold: PostgreSQL's unchanged large ones.

They are taken from the version of the table that is merged. A row that is not there has NULL for them, and counts as unresolved, as in
:func:`airflow_cdc.pipeline.target.merge_row_changes.merge_row_changes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.columns import OP, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.errors import first_line
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import name, text
from airflow_cdc.pipeline.target.parquet_scan import create_view
from airflow_cdc.pipeline.target.table_files import UnreadableError

_NO_VERSION = -1


@dataclass(frozen=True)
class Completed:
    """Row changes with all the values that are known."""

    rows: Any
    """Arrow table, see :class:`airflow_cdc.pipeline.apply.native.fold.NativeChanges`."""
    unresolved: int = 0
    """Rows with NULL for a value that neither an event nor the table's row provides."""
    of_version: int | None = None
    """The table's version whose rows were read; None: none was."""


def complete(table: Any, uri: str, changes: Any, *, keys: Sequence[str]) -> Completed:
    """Return row changes with the values that they leave to the table's rows.

    :param table: delta-rs's table; None where it is to be created.
    :param changes: Arrow table with ``__cdc_unavailable`` where some events leave values out.
    :raises HandedOver: where the table's rows cannot be read here.
    """
    import duckdb

    if UNAVAILABLE not in changes.column_names:
        return Completed(changes)
    with connect_duckdb(threads=4) as connection:
        connection.register("changes", changes)
        found = connection.execute(f"SELECT DISTINCT unnest({UNAVAILABLE}) FROM changes ORDER BY ALL").fetchall()
        asked = [str(column) for (column,) in found]
        try:
            if asked:
                view_rows(connection, table, uri, columns=[*keys, *asked])
            rows = connection.sql(_statement(keys, asked)).to_arrow_table()
        except (duckdb.Error, OSError, UnreadableError) as error:
            raise HandedOver(f"the table's rows cannot be read from the driver: {first_line(error)}") from error
        connection.register("completed", rows)
        is_unknown = f"len(list_filter({VALUE_POSITIONS}, lambda entry: NOT entry.known)) > 0"
        ((unresolved,),) = connection.execute(f"SELECT count(*) FROM completed WHERE {OP} <> 'd' AND {is_unknown}").fetchall()
    return Completed(rows, unresolved=int(unresolved), of_version=_NO_VERSION if table is None else int(table.version()))


def view_rows(connection: Any, table: Any, uri: str, *, columns: Sequence[str]) -> None:
    """Let the connection read columns of the table's rows, and our own that their values' positions come from, as ``cdc``."""
    if table is None or not table.file_uris():
        connection.execute("CREATE TEMP VIEW cdc AS SELECT * FROM changes WHERE false")
        return
    fields: Sequence[Mapping[str, Any]] = json.loads(table.schema().to_json())["fields"]
    wanted = {*columns, POSITION, VALUE_POSITIONS}
    create_view(connection, uri, table, fields=[field for field in fields if field["name"] in wanted])


def _statement(keys: Sequence[str], asked: Sequence[str]) -> str:
    """Return the query of the changes, completed.

    A value's position is the row's, unless the row records another one for its column.
    """
    if not asked:
        return f"SELECT * EXCLUDE ({UNAVAILABLE}) FROM changes"
    same_key = " AND ".join(f"held.{name(key)} = changes.{name(key)}" for key in keys)
    values = ", ".join(
        f"CASE WHEN list_contains(changes.{UNAVAILABLE}, {text(column)}) THEN held.{quoted} ELSE changes.{quoted} END AS {quoted}"
        for column, quoted in zip(asked, map(name, asked), strict=True)
    )
    recorded = f"list_filter(held.{VALUE_POSITIONS}, lambda entry: entry.column = missing)[1]"
    own = f"{{'column': missing, 'position': held.{POSITION}, 'known': coalesce(held.__cdc_is_held, false)}}"
    entries = f"list_transform(coalesce(changes.{UNAVAILABLE}, []), lambda missing: coalesce({recorded}, {own}))"
    positions = f"nullif(list_concat(coalesce(changes.{VALUE_POSITIONS}, []), {entries}), [])"
    return f"""
SELECT changes.* EXCLUDE ({UNAVAILABLE}) REPLACE ({values}, {positions} AS {VALUE_POSITIONS})
FROM changes LEFT JOIN (SELECT *, true AS __cdc_is_held FROM cdc) AS held ON changes.{UNAVAILABLE} IS NOT NULL AND {same_key}"""
