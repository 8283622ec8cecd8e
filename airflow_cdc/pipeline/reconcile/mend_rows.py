"""Mend rows: values that a row's events left out, from the row as all events of its keys leave it when they are folded again.

Nothing else of a row changes, and nothing where the row folded again ends with another event: only the values of the same row are proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.operation import FILL, KEEP, MEND, VOID
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.reconcile.order_events import comparable
from airflow_cdc.pipeline.spark import sql

_NAMES = "__cdc_names"
"""array<string>: the columns to fill."""
_FOUND = "__cdc_found"
"""Entries of the row folded again, like ``__cdc_told_at``; behind it a number: its columns."""
_NOTHING = f"CAST(array() AS {VALUE_POSITIONS_TYPE})"

_KNOWN = f"transform(filter(coalesce(r.{VALUE_POSITIONS}, {_NOTHING}), entry -> entry.known), entry -> entry.column)"
_LEFT_OUT = (
    f"coalesce(array_contains(s.{UNAVAILABLE}, name), false)"
    f" OR exists(coalesce(s.{VALUE_POSITIONS}, {_NOTHING}), entry -> entry.column = name)"
)
# A row folded again is that of the change only if both live, or both are deleted and stay.
_SAME_FATE = f"""CASE WHEN s.{OP} IN ('{FILL}', '{KEEP}', '{VOID}') THEN false
    WHEN s.{OP} = 'd' THEN r.{OP_IF_ABSENT} = 'd' ELSE r.{OP_IF_ABSENT} NOT IN ('d', '{KEEP}') END"""
_TO_FILL = f"if(coalesce({_SAME_FATE}, false), filter({_KNOWN}, name -> {_LEFT_OUT}), CAST(array() AS array<string>))"

_FOUND_ENTRY = f"try_element_at(filter({_FOUND}, found -> found.column = entry.column), 1)"
_OWN_ENTRIES = f"coalesce({VALUE_POSITIONS}, {_NOTHING})"
_ENTRIES = f"""nullif(concat(
    transform({_OWN_ENTRIES}, entry -> if(array_contains({_NAMES}, entry.column), {_FOUND_ENTRY}, entry)),
    filter({_FOUND}, entry -> array_contains({_NAMES}, entry.column) AND NOT exists({_OWN_ENTRIES}, own -> own.column = entry.column))
), {_NOTHING})"""
_STILL_OUT = f"nullif(array_except(coalesce({UNAVAILABLE}, array()), {_NAMES}), array())"


def with_found_values(row_changes: DataFrame, folded: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return row changes with the values that their last event left out and ``folded`` knows.

    :param folded: the rows as all events leave them, with no row before; traced through their moves.
    :param columns: the source's columns.
    """
    found = _found(columns, keys)
    joined = _beside(row_changes, folded, keys, columns=columns)
    return joined.select(*[F.expr(found.get(name, sql.name(name))).alias(name) for name in row_changes.columns])


def rows_to_mend(rows: DataFrame, folded: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return row changes of the target's rows that lack such values, or hold others; like ``folded``.

    :param rows: all columns of the target's rows.
    """
    held = {name.lower() for name in rows.columns}
    others = [name for name in columns if name.lower() in held]
    # A column is recorded by the name that events give it.
    nothing = F.lit(None).cast("array<string>").alias(UNAVAILABLE)
    ours = rows.select(
        *[F.col(sql.name(name)).alias(name) for name in others], POSITION, OP, COMMITTED_AT, PARTITION, OFFSET, VALUE_POSITIONS, nothing
    )
    found = _found(others, keys)
    joined = _beside(ours, folded, keys, columns=others)
    is_other = " OR ".join(
        f"(array_contains({_NAMES}, {sql.text(name)}) AND NOT {comparable(joined, name)} <=> {comparable(joined, _column(place))})"
        for place, name in enumerate(others)
        if name not in keys
    )
    changed = joined.filter(f"size({_NAMES}) > 0 AND (({is_other or 'false'}) OR NOT ({VALUE_POSITIONS} <=> {_ENTRIES}))")
    # Without its reach no delete marker follows from it.
    given = {**found, OP: f"'{MEND}'", OP_IF_ABSENT: f"'{KEEP}'", UNAVAILABLE: "NULL"}
    mended = {name: given.get(name, sql.name(name) if name in ours.columns else "NULL") for name in folded.columns}
    return changed.select(*[F.expr(mended[field.name]).cast(field.dataType).alias(field.name) for field in folded.schema.fields])


def _column(place: int) -> str:
    return f"{_FOUND}_{place}"


def _found(columns: Sequence[str], keys: Sequence[str]) -> Mapping[str, str]:
    """Return the SQL of what changes in a row beside what was found, by column."""
    values = {
        name: f"if(array_contains({_NAMES}, {sql.text(name)}), {_column(place)}, {sql.name(name)})"
        for place, name in enumerate(columns)
        if name not in keys
    }
    return {**values, VALUE_POSITIONS: _ENTRIES, UNAVAILABLE: _STILL_OUT}


def _beside(changes: DataFrame, folded: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Join changes with the rows folded again that end with the same event."""
    on = F.expr(f"{sql.same_key('s', 'r', keys)} AND s.{POSITION} = r.{POSITION}")
    joined = changes.alias("s").join(folded.alias("r"), on, "left")
    values = [F.col(f"r.{sql.name(name)}").alias(_column(place)) for place, name in enumerate(columns)]
    return joined.select("s.*", F.expr(_TO_FILL).alias(_NAMES), F.expr(f"coalesce(r.{VALUE_POSITIONS}, {_NOTHING})").alias(_FOUND), *values)
