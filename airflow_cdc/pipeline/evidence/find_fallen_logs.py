"""Find connectors whose logs went back, before a consistent run divides any file: positions compare within one epoch only.

One job per connector finds out whether any table may hold an event after a higher position; usually none does. Only for those tables
records are placed (:mod:`airflow_cdc.pipeline.locate.archived_records`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Row, SparkSession, Window
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.completeness import ArchivedOffsets, file_offsets, in_lanes
from airflow_cdc.model.archive.transactions import LogStart, TransactionLedger
from airflow_cdc.model.columns import FILE, OFFSET, ORDINAL, PARTITION
from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.position.epochs import ArchivedEpochs
from airflow_cdc.model.position.lives import partition_of_lane
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import pending_in
from airflow_cdc.pipeline.evidence.plan_lives import PlanLives
from airflow_cdc.pipeline.locate.archived_records import ArchivedRecords
from airflow_cdc.pipeline.locate.find_applied import known_epochs
from airflow_cdc.pipeline.locate.find_end import connectors_of
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import (
    COMMIT,
    COMMITTED_MS,
    READ_COMMIT,
    comparable_connector,
    comparable_dialect,
    parse_lines,
    with_lanes,
)


@dataclass(frozen=True)
class FallenLogs:
    """Known epochs of the connectors' logs when a run begins."""

    starts: Mapping[str, LogStart] = field(default_factory=dict)
    """By ``topic.prefix``: start of an epoch in which transactions are not followed yet."""
    archived: Mapping[str, ArchivedEpochs] = field(default_factory=dict)
    """By flow: the epochs of its pending files' records, where a search was needed."""
    last_ms: Mapping[str, int] = field(default_factory=dict)
    """By flow: when the source committed the last of its pending events."""


@dataclass(frozen=True)
class _Flow:
    """One flow and its files that are not applied, or only in part."""

    state: FlowState
    settings: CdcFlow
    checkpoint: FlowCheckpoint
    files: Mapping[str, ArchivedFile]
    since: Mapping[str, int]
    """By path: the commit position below which a file is applied."""
    connectors: frozenset[str]
    has_later_epoch: bool
    """Whether a file was divided under a later epoch than the flow has applied."""

    def falls(self, row: Row) -> bool:
        """Return whether records of a partition may come after a higher position."""
        newest = self.checkpoint.epochs.newest * EPOCH
        lane = UNKNOWN_PARTITION if row[PARTITION] is None else row[PARTITION]
        reached = [
            place.commit
            for name, place in self.checkpoint.reach.streamed_through.items()
            if name == lane or (name != UNKNOWN_PARTITION and partition_of_lane(int(name)) == lane)
        ]
        return bool(row["falls"]) or any(newest + int(row["lowest"]) < commit for commit in reached)


@dataclass(frozen=True)
class FindFallenLogs:
    """Finds the epochs of the connectors' logs."""

    spark: SparkSession
    archive: ArchiveState
    ledger: Ledger
    settings: Mapping[str, CdcFlow]
    """Settings of the flows, by topic."""
    there: Container[str]
    """Paths of the files that are still in the archive."""

    def find(self, flows: Mapping[str, Sequence[FlowState]], known: TransactionLedger) -> FallenLogs:
        """Return what is known of the logs. Costs a job for each connector with pending files.

        :param flows: by ``topic.prefix``.
        :param known: the transactions followed so far.
        """
        starts: dict[str, LogStart] = {}
        archived: dict[str, ArchivedEpochs] = {}
        last_ms: dict[str, int] = {}
        for prefix, members in flows.items():
            pending = [self._pending(flow) for flow in members]
            followed = known.start_of(prefix)
            suspects = {flow.state.flow for flow in pending if flow.checkpoint.epochs.newest > followed.epoch or flow.has_later_epoch}
            for flow, row in self._places(pending):
                last_ms[flow.state.flow] = max(int(row["last_ms"] or 0), last_ms.get(flow.state.flow, 0))
                suspects |= {flow.state.flow} if flow.falls(row) else set()
            begins: dict[int, list[int]] = {}
            for flow in pending:
                if flow.state.flow in suspects and (found := self._look(flow)):
                    archived[flow.state.flow], last_ms_before, first_ms = found
                    # A table that was quiet when the log went back reaches the epoch later than the others.
                    if first_ms is not None and followed.holds(last_ms_before):
                        begins.setdefault(archived[flow.state.flow].epochs.newest, []).append(first_ms)
            if begins:
                newest = max(begins)
                starts[prefix] = LogStart(max(newest, followed.epoch), min(begins[newest]))
        return FallenLogs(starts, archived, last_ms)

    def _pending(self, state: FlowState) -> _Flow:
        checkpoint = state.checkpoint()
        planned, held = checkpoint.plan(self.archive.archive)
        marks = {(item.survey, item.path): item.since for item in held if item.since is not None}
        files: dict[str, ArchivedFile] = {}
        since: dict[str, int] = {}
        connectors: set[str] = set()
        for survey in self.archive.pending_surveys(checkpoint, self.ledger):
            for file in pending_in(survey, state.flow, planned, held):
                if file.path in self.there:
                    files[file.path] = file
                    connectors |= connectors_of([survey], state.flow)
                    if (mark := marks.get((survey.number, file.path))) is not None:
                        since[file.path] = mark
        return _Flow(
            state,
            settings_of(self.settings, state.flow),
            checkpoint,
            files,
            since,
            frozenset(connectors),
            has_later_epoch=any(item.epochs.epochs.newest > checkpoint.epochs.newest for item in held),
        )

    def _places(self, flows: Sequence[_Flow]) -> list[tuple[_Flow, Row]]:
        """Return for the partitions of each pending file: whether positions fall there, the lowest, and the last commit time."""
        files = list({path: file for flow in flows for path, file in flow.files.items()}.values())
        dialect = comparable_dialect({connector for flow in flows for connector in flow.connectors})
        if dialect is None or not dialect.position.goes_back:
            return []
        session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in files))
        lines = with_lanes(parse_lines(read_lines(session, self.archive.archive, files), "", dialect), files, {})
        position = f"coalesce({COMMIT}, {READ_COMMIT})"
        topic = f"coalesce(topic, {file_literal(files, 'topic', 'STRING')})"
        placed = lines.selectExpr(FILE, f"{topic} AS topic", PARTITION, OFFSET, ORDINAL, COMMIT, f"{position} AS place", COMMITTED_MS)
        # The applied part of a file begins no epoch.
        done = [
            f"({FILE} = {sql.text(path)} AND topic = {sql.text(flow.state.flow)} AND (place < {mark % EPOCH}BD OR {COMMIT} IS NULL))"
            for flow in flows
            for path, mark in sorted(flow.since.items())
        ]
        placed = placed.filter("place IS NOT NULL" + "".join(f" AND NOT {each}" for each in done))
        in_order = Window.partitionBy("topic", PARTITION).orderBy(OFFSET, ORDINAL).rowsBetween(Window.unboundedPreceding, -1)
        fallen = placed.withColumn("falls", F.coalesce(F.col("place") < F.max(COMMIT).over(in_order), F.lit(False)))  # noqa: FBT003
        rows = (
            fallen.groupBy(FILE, "topic", PARTITION)
            .agg(F.max("falls").alias("falls"), F.min("place").alias("lowest"), F.max(COMMITTED_MS).alias("last_ms"))
            .collect()
        )
        by_name = {flow.state.flow: flow for flow in flows}
        return [(flow, row) for row in rows if (flow := by_name.get(row["topic"])) and row[FILE] in flow.files]

    def _look(self, flow: _Flow) -> tuple[ArchivedEpochs, int | None, int | None] | None:
        """Return the epochs of a flow's records, the commit time of the last one before the newest epoch, and of the first one in it.

        None where the log did not go back, or where that is unknown: the flow's own microbatch then reports the reason.
        """
        name = flow.state.flow
        surveys = list(self.archive.surveys(self.ledger.topics[name], self.ledger.surveyed_through))
        files = [file for survey in surveys for file in survey.files_of(name) if file.path in self.there]
        connector = comparable_connector(connectors_of(surveys, name))
        if not files or connector is None:
            return None
        try:
            pending = PlanLives(self.spark, self.archive, self.ledger, flow.state, flow.settings).find(flow.checkpoint)
            applied = known_epochs(flow.state, flow.checkpoint, self.archive.archive)
            lives = {**applied.lives, **pending}
            session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in files))
            records = ArchivedRecords(session, self.archive.archive, files, name, connector, lives)
            offsets = [item for survey in surveys for item in in_lanes(file_offsets(survey, name), lives)]
            new_lanes = {str(item.partition) for item in offsets if item.file in flow.files} - flow.checkpoint.reach.partitions
            known = flow.checkpoint.epochs.with_new_lanes(new_lanes)
            epochs = records.find_epochs(known, ArchivedOffsets().with_files(offsets))
        except CdcError:
            return None
        return (ArchivedEpochs(epochs, lives), *records.turn(epochs)) if epochs.newest else None
