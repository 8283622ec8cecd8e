"""Survey: what newly archived files hold, by file and topic, determined and recorded once.

Archived files should not change, and a survey never does; runs of any flow read it instead of the archive. A file that changed anyway is
surveyed again, and its flows read it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.plain_json import JsonArray, JsonObject

READER = 1
"""Raised whenever more shapes of records are recognised: files whose records an older survey found to be of no known shape are surveyed
again, once."""


class RecordKind(str, Enum):
    """Kind of an archived record, other than row operations, which have their own codes."""

    TOMBSTONE = "tombstone"
    TRANSACTION = "transaction"
    HEARTBEAT = "heartbeat"
    SCHEMA_CHANGE = "schema_change"
    NOTIFICATION = "notification"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"


CONTROL_KINDS = (RecordKind.TRANSACTION, RecordKind.HEARTBEAT, RecordKind.SCHEMA_CHANGE, RecordKind.NOTIFICATION)


class RecordLayout(str, Enum):
    """Content of a file's line."""

    RECORD = "record"
    """``{topic, partition, offset, timestamp, headers, key, value}``."""
    VALUE = "value"
    """The record's value alone."""


@dataclass(frozen=True)
class TopicShape(JsonObject):
    """One shape of a topic's records in one file, and the number of such records."""

    file: str
    """Path of the file below the archive's root."""
    topic: str
    layout: RecordLayout
    kind: str
    """Operation code, or a :class:`RecordKind`."""
    connector: str | None
    """``source.connector``; ``huawei-cdl-1.0`` or ``-2.0`` for Huawei CDL's values."""
    partition: int | None
    key_shape: str | None
    """The key's Connect schema as JSON, or the names of its members as a JSON array."""
    value_shape: str | None
    """The row images' Connect schema as JSON, or the names of their members as a JSON array."""
    has_topic: bool
    """Whether the records themselves name the topic; for a truncated line, its beginning may."""
    records: int
    first_offset: int | None
    last_offset: int | None
    table: str | None = None
    """The source's table that ``source`` names, in the form of the connector's topic names unless a router changes them; None where none
    is named."""
    reads_beginnings: bool = False
    """Whether a truncated line counts for the topic that its beginning names; in older surveys it names none."""
    log: str | None = None
    """The source's log that ``source`` names (:attr:`airflow_cdc.model.connectors.connector.PositionRule.log`); None where none is named,
    and in older surveys."""


@dataclass(frozen=True)
class FilePlace:
    """The topics of a file's lines."""

    layout: RecordLayout
    """:attr:`RecordLayout.VALUE` where no record names a topic: then all lines belong to ``rest``.
    """
    rest: str
    """Topic of lines that name none; :data:`~airflow_cdc.model.archive.topics.NO_TOPIC` where the file holds several topics and none is
    its own."""
    reads_beginnings: bool = True
    """As in its shapes (:attr:`TopicShape.reads_beginnings`)."""


@dataclass(frozen=True, order=True)
class OffsetHoles(JsonObject):
    """Offsets that a file skips between its first and its last record of one topic-partition."""

    file: str
    topic: str
    partition: int
    holes: tuple[tuple[int, int], ...]
    """First and last offset of each hole, ascending; of very many, the largest holes."""
    unlisted: int = 0
    """Number of offsets in holes that are not listed."""


def may_skip_offsets(shapes: Iterable[TopicShape]) -> tuple[str, ...]:
    """Return the paths of the files whose record count differs from their offset range.

    A file that repeats as many records as it lacks is not found.
    """
    spans: dict[tuple[str, str, int | None], tuple[int, int, int]] = {}
    for shape in shapes:
        if shape.first_offset is not None and shape.last_offset is not None:
            place = (shape.file, shape.topic, shape.partition)
            first, last, records = spans.get(place, (shape.first_offset, shape.last_offset, 0))
            spans[place] = (min(first, shape.first_offset), max(last, shape.last_offset), records + shape.records)
    return tuple(sorted({file for (file, _, _), (first, last, records) in spans.items() if last - first + 1 != records}))


def shapes_by_file(shapes: Iterable[TopicShape], topic: str) -> dict[str, tuple[TopicShape, ...]]:
    """Return the shapes of a topic's records by path."""
    found: dict[str, tuple[TopicShape, ...]] = {}
    for shape in shapes:
        if shape.topic == topic:
            found[shape.file] = (*found.get(shape.file, ()), shape)
    return found


_TEXTS = ("key_shape", "value_shape", "table", "log")


def shapes_to_json(shapes: Iterable[TopicShape]) -> dict[str, Any]:
    """Return shapes as plain JSON values; each distinct text is stored once, because schemas are long."""
    texts: dict[str, int] = {}
    rows = []
    for shape in shapes:
        row = shape.to_json()
        for name in _TEXTS:
            if row[name] is not None:
                row[name] = texts.setdefault(row[name], len(texts))
        rows.append(row)
    return {"texts": list(texts), "shapes": rows}


def shapes_from_json(document: Mapping[str, Any]) -> tuple[TopicShape, ...]:
    """Read what :func:`shapes_to_json` wrote."""
    texts = document["texts"]
    shapes = []
    for row in document["shapes"]:
        # Older surveys name no log.
        spelled = {name: None if row.get(name) is None else texts[row[name]] for name in _TEXTS}
        shapes.append(TopicShape.from_json({**row, **spelled}))
    return tuple(shapes)


@dataclass(frozen=True, order=True)
class Replaced(JsonArray):
    """A file as an earlier survey found it; it has changed, and a later survey holds it as it is."""

    path: str
    survey: int
    size: int


@dataclass(frozen=True)
class Survey(JsonObject, own=("shapes", "void")):
    """The surveyed files of one listing."""

    archive: str
    """URI of the archive's root."""
    number: int
    files: tuple[ArchivedFile, ...]
    shapes: tuple[TopicShape, ...]
    holes: tuple[OffsetHoles, ...] = ()
    replaces: tuple[Replaced, ...] = ()
    """Earlier surveys' entries of some of these files."""
    reader: int = 0
    """What its readers could recognise (:data:`READER`)."""
    void: frozenset[str] = frozenset()
    """Paths that a later survey replaces; no microbatch owns them through this survey. Not part of the document."""

    def files_of(self, topic: str) -> tuple[ArchivedFile, ...]:
        """Return the files that hold records of a topic, in the survey's order."""
        holding = {shape.file for shape in self.shapes if shape.topic == topic}
        return tuple(file for file in self.files if file.path in holding)

    def shapes_of(self, topic: str) -> dict[str, tuple[TopicShape, ...]]:
        """Return the shapes of a topic's records by path."""
        return shapes_by_file(self.shapes, topic)

    def placed(self) -> dict[str, FilePlace]:
        """Return by path the layout of a file's lines, and the topic of lines that name none."""
        found: dict[str, FilePlace] = {}
        for shape in self.shapes:
            if not shape.has_topic or shape.file not in found:
                found[shape.file] = FilePlace(shape.layout, shape.topic, shape.reads_beginnings)
        return found

    def topics(self) -> tuple[str, ...]:
        """Return the topics that the files hold."""
        return tuple(sorted({shape.topic for shape in self.shapes}))

    def to_json(self) -> dict[str, Any]:
        """Return the survey as plain JSON values."""
        return {**super().to_json(), **shapes_to_json(self.shapes)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Survey:
        """Read what :meth:`to_json` wrote."""
        return super().from_json({**document, "shapes": shapes_from_json(document)})


def is_control_topic(topic: str, kinds: set[str]) -> bool:
    """Return whether a topic carries no rows of a table: transactions, heartbeats, schema changes, signals.

    :param kinds: the operation codes and record kinds seen in the topic.
    """
    table_kinds = kinds - {kind.value for kind in CONTROL_KINDS} - {RecordKind.TOMBSTONE.value}
    last = topic.rsplit(".", 1)[-1].lower()
    if topic.startswith("__debezium-heartbeat") or last in ("debezium_signal", "debezium_signals"):
        return True
    return not table_kinds and bool(kinds & {kind.value for kind in CONTROL_KINDS})


def are_values(shapes: Iterable[TopicShape]) -> bool:
    """Return whether some files hold values alone: all events of such a file have its first offset, or none."""
    return any(shape.layout is RecordLayout.VALUE for shape in shapes)
