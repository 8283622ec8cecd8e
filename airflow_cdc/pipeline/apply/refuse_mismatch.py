"""Refuse a microbatch in which one column rejects most events: a declaration or the source changed, not the data."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.errors import ColumnMismatchError, RejectReason
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun

_FEW = 10
"""Below this many odd events, stop only if none is taken in and the flow has no table yet."""
_EXAMPLES = 3
_REASON = RejectReason.VALUE_DOES_NOT_FIT_COLUMN.value


def refuse_mismatch(run: MicrobatchRun, rejects: DataFrame, by_reason: Mapping[str, int], *, events: int) -> None:
    """Stop where one column does not fit most of the events; single odd events go to the quarantine.

    :param rejects: rows of :data:`~airflow_cdc.pipeline.record.quarantine.QUARANTINE_SCHEMA`.
    :param by_reason: their count by reason.
    :param events: number of create, read, update and delete events of the microbatch.
    :raises ColumnMismatchError: with the column, its share, examples, and a remedy. Nothing was written.
    """
    if not _is_most(run, by_reason.get(_REASON, 0), events):
        return
    # "column NAME is TYPE, seen: VALUE": the first reason of each record (pipeline/decode/rejects.py).
    parts = F.split("detail", ", seen: ", 2)
    named = rejects.filter(F.col("reason") == _REASON).select(parts[0].alias("column"), parts[1].alias("value"), "file", "offset")
    found = named.groupBy("column").agg(
        F.count("*").alias("count"),
        F.slice(F.collect_set("value"), 1, _EXAMPLES).alias("examples"),
        F.min(F.struct("file", "offset")).alias("place"),
    )
    row = found.orderBy(F.desc("count")).first()
    if row is None or not _is_most(run, row["count"], events):
        return
    where = f"file {row['place']['file']}, offset {row['place']['offset']}"
    raise ColumnMismatchError(
        f"Flow {run.flow.name}, microbatch {run.microbatch.number}: {row['column']}, and {row['count']} of {events} events have values"
        f" that are none: {', '.join(sorted(row['examples']))} ({where}). A declaration or the source changed, not single values.",
        next_step="Nothing of the microbatch was merged or set aside, and nothing is lost. See how bare JSON spells the values"
        " (docs/reference/types.md): declare the column in the flows file with its encoding or unit, or hand over the source's schema"
        " (airflow-cdc schema pull, import), and run again. Where the table itself has the wrong type: airflow-cdc retype.",
    )


def _is_most(run: MicrobatchRun, count: int, events: int) -> bool:
    return count * 2 > events and (count >= _FEW or (count == events and run.checkpoint.table is None))
