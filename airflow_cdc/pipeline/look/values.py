"""Values of an Arrow table as Spark collects them: instants in UTC without a zone, maps as dictionaries, structs as its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Convert = Callable[[Any], Any]


def rows_of(table: Any, *, structs_by_name: bool) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table by column name.

    :param structs_by_name: whether a struct is a dictionary, and not a tuple of its values.
    :raises ValueError: for a time outside Python's years 1 to 9999.
    """
    import pyarrow

    without_zone = pyarrow.schema([pyarrow.field(field.name, _without_zone(field.type)) for field in table.schema])
    rows: list[dict[str, Any]] = table.cast(without_zone).to_pylist()
    converters = {field.name: _converter(field.type, structs_by_name=structs_by_name) for field in without_zone}
    nested = {name: convert for name, convert in converters.items() if convert}
    if nested:
        for row in rows:
            row.update({name: convert(row[name]) for name, convert in nested.items()})
    return rows


def _without_zone(kind: Any) -> Any:
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind):
        return pyarrow.timestamp("us")
    if types.is_struct(kind):
        return pyarrow.struct([pyarrow.field(part.name, _without_zone(part.type)) for part in kind])
    if types.is_map(kind):
        return pyarrow.map_(_without_zone(kind.key_type), _without_zone(kind.item_type))
    return pyarrow.list_(_without_zone(kind.value_type)) if types.is_list(kind) or types.is_large_list(kind) else kind


def _converter(kind: Any, *, structs_by_name: bool) -> Convert | None:
    """Return what converts a value of a type; None where the value stays."""
    from pyarrow import types

    if types.is_struct(kind):
        parts = {part.name: _converter(part.type, structs_by_name=structs_by_name) or _same for part in kind}
        make: Convert = dict if structs_by_name else (lambda pairs: tuple(value for _, value in pairs))
        return _unless_null(lambda value: make([(name, convert(value[name])) for name, convert in parts.items()]))
    if types.is_map(kind):
        key, item = (_converter(part, structs_by_name=structs_by_name) or _same for part in (kind.key_type, kind.item_type))
        return _unless_null(lambda value: {key(name): item(part) for name, part in value})
    if types.is_list(kind) and (convert := _converter(kind.value_type, structs_by_name=structs_by_name)):
        return _unless_null(lambda value: [convert(part) for part in value])
    return None


def _same(value: Any) -> Any:
    return value


def _unless_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
