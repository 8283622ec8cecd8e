"""Find a microbatch's commit by the metadata that it carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.report.batch_report import BatchReport, RowCounts
from airflow_cdc.model.report.foreign_change import APPLICATION, TableCommit
from airflow_cdc.model.state.commit_metadata import metadata_of, report_in
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.read_commits import commit_of, commits_behind

_LAST_VERSIONS = 20
_INSERTED = ("numTargetRowsInserted", "numOutputRows", "numAddedRows")
"""Names of one count: of a MERGE, of Delta's append, and of delta-rs's."""


@dataclass(frozen=True)
class MergeCommit:
    """The commit that a merge made."""

    version: int
    rows: RowCounts
    metadata: dict[str, Any]
    """The commit's metadata about its microbatch (``userMetadata``)."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Delta's own counts (``operationMetrics``)."""


def find_commit(
    spark: SparkSession, uri: str, *, application: str, microbatch: int, after: int = -1, may_read_log: bool = False
) -> MergeCommit | None:
    """Return the commit of a microbatch from the table's history, None where the log has none.

    Reads the last versions. Reads further back only while all of those are newer than the flow's last known commit, as after many clean-ups
    of a table whose merge crashed.

    :param after: version of the flow's last known commit.
    :param may_read_log: whether the table's store can be read without Spark; the commit is then nearly always found without a job.
    """
    read = commits_behind(uri, after) if may_read_log else ()
    if nearby := next(filter(None, (_commit_of(uri, commit, application=application, microbatch=microbatch) for commit in read)), None):
        return nearby
    limit = _LAST_VERSIONS
    while True:
        history = spark.sql(f"DESCRIBE HISTORY {sql.delta(uri)} LIMIT {limit}").selectExpr("version", "userMetadata", "operationMetrics")
        rows = history.collect()
        found = next(filter(None, (_commit_of(uri, row.asDict(), application=application, microbatch=microbatch) for row in rows)), None)
        if found or len(rows) < limit or int(rows[-1]["version"]) <= after:
            return found
        limit *= 8


def newest_report(spark: SparkSession, uri: str, flow: str) -> BatchReport | None:
    """Return the report of the last microbatch that a flow committed to its table, None where the last versions have none."""
    history = spark.sql(f"DESCRIBE HISTORY {sql.delta(uri)} LIMIT {_LAST_VERSIONS}").select("version", "userMetadata")
    for row in history.collect():
        version = int(row["version"])
        metadata = metadata_of(row["userMetadata"], table=uri, version=version)
        if str(metadata.get(APPLICATION, "")).startswith(f"{flow}:"):
            return report_in(metadata, table=uri, version=version)
    return None


def history_of(spark: SparkSession, uri: str) -> Iterator[TableCommit]:
    """Yield the commits of a table's history, ascending."""
    history = spark.sql(f"DESCRIBE HISTORY {sql.delta(uri)}").selectExpr(
        "version",
        "operation",
        "operationParameters",
        "userMetadata",
        "unix_millis(timestamp) AS at_millis",
        "coalesce(userName, userId, engineInfo) AS by",
    )
    rows = sorted((row.asDict() for row in history.collect()), key=lambda row: int(row["version"]))
    yield from (commit_of(uri, int(row["version"]), row) for row in rows)


def _commit_of(uri: str, row: Mapping[str, Any], *, application: str, microbatch: int) -> MergeCommit | None:
    metadata = metadata_of(row["userMetadata"], table=uri, version=int(row["version"]))
    if metadata.get(APPLICATION) != application or metadata.get("microbatch") != microbatch:
        return None
    metrics = _as_delta_names(row["operationMetrics"] or {})
    counts = RowCounts(
        inserted=_count(metrics, _INSERTED),
        updated=_count(metrics, ("numTargetRowsUpdated",)),
        deleted=_count(metrics, ("numTargetRowsDeleted",)),
    )
    return MergeCommit(version=int(row["version"]), rows=counts, metadata=metadata, metrics=metrics)


def _as_delta_names(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return a commit's counts as Delta names and spells them; delta-rs has names with underscores, and numbers."""
    parts = {name: name.split("_") for name in metrics}
    return {first + "".join(map(str.capitalize, others)): str(metrics[name]) for name, (first, *others) in parts.items()}


def _count(metrics: Mapping[str, str], names: Sequence[str]) -> int:
    """Return the first of these counts."""
    return int(next((metrics[name] for name in names if name in metrics), 0))
