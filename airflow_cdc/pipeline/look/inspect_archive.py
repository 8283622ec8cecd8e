"""What an archive holds, without a lake and without Spark: topics, connectors, shapes, spans, gaps, repeated offsets, schema changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, list_archive
from airflow_cdc.model.archive.completeness import MOST_LISTED, ArchivedOffsets, OffsetGap, OffsetOverlap, file_offsets
from airflow_cdc.model.archive.survey import CONTROL_KINDS, OffsetHoles, Survey, TopicShape, is_control_topic, may_skip_offsets
from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.globs import matches_any
from airflow_cdc.pipeline.look.read_plainly import NotPlainError, PlainSurvey, first_event, read_plainly
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.companions import settle_companions
from airflow_cdc.pipeline.survey.count_shapes import places, shapes_of
from airflow_cdc.pipeline.survey.survey_natively import survey_natively

MOST_PLAIN_BYTES = 64 * 1024**2
"""Estimated text that is read line by line in Python; what is beyond is left to a run's survey."""


@dataclass(frozen=True)
class SchemaChange:
    """A file from which on a topic's rows have other columns."""

    file: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    retyped: tuple[str, ...]
    """Columns with another Connect type."""


@dataclass(frozen=True)
class TopicFound:
    """One topic of an archive."""

    topic: str
    is_control: bool
    """Whether it carries no rows: transactions, heartbeats, schema changes, signals."""
    connectors: tuple[str, ...]
    tables: tuple[str, ...]
    """The source's tables that its records name."""
    layouts: tuple[str, ...]
    """``record`` for whole Kafka records, ``value`` for values alone."""
    kinds: Mapping[str, int]
    """Records by operation code or kind."""
    files: int
    bytes: int
    """In the archive, compressed or not; a file of several topics counts whole for each."""
    archived: tuple[str | None, str | None]
    """When its first and its last file were archived, in ISO 8601."""
    offsets: Mapping[int, tuple[int, int]]
    """First and last offset by partition."""
    keys: tuple[str, ...]
    """Columns of the records' keys; empty where records have none."""
    columns: tuple[str, ...]
    has_types: bool
    """Whether some events carry their Connect schema."""
    changes: tuple[SchemaChange, ...]
    gaps: tuple[OffsetGap, ...]
    """Of many, the last."""
    missing: int
    """Offsets in all gaps."""
    overlaps: tuple[OffsetOverlap, ...]
    """Of many, the first."""
    repeated: int
    """Offsets in all overlaps."""
    sample: str | None
    """Text of one event."""

    @property
    def records(self) -> int:
        """Records of all kinds."""
        return sum(self.kinds.values())

    def to_json(self) -> dict[str, Any]:
        """Return the topic as commands print it."""
        lists = {name: [vars(each) if name == "changes" else each.to_json() for each in vars(self)[name]] for name in _LISTS}
        return {**vars(self), "records": self.records, **lists}


_LISTS = ("changes", "gaps", "overlaps")


@dataclass(frozen=True)
class ArchiveFound:
    """What an archive holds."""

    archive: str
    files: int
    bytes: int
    topics: tuple[TopicFound, ...]
    ignored: tuple[str, ...]
    """Paths that are neither data nor a companion."""
    unread: Mapping[str, str]
    """By path of a file that was not read: the reason."""

    def to_json(self) -> dict[str, Any]:
        """Return the archive as commands print it."""
        return {**vars(self), "topics": [topic.to_json() for topic in self.topics]}


def inspect_archive(archive: str, globs: Iterable[str] = (), *, most_plain: int = MOST_PLAIN_BYTES) -> ArchiveFound:
    """Return what an archive holds.

    :param globs: of topics; none: all.
    :param most_plain: estimated bytes of text to read line by line at most.
    :raises ArchiveNotFoundError: where there is no such folder.
    """
    fs, root = file_system(archive)
    listing = list_archive(fs, root)
    settled = settle_companions(archive, listing.files)
    rows, left = survey_natively(archive, settled.files)
    plain, unread = _read(fs, root, left, most_plain)
    rows = [*rows, *(row for survey in plain.values() for row in survey.rows)]
    read = [file for file in settled.files if file.path not in unread]
    unread |= settled.uncertain
    shapes = shapes_of(rows, places(rows, read))
    holes = _holes(fs, root, read, shapes, plain)
    survey = Survey(archive, 1, tuple(read), shapes, tuple(holes))
    wanted = tuple(globs)
    topics = [topic for topic in survey.topics() if topic != NO_TOPIC and matches_any(topic, wanted)]
    found = tuple(_with_sample(_topic(survey, topic), fs, root, survey) for topic in topics)
    return ArchiveFound(archive, len(listing.files), sum(file.size for file in listing.files), found, listing.ignored, unread)


def _read(fs: FileSystem, root: str, files: Sequence[ArchivedFile], most: int) -> tuple[dict[str, PlainSurvey], dict[str, str]]:
    found: dict[str, PlainSurvey] = {}
    unread: dict[str, str] = {}
    for file in files:
        most -= file.text_size
        try:
            if most < 0:
                raise NotPlainError("there is more text than is read line by line")
            found[file.path] = read_plainly(fs, root, file)
        except (NotPlainError, OSError) as error:
            unread[file.path] = first_line(error)
    return found, unread


def _holes(
    fs: FileSystem, root: str, files: Sequence[ArchivedFile], shapes: Sequence[TopicShape], plain: Mapping[str, PlainSurvey]
) -> list[OffsetHoles]:
    by_path = {file.path: file for file in files}
    found = []
    for path in may_skip_offsets(shapes):
        # The native survey counts alone: such a file is read once more.
        found += (plain.get(path) or read_plainly(fs, root, by_path[path])).holes(path)
    return found


def _topic(survey: Survey, topic: str) -> TopicFound:
    shapes = [shape for shape in survey.shapes if shape.topic == topic]
    files = survey.files_of(topic)
    offsets = file_offsets(survey, topic)
    known = ArchivedOffsets().with_files(offsets)
    gaps, overlaps = known.gaps(topic), ArchivedOffsets().overlaps(offsets)
    kinds: dict[str, int] = {}
    for shape in shapes:
        kinds[shape.kind] = kinds.get(shape.kind, 0) + shape.records
    # A schema change names the table that it changes, in a topic that is no table's.
    tables = {shape.table for shape in shapes if shape.table and shape.kind not in CONTROL_KINDS}
    times = sorted(file.archived_at for file in files if file.archived_at is not None)
    columns = [fields for shape in shapes if (fields := fields_of(shape.value_shape))]
    return TopicFound(
        topic=topic,
        is_control=is_control_topic(topic, set(kinds)),
        connectors=tuple(sorted({shape.connector for shape in shapes if shape.connector})),
        tables=tuple(sorted(tables)),
        layouts=tuple(sorted({shape.layout.value for shape in shapes})),
        kinds=dict(sorted(kinds.items())),
        files=len(files),
        bytes=sum(file.size for file in files),
        archived=(_iso(times[0]), _iso(times[-1])) if times else (None, None),
        offsets={partition: (each.begins, max(run.certain for run in each.runs)) for partition, each in known.partitions.items()},
        keys=_keys(shapes),
        columns=tuple(dict.fromkeys(name for fields in columns for name in fields)),
        has_types=any((shape.value_shape or "").startswith("{") for shape in shapes),
        changes=tuple(_changes(survey, shapes)),
        gaps=gaps[-MOST_LISTED:],
        missing=sum(gap.missing for gap in gaps),
        overlaps=overlaps[:MOST_LISTED],
        repeated=sum(overlap.last - overlap.first + 1 for overlap in overlaps),
        sample=None,
    )


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def fields_of(shape: str | None) -> dict[str, str]:
    """Return the columns of a value's shape, each with its Connect type; an empty text where the shape has none."""
    parsed = json.loads(shape) if shape and shape[0] in "[{" else None
    if isinstance(parsed, list):
        return dict.fromkeys(map(str, parsed), "")
    images = [each for each in (parsed or {}).get("fields", ()) if each.get("field") in ("after", "before")]
    columns = images[0].get("fields", ()) if images else ()
    return {str(each["field"]): str(each.get("name") or each.get("type")) for each in columns if "field" in each}


def _keys(shapes: Iterable[TopicShape]) -> tuple[str, ...]:
    for shape in shapes:
        parsed = json.loads(shape.key_shape) if shape.key_shape and shape.key_shape[0] in "[{" else None
        names = parsed if isinstance(parsed, list) else [each.get("field") for each in (parsed or {}).get("fields", ())]
        if names:
            return tuple(map(str, names))
    return ()


def _changes(survey: Survey, shapes: Sequence[TopicShape]) -> Iterator[SchemaChange]:
    by_file: dict[str, list[TopicShape]] = {}
    for shape in shapes:
        if shape.value_shape:
            by_file.setdefault(shape.file, []).append(shape)
    last: dict[str, str] = {}
    for file in _in_order(survey, by_file):
        # Offsets of several partitions do not compare: the lowest partition shows the order.
        ordered = sorted(by_file[file], key=lambda shape: (shape.partition or 0, shape.first_offset or 0))
        for text in dict.fromkeys(shape.value_shape for shape in ordered):
            fields = fields_of(text)
            change = _change(file, last, fields) if last and fields else None
            if change:
                yield change
            last = fields or last


def _change(file: str, old: Mapping[str, str], new: Mapping[str, str]) -> SchemaChange | None:
    retyped = tuple(name for name in new if name in old and "" not in (old[name], new[name]) and new[name] != old[name])
    added, removed = tuple(name for name in new if name not in old), tuple(name for name in old if name not in new)
    return SchemaChange(file, added, removed, retyped) if added or removed or retyped else None


def _in_order(survey: Survey, paths: Iterable[str]) -> list[str]:
    """Return paths by their first offset, where names or records show it, then by name."""
    first: dict[str, int] = {file.path: file.start_offset for file in survey.files if file.start_offset is not None}
    for shape in survey.shapes:
        if shape.first_offset is not None:
            first[shape.file] = min(shape.first_offset, first.get(shape.file, shape.first_offset))
    return sorted(paths, key=lambda path: (first.get(path, 0), path))


def _with_sample(found: TopicFound, fs: FileSystem, root: str, survey: Survey) -> TopicFound:
    file = next(iter(survey.files_of(found.topic)), None)
    return replace(found, sample=first_event(fs, root, file, found.topic)) if file else found
