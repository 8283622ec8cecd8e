"""What the page is given: its lakes, and what Airflow knows of runs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import Request

from airflow_cdc.plugins.page.lake_view import LakeView


@dataclass(frozen=True)
class Trouble:
    """Why no run goes on with a flow."""

    text: str
    stops_always: bool = False
    """Whether the flow stands still also where nothing is seen to wait: nobody looks."""


class PageContext(Protocol):
    """Airflow's side of the page."""

    def lakes(self) -> list[dict[str, Any]]:
        """Return the lakes: ``id``, ``uri``, and ``error`` where one cannot be reached."""

    def view(self, lake: str) -> LakeView:
        """Return a lake by its connection id, in its :meth:`access`.

        :raises ConfigurationError: when there is no such lake.
        """

    def access(self, lake: str) -> AbstractContextManager[None]:
        """Return a context in which a lake is reached with its own credentials, by its connection as it is now.

        :raises ConfigurationError: when there is no such lake.
        """

    def shows_values(self, request: Request, lake: str) -> bool:
        """Return whether the asking user may see what a lake's records hold, beside how its flows stand."""

    def troubles(self, request: Request, lake: str, flows: Iterable[str]) -> dict[str, Trouble]:
        """Return by flow why nothing goes on, as Airflow knows it."""

    def runs(self, request: Request, lake: str, flow: str) -> dict[str, Any]:
        """Return the Dag runs that wrote a flow's table, the newest first, and the Dags that may be triggered for it."""
