"""Find the base: the snapshot and the truncate from which on the events of a table without a key are counted.

The base depends on all known events, not on their order of arrival: the newest complete full snapshot that may remove rows, what the
archive holds behind it, and the last truncate there. With a key, each read is placed among the key's events. Equal rows share a content, so
here the snapshot is placed as a whole. A complete snapshot behind the base that may not remove rows shows rows all the same: each row that
it read was there. Runs Spark jobs: the deliveries of each snapshot decide the next query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH, OFFSET, OP, PARTITION, POSITION, SNAPSHOT
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.pipeline.decode.event_place import INITIAL
from airflow_cdc.pipeline.decode.place_of_row import partition_of, position_of
from airflow_cdc.pipeline.decode.position_literal import before
from airflow_cdc.pipeline.decode.stands_before import beside, partition_number

_MINE = "mine"


@dataclass(frozen=True)
class Base:
    """The point from which on events count."""

    snapshot: Position | None = None
    """The position that all its reads share; reads of other snapshots do not count. None if no snapshot is known."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """By Kafka partition: offset of the snapshot's last read. The snapshot includes what the partition holds before it. Empty if the
    snapshot is the first."""
    cut: Position | None = None
    """As above, for partitions without reads: the snapshot includes what lies before this position. None if the snapshot is the first."""
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By Kafka partition: offsets at which a restarted connector began to send the snapshot again."""
    truncated_through: Position | None = None
    """Position of the last truncate behind the snapshot."""
    reads_count: bool = True
    """Whether the snapshot's reads are not void by a truncate."""

    @property
    def void(self) -> str:
        """SQL that is true for a void streamed event: the snapshot includes it, or a truncate follows it."""
        known = " OR ".join(f"{PARTITION} <=> {partition_number(partition)}" for partition in self.ends) or "false"
        read = f"CASE WHEN {OFFSET} IS NOT NULL AND ({known}) THEN NOT {beside(self.ends, '>')} ELSE {before(self.cut)} END"
        return f"({read} OR {before(self.truncated_through)})"

    @property
    def delivery(self) -> str:
        """SQL of the number of the snapshot's delivery to which a read belongs."""
        cases = " ".join(
            f"WHEN {PARTITION} <=> {partition_number(partition)} THEN size(filter(array({', '.join(f'{offset}L' for offset in offsets)}),"
            f" start -> start <= {OFFSET}))"
            for partition, offsets in self.starts.items()
        )
        return f"CASE {cases} ELSE 0 END" if cases else "0"


@dataclass(frozen=True)
class Bases:
    """The base, and the complete snapshots behind it that may not remove rows."""

    base: Base
    later: tuple[Base, ...] = ()
    """Of each row, the table holds at least as many copies as counted from each of these; the newest first."""


@dataclass(frozen=True)
class _Reads:
    """The reads of one snapshot."""

    first: Mapping[str, int]
    last: Mapping[str, int]
    begins: frozenset[tuple[str, int]]
    """Partition and offset of the reads marked as a table's first."""
    finishes: frozenset[tuple[str, int]]
    """Partition and offset of the reads marked as its last."""


@dataclass(frozen=True)
class _Beside:
    """The streamed events around a snapshot's reads."""

    precedes: bool
    """Whether any event is archived before the reads."""
    behind: Position | None
    """The lowest position of the events archived behind the reads."""
    between: frozenset[tuple[str, int]]
    """Partition and offset of the events archived between the reads."""


def find_bases(log: DataFrame, microbatch: int, floor: Position | None, may_replace: Callable[[bool], bool] = bool) -> tuple[Bases, Bases]:
    """Return the bases without and with a microbatch's events.

    Costs one job, and one for the base's snapshot and for each complete one behind it; two where the microbatch has reads of it.

    :param log: all known events.
    :param floor: position of the last truncate before the table was created.
    :param may_replace: whether a later snapshot may be the base; its argument: whether the reads are marked as an initial snapshot's.
    """
    marked = log.withColumn(_MINE, F.col(MICROBATCH) == microbatch)
    rows = _reads_and_truncates(marked)

    @cache
    def beside_of(first: tuple[tuple[str, int], ...], last: tuple[tuple[str, int], ...]) -> list[Row]:
        return _streamed_beside(marked, dict(first), dict(last))

    def bases(*, mine: bool) -> Bases:
        known = [row for row in rows if mine or not row[_MINE]]

        def streamed(reads: _Reads) -> _Beside:
            found = beside_of(tuple(sorted(reads.first.items())), tuple(sorted(reads.last.items())))
            return _merged(row for row in found if mine or not row[_MINE])

        return _bases(_by_snapshot(known), _truncates(known, floor), streamed, may_replace)

    return bases(mine=False), bases(mine=True)


_Truncate = tuple[Position, str, int | None]
"""Position, Kafka partition and offset."""


def _truncates(rows: list[Row], floor: Position | None) -> list[_Truncate]:
    found = [(position_of(row[POSITION]), partition_of(row), row["first"]) for row in rows if row[OP] == "t"]
    return [*found, *([(floor, UNKNOWN_PARTITION, None)] if floor else [])]


def _by_snapshot(rows: list[Row]) -> dict[Position, list[Row]]:
    snapshots: dict[Position, list[Row]] = {}
    for row in rows:
        if row[OP] == "r":
            snapshots.setdefault(position_of(row[POSITION]), []).append(row)
    return snapshots


def _bases(
    snapshots: Mapping[Position, list[Row]],
    truncates: list[_Truncate],
    streamed: Callable[[_Reads], _Beside],
    may_replace: Callable[[bool], bool],
) -> Bases:
    if not snapshots:
        return Bases(Base(truncated_through=max((position for position, _, _ in truncates), default=None)))
    oldest, newest_first = min(snapshots), sorted(snapshots, reverse=True)
    reads = {position: _reads(found) for position, found in snapshots.items()}

    @cache
    def is_complete(each: Position) -> bool:
        return _is_complete(reads[each], streamed)

    # A later snapshot counts only if it cannot be partial: in another epoch of the log, the first snapshot is always an initial one.
    def replaces(each: Position) -> bool:
        return each.epoch > oldest.epoch or may_replace(any(row["initial"] for row in snapshots[each]))

    candidates = [each for each in newest_first if each == oldest or replaces(each)]
    chosen = next(filter(is_complete, candidates), candidates[0])

    def base(each: Position) -> Base:
        return _base(each, reads[each], streamed(reads[each]), truncates, may_be_first=each == oldest)

    return Bases(base(chosen), tuple(base(each) for each in newest_first if each > chosen and is_complete(each)))


def _base(position: Position, reads: _Reads, found: _Beside, truncates: list[_Truncate], *, may_be_first: bool) -> Base:
    is_first = may_be_first and not found.precedes
    starts = _starts(reads, found)
    # If the snapshot was sent twice, events between the two deliveries lie behind the first.
    ends = {partition: starts[partition][0] - 1 if partition in starts else last for partition, last in reads.last.items()}
    cut = min(position, found.behind or position)
    behind = [place for place in truncates if is_first or _is_behind(place, ends, cut)]
    return Base(
        snapshot=position,
        ends={} if is_first else ends,
        cut=None if is_first else cut,
        starts=starts,
        truncated_through=max((place[0] for place in behind), default=None),
        reads_count=not any(_is_behind(place, ends, position) for place in behind),
    )


def _is_complete(reads: _Reads, streamed: Callable[[_Reads], _Beside]) -> bool:
    """Return whether a snapshot is complete. Connectors that do not mark a table's first read do not mark its last either."""
    return bool(reads.finishes) or (not reads.begins and streamed(reads).behind is not None)


def _is_behind(truncate: _Truncate, ends: Mapping[str, int], since: Position) -> bool:
    position, partition, offset = truncate
    return offset > ends[partition] if offset is not None and partition in ends else position >= since


def _starts(reads: _Reads, found: _Beside) -> dict[str, tuple[int, ...]]:
    starts = {*reads.begins, *((partition, offset + 1) for partition, offset in reads.finishes), *found.between}
    inside = sorted(
        (partition, offset) for partition, offset in starts if reads.first.get(partition, offset) < offset <= reads.last.get(partition, -1)
    )
    return {partition: tuple(offset for each, offset in inside if each == partition) for partition in dict(inside)}


def _reads_and_truncates(marked: DataFrame) -> list[Row]:
    def offsets_of(marker: str) -> Column:
        return F.collect_set(F.when(F.col(SNAPSHOT).startswith(marker), F.col(OFFSET)))

    grouped = marked.filter(f"{OP} IN ('r', 't')").groupBy(OP, POSITION, PARTITION, _MINE)
    return grouped.agg(
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        offsets_of("first").alias("begins"),
        offsets_of("last").alias("finishes"),
        F.coalesce(F.max(F.col(SNAPSHOT).endswith(INITIAL)), F.lit(False)).alias("initial"),  # noqa: FBT003
    ).collect()


def _reads(rows: Iterable[Row]) -> _Reads:
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    begins, finishes = set(), set()
    for row in rows:
        partition = partition_of(row)
        first[partition] = min(row["first"], first.get(partition, row["first"]))
        last[partition] = max(row["last"], last.get(partition, row["last"]))
        begins |= {(partition, offset) for offset in row["begins"]}
        finishes |= {(partition, offset) for offset in row["finishes"]}
    return _Reads(first, last, frozenset(begins), frozenset(finishes))


def _streamed_beside(marked: DataFrame, first: Mapping[str, int], last: Mapping[str, int]) -> list[Row]:
    behind, after, ahead = beside(last, ">"), beside(first, ">"), beside(last, "<")
    return (
        marked.filter(f"{OP} <> 'r'")
        .groupBy(_MINE)
        .agg(
            F.max(F.expr(beside(first, "<"))).alias("precedes"),
            F.min(F.expr(f"CASE WHEN {behind} THEN {POSITION} END")).alias("behind"),
            F.collect_set(F.expr(f"CASE WHEN {after} AND {ahead} THEN struct({PARTITION}, {OFFSET}) END")).alias("between"),
        )
        .collect()
    )


def _merged(rows: Iterable[Row]) -> _Beside:
    found = list(rows)
    return _Beside(
        precedes=any(row["precedes"] for row in found),
        behind=min((position_of(row["behind"]) for row in found if row["behind"] is not None), default=None),
        between=frozenset((partition_of(place), place[OFFSET]) for row in found for place in row["between"]),
    )
