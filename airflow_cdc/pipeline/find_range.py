"""Find which stretch of a source's log a person means by two positions or times."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.as_of import AsOf, check_range
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.lake import ArchiveState
from airflow_cdc.model.survey import Survey
from airflow_cdc.pipeline.archive import read_lines
from airflow_cdc.pipeline.commit_positions import COMMIT, COMMITTED_MS, comparable_connector
from airflow_cdc.pipeline.find_applied import CommitRange
from airflow_cdc.pipeline.find_end import connector_of, connectors_of, flow_records
from airflow_cdc.pipeline.session import session_for_batch


def find_range(spark: SparkSession, state: ArchiveState, flow: str, first: AsOf | None, last: AsOf | None) -> CommitRange | None:
    """Return the range of a flow's log from a moment to another, the transactions at both included.

    A time is looked for in one scan of the flow's surveyed files. The range from a time begins with the lowest position of what the source
    committed then or later, and the range to a time ends before the lowest position of what it committed later, as a rebuild does
    (:func:`airflow_cdc.pipeline.find_end.find_end`): where the source's clock steps back, its log decides.

    :return: None where nothing stands in the range.
    :raises ConfigurationError: where the flow's events cannot be bounded, spell positions in another way, or the range is turned round.
    """
    connectors = connectors_of(_surveys(state, flow), flow)
    if first is None and last is None:
        return CommitRange(comparable_connector(connectors))
    check_range(first, last)
    connector = connector_of(connectors, flow)
    since, through = (bound.commit(connector, flow) if bound and not bound.time else None for bound in (first, last))
    if since is not None and through is not None and since > through:
        raise ConfigurationError(
            f"Flow {flow}: the range from commit position {since} to {through} is empty.", next_step="Give the lower position first."
        )
    before = None if through is None else through + 1
    from_time, to_time = (bound.milliseconds if bound else None for bound in (first, last))
    if from_time is not None or to_time is not None:
        found_since, found_before = _positions_at(spark, state, flow, connector, from_time=from_time, to_time=to_time)
        if from_time is not None and found_since is None:
            return None
        since = since if from_time is None else found_since
        before = before if to_time is None else found_before
    return None if since is not None and before is not None and since >= before else CommitRange(connector, since, before)


def _positions_at(
    spark: SparkSession, state: ArchiveState, flow: str, connector: str, *, from_time: int | None, to_time: int | None
) -> tuple[int | None, int | None]:
    """Return the lowest positions of what was committed from a time on, and of what was after another; times in milliseconds since 1970."""
    files = [file for survey in _surveys(state, flow) for file in survey.files_of(flow)]
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    records = flow_records(read_lines(session, state.archive, files), files, flow, connector)
    # A comparison with NULL holds for no record.
    found = records.agg(
        F.min(F.when(F.col(COMMITTED_MS) >= F.lit(from_time), F.col(COMMIT))).alias("since"),
        F.min(F.when(F.col(COMMITTED_MS) > F.lit(to_time), F.col(COMMIT))).alias("before"),
    ).collect()[0]
    since, before = (None if found[name] is None else int(found[name]) for name in ("since", "before"))
    return since, before


def _surveys(state: ArchiveState, flow: str) -> Iterator[Survey]:
    ledger = state.ledger()
    return state.surveys(ledger.topics[flow], ledger.surveyed_through)
