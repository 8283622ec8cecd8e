"""The shapes of a survey, from rows that count a file's records: by Spark, by DuckDB, or line by line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import FilePlace, RecordKind, RecordLayout, TopicShape
from airflow_cdc.model.archive.topics import NO_TOPIC, is_legal_topic
from airflow_cdc.model.columns import FILE

MALFORMED = RecordKind.MALFORMED.value


def places(rows: Sequence[dict[str, Any]], files: Sequence[ArchivedFile]) -> dict[str, FilePlace]:
    """Return by path the topics to which a file's lines belong.

    A malformed line proves nothing about the others: a row may have a column ``topic``.
    """
    good, broken = _named(row for row in rows if row["kind"] != MALFORMED), _named(row for row in rows if row["kind"] == MALFORMED)
    with_good = {row[FILE] for row in rows if row["kind"] != MALFORMED}
    placed = {}
    for file in files:
        names = good.get(file.path, set())
        if file.path not in with_good and not file.is_topic_named:
            names = broken.get(file.path, set())
        layout = RecordLayout.RECORD if names else RecordLayout.VALUE
        placed[file.path] = FilePlace(layout, _rest(file.topic, names))
    return placed


def _named(rows: Iterable[dict[str, Any]]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for row in rows:
        if row["topic"] is not None:
            names.setdefault(row[FILE], set()).add(row["topic"])
    return names


def _rest(topic: str, names: Collection[str]) -> str:
    """Return the topic of a file's lines that name none.

    :param topic: from the file's name or folder.
    :param names: the topics that its records name.
    """
    # A record with an illegal topic name is as unreliable as the line.
    legal = {name for name in names if is_legal_topic(name)} or {*names}
    if not legal or topic in legal:
        return topic
    return legal.pop() if len(legal) == 1 else NO_TOPIC


def shapes_of(rows: Sequence[dict[str, Any]], placed: Mapping[str, FilePlace]) -> tuple[TopicShape, ...]:
    """Return the shapes and numbers of records by topic.

    :param placed: by path: the topics of the files' lines (:func:`places`).
    """
    shapes = []
    for row in rows:
        place = placed[row[FILE]]
        topic = row["topic"] if place.layout is RecordLayout.RECORD else None
        shapes.append(
            TopicShape(
                file=row[FILE],
                topic=place.rest if topic is None else topic,
                layout=place.layout,
                kind=row["kind"],
                connector=row["connector"],
                partition=row["partition"],
                key_shape=row["key_shape"],
                value_shape=row["value_shape"],
                has_topic=topic is not None,
                records=row["records"],
                first_offset=row["first_offset"],
                last_offset=row["last_offset"],
                table=row["table"],
                log=row["log"],
                reads_beginnings=True,
            )
        )
    return tuple(sorted(shapes, key=_order))


def _order(shape: TopicShape) -> tuple[str, ...]:
    return (shape.file, shape.topic, shape.kind, *map(str, (shape.value_shape, shape.partition, shape.table, shape.log, shape.key_shape)))
