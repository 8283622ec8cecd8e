"""CdcSnapshotTrigger: wait in the triggerer until the initial snapshots of flows are applied."""

from __future__ import annotations

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.look.snapshot_state import snapshot_state
from airflow_cdc.triggers.look import Answer, CdcLookTrigger


class CdcSnapshotTrigger(CdcLookTrigger):
    """Fire when every requested flow has applied a complete snapshot, or when looking fails."""

    @staticmethod
    def look(*, archive_conn_id: str, lake_conn_id: str, tables: list[str]) -> Answer:  # type: ignore[override]
        """Return the requested flows with and without a complete snapshot.

        :param archive_conn_id: connection of the archive.
        :param lake_conn_id: connection of the lake.
        :param tables: globs of flow names; none: every flow.
        """
        lake = CdcLakeHook(lake_conn_id)
        state = snapshot_state(archive=CdcArchiveHook(archive_conn_id).root, lake_fs=lake.fs, lake_root=lake.fs_root, tables=tables)
        return Answer(state.is_complete, state.to_json())
