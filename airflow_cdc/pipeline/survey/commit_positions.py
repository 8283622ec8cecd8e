"""Commit positions of archived records in their source's log, without decoding the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.columns import OFFSET, PARTITION, RAW
from airflow_cdc.model.connectors.connector import NUMBER, Connector
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.pipeline.decode.lanes import lane
from airflow_cdc.pipeline.read.read_lines import file_literal
from airflow_cdc.pipeline.spark import sql

COMMIT = "commit"
"""decimal(38,0): the record's commit position."""
READ_COMMIT = "read_commit"
"""decimal(38,0): the commit position of a full snapshot's read; NULL for every other record."""
COMMITTED_MS = "committed_ms"
"""bigint: the source's commit time (``source.ts_ms``, milliseconds since 1970 in UTC)."""

_LINE = "line"


def comparable_connector(connectors: Iterable[str]) -> str | None:
    """Return the connector whose commit positions compare across tables; None for several, and for an unknown one.

    If positions are offsets of the archive, each topic has its own (ADR 0006).
    """
    found = set(connectors)
    only = found.pop() if len(found) == 1 else ""
    return only if only in CONNECTORS and not CONNECTORS[only].position.is_offset else None


def comparable_dialect(connectors: Iterable[str]) -> Connector | None:
    """Return the entry of the connector whose commit positions compare across tables (:func:`comparable_connector`)."""
    connector = comparable_connector(connectors)
    return CONNECTORS[connector] if connector else None


def parse_lines(lines: DataFrame, members: str, dialect: Connector | None) -> DataFrame:
    """Return lines with their topic, a struct that :func:`member` reads, :data:`COMMIT`, :data:`READ_COMMIT` and :data:`COMMITTED_MS`.

    The commit position is NULL for records that have none, and for the reads of a full snapshot: their position may be above that of
    streamed events that the archive holds after them, and that they do not include.

    :param members: further members of the value (DDL).
    :param dialect: defines the position; None: every position is NULL.
    """
    source_members = ", ".join(f"{name}: STRING" for name in ("snapshot", "ts_ms", *(dialect.position.fields if dialect else ())))
    payload = ", ".join(filter(None, (members, "op: STRING", f"source: STRUCT<{source_members}>")))
    line = f"STRUCT<topic: STRING, value: STRUCT<payload: STRUCT<{payload}>, {payload}>, payload: STRUCT<{payload}>, {payload}>"
    parsed = lines.withColumn(_LINE, F.expr(sql.once(f"from_json({RAW}, {sql.text(line)})")))
    parsed = parsed.selectExpr("*", f"{_LINE}.topic", member("op"), member("source"))
    whole_table = "op = 'r' AND coalesce(source.snapshot, '') <> 'incremental'"
    commit = dialect.position.commit if dialect else "NULL"
    return parsed.selectExpr(
        "*",
        f"CAST(if({whole_table}, NULL, {commit}) AS {NUMBER}) AS {COMMIT}",
        f"CAST(if({whole_table}, {commit}, NULL) AS {NUMBER}) AS {READ_COMMIT}",
        f"try_cast(source.ts_ms AS BIGINT) AS {COMMITTED_MS}",
    ).drop("op", "source")


def with_lanes(lines: DataFrame, files: Sequence[ArchivedFile], lives: Lives) -> DataFrame:
    """Return lines with ``PARTITION``, their lane (:mod:`airflow_cdc.model.position.lives`), and ``OFFSET``; NULL where unknown.

    :param lives: the lives of the topic, by file.
    """
    partition = f"coalesce(try_cast(get_json_object({RAW}, '$.partition') AS INT), {file_literal(files, 'partition', 'INT')})"
    offset = f"coalesce(try_cast(get_json_object({RAW}, '$.offset') AS BIGINT), {file_literal(files, 'start_offset', 'BIGINT')})"
    return lines.selectExpr("*", f"{lane(partition, lives)} AS {PARTITION}", f"{offset} AS {OFFSET}")


def member(name: str) -> str:
    """Return the SQL of a value's member, whatever wraps the value."""
    return f"coalesce({_LINE}.value.payload.{name}, {_LINE}.value.{name}, {_LINE}.payload.{name}, {_LINE}.{name}) AS {name}"
