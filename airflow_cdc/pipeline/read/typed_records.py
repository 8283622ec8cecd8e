"""Records of Avro and Parquet files as the equivalent JSON lines, so that later stages read a single format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from airflow_cdc.model.archive.archived_files import FileFormat
from airflow_cdc.model.columns import RAW
from airflow_cdc.pipeline.read.connect_values import NamedTypes, spell, without_logical_types
from airflow_cdc.pipeline.read.embedded_schema import AvroNode, avro_schema, is_parquet, parquet_avro_schema
from airflow_cdc.pipeline.spark import sql

_RECORD = "__cdc_record"


def is_typed(archive: str, path: str, form: FileFormat) -> bool:
    """Return whether a file has the format of its name. Any other file, such as a truncated one, is read as lines, which are rejected."""
    return avro_schema(archive, path) is not None if form is FileFormat.AVRO else is_parquet(archive, path)


def read_typed(spark: SparkSession, archive: str, form: FileFormat, uris: dict[str, str], columns: Sequence[str]) -> DataFrame | None:
    """Return the records of files of one format, each as the text of a JSON line; None if there are no files.

    :param uris: the files' URIs for Spark, by path.
    :param columns: SQL of further columns, from ``_metadata``.
    """
    frames = [
        frame.selectExpr(*columns, f"struct(*) AS {_RECORD}").selectExpr(
            *(column.rpartition(" AS ")[2] for column in columns), f"{_line_as_it_is(frame.schema, avro)} AS {RAW}"
        )
        for frame, avro in _by_schema(spark, archive, form, uris)
    ]
    return reduce(DataFrame.unionByName, frames) if frames else None


def _by_schema(spark: SparkSession, archive: str, form: FileFormat, uris: dict[str, str]) -> Iterator[tuple[DataFrame, AvroNode | None]]:
    # Reading files of several schemas together would make a missing column indistinguishable from NULL.
    groups: dict[tuple[str, str], list[str]] = {}
    for path, uri in uris.items():
        if form is FileFormat.AVRO:
            schema, avro = "", avro_schema(archive, path)
        else:
            schema, avro = spark.read.parquet(uri).schema.json(), parquet_avro_schema(archive, path)
        groups.setdefault((schema, json.dumps(avro)), []).append(uri)
    for (schema, text), members in groups.items():
        avro = json.loads(text)
        if form is FileFormat.AVRO:
            yield spark.read.format("avro").option("avroSchema", json.dumps(without_logical_types(avro))).load(members), avro
        else:
            yield spark.read.schema(StructType.fromJson(json.loads(schema))).parquet(*members), avro


def _line_as_it_is(record: StructType, avro: AvroNode | None) -> str:
    """Return the SQL of a record's line, which is invalid UTF-8 if a text of the record is.

    Writing a text as JSON replaces such bytes by U+FFFD. Put back, they are recognised as invalid, as in an archived JSON line.
    """
    is_bad = f"contains(line, '\ufffd') AND NOT {_is_utf8(record, _RECORD)}"
    return sql.let("line", _line(record, avro), f"if({is_bad}, replace(line, '\ufffd', CAST(X'FF' AS STRING)), line)")


def _is_utf8(kind: DataType, value: str, depth: int = 0) -> str:
    """Return the SQL that is true if all texts in a value are valid UTF-8; never NULL."""
    element = f"element_{depth}"
    if isinstance(kind, StringType):
        return f"coalesce(is_valid_utf8({value}), true)"
    if isinstance(kind, StructType):
        members = (_is_utf8(field.dataType, f"{value}.{sql.name(field.name)}", depth) for field in kind.fields)
        return f"({' AND '.join(member for member in members if member != 'true') or 'true'})"
    if isinstance(kind, ArrayType):
        inside = _is_utf8(kind.elementType, element, depth + 1)
        return inside if inside == "true" else f"coalesce(forall({value}, {element} -> {inside}), true)"
    if isinstance(kind, MapType):
        sides = ((kind.keyType, f"map_keys({value})"), (kind.valueType, f"map_values({value})"))
        return f"({' AND '.join(_is_utf8(ArrayType(side), values, depth) for side, values in sides)})"
    return "true"


def _line(record: StructType, avro: AvroNode | None) -> str:
    """Return the SQL of a record's line: a whole Kafka record if it has a topic and a value, else a value alone."""
    names = NamedTypes(avro)
    if not {"topic", "value"} <= set(record.names):
        return _document(record, avro, names, _RECORD)
    fields_of = {field["name"]: field["type"] for field in names.resolve(avro).get("fields", ())}
    members = []
    for field in record.fields:
        place, of_field = f"{_RECORD}.{sql.name(field.name)}", fields_of.get(field.name)
        if field.name in ("key", "value"):
            text = _document(field.dataType, of_field, names, place)
        else:
            text = _json(spell(field.dataType, of_field, names, place)[0])
        members.append(f"{sql.text(json.dumps(field.name) + ':')}, {text}")
    listed = ", ',', ".join(members)
    return f"concat('{{', {listed}, '}}')"


def _document(kind: DataType, avro: AvroNode | None, names: NamedTypes, value: str) -> str:
    """Return the SQL of a key or a value: with its schema, or, for text or bytes, their content."""
    if isinstance(kind, StringType | BinaryType):
        return f"coalesce(CAST({value} AS STRING), 'null')"
    text, schema = spell(kind, avro, names, value)
    opened = sql.text(f'{{"schema":{json.dumps(schema, ensure_ascii=False, separators=(",", ":"))},"payload":')
    return f"if({value} IS NULL, 'null', concat({opened}, {_json(text)}, '}}'))"


def _json(value: str) -> str:
    """Return the SQL of any value as JSON, including all NULLs."""
    listed = f"to_json(array({value}), map('ignoreNullFields', 'false'))"
    return f"substr({listed}, 2, length({listed}) - 2)"
