"""A key that a person wrote, in the forms in which archived records may spell it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

from airflow_cdc.model.errors import ConfigurationError

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_EPOCH_DAY, _EPOCH = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=timezone.utc)
_PLAIN = re.compile(r"[A-Za-z0-9_.:+\-]+")
_MICRO = 1_000_000


@dataclass(frozen=True)
class KeyValue:
    """The value of one key column."""

    text: str
    """As the person wrote it."""
    forms: frozenset[str]
    """Texts that a record may hold for it."""
    number: Decimal | None = None
    """Set where any number of this value is meant, however it is spelled."""

    def is_at(self, raw: Any) -> bool:
        """Return whether a JSON value is this one."""
        if raw is None:
            return False
        spelled = raw if isinstance(raw, str) else json.dumps(raw, default=str).strip('"')
        if spelled in self.forms:
            return True
        return self.number is not None and number_of(spelled) == self.number


Key = Mapping[str, KeyValue]
"""By key column."""


def parse_key(text: str, columns: Sequence[str], types: Mapping[str, str]) -> Key:
    """Return the key that a text names: a value alone, ``column=value,column=value``, or a JSON object.

    :param columns: the key's columns; empty where the table has no key: then the text names some columns itself.
    :param types: Spark SQL types by column, as far as they are known.
    :raises ConfigurationError: where the text does not name a value for each key column.
    """
    values = _values(text, columns)
    # A delete marker and a row of a table with a key are found by that key.
    unknown = [name for name in values if (name not in columns if columns else types and name not in types)]
    if not values or unknown or set(columns) - values.keys():
        expected = ", ".join(f"{name}=…" for name in columns) or "column=value of one column or more"
        raise ConfigurationError(
            f"The key {text!r} does not fit: expected {expected}" + (f"; not {', '.join(map(repr, unknown))}." if unknown else "."),
            next_step="Write a single key column's value alone, several as column=value,column=value, or as a JSON object.",
        )
    return {name: _value(value, types.get(name, "")) for name, value in values.items()}


def _values(text: str, columns: Sequence[str]) -> dict[str, str]:
    try:
        parsed = json.loads(text, parse_float=str, parse_int=str) if text.lstrip().startswith("{") else None
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in parsed.items()}
    if len(columns) == 1 and not text.startswith(f"{columns[0]}="):
        return {columns[0]: text}
    if len(columns) == 1:
        return {columns[0]: text.partition("=")[2]}
    # A comma belongs to a value unless a name follows it.
    parts = re.split(r",(?=[^,=]+=)", text)
    pairs = [part.partition("=") for part in parts]
    return {name.strip(): value for name, equals, value in pairs if equals}


def _value(text: str, kind: str) -> KeyValue:
    decimal = _DECIMAL.fullmatch(kind)
    if decimal:
        number = number_of(text)
        if number is None:
            raise _misfit(text, kind)
        return KeyValue(text, frozenset((text, _unscaled(number, int(decimal[2])))), number)
    if kind in ("float", "double"):
        return KeyValue(text, frozenset((text,)), number_of(text))
    if kind in ("tinyint", "smallint", "int", "bigint") and not re.fullmatch(r"-?\d+", text):
        raise _misfit(text, kind)
    if kind == "date":
        try:
            return KeyValue(text, frozenset((text, str((date.fromisoformat(text) - _EPOCH_DAY).days))))
        except ValueError as error:
            raise _misfit(text, kind) from error
    if kind.startswith("timestamp"):
        return KeyValue(text, frozenset((text, *_instants(text))))
    return KeyValue(text, frozenset((text,)))


def _misfit(text: str, kind: str) -> ConfigurationError:
    return ConfigurationError(f"The key's value {text!r} is no {kind.upper()}.", next_step="Write it as `airflow-cdc show` prints it.")


def _instants(text: str) -> list[str]:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return []
    moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    since = moment - _EPOCH
    micros = (since.days * 86_400 + since.seconds) * _MICRO + since.microseconds
    plain = moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return [str(micros // 1_000), str(micros), str(micros * 1_000), f"{plain}Z", plain]


def number_of(text: str) -> Decimal | None:
    """Return the number that a text spells; None where it spells none."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _unscaled(number: Decimal, scale: int) -> str:
    """Return a number as Connect's Decimal in JSON: its unscaled bytes in base64."""
    unscaled = int(number.scaleb(scale))
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def lines_with(key: Key) -> re.Pattern[bytes]:
    """Return a pattern that occurs in every line with the key; most lines without it do not have it."""
    best = max(key.items(), key=lambda item: _narrowness(item[1]))
    column, value = best
    names = {json.dumps(column)[1:-1], json.dumps(column, ensure_ascii=False)[1:-1]}
    member = b'"(?:' + b"|".join(re.escape(name.encode()) for name in names) + rb')"\s*:'
    if not _narrowness(value):
        return re.compile(member)
    forms = b"|".join(re.escape(form.encode()) for form in sorted(value.forms))
    return re.compile(member + rb'\s*"?(?:' + forms + rb")(?![A-Za-z0-9])")


def _narrowness(value: KeyValue) -> int:
    """Return how well a text search tells lines with a value from others; 0 where it could miss one."""
    is_plain = value.number is None and all(_PLAIN.fullmatch(form) for form in value.forms)
    return min(map(len, value.forms)) if is_plain else 0
