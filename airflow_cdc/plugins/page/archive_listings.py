"""ArchiveListings: what the archives of a lake hold that no run has looked at, listed in the background and kept in memory."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_cdc.model.archive.looked import Looked
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.look.unsurveyed import Unsurveyed, list_unsurveyed
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.plugins.page.carried import carried

AGAIN = 30.0
"""Seconds after which an archive is listed again, as long as somebody looks at the page."""

log = logging.getLogger(__name__)


class ArchiveListings:
    """The archives of one lake.

    :param reach: returns an archive's file system, and the archive's root in it.
    """

    def __init__(self, reach: Callable[[str], tuple[FileSystem, str]]) -> None:
        self._reach = reach
        self._found: dict[str, Unsurveyed] = {}
        self._looked: dict[str, Looked] = {}
        self._lock = threading.Lock()
        self._listing: threading.Event | None = None
        self._listed = -AGAIN

    def of(self, archive: str) -> Unsurveyed:
        """Return what the last listing of an archive found; nothing before the first one."""
        return self._found.get(archive, Unsurveyed())

    def refresh(self, archives: Sequence[ArchiveState], patience: float = 0.0) -> None:
        """Begin to list the archives again, where the last listing is old.

        :param patience: seconds to wait for it.
        """
        with self._lock:
            if self._listing is None and archives and time.monotonic() - self._listed > AGAIN:
                self._listing = threading.Event()
                arguments = tuple(archives), self._listing
                threading.Thread(target=carried(self._list), args=arguments, name="cdc-page archive", daemon=True).start()
            listing = self._listing
        if listing is not None:
            listing.wait(patience)

    def _list(self, archives: Sequence[ArchiveState], done: threading.Event) -> None:
        try:
            for state in archives:
                self._list_one(state)
        finally:
            with self._lock:
                self._listed, self._listing = time.monotonic(), None
            done.set()

    def _list_one(self, state: ArchiveState) -> None:
        archive = state.archive
        try:
            fs, root = self._reach(archive)
            ledger = state.ledger(write=False)
            self._found[archive], self._looked[archive] = list_unsurveyed(fs, root, state, ledger, self._looked.get(archive))
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises, the page shows it.
            self._found[archive] = replace(self.of(archive), failure=first_line(error))
            log.warning("Archive %s cannot be listed: %s", archive, error)
