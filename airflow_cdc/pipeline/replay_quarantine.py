"""Replay a quarantine: read again the files of which records were set aside, as the flow's settings are now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.model.report import BatchReport
from airflow_cdc.pipeline.archive import spark_uri
from airflow_cdc.pipeline.record.quarantine import quarantined_files
from airflow_cdc.pipeline.reprocess import Reprocessed, Reprocessing, reprocess


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
    :raises ConfigurationError: for a reason that there is none of.
    :raises CdcError: as :func:`airflow_cdc.pipeline.reprocess.reprocess` does.
    """
    known = sorted(reason.value for reason in RejectReason)
    if unknown := sorted({*reasons} - {*known}):
        raise ConfigurationError(f"No record is set aside for {unknown}; the reasons are {known}.", next_step="Correct the reason's name.")
    files = quarantined_files(order.spark, spark_uri(quarantine_uri(absolute_uri(order.lake), order.flow)), reasons)
    if not files:
        return Replayed(0, None)
    return Replayed(len(files), reprocess(replace(order, first=None, last=None, files=files)))
