"""CdcArchiveTrigger: wait in the triggerer until an archive holds files that no flow has applied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_cdc.hooks.archive import CdcArchiveHook, pending_summary
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import CdcError


class CdcArchiveTrigger(BaseTrigger):
    """Fire when at least ``min_files`` archived files wait, or when looking fails.

    The event is ``{"status": "success", "pending": …}`` or ``{"status": "error", "message": …, "transient": …}``.

    :param archive_conn_id: connection of the archive.
    :param lake_conn_id: connection of the lake whose state tells what is applied.
    :param tables: globs of flow names; none: every flow.
    :param min_files: how many files must wait.
    :param poke_interval: seconds between two looks.
    """

    def __init__(
        self,
        *,
        archive_conn_id: str,
        lake_conn_id: str,
        tables: list[str],
        min_files: int,
        poke_interval: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.min_files = min_files
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument, as plain JSON values."""
        return (
            "airflow_cdc.triggers.archive.CdcArchiveTrigger",
            {
                "archive_conn_id": self.archive_conn_id,
                "lake_conn_id": self.lake_conn_id,
                "tables": self.tables,
                "min_files": self.min_files,
                "poke_interval": self.poke_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until enough files wait."""
        while True:
            try:
                # File systems and connection look-ups block: on the loop they would hold up every other trigger of the triggerer.
                pending = await asyncio.to_thread(look, self.archive_conn_id, self.lake_conn_id, self.tables)
            except Exception as error:  # noqa: BLE001 - raised here, it would reach the task without its text.
                transient = error.transient if isinstance(error, CdcError) else True
                message = str(error) if isinstance(error, CdcError) else f"{type(error).__name__}: {error}"
                yield _event(status="error", message=message, transient=transient)
                return
            if pending["files"] >= self.min_files:
                yield _event(status="success", pending=pending)
                return
            await asyncio.sleep(self.poke_interval)


def _event(**payload: Any) -> TriggerEvent:
    return TriggerEvent(payload)


def look(archive_conn_id: str, lake_conn_id: str, tables: list[str]) -> dict[str, Any]:
    """Return what waits in an archive: the one question that sensor and trigger ask."""
    return pending_summary(CdcArchiveHook(archive_conn_id).pending(CdcLakeHook(lake_conn_id), tables))
