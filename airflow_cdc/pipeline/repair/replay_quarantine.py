"""Replay a quarantine: read again the files with rejected records, under the flow's current settings."""

from __future__ import annotations

import glob
from collections.abc import Collection
from dataclasses import dataclass, replace

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.reprocessing import check_reasons
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.pipeline.record.quarantine import quarantined_files
from airflow_cdc.pipeline.repair.reprocess import Reprocessed, Reprocessing, reprocess
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.select_flows import check_known
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri


@dataclass(frozen=True)
class Replayed:
    """Result of a replay: what was found, and what was done."""

    files: int
    """Number of files read again."""
    again: Reprocessed | None
    """None where the quarantine holds no matching record."""

    @property
    def report(self) -> BatchReport | None:
        """The report of what was done; of what was found in a dry run, or if nothing had to change."""
        if self.again is None:
            return None
        done = self.again.report.flows[0].batches if self.again.report and self.again.report.flows else ()
        return done[-1] if done else self.again.found


def replay_quarantine(order: Reprocessing, reasons: Collection[str] = ()) -> Replayed:
    """Read again, whole, the files with records in a flow's quarantine, and merge what can be merged now, in its place among the others.

    Records that are already merged stay as they are. Records that still cannot be merged are quarantined again with their current reason,
    in place of the earlier entries of these files. A topic whose records are in the archive's quarantine has applied nothing yet: it is
    applied, from its first file on.

    :param order: the flow; its range is ignored.
    :param reasons: only files with records rejected for one of these reasons; empty: all.

    :raises ConfigurationError: for an unknown reason, a flow that the lake does not know, or a topic that is still not a flow.
    :raises CdcError: as :func:`airflow_cdc.pipeline.repair.reprocess.reprocess`.
    """
    check_reasons(reasons)
    lake = absolute_uri(order.lake)
    fs, root = file_system(lake)
    state = ArchiveState(fs, root, absolute_uri(order.archive))
    # A misspelled flow has no quarantine either.
    check_known(state, order.lake, order.flow)
    if held := state.held_topics().get(order.flow):
        return _apply_held(order, held)
    files = quarantined_files(order.spark, spark_uri(quarantine_uri(lake, FlowState(fs, root, order.flow).folder)), reasons)
    if not files:
        return Replayed(0, None)
    return Replayed(len(files), reprocess(replace(order, first=None, last=None, files=files)))


def _apply_held(order: Reprocessing, held: HeldTopic) -> Replayed:
    planned = BatchReport(order.flow, 1, held.files, 0, EventCounts(read=held.records, rejected=held.records), RowCounts())
    if order.dry_run:
        return Replayed(held.files, Reprocessed(planned))
    tables = (glob.escape(order.flow),)
    report = apply_archive(
        ArchiveRun(
            order.spark, order.archive, order.lake, order.flows, tables, order.progress, order.after_effect, wait_seconds=order.wait_seconds
        )
    )
    if still := next((topic for topic in report.held_topics if topic.topic == order.flow), None):
        raise ConfigurationError(
            f"Lake {order.lake}: {still}. Nothing was replayed.",
            next_step="Declare the topic under flows: or routes: in the flows file; replay again with it.",
        )
    batches = [batch for flow in report.flows for batch in flow.batches]
    return Replayed(held.files, Reprocessed(batches[-1] if batches else planned, report))
