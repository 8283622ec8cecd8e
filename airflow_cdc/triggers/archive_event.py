"""CdcArchiveEventTrigger: tell an asset's watcher that files have landed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.announced import Announced
from airflow_cdc.model.archive import ArchivedFile
from airflow_cdc.model.pending import unsurveyed_files
from airflow_cdc.triggers.look import failure_of

KEY = "cdc_announced_files"
"""Where an asset's state remembers what was announced."""
MOST_TOPICS = 50
"""Topics named in an event; ``files`` counts all."""
HAND_OVER_SECONDS = 5.0
"""Until the triggerer has surely written an event down. Remembered earlier, an event would be lost with the triggerer."""


class CdcArchiveEventTrigger(BaseEventTrigger):
    """Fire whenever files land that neither a run of the merge has looked into nor an earlier event has told of.

    For an ``AssetWatcher``: it never ends. The event is ``{"files": 3, "topics": {"server.db.orders": 3}}``. From Airflow 3.3 on the asset
    remembers what was announced: a restart of the triggerer loses nothing, and repeats an event only where it came within
    :data:`HAND_OVER_SECONDS`. Before, it repeats what no run has looked into yet. Looking goes on after an error, which is logged.

    :param archive_conn_id: connection of the archive.
    :param lake_conn_id: connection of the lake whose state tells which files a run has looked into.
    :param tables: globs of flow names; none: every flow.
    :param poke_interval: seconds between two looks.
    """

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: Sequence[str] = (),
        poke_interval: float = 60.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = list(tables)
        self.poke_interval = poke_interval
        self._announced = Announced()
        self._complaints: set[str] = set()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument, as plain JSON values."""
        names = ("archive_conn_id", "lake_conn_id", "tables", "poke_interval")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look for ever."""
        while True:
            try:
                announced = await self._recall()
                files = await asyncio.to_thread(self._look)
                left_out = announced.left_out(files)
            except Exception as error:  # noqa: BLE001 - a watcher that ends is a Dag that never starts again, and nobody is told.
                self._complain(failure_of(error)["message"])
            else:
                if left_out:
                    yield TriggerEvent(_payload(left_out))
                    await asyncio.sleep(HAND_OVER_SECONDS)
                if (now := Announced.of(files)) != announced:
                    await self._remember(now)
            await asyncio.sleep(self.poke_interval)

    def _look(self) -> tuple[ArchivedFile, ...]:
        archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
        return unsurveyed_files(**archive.beside(lake), tables=self.tables)

    async def _recall(self) -> Announced:
        store = self._store()
        if store is None:
            return self._announced
        document = await store.aget(KEY)
        return Announced.from_json(document) if document else Announced()

    async def _remember(self, announced: Announced) -> None:
        self._announced = announced
        if (store := self._store()) is not None:
            try:
                await store.aset(KEY, announced.to_json())
            except Exception as error:  # noqa: BLE001 - as above; the event is out, and is repeated.
                self._complain(f"What was announced could not be remembered: {failure_of(error)['message']}")

    def _store(self) -> Any:
        """Return the asset's state, None before Airflow 3.3."""
        store = getattr(self, "asset_state_store", None)
        if store is None:
            self._complain(
                "This Airflow keeps no state of assets (3.3 does): after a restart of the triggerer, files that no run of the merge has"
                " looked into are announced again. Nothing is lost."
            )
        return store

    def _complain(self, message: str) -> None:
        if message not in self._complaints:
            self._complaints.add(message)
            self.log.warning("Watching %s: %s", self.archive_conn_id, message)


def _payload(files: Sequence[ArchivedFile]) -> dict[str, Any]:
    topics = Counter(file.topic for file in files)
    return {"files": len(files), "topics": dict(sorted(topics.most_common(MOST_TOPICS)))}
