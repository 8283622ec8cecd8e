"""DeclaredColumn: a column's type as a flow declares it, and its encoding in bare JSON (docs/reference/types.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_cdc.model.catalogue.fields import DECIMAL, VARIABLE_SCALE_DECIMAL

DECIMAL_TYPE = re.compile(r"DECIMAL\((\d{1,2})(?:,(\d{1,2}))?\)")
"""A DECIMAL as SQL spells it, without blanks: its precision, and its scale where it has one."""
_ARRAY = re.compile(r"ARRAY<(.+)>")
_MAX_PRECISION = 38
HEX, BASE64_URL = "airflow_cdc.Hex", "airflow_cdc.Base64Url"
"""Names of Connect fields for bytes encoded as text. They are our own, because connectors write such columns as plain texts."""


class Encoding(str, Enum):
    """How a column's JSON value is encoded, where its text alone does not show it."""

    BASE64 = "base64"
    """DECIMAL: the unscaled number, big-endian (``decimal.handling.mode=precise``); BINARY: the bytes."""
    BASE64_URL = "base64url"
    """BINARY: ``binary.handling.mode=base64-url-safe``."""
    HEX = "hex"
    """BINARY: ``binary.handling.mode=hex``."""
    VARIABLE_SCALE = "variable_scale"
    """DECIMAL or STRING: ``{"scale": …, "value": base64}``, as decimals without a precision are."""
    EPOCH = "epoch"
    """DATE, TIMESTAMP, TIMESTAMP_NTZ, or STRING for nanoseconds: a number of units since 1970."""
    TIME_OF_DAY = "time_of_day"
    """STRING: a number of units since midnight."""


class Unit(str, Enum):
    """The unit of a number that encodes a time."""

    DAYS = "days"
    MILLIS = "millis"
    MICROS = "micros"
    NANOS = "nanos"


_CONNECT_TIMES: Mapping[tuple[Encoding, Unit], tuple[str, str]] = {
    (Encoding.EPOCH, Unit.DAYS): ("int32", "io.debezium.time.Date"),
    (Encoding.EPOCH, Unit.MILLIS): ("int64", "io.debezium.time.Timestamp"),
    (Encoding.EPOCH, Unit.MICROS): ("int64", "io.debezium.time.MicroTimestamp"),
    (Encoding.EPOCH, Unit.NANOS): ("int64", "io.debezium.time.NanoTimestamp"),
    (Encoding.TIME_OF_DAY, Unit.MILLIS): ("int32", "io.debezium.time.Time"),
    (Encoding.TIME_OF_DAY, Unit.MICROS): ("int64", "io.debezium.time.MicroTime"),
    (Encoding.TIME_OF_DAY, Unit.NANOS): ("int64", "io.debezium.time.NanoTime"),
}
_TIMES = frozenset({"TIMESTAMP", "TIMESTAMP_NTZ"})
_TYPES: Mapping[Encoding, frozenset[str]] = {
    Encoding.BASE64: frozenset({"DECIMAL", "BINARY"}),
    Encoding.BASE64_URL: frozenset({"BINARY"}),
    Encoding.HEX: frozenset({"BINARY"}),
    Encoding.VARIABLE_SCALE: frozenset({"DECIMAL", "STRING"}),
    Encoding.EPOCH: frozenset({"DATE", "STRING", *_TIMES}),
    Encoding.TIME_OF_DAY: frozenset({"STRING"}),
}
_UNITS: Mapping[str, frozenset[Unit]] = {
    "DATE": frozenset({Unit.DAYS}),
    "TIMESTAMP": frozenset({Unit.MILLIS, Unit.MICROS, Unit.NANOS}),
    "TIMESTAMP_NTZ": frozenset({Unit.MILLIS, Unit.MICROS, Unit.NANOS}),
    "STRING": frozenset({Unit.NANOS}),
}
"""By type: the units since 1970 in which it can hold any number."""


@dataclass(frozen=True)
class DeclaredColumn:
    """A column's type, and its encoding without a schema. Validated here once.

    Events that carry a schema are read by that; the encoding is for the others.
    """

    sql_type: str
    """A Spark SQL type, as the flows file spells it."""
    encoding: Encoding | None = None
    """None: the JSON text is read as it is (``12.50``, ``2026-11-20T08:00:00Z``)."""
    unit: Unit | None = None
    """For :attr:`Encoding.EPOCH` and :attr:`Encoding.TIME_OF_DAY`."""
    scale: int | None = None
    """For a DECIMAL in base64: fraction digits at the source; None: the type's own scale."""

    def __post_init__(self) -> None:
        if self.encoding is None:
            if self.scale is not None:
                raise ValueError("a scale beside encoding: base64 only")
            return
        encoding, kinds = self.encoding.value, sorted(_TYPES[self.encoding])
        if self._kind not in kinds:
            raise ValueError(f"one of the types {', '.join(kinds)} with encoding: {encoding}, in place of {self.sql_type!r}")
        if self.scale is not None and (self.encoding, self._kind) != (Encoding.BASE64, "DECIMAL"):
            raise ValueError("a scale beside a DECIMAL with encoding: base64 only")
        units = {unit for each, unit in _CONNECT_TIMES if each is self.encoding}
        units &= _UNITS[self._kind] if self.encoding is Encoding.EPOCH else units
        if (self.unit in units) != bool(units) or (self.unit is not None and not units):
            choices = ", ".join(sorted(unit.value for unit in units)) or "none"
            raise ValueError(f"unit: {choices} with {self.sql_type} and encoding: {encoding}")

    @property
    def _plain(self) -> str:
        """The type, or an array's element type, without blanks."""
        spelled = re.sub(r"\s+", "", self.sql_type).upper()
        array = _ARRAY.fullmatch(spelled)
        return array[1] if array else spelled

    @property
    def _kind(self) -> str:
        return self._plain.partition("(")[0]

    @property
    def is_encoded(self) -> bool:
        """Whether the JSON text alone does not show the value."""
        return self.encoding is not None

    def connect_field(self, column: str) -> dict[str, Any] | None:
        """Return the Connect field of a connector that encodes values this way; None where the text is read as it is."""
        if self.encoding is None:
            return None
        field = self._element()
        if self._plain == re.sub(r"\s+", "", self.sql_type).upper():
            return {"field": column, **field}
        return {"field": column, "type": "array", "items": field}

    def _element(self) -> dict[str, Any]:
        encoding = self.encoding
        if encoding is Encoding.BASE64 and self._kind == "DECIMAL":
            return self._decimal()
        if encoding is Encoding.VARIABLE_SCALE:
            return {"type": "struct", "name": VARIABLE_SCALE_DECIMAL}
        if encoding and self.unit:
            kind, name = _CONNECT_TIMES[encoding, self.unit]
            return {"type": kind, "name": name}
        return {"type": "bytes", "name": {Encoding.HEX: HEX, Encoding.BASE64_URL: BASE64_URL}.get(encoding) if encoding else None}

    def _decimal(self) -> dict[str, Any]:
        found = DECIMAL_TYPE.fullmatch(self._plain)
        precision, scale = (int(found[1]), int(found[2] or 0)) if found else (10, 0)
        if self.scale is not None:
            # The source's values may not fit the declared type: read at full precision, then cast.
            precision, scale = _MAX_PRECISION, self.scale
        parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        return {"type": "bytes", "name": DECIMAL, "parameters": parameters}

    def to_setting(self) -> str | dict[str, Any]:
        """Return the column in the flows file's form."""
        more = {"encoding": self.encoding and self.encoding.value, "unit": self.unit and self.unit.value, "scale": self.scale}
        given = {name: value for name, value in more.items() if value is not None}
        if self.unit and self.encoding is Encoding.EPOCH:
            del given["encoding"]
        return {"type": self.sql_type, **given} if given else self.sql_type


def declared_columns(setting: Any) -> dict[str, str | DeclaredColumn]:
    """Return the columns of a setting: by name a type, or ``{type, encoding, unit, scale}``.

    :raises TypeError: when it has another shape.
    :raises ValueError: for an unknown encoding or unit, or one that the type does not have.
    """
    if not isinstance(setting, Mapping) or not all(isinstance(name, str) and name for name in setting):
        raise TypeError("a map of columns to Spark SQL types, or to {type, encoding, unit, scale}")
    return {name: _column(name, entry) for name, entry in setting.items()}


def _column(name: str, entry: Any) -> str | DeclaredColumn:
    if isinstance(entry, str) and entry:
        return entry
    if not isinstance(entry, Mapping) or not set(entry) <= {"type", "encoding", "unit", "scale"}:
        raise TypeError(f"of column {name!r} a Spark SQL type, or {{type, encoding, unit, scale}}")
    kind, scale = entry.get("type"), entry.get("scale")
    if not isinstance(kind, str) or not kind:
        raise TypeError(f"of column {name!r} a type")
    if scale is not None and (not isinstance(scale, int) or isinstance(scale, bool)):
        raise TypeError(f"of column {name!r} a whole number as scale")
    unit = _one_of(Unit, entry.get("unit"), name)
    encoding = _one_of(Encoding, entry.get("encoding"), name) or (Encoding.EPOCH if unit else None)
    try:
        return DeclaredColumn(kind, encoding, unit, scale)
    except ValueError as error:
        raise ValueError(f"of column {name!r} {error}") from error


def _one_of(kind: type[Any], value: Any, column: str) -> Any:
    choices = [choice.value for choice in kind]
    if value is not None and value not in choices:
        raise ValueError(f"of column {column!r} {kind.__name__.lower()}: one of {choices}, in place of {value!r}")
    return None if value is None else kind(value)
