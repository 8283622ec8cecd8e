"""Expire delete markers: move those that no late event needs any more out of the merges' way.

They are kept, because a file that is read again (`reprocess`, `quarantine replay`) may be of any age, and rows deleted since must stay
deleted. A marker makes older events of its key stale. An event later than the retention finds no marker, and a late create then brings its
row back. So the clock is the flow's own: it stops while nothing is applied, and, where files are held back, it stops at the arrival of the
oldest of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime, timezone

from pyspark.sql import SparkSession

from airflow_cdc.model.columns import MICROBATCH
from airflow_cdc.model.report.maintenance import MaintenanceSettings
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.pipeline.record.append_once import append, read_appended
from airflow_cdc.pipeline.spark import sql

_NO_TIME = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""Time of a commit marker without one: older than the next marker that has a time."""


def expired_through(
    state: FlowState, checkpoint: FlowCheckpoint, archives: Iterable[ArchiveState], settings: MaintenanceSettings
) -> int | None:
    """Return the number of the last microbatch whose delete markers are expired, None if none are. Costs some reads of small files."""
    newest = state.committed_at(checkpoint.number)
    if newest is None:
        return None
    waiting = (archive.surveyed_at(held.survey) for archive in archives for held in checkpoint.plan(archive.archive)[1])
    bound = min([newest, *waiting]) - settings.expire_after

    def committed_at(number: int) -> datetime:
        return state.committed_at(number) or _NO_TIME

    numbers = range(1, checkpoint.number - settings.keep_microbatches + 1)
    # Microbatches are committed one after another, so their times rise.
    last = bisect_right(numbers, bound, key=committed_at)
    return last if last and committed_at(last) > _NO_TIME else None


def expire_markers(spark: SparkSession, uri: str, expired_uri: str | None, through: int, *, dry_run: bool) -> int:
    """Move the markers of microbatches up to ``through`` to the expired markers, which only reprocessed files read; return their number.

    Moves go (``expired_uri`` is None): without one a late event leaves a value NULL, and deletes or revives no row.

    A crash between the two commits leaves them in both tables, which is harmless: a duplicate marker changes nothing. The log's statistics
    show where there are none.
    """
    markers = read_appended(spark, uri)
    if markers is None:
        return 0
    old = markers.filter(f"{MICROBATCH} <= {through}")
    expired = old.count()
    if expired and not dry_run:
        if expired_uri:
            append(spark, old, expired_uri)
        spark.sql(f"DELETE FROM {sql.delta(uri)} WHERE {MICROBATCH} <= {through}")
    return expired
