"""Replay a quarantine: read again the files of which records were set aside, as the flow's settings are now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.lake import ArchiveState
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.model.report import BatchReport
from airflow_cdc.model.reprocessing import check_reasons
from airflow_cdc.pipeline.archive import spark_uri
from airflow_cdc.pipeline.record.quarantine import quarantined_files
from airflow_cdc.pipeline.reprocess import Reprocessed, Reprocessing, reprocess
from airflow_cdc.pipeline.select_flows import check_known
from airflow_cdc.pipeline.storage import file_system


@dataclass(frozen=True)
class Replayed:
    """What a replay found, and what it did about it."""

    files: int
    """Files that were read again."""
    again: Reprocessed | None
    """None where the quarantine holds nothing of what was asked for."""

    @property
    def report(self) -> BatchReport | None:
        """What was done, or of a dry run and where nothing was to be changed: found."""
        if self.again is None:
            return None
        done = self.again.report.flows[0].batches if self.again.report and self.again.report.flows else ()
        return done[-1] if done else self.again.found


def replay_quarantine(order: Reprocessing, reasons: Collection[str] = ()) -> Replayed:
    """Read again, whole, the files of which records are in a flow's quarantine: what can be merged now is, in its place among the others.

    The files' records that are merged already stay as they are. What still cannot be merged stands in the quarantine once more, with the
    reason that it has now, in place of the earlier entries of these files.

    :param order: of which flow; its range is not asked for.
    :param reasons: only files with records that were set aside for one of these reasons; none: all.
    :raises ConfigurationError: for a reason that there is none of, or a flow that the lake does not know.
    :raises CdcError: as :func:`airflow_cdc.pipeline.reprocess.reprocess` does.
    """
    check_reasons(reasons)
    fs, root = file_system(absolute_uri(order.lake))
    # A misspelled flow has no quarantine either.
    check_known(ArchiveState(fs, root, absolute_uri(order.archive)), order.lake, order.flow)
    files = quarantined_files(order.spark, spark_uri(quarantine_uri(absolute_uri(order.lake), order.flow)), reasons)
    if not files:
        return Replayed(0, None)
    return Replayed(len(files), reprocess(replace(order, first=None, last=None, files=files)))
