"""Inspect a lake's quarantine: groups of records with one cause, and one flow's first records. Read-only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.state.lake import archives_in, flows_in
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.upkeep.inspect_lake import ARCHIVE_ORDER, quarantines

_MISFIT = r"(?s)^column (.*?) is [A-Z_]+(?:[(<][^:]*)?, seen: "
"""How the detail of a value that does not fit begins (:mod:`airflow_cdc.pipeline.decode.rejects`)."""


@dataclass(frozen=True)
class QuarantineGroup:
    """Records of one flow rejected for one reason and, if values do not fit, in one column."""

    flow: str | None
    """For a topic that is not a flow, the topic; None for lines that name no topic."""
    reason: str
    column: str | None
    """None for reasons that do not concern one column."""
    records: int
    example: dict[str, Any]
    """The first of them in archive order (``record.quarantine.QUARANTINE_SCHEMA``)."""

    def to_json(self) -> dict[str, Any]:
        """Return the group as commands print it."""
        return dict(vars(self))


def quarantine_groups(spark: SparkSession, lake: str, globs: Iterable[str] = ()) -> list[QuarantineGroup]:
    """Return the groups of all quarantined records, largest first."""
    wanted = tuple(globs)
    column = F.when(F.col("reason") == RejectReason.VALUE_DOES_NOT_FIT_COLUMN.value, F.regexp_extract("detail", _MISFIT, 1))
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
    return sorted(found.values(), key=lambda group: (-group.records, group.flow or NO_TOPIC, group.reason, group.column or ""))


def records_of(spark: SparkSession, lake: str, flow: str, limit: int | None = None) -> tuple[list[dict[str, Any]], int]:
    """Return the first quarantined records of a flow, or of a topic that is not a flow, in archive order, and their total number.

    :param limit: maximum number of records to return; None: all.
    :raises ConfigurationError: when the lake knows no flow of that name and has quarantined nothing under it.
    """
    frames = [frame.filter(F.col("flow") == flow) for frame in quarantines(spark, lake, (), only=flow)]
    counts = [frame.count() for frame in frames]
    if not any(counts):
        _check_known(lake, flow)
    records: list[dict[str, Any]] = []
    for frame in frames:
        ordered = frame.orderBy(*ARCHIVE_ORDER)
        rows = ordered if limit is None else ordered.limit(max(limit - len(records), 0))
        records += [row.asDict() for row in rows.collect()]
    return records, sum(counts)


def _check_known(lake: str, flow: str) -> None:
    fs, root = file_system(lake)
    known = {*flows_in(fs, root), *(topic for state in archives_in(fs, root) for topic in state.held_topics())} - {NO_TOPIC}
    if flow not in known:
        raise ConfigurationError(
            f"Lake {lake} knows no flow {flow}; it knows {', '.join(sorted(known)) or 'none'}.",
            next_step="Check the flow's name and the lake's root with `airflow-cdc tables --lake …`.",
        )
