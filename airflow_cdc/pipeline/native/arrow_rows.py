"""Rows of Arrow with the columns and types that a table or a file has to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def in_schema(rows: Any, schema: Any, *, constants: Mapping[str, Any]) -> Any:
    """Return rows with the columns and types of a schema.

    :param rows: Arrow table.
    :param schema: Arrow schema.
    :param constants: one value for all rows, by column that the rows do not have.
    :raises ArrowInvalid: for a value that does not fit.
    """
    import pyarrow as pa

    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(_repeated(constants[field.name], rows.num_rows, field.type))
        else:
            arrays.append(_cast(rows.column(field.name), field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _repeated(value: Any, count: int, kind: Any) -> Any:
    import pyarrow as pa

    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _cast(array: Any, kind: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(kind) and kind.tz and pa.types.is_timestamp(array.type) and not array.type.tz:
        # An instant of ours has no zone in DuckDB.
        return array.cast(pa.timestamp("us")).cast(pa.timestamp("us", tz=kind.tz))
    return array.cast(kind)
