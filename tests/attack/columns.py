"""Kinds of columns: the values that they take, how a connector writes these as JSON, and the type that a flows file would declare."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from random import Random
from typing import Any

Json = dict[str, Any]

_EXACT = Context(prec=60)
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (a TIMESTAMP_NTZ has no zone)
_DAY_ZERO = dt.date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Column:
    """A column of the simulated source."""

    name: str
    kind: str
    field: Mapping[str, Any]
    """Connect's schema, without name and optionality."""
    declared: str | Mapping[str, str]
    """What a flows file says of it, for archives without schemas."""
    draw: Callable[[Random], Any]
    encode: Callable[[Any], Any] = lambda value: value
    filler: Any = None
    """JSON that stands for a value which the source did not log, in a column that may not be NULL."""
    is_optional: bool = True

    def schema(self) -> Json:
        return {**self.field, "optional": self.is_optional, "field": self.name}

    def json(self, value: Any) -> Any:
        """Return a value as the converter writes it."""
        return None if value is None else self.encode(value)


def _whole(bits: int, name: str, sql: str) -> Column:
    top = 2 ** (bits - 1)
    edges = [0, 0, 1, -1, top - 1, -top, *([2**53, 2**53 + 1, -(2**53) - 1] if bits > 53 else [])]
    return Column("", name, {"type": f"int{bits}"}, sql, lambda r: r.choice(edges) if r.random() < 0.5 else r.randrange(100), filler=0)


def unscaled(number: int) -> str:
    """Return a whole number as the bytes of a Connect Decimal."""
    length = max(1, (number.bit_length() + 8) // 8)
    return base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()


def _decimal(precision: int, scale: int, *, is_signed: bool = True) -> Column:
    top = 10**precision - 1 if is_signed else 2**64 - 1
    field = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)},
    }

    def draw(r: Random) -> Decimal:
        low = -top if is_signed else 0
        edges = [0, 1, top, top - 1, *([-1, -top] if is_signed else [])]
        # Numbers near each other and odd, of which a float holds none.
        near = 10 ** (precision - 1) + r.randrange(1_000)
        number = r.choice([r.choice(edges), near, near, r.randrange(low, top), r.randrange(100)])
        return Decimal(number).scaleb(-scale, _EXACT)

    def encode(value: Decimal) -> str:
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
        return unscaled(-number if sign else number)

    kind = f"dec{precision}_{scale}" if is_signed else "unsigned"
    return Column("", kind, field, {"type": f"DECIMAL({precision},{scale})", "encoding": "base64"}, draw, encode, filler=unscaled(0))


_TEXTS = (
    *("", " ", "a", "A", "a ", " a", "\u00e9", "e\u0301", "\0", "a\0", "a\0b", "\n", "\\", '"', "null", "NULL", "NaN", "1", "01", "1.0"),
    *("1e3", "true", "\u2028", "\ufeff", "\U0001f600", "x" * 31, "x" * 32, "x" * 33, "x" * 100, "{}", "[1]", "日本", "\ufffd", "0", "-0"),
    *("\t", "a,b", "%", "$.a", "'", "`", "\U0010ffff" * 33, "\ud7ff" * 40, "\ue000" * 33, "\ue000" * 32 + "\U0001f600", "/*", "--", ";"),
    *("a" * 31 + "\U0010ffff" * 2, "a" * 63 + "\u00ff", "a" * 64 + "\u00ff", "a" * 200, "__debezium"),
)


def _text(r: Random) -> str:
    return r.choice(_TEXTS) if r.random() < 0.8 else "".join(r.choices(_TEXTS, k=3))


def _double(value: float) -> Any:
    # Kafka's JsonConverter writes what JSON has no number for as Jackson does: in quotes.
    return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def _zone(value: dt.datetime) -> str:
    return value.strftime("%Y").zfill(4) + value.strftime("-%m-%dT%H:%M:%S.%fZ")


def _since_epoch(unit: int) -> Callable[[dt.datetime], int]:
    return lambda value: ((value - _EPOCH) // dt.timedelta(microseconds=1)) // unit


_DATES = [dt.date(*ymd) for ymd in ((1970, 1, 1), (1, 1, 1), (9999, 12, 31), (1582, 10, 4), (1582, 10, 15), (1969, 12, 31), (2024, 2, 29))]
# Whole milliseconds, as far as both units reach: a column may change its unit.
_TIMES = [
    dt.datetime(*each)  # noqa: DTZ001
    for each in ((1970, 1, 1), (1, 1, 1), (9999, 12, 31, 23, 59, 59), (1969, 12, 31, 23, 59, 59, 999000), (2024, 6, 1, 12, 0, 0, 1000))
]
_MICROS = [*_TIMES, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]  # noqa: DTZ001
_ZONED = [each.replace(tzinfo=dt.timezone.utc) for each in (_TIMES[0], dt.datetime(2024, 1, 1, 1, 2, 3, 456789), _TIMES[2])]  # noqa: DTZ001


def _timestamp(kind: str, name: str, values: list[dt.datetime], per: int) -> Column:
    declared = {"type": "TIMESTAMP_NTZ", "unit": "millis" if per == 1000 else "micros"}
    field = {"type": "int64", "name": f"io.debezium.time.{name}", "version": 1}
    return Column("", kind, field, declared, lambda r: r.choice(values), _since_epoch(per), filler=0)


_FLOATS = [0.0, -0.0, 1.5, 1e308, 5e-324, 0.1, 1 / 3, -1e-7, 123456789.123456789]
_ALL = (
    _whole(16, "i16", "SMALLINT"),
    _whole(32, "i32", "INT"),
    _whole(64, "i64", "BIGINT"),
    _decimal(10, 0),
    _decimal(10, 2),
    _decimal(18, 4),
    _decimal(20, 0),
    _decimal(24, 4),
    _decimal(38, 0),
    _decimal(38, 10),
    _decimal(20, 0, is_signed=False),
    Column("", "str", {"type": "string"}, "STRING", _text, filler=""),
    Column("", "bool", {"type": "boolean"}, "BOOLEAN", lambda r: r.random() < 0.5, filler=False),
    Column("", "f64", {"type": "double"}, "DOUBLE", lambda r: r.choice(_FLOATS), filler=0.0),
    Column("", "nan", {"type": "double"}, "DOUBLE", lambda r: r.choice([math.nan, math.inf, -math.inf, 0.0, 1.5]), _double, 0.0),
    Column("", "f32", {"type": "float"}, "FLOAT", lambda r: r.choice([0.0, 1.5, 0.25, -2.0]), filler=0.0),
    Column(
        "",
        "bytes",
        {"type": "bytes"},
        "BINARY",
        lambda r: bytes(r.choices(range(256), k=r.choice([0, 1, 2, 3, 10]))),
        lambda value: base64.b64encode(value).decode(),
        "",
    ),
    Column(
        "",
        "date",
        {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
        {"type": "DATE", "unit": "days"},
        lambda r: r.choice(_DATES),
        lambda value: value.toordinal() - _DAY_ZERO,
        0,
    ),
    _timestamp("ms", "Timestamp", _TIMES, 1000),
    _timestamp("us", "MicroTimestamp", _MICROS, 1),
    _timestamp("us_of_ms", "MicroTimestamp", _TIMES, 1),
    Column(
        "",
        "zoned",
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1},
        "TIMESTAMP",
        lambda r: r.choice(_ZONED),
        _zone,
        "1970-01-01T00:00:00Z",
    ),
)
KINDS = {kind.kind: kind for kind in _ALL}
KEY_KINDS = ("i16", "i32", "i32", "i64", "i64", "str", "str", "dec10_0", "date")
WIDE_KEY_KINDS = ("dec20_0", "dec24_4", "unsigned")
EDGE_KEY_KINDS = ("us", "dec38_0", "dec38_10", "bool", "zoned")
"""Kinds of keys that are rarer, and Spark's."""
VALUE_KINDS = ("i32", "i64", "str", "str", "bool", "f64", "f32", "dec10_2", "dec18_4", "dec24_4", "bytes", "date", "us", "ms")
EDGE_KINDS = ("nan", "dec38_0", "dec38_10", "zoned")
"""Kinds of values that are rarer, and of which some are Spark's."""
OTHER_UNIT = {"ms": "us_of_ms", "us_of_ms": "ms"}


def column(kind: str, name: str, *, is_optional: bool = True) -> Column:
    """Return a column of a kind."""
    return replace(KINDS[kind], name=name, is_optional=is_optional)


_ZEROS = {
    "str": "",
    "bool": False,
    "f64": 0.0,
    "f32": 0.0,
    "nan": 0.0,
    "bytes": b"",
    "date": _DATES[0],
    "zoned": _ZONED[0],
    **dict.fromkeys(("ms", "us", "us_of_ms"), _EPOCH),
    **dict.fromkeys(("i16", "i32", "i64"), 0),
}


def zero(kind: str) -> Any:
    """Return a kind's value that programs write where there is none."""
    return _ZEROS.get(kind, Decimal(0))


def sql_type(of: Column) -> str:
    """Return the type that a table's column has."""
    return of.declared if isinstance(of.declared, str) else of.declared["type"]
