"""Find the range of a source's log between two positions or times."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.as_of import AsOf, check_range
from airflow_cdc.model.position.epochs import NO_EPOCHS, ArchivedEpochs
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.pipeline.locate.archived_records import ArchivedRecords
from airflow_cdc.pipeline.locate.find_applied import CommitRange
from airflow_cdc.pipeline.locate.find_end import connector_of, connectors_of
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import COMMIT, COMMITTED_MS, comparable_connector


def find_range(
    spark: SparkSession, state: ArchiveState, flow: str, first: AsOf | None, last: AsOf | None, *, applied: ArchivedEpochs = NO_EPOCHS
) -> CommitRange | None:
    """Return the range of a flow's log between two moments, including the transactions at both.

    A time is searched in one scan of the flow's files. The range from a time begins with the lowest position of what the source
    committed then or later. The range to a time ends before the lowest position of what it committed later, as for a rebuild
    (:func:`airflow_cdc.pipeline.locate.find_end.find_end`): if the source's clock steps back, its log decides.

    :param applied: the epochs of the records in the applied files.
    :return: None if the range is empty.
    :raises ConfigurationError: if the flow's events cannot be bounded, their positions have another form, they are of several epochs of the
        log and a position names none, or the range is reversed.
    """
    connectors = connectors_of(_surveys(state, flow), flow)
    if first is None and last is None:
        return CommitRange(comparable_connector(connectors), archived=applied)
    check_range(first, last)
    connector = connector_of(connectors, flow)
    records = _records(spark, state, flow, connector, applied)
    spans = records.spans(applied.epochs) if any(bound and not bound.time for bound in (first, last)) else ()
    since, through = (bound.commit(connector, flow, spans) if bound and not bound.time else None for bound in (first, last))
    if since is not None and through is not None and since > through:
        raise ConfigurationError(
            f"Flow {flow}: the range from commit position {Position(since)} to {Position(through)} is empty.",
            next_step="Give the lower position first.",
        )
    before = None if through is None else through + 1
    from_time, to_time = (bound.milliseconds if bound else None for bound in (first, last))
    if from_time is not None or to_time is not None:
        found_since, found_before = _positions_at(records.in_epochs(applied.epochs), from_time=from_time, to_time=to_time)
        if from_time is not None and found_since is None:
            return None
        since = since if from_time is None else found_since
        before = before if to_time is None else found_before
    if since is not None and before is not None and since >= before:
        return None
    return CommitRange(connector, since, before, archived=applied)


def _records(spark: SparkSession, state: ArchiveState, flow: str, connector: str, applied: ArchivedEpochs) -> ArchivedRecords:
    known = [file for survey in _surveys(state, flow) for file in survey.files_of(flow)]
    files = [file for file in known if applied.files is None or file.path in applied.files]
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    return ArchivedRecords(session, state.archive, files, flow, connector, applied.lives)


def _positions_at(records: DataFrame, *, from_time: int | None, to_time: int | None) -> tuple[int | None, int | None]:
    """Return the lowest positions committed at or after one time, and after another; times in milliseconds since 1970."""
    # A comparison with NULL matches no record.
    found = records.agg(
        F.min(F.when(F.col(COMMITTED_MS) >= F.lit(from_time), F.col(COMMIT))).alias("since"),
        F.min(F.when(F.col(COMMITTED_MS) > F.lit(to_time), F.col(COMMIT))).alias("before"),
    ).collect()[0]
    since, before = (None if found[name] is None else int(found[name]) for name in ("since", "before"))
    return since, before


def _surveys(state: ArchiveState, flow: str) -> Iterator[Survey]:
    ledger = state.ledger()
    return state.surveys(ledger.topics[flow], ledger.surveyed_through)
