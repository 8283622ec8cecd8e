"""Mapping of Kafka Connect types, literal and semantic, to Spark columns.

Every leaf arrives as the text of its JSON value (``envelope.parse_line``). A rule provides the column's Spark type and the
SQL that reads the text. NULL for a text that is not NULL means that the value does not fit, and the record is rejected.
Sources: Kafka Connect's schema types; Debezium's "data type mappings" (docs/sources/sqlserver.md#types and the other pages there).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_cdc.model.catalogue.fields import CONNECT_TIME, DECIMAL, TIMES_OF_DAY, VARIABLE_SCALE_DECIMAL
from airflow_cdc.model.connectors.connector import AS_LOCAL_TIMESTAMP, AS_SIGNED_TIME, AS_TEXT
from airflow_cdc.model.connectors.registry import CONNECTORS, entries
from airflow_cdc.model.flow.declared_column import BASE64_URL, HEX
from airflow_cdc.pipeline.decode.types.column_types import canonical, reads_alike
from airflow_cdc.pipeline.decode.types.decimal_types import (
    MAX_PRECISION,
    decimal_type,
    digits_behind_point,
    read_decimal,
    read_variable_scale,
)
from airflow_cdc.pipeline.decode.types.native_readings import (
    Reading,
    read_boolean,
    read_bytes,
    read_calendar,
    read_days,
    read_double,
    read_float,
    read_instant,
    read_integer,
    read_number,
    read_time_of_day,
    read_unscaled,
    read_zoned,
    text,
)
from airflow_cdc.pipeline.decode.types.text_forms import (
    OWN_SCALE,
    TEXT,
    TIME,
    TextForm,
    form_of_type,
    respelled,
    respelled_natively,
)
from airflow_cdc.pipeline.spark import sql


@dataclass(frozen=True)
class ColumnType:
    """A column's Spark SQL type, and the conversion of a JSON leaf's text to it."""

    sql_type: str
    read: Callable[[str], str]
    """From the SQL of the text to the SQL of the value."""
    checked: bool = True
    """False if every text fits."""
    by_schema: bool = False
    """Whether a text's meaning depends on its event's schema: equal values may have different texts."""
    native: Reading | None = None
    """The same rule in the native engine; None where only Spark applies it."""
    is_text: bool = False
    """Whether the archived value is a text that says the same to people (``2026-11-20T08:00:00Z``, ``infinity``)."""
    is_fraction: bool = False
    """Whether the archived value may be a JSON number with a point, of which the column keeps all digits."""
    form: TextForm = TEXT
    """Of a STRING: the form of its texts; :data:`TEXT` also where each follows its event."""

    @property
    def text_form(self) -> TextForm:
        """The form of the values as text."""
        return self.form if self.sql_type == "STRING" or self.is_text else form_of_type(self.sql_type)

    def in_form(self, form: TextForm | None) -> ColumnType:
        """Return the rule of a STRING with texts of a form; with the texts that it has where they are of another kind."""
        own = self.form
        if form is None or form.is_plain or own == form or own.kind != form.kind:
            return self
        native = self.native
        by_native = (lambda leaf: respelled_natively(native(leaf), own, form)) if native else None
        return replace(self, read=lambda value: respelled(self.read(value), own, form), native=by_native, form=form)

    def reads(self, other: ColumnType) -> bool:
        """Return whether the rule reads another's values too: the same SQL, of the same type, a wider integer or a longer decimal.

        One type may have many encodings, such as milli- and microseconds since 1970. So types prove nothing: only the SQL does.
        """
        alike = other.read("v").replace(f"AS {other.sql_type})", f"AS {self.sql_type})")
        return reads_alike(self.sql_type, other.sql_type) and alike == self.read("v")


STRING = ColumnType("STRING", lambda value: value, checked=False, native=text)
_BINARY = ColumnType("BINARY", lambda value: f"try_to_binary({value}, 'base64')", native=read_bytes)
_NATIVE: Mapping[str, Reading] = {
    **{kind: read_integer(kind) for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")},
    "FLOAT": read_float,
    "DOUBLE": read_double,
    "BOOLEAN": read_boolean,
}

# Types for which a cast would keep the encoded text: bytes, which are base64 in JSON, and JSON itself.
_NOT_CAST = {"STRING": STRING, "BINARY": _BINARY, "VARIANT": ColumnType("VARIANT", lambda value: f"try_parse_json({value})")}

_CALENDAR_DATE = r"^\s*[+-]?\d{4,}-\d{1,2}-\d{1,2}"
_IN_MICROSECONDS = r"(?!.*\.\d{6}\d*[1-9])"
"""Part of a pattern: only zeros may follow the sixth digit of a fractional second."""


def cast_to(sql_type: str) -> ColumnType:
    """Return a rule that reads a JSON number, boolean or text by Spark's cast. A value that the cast would alter does not fit;
    FLOAT and DOUBLE take the nearest number.
    """

    def cast(value: str) -> str:
        return f"try_cast({value} AS {sql_type})"

    if sql_type in _NOT_CAST:
        return _NOT_CAST[sql_type]
    if sql_type.startswith("ARRAY<"):
        rule = cast_to(sql_type[len("ARRAY<") : -1])
        return _array_of(lambda _: rule)
    if sql_type.startswith("DECIMAL("):
        scale = _scale_of(sql_type)
        native = read_number(sql_type, scale)

        def exact(value: str) -> str:
            return f"CASE WHEN {digits_behind_point(value)} <= {scale} THEN {cast(value)} END"

        return ColumnType(sql_type, exact, native=native, is_fraction=scale > 0)
    if sql_type == "DATE":
        # A cast would read 18000 (days since 1970, as connectors write a date) as the year 18000, and drop a time of day.
        # isostring has a date with a zone, which is UTC: 2026-11-24Z.
        text = "trim(TRAILING 'Z' FROM {})".format
        pattern = rf"{_CALENDAR_DATE}\s*Z?$"
        return ColumnType(
            sql_type,
            lambda value: _within_years(sql_type, cast(text(value)), f"{value} RLIKE r'{pattern}'"),
            native=read_calendar(sql_type),
        )
    if sql_type in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        # A cast would read 18000 as a year and 12:34:56 as a time of the current day, and truncate to microseconds.
        pattern = f"{_CALENDAR_DATE}{_IN_MICROSECONDS}"
        return ColumnType(
            sql_type, lambda value: _within_years(sql_type, cast(value), f"{value} RLIKE r'{pattern}'"), native=read_calendar(sql_type)
        )
    return ColumnType(sql_type, cast, native=_NATIVE.get(sql_type))


_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")


def read_as(declared: str, rule: ColumnType | None) -> ColumnType:
    """Return the rule of a type: from the value that ``rule`` reads, else from the JSON text.

    A value that the type would round or truncate does not fit.
    """
    sql_type = canonical(declared)
    if rule is not None and rule.sql_type == sql_type:
        return rule
    # A cast would read a number as seconds since 1970, or fail the statement. As a text no number is a time.
    no_time = rule is not None and sql_type in _TIMES and rule.sql_type not in (*_TIMES, "STRING")
    if rule is None or rule is STRING or no_time:
        return cast_to(sql_type)
    if sql_type == "STRING":
        # A cast would decode the bytes as UTF-8, which they need not be. The JSON text has base64.
        is_kept = rule.is_text or rule.sql_type == "BINARY" or rule.sql_type.startswith("ARRAY<")
        cast = replace(rule, sql_type=sql_type, read=lambda value: f"CAST({rule.read(value)} AS STRING)", native=None, form=rule.text_form)
        return STRING if is_kept else cast
    if rule.sql_type == "STRING":
        of_text = cast_to(sql_type)
        return ColumnType(sql_type, lambda value: of_text.read(rule.read(value)), is_fraction=of_text.is_fraction)
    there_and_back = f"if(try_cast(try_cast(value AS {sql_type}) AS {rule.sql_type}) <=> value, try_cast(value AS {sql_type}), NULL)"
    return ColumnType(sql_type, lambda value: sql.let("value", rule.read(value), there_and_back), is_fraction=rule.is_fraction)


def _array_of(rule_in: Callable[[str], ColumnType]) -> ColumnType:
    """Return the rule for a JSON array. An array fits only if all its elements do.

    :param rule_in: from the SQL of the array's text to the rule for its elements.
    """

    def read(value: str) -> str:
        element = rule_in(value).read("element")
        fit = f"forall(elements, element -> element IS NULL OR {element} IS NOT NULL)"
        values = f"CASE WHEN {fit} THEN transform(elements, element -> {element}) END"
        return sql.let("elements", f"from_json({value}, 'ARRAY<STRING>')", values)

    return ColumnType(f"ARRAY<{rule_in('').sql_type}>", read)


def _within_years(sql_type: str, value: str, condition: str) -> str:
    """Return the SQL of a date or timestamp, NULL outside the years 1 to 9999: readers of the table crash on other years."""
    last = "9999-12-31" if sql_type == "DATE" else "9999-12-31 23:59:59.999999"
    return f"CASE WHEN {condition} AND {value} BETWEEN {sql_type} '0001-01-01' AND {sql_type} '{last}' THEN {value} END"


FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970."""


def _count_within_years(value: str, units_per_day: int, convert: Callable[[str], str]) -> str:
    """As above, for epoch counts. The range also excludes the counts that stand for infinities."""
    count = f"try_cast({value} AS BIGINT)"
    first, last = FIRST_DAY * units_per_day, (LAST_DAY + 1) * units_per_day - 1
    return f"CASE WHEN {count} BETWEEN {first}L AND {last}L THEN {convert(count)} END"


def _scale_of(sql_type: str) -> int:
    return int(sql_type.rstrip(")").rpartition(",")[2]) if "," in sql_type else 0


_LITERAL: Mapping[str, ColumnType] = {
    "int8": cast_to("TINYINT"),
    "int16": cast_to("SMALLINT"),
    "int32": cast_to("INT"),
    "int64": cast_to("BIGINT"),
    "float": cast_to("FLOAT"),
    "float32": cast_to("FLOAT"),
    "double": cast_to("DOUBLE"),
    "float64": cast_to("DOUBLE"),
    "boolean": cast_to("BOOLEAN"),
    "string": STRING,
    "bytes": _BINARY,
    # Nested values keep their JSON text; so does an array whose item type is unknown.
    "array": STRING,
    "map": STRING,
    "struct": STRING,
}


def _days(value: str) -> str:
    return _count_within_years(value, 1, lambda count: f"date_from_unix_date(CAST({count} AS INT))")


def instant(value: str, units_per_second: int) -> str:
    """Return the SQL of a timestamp from the text of an epoch count, NULL outside the years 1 to 9999."""
    factor = 1_000_000 // units_per_second
    return _count_within_years(value, 86_400 * units_per_second, lambda count: f"timestamp_micros({count} * {factor}L)")


def _local_timestamp(units_per_second: int) -> ColumnType:
    # The session's zone is UTC, so the instant and the local time have the same fields.
    native = read_instant(units_per_second, FIRST_DAY, LAST_DAY)
    return ColumnType("TIMESTAMP_NTZ", lambda value: f"CAST({instant(value, units_per_second)} AS TIMESTAMP_NTZ)", native=native)


def _nano_timestamp(value: str) -> str:
    # Spark's timestamps end at microseconds; SQL Server's datetime2(7) does not. The text keeps all digits and casts to TIMESTAMP_NTZ.
    nanos = f"try_cast({value} AS BIGINT)"
    seconds = f"CAST(timestamp_seconds(floor({nanos} / 1000000000BD)) AS TIMESTAMP_NTZ)"
    return f"concat(CAST({seconds} AS STRING), '.', lpad(CAST(pmod({nanos}, 1000000000) AS STRING), 9, '0'))"


def _time_of_day(units_per_second: int, *, signed: bool = False) -> ColumnType:
    digits = len(str(units_per_second)) - 1

    def read(value: str) -> str:
        count = f"try_cast({value} AS BIGINT)"
        size = f"abs({count})" if signed else count
        whole = f"({size} DIV {units_per_second})"
        # Arithmetic, because PostgreSQL's 24:00:00 is a time other than midnight.
        parts = f"{whole} DIV 3600, {whole} DIV 60 % 60, {whole} % 60, {size} % {units_per_second}"
        text = f"format_string('%02d:%02d:%02d.%0{digits}d', {parts})"
        if signed:
            text = f"concat(if({count} < 0, '-', ''), {text})"
        return f"CASE WHEN {count} >= {-(2**63) + 1 if signed else 0}L THEN {text} END"

    return ColumnType("STRING", read, native=read_time_of_day(units_per_second, signed=signed), form=TextForm(TIME, digits))


_LOCAL_NANOS, _NANOS = (ColumnType("STRING", _nano_timestamp, form=TextForm(of, 9)) for of in ("TIMESTAMP_NTZ", "TIMESTAMP"))
_ZONED = replace(cast_to("TIMESTAMP"), native=read_zoned, is_text=True)
_DATE = ColumnType("DATE", _days, native=read_days(FIRST_DAY, LAST_DAY))

_TIMES_OF_DAY: Mapping[str, int] = {**TIMES_OF_DAY, CONNECT_TIME: 1_000}
"""Units per second."""

_SEMANTIC: Mapping[str, ColumnType] = {
    "io.debezium.time.Date": _DATE,
    "org.apache.kafka.connect.data.Date": _DATE,
    **{name: _time_of_day(units) for name, units in _TIMES_OF_DAY.items()},
    "io.debezium.time.Timestamp": _local_timestamp(1_000),
    "org.apache.kafka.connect.data.Timestamp": _local_timestamp(1_000),
    "io.debezium.time.MicroTimestamp": _local_timestamp(1_000_000),
    "io.debezium.time.NanoTimestamp": _LOCAL_NANOS,
    "io.debezium.time.ZonedTimestamp": _ZONED,
    # Avro's logical types, for files without Connect's names.
    "date": _DATE,
    "time-millis": _time_of_day(1_000),
    "time-micros": _time_of_day(1_000_000),
    "timestamp-millis": ColumnType("TIMESTAMP", lambda value: instant(value, 1_000)),
    "timestamp-micros": ColumnType("TIMESTAMP", lambda value: instant(value, 1_000_000)),
    "timestamp-nanos": _NANOS,
    "local-timestamp-millis": _local_timestamp(1_000),
    "local-timestamp-micros": _local_timestamp(1_000_000),
    "local-timestamp-nanos": _LOCAL_NANOS,
    VARIABLE_SCALE_DECIMAL: ColumnType("STRING", read_variable_scale, form=OWN_SCALE),
}

_DECLARED: Mapping[str, ColumnType] = {
    # Declared in flows: connectors write such columns as plain text.
    HEX: ColumnType("BINARY", lambda value: f"try_to_binary({value}, 'hex')"),
    BASE64_URL: ColumnType("BINARY", lambda value: f"try_to_binary(translate({value}, '-_', '+/'), 'base64')"),
}

_LOCAL_TIMESTAMP = ColumnType(
    "TIMESTAMP_NTZ",
    lambda value: rf"CASE WHEN {value} RLIKE r'{_CALENDAR_DATE}[^.]*(\.\d{{0,6}})?$' THEN try_cast({value} AS TIMESTAMP_NTZ) END",
)

_OWN: Mapping[str, Callable[[str], ColumnType]] = {
    AS_TEXT: lambda semantic: STRING,
    AS_SIGNED_TIME: lambda semantic: _time_of_day(_TIMES_OF_DAY[semantic], signed=True),
    AS_LOCAL_TIMESTAMP: lambda semantic: _LOCAL_TIMESTAMP,
}
"""Rules, from the semantic type, that connectors' entries name for their own encodings."""


def _by_connector(semantic: str, connector: str) -> ColumnType | None:
    """Return the rule for a semantic type that the connector encodes in its own way; None for any other."""
    entry = CONNECTORS.get(connector)
    rule = entry.types.own.get(semantic) if entry else None
    return _OWN[rule](semantic) if rule else None


def _by_ending(semantic: str) -> ColumnType | None:
    """Return the rule for a semantic type of a single connector, by the last three parts of its name."""
    ending = ".".join(semantic.rsplit(".", 3)[1:])
    rule = next((entry.types.by_ending[ending] for entry in entries() if ending in entry.types.by_ending), None)
    return _OWN[rule](semantic) if rule else None


def _decimal(field: Mapping[str, Any], array: str | None) -> ColumnType:
    parameters = field.get("parameters") or {}
    scale, precision = int(parameters.get("scale", 0)), int(parameters.get("connect.decimal.precision") or MAX_PRECISION)
    sql_type = decimal_type(scale, precision)
    names = [str(field.get("field")), *field.get(FORMERLY, ())]
    native = None if sql_type == "STRING" or array else read_unscaled(sql_type, scale)

    def read(value: str) -> str:
        return read_decimal(value, names, scale, sql_type, array)

    form = TextForm("DECIMAL", max(scale, 0)) if sql_type == "STRING" else TEXT
    return ColumnType(sql_type, read, native=native, is_fraction=sql_type != "STRING" and scale > 0 and not array, form=form)


FORMERLY = "formerly"
"""Member that we add to the field of a renamed column: the older names under which events may carry it."""
_NUMBER = re.compile(r"-?\d{1,4}")


def is_field(field: Any) -> bool:
    """Return whether a JSON value is a field of a Connect schema that :func:`column_type` can read."""
    if not isinstance(field, dict) or not all(isinstance(field.get(name), str) for name in ("field", "type")):
        return False
    if field["type"] not in _LITERAL:
        return False
    if isinstance(field.get("items"), dict) and not is_field({"field": "", **field["items"]}):
        return False
    parameters = field.get("parameters") or {}
    numbers = ("scale", "connect.decimal.precision")
    return isinstance(parameters, dict) and all(_NUMBER.fullmatch(str(parameters.get(name) or 0)) for name in numbers)


def is_encoded(field: Mapping[str, Any]) -> bool:
    """Return whether a field's values cannot be read from their JSON text alone."""
    name, items = str(field.get("name")), field.get("items")
    if field["type"] == "array" and isinstance(items, dict):
        return is_encoded(items)
    return name == DECIMAL or (name in _SEMANTIC and _SEMANTIC[name] is not _ZONED)


def column_type(field: Mapping[str, Any], connector: str, array: str | None = None) -> ColumnType:
    """Return the rule for one field of a Connect schema.

    :param field: ``{type, name, parameters, items, …}`` as the JSON converter writes it.
    :param connector: ``source.connector``; some connectors encode a semantic type in their own way.
    :param array: SQL of the JSON text of the array whose elements the field describes.
    """
    semantic = str(field.get("name"))
    if semantic == DECIMAL:
        return _decimal(field, array)
    items = field.get("items")
    if field["type"] == "array" and field.get("name") is None and isinstance(items, dict):
        return _array_of(lambda text: column_type(items, connector, text))
    by_name = _by_connector(semantic, connector) or _SEMANTIC.get(semantic) or _DECLARED.get(semantic) or _by_ending(semantic)
    return by_name or _LITERAL[field["type"]]
