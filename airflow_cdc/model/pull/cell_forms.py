"""Which columns a source database and DuckDB write in one form (:mod:`airflow_cdc.model.catalogue.row_hashes`), with DuckDB's SQL.

A column takes part if its type at the source and in the table have a form in common; the others are named, not passed over in silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_cdc.model.catalogue.row_hashes import CellForm, Dialect, bars, double_quoted
from airflow_cdc.model.flow.source_schema import SourceColumn

DUCKDB = Dialect(
    quote=double_quoted,
    forms={
        CellForm.WHOLE: "CAST({c} AS VARCHAR)",
        # A type without digits before the point is written without the zero there.
        CellForm.DECIMAL: r"regexp_replace(CAST({c} AS VARCHAR), '^(-?)\.', '\10.')",
        CellForm.TEXT: "{c}",
        CellForm.BOOLEAN: "CAST(CAST({c} AS INTEGER) AS VARCHAR)",
        CellForm.BYTES: "{c}",
        CellForm.DAY: "CAST(date_diff('day', DATE '1970-01-01', {c}) AS VARCHAR)",
        CellForm.MICROSECONDS: "CAST(epoch_us({c}) AS VARCHAR)",
        CellForm.INSTANT: "CAST(epoch_us({c}) AS VARCHAR)",
    },
    join=bars,
    length="length",
    digits="md5({t})",
    digits_of_bytes="md5({t})",
    number="CAST('0x' || {d} AS BIGINT)",
)

_CLASSES: Mapping[tuple[str, str | None], CellForm] = {
    **{(kind, None): CellForm.WHOLE for kind in ("int8", "int16", "int32", "int64")},
    ("int32", "io.debezium.time.Year"): CellForm.WHOLE,
    ("bytes", "org.apache.kafka.connect.data.Decimal"): CellForm.DECIMAL,
    ("boolean", None): CellForm.BOOLEAN,
    ("bytes", None): CellForm.BYTES,
    **{("string", name): CellForm.TEXT for name in (None, "io.debezium.data.Uuid", "io.debezium.data.Enum", "io.debezium.data.EnumSet")},
    ("int32", "io.debezium.time.Date"): CellForm.DAY,
    **{("int64", f"io.debezium.time.{name}"): CellForm.MICROSECONDS for name in ("Timestamp", "MicroTimestamp")},
    ("string", "io.debezium.time.ZonedTimestamp"): CellForm.INSTANT,
}
"""By type and name of the Connect field that a connector writes by default."""

_KINDS: Mapping[CellForm, Sequence[str]] = {
    CellForm.WHOLE: ("tinyint", "smallint", "int", "bigint"),
    CellForm.TEXT: ("string",),
    CellForm.BOOLEAN: ("boolean",),
    CellForm.BYTES: ("binary",),
    CellForm.DAY: ("date",),
    CellForm.MICROSECONDS: ("timestamp_ntz", "timestamp"),
    CellForm.INSTANT: ("timestamp",),
}
"""By form: the types of a table's column that it writes."""


def form_of(column: SourceColumn, kind: str) -> CellForm | None:
    """Return the form of a column; None where its two types have none in common.

    Floating-point numbers have none: databases write them with different digits. Neither have JSON, intervals, times of day, arrays and
    structs, whose text is the connector's.

    :param column: as the connector writes it with its default settings.
    :param kind: the table's type, as Spark's ``simpleString`` has it.
    """
    found = _CLASSES.get((str(column.field.get("type")), column.field.get("name")))
    if found is None:
        return None
    if found in (CellForm.WHOLE, CellForm.DECIMAL) and kind.startswith("decimal("):
        scale = int(column.field.get("parameters", {}).get("scale", 0))
        # With another scale a cast would round, and rounded values seem equal.
        return (CellForm.DECIMAL if scale else CellForm.WHOLE) if kind.endswith(f",{scale})") else None
    return found if kind in _KINDS.get(found, ()) else None
