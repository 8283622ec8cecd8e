"""Which range of the source's log files cover, and when the connector processed their records: read in this process if that is certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.columns import FILE
from airflow_cdc.model.connectors.connector import Connector, NativeRule
from airflow_cdc.model.look.moved_files import LogSpan
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, may_read, rows_by_name
from airflow_cdc.pipeline.native.duckdb_sql import text, texts
from airflow_cdc.pipeline.native.fetched_files import FetchedFiles, is_fetched
from airflow_cdc.pipeline.native.loose_json import with_loose_json
from airflow_cdc.pipeline.read.read_lines import read_lines
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import COMMIT, READ_COMMIT, member, parse_lines
from airflow_cdc.pipeline.survey.survey_natively import is_of_lines

_WRAPPERS = ("$.value.payload", "$.value", "$.payload", "$")
"""Where a line's value stands, as in :func:`~airflow_cdc.pipeline.survey.commit_positions.member`."""


def find_log_spans(
    spark: SparkSession, archive: str, files: Sequence[ArchivedFile], *, topic: str, dialect: Connector
) -> dict[str, LogSpan]:
    """Return by path the range of log positions and times of a topic's records; costs a small job where only Spark reads the files."""
    return _natively(archive, files, topic, dialect=dialect) or _by_spark(spark, archive, files, topic=topic, dialect=dialect)


def _by_spark(spark: SparkSession, archive: str, files: Sequence[ArchivedFile], *, topic: str, dialect: Connector) -> dict[str, LogSpan]:
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    lines = parse_lines(read_lines(session, archive, files), "ts_ms: STRING", dialect)
    ours = lines.filter(F.coalesce(F.col("topic"), F.lit(topic)) == topic).selectExpr("*", member("ts_ms"))
    commit, sent = F.coalesce(COMMIT, READ_COMMIT), F.expr("try_cast(ts_ms AS BIGINT)")
    placed = ours.select(FILE, commit.alias("commit"), F.col(COMMIT).alias("streamed"), sent.alias("sent")).filter("commit IS NOT NULL")
    bounds = [pick(name).alias(f"{pick.__name__}_{name}") for name in ("commit", "sent") for pick in (F.min, F.max)]
    # A single record without a time may be the oldest.
    untimed = F.count_if(F.col("sent").isNull()).alias("untimed")
    rows = placed.groupBy(FILE).agg(*bounds, untimed, F.count("streamed").alias("streamed")).collect()
    return {row[FILE]: _log_span(row) for row in rows}


def _log_span(row: Any) -> LogSpan:
    since, through = (None, None) if row["untimed"] else (row["min_sent"], row["max_sent"])
    return LogSpan(int(row["min_commit"]), int(row["max_commit"]), since, through, has_reads_only=not row["streamed"])


def _natively(archive: str, files: Sequence[ArchivedFile], topic: str, *, dialect: Connector) -> dict[str, LogSpan] | None:
    """Return the same; None where that is not certain."""
    if dialect.native is None or not (may_read() and is_fetched(archive) and all(map(is_of_lines, files))):
        return None
    import duckdb

    try:
        fetched = FetchedFiles(archive, [file.path for file in files])
        if with_loose_json(fetched):
            return None
        with connect_duckdb() as connection:
            connection.register_filesystem(fetched)
            query = _spans(fetched.uris, topic, dialect.native, fields=dialect.position.fields)
            rows = rows_by_name(connection.execute(query))
    except (duckdb.Error, OSError):
        # Whatever it is, Spark names it.
        return None
    if any(row["unread"] for row in rows):
        return None
    paths = dict(zip(fetched.uris, (file.path for file in files), strict=True))
    return {paths[row["filename"]]: _log_span(row) for row in rows if row["min_commit"] is not None}


def _spans(uris: Sequence[str], topic: str, rule: NativeRule, *, fields: Sequence[str]) -> str:
    source = _member("source")
    members = ", ".join(f"{text(field)}: json_extract_string({source}, {text(f'$.{field}')})" for field in ("snapshot", *fields))
    return f"""
WITH records AS (
  SELECT filename, {_text("op")} AS op, TRY_CAST({_text("ts_ms")} AS BIGINT) AS sent,
    CASE WHEN {source} IS NOT NULL THEN {{{members}}} END AS source
  FROM read_ndjson_objects([{texts(uris)}], filename = true, hive_partitioning = false)
  WHERE coalesce(json_extract_string(json, '$.topic'), {text(topic)}) = {text(topic)}
), placed AS (
  SELECT *, {rule.commit} AS position, op = 'r' AND coalesce(source.snapshot, '') <> 'incremental' AS is_read FROM records
)
SELECT filename, min(position) AS min_commit, max(position) AS max_commit,
  min(sent) FILTER (position IS NOT NULL) AS min_sent, max(sent) FILTER (position IS NOT NULL) AS max_sent,
  count_if(sent IS NULL AND position IS NOT NULL) AS untimed, count_if(position IS NOT NULL AND NOT is_read) AS streamed,
  count_if(position IS NULL AND op IS NOT NULL) AS unread
FROM placed GROUP BY filename"""


def _text(name: str) -> str:
    found = [f"json_extract_string(json, {text(place)})" for place in _places(name)]
    return f"coalesce({', '.join(found)})"


def _member(name: str) -> str:
    found = [f"json_extract(json, {text(place)})" for place in _places(name)]
    objects = [f"CASE WHEN json_type({each}) = 'OBJECT' THEN {each} END" for each in found]
    return f"coalesce({', '.join(objects)})"


def _places(name: str) -> list[str]:
    return [f"{wrapper}.{name}" for wrapper in _WRAPPERS]
