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
from airflow_cdc.model.connectors.connector import PLACEHOLDER
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.fillers import HASH_OF_NULL, may_be_filler
from airflow_cdc.pipeline.decode.value_shape import ValueShape
from airflow_cdc.pipeline.spark import sql

_BYTES = PLACEHOLDER.encode()
_UUID = str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_TEXTS = (PLACEHOLDER, base64.b64encode(_BYTES).decode(), _BYTES.hex())
# As text; as bytes in base64 or hexadecimal; as the only element of an array of texts, bytes or UUIDs, or of a map; as an array of
# numbers, one per byte (docs/sources/debezium.md#unavailable-values; Debezium's UnchangedToastedPlaceholder). Arrays as JSON text, with
# or without spaces.
_NESTED = (*([text] for text in (*_TEXTS, _UUID)), {PLACEHOLDER: PLACEHOLDER}, list(_BYTES))
_SPACED = ((",", ":"), (", ", ": "))
PLACEHOLDER_TEXTS = (*_TEXTS, *dict.fromkeys(json.dumps(nested, separators=each) for nested in _NESTED for each in _SPACED))
PLACEHOLDERS = ", ".join(map(sql.text, PLACEHOLDER_TEXTS))

_BEFORE = "__cdc_values_before"


def may_be_unavailable(sql_type: str) -> bool:
    """Return whether a column of a Spark SQL type may hold a placeholder: only large types can."""
    return sql_type in ("STRING", "BINARY", "VARIANT") or sql_type.startswith("ARRAY<")


def unless_unavailable(text: str, *, in_whole: str = "false") -> str:
    """Return the SQL of a text, NULL where it is a placeholder.

    :param in_whole: SQL that is true for an event whose image leaves nothing out.
    """
    return f"if({text} IN ({PLACEHOLDERS}) AND NOT {in_whole}, NULL, {text})"


def is_unavailable(name: str, text: str, shape: ValueShape) -> str:
    """Return the SQL that is true where a column's text is a placeholder, or is omitted without one.

    :param shape: of the event's value.
    """
    return f"({text} IN ({PLACEHOLDERS}) OR {shape.leaves_out(name, text)})"


def names_of_unavailable(texts: Mapping[str, str], shape: ValueShape, *, in_whole: str = "false") -> str:
    """Return the SQL of the names of an event's columns with unavailable values (array<string>), NULL for none.

    :param texts: SQL of each column's text, by column.
    :param in_whole: SQL that is true for an event whose image leaves nothing out.
    """
    found = {name: is_unavailable(name, text, shape) for name, text in texts.items()}
    if not found:
        return "CAST(NULL AS ARRAY<STRING>)"
    listed = ", ".join(f"if({condition}, {sql.text(name)}, NULL)" for name, condition in found.items())
    return f"if(({' OR '.join(found.values())}) AND NOT {in_whole}, array_compact(array({listed})), NULL)"


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
        # No connector omits a value as short as a filler.
        is_real = f"{own} NOT IN ({PLACEHOLDERS}) AND NOT {may_be_filler(own)}"
        filled = f"if({is_unavailable(name, text, shape)} AND {is_real}, {own}, {text})"
        after = after.withField(sql.name(name), F.expr(filled))
    return records.withColumn(_BEFORE, F.expr(before)).withColumn("payload", F.col("payload").withField("after", after)).drop(_BEFORE)


def hashes_of(image: str, columns: Sequence[str], *, nulls: Mapping[str, str]) -> str:
    """Return the SQL of an image's hashes, one per column, NULL where the image does not carry it; NULL where there is no image or column.

    :param nulls: SQL of what NULL stands for, by column; otherwise it is a value, :data:`HASH_OF_NULL`.
    """
    if not columns:
        return "CAST(NULL AS array<bigint>)"
    hashes = []
    for name in columns:
        text = f"{image}.{sql.name(name)}"
        null = nulls.get(name, HASH_OF_NULL)
        hashes.append(f"CASE WHEN {text} IS NULL THEN {null} WHEN {text} NOT IN ({PLACEHOLDERS}) THEN xxhash64({text}) END")
    return f"if({image} IS NULL, NULL, CAST(array({', '.join(hashes)}) AS array<bigint>))"


def shows_row(image: str, columns: Iterable[str]) -> str:
    """Return the SQL that is true for an image that surely shows a row: a value of one of the columns is no filler."""
    texts = (f"{image}.{sql.name(name)}" for name in columns)
    return " OR ".join(f"NOT ({may_be_filler(text)} OR {text} IN ({PLACEHOLDERS}))" for text in texts) or "false"
