"""The Avro schema embedded in a file: in an Avro file's header, or in the footer of a Parquet file written from Avro.

Spark's readers keep a schema's types but not ``connect.name`` and similar annotations, by which Kafka Connect's converter marks what a
number means. Spark reads the records themselves.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from airflow_cdc.pipeline.spark.storage import file_system

AvroNode = Any
"""An Avro schema or a part of it as parsed JSON: a name, a union or an object."""

_AVRO_MAGIC = b"Obj\x01"
_PARQUET_MAGIC = b"PAR1"
_HEAD_BYTES = 64 * 1024
_LENGTH_BYTES = 10
"""Most bytes between a schema's name and its text: the encoded length."""


@lru_cache(maxsize=4096)
def avro_schema(archive: str, path: str) -> AvroNode | None:
    """Return an Avro file's schema, None for any other file. Archived files never change, so the result is cached."""
    fs, root = file_system(archive)
    size = _HEAD_BYTES
    while True:
        head: bytes = fs.cat_file(f"{root}/{path}", start=0, end=size)
        if not head.startswith(_AVRO_MAGIC):
            return None
        found = _schema_in(head, b"avro.schema")
        if found is not None or len(head) < size:
            return found
        size *= 8


@lru_cache(maxsize=4096)
def is_parquet(archive: str, path: str) -> bool:
    """Return whether a file ends with Parquet's magic bytes."""
    fs, root = file_system(archive)
    return bool(fs.cat_file(f"{root}/{path}", start=-len(_PARQUET_MAGIC)) == _PARQUET_MAGIC)


@lru_cache(maxsize=4096)
def parquet_avro_schema(archive: str, path: str) -> AvroNode | None:
    """Return the Avro schema from which a Parquet file was written, None if it carries none."""
    fs, root = file_system(archive)
    tail = fs.cat_file(f"{root}/{path}", start=-8)
    footer = int.from_bytes(tail[:4], "little") + len(tail)
    return _schema_in(fs.cat_file(f"{root}/{path}", start=-footer), b"parquet.avro.schema")


def _schema_in(data: bytes, name: bytes) -> AvroNode | None:
    place = data.find(name)
    if place < 0:
        return None
    text = data[place + len(name) :].decode(errors="replace")
    # A byte of the length may look like a brace.
    starts = [at for at, character in enumerate(text[: _LENGTH_BYTES + 1]) if character == "{"]
    return next((schema for schema in (_decode(text[start:]) for start in starts) if schema), None)


def _decode(text: str) -> AvroNode | None:
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        return None
