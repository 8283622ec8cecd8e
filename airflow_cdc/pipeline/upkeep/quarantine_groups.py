"""Inspect a lake's quarantine by Spark: groups of records with one cause, and one flow's first records. Read-only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.errors import RejectReason
from airflow_cdc.model.globs import matches_any
from airflow_cdc.pipeline.look.quarantined import ARCHIVE_ORDER, MISFIT, QuarantineGroup, check_known, largest_first
from airflow_cdc.pipeline.upkeep.inspect_lake import quarantines


def quarantine_groups(spark: SparkSession, lake: str, globs: Iterable[str] = ()) -> list[QuarantineGroup]:
    """Return the groups of all quarantined records, largest first."""
    wanted = tuple(globs)
    column = F.when(F.col("reason") == RejectReason.VALUE_DOES_NOT_FIT_COLUMN.value, F.regexp_extract("detail", MISFIT, 1))
    found: dict[tuple[str | None, str, str | None], QuarantineGroup] = {}
    for frame in quarantines(spark, lake, wanted):
        example = F.min_by(F.struct(*[name for name in frame.columns if name != "flow"]), F.struct(*ARCHIVE_ORDER))
        groups = frame.groupBy("flow", "reason", column.alias("column")).agg(F.count("*").alias("records"), example.alias("example"))
        for row in groups.collect():
            if matches_any(row["flow"] or NO_TOPIC, wanted):
                group = QuarantineGroup(**row.asDict(recursive=True))
                # Several archives of one lake may have records of the same topic that is not a flow.
                place = (group.flow, group.reason, group.column)
                found[place] = replace(found[place], records=found[place].records + group.records) if place in found else group
    return largest_first(found.values())


def records_of(spark: SparkSession, lake: str, flow: str, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """Return the first quarantined records of a flow, or of a topic that is not a flow, in archive order, and their total number.

    :param limit: maximum number of records to return; None: all.
    :raises ConfigurationError: when the lake knows no flow of that name and has quarantined nothing under it.
    """
    frames = [frame.filter(F.col("flow") == flow) for frame in quarantines(spark, lake, (), only=flow)]
    counts = [frame.count() for frame in frames]
    if not any(counts):
        check_known(lake, flow)
    records: list[dict[str, Any]] = []
    for frame in frames:
        ordered = frame.orderBy(*ARCHIVE_ORDER)
        rows = ordered if limit is None else ordered.limit(max(limit - len(records), 0))
        records += [row.asDict() for row in rows.collect()]
    return records, sum(counts)
