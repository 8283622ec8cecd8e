"""Find where the tables of each connector may end together: after the last complete transaction, or by position without transactions."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.cut import Cut, cut_of
from airflow_cdc.model.archive.transactions import LogStart, OpenTransactions, TransactionLedger, prefix_of
from airflow_cdc.model.columns import FILE
from airflow_cdc.model.look.whole_cut import connectors_with_transactions, highest_position
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import pending_in
from airflow_cdc.pipeline.evidence.find_fallen_logs import FallenLogs
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import COMMIT, COMMITTED_MS, comparable_connector, comparable_dialect, parse_lines


def find_cuts(
    spark: SparkSession,
    state: ArchiveState,
    ledger: Ledger,
    flows: Sequence[FlowState],
    *,
    there: Container[str],
    known: TransactionLedger,
    logs: FallenLogs,
) -> dict[str, Cut]:
    """Return the cut of each connector that has flows in the run, by ``topic.prefix``; its position is in the newest epoch of the log.

    Costs a pass over the pending files of connectors without an archived transaction topic.

    :param flows: the run's flows.
    :param there: paths of the files that are still in the archive.
    :param known: the transactions, up to date with the ledger's surveys.
    :param logs: what is known of the logs' epochs.
    """
    proven = connectors_with_transactions(ledger)
    by_prefix: dict[str, list[FlowState]] = {}
    for flow in flows:
        by_prefix.setdefault(connector_prefix(flow.flow, proven), []).append(flow)
    return {
        prefix: cut_of(
            prefix,
            known.connectors.get(prefix, OpenTransactions()),
            applied_through=_applied_through(members, known.start_of(prefix), logs),
        )
        if prefix in proven
        else _by_position(spark, state, ledger, prefix, members, there=there, since_ms=known.start_of(prefix).since_ms)
        for prefix, members in by_prefix.items()
    }


def connector_prefix(topic: str, prefixes: Collection[str]) -> str:
    """Return the connector's ``topic.prefix``, which may contain dots: the longest known one that the topic begins with."""
    known = (prefix for prefix in prefixes if topic.startswith(f"{prefix}."))
    return max(known, key=len, default=prefix_of(topic))


def _applied_through(flows: Sequence[FlowState], start: LogStart, logs: FallenLogs) -> int | None:
    stands = []
    for flow in flows:
        checkpoint, archived = flow.checkpoint(), logs.archived.get(flow.flow)
        stands.append((checkpoint, (archived.epochs if archived else checkpoint.epochs).newest))
    return highest_position(stands, start)


def _by_position(
    spark: SparkSession,
    state: ArchiveState,
    ledger: Ledger,
    prefix: str,
    flows: Sequence[FlowState],
    *,
    there: Container[str],
    since_ms: int | None,
) -> Cut:
    """Return the cut after the lowest end position of the flows with pending files: a quiet flow does not hold back the others."""
    pending: dict[str, list[ArchivedFile]] = {}
    connectors: set[str] = set()
    for flow in flows:
        checkpoint = flow.checkpoint()
        plan = checkpoint.plan(state.archive)
        for survey in state.pending_surveys(checkpoint, ledger):
            if files := [file for file in pending_in(survey, flow.flow, *plan) if file.path in there]:
                pending.setdefault(flow.flow, []).extend(files)
                connectors |= {shape.connector for shape in survey.shapes if shape.topic == flow.flow and shape.connector}
    # A single table does not wait for another.
    compares = len(pending) > 1 and comparable_connector(connectors)
    ends = _highest_positions(spark, state.archive, pending, connectors, since_ms=since_ms) if compares else {}
    # Tables that end at the same position hold nothing back.
    before = min(ends.values()) + 1 if len(set(ends.values())) > 1 else None
    return Cut(prefix, is_proven=False, before=before)


def _highest_positions(
    spark: SparkSession, archive: str, pending: Mapping[str, Sequence[ArchivedFile]], connectors: set[str], *, since_ms: int | None
) -> dict[str, int]:
    """Return the highest commit position in each topic's pending files; topics without one are left out.

    :param since_ms: commit time in the source of the first event of the log's newest epoch; None: all events are of that epoch.
    """
    files = list({file.path: file for members in pending.values() for file in members}.values())
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    lines = parse_lines(read_lines(session, archive, files), "", comparable_dialect(connectors))
    if since_ms is not None:
        lines = lines.filter(f"{COMMITTED_MS} >= {since_ms}")
    records = lines.selectExpr(FILE, f"coalesce(topic, {file_literal(files, 'topic', 'STRING')}) AS topic", COMMIT)
    highest = records.groupBy(FILE, "topic").agg(F.max(COMMIT).alias(COMMIT)).dropna().collect()
    paths = {topic: {file.path for file in members} for topic, members in pending.items()}
    found: dict[str, int] = {}
    for row in highest:
        # A file of several topics may be pending for one of them and done for another.
        if row[FILE] in paths.get(row["topic"], ()):
            found[row["topic"]] = max(int(row[COMMIT]), found.get(row["topic"], 0))
    return found
