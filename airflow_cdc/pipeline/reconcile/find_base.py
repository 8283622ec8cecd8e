"""Find the base: the snapshot and the truncate from which on the events of a table without a key are counted.

A fact about all known events, whatever the order in which they came: the newest full snapshot that is complete, what the archive holds
behind it, and the last truncate there. A key's read is placed among the key's events; equal rows share a content, so here the whole
snapshot is. Runs Spark jobs: how often each snapshot was delivered decides what is asked next.
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
    """From where on events count."""

    snapshot: Position | None = None
    """All its reads share it; those of others do not count. None where no snapshot is known."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """By Kafka partition: offset of its last read; what the partition holds before it was read. Empty where the snapshot is the first."""
    cut: Position | None = None
    """The same for partitions without reads: what stands before this position. None where it is the first."""
    starts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By Kafka partition: offsets at which a connector that had crashed began to send the snapshot once more."""
    truncated_through: Position | None = None
    """Position of the last truncate behind it."""
    reads_count: bool = True
    """Whether no truncate took what the snapshot read."""

    @property
    def void(self) -> str:
        """SQL: whether a streamed event says nothing more, as the snapshot has read what it left, or a truncate took it."""
        known = " OR ".join(f"{PARTITION} <=> {partition_number(partition)}" for partition in self.ends) or "false"
        read = f"CASE WHEN {OFFSET} IS NOT NULL AND ({known}) THEN NOT {beside(self.ends, '>')} ELSE {before(self.cut)} END"
        return f"({read} OR {before(self.truncated_through)})"

    @property
    def delivery(self) -> str:
        """SQL: which delivery of the snapshot a read belongs to."""
        cases = " ".join(
            f"WHEN {PARTITION} <=> {partition_number(partition)} THEN size(filter(array({', '.join(f'{offset}L' for offset in offsets)}),"
            f" start -> start <= {OFFSET}))"
            for partition, offsets in self.starts.items()
        )
        return f"CASE {cases} ELSE 0 END" if cases else "0"


@dataclass(frozen=True)
class _Reads:
    """The reads of one snapshot."""

    first: Mapping[str, int]
    last: Mapping[str, int]
    begins: frozenset[tuple[str, int]]
    """Partition and offset of the reads that are marked as a table's first."""
    finishes: frozenset[tuple[str, int]]
    """Those that are marked as its last."""


@dataclass(frozen=True)
class _Beside:
    """What is streamed beside a snapshot's reads."""

    precedes: bool
    """Whether anything is archived before them."""
    behind: Position | None
    """The lowest position of what is archived behind them."""
    between: frozenset[tuple[str, int]]
    """Partition and offset of what is archived between them."""


def find_bases(log: DataFrame, microbatch: int, floor: Position | None, may_replace: Callable[[bool], bool] = bool) -> tuple[Base, Base]:
    """Return the base without a microbatch's events, and with them; costs two jobs, a third where the microbatch has reads.

    :param log: all known events.
    :param floor: position of the last truncate that came before the table was made.
    :param may_replace: whether a later snapshot may be the base, asked with whether its reads are marked as a connector's initial ones.
    """
    marked = log.withColumn(_MINE, F.col(MICROBATCH) == microbatch)
    rows = _reads_and_truncates(marked)

    @cache
    def beside_of(first: tuple[tuple[str, int], ...], last: tuple[tuple[str, int], ...]) -> list[Row]:
        return _streamed_beside(marked, dict(first), dict(last))

    def base(*, mine: bool) -> Base:
        known = [row for row in rows if mine or not row[_MINE]]

        def streamed(reads: _Reads) -> _Beside:
            found = beside_of(tuple(sorted(reads.first.items())), tuple(sorted(reads.last.items())))
            return _merged(row for row in found if mine or not row[_MINE])

        return _base(known, streamed, floor, may_replace)

    return base(mine=False), base(mine=True)


def _base(rows: list[Row], streamed: Callable[[_Reads], _Beside], floor: Position | None, may_replace: Callable[[bool], bool]) -> Base:
    truncates = [(position_of(row[POSITION]), partition_of(row), row["first"]) for row in rows if row[OP] == "t"]
    truncates += [(floor, UNKNOWN_PARTITION, None)] if floor else []
    snapshots: dict[Position, list[Row]] = {}
    for row in rows:
        if row[OP] == "r":
            snapshots.setdefault(position_of(row[POSITION]), []).append(row)
    if not snapshots:
        return Base(truncated_through=max((position for position, _, _ in truncates), default=None))
    oldest = min(snapshots)
    # A later one counts only where it cannot have read a part: in another epoch of the log nothing but an initial one comes first.
    newest = [
        each
        for each in sorted(snapshots, reverse=True)
        if each == oldest or each.epoch > oldest.epoch or may_replace(any(row["initial"] for row in snapshots[each]))
    ]
    reads = {position: _reads(snapshots[position]) for position in newest}
    position = next((each for each in newest if _is_complete(reads[each], streamed)), newest[0])
    counted, found = reads[position], streamed(reads[position])
    is_first = position == newest[-1] and not found.precedes
    starts = _starts(counted, found)
    # Where it was sent twice, what lies between the two deliveries is behind the first.
    ends = {partition: starts[partition][0] - 1 if partition in starts else last for partition, last in counted.last.items()}
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
    """Tell whether a snapshot came to its end; connectors that mark no table's first read mark no table's last either."""
    return bool(reads.finishes) or (not reads.begins and streamed(reads).behind is not None)


def _is_behind(truncate: tuple[Position, str, int | None], ends: Mapping[str, int], since: Position) -> bool:
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

    told = marked.filter(f"{OP} IN ('r', 't')").groupBy(OP, POSITION, PARTITION, _MINE)
    return told.agg(
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
