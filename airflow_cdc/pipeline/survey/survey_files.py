"""Survey newly archived files: their topics, and the shapes and numbers of their records.

One Spark job for all files of all flows; its result is recorded once (:mod:`airflow_cdc.model.archive.survey`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.survey import FilePlace, RecordKind, TopicShape
from airflow_cdc.model.columns import FILE, ORDINAL, RAW, RAW_KEY
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.connectors.registry import entries, with_log_of_database, without_database
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.decode.envelope import (
    KIND_MEMBERS,
    LINE_STRUCT,
    connector_of,
    in_line,
    is_broken,
    kind_of,
    lacks_value,
    named_topic,
    no_utf8,
    parse_line,
    schema_in,
    whole_record,
)
from airflow_cdc.pipeline.read.one_document import is_one, starts_another
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines
from airflow_cdc.pipeline.read.respell import MARKS, may_be_text
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.survey.count_shapes import MALFORMED, places, shapes_of
from airflow_cdc.pipeline.survey.survey_in_tasks import survey_by_many

# An image is written as text again, which costs as much as parsing it: the before image is read only where it is the only one.
_PAYLOAD = {
    "after": "STRING",
    "source": "STRUCT<connector: STRING, name: STRING, db: STRING, schema: STRING, table: STRING>",
    **KIND_MEMBERS,
    **dict.fromkeys((name for entry in entries() for name in (entry.values.image, entry.values.key) if name), "STRING"),
}
_VALUE = {"schema": "STRING", "payload": sql.struct_type(_PAYLOAD), **_PAYLOAD}
_RECORD = {"topic": "STRING", "partition": "STRING", "offset": "STRING", "key": "STRING"}
_EVENT_KINDS = ", ".join(sql.text(operation.value) for operation in Operation)
_SHAPES = ("key_schema", "key_names", "value_schema", "value_names")
_DESCRIBED = (FILE, "is_record", "topic", "kind", "connector", "partition", "table", "log", "begins_as", "are_joined", "is_marked")
_SOURCE = "payload.source"
_TABLE = f"""if({_SOURCE}.table IS NULL, NULL, concat_ws('.', {_SOURCE}.name,
    if({_SOURCE}.connector IN ({", ".join(map(sql.text, without_database()))}), NULL, {_SOURCE}.db), {_SOURCE}.schema, {_SOURCE}.table))"""
"""The source's table, named as in the connector's topic: with the database, the schema or both."""
_LOG = f"""if({_SOURCE}.name IS NULL, NULL, concat_ws('.', {_SOURCE}.name,
    if({_SOURCE}.connector IN ({", ".join(map(sql.text, with_log_of_database()))}), {_SOURCE}.db, NULL)))"""
"""The source's log (:attr:`airflow_cdc.model.archive.survey.TopicShape.log`)."""
_BEGINS_AS = f"""CASE WHEN ltrim({RAW}) LIKE '[%' THEN '{FileFormat.ARRAY.value}'
    WHEN startswith({RAW}, concat('Obj', char(1))) THEN '{FileFormat.AVRO.value}'
    WHEN startswith({RAW}, 'PAR1') THEN '{FileFormat.PARQUET.value}' END"""
"""The format of a file with this first line, if it is not JSON lines."""


def survey_files(
    spark: SparkSession, archive: str, files: Sequence[ArchivedFile], *, natively: bool = False
) -> tuple[tuple[ArchivedFile, ...], tuple[TopicShape, ...]]:
    """Return the files with the format in which they can be read, and their records' shapes and numbers, by topic.

    A line that names no topic counts for its file's topic; if the file holds several, for none (``count_shapes.places``).

    :param natively: whether files that are plain may be read without Spark.
    """
    rows, others = survey_by_many(spark, archive, files) if natively else ([], files)
    survey = _Look(spark, archive, tuple(files), [*rows, *(_count(read_lines(spark, archive, others), others) if others else ())])
    survey = survey.again(survey.of_other_format())
    survey = survey.again(survey.of_other_shape())
    return survey.files, shapes_of(survey.rows, places(survey.rows, survey.files))


@dataclass(frozen=True)
class _Look:
    """The contents of files, read as their descriptions specify."""

    spark: SparkSession
    archive: str
    files: tuple[ArchivedFile, ...]
    rows: list[dict[str, Any]]

    def of_other_format(self) -> dict[str, ArchivedFile]:
        """Return by path the files that were read as lines but whose first bytes show another format, or whose lines several documents on
        one, with that format.
        """
        first: dict[str, dict[str, Any]] = {}
        for row in self.rows:
            if row[FILE] not in first or row["at"] < first[row[FILE]]["at"]:
                first[row[FILE]] = row
        # A companion's lines run beside the lines of its file: these stay lines.
        paired = {file.path for file in self.files if file.keys_path}
        formats = {row[FILE]: FileFormat.JOINED for row in self.rows if row["are_joined"] and row[FILE] not in paired}
        formats |= {path: FileFormat(row["begins_as"]) for path, row in first.items() if row["begins_as"]}
        return {file.path: replace(file, format=formats[file.path]) for file in self.files if file.path in formats}

    def of_other_shape(self) -> dict[str, ArchivedFile]:
        """Return by path the files that may hold records in another shape than Debezium's envelope, described so."""
        marked = {row[FILE] for row in self.rows if row["is_marked"]}
        return {file.path: replace(file, respelled=True) for file in self.files if file.path in marked}

    def again(self, others: Mapping[str, ArchivedFile]) -> _Look:
        """Return the contents with some files read by other descriptions."""
        if not others:
            return self
        rows = _count(read_lines(self.spark, self.archive, list(others.values())), list(others.values()))
        # A file of lines may begin with a broken one: a file that no format can read keeps the format of its name.
        readable = {row[FILE] for row in rows if row["kind"] != MALFORMED}
        kept = others.keys() - ({row[FILE] for row in rows} - readable)
        rows = [row for row in self.rows if row[FILE] not in kept] + [row for row in rows if row[FILE] in kept]
        return replace(self, files=tuple(others[file.path] if file.path in kept else file for file in self.files), rows=rows)


def survey_lines(lines: DataFrame, files: Sequence[ArchivedFile], placed: Mapping[str, FilePlace]) -> tuple[TopicShape, ...]:
    """Return the shapes and numbers of some lines of surveyed files, by topic.

    :param lines: from :func:`airflow_cdc.pipeline.read.read_lines.read_lines`.
    :param placed: by path: from the survey of the whole file (:meth:`airflow_cdc.model.archive.survey.Survey.placed`).
    """
    return shapes_of(_count(lines, files, [path for path, place in placed.items() if not place.reads_beginnings]), placed)


def _count(lines: DataFrame, files: Sequence[ArchivedFile], of_older_surveys: Sequence[str] = ()) -> list[dict[str, Any]]:
    records = _describe(_values(lines, of_older_surveys), files)
    # By block first: Spark cannot keep a struct's minimum in a hash aggregate, and would sort all records instead.
    counted = records.groupBy(*_DESCRIBED, *_SHAPES, "block").agg(
        F.count("*").alias("records"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("row").alias("row"),
    )
    whole = counted.groupBy(*_DESCRIBED, *_SHAPES).agg(
        F.sum("records").alias("records"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.min(F.struct("block", "row")).alias("at"),
    )
    # Convert names to text here: once per shape, not once per record.
    shapes = [f"coalesce({of}_schema, to_json({of}_names)) AS {of}_shape" for of in ("key", "value")]
    return [row.asDict() for row in whole.selectExpr("*", *shapes).drop(*_SHAPES).collect()]


def named_lines(lines: DataFrame, *columns: str) -> DataFrame:
    """Return one row per line as a survey reads it: file, raw text, topic (NULL if it names none), partition, offset, corrupt, is_utf8.

    :param columns: further columns of :func:`airflow_cdc.pipeline.read.read_lines.read_lines` to keep.
    """
    return _values(lines, (), RAW_KEY, *columns).withColumn("is_utf8", F.expr(f"NOT ({no_utf8(RAW_KEY)})")).drop("value", "key")


def _values(lines: DataFrame, of_older_surveys: Sequence[str], *columns: str) -> DataFrame:
    """Return one row per line: file, corrupt, topic, partition, offset, key, ``columns``, value (:data:`_VALUE`, NULL for null)."""
    value_struct = ", ".join(f"{name}: {kind}" for name, kind in _VALUE.items())
    of_record = {**_RECORD, "value": f"STRUCT<{value_struct}>"}
    line, record = LINE_STRUCT, "__cdc_record"
    kept = (RAW_KEY, *(name for name in columns if name != RAW_KEY))
    parsed = lines.selectExpr(FILE, ORDINAL, RAW, *kept, f"{parse_line(_ddl({**of_record, **_VALUE}))} AS {line}")
    # A record may have members beside its value with the names, but not the types, of a value's members: ignore them.
    looked = parsed.selectExpr("*", f"if({is_broken(line)}, {parse_line(_ddl(of_record))}, NULL) AS {record}")
    is_odd = f"{record}.topic IS NOT NULL"

    def member_of(member: str) -> str:
        return f"if({is_odd}, {record}.{member}, {line}.{member})"

    is_record = whole_record(member_of("topic"), member_of("value"))
    # A value's own member of that name is no key.
    key = f"coalesce(if({is_record}, {member_of('key')}, NULL), {RAW_KEY})"
    topic = f"if({is_odd}, if({is_record}, {record}.topic, NULL), {named_topic(of_older_surveys)})"

    # A value-only line is the value itself; a NULL struct there is the bare JSON null of an archived tombstone.
    bare_value = sql.struct_unless_null(line, {name: f"{line}.{name}" for name in _VALUE})
    return looked.selectExpr(
        FILE,
        ORDINAL,
        RAW,
        *columns,
        f"CASE WHEN {is_broken(line)} THEN {_BEGINS_AS} END AS begins_as",
        f"{is_broken(line)} AND {starts_another(RAW)} AS are_joined",
        f"{is_record} AS is_record",
        f"if({is_odd}, {is_broken(record)}, {is_broken(line)}) OR {no_utf8(RAW_KEY)} OR NOT {is_one(key)} AS corrupt",
        f"{is_record} AND {lacks_value(member_of('value'))} AS is_stray",
        f"{topic} AS topic",
        *[f"{member_of(f'`{name}`')} AS `{name}`" for name in _RECORD if name not in ("key", "topic")],
        f"coalesce({member_of('key')}, {RAW_KEY}) AS key",
        f"if({is_record}, {member_of('value')}, {bare_value}) AS value",
    )


def _ddl(members: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in members.items())


def _describe(values: DataFrame, files: Sequence[ArchivedFile]) -> DataFrame:
    wrapped = "value.schema IS NOT NULL OR value.payload IS NOT NULL"
    bare_payload = f"named_struct({', '.join(f'{name!r}, value.{name}' for name in _PAYLOAD)})"
    payload = f"CASE WHEN {wrapped} THEN value.payload WHEN value IS NOT NULL THEN {bare_payload} END"
    described = values.selectExpr("*", f"{payload} AS payload").selectExpr(
        FILE,
        ORDINAL,
        RAW,
        "begins_as",
        "are_joined",
        "is_record",
        "topic",
        f"coalesce(try_cast(partition AS INT), {file_literal(files, 'partition', 'INT')}) AS partition",
        "try_cast(`offset` AS BIGINT) AS `offset`",
        f"{kind_of(corrupt='corrupt', value='if(value IS NULL AND NOT is_stray, NULL, true)', payload='payload', key='key')} AS kind",
        f"{connector_of('payload')} AS connector",
        f"{_TABLE} AS table",
        f"{_LOG} AS log",
        "key",
        "payload",
        f"if({wrapped}, value.schema, NULL) AS schema",
        f"{wrapped} AS wrapped",
    )
    before = f"if(payload IS NULL, NULL, {in_line('before')})"
    image = f"coalesce({', '.join(['payload.after', *_of_connectors('payload.', 'image'), before])})"
    key = f"coalesce({', '.join(['key', *_of_connectors('payload.', 'key')])})"
    members = f"json_object_keys({image})"
    for entry in entries():
        if entry.values.columns:
            # A document's members are not columns, and differ between documents.
            members = _if_of(entry, sql.texts(entry.values.columns), members)
    named = described.selectExpr(
        *(name for name in _DESCRIBED if name != "is_marked"),
        # A complete envelope is in no other shape, unless it lacks its schema.
        f"""CASE WHEN kind IN ({_EVENT_KINDS}) AND connector IS NOT NULL THEN wrapped AND schema IS NULL
            WHEN kind IN ('{RecordKind.UNKNOWN.value}', '{MALFORMED}') AND {may_be_text(RAW)} THEN true
            ELSE {sql.mentions(RAW, MARKS)} END AS is_marked""",
        f"{ORDINAL}.block",
        f"{ORDINAL}.row",
        "`offset`",
        "key",
        f"json_object_keys({key}) AS key_names",
        f"CASE WHEN kind IN ({_EVENT_KINDS}) AND wrapped THEN schema END AS value_schema",
        f"CASE WHEN kind IN ({_EVENT_KINDS}) AND NOT wrapped THEN {members} END AS value_names",
    )
    described = named.selectExpr("*", f"{schema_in('key', 'key_names')} AS key_schema").drop("key")
    lacks_schema = "key_schema IS NULL AND array_join(sort_array(key_names), ',') = 'payload,schema'"
    return described.withColumn("is_marked", F.expr(f"is_marked OR coalesce({lacks_schema}, false)"))


def _of_connectors(parent: str, member: Literal["image", "key"]) -> list[str]:
    """Return the SQL of the members that some connectors have in place of Debezium's, each NULL for other connectors' values."""
    named = ((entry, getattr(entry.values, member)) for entry in entries())
    return [_if_of(entry, parent + name) for entry, name in named if name]


def _if_of(entry: Connector, value: str, otherwise: str = "NULL") -> str:
    return f"if(connector IN ({', '.join(map(sql.text, entry.names))}), {value}, {otherwise})"
