"""Gather the inputs of the search for full snapshots, and count the rows that a snapshot did not find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.completeness import ArchivedOffsets
from airflow_cdc.model.columns import OP, TRANSACTION
from airflow_cdc.model.flow.policies import OnSnapshot
from airflow_cdc.model.operation import KEEP, ROW_OPERATIONS, Operation
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT, Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables, tables_of
from airflow_cdc.pipeline.decode.stands_before import stands_before
from airflow_cdc.pipeline.evidence.doubt_snapshot import Doubts
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots, SnapshotsAsked, find_snapshots
from airflow_cdc.pipeline.evidence.find_voids import not_found
from airflow_cdc.pipeline.evidence.snapshot_reads import ReadsFound, ReadsInSpark, SnapshotDoubts, SnapshotReads
from airflow_cdc.pipeline.microbatch.count_events import Surveyed, count_surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun, decoder_for
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS
from airflow_cdc.pipeline.target.target_table import TargetTable

_LOOK_BACK = 8
"""Number of earlier microbatches searched for an event with a GTID."""
NamesGtids = Callable[[MicrobatchRun, Decoder], bool]
"""Whether streamed events of a microbatch name their transaction; the run and the decoder are that microbatch's."""


@dataclass(frozen=True, kw_only=True)
class SnapshotSearch:
    """A microbatch whose full snapshots are to be found."""

    run: MicrobatchRun
    decoder: Decoder
    surveyed: Surveyed
    tables: PhysicalTables

    def asked(self, reads: SnapshotReads, doubts: SnapshotDoubts, *, names_gtids: NamesGtids, are_copies: bool = False) -> SnapshotsAsked:
        """Return the inputs of :func:`airflow_cdc.pipeline.evidence.find_snapshot.find_snapshots`.

        :param names_gtids: the engine's; asked where the connector's reads prove nothing without GTIDs.
        :param are_copies: whether reads positioned below earlier streamed events have been found to be copies.
        """
        run, dialect = self.run, self.decoder.dialect
        applied = run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets())
        return SnapshotsAsked(
            run=run,
            surveyed=self.surveyed,
            reads=reads,
            doubts=doubts,
            tables=self.tables,
            read_tables=tables_of(run.microbatch, [Operation.READ.value]),
            offsets=applied.with_files(run.microbatch.offsets),
            knows_initial=bool(dialect.snapshots.initial),
            names_gtids=_names_gtids(run, self.decoder, names_gtids) if dialect.snapshots.initial_needs else None,
            may_fall=not (are_copies or not dialect.position.goes_back or run.microbatch.is_again),
        )


@dataclass(frozen=True, kw_only=True)
class SnapshotFrames(SnapshotSearch):
    """A microbatch's frames, in which Spark finds full snapshots."""

    events: DataFrame
    """All events of the microbatch, including rejects."""
    latest: DataFrame | None
    """Row changes; None where the microbatch has none."""
    known: DataFrame | None
    """Rows or events that may be newer than a read (:class:`~airflow_cdc.pipeline.evidence.doubt_snapshot.Doubts`)."""
    reads: SnapshotReads | None = None
    """The reads, where they are found already."""


def find_known_snapshots(frames: SnapshotFrames, *, are_copies: bool = False) -> Snapshots:
    """Return the full snapshots known after the microbatch (:func:`airflow_cdc.pipeline.evidence.find_snapshot.find_snapshots`).

    :param are_copies: whether reads positioned below earlier streamed events have been found to be copies.
    """
    if frames.latest is None:
        checkpoint = frames.run.checkpoint
        return Snapshots(checkpoint.snapshot, checkpoint.pending_snapshots, shield=checkpoint.replaced_by)
    reads: SnapshotReads = ReadsInSpark(frames.events, frames.latest)
    if frames.reads:
        reads = ReadsFound(frames.reads, reads)
    doubts = Doubts(events=frames.events, latest=frames.latest, known=frames.known, keys=frames.tables.keys)
    return find_snapshots(frames.asked(reads, doubts, names_gtids=_names_gtids_in_spark, are_copies=are_copies))


def may_be_base(run: MicrobatchRun, decoder: Decoder) -> Callable[[bool], bool]:
    """Return a function from a snapshot's initial mark to whether that snapshot may replace the rows of a table without a key."""
    policy = run.flow.on_snapshot
    needed = decoder.dialect.snapshots.initial_needs
    names_gtids = _names_gtids(run, decoder, _names_gtids_in_spark)

    @cache
    def proves_it() -> bool:
        return names_gtids() if needed else True

    def ask(is_marked: bool) -> bool:  # noqa: FBT001
        return policy is OnSnapshot.REPLACE or (policy is OnSnapshot.AUTO and is_marked and proves_it())

    return ask


def _names_gtids(run: MicrobatchRun, decoder: Decoder, asked: NamesGtids) -> Callable[[], bool]:
    """Return a function that searches this and earlier microbatches for streamed events that name their transaction."""

    def ask() -> bool:
        for number in range(run.microbatch.number, max(run.microbatch.number - 1 - _LOOK_BACK, 0), -1):
            intent = run.past.intent(number)
            counted = count_surveyed(intent.shapes) if intent else Surveyed()
            # An initial snapshot may be hundreds of microbatches of reads alone: none of them is read for this.
            if intent and counted.rows > counted.reads and asked(replace(run, microbatch=intent), decoder_for(decoder, intent)):
                return True
        return False

    return ask


def _names_gtids_in_spark(run: MicrobatchRun, decoder: Decoder) -> bool:
    """Return whether streamed events name their transaction; a microbatch that cannot be read any more proves nothing."""
    try:
        named = decoder.events(run.lines()).filter(f"{IS_ROW_EVENT} AND {OP} <> 'r' AND {TRANSACTION} IS NOT NULL")
        return bool(named.head(1))
    except SPARK_ERRORS:
        return False


def with_unconfirmed(
    run: MicrobatchRun, report: BatchReport, snapshot: Snapshot, *, target: TargetTable, row_changes: DataFrame, tables: PhysicalTables
) -> BatchReport:
    """Return the report with the number of rows that a finished snapshot did not find, and that stay.

    :param row_changes: the microbatch's; rows under their keys are counted from them, not from the target.
    """
    counted = replace(snapshot, cut=snapshot.position)
    before = not_found(counted, tables) if tables.are_distinct or not tables.are_several else stands_before(counted)
    keys = [sql.name(key) for key in target.keys]
    left = run.rows_of(target).filter(before).join(row_changes.select(*keys), list(target.keys), "left_anti")
    here = row_changes.filter(f"{before} AND {OP} NOT IN ('d', '{KEEP}')")
    return with_unconfirmed_rows(report, snapshot, left.count() + here.count())


def with_unconfirmed_versions(
    report: BatchReport, snapshot: Snapshot, current: DataFrame, *, log: DataFrame, tables: PhysicalTables
) -> BatchReport:
    """As above, for a table that keeps versions.

    :param current: the versions that are current after the microbatch is merged.
    :param log: all known events: a read that found a row unchanged begins no version.
    """
    counted = replace(snapshot, cut=snapshot.position)
    events = log.filter(F.col(OP).isin([operation.value for operation in ROW_OPERATIONS]))
    confirmed = events.filter(f"NOT ({stands_before(counted)})").alias("e")
    of_tables = tables.rows_of(snapshot.tables) if tables.are_distinct else "true"
    left = current.filter(of_tables).alias("v").join(confirmed, F.expr(sql.same_key("v", "e", tables.keys)), "left_anti")
    return with_unconfirmed_rows(report, snapshot, left.count())


def with_unconfirmed_rows(report: BatchReport, snapshot: Snapshot, rows: int) -> BatchReport:
    """Return the report with the number of rows that a finished snapshot did not find, and that stay."""
    return replace(report, rows_unconfirmed=rows, snapshot=replace(snapshot, unconfirmed=rows))
