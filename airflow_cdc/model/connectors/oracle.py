"""Oracle: the ``oracle`` connector.

Sources: Debezium's reference; the capture ``oracle_synth``. Column types that are not known: what the connector does not support (BFILE,
BOOLEAN, LONG, LONG RAW, UROWID, VECTOR, user-defined types).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.modes import ConnectorSettings, having
from airflow_cdc.model.catalogue.queries import Queries
from airflow_cdc.model.connectors.connector import (
    AS_TEXT,
    NUMBER,
    Catalogue,
    Connector,
    Flattened,
    Images,
    NativeRule,
    PositionRule,
    Transactions,
    Types,
)


def _redo_record() -> str:
    """Return the SQL of LogMiner's ``rs_id`` ``0x<log sequence>.<block>.<offset>`` (hexadecimal) and ``ssn`` as one number; NULL for any
    other text.
    """

    def part(number: int, bits: int) -> str:
        digits = f"conv(split_part(substr(trim(source.rs_id), 3), '.', {number}), 16, 10)"
        return f"CAST({digits} AS {NUMBER}) * {2**bits}BD"

    ssn = f"coalesce(try_cast(source.ssn AS {NUMBER}), CAST(0 AS {NUMBER}))"
    record = f"{part(1, 80)} + {part(2, 48)} + {part(3, 32)} + {ssn}"
    spelled = r"^\s*0x[0-9A-Fa-f]{1,8}\.[0-9A-Fa-f]{1,8}\.[0-9A-Fa-f]{1,4}\s*$"
    return f"CASE WHEN source.rs_id RLIKE r'{spelled}' THEN CAST({record} AS {NUMBER}) END"


def _native_number(member: str) -> str:
    return f"CASE WHEN regexp_full_match({member}, '[0-9]{{1,38}}') THEN TRY_CAST({member} AS {NUMBER}) END"


def _native_change() -> str:
    def part(number: int, bits: int) -> str:
        digits = f"split_part(substr(trim(source.rs_id), 3), '.', {number})"
        return f"CAST(CAST('0x' || {digits} AS UBIGINT) AS HUGEINT) * {2**bits}"

    ssn = "CASE WHEN source.ssn IS NULL THEN 0 ELSE TRY_CAST(source.ssn AS HUGEINT) END"
    record = f"CAST({part(1, 80)} + {part(2, 48)} + {part(3, 32)} + {ssn} AS {NUMBER})"
    # Every redo record of this form fits into 38 digits; a missing one leaves the scn.
    spelled = r"\s*0x[0-9A-Fa-f]{1,8}\.[0-9A-Fa-f]{1,8}\.[0-9A-Fa-f]{1,4}\s*"
    return (
        f"CASE WHEN source.rs_id IS NULL THEN {_native_number('source.scn')}"
        f" WHEN regexp_full_match(source.rs_id, '{spelled}') THEN {record} END"
    )


_MOST_DIGITS = 38
_INTEGERS = ((3, "int8"), (5, "int16"), (10, "int32"), (19, "int64"))
"""Number of integer digits from which the integer type no longer suffices."""


def _number(column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    scale = column.scale
    if scale is None:
        return fields.variable_decimal(settings.decimal)
    digits = column.length or _MOST_DIGITS
    if scale == 0 and settings.decimal != "precise":
        return literal(settings.decimal)
    held = next((kind for limit, kind in _INTEGERS if digits - scale < limit), None) if scale <= 0 else None
    return literal(held) if held else fields.decimal(settings.decimal, digits, scale)


def _bytes(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.binary(settings.binary)


def _interval(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.interval(settings.interval)


_RULES: Mapping[str, Rule] = {
    "NUMBER": _number,
    # FLOAT is a number of binary digits, not Java's float.
    "FLOAT": lambda column, settings: fields.variable_decimal(settings.decimal),
    "BINARY_FLOAT": always("float"),
    "BINARY_DOUBLE": always("double"),
    **dict.fromkeys(("CHAR", "NCHAR", "VARCHAR", "VARCHAR2", "NVARCHAR2", "CLOB", "NCLOB", "ROWID"), always("string")),
    "XMLTYPE": always("string", "io.debezium.data.Xml"),
    "JSON": always("string", "io.debezium.data.Json"),
    **dict.fromkeys(("RAW", "BLOB"), _bytes),
    # DATE holds a time of day too, in whole seconds.
    "DATE": lambda column, settings: fields.timestamp(settings.time, 0),
    "TIMESTAMP": lambda column, settings: fields.timestamp(settings.time, 6 if column.scale is None else column.scale),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"), always("string", fields.ZONED)),
    **dict.fromkeys(("INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH"), _interval),
}


def field_of(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    """Return the field that the connector writes for a column; None where it is not known."""
    rule = _RULES.get(column.type_name)
    return rule(column, settings) if rule else None


def column_of(row: Sequence[Any]) -> CatalogueColumn:
    """Return the column from a row of the catalogue.

    :param row: of ``all_tab_columns``: ``column_name``, ``data_type``, ``data_length``, ``char_length``, ``data_precision`` and
        ``data_scale``.
    """
    name, data_type, size, characters, precision, scale = row
    type_text = text(data_type)
    # In TIMESTAMP(6) WITH TIME ZONE and INTERVAL DAY(2) TO SECOND(6) the digits are not part of the name.
    type_name = re.sub(r"\(\d+\)", "", type_text).upper()
    native = type_text + _measure(type_name, whole(size), whole(characters), whole(precision), whole(scale))
    return CatalogueColumn(text(name), type_name, native, whole(precision), whole(scale))


def _measure(type_name: str, size: int | None, characters: int | None, precision: int | None, scale: int | None) -> str:
    if type_name == "NUMBER" and scale is not None:
        return f"({'*' if precision is None else precision},{scale})"
    if type_name == "FLOAT":
        return f"({precision})"
    return f"({characters or size})" if type_name in ("CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "RAW") else ""


_QUERIES = Queries(
    tables="""
SELECT sys_context('USERENV', 'DB_NAME'), owner, table_name FROM all_tables
WHERE owner NOT IN (SELECT username FROM all_users WHERE oracle_maintained = 'Y') ORDER BY owner, table_name""",
    columns="""
SELECT column_name, data_type, data_length, char_length, data_precision, data_scale FROM all_tab_columns
WHERE owner = ? AND table_name = ? ORDER BY column_id""",
    keys="""
SELECT m.column_name FROM all_constraints k JOIN all_cons_columns m ON m.owner = k.owner AND m.constraint_name = k.constraint_name
WHERE k.constraint_type = 'P' AND k.owner = ? AND k.table_name = ? ORDER BY m.position""",
)

ORACLE = Connector(
    names=("oracle",),
    title="Oracle",
    position=PositionRule(
        fields=("commit_scn", "scn", "rs_id", "ssn", "txId"),
        # A snapshot read has no commit; its scn is the whole snapshot's. A damaged commit_scn has no stand-in: the change's own scn may
        # lie behind other commits, as if the source's log had gone back.
        commit=f"try_cast(CASE WHEN source.commit_scn IS NULL THEN source.scn ELSE source.commit_scn END AS {NUMBER})",
        # Changes of a transaction may share an scn; their redo records differ, and rise with it.
        change=f"coalesce({_redo_record()}, try_cast(source.scn AS {NUMBER}))",
    ),
    transactions=Transactions(identity="source.txId"),
    native=NativeRule(
        commit=f"CASE WHEN source.commit_scn IS NULL THEN {_native_number('source.scn')} ELSE {_native_number('source.commit_scn')} END",
        change=_native_change(),
        transaction="source.txId",
    ),
    # Without lob.enabled a snapshot leaves large values out too (docs/reference/dialects.md#what-goes-wrong-today).
    images=Images(reads_are_whole=False),
    # TIMESTAMP(9) WITH TIME ZONE holds an offset and 1 ns; a Spark TIMESTAMP holds neither.
    types=Types(own={fields.ZONED: AS_TEXT}),
    topic=("schema", "table"),
    flattened=Flattened(fields=("commit_scn", "scn")),
    catalogue=Catalogue(
        queries=_QUERIES,
        column_of=column_of,
        field_of=field_of,
        settings=having("decimal.handling.mode", "time.precision.mode", "binary.handling.mode", "interval.handling.mode"),
        connection_type="oracle",
        provider="apache-airflow-providers-oracle",
        placeholder=":",
    ),
)
"""The entry."""
