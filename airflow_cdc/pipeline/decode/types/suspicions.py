"""Suspicions: columns of bare JSON whose values look like an encoding of another type.

There is no proof: a text of small and capital letters may be base64 or a code, a number a time or an identifier. So a person decides
(docs/adr/0024-types-are-never-guessed-in-silence.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from airflow_cdc.pipeline.decode.types.seen_values import SeenValues

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=timezone.utc).timestamp()) for year in (1980, 2100))
"""Range of plausible times, in seconds since 1970: no proof, but the years that people look for."""
_UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_LONGEST_DECIMAL = 24
"""Characters of sixteen bytes in base64: more than 38 digits."""


@dataclass(frozen=True)
class Suspicion:
    """A possible other type of a column's values."""

    evidence: str
    """The observation, for people."""
    setting: str
    """The column's declaration in a flows file if the suspicion is right; ``?`` stands for what is unknown."""


def find_suspicions(seen: Mapping[str, SeenValues], keys: Collection[str]) -> dict[str, Suspicion]:
    """Return the suspicions by column.

    :param seen: observations of columns whose types have no other evidence.
    :param keys: columns that identify a row: small numbers there are identifiers, not days.
    """
    found = {name: _suspicion(values, is_key=name in keys) for name, values in seen.items()}
    return {name: suspicion for name, suspicion in found.items() if suspicion}


def _suspicion(values: SeenValues, *, is_key: bool) -> Suspicion | None:
    if values.kinds == {"whole"}:
        return next(_times(values, is_key=is_key), None)
    if values.kinds == {"text"} and not values.some_no_base64:
        return _base64(values)
    if values.kinds == {"other"} and not values.some_no_variable_scale:
        evidence = f"{_counted(values)} an object with a scale and a value, as decimals without a precision are"
        return Suspicion(evidence, "{type: STRING, encoding: variable_scale}")
    return None


def _times(values: SeenValues, *, is_key: bool) -> Iterator[Suspicion]:
    for unit, factor in _UNITS.items():
        if _FIRST * factor <= values.least and values.most < _LAST * factor:
            first, last = ((_EPOCH + timedelta(seconds=each // factor)).date() for each in (values.least, values.most))
            kind = "STRING, encoding: epoch" if unit == "nanos" else "TIMESTAMP_NTZ"
            yield _time(values, unit, first, last, f"{{type: {kind}, unit: {unit}}}")
    if not is_key and values.least >= _FIRST // 86_400 and values.most < _LAST // 86_400:
        first, last = ((_EPOCH + timedelta(days=each)).date() for each in (values.least, values.most))
        yield _time(values, "days", first, last, "{type: DATE, unit: days}")


def _time(values: SeenValues, unit: str, first: date, last: date, setting: str) -> Suspicion:
    between = f"{values.least} would be {first}" + (f", {values.most} {last}" if values.most != values.least else "")
    return Suspicion(f"{_counted(values)} a number that may be {unit} since 1970 ({between})", setting)


def _base64(values: SeenValues) -> Suspicion | None:
    if values.longest <= _LONGEST_DECIMAL and not values.some_not_minimal and (values.some_padded or values.some_mixed):
        evidence = f"{_counted(values)} short base64, as decimals are, such as {', '.join(values.examples)}"
        return Suspicion(evidence, "{type: 'DECIMAL(?,?)', encoding: base64}")
    if values.some_padded:
        return Suspicion(f"{_counted(values)} base64, as bytes are, such as {', '.join(values.examples)}", "BINARY")
    return None


def _counted(values: SeenValues) -> str:
    return "1 value was seen:" if values.count == 1 else f"{values.count} values were seen, each"
