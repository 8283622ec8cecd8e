"""The tables that are merged into: what their columns hold, as SQL for the engines that write them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

KEY = "id"
TOPIC = "bench.dbo.accounts"
PARTITIONS = 4
"""Of the topic; all events of a key are in one of them."""


@dataclass(frozen=True)
class Column:
    """A column, and its value as functions of ``h``: a positive hash below 2^62 of the row and its version."""

    name: str
    sql_type: str
    """In Spark's SQL and in DuckDB's."""
    spark: str
    """SQL of the value."""
    json: str
    """DuckDB's SQL of the same as JSON text, as Debezium writes it with ``decimal.handling.mode=string``."""
    declared: bool = False
    """Whether the flow has to declare the type, because the JSON does not show it."""


@dataclass(frozen=True)
class Shape:
    """The columns of a table behind its key ``id BIGINT``."""

    name: str
    columns: tuple[Column, ...]

    @cached_property
    def types(self) -> dict[str, str]:
        """SQL types by column, the key first."""
        return {KEY: "BIGINT", **{column.name: column.sql_type for column in self.columns}}

    @cached_property
    def declared(self) -> dict[str, str]:
        """The types that the flow has to declare."""
        return {column.name: column.sql_type for column in self.columns if column.declared}

    def spark_row(self) -> list[str]:
        """Return Spark's SQL of all values, over the columns ``id`` and ``h``."""
        return [KEY, *(f"CAST({column.spark} AS {column.sql_type}) AS {column.name}" for column in self.columns)]

    def json_row(self, key: str, number: str) -> str:
        """Return DuckDB's SQL of a row as JSON text, of its key and its ``h``."""
        parts = [f"""'{{"{KEY}":' || {key}"""]
        parts += [f"""',"{column.name}":' || {column.json.replace("{h}", number)}""" for column in self.columns]
        return " || ".join([*parts, "'}'"])


def _digits(*, whole: int, digits: int) -> tuple[str, str]:
    """Return Spark's and DuckDB's SQL of a number with a point."""

    def spelled(h: str, text: str) -> str:
        return f"({h} % {whole}) || '.' || lpad(CAST({h} % {10**digits} AS {text}), {digits}, '0')"

    return spelled("h", "STRING"), spelled("{h}", "VARCHAR")


def _text(name: str, prefix: str, values: int) -> Column:
    return Column(name, "STRING", f"'{prefix} ' || (h % {values})", f"""'"{prefix} ' || ({{h}} % {values}) || '"'""")


def _number(name: str, values: int) -> Column:
    return Column(name, "BIGINT", f"h % {values}", f"({{h}} % {values})")


def _decimal(name: str) -> Column:
    spark, duck = _digits(whole=100_000, digits=2)
    return Column(name, "DECIMAL(12,2)", spark, f"""'"' || {duck} || '"'""", declared=True)


def _double(name: str) -> Column:
    return Column(name, "DOUBLE", *_digits(whole=100, digits=3))


_UPDATED_AT = Column(
    "updated_at",
    "TIMESTAMP",
    "timestamp_seconds(1700000000 + h % 10000000)",
    """strftime(make_timestamp((1700000000 + {h} % 10000000) * 1000000), '"%Y-%m-%dT%H:%M:%S.%fZ"')""",
    declared=True,
)
_NOTE = Column("note", "STRING", "md5(CAST(h AS STRING))", """'"' || md5(CAST({h} AS VARCHAR)) || '"'""")
_ACTIVE = Column("active", "BOOLEAN", "h % 3 = 0", "if({h} % 3 = 0, 'true', 'false')")

ACCOUNTS = Shape(
    "accounts",
    (
        _text("name", "name", 100_000),
        _text("city", "city", 500),
        _text("status", "status", 4),
        _decimal("amount"),
        _number("quantity", 1000),
        _double("score"),
        _ACTIVE,
        _NOTE,
        _UPDATED_AT,
    ),
)
"""10 columns."""

WIDE = Shape(
    "wide",
    (
        *ACCOUNTS.columns,
        *(_number(f"n{number}", 1000 + number) for number in range(100)),
        *(_text(f"t{number}", "t", 100 + number) for number in range(80)),
        *(_decimal(f"d{number}") for number in range(10)),
    ),
)
"""200 columns; a row is about 2 kB of JSON."""
SHAPES = {shape.name: shape for shape in (ACCOUNTS, WIDE)}
