"""Compare a table with the source's rows. Tables are read by delta-rs's query engine alone, whose reader knows nothing of ours."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.attack.columns import Column, sql_type
from tests.attack.truth import Key, Row

_MOST_LINES = 12
_QUOTE = "'"


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Return all rows of a table; none where there is no table."""
    if not (table / "_delta_log").exists():
        return []
    answer = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t")
    return pa.table(answer.read_all()).to_pylist()  # type: ignore[no-any-return]


def differences(
    table: Path, key_columns: Sequence[Column], columns: Sequence[Column], expected: Mapping[Key, Row], unclear: Collection[Key] = ()
) -> list[str]:
    """Return a line for each key that a table has wrongly."""
    return _compare(rows_of(table), key_columns, columns, expected, unclear)


def not_found(table: Path, columns: Sequence[Column], expected: Mapping[Key, Row], r: Random) -> list[str]:
    """Return a line if a query for one of a row's values, chosen at random, does not find it: readers skip files by their statistics."""
    names = {each.name: place for place, each in enumerate(columns)}
    key, row = r.choice(list(expected.items()))
    values = dict(row) | {name: key[place] for name, place in names.items() if place < len(key)}
    asked = [name for name in names if isinstance(values.get(name), int | Decimal | str) and "\0" not in str(values[name])]
    if not asked:
        return []
    name = r.choice(asked)
    value = values[name]
    text = f"'{value.replace(_QUOTE, _QUOTE * 2)}'" if isinstance(value, str) else str(value).lower()
    if isinstance(value, Decimal):
        text = f"CAST('{value:f}' AS {sql_type(columns[names[name]])})"
    answer = QueryBuilder().register("t", DeltaTable(str(table))).execute(f'SELECT 1 FROM t WHERE "{name}" = {text}')
    return [] if pa.table(answer.read_all()).num_rows else [f"no row is found by {name} = {_shown(value)}"]


def _compare(
    found: Sequence[Mapping[str, Any]],
    key_columns: Sequence[Column],
    columns: Sequence[Column],
    expected: Mapping[Key, Row],
    unclear: Collection[Key],
) -> list[str]:
    names = [each.name for each in columns if each not in key_columns]
    wanted = {_plain_key(key): {name: _plain(row.get(name)) for name in names} for key, row in expected.items()}
    open_keys = {_plain_key(key) for key in unclear}
    lines: list[str] = []
    seen: dict[Any, dict[str, Any]] = {}
    everything: set[Any] = set()
    for row in found:
        key = _plain_key([row[each.name] for each in key_columns])
        if key in everything:
            lines.append(f"key {_shown(key)} stands twice")
        everything.add(key)
        if not row.get("__cdc_deleted"):
            seen[key] = {name: _plain(row.get(name)) for name in names}
    for key in sorted({*wanted, *seen} - open_keys, key=repr):
        if key not in seen:
            lines.append(f"key {_shown(key)} is missing: {_shown(wanted[key])}")
        elif key not in wanted:
            lines.append(f"key {_shown(key)} is gone from the source, and here: {_shown(seen[key])}")
        else:
            lines += [
                f"key {_shown(key)}: {name} is {_shown(seen[key][name])}, in the source {_shown(wanted[key][name])}"
                for name in names
                if seen[key][name] != wanted[key][name]
            ]
    return lines[:_MOST_LINES]


def _plain_key(key: Collection[Any]) -> tuple[Any, ...]:
    return tuple(_plain(each) for each in key)


def _plain(value: Any) -> Any:
    """Return a value of a kind and a spelling that compares exactly."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else repr(value + 0.0))
    if isinstance(value, int | Decimal):
        # A whole number is exact; a decimal's digits are all significant here.
        return ("number", format(Decimal(value), "f").rstrip("0").rstrip(".") if "." in format(Decimal(value), "f") else str(int(value)))
    if isinstance(value, dt.datetime):
        return ("time", value.astimezone(dt.timezone.utc).isoformat() if value.tzinfo else value.isoformat())
    return value


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_shown(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple) and len(value) == 2 and value[0] in {"float", "number", "time"}:
        return str(value[1])
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}… ({len(value)} long)"
