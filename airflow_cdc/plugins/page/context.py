"""What the page is given: its lakes, how archives are reached, and what Airflow knows of runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from fastapi import Request

from airflow_cdc.model.files import FileSystem
from airflow_cdc.plugins.page.lake_view import LakeView


class PageContext(Protocol):
    """Airflow's side of the page."""

    def lakes(self) -> list[dict[str, Any]]:
        """Return the lakes: ``id``, ``uri``, and ``error`` where one cannot be reached."""

    def view(self, lake: str) -> LakeView:
        """Return a lake by its connection id.

        :raises ConfigurationError: when there is no such lake.
        """

    def shows_values(self, request: Request, lake: str) -> bool:
        """Return whether the asking user may see what a lake's records hold, beside how its flows stand."""

    def reach(self, archive: str) -> tuple[FileSystem, str]:
        """Return an archive's file system, and the archive's root in it."""

    def errors(self, request: Request, lake: str, flows: Iterable[str]) -> dict[str, str]:
        """Return by flow what its last run failed with, of the runs that the asking user may see."""

    def runs(self, request: Request, lake: str, flow: str) -> dict[str, Any]:
        """Return the Dag runs that wrote a flow's table, the newest first, and the Dags that may be triggered for it."""
