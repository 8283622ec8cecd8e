"""Values that a key's last event leaves out, in the native engine's SQL: of an earlier event of the microbatch, else of the table's row.

Only for keys whose row is surely one: a read, a create or an update at first, then updates alone, none with a before image or repeated. The
rest is Spark's. The rows are those of :func:`airflow_cdc.pipeline.reconcile.fold_row_versions.fold_row_versions`, merged as
:func:`airflow_cdc.pipeline.target.merge_row_changes.merge_row_changes` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from airflow_cdc.model.columns import OP, POSITION, TRANSACTION, VALUE_POSITIONS
from airflow_cdc.pipeline.decode.unavailable_values import PLACEHOLDER_TEXTS, may_be_unavailable
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source, text

LEFT_OUT, HAS_BEFORE = "__cdc_left_out", "__cdc_has_before"
"""Columns of events: names of the columns whose values an event leaves out (VARCHAR[]), NULL for none; whether it has a before image."""
_LEAVES = [json.dumps(placeholder) for placeholder in PLACEHOLDER_TEXTS]
_SHORTEST = min(map(len, _LEAVES))
_ANY_PLACEHOLDER = text("|".join(map(re.escape, _LEAVES)))
"""Pattern (RE2) of a placeholder's leaf."""
_NONE = "CAST(NULL AS VARCHAR[])"


def find_placeholders(types: Mapping[str, str]) -> dict[str, str]:
    """Return the SQL, by name, of whether the leaf of each column that may be unavailable is a placeholder; ``types``: Spark SQL types by
    column.

    A statement has the pattern once a column: it is longer than all the rest, and each copy is parsed, planned and matched.
    """
    large = (column for column, kind in types.items() if may_be_unavailable(kind))
    return {_flag(column): _is_placeholder(name(f"leaf {column}")) for column in large}


def names_left_out(types: Mapping[str, str], keys: Sequence[str], *, reads_are_whole: bool) -> str:
    """Return the SQL of :data:`LEFT_OUT` over :func:`find_placeholders`; ``types``: Spark SQL types by column."""
    flags = {column: name(_flag(column)) for column, kind in types.items() if may_be_unavailable(kind) and column not in keys}
    if not flags:
        return _NONE
    found = ", ".join(f"CASE WHEN {flag} THEN {text(column)} END" for column, flag in flags.items())
    may_leave_out = f"coalesce({OP} <> 'r', true) AND " if reads_are_whole else ""
    return f"CASE WHEN {may_leave_out}({' OR '.join(flags.values())}) THEN list_filter([{found}], lambda each: each IS NOT NULL) END"


def is_odd_placeholder(column: str, *, is_key: bool) -> str:
    """Return the SQL that is true for a leaf with a placeholder in a form or place that only Spark knows (:func:`find_placeholders`)."""
    found, flag = f"contains({name(f'leaf {column}')}, '__debezium_unavailable')", name(_flag(column))
    return f"{found} OR {flag}" if is_key else f"({found} AND NOT {flag})"


def _flag(column: str) -> str:
    return f"placeholder {column}"


def _is_placeholder(leaf: str) -> str:
    # Of IN and a list of so many texts the optimizer compares each with each: a hundred columns took seconds, and gigabytes.
    return f"(strlen({leaf}) >= {_SHORTEST} AND regexp_full_match({leaf}, {_ANY_PLACEHOLDER}))"


def find_left_out(events: str) -> str:
    """Return the query of the columns that some events leave out."""
    return f"SELECT DISTINCT unnest({LEFT_OUT}) FROM {events} WHERE {LEFT_OUT} IS NOT NULL ORDER BY ALL"


def is_link(before: str, before_transaction: str) -> str:
    """Return the SQL that is true for an event that surely continues a key's one row.

    A create may have taken the key from a row that a later update of the same transaction concerns.

    :param before: SQL of the operation of the key's event before; NULL for none.
    :param before_transaction: as above, of its transaction.
    """
    is_first = f"{before} IS NULL AND ({OP} = 'u' OR {LEFT_OUT} IS NULL)"
    follows = f"{OP} = 'u' AND NOT ({before} = 'c' AND coalesce({before_transaction} = {TRANSACTION}, true))"
    return f"NOT {HAS_BEFORE} AND {OP} <> 'd' AND ({is_first} OR {follows})"


def carriers(columns: Sequence[str], event: str, nth: str) -> str:
    """Return the SQL of each column's last carrier among a key's events.

    :param event: SQL of an event's place.
    :param nth: SQL of its number among the key's.
    """
    return "".join(f", arg_max({if_carried(column, event)}, {nth}) AS {name(f'carrier {column}')}" for column in columns)


def own_carriers(columns: Sequence[str], event: str) -> str:
    """Return the :func:`carriers` of a key's only event."""
    return "".join(f", {if_carried(column, event)} AS {name(f'carrier {column}')}" for column in columns)


def if_carried(column: str, value: str) -> str:
    """Return the SQL of what an event has for a column, NULL where it leaves that column out; ``value``: SQL."""
    return f"CASE WHEN NOT coalesce(list_contains({LEFT_OUT}, {text(column)}), false) THEN {value} END"


IS_UNRESOLVED = f"events.{LEFT_OUT} IS NOT NULL AND (NOT is_chain OR copies > 0)"
"""SQL that is true for a key's last event whose values Spark has to find."""


def left_to_table(columns: Sequence[str]) -> str:
    """Return the SQL of the columns whose values only the table's row can provide (:data:`UNAVAILABLE`), NULL for none."""
    found = ", ".join(f"CASE WHEN {_is_missing(column)} THEN {text(column)} END" for column in columns)
    return f"CASE WHEN events.{LEFT_OUT} IS NOT NULL THEN nullif(list_filter([{found}], lambda each: each IS NOT NULL), []) END"


def _is_missing(column: str) -> str:
    return f"{name(f'carrier {column}')} IS NULL"


def join_carriers(columns: Sequence[str], events: str) -> str:
    """Return the joins of the carriers of what the last events leave out."""
    return "".join(
        f" LEFT JOIN {events} AS {name(f'of {column}')} ON {name(f'of {column}')}.rowid = latest.{name(f'carrier {column}')}"
        for column in columns
    )


def carried(column: str) -> str:
    """Return the SQL of a column's value in the key's row."""
    return f"{name(f'of {column}')}.{of_source(column)} AS {of_source(column)}"


def value_positions(columns: Sequence[str]) -> str:
    """Return the SQL of the positions of the values that the last event leaves out (:data:`VALUE_POSITIONS`)."""
    entries = ", ".join(
        f"CASE WHEN list_contains(events.{LEFT_OUT}, {text(column)}) AND NOT ({_is_missing(column)})"
        f" THEN {{'column': {text(column)}, 'position': {name(f'of {column}')}.{POSITION}, 'known': true}} END"
        for column in columns
    )
    kept = f"nullif(list_filter([{entries}], lambda each: each IS NOT NULL), [])"
    return f"CASE WHEN events.{LEFT_OUT} IS NOT NULL THEN {kept} END AS {VALUE_POSITIONS}"
