"""The page without Airflow: over one lake, on one machine, for whoever has the address with its token."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from starlette.middleware.trustedhost import TrustedHostMiddleware

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.plugins.page.app import make_app
from airflow_cdc.plugins.page.context import Trouble
from airflow_cdc.plugins.page.lake_view import LakeView

LAKE = "lake"
"""The id of the one lake: there are no connections."""
HOSTS = ("127.0.0.1", "localhost")


def alone_app(lake: str, token: str, port: int) -> FastAPI:
    """Return the app: read-only, and refused without the token.

    :param lake: URI of the lake's root.
    :param token: what the first address has as ``?token=``; a cookie keeps it afterwards.
    :param port: of the server: cookies of one host are those of all its ports.
    """
    app = make_app(OneLake(lake), [Depends(_Login(token, f"airflow_cdc_{port}"))])
    # A page of another site whose name leads to this machine has another host.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    return app


class _Login:
    def __init__(self, token: str, cookie: str) -> None:
        self._token, self._cookie = token.encode(), cookie

    def __call__(self, request: Request) -> None:
        if self._fits(request.query_params.get("token")):
            # The address with the token stays in no history of the page's own.
            kept = f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"
            raise HTTPException(303, headers={"Location": "/", "Set-Cookie": kept, "Cache-Control": "no-store"})
        if not self._fits(request.cookies.get(self._cookie)):
            raise HTTPException(401, "Open the address that airflow-cdc page printed: it has a token.", {"Cache-Control": "no-store"})

    def _fits(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(), self._token)


class OneLake:
    """The page's surroundings where there is no Airflow."""

    def __init__(self, lake: str) -> None:
        self._view = LakeView(lake)

    def lakes(self) -> list[dict[str, Any]]:
        """Return the one lake."""
        return [{"id": LAKE, "uri": self._view.lake, "error": None}]

    def view(self, lake: str) -> LakeView:
        """Return the one lake.

        :raises ConfigurationError: for another id.
        """
        if lake != LAKE:
            raise ConfigurationError(f"There is no lake {lake}.", next_step="Open the page at the address that airflow-cdc page printed.")
        return self._view

    def access(self, lake: str) -> AbstractContextManager[None]:
        """Return a context that does nothing: the credentials are those of this process."""
        return nullcontext()

    def shows_values(self, request: Request, lake: str) -> bool:
        """Return True: whoever has the address was given it."""
        return True

    def troubles(self, request: Request, lake: str, flows: Iterable[str]) -> dict[str, Trouble]:
        """Return nothing: what runs failed with is known to Airflow alone."""
        return {}

    def runs(self, request: Request, lake: str, flow: str) -> dict[str, Any]:
        """Return nothing, and why."""
        return {"runs": [], "dags": [], "alone": True}
