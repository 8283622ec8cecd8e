"""Inspect a lake by Spark: its flows, their rows, their quarantine. Read-only.

What delta-rs reads is read without Spark, with the same answers (:mod:`airflow_cdc.pipeline.look`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.columns import POSITION, is_reserved
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.places import archive_quarantine_uri, quarantine_uri
from airflow_cdc.model.state.lake import FlowState, archives_in, flows_in
from airflow_cdc.pipeline.look.flow_rows import FlowRows, no_table
from airflow_cdc.pipeline.look.flow_summaries import FlowSummary, TableFacts, summarize, table_of
from airflow_cdc.pipeline.look.quarantined import ARCHIVE_ORDER
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import with_columns
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.flag_deletes import IS_LIVE
from airflow_cdc.pipeline.target.target_table import TargetTable, latest_version, read_target


def summarize_flows(spark: SparkSession, lake: str, globs: Iterable[str] = ()) -> list[FlowSummary]:
    """Return the summaries of a lake's matching flows, ordered by name."""

    def facts_of(uri: str) -> TableFacts | None:
        target = read_target(spark, spark_uri(uri))
        return TableFacts(_rows(spark, target, history=False).count(), latest_version(spark, target.uri)) if target else None

    return summarize(lake, globs, facts_of)


def read_rows(spark: SparkSession, lake: str, flow: str, limit: int | None = None, *, history: bool = False) -> FlowRows:
    """Return a flow's rows.

    :param limit: maximum number of rows to return; None: all.
    :param history: whether to include past versions, with our own columns.
    :raises ConfigurationError: when the lake holds no table of that flow.
    """
    frame, keys = source_rows(spark, lake, flow, history=history)
    # Rows without a key can only be ordered by all their values.
    by = keys or [name for name, kind in frame.dtypes if not is_reserved(name) and kind != "variant"]
    ordered = frame.orderBy(*[sql.name(name) for name in by], *([POSITION] if history else []))
    # Python's local time of an instant depends on the machine's zone, and fails for the first day of year 1; the session's zone is UTC.
    local = {"timestamp": "timestamp_ntz", "array<timestamp>": "array<timestamp_ntz>"}
    instants = {name: F.col(sql.name(name)).cast(local[kind]) for name, kind in frame.dtypes if kind in local}
    shown = with_columns(with_json(ordered), instants)
    rows = (shown if limit is None else shown.limit(limit)).collect()
    types = {field.name: field.dataType.simpleString().upper() for field in frame.schema.fields}
    total = len(rows) if limit is None or len(rows) < limit else frame.count()
    return FlowRows(flow, types, keys, [row.asDict(recursive=history) for row in rows], total)


def with_json(frame: DataFrame) -> DataFrame:
    """Return the rows with each VARIANT as its JSON text: Spark can neither sort nor compare a VARIANT."""
    return with_columns(frame, {name: F.to_json(F.col(sql.name(name))) for name, kind in frame.dtypes if kind == "variant"})


def source_rows(
    spark: SparkSession, lake: str, flow: str, *, history: bool = False, version: int | None = None
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the live rows of a flow's table, without our own columns, and the table's keys.

    :param history: whether to include past versions, with our own columns.
    :param version: of the table; None: the newest at the time of reading.
    :raises ConfigurationError: when the lake holds no table of that flow.
    """
    fs, root = file_system(lake)
    target = read_target(spark, spark_uri(table_of(lake, FlowState(fs, root, flow).checkpoint())))
    if target is None:
        raise no_table(lake, flow)
    frame = _rows(spark, target, history=history, version=version)
    shown = [sql.name(name) for name in frame.columns if history or not target.is_ours(name)]
    return frame.select(*shown), target.keys


def _rows(spark: SparkSession, target: TargetTable, *, history: bool, version: int | None = None) -> DataFrame:
    rows = spark.sql(f"SELECT * FROM {sql.delta(target.uri)}" + ("" if version is None else f" VERSION AS OF {version}"))
    live = {TableMode.FLAGGED: IS_LIVE, TableMode.VERSIONS: sql.name(target.scd_columns.is_current)}
    return rows if history else rows.filter(live.get(target.mode, "true"))


def read_quarantine(spark: SparkSession, lake: str, globs: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the quarantined records in archive order, as plain values (``record.quarantine.QUARANTINE_SCHEMA``) with their ``flow``."""
    wanted = tuple(globs)
    rows = (row for frame in quarantines(spark, lake, wanted) for row in frame.orderBy(*ARCHIVE_ORDER).collect())
    return [row.asDict() for row in rows if matches_any(row["flow"] or NO_TOPIC, wanted)]


def quarantines(spark: SparkSession, lake: str, globs: Iterable[str] = (), *, only: str | None = None) -> Iterator[DataFrame]:
    """Yield the quarantine of each flow, with its ``flow``, then that of each archive.

    In an archive's quarantine, ``flow`` is the topic of a record without a flow, NULL for lines that name no topic; it may differ from the
    flow that was requested.

    :param only: the single flow to read; None: all that match ``globs``.
    """
    fs, root = file_system(lake)
    for flow in flows_in(fs, root):
        if matches_any(flow, globs) and only in (None, flow):
            frame = _quarantined(spark, quarantine_uri(lake, FlowState(fs, root, flow).folder))
            if frame is not None:
                yield frame.select(F.lit(flow).alias("flow"), "*")
    for state in archives_in(fs, root):
        frame = _quarantined(spark, archive_quarantine_uri(lake, state.archive)) if state.held_topics() else None
        if frame is not None:
            yield frame.select(F.col("topic").alias("flow"), "*")


def _quarantined(spark: SparkSession, uri: str) -> DataFrame | None:
    return None if read_target(spark, spark_uri(uri)) is None else spark.sql(f"SELECT * FROM {sql.delta(spark_uri(uri))}")
