"""The SQL by which a source database and DuckDB spell a row as the same text, so that each can hash its own rows.

A cell is its length in characters, a colon and its text; NULL is ``-``. A row's hash is the first 60 bits of the MD5 of its cells, which
each database computes where the rows are. A column takes part if its type at the source and in the table have one spelling
(:func:`spelling_of`); the others are named, not passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.flow.source_schema import SourceColumn

_HEXADECIMAL_DIGITS = 15
"""60 bits: their sums over some hundred million rows fit each database's numbers, and one hash each database's BIGINT."""


class Spelling(Enum):
    """How the values of a column are written as text."""

    WHOLE = "whole"
    """An integer's digits."""
    DECIMAL = "decimal"
    """Digits with the column's scale."""
    TEXT = "text"
    BOOLEAN = "boolean"
    """1 or 0."""
    BYTES = "bytes"
    """Hexadecimal digits."""
    DAY = "day"
    """Days since 1970."""
    MICROSECONDS = "microseconds"
    """Since 1970, of a time without a zone, or with one in UTC."""
    INSTANT = "instant"
    """As above, of a type with a zone at the source."""


@dataclass(frozen=True)
class Dialect:
    """One database's SQL."""

    quote: Callable[[str], str]
    """Quotes an identifier."""
    spelled: Mapping[Spelling, str]
    """By spelling, the SQL of a column's text; ``{c}`` stands for the column."""
    join: Callable[[Sequence[str]], str]
    """Returns the SQL of texts one after the other."""
    length: str
    """Function: characters of a text."""
    digits: str
    """SQL of the MD5 of the text ``{t}``, as hexadecimal digits."""
    number: str
    """SQL of the number that the hexadecimal digits ``{d}`` spell."""

    def text_of(self, name: str, spelling: Spelling) -> str:
        """Return the SQL of a column's text."""
        return self.spelled[spelling].format(c=self.quote(name))

    def hash_of(self, columns: Mapping[str, Spelling]) -> str:
        """Return the SQL of the hash of some columns of a row.

        :param columns: at least one, in an order that both sides share.
        """
        texts = [self.text_of(name, spelling) for name, spelling in columns.items()]
        cells = [f"COALESCE({self.join([f'{self.length}({text})', _QUOTED_COLON, text])}, '-')" for text in texts]
        digits = self.digits.format(t=self.join(cells))
        return self.number.format(d=f"SUBSTR({digits}, 1, {_HEXADECIMAL_DIGITS})")


_QUOTED_COLON = "':'"


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _bars(texts: Sequence[str]) -> str:
    # A function takes a hundred arguments at most; the operator any number.
    return " || ".join(texts)


def _concat(texts: Sequence[str]) -> str:
    return f"CONCAT({', '.join(texts)})"


_PG_SECONDS = "EXTRACT(EPOCH FROM date_trunc('second', {c}))::bigint * 1000000 + EXTRACT(MICROSECONDS FROM {c})::bigint % 1000000"
# A day of infinity minus another raises an error.
_PG_FINITE = "CASE WHEN isfinite({c}) THEN ({value})::text ELSE {c}::text END"

POSTGRESQL = Dialect(
    quote=_double_quoted,
    spelled={
        Spelling.WHOLE: "{c}::text",
        # MONEY has no other text that is a number's.
        Spelling.DECIMAL: "{c}::numeric::text",
        # concat, because a cast of CHARACTER(n) cuts its blanks off.
        Spelling.TEXT: "CASE WHEN {c} IS NOT NULL THEN concat({c}) END",
        Spelling.BOOLEAN: "{c}::int::text",
        Spelling.BYTES: "encode({c}, 'hex')",
        Spelling.DAY: _PG_FINITE.replace("{value}", "{c} - DATE '1970-01-01'"),
        Spelling.MICROSECONDS: _PG_FINITE.replace("{value}", _PG_SECONDS),
        Spelling.INSTANT: _PG_FINITE.replace("{value}", _PG_SECONDS),
    },
    join=_bars,
    length="char_length",
    digits="md5(convert_to({t}, 'UTF8'))",
    number="('x' || {d})::bit(60)::bigint",
)

MYSQL = Dialect(
    quote=lambda name: "`" + name.replace("`", "``") + "`",
    spelled={
        # A cast, because ZEROFILL shows in the text of a number.
        Spelling.WHOLE: "CAST(CAST({c} AS DECIMAL(65,0)) AS CHAR)",
        Spelling.DECIMAL: "CAST(({c} + 0) AS CHAR)",
        Spelling.TEXT: "CONVERT({c} USING utf8mb4)",
        Spelling.BOOLEAN: "CAST(({c} + 0) AS CHAR)",
        Spelling.BYTES: "LOWER(HEX({c}))",
        Spelling.DAY: "CAST(DATEDIFF({c}, '1970-01-01') AS CHAR)",
        Spelling.MICROSECONDS: "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', {c}) AS CHAR)",
        # Of a TIMESTAMP it is what is stored, whatever the session's zone and its hour that comes twice.
        Spelling.INSTANT: "CAST(CAST(UNIX_TIMESTAMP({c}) * 1000000 AS SIGNED) AS CHAR)",
    },
    join=_concat,
    length="CHAR_LENGTH",
    digits="MD5(CONVERT({t} USING utf8mb4))",
    number="CAST(CONV({d}, 16, 10) AS UNSIGNED)",
)

DUCKDB = Dialect(
    quote=_double_quoted,
    spelled={
        Spelling.WHOLE: "CAST({c} AS VARCHAR)",
        # A type without digits before the point is written without the zero there.
        Spelling.DECIMAL: r"regexp_replace(CAST({c} AS VARCHAR), '^(-?)\.', '\10.')",
        Spelling.TEXT: "{c}",
        Spelling.BOOLEAN: "CAST(CAST({c} AS INTEGER) AS VARCHAR)",
        Spelling.BYTES: "lower(hex({c}))",
        Spelling.DAY: "CAST(date_diff('day', DATE '1970-01-01', {c}) AS VARCHAR)",
        Spelling.MICROSECONDS: "CAST(epoch_us({c}) AS VARCHAR)",
        Spelling.INSTANT: "CAST(epoch_us({c}) AS VARCHAR)",
    },
    join=_bars,
    length="length",
    digits="md5({t})",
    number="CAST('0x' || {d} AS BIGINT)",
)

DIALECTS: Mapping[str, Dialect] = {"postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}
"""By connector (``source.connector``): the databases whose rows can be compared."""

_CLASSES: Mapping[tuple[str, str | None], Spelling] = {
    **{(kind, None): Spelling.WHOLE for kind in ("int8", "int16", "int32", "int64")},
    ("int32", "io.debezium.time.Year"): Spelling.WHOLE,
    ("bytes", "org.apache.kafka.connect.data.Decimal"): Spelling.DECIMAL,
    ("boolean", None): Spelling.BOOLEAN,
    ("bytes", None): Spelling.BYTES,
    **{("string", name): Spelling.TEXT for name in (None, "io.debezium.data.Uuid", "io.debezium.data.Enum", "io.debezium.data.EnumSet")},
    ("int32", "io.debezium.time.Date"): Spelling.DAY,
    **{("int64", f"io.debezium.time.{name}"): Spelling.MICROSECONDS for name in ("Timestamp", "MicroTimestamp")},
    ("string", "io.debezium.time.ZonedTimestamp"): Spelling.INSTANT,
}
"""By type and name of the Connect field that a connector writes by default."""

_KINDS: Mapping[Spelling, Sequence[str]] = {
    Spelling.WHOLE: ("tinyint", "smallint", "int", "bigint"),
    Spelling.TEXT: ("string",),
    Spelling.BOOLEAN: ("boolean",),
    Spelling.BYTES: ("binary",),
    Spelling.DAY: ("date",),
    Spelling.MICROSECONDS: ("timestamp_ntz", "timestamp"),
    Spelling.INSTANT: ("timestamp",),
}
"""By spelling: the types of a table's column that it writes."""


def spelling_of(column: SourceColumn, kind: str) -> Spelling | None:
    """Return the spelling of a column; None where its two types have none in common.

    Floating-point numbers have none: databases write them with different digits. Neither have JSON, intervals, times of day, arrays and
    structs, whose text is the connector's.

    :param column: as the connector writes it with its default settings.
    :param kind: the table's type, as Spark's ``simpleString`` has it.
    """
    found = _CLASSES.get((str(column.field.get("type")), column.field.get("name")))
    if found is None:
        return None
    if found in (Spelling.WHOLE, Spelling.DECIMAL) and kind.startswith("decimal("):
        scale = int(column.field.get("parameters", {}).get("scale", 0))
        # With another scale a cast would round, and rounded values seem equal.
        return (Spelling.DECIMAL if scale else Spelling.WHOLE) if kind.endswith(f",{scale})") else None
    return found if kind in _KINDS.get(found, ()) else None
