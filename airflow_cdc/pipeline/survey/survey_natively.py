"""Survey plain files without Spark (DuckDB): Debezium's row envelopes in whole Kafka records or as values, one JSON document a line.

The rows are those of :func:`airflow_cdc.pipeline.survey.survey_files.survey_files`. A file with any other line is left to Spark, whole; so
are all files where one does not parse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.survey import RecordKind
from airflow_cdc.model.columns import FILE
from airflow_cdc.model.connectors.registry import entries, without_database
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, has_line_like, rows_by_name
from airflow_cdc.pipeline.native.duckdb_sql import name, struct, text, texts
from airflow_cdc.pipeline.native.fetched_files import is_fetched, is_named_alike
from airflow_cdc.pipeline.native.record_lines import IS_PAIRED, RecordLines, UnpairedError, fetch, is_paired_natively
from airflow_cdc.pipeline.read.respell import MARKS
from airflow_cdc.pipeline.spark.storage import is_local

MOST_TEXT_BYTES = 1024**3
"""Text that one process surveys; more is spread over Spark's executors."""

_OPERATIONS = tuple(each.value for each in (Operation.READ, Operation.CREATE, Operation.UPDATE, Operation.DELETE))
_CONNECTORS = tuple(known for entry in entries() if entry.native for known in entry.names)
_OTHERS = sorted({member for entry in entries() for member in (*entry.values.members, entry.values.image, entry.values.key) if member})
"""Members of values that are not Debezium's row envelope."""
_SOURCE = struct(dict.fromkeys(("connector", "name", "db", "schema", "table"), "VARCHAR"))
_PAYLOAD = {"op": "VARCHAR", "before": "JSON", "after": "JSON", "source": _SOURCE, **dict.fromkeys(_OTHERS, "JSON")}
_VALUE = {"schema": "JSON", "payload": struct(_PAYLOAD), **_PAYLOAD}
_LENIENT = r",\s*[}\]]"
"""Pattern of what a line may hold where DuckDB takes a comma behind the last member, which is no JSON."""
_INTEGER = "-?[0-9]{1,18}"


def survey_natively(archive: str, files: Sequence[ArchivedFile]) -> tuple[list[dict[str, Any]], list[ArchivedFile]]:
    """Return the shapes and counts of plain files' records, and the files that are left to Spark."""
    own = [file for file in files if is_of_lines(file) and not _is_hidden(file, archive)]
    if not own or find_spec("duckdb") is None or not is_fetched(archive) or sum(file.text_size for file in own) > MOST_TEXT_BYTES:
        return [], list(files)
    alone, paired = [file for file in own if not file.keys_path], [file for file in own if file.keys_path]
    found = _read(archive, alone, are_values=False)
    # A file of values looks like one of records that name no topic.
    values = [file for file in alone if found.get(file.path) and all(row["topic"] is None for row in found[file.path])]
    found |= _read(archive, values, are_values=True) | _read(archive, paired, are_values=True)
    plain = {path: shapes for path, shapes in found.items() if not any(row["is_odd"] or _is_odd(row) for row in shapes)}
    return [_shape(row) for shapes in plain.values() for row in shapes], [file for file in files if file.path not in plain]


def is_of_lines(file: ArchivedFile) -> bool:
    """Return whether a file holds records as they are, one JSON document a line, compressed as both engines know it."""
    return file.format is FileFormat.LINES and is_named_alike(file.path) and is_paired_natively(file) and not file.respelled


def _is_hidden(file: ArchivedFile, archive: str) -> bool:
    """Return whether Spark cannot read a file: it is set aside, though DuckDB could, because Spark may have to merge it."""
    return is_local(archive) and ":" in file.path.rpartition("/")[2]


def _read(archive: str, files: Sequence[ArchivedFile], *, are_values: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the shapes of each file's records, by path; nothing where a line does not parse or a file cannot be read.

    :param files: all with companions, or none.
    """
    import duckdb

    if not files:
        return {}
    with connect_duckdb(threads=4) as connection:
        try:
            fetched = fetch(archive, files)
            connection.register_filesystem(fetched)
            if has_lenient(connection, fetched.uris):
                return {}
            lines = RecordLines(fetched, files, are_values=are_values)
            rows = rows_by_name(connection.execute(_statement(lines)))
        except (duckdb.Error, OSError, UnpairedError):
            return {}
    by_uri = dict(zip(lines.uris, files, strict=True))
    found: dict[str, list[dict[str, Any]]] = {file.path: [] for file in files}
    for row in rows:
        if row["filename"] is None:
            # A companion has more lines than its file.
            return {}
        path = by_uri[row["filename"]].path
        found[path].append({**row, "path": path})
    return found


def has_lenient(connection: Any, paths: Sequence[str]) -> bool:
    """Return whether files may hold a comma behind a last member, which DuckDB accepts and Spark does not."""
    return has_line_like(connection, paths, _LENIENT)


_IS_PLACED = 'topic IS NOT NULL AND partition IS NOT NULL AND "offset" IS NOT NULL AND length(topic) > 0'
_NUMBERS = f"""REPLACE (
      if(regexp_full_match(partition, '{_INTEGER}'), TRY_CAST(partition AS INTEGER), NULL) AS partition,
      if(regexp_full_match("offset", '{_INTEGER}'), TRY_CAST("offset" AS BIGINT), NULL) AS "offset")"""


def _statement(read: RecordLines) -> str:
    tombstone = text(RecordKind.TOMBSTONE.value)
    others = " AND ".join(f"payload.{name(member)} IS NULL" for member in _OTHERS)
    marked = " OR ".join(f"contains({part}, {text(mark)})" for mark in MARKS for part in ("topic", "key_text", "headers_text"))
    # An image or a key is an object; a list, a text and a number have no members. DuckDB has written its text anew, without white space.
    is_plain = f"""{IS_PAIRED if read.are_values else _IS_PLACED}
        AND (key_text IS NULL OR starts_with(key_text, '{{')) AND (image IS NULL OR starts_with(image::VARCHAR, '{{'))
        AND if(value IS NULL, NOT coalesce({marked}, false),
          payload.op IN ({texts(_OPERATIONS)}) AND payload.source.connector IN ({texts(_CONNECTORS)}) AND {others}
          AND (NOT wrapped OR (json_type(value.schema) = 'OBJECT' AND value.payload IS NOT NULL)))"""
    database = f"if(payload.source.connector IN ({texts(without_database())}), NULL, payload.source.db)"
    table = f"""if(payload.source."table" IS NULL, NULL,
        concat_ws('.', payload.source.name, {database}, payload.source.schema, payload.source."table"))"""
    return f"""
WITH lines AS (
  SELECT *, value.schema IS NOT NULL OR value.payload IS NOT NULL AS wrapped,
    if(value.schema IS NOT NULL OR value.payload IS NOT NULL, value.payload, {_bare()}) AS payload
  FROM ({read.read(_VALUE, "JSON")})
), typed AS (
  SELECT * {"" if read.are_values else _NUMBERS},
    coalesce(payload.after, payload.before) AS image, CAST(key AS VARCHAR) AS key_text, CAST(headers AS VARCHAR) AS headers_text
  FROM lines
), described AS (
  SELECT *, NOT coalesce({is_plain}, false) AS is_odd FROM typed
)
SELECT filename, is_odd, topic, partition, if(value IS NULL, {tombstone}, payload.op) AS kind, payload.source.connector AS connector,
  {table} AS "table", if(wrapped, CAST(value.schema AS VARCHAR), NULL) AS value_schema,
  if(value IS NULL OR wrapped OR is_odd, NULL, json_keys(image)) AS value_names,
  if(is_odd, NULL, json_keys(key)) AS key_names, if(is_odd, NULL, CAST(json_extract(key, '$.schema') AS VARCHAR)) AS key_schema,
  count(*) AS records, min("offset") AS first_offset, max("offset") AS last_offset
FROM described GROUP BY ALL"""


def _bare() -> str:
    members = ", ".join(f"{name(member)} := value.{name(member)}" for member in _PAYLOAD)
    return f"if(value IS NULL, NULL, struct_pack({members}))"


def _is_odd(row: Mapping[str, Any]) -> bool:
    """Return whether Spark may spell a shape otherwise: a schema with fractions or escapes, names that need escapes or come twice."""
    schemas = (row["key_schema"], row["value_schema"])
    names = [members for members in (row["key_names"], row["value_names"]) if members is not None]
    return any(schema is not None and not _is_compact(schema) for schema in schemas) or any(
        len(set(members)) < len(members) or any(character < " " for member in members for character in member) for members in names
    )


def _is_compact(schema: str) -> bool:
    # Fractions are read as text here, and come back as text, in quotes.
    return json.dumps(json.loads(schema, parse_float=str), ensure_ascii=False, separators=(",", ":")) == schema and "\\u" not in schema


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as Spark's survey does."""
    key, value = row["key_schema"], row["value_schema"]
    return {
        FILE: row["path"],
        "is_record": True,
        "begins_as": None,
        "is_marked": False,
        "at": (0, 0),
        **{same: row[same] for same in ("topic", "kind", "connector", "partition", "table", "records", "first_offset", "last_offset")},
        "key_shape": key if key is not None else _names(row["key_names"]),
        "value_shape": value if value is not None else _names(row["value_names"]),
    }


def _names(members: Sequence[str] | None) -> str | None:
    return None if members is None else json.dumps(members, ensure_ascii=False, separators=(",", ":"))
