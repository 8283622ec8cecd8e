"""Refuse a flow's first microbatch where each of its records would be rejected: their shape is not known, and no table should be made."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from airflow_cdc.model.archive.known_shapes import shape_of_line
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import AllRejectedError
from airflow_cdc.model.flow.policies import OnAllRejected
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun

_MOST_TEXT = 100_000
"""Characters of the example that are looked at."""
_SHOWN = 160


def refuse_all_rejected(run: MicrobatchRun, rejects: DataFrame, by_reason: Mapping[str, int], *, taken: int) -> None:
    """Stop where no event is taken in, some are rejected, and the flow has no table yet; with a good event, the others are set aside.

    :param rejects: rows of :data:`~airflow_cdc.pipeline.record.quarantine.QUARANTINE_SCHEMA`.
    :param by_reason: their count by reason.
    :param taken: number of events taken in.
    :raises AllRejectedError: with the shape seen, an example's place, and what to set. Nothing was written.
    """
    stops = run.flow.on_all_rejected is OnAllRejected.STOP and not run.microbatch.is_again
    if taken or not by_reason or run.checkpoint.table_version is not None or not stops:
        return
    most = max(by_reason, key=lambda reason: (by_reason[reason], reason))
    columns = ("file", "line", "offset", f"left(raw, {_MOST_TEXT}) AS raw")
    row = rejects.filter(rejects["reason"] == most).orderBy("file", "line").selectExpr(*columns).first()
    if row is None:
        return
    shape = shape_of_line(row["raw"], most)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(by_reason.items()))
    place = f"{printable(row['file'])}, line {row['line']}"
    text = printable(row["raw"][:_SHOWN]) + ("…" if len(row["raw"]) > _SHOWN else "")
    raise AllRejectedError(
        f"Flow {run.flow.name}, microbatch {run.microbatch.number}: all {sum(by_reason.values())} events are rejected ({counts}), and the"
        f" flow has no table yet. The first of them is {shape.seen} ({place}): {text}",
        next_step=f"{shape.next_step} Nothing was merged or set aside, and the files stay pending. If the records are none of a table, or"
        " shall be left in the quarantine, set on_all_rejected to 'quarantine' in the flows file.",
        rejects=dict(by_reason),
        file=row["file"],
        line=row["line"],
    )
