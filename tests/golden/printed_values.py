"""What a database prints of a value, as the value that a column of ours should hold: by the databases' manuals, not by our rules."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone
from decimal import Context, Decimal
from typing import Any

_LONG = Context(prec=50)


def as_printed(text: str, kind: str, read: Callable[[str], Any] | None = None) -> Any:
    """Return the value of a column of Spark SQL type ``kind``; ``read`` where the type alone does not say how."""
    if read:
        return read(text)
    if kind.startswith("ARRAY<"):
        return [None if element is None else as_printed(element, kind[len("ARRAY<") : -1]) for element in pg_array(text)]
    name, _, digits = kind.partition("(")
    if name == "DECIMAL":
        scale = int(digits.rstrip(")").split(",")[1])
        return Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_LONG)
    return _READ[name](text)


def pg_array(text: str) -> list[str | None]:
    """Return the elements of a PostgreSQL array literal of one dimension."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}]+)', text[1:-1], flags=re.DOTALL)
    return [None if bare == "NULL" else bare or re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) for quoted, bare in found]


def _float(text: str) -> float:
    return struct.unpack("f", struct.pack("f", float(text)))[0]  # type: ignore[no-any-return]


def _instant(text: str) -> datetime | None:
    return None if text.startswith("0000-00-00") else datetime.fromisoformat(re.sub(r"\+00$", "", text))


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), int),
    "BOOLEAN": lambda text: text in ("true", "t", "1"),
    "FLOAT": _float,
    "DOUBLE": float,
    "STRING": str,
    "BINARY": _bytes,
    "DATE": lambda text: None if text == "0000-00-00" else date.fromisoformat(text),
    "TIMESTAMP": _instant,
    "TIMESTAMP_NTZ": _instant,
}


def _bits(text: str) -> bytes:
    """Lowest bit first (Debezium's Bits); from PostgreSQL as many bytes as the highest bit that is set needs."""
    number = int(text, 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _time(digits: int) -> Callable[[str], str]:
    def read(text: str) -> str:
        whole, _, fraction = text.partition(".")
        return f"{whole}.{fraction.ljust(digits, '0')}"

    return read


def _timetz(text: str) -> str:
    """The same moment in UTC, without the zeros behind."""
    padded = re.sub(r"([+-]\d\d)$", r"\1:00", text)
    time, zone = padded[:-6], padded[-6:]
    moment = datetime.strptime(f"2000-01-02 {time if '.' in time else time + '.0'}{zone}", "%Y-%m-%d %H:%M:%S.%f%z").astimezone(
        timezone.utc
    )
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return f"{moment:%H:%M:%S}{'.' + fraction if fraction else ''}Z"


def _interval(text: str) -> int:
    """Microseconds, a month of 365.25 / 12 days (Debezium's MicroDuration)."""
    found = re.fullmatch(r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?", text)
    assert found, text
    years, months, days, hours, minutes, seconds = (Decimal(part or 0) for part in found.groups())
    in_days = (years * 12 + months) * Decimal("30.4375") + days
    return int(((in_days * 24 + hours) * 60 + minutes) * 60_000_000 + seconds * 1_000_000)


def _hstore(text: str) -> str:
    pairs = re.findall(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', text)
    marks = re.findall(r"=>(.)", text)
    plain = {re.sub(r"\\(.)", r"\1", key): re.sub(r"\\(.)", r"\1", value) for key, value in pairs}
    values = {key: None if mark == "N" else value for (key, value), mark in zip(plain.items(), marks, strict=True)}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)


def _point(text: str) -> str:
    x, y = map(float, re.findall(r"-?[\d.]+", text))
    # Well-known binary: byte order, type, both as doubles.
    wkb = base64.b64encode(struct.pack("<BIdd", 1, 1, x, y)).decode()
    return json.dumps({"x": x, "y": y, "wkb": wkb, "srid": None}, separators=(",", ":"))


NUMERALS = (("pg_types_precise", "c_num"), ("pg_types_precise", "c_numneg"))
"""Numbers of any length as text, with as many zeros behind the point as the connector's scale says."""
AS_PRINTED: Mapping[tuple[str, str], Callable[[str], Any]] = {
    ("pg_types_precise", "c_char"): lambda text: text.ljust(10),
    ("pg_types_precise", "c_money"): lambda text: Decimal(text.replace("$", "").replace(",", "")),
    ("pg_types_precise", "c_time"): _time(6),
    ("pg_types_precise", "c_time3"): _time(3),
    ("pg_types_precise", "c_time0"): _time(3),
    ("pg_types_precise", "c_timetz"): _timetz,
    ("pg_types_precise", "c_interval"): _interval,
    ("pg_types_precise", "c_hstore"): _hstore,
    ("pg_types_precise", "c_point"): _point,
    ("pg_types_precise", "c_bits"): _bits,
    ("pg_types_precise", "c_varbit"): _bits,
    ("maria_types_precise", "c_bit9"): lambda text: _bits(text).ljust(2, b"\0"),
    ("maria_types_precise", "c_time"): _time(6),
    ("maria_types_precise", "c_time6"): _time(6),
    ("maria_types_precise", "c_pt"): _point,
}
