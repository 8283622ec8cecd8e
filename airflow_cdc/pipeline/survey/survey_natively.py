"""Survey plain files without Spark (DuckDB): Debezium's events in whole Kafka records or as values, one JSON document a line.

A plain file holds row envelopes, tombstones and control events. The rows are those of
:func:`airflow_cdc.pipeline.survey.survey_files.survey_files`. A file with any other line is left to Spark, whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.survey import RecordKind
from airflow_cdc.model.columns import FILE
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, lines_with_null, may_read, rows_by_name
from airflow_cdc.pipeline.native.fetched_files import is_fetched, is_named_alike
from airflow_cdc.pipeline.native.loose_json import null_values
from airflow_cdc.pipeline.native.record_lines import RecordLines, UnpairedError, fetch, is_paired_natively
from airflow_cdc.pipeline.spark.storage import is_local
from airflow_cdc.pipeline.survey.control_events_sql import control_events
from airflow_cdc.pipeline.survey.row_events_sql import row_events

MOST_TEXT_BYTES = 16 * 1024**3
"""Text that one process surveys; more is spread over Spark's executors."""
_AT_ONCE = 1024**3
"""Text of the files that are read by one statement: what is fetched of them is in memory."""

_SAME = ("topic", "kind", "connector", "partition", "table", "log", "records", "first_offset", "last_offset")
"""Members of a shape that both engines' queries name alike."""

DESCRIBED = """
SELECT filename, is_odd, topic, partition, kind, connector, "table", log, value_schema, value_names,
  if(is_odd, NULL, json_keys(key)) AS key_names, if(is_odd, NULL, CAST(json_extract(key, '$.schema') AS VARCHAR)) AS key_schema,
  count(*) AS records, min("offset") AS first_offset, max("offset") AS last_offset
FROM ({lines}) GROUP BY ALL"""
"""Shapes and counts of described lines. ``is_odd``: Spark must survey the line's file."""


def survey_natively(archive: str, files: Sequence[ArchivedFile]) -> tuple[list[dict[str, Any]], list[ArchivedFile]]:
    """Return the shapes and counts of plain files' records, and the files that are left to Spark."""
    own = [file for file in files if is_of_lines(file) and not _is_hidden(file, archive)]
    if not own or not may_read() or not is_fetched(archive) or sum(file.text_size for file in own) > MOST_TEXT_BYTES:
        return [], list(files)
    plain = {path: shapes for part in parts_of(own, _AT_ONCE) for path, shapes in _plain(archive, part).items()}
    return [_shape(row) for shapes in plain.values() for row in shapes], [file for file in files if file.path not in plain]


def parts_of(files: Sequence[ArchivedFile], most_bytes: int) -> Iterator[list[ArchivedFile]]:
    """Yield the files in parts of so much text; a larger file is a part of its own."""
    part, size = list[ArchivedFile](), 0
    for file in files:
        if part and size + file.text_size > most_bytes:
            yield part
            part, size = [], 0
        part.append(file)
        size += file.text_size
    yield part


def _plain(archive: str, own: Sequence[ArchivedFile]) -> dict[str, list[dict[str, Any]]]:
    """Return the shapes of each plain file's records, by path."""
    alone, paired = [file for file in own if not file.keys_path], [file for file in own if file.keys_path]
    found = _read(archive, alone, row_events, are_values=False)
    # A file of values looks like one of records that name no topic.
    values = [file for file in alone if found.get(file.path) and all(row["topic"] is None for row in found[file.path])]
    found |= _read(archive, values, row_events, are_values=True) | _read(archive, paired, row_events, are_values=True)
    records = [file for file in alone if file.path not in {value.path for value in values}]
    for group in (records, values, paired):
        control = [file for file in group if any(map(_may_be_control, found.get(file.path, ())))]
        read = _read(archive, control, control_events, are_values=group is not records)
        found |= {path: _together(found[path], shapes) for path, shapes in read.items()}
    return {path: shapes for path, shapes in found.items() if not any(row["is_odd"] or _is_odd(row) for row in shapes)}


def _may_be_control(row: Mapping[str, Any]) -> bool:
    return bool(row["is_odd"]) and row["kind"] is None


def _together(row_events: list[dict[str, Any]], control: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the shapes of a file that was read as row events and as control events; odd ones where some line is neither.

    No line is both: a row event has an operation, which no control event has.
    """
    known = [row for row in (*row_events, *control) if not row["is_odd"]]
    return known if sum(row["records"] for row in known) == sum(row["records"] for row in row_events) else row_events


def is_of_lines(file: ArchivedFile) -> bool:
    """Return whether a file holds records as they are, one JSON document a line, compressed as both engines know it."""
    return file.format is FileFormat.LINES and is_named_alike(file.path) and is_paired_natively(file) and not file.respelled


def _is_hidden(file: ArchivedFile, archive: str) -> bool:
    """Return whether Spark cannot read a file: it is set aside, though DuckDB could, because Spark may have to merge it."""
    return is_local(archive) and ":" in file.path.rpartition("/")[2]


def _read(
    archive: str, files: Sequence[ArchivedFile], events: Callable[[RecordLines], str], *, are_values: bool
) -> dict[str, list[dict[str, Any]]]:
    """Return the shapes of each file's records, by path; none for a file with a line that does not parse, or that cannot be read.

    :param files: all with companions, or none.
    :param events: the query of the lines, each described as an event.
    """
    import duckdb

    if not files:
        return {}
    try:
        return _shapes(archive, files, events, are_values=are_values)
    except OSError:
        return {}
    except (duckdb.Error, UnpairedError):
        # One bad file of many is found by halves: each file is read a few times more at most.
        half = len(files) // 2
        parts = (files[:half], files[half:]) if half else ()
        return {path: shapes for part in parts for path, shapes in _read(archive, part, events, are_values=are_values).items()}


def _shapes(
    archive: str, files: Sequence[ArchivedFile], events: Callable[[RecordLines], str], *, are_values: bool
) -> dict[str, list[dict[str, Any]]]:
    """As :func:`_read`.

    :raises OSError: when a file cannot be fetched.
    :raises duckdb.Error: when a line does not parse, or a file cannot be read.
    :raises UnpairedError: when a companion has other lines than its file.
    """
    fetched = fetch(archive, files)
    told = null_values(fetched)
    if len(told) < len(fetched.uris):
        parts = zip(files, fetched.uris, fetched.uris[-len(files) :], strict=False)
        strict = [file for file, *uris in parts if all(uri in told for uri in uris)]
        return _read(archive, strict, events, are_values=are_values)
    with connect_duckdb(threads=4) as connection:
        connection.register_filesystem(fetched)
        lines = RecordLines(fetched, files, are_values=are_values)
        rows = rows_by_name(connection.execute(DESCRIBED.format(lines=events(lines))))
        if not are_values and not _are_told_null(connection, rows, told):
            raise UnpairedError("a record has no value, and does not say that it is null")
    by_uri = dict(zip(lines.uris, files, strict=True))
    found: dict[str, list[dict[str, Any]]] = {file.path: [] for file in files}
    for row in rows:
        if row["filename"] is None:
            raise UnpairedError("a companion has more lines than its file")
        path = by_uri[row["filename"]].path
        found[path].append({**row, "path": path})
    return found


def _are_told_null(connection: Any, rows: Sequence[Mapping[str, Any]], told: Mapping[str, int]) -> bool:
    """Return whether each record that counts as a tombstone has a member ``value``: DuckDB reads an absent one as null.

    Looks once more at the files in which fewer lines end with such a null, and counts the lines that have one; those with an object are
    known by their text.

    :param told: how many lines end with a null value, by file.
    """
    counted: Counter[str] = Counter()
    for row in rows:
        if row["kind"] == RecordKind.TOMBSTONE.value and not row["is_odd"]:
            counted[row["filename"]] += row["records"]
    others = {uri: count for uri, count in counted.items() if count != told[uri]}
    return not others or others == lines_with_null(connection, others, "value")


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
        "are_joined": False,
        "is_marked": False,
        "at": (0, 0),
        **{same: row[same] for same in _SAME},
        "key_shape": key if key is not None else _names(row["key_names"]),
        "value_shape": value if value is not None else _names(row["value_names"]),
    }


def _names(members: Sequence[str] | None) -> str | None:
    return None if members is None else json.dumps(members, ensure_ascii=False, separators=(",", ":"))
