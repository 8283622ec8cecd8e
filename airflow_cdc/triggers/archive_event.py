"""CdcArchiveEventTrigger: notify an asset's watcher of new files."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_cdc.hooks.archive import CdcArchiveHook, pending_summary
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.archive.announced import Announced
from airflow_cdc.model.look.pending import PendingFiles, unsurveyed_files
from airflow_cdc.triggers.look import failure_of

KEY = "cdc_announced_files"
"""Key of the announced files in an asset's state; a trigger with a name appends it."""
MOST_TOPICS = 50
"""Most topics named in an event; ``files`` counts all."""
HAND_OVER_SECONDS = 5.0
"""Seconds in which the triggerer has surely stored an event. If it were remembered earlier, the triggerer's end could lose the event."""
COMPLAIN_AGAIN_SECONDS = 600.0
"""Seconds after which a persisting error is logged again: nobody reads last week's line."""


@dataclass(frozen=True)
class _News:
    """The event of one look, and what is announced once it is sent."""

    payload: dict[str, Any] | None
    announced: Announced


class CdcArchiveEventTrigger(BaseEventTrigger):
    """Fire whenever files land that neither a merge has surveyed nor an earlier event has announced.

    For an ``AssetWatcher``: it never ends. The event is ``{"files": 3, "topics": {"server.db.orders": 3}}``. Files that still wait
    ``repeat_after`` seconds after the last event, even because their run failed for good, are announced once more, with ``"again": true``.

    From Airflow 3.3 on the asset's state records what was announced: a restart of the triggerer loses nothing, and repeats an event only if
    it came within :data:`HAND_OVER_SECONDS`. Before 3.3, and where the asset's state cannot be used, it is remembered until the triggerer
    restarts; unsurveyed files are then announced again. An error is logged, and again every :data:`COMPLAIN_AGAIN_SECONDS`; looking goes
    on.

    :param archive_conn_id: connection of the archive.
    :param lake_conn_id: connection of the lake whose state records which files wait.
    :param tables: globs of flow names; none: every flow.
    :param poke_interval: seconds between two looks.
    :param repeat_after: seconds after the last event until waiting files are announced again; None: never.
    :param name: distinguishes this watcher. Airflow runs the watchers of two assets as one where their arguments are equal, and gives that
        one no state.
    """

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: Sequence[str] = (),
        poke_interval: float = 60.0,
        repeat_after: float | None = 3600.0,
        name: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if repeat_after is not None and repeat_after <= 0:
            raise ValueError(f"repeat_after is {repeat_after}, expected seconds above 0, or None for never.")
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = list(tables)
        self.poke_interval = poke_interval
        self.repeat_after = repeat_after
        self.name = name
        self._announced: Announced | None = None
        self._is_unsaved = False
        self._complaints: dict[str, tuple[str, float]] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument, as plain JSON values."""
        names = ("archive_conn_id", "lake_conn_id", "tables", "poke_interval", "repeat_after", "name")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look for ever."""
        while True:
            try:
                news = await self._news()
            except Exception as error:  # noqa: BLE001 - a watcher that ends is a Dag that silently never starts again.
                self._complain("look", failure_of(error)["message"])
            else:
                self._complaints.pop("look", None)
                if news.payload:
                    yield TriggerEvent(news.payload)
                    await asyncio.sleep(HAND_OVER_SECONDS)
                await self._remember(news.announced)
            await asyncio.sleep(self.poke_interval)

    async def _news(self) -> _News:
        announced, now = await self._recall(), time.time()
        is_due = announced.is_due(now, self.repeat_after)
        pending = await asyncio.to_thread(self._look, is_whole=is_due)
        files = pending.unsurveyed
        if left_out := announced.left_out(files):
            return _News(_payload(Counter(file.topic for file in left_out), len(left_out)), Announced.of(files, at=now))
        if is_due and pending:
            found = pending_summary(pending)
            return _News({**_payload(found["topics"], found["files"]), "again": True}, Announced.of(files, at=now))
        now_announced = Announced.of(files, at=announced.at)
        return _News(None, now_announced.quiet() if is_due else now_announced)

    def _look(self, *, is_whole: bool) -> PendingFiles:
        """Return the pending files; unless ``is_whole``, only the unsurveyed ones, which costs less."""
        archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
        if is_whole:
            return archive.pending(lake, self.tables)
        return PendingFiles(unsurveyed_files(**archive.beside(lake), tables=self.tables))

    async def _recall(self) -> Announced:
        if self._announced is None:
            self._announced = await self._stored() or Announced()
        return self._announced

    async def _stored(self) -> Announced | None:
        store = self._store
        if store is None:
            self._complain(
                "state",
                "This Airflow keeps no state of assets (3.3 does): after a restart of the triggerer, files that no run of the merge has"
                " looked into are announced again. Nothing is lost.",
            )
            return None
        try:
            document = await store.aget(self._key)
            return Announced.from_json(document) if document else None
        except Exception as error:  # noqa: BLE001 - announced twice is harmless, never announced is not.
            self._complain_of_state(error)
            return None

    async def _remember(self, announced: Announced) -> None:
        if announced == self._announced and not self._is_unsaved:
            return
        self._announced = announced
        if (store := self._store) is None:
            return
        try:
            await store.aset(self._key, announced.to_json())
        except Exception as error:  # noqa: BLE001 - as above; the event is out, and memory has it.
            self._is_unsaved = True
            self._complain_of_state(error)
        else:
            self._is_unsaved = False
            self._complaints.pop("state", None)

    @property
    def _store(self) -> Any:
        """The asset's state, None before Airflow 3.3."""
        return getattr(self, "asset_state_store", None)

    @property
    def _key(self) -> str:
        return f"{KEY}_{self.name}" if self.name else KEY

    def _complain_of_state(self, error: Exception) -> None:
        self._complain(
            "state",
            f"The asset's state cannot be used: {failure_of(error)['message']}. Files are announced all the same, and once more after a"
            " restart of the triggerer. Next step: where several assets are watched with equal arguments, give each trigger a name.",
        )

    def _complain(self, about: str, message: str) -> None:
        now, (last, at) = time.monotonic(), self._complaints.get(about, ("", 0.0))
        if message != last or now - at >= COMPLAIN_AGAIN_SECONDS:
            self._complaints[about] = (message, now)
            self.log.warning("Watching %s: %s", self.archive_conn_id, message)


def _payload(topics: Mapping[str, int], files: int) -> dict[str, Any]:
    return {"files": files, "topics": dict(sorted(Counter(topics).most_common(MOST_TOPICS)))}
