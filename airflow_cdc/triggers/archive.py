"""CdcArchiveTrigger: wait in the triggerer until an archive holds files that no flow has applied."""

from __future__ import annotations

from airflow_cdc.hooks.archive import CdcArchiveHook, pending_summary
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.triggers.look import Answer, CdcLookTrigger


class CdcArchiveTrigger(CdcLookTrigger):
    """Fire when at least ``min_files`` archived files wait, or when looking fails."""

    @staticmethod
    def look(*, archive_conn_id: str, lake_conn_id: str, tables: list[str], min_files: int) -> Answer:  # type: ignore[override]
        """Return what waits in an archive.

        :param archive_conn_id: connection of the archive.
        :param lake_conn_id: connection of the lake whose state tells what is applied.
        :param tables: globs of flow names; none: every flow.
        :param min_files: how many files must wait.
        """
        pending = pending_summary(CdcArchiveHook(archive_conn_id).pending(CdcLakeHook(lake_conn_id), tables))
        return Answer(pending["files"] >= min_files, pending)
