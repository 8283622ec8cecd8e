"""CdcArchiveTrigger: wait in the triggerer until an archive holds unapplied files."""

from __future__ import annotations

from airflow_cdc.hooks.archive import CdcArchiveHook, pending_summary
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.archive.interval import parse_interval
from airflow_cdc.triggers.look import Answer, CdcLookTrigger


class CdcArchiveTrigger(CdcLookTrigger):
    """Fire when at least ``min_files`` archived files are pending, or when looking fails."""

    @staticmethod
    def look(  # type: ignore[override]
        *, archive_conn_id: str, lake_conn_id: str, tables: list[str], min_files: int, since: str | None = None, until: str | None = None
    ) -> Answer:
        """Return an archive's pending files.

        :param archive_conn_id: connection of the archive.
        :param lake_conn_id: connection of the lake whose state records what is applied.
        :param tables: globs of flow names; none: every flow.
        :param min_files: number of files that must be pending.
        :param since: only files that were archived from this time on, in ISO 8601.
        :param until: only files that were archived before this time.
        """
        interval = parse_interval(since, until)
        pending = CdcArchiveHook(archive_conn_id).pending(CdcLakeHook(lake_conn_id), tables, interval=interval)
        found = pending_summary(pending)
        if pending.outside:
            found["outside"] = pending.outside
        return Answer(found["files"] >= min_files, found)
