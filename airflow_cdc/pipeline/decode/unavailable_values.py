"""Unavailable values: the placeholders that a connector writes where an update did not touch a large value."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.value_shape import ValueShape
from airflow_cdc.pipeline.spark import sql

_PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = _PLACEHOLDER.encode()
_UUID = str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_TEXTS = (_PLACEHOLDER, base64.b64encode(_BYTES).decode(), _BYTES.hex())
# As text; as bytes in base64 or hexadecimal; as the only element of an array of texts, bytes or UUIDs, or of a map; as an array of
# numbers, one per byte (docs/sources/debezium.md#unavailable-values; Debezium's UnchangedToastedPlaceholder). Arrays as JSON text, with
# or without spaces.
_NESTED = (*([text] for text in (*_TEXTS, _UUID)), {_PLACEHOLDER: _PLACEHOLDER}, list(_BYTES))
PLACEHOLDER_TEXTS = (
    *_TEXTS,
    *(json.dumps(nested, separators=separators) for nested in _NESTED for separators in ((",", ":"), (", ", ": "))),
)
PLACEHOLDERS = ", ".join(map(sql.text, PLACEHOLDER_TEXTS))

# Fillers of NOT NULL columns in a before image that holds only the key (docs/sources/postgresql.md#images-before). No connector omits a
# value this short.
_FILLERS = f"{PLACEHOLDERS}, '', '[]', '{{}}'"
_BEFORE = "__cdc_values_before"


def may_be_unavailable(sql_type: str) -> bool:
    """Return whether a column of a Spark SQL type may hold a placeholder: only large types can."""
    return sql_type in ("STRING", "BINARY", "VARIANT") or sql_type.startswith("ARRAY<")


def unless_unavailable(text: str) -> str:
    """Return the SQL of a text, NULL where it is a placeholder."""
    return f"if({text} IN ({PLACEHOLDERS}), NULL, {text})"


def is_unavailable(name: str, text: str, shape: ValueShape) -> str:
    """Return the SQL that is true where a column's text is a placeholder, or is omitted without one.

    :param shape: of the event's value.
    """
    return f"({text} IN ({PLACEHOLDERS}) OR {shape.leaves_out(name, text)})"


def names_of_unavailable(texts: Mapping[str, str], shape: ValueShape) -> str:
    """Return the SQL of the names of an event's columns with unavailable values (array<string>), NULL for none.

    :param texts: SQL of each column's text, by column.
    """
    found = {name: is_unavailable(name, text, shape) for name, text in texts.items()}
    if not found:
        return "CAST(NULL AS ARRAY<STRING>)"
    listed = ", ".join(f"if({condition}, {sql.text(name)}, NULL)" for name, condition in found.items())
    return f"if({' OR '.join(found.values())}, array_compact(array({listed})), NULL)"


def fill_from_before(
    records: DataFrame, columns: Sequence[str], shape: ValueShape, *, formerly: Mapping[str, tuple[str, ...]]
) -> DataFrame:
    """Fill in unavailable values of ``payload.after`` from the event's own before image, where that carries them.

    The before image is parsed only for records with an unavailable value.

    :param records: with our kind, raw text and ``payload``.
    :param columns: the names of the columns that may be unavailable.
    :param shape: of the events' values.
    :param formerly: by column: older names under which the image may carry it.
    """
    if not columns:
        return records
    texts = {name: f"payload.after.{sql.name(name)}" for name in columns}
    asked = " OR ".join(is_unavailable(name, text, shape) for name, text in texts.items())
    members = ", ".join(f"{sql.name(each)} STRING" for name in columns for each in (name, *formerly.get(name, ())))
    before = f"if({KIND} IN ('u', 'c') AND ({asked}), from_json({in_line('before')}, {sql.text(members)}), NULL)"
    after = F.col("payload.after")
    for name, text in texts.items():
        own = f"coalesce({', '.join(f'{_BEFORE}.{sql.name(each)}' for each in (name, *formerly.get(name, ())))})"
        filled = f"if({is_unavailable(name, text, shape)} AND {own} NOT IN ({_FILLERS}), {own}, {text})"
        after = after.withField(sql.name(name), F.expr(filled))
    return records.withColumn(_BEFORE, F.expr(before)).withColumn("payload", F.col("payload").withField("after", after)).drop(_BEFORE)


def hashes_of(image: str, columns: Iterable[str]) -> str:
    """Return the SQL of an image's hashes, one per column; NULL for an image without values."""
    texts = (unless_unavailable(f"{image}.{sql.name(name)}") for name in columns)
    hashes = f"CAST(array({', '.join(f'if({text} IS NULL, NULL, xxhash64({text}))' for text in texts)}) AS array<bigint>)"
    # An image with only the key counts as no image.
    return f"if({image} IS NULL OR forall({hashes}, hash -> hash IS NULL), NULL, {hashes})"
