"""Kafka offsets of a flow's archive: which are missing, which are repeated, and which cannot be determined.

A record that carries its offset proves it. A sink's value file proves its first offset and its number of records, but not its last offset,
because tombstones are left out; there the number of deletes bounds the number of omitted offsets. A range counts as missing only where
nothing of this explains it. Compaction and Kafka's own transaction markers leave holes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import OffsetHoles, RecordKind, RecordLayout, Survey, TopicShape
from airflow_cdc.model.operation import Operation
from airflow_cdc.model.plain_json import JsonArray, JsonObject
from airflow_cdc.model.position.lives import Lives, lane_of, lane_text

MOST_RUNS = 1000
"""Most runs of offsets kept per partition: an archive full of holes must not grow a checkpoint without bound."""
MOST_LISTED = 20
"""Most ranges named in one report; the sums count all."""

Range = tuple[int, int]
"""First and last Kafka offset, both included."""


@dataclass(frozen=True)
class FileOffsets(JsonObject):
    """The offsets of one topic-partition that one file accounts for."""

    file: str
    partition: int
    first: int
    last: int
    """Offset of the last record, as far as it is proven."""
    covered: tuple[Range, ...]
    """Ranges that the file holds, or whose absence it explains: omitted tombstones, lines with unreadable offsets."""
    unlisted: int = 0
    """Offsets missing inside ``covered``: the file has more holes than are listed."""


@dataclass(frozen=True)
class OffsetGap(JsonObject):
    """A range of offsets that is missing between two archived files."""

    topic: str
    partition: int
    first: int
    last: int
    after: str
    """File that ends before the range; for a hole inside a file, that file; empty where the range begins the partition."""
    before: str
    """File that begins after the range."""

    @property
    def missing(self) -> int:
        """Number of missing offsets."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        place = f"inside {self.after}" if self.after == self.before else f"between {self.after} and {self.before}"
        place = place if self.after else f"before {self.before}"
        return f"topic {self.topic}, {lane_text(self.partition)}: offsets {self.first}–{self.last} are missing, {place}"


@dataclass(frozen=True)
class OffsetOverlap(JsonObject):
    """A range of offsets that an earlier file already held: redelivered, and harmless."""

    partition: int
    first: int
    last: int
    file: str


def file_offsets(survey: Survey, topic: str) -> tuple[FileOffsets, ...]:
    """Return the offsets that the survey proves for a topic, by file and partition in the survey's order.

    Files without offsets, in the records or in the file's name, are left out.
    """
    unreadable: dict[str, int] = {}
    with_tombstones = {shape.file for shape in survey.shapes if shape.kind == RecordKind.TOMBSTONE.value}
    groups: dict[tuple[str, int], list[TopicShape]] = {}
    for shape in survey.shapes:
        if shape.layout is RecordLayout.RECORD and shape.first_offset is None:
            # An unreadable line has an offset too, and may belong to any topic of its file.
            unreadable[shape.file] = unreadable.get(shape.file, 0) + shape.records
        if shape.topic == topic and shape.partition is not None:
            groups.setdefault((shape.file, shape.partition), []).append(shape)
    holes = {(item.file, item.partition): item for item in survey.holes if item.topic == topic}
    files = {file.path: file for file in survey.files}
    found = []
    for (path, partition), shapes in groups.items():
        # Each delete is followed by a tombstone in the same partition; sinks leave them out, and some archives too.
        deletes = sum(shape.records for shape in shapes if shape.kind == Operation.DELETE.value)
        omitted = 0 if path in with_tombstones else deletes
        proven = _proven(files[path], shapes, holes.get((path, partition)), omitted=omitted, unreadable=unreadable.get(path, 0))
        if proven:
            found.append(FileOffsets(path, partition, *proven))
    order = {file.path: place for place, file in enumerate(survey.files)}
    return tuple(sorted(found, key=lambda item: (order[item.file], item.partition)))


def repeating_files(survey: Survey, topic: str) -> frozenset[str]:
    """Return the paths of the files with more records of a partition of the topic than offsets from the first to the last."""
    skipped = {
        (item.file, item.partition): sum(last - first + 1 for first, last in item.holes) + item.unlisted
        for item in survey.holes
        if item.topic == topic
    }
    spans: dict[tuple[str, int], tuple[int, int, int]] = {}
    for shape in survey.shapes:
        if shape.topic == topic and shape.partition is not None and shape.first_offset is not None and shape.last_offset is not None:
            place = (shape.file, shape.partition)
            first, last, records = spans.get(place, (shape.first_offset, shape.last_offset, 0))
            spans[place] = (min(first, shape.first_offset), max(last, shape.last_offset), records + shape.records)
    return frozenset(place[0] for place, (first, last, records) in spans.items() if records > last - first + 1 - skipped.get(place, 0))


def in_lanes(offsets: Iterable[FileOffsets], lives: Lives) -> tuple[FileOffsets, ...]:
    """Return the offsets by lane (:mod:`airflow_cdc.model.position.lives`) instead of by partition; a file of several lives appears once
    per life.
    """
    found: list[FileOffsets] = []
    for item in offsets:
        spans = [span for span in lives.get(item.file, ()) if span.partition == item.partition]
        if len(spans) < 2:
            lane = lane_of(item.partition, spans[0].life) if spans else item.partition
            found.append(replace(item, partition=lane))
            continue
        for life in sorted({span.life for span in spans}):
            ranges = tuple(sorted((span.first, span.last) for span in spans if span.life == life))
            lane = lane_of(item.partition, life)
            found.append(FileOffsets(item.file, lane, ranges[0][0], max(last for _, last in ranges), ranges))
    return tuple(found)


def _proven(
    file: ArchivedFile, shapes: Sequence[TopicShape], holes: OffsetHoles | None, *, omitted: int, unreadable: int
) -> tuple[int, int, tuple[Range, ...], int] | None:
    numbered = [(shape.first_offset, shape.last_offset) for shape in shapes]
    ranges = [(first, last) for first, last in numbered if first is not None and last is not None]
    if ranges:
        first, last = min(first for first, _ in ranges), max(last for _, last in ranges)
        return first, last, *_covered(first, last, holes, omitted=omitted, unreadable=unreadable)
    if file.start_offset is None:
        return None
    last = file.start_offset + sum(shape.records for shape in shapes) - 1
    return file.start_offset, last, ((file.start_offset, last + omitted),), 0


def _covered(first: int, last: int, holes: OffsetHoles | None, *, omitted: int, unreadable: int) -> tuple[tuple[Range, ...], int]:
    """Return the offsets that a file accounts for: omitted tombstones and unreadable lines explain its smallest holes.

    :return: the ranges, and the number of offsets missing in unlisted holes.
    """
    unlisted = holes.unlisted if holes else 0
    unknown = omitted + unreadable
    unlisted, unknown = max(0, unlisted - unknown), max(0, unknown - unlisted)
    open_holes = []
    for hole in sorted(holes.holes if holes else (), key=lambda item: (item[1] - item[0], item)):
        size = hole[1] - hole[0] + 1
        if size <= unknown:
            unknown -= size
        else:
            open_holes.append(hole)
    # Further such records may precede the first or follow the last readable record.
    start, ranges = max(0, first - min(unknown, unreadable)), []
    for hole in sorted(open_holes):
        ranges.append((start, hole[0] - 1))
        start = hole[1] + 1
    return (*ranges, (start, last + unknown)), unlisted


@dataclass(frozen=True)
class Run(JsonArray):
    """A range of offsets without a hole."""

    first: int
    last: int
    certain: int
    """Last offset that a record proves; those after it up to ``last`` may be omitted tombstones."""
    first_file: str
    last_file: str

    def merged(self, other: Run) -> Run:
        """Return both merged; the result does not depend on the order of merging."""
        begins = min(self, other, key=lambda run: (run.first, run.first_file))
        ends = min(self, other, key=lambda run: (-run.certain, run.last_file))
        return Run(begins.first, max(self.last, other.last), ends.certain, begins.first_file, ends.last_file)


@dataclass(frozen=True)
class PartitionOffsets(JsonObject, required=("runs", "forgotten")):
    """The archived offsets of one topic-partition, independent of the order of its files."""

    begins: int
    """First archived offset; offsets that Kafka dropped before it are no gap."""
    runs: tuple[Run, ...] = ()
    """Ascending, with a hole between any two: one run where nothing is missing."""
    forgotten: int = 0
    """Missing offsets that are no longer followed, because there are more holes than :data:`MOST_RUNS`."""

    @property
    def missing(self) -> int:
        """Number of offsets in all holes."""
        return self.forgotten + sum(right.first - left.last - 1 for left, right in zip(self.runs, self.runs[1:], strict=False))

    def with_file(self, file: FileOffsets) -> PartitionOffsets:
        """Return the offsets with one more file's."""
        runs = self.runs
        for first, last in file.covered:
            runs = _with_run(runs, Run(first, last, min(last, file.last), file.file, file.file))
        forgotten = self.forgotten + file.unlisted
        while len(runs) > MOST_RUNS:
            forgotten += runs[1].first - runs[0].last - 1
            runs = (runs[0].merged(runs[1]), *runs[2:])
        return PartitionOffsets(min(self.begins, file.first), runs, forgotten)

    def overlaps(self, file: FileOffsets) -> Iterator[OffsetOverlap]:
        """Yield the ranges of a file that are here already."""
        for first, last in file.covered:
            for run in self.runs:
                again = max(first, file.first, run.first), min(last, file.last, run.certain)
                if again[0] <= again[1]:
                    yield OffsetOverlap(file.partition, *again, file.file)


def _with_run(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    below = tuple(item for item in runs if item.last + 1 < run.first)
    above = tuple(item for item in runs if item.first - 1 > run.last)
    for item in runs[len(below) : len(runs) - len(above)]:
        run = run.merged(item)
    return (*below, run, *above)


@dataclass(frozen=True)
class ArchivedOffsets(JsonObject):
    """The archived offsets of one topic."""

    partitions: Mapping[int, PartitionOffsets] = field(default_factory=dict)

    def with_files(self, files: Iterable[FileOffsets]) -> ArchivedOffsets:
        """Return the offsets with those of more files."""
        partitions = dict(self.partitions)
        for file in files:
            partitions[file.partition] = partitions.get(file.partition, PartitionOffsets(file.first)).with_file(file)
        return ArchivedOffsets(dict(sorted(partitions.items())))

    def gaps(self, topic: str) -> tuple[OffsetGap, ...]:
        """Return the gaps by partition and offset."""
        return tuple(
            OffsetGap(topic, partition, left.last + 1, right.first - 1, left.last_file, right.first_file)
            for partition, offsets in self.partitions.items()
            for left, right in zip(offsets.runs, offsets.runs[1:], strict=False)
        )

    @property
    def missing(self) -> int:
        """Number of offsets in all gaps."""
        return sum(offsets.missing for offsets in self.partitions.values())

    def missing_below(self, topic: str, lane: int, offset: int) -> tuple[OffsetGap, ...]:
        """Return the gaps of a lane before an offset, with the one from offset 0 to the first archived."""
        runs = self.partitions[lane].runs if lane in self.partitions else ()
        begin = [OffsetGap(topic, lane, 0, runs[0].first - 1, "", runs[0].first_file)] if runs and runs[0].first else []
        return tuple(gap for gap in (*begin, *self.gaps(topic)) if gap.partition == lane and gap.first < offset)

    def overlaps(self, files: Iterable[FileOffsets]) -> tuple[OffsetOverlap, ...]:
        """Return the ranges that the files repeat, of these offsets or of one another's."""
        known, found = self, list[OffsetOverlap]()
        for file in files:
            if file.partition in known.partitions:
                found += known.partitions[file.partition].overlaps(file)
            known = known.with_files([file])
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return the offsets as plain JSON values, by partition."""
        partitions: dict[str, Any] = super().to_json()["partitions"]
        return partitions

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ArchivedOffsets:
        """Read what :meth:`to_json` wrote."""
        return super().from_json({"partitions": document})


def files_behind(gaps: Iterable[OffsetGap], files: Iterable[FileOffsets]) -> frozenset[str]:
    """Return the paths of the files with records behind a gap of their partition."""
    first_missing: dict[int, int] = {}
    for gap in gaps:
        first_missing[gap.partition] = min(gap.first, first_missing.get(gap.partition, gap.first))
    return frozenset(file.file for file in files if file.partition in first_missing and file.last > first_missing[file.partition])


@dataclass(frozen=True)
class OffsetReport(JsonObject, names={"without_offsets": "untold"}):
    """A flow's offsets after one of its microbatches."""

    begins: dict[str, int] = field(default_factory=dict)
    """First archived offset by Kafka partition."""
    gaps: tuple[OffsetGap, ...] = ()
    """Ranges that no surveyed file holds; of many, the last in each listing."""
    missing: int = 0
    """Offsets in all gaps, listed or not."""
    overlaps: tuple[OffsetOverlap, ...] = ()
    """Ranges that the microbatch's files repeat; of many, the first."""
    repeated: int = 0
    """Offsets in all overlaps, listed or not."""
    without_offsets: int = 0
    """Files of the microbatch without offsets: nothing is proven about them."""
    newly_missing: int = 0
    """Missing offsets that no earlier microbatch of the flow showed to be missing."""


def report_offsets(
    topic: str, files: Iterable[ArchivedFile], offsets: Iterable[FileOffsets], *, before: ArchivedOffsets, known: ArchivedOffsets
) -> OffsetReport:
    """Return a microbatch's report on offsets.

    :param files: the microbatch's files.
    :param offsets: the offsets that they prove.
    :param before: offsets of the flow's earlier microbatches.
    :param known: offsets of all surveyed files, applied or not.
    """
    offsets = tuple(offsets)
    gaps, overlaps, missing = known.gaps(topic), before.overlaps(offsets), known.missing
    grown = before.with_files(offsets).missing - before.missing
    return OffsetReport(
        begins={str(partition): item.begins for partition, item in known.partitions.items()},
        gaps=gaps[-MOST_LISTED:],
        missing=missing,
        # What a file that waits will fill in is not missing.
        newly_missing=max(0, min(grown, missing)),
        overlaps=overlaps[:MOST_LISTED],
        repeated=sum(overlap.last - overlap.first + 1 for overlap in overlaps),
        without_offsets=len({file.path for file in files} - {item.file for item in offsets}),
    )
