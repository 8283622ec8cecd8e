"""Find where a flow ends as of a position or a time: one scan of its archived files."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive import ArchivedFile
from airflow_cdc.model.as_of import AsOf
from airflow_cdc.model.columns import ORDINAL, RAW
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.lake import ArchiveState
from airflow_cdc.model.ledger import Ledger
from airflow_cdc.model.survey import Survey
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.archive import file_literal, read_lines
from airflow_cdc.pipeline.commit_positions import COMMIT, COMMITTED_MS, READ_COMMIT, comparable_connector, comparable_dialect, parse_lines
from airflow_cdc.pipeline.file_parts import FlowEnd
from airflow_cdc.pipeline.session import session_for_batch

_POSITION = f"coalesce({COMMIT}, {READ_COMMIT})"


def connectors_of(surveys: Iterable[Survey], flow: str) -> set[str]:
    """Return the connectors that a flow's events name."""
    return {shape.connector for survey in surveys for shape in survey.shapes if shape.topic == flow and shape.connector}


def connector_of(connectors: Collection[str], flow: str) -> str:
    """Return the one connector of a flow's events.

    :raises ConfigurationError: where their positions do not tell an order of transactions.
    """
    connector = comparable_connector(connectors)
    if connector is None:
        raise ConfigurationError(
            f"Flow {flow}: events come from {sorted(connectors) or 'no connector that they name'}, whose positions cannot bound a flow.",
            next_step="Leave the position or time out.",
        )
    return connector


def find_end(spark: SparkSession, state: ArchiveState, ledger: Ledger, flow: str, as_of: AsOf) -> FlowEnd:
    """Return where a flow ends as of a moment: the transaction at that position, or the last one before that time, is the last.

    Reads of a full snapshot go by their own position, but for the snapshot with which the archive begins: nothing is known before it,
    and under load it tells a position above that of events behind it (:mod:`airflow_cdc.pipeline.order`).

    :raises ConfigurationError: where the flow's events cannot be bounded, or spell positions in another way.
    """
    surveys = list(state.surveys(ledger.topics[flow], ledger.surveyed_through))
    files = [file for survey in surveys for file in survey.files_of(flow)]
    connector = connector_of(connectors_of(surveys, flow), flow)
    last = None if as_of.time else as_of.commit(connector, flow)
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    rows = _scan(read_lines(session, state.archive, files), files, flow, connector, as_of.milliseconds)
    first_read = min((int(row["first_read"]) for row in rows if row["first_read"] is not None), default=None)
    ends = [last + 1] if last is not None else [int(row["next_commit"]) for row in rows if row["next_commit"] is not None]
    reads = [*ends, *(int(row["next_read"]) for row in rows if row["next_read"] is not None)]
    if not reads:
        return FlowEnd()
    highest = max((int(row["highest"]) for row in rows if row["highest"] is not None), default=-1)
    reads_before = min(reads) if first_read is None else max(min(reads), first_read + 1)
    return FlowEnd(min(ends, default=highest + 1), reads_before)


def flow_records(lines: DataFrame, files: list[ArchivedFile], flow: str, connector: str) -> DataFrame:
    """Return the lines of a flow that tell a position, as :func:`airflow_cdc.pipeline.commit_positions.parse_lines` does.

    :param lines: those of ``files``.
    """
    located = parse_lines(lines, "", comparable_dialect({connector}))
    known = f"coalesce(topic, {file_literal(files, 'topic', 'STRING')}, {sql.text(flow)})"
    return located.filter(f"{known} = {sql.text(flow)} AND {_POSITION} IS NOT NULL")


def _scan(lines: DataFrame, files: list[ArchivedFile], flow: str, connector: str, milliseconds: int | None) -> list[Row]:
    """Return what :func:`find_end` asks, by Kafka partition.

    That is: the position of the read that stands first, if one does; the highest streamed position; and of what the source committed
    after a time, the lowest position, streamed and read.
    """
    offset = f"coalesce(try_cast(get_json_object({RAW}, '$.offset') AS BIGINT), {file_literal(files, 'start_offset', 'BIGINT')})"
    partition = f"coalesce(try_cast(get_json_object({RAW}, '$.partition') AS INT), {file_literal(files, 'partition', 'INT')})"
    records = flow_records(lines, files, flow, connector).selectExpr(
        f"{partition} AS partition",
        # Where no offset is told, the lowest position stands first.
        f"struct({offset} AS offset, if({offset} IS NULL, {_POSITION}, NULL) AS position, {ORDINAL} AS ordinal) AS place",
        COMMIT,
        READ_COMMIT,
        f"coalesce({COMMITTED_MS} > {'NULL' if milliseconds is None else milliseconds}, false) AS is_after",
    )
    return (
        records.groupBy("partition")
        .agg(
            F.min_by(READ_COMMIT, "place").alias("first_read"),
            F.max(COMMIT).alias("highest"),
            F.min(F.when(F.col("is_after"), F.col(COMMIT))).alias("next_commit"),
            F.min(F.when(F.col("is_after"), F.col(READ_COMMIT))).alias("next_read"),
        )
        .collect()
    )
