"""Find a flow's end as of a position or a time: one scan of its archived files."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import MappingProxyType

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.columns import ORDINAL, PARTITION
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.as_of import AsOf
from airflow_cdc.model.position.epochs import ArchivedEpochs
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.locate.archived_records import ArchivedRecords
from airflow_cdc.pipeline.locate.file_parts import FlowEnd
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import COMMIT, COMMITTED_MS, READ_COMMIT, comparable_connector


def connectors_of(surveys: Iterable[Survey], flow: str) -> set[str]:
    """Return the connectors that a flow's events name."""
    return {shape.connector for survey in surveys for shape in survey.shapes if shape.topic == flow and shape.connector}


def connector_of(connectors: Collection[str], flow: str) -> str:
    """Return the only connector of a flow's events.

    :raises ConfigurationError: if their positions do not order transactions.
    """
    connector = comparable_connector(connectors)
    if connector is None:
        raise ConfigurationError(
            f"Flow {flow}: events come from {sorted(connectors) or 'no connector that they name'}, whose positions cannot bound a flow.",
            next_step="Leave the position or time out.",
        )
    return connector


def find_end(
    spark: SparkSession, state: ArchiveState, ledger: Ledger, flow: str, as_of: AsOf, *, lives: Lives = MappingProxyType({})
) -> FlowEnd:
    """Return a flow's end as of a moment: the last transaction is the one at that position, or the last one up to that time.

    Reads of a full snapshot are bounded by their own position, except for the snapshot with which the archive begins: nothing is known
    before it, and under load its position is above that of events behind it (:mod:`airflow_cdc.pipeline.reconcile.order_events`).

    :param lives: the lives of the topic, by file.
    :raises ConfigurationError: if the flow's events cannot be bounded, their positions have another form, or they are of several epochs of
        the log and the position names none.
    """
    surveys = list(state.surveys(ledger.topics[flow], ledger.surveyed_through))
    files = [file for survey in surveys for file in survey.files_of(flow)]
    connector = connector_of(connectors_of(surveys, flow), flow)
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    archived = ArchivedRecords(session, state.archive, files, flow, connector, lives)
    epochs = archived.find_epochs()
    last = None if as_of.time else as_of.commit(connector, flow, archived.spans(epochs))
    rows = _scan(archived.in_epochs(epochs), as_of.milliseconds)
    first_read = min((int(row["first_read"]) for row in rows if row["first_read"] is not None), default=None)
    ends = [last + 1] if last is not None else [int(row["next_commit"]) for row in rows if row["next_commit"] is not None]
    reads = [*ends, *(int(row["next_read"]) for row in rows if row["next_read"] is not None)]
    if not reads:
        return FlowEnd()
    highest = max((int(row["highest"]) for row in rows if row["highest"] is not None), default=-1)
    reads_before = min(reads) if first_read is None else max(min(reads), first_read + 1)
    return FlowEnd(min(ends, default=highest + 1), reads_before, ArchivedEpochs(epochs, lives))


def _scan(records: DataFrame, milliseconds: int | None) -> list[Row]:
    """Return by lane what :func:`find_end` needs.

    The position of the first record if it is a read; the highest streamed position; and the lowest position, streamed and read, of what
    the source committed after a time.
    """
    # Without offsets, the lowest position is the first.
    position = f"if({ORDINAL}.offset IS NULL, coalesce({COMMIT}, {READ_COMMIT}), NULL)"
    is_after = F.expr(f"coalesce({COMMITTED_MS} > {'NULL' if milliseconds is None else milliseconds}, false)")
    place = F.struct(F.col(ORDINAL)["offset"], F.expr(position), F.col(ORDINAL))
    return (
        records.groupBy(PARTITION)
        .agg(
            F.min_by(READ_COMMIT, place).alias("first_read"),
            F.max(COMMIT).alias("highest"),
            F.min(F.when(is_after, F.col(COMMIT))).alias("next_commit"),
            F.min(F.when(is_after, F.col(READ_COMMIT))).alias("next_read"),
        )
        .collect()
    )
