"""The page's app: its files and read-only JSON. It knows nothing of Airflow: who may ask, and which lakes there are, it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from threading import BoundedSemaphore
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from airflow_cdc.model.errors import CdcError, ConfigurationError
from airflow_cdc.pipeline.look.browse_quarantine import QuarantineSearch, browse_quarantine
from airflow_cdc.pipeline.look.browse_rows import RowSearch, browse_rows
from airflow_cdc.pipeline.look.key_story import Bounds, key_story
from airflow_cdc.pipeline.look.native_table import NeedsSparkError, open_table
from airflow_cdc.plugins.page import detail
from airflow_cdc.plugins.page.context import PageContext
from airflow_cdc.plugins.page.lake_view import FlowView, LakeView
from airflow_cdc.plugins.page.listing import SORTS, Wanted, list_flows, with_trouble
from airflow_cdc.plugins.page.plain import plain

UI = Path(__file__).parents[1] / "ui"
"""The built page. A package without it still answers JSON."""
_FILES = {"page.js": "application/javascript", "page.css": "text/css", "notices.txt": "text/plain"}
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    # The plots set styles on their elements. Airflow's own page frames this one.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'",
}
MOST_TEXT, MOST_MICROBATCHES, MOST_TABLE = 64 * 1024**2, 200, 1024**3
"""Of one key's story: estimated bytes of text to search, number of microbatches, size in bytes of a table. A request is answered in
seconds; `airflow-cdc key` searches more."""
_LONG = 2**63 - 1
_SEARCHES, _PATIENCE = 2, 1.0
"""Searches at the same time, and seconds to wait for a turn."""
_NOT_BUILT = "This package was built without the page. Next step: run `make ui` in the checkout, or install the wheel."

Lake = Annotated[str, Query(description="Connection id of a lake.", min_length=1)]
Flow = Annotated[str, Query(description="Name of a flow.", min_length=1)]
Page = Annotated[int, Query(ge=1, le=1_000_000)]


class BusyError(Exception):
    """Raised when others search already: each search takes a core of Airflow's API server."""

    message = "Others are searching in this server already."
    next_step = "Ask again in a moment."


class HiddenError(Exception):
    """Raised when somebody asks for values who may not see them."""

    message = "Values of this lake are hidden from you."
    next_step = "Ask for the right to read its connection, or see [airflow_cdc] show_values in Airflow's configuration."


def make_app(context: PageContext, dependencies: Sequence[Any]) -> FastAPI:
    """Return the app.

    :param dependencies: FastAPI dependencies of every route, which refuse who may not see the page. The app has no route without them: its
        own documentation is off, because that would be one.
    """
    app = FastAPI(title="airflow-cdc", dependencies=list(dependencies), docs_url=None, redoc_url=None, openapi_url=None)
    failures: dict[type[Exception], int] = {
        HiddenError: 403,
        BusyError: 503,
        NeedsSparkError: 409,
        ConfigurationError: 422,
        CdcError: 500,
        # What reaches a store is not installed, or the store does not answer.
        ImportError: 502,
        OSError: 502,
        Exception: 500,
    }
    for kind, status in failures.items():
        app.add_exception_handler(kind, partial(_failure, status=status))
    app.include_router(_files())
    answers = _Answers(context)
    for path, answer in answers.routes().items():
        app.add_api_route(f"/api/{path}", _headed(answer, context), methods=["GET"], response_class=JSONResponse)
    return app


def _headed(answer: Callable[..., Any], context: PageContext) -> Callable[..., Any]:
    """Return a route that gives an answer's values as JSON; its parameters stay those of the answer."""

    @wraps(answer)
    def route(**parameters: Any) -> JSONResponse:
        with context.access(parameters["lake"]) if "lake" in parameters else nullcontext():
            return JSONResponse(plain(answer(**parameters)), headers=_HEADERS)

    return route


def _failure(_request: Request, error: Exception, *, status: int) -> JSONResponse:
    if isinstance(error, NeedsSparkError):
        body = {"detail": f"Only Spark reads this: {error}.", "next_step": "Ask airflow-cdc on the command line."}
    elif isinstance(error, ImportError):
        body = {"detail": f"{error}.", "next_step": "Install what reaches this store where the page's server runs."}
    elif isinstance(error, CdcError | HiddenError | BusyError | OSError):
        body = {"detail": getattr(error, "message", str(error)), "next_step": getattr(error, "next_step", "")}
    else:
        # The text may hold anything, a key among it.
        body = {"detail": f"The page failed with {type(error).__name__}.", "next_step": "See the log of the page's server."}
    return JSONResponse(body, status, _HEADERS)


def _files() -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def index() -> Response:
        if not (UI / "index.html").is_file():
            return Response(_NOT_BUILT, 404, _HEADERS, media_type="text/plain")
        return FileResponse(UI / "index.html", headers=_HEADERS, media_type="text/html")

    @router.get("/{name}")
    def file(name: str) -> Response:
        # By name from a list: a path of the request reaches no other file.
        if name not in _FILES or not (UI / name).is_file():
            raise HTTPException(404, f"There is no {name}.")
        return FileResponse(UI / name, headers={**_HEADERS, "Cache-Control": "no-cache"}, media_type=_FILES[name])

    return router


@dataclass(frozen=True)
class _Answers:
    """The JSON routes. Each returns plain values; what it reads is bounded."""

    context: PageContext
    turns: BoundedSemaphore = field(default_factory=partial(BoundedSemaphore, _SEARCHES))

    @contextmanager
    def _search(self) -> Iterator[None]:
        """Take one of the turns to search; a request that waited long for it would keep a thread of Airflow's own.

        :raises BusyError: when there is none.
        """
        if not self.turns.acquire(timeout=_PATIENCE):
            raise BusyError
        try:
            yield
        finally:
            self.turns.release()

    def routes(self) -> dict[str, Callable[..., Any]]:
        """Return the routes by path below ``api/``."""
        return {
            "lakes": self.lakes,
            "flows": self.flows,
            "flow": self.flow,
            "microbatches": self.microbatches,
            "table": self.table,
            "rows": self.rows,
            "runs": self.runs,
            "quarantine": self.quarantine,
            "key": self.key,
        }

    def lakes(self) -> Any:
        """Return the lakes, each with its root or why it cannot be reached."""
        return {"lakes": self.context.lakes()}

    def flows(
        self,
        request: Request,
        lake: Lake,
        *,
        search: str = "",
        standing: str = "",
        connector: str = "",
        sort: Annotated[str, Query(pattern=f"^({'|'.join(SORTS)})$")] = "standing",
        descending: bool = False,
        page: Page = 1,
        size: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Any:
        """Return a page of a lake's flows."""
        wanted = Wanted(search, standing, connector, sort, descending, page, size)
        return list_flows(self._view(lake), wanted, partial(self.context.troubles, request, lake))

    def flow(self, request: Request, lake: Lake, flow: Flow) -> Any:
        """Return one flow."""
        view = self._view(lake)
        found = with_trouble(_flow(view, flow), self.context.troubles(request, lake, [flow]).get(flow))
        return detail.detail(found)

    def microbatches(
        self,
        lake: Lake,
        flow: Flow,
        before: Annotated[int | None, Query(ge=1, le=_LONG)] = None,
        limit: Annotated[int, Query(ge=1, le=detail.MOST_MICROBATCHES)] = 200,
    ) -> Any:
        """Return a flow's microbatches."""
        view = self._view(lake)
        return detail.microbatches(view, _flow(view, flow), before=before, limit=limit)

    def table(self, lake: Lake, flow: Flow) -> Any:
        """Return a flow's table."""
        return detail.table(_flow(self._view(lake), flow))

    def rows(
        self,
        request: Request,
        lake: Lake,
        flow: Flow,
        *,
        column: Annotated[str, Query(max_length=1000)] = "",
        text: Annotated[str, Query(max_length=200)] = "",
        newest: bool = False,
        page: Page = 1,
        size: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Any:
        """Return a page of a table's rows."""
        found = self._open(request, lake, flow)
        with self._search():
            table = open_table(found.table)
            if table is None:
                raise HTTPException(404, "There is no table yet.", _HEADERS)
            return vars(browse_rows(table, RowSearch(column, text, newest, size, (page - 1) * size)))

    def runs(self, request: Request, lake: Lake, flow: Flow) -> Any:
        """Return the Dag runs that wrote a flow's table, and the Dags that may be triggered for it."""
        return self.context.runs(request, lake, flow)

    def quarantine(
        self,
        request: Request,
        lake: Lake,
        flow: Flow,
        *,
        reason: str = "",
        text: Annotated[str, Query(max_length=200)] = "",
        page: Page = 1,
        size: Annotated[int, Query(ge=1, le=200)] = 25,
    ) -> Any:
        """Return a page of a flow's quarantine; of records whose values the user may not see, their place and reason."""
        view, shows_values = self._view(lake), self.context.shows_values(request, lake)
        with self._search():
            found = browse_quarantine(view.lake, flow, QuarantineSearch(reason, text, size, (page - 1) * size, shows_values))
        return {**vars(found), "shows_values": shows_values}

    def key(
        self,
        request: Request,
        lake: Lake,
        flow: Flow,
        key: Annotated[str, Query(min_length=1, max_length=2000)],
        through: Annotated[int | None, Query(ge=1, le=_LONG)] = None,
    ) -> Any:
        """Return the story of one key."""
        view = self._view(lake)
        self._open(request, lake, flow)
        bounds = Bounds(MOST_TEXT, MOST_MICROBATCHES, through, MOST_TABLE)
        with self._search():
            return key_story(view.lake, flow, key, bounds, view.reach).to_json()

    def _open(self, request: Request, lake: str, flow: str) -> FlowView:
        """Return a flow whose table's values the user may see.

        :raises HiddenError: when he may not.
        :raises ConfigurationError: for a table that the page does not open.
        """
        if not self.context.shows_values(request, lake):
            raise HiddenError
        found = _flow(self._view(lake), flow)
        if not found.is_open:
            raise detail.CLOSED
        return found

    def _view(self, lake: str) -> LakeView:
        return self.context.view(lake)


def _flow(view: LakeView, name: str) -> FlowView:
    try:
        return view.flow(name)
    except KeyError:
        raise HTTPException(404, f"The lake knows no flow {name}.", _HEADERS) from None
