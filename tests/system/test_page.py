"""The page in a real API server and a real browser: who may see it, what it shows, and that it asks nobody else. Pictures for the docs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from airflow_cdc.model.state.lease import this_process
from tests.support.many_flows import Shop, write_many
from tests.support.page_lakes import CUSTOMERS, LINES, ORDERS, STOCK, TICKETS, write_shop
from tests.system.browser import Watched, chromium
from tests.system.live_airflow import REPOSITORY, LiveAirflow

pytestmark = pytest.mark.system_deep

PASSWORDS = {"admin": "of-these-tests", "vera": "of-these-tests-too"}
PICTURES = REPOSITORY / "docs" / "pictures"
LAKE, MANY, CAPTURED = "cdc_lake_default", "cdc_lake_of_500", "cdc_lake_of_captures"
CAPTURES = REPOSITORY / "tests" / "golden" / "captures"
TABLES = {
    "sqlserver_synth/archive/schema": "mssql.testDB.dbo.customers",
    "oracle_synth/archive/schema": "orcl.APP.CUSTOMERS",
    "mongo_full_synth/archive/schema": "mg.shop.orders",
    "pg_pk/archive/plain": "pgpk.public.acct",
    "maria_types_precise/archive/schema": "mdb.shop.acct",
    "cdl2_pg_pk/archive/schema": "cdl.public.acct",
}
"""By archive of a real connector: one of its topics."""
ROUTES = ["", "page.js", "page.css", "api/lakes"] + [
    f"api/{name}?lake={LAKE}&flow={CUSTOMERS}" for name in ("flows", "flow", "microbatches", "table", "rows", "runs", "quarantine", "key")
]
PLACES = {
    "flows": f"#/{LAKE}",
    "flow": f"#/{LAKE}/{ORDERS}",
    "key": f"#/{LAKE}/{CUSTOMERS}/key?key=1",
    "quarantine": f"#/{LAKE}/{CUSTOMERS}/quarantine",
    "rows": f"#/{LAKE}/{CUSTOMERS}/rows",
    "table": f"#/{LAKE}/{CUSTOMERS}/table",
    "log": f"#/{LAKE}/{CUSTOMERS}/log",
    "runs": f"#/{LAKE}/{CUSTOMERS}/runs",
    "many": f"#/{MANY}",
}
RUN = """
import sys, json
from airflow.models import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow._shared.timezones import timezone
run_id, lake, flow, failing = sys.argv[1:]
with create_session() as session:
    task = session.query(TaskInstance).filter_by(dag_id="cdc_merge", run_id=run_id, task_id="merge").one()
    task.start_date = task.end_date = timezone.utcnow()
    task.state = "failed"
    error = {"type": "TableChangedError", "message": "The table was changed by others.", "next_step": "Undo it."}
    flows = {flow: {"status": "applied"}, failing: {"status": "failed", "error": error}}
    XComModel.set("return_value", {"lake": lake, "flows": flows}, dag_id="cdc_merge", task_id="merge", run_id=run_id, session=session)
"""


@dataclass(frozen=True)
class Live:
    """An Airflow over the lakes."""

    airflow: LiveAirflow
    shop: Shop

    @property
    def url(self) -> str:
        return self.airflow.url

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Return the status and the body of an answer."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with urlopen(Request(f"{self.url}{path}", headers=headers), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def token(self, user: str) -> str:
        """Return a token of a user."""
        body = json.dumps({"username": user, "password": PASSWORDS[user]}).encode()
        with urlopen(Request(f"{self.url}/auth/token", body, {"Content-Type": "application/json"}), timeout=30) as answer:
            return str(json.loads(answer.read())["access_token"])


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("page")
    for archive, table in TABLES.items():
        _apply(CAPTURES / archive, folder / "captured", table)
    # Behind that: a lease in the shop, by which a flow catches up, lapses within minutes.
    shop = write_shop(folder)
    write_many(folder / "many", flows=500, microbatches=30)
    airflow = LiveAirflow(
        folder / "home",
        REPOSITORY / "dags",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="False",
        AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS="admin:admin,vera:viewer",
        AIRFLOW_CONN_CDC_LAKE_DEFAULT=json.dumps({"conn_type": "cdc_lake", "host": str(shop.lake)}),
        AIRFLOW_CONN_CDC_ARCHIVE_DEFAULT=json.dumps({"conn_type": "cdc_archive", "host": str(shop.archive)}),
        AIRFLOW_CONN_CDC_LAKE_OF_500=json.dumps({"conn_type": "cdc_lake", "host": str(folder / "many")}),
        AIRFLOW_CONN_CDC_LAKE_OF_CAPTURES=json.dumps(
            {"conn_type": "cdc_lake", "host": str(folder / "captured"), "extra": {"page_reads": str(CAPTURES)}}
        ),
        PYTHONPATH=str(REPOSITORY),
    )
    (airflow.home / "simple_auth_manager_passwords.json.generated").write_text(json.dumps(PASSWORDS))
    if not any(each.name == "airflow_cdc" for each in entry_points(group="airflow.plugins")):
        # A checkout that was installed before the plugin was there.
        (airflow.home / "plugins").mkdir()
        (airflow.home / "plugins" / "cdc.py").write_text("from airflow_cdc.plugins.cdc_plugin import CdcPlugin  # noqa: F401\n")
    try:
        airflow.cli("db", "migrate")
        airflow.cli("dags", "reserialize", timeout=180)
        airflow.start_part("api-server")
        found = Live(airflow, shop)
        airflow.until(lambda: found.get("/api/v2/version")[0] == 200 or None, "the API server", seconds=120)
        _record_a_run(found)
        yield found
    finally:
        airflow.stop()


def _apply(archive: Path, lake: Path, table: str) -> None:
    command = [sys.executable, "-m", "airflow_cdc", "apply", "--archive", str(archive), "--lake", str(lake), "--table", table]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _record_a_run(live: Live) -> None:
    """Record a run of the merge as a scheduler would leave it: the page reads the database, and no scheduler is needed for that."""
    body = json.dumps({"logical_date": None, "conf": {}}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {live.token('admin')}"}
    with urlopen(Request(f"{live.url}/api/v2/dags/cdc_merge/dagRuns", body, headers), timeout=30) as answer:
        run_id = json.loads(answer.read())["dag_run_id"]
    command = [sys.executable, "-c", RUN, run_id, str(live.shop.lake), CUSTOMERS, LINES]
    done = subprocess.run(command, env=live.airflow.environment, cwd=live.airflow.home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("route", ROUTES)
def test_no_route_answers_without_a_login(live: Live, route: str) -> None:
    status, body = live.get(f"/cdc/{route}")
    assert status == 401
    assert CUSTOMERS not in body


@pytest.mark.parametrize("route", ["docs", "redoc", "openapi.json"])
def test_the_app_has_no_page_about_itself(live: Live, route: str) -> None:
    assert live.get(f"/cdc/{route}")[0] == 401
    assert live.get(f"/cdc/{route}", live.token("admin"))[0] == 404


def test_a_viewer_sees_the_flows_and_may_not_start_a_run(live: Live) -> None:
    token = live.token("vera")
    status, body = live.get(f"/cdc/api/flows?lake={LAKE}", token)
    assert status == 200
    assert {flow["flow"] for flow in json.loads(body)["flows"]} >= {CUSTOMERS, ORDERS}

    status, body = live.get(f"/cdc/api/runs?lake={LAKE}&flow={CUSTOMERS}", token)
    dags = {dag["dag_id"]: dag["may_trigger"] for dag in json.loads(body)["dags"]}
    assert dags["cdc_merge"] is False
    request = Request(f"{live.url}/api/v2/dags/cdc_merge/dagRuns", b'{"logical_date": null}', method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {token}")
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=30)
    assert refused.value.code == 403


def test_a_viewer_sees_no_record_and_an_administrator_does(live: Live) -> None:
    quarantine, key = (f"/cdc/api/{name}?lake={LAKE}&flow={CUSTOMERS}&key=1" for name in ("quarantine", "key"))
    status, body = live.get(quarantine, live.token("vera"))
    assert (status, [record.get("raw") for record in json.loads(body)["records"]]) == (200, [None])
    assert live.get(key, live.token("vera"))[0] == 403
    assert json.loads(live.get(quarantine, live.token("admin"))[1])["records"][0]["raw"]
    assert live.get(key, live.token("admin"))[0] == 200


def test_each_standing_is_shown_in_words(live: Live) -> None:
    _, body = live.get(f"/cdc/api/flows?lake={LAKE}", live.token("admin"))
    flows = {flow["flow"]: flow for flow in json.loads(body)["flows"]}
    assert {flow["standing"] for flow in flows.values()} == {"stopped", "waiting", "behind", "catching up", "needs a look", "up to date"}
    assert "cannot be read" in flows[STOCK]["reason"]
    assert (flows[LINES]["standing"], flows[LINES]["reason"].partition(":")[0]) == ("stopped", "TableChangedError")
    assert flows[TICKETS]["standing"] == "catching up"


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_each_place_is_shown_without_an_error_a_foreign_request_or_a_barrier(live: Live, browser: Any, look: str) -> None:
    size = {"width": 390, "height": 844} if look == "phone" else {}
    watched = Watched(browser, live.url, dark=look == "dark", **size)
    watched.log_in("admin", PASSWORDS["admin"])
    found: dict[str, Any] = {}
    for name, place in PLACES.items():
        frame = watched.open(place)
        if name == "many":
            frame.get_by_text("500 flows, ").wait_for(timeout=30_000)
        if name == "runs":
            frame.get_by_role("button", name="Merge now").wait_for(timeout=30_000)
        is_dark = watched.frame.evaluate("document.documentElement.classList.contains('dark')")
        assert is_dark is (look == "dark"), name
        found[name] = [*watched.violations(), *([f"{watched.overflow} px too wide"] if watched.overflow > 0 else [])]
        _picture(watched, live, name, look)
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert watched.errors == []
    assert watched.foreign == []
    watched.context.close()


def test_a_lake_of_every_connectors_events_is_shown_whole(live: Live, browser: Any) -> None:
    watched = Watched(browser, live.url)
    watched.log_in("admin", PASSWORDS["admin"])
    watched.open(f"#/{CAPTURED}").get_by_text(f"{len(TABLES)} flows").first.wait_for(timeout=30_000)
    for flow in TABLES.values():
        for tab in ("microbatches", "log", "table"):
            frame = watched.open(f"#/{CAPTURED}/{flow}/{tab}")
            frame.get_by_role("heading", name=flow).wait_for(timeout=30_000)
            assert watched.violations() == [], (flow, tab)
        answer = json.loads(live.get(f"/cdc/api/table?lake={CAPTURED}&flow={flow}", live.token("admin"))[1])
        assert answer["note"] == "", flow
        assert answer["table"]["rows"] > 0, flow
    assert watched.errors == []
    assert watched.foreign == []
    watched.context.close()


def _picture(watched: Watched, live: Live, name: str, look: str) -> None:
    if os.environ.get("CDC_PICTURES") and (name in ("flows", "flow", "key") or (look == "light" and name != "many")):
        PICTURES.mkdir(exist_ok=True)
        watched.page.wait_for_timeout(500)
        process = this_process()
        watched.rename({str(live.shop.lake.parent): "/data/shop", str(process): "process 4711 on worker-1"})
        watched.page.screenshot(path=PICTURES / f"page-{name}-{look}.png")


def test_the_address_leads_back_to_the_place_and_a_link_leads_to_the_dag(live: Live, browser: Any) -> None:
    watched = Watched(browser, live.url)
    watched.log_in("admin", PASSWORDS["admin"])
    frame = watched.open(PLACES["flows"])
    frame.get_by_role("link", name=CUSTOMERS).click()
    frame.get_by_role("tab", name="Runs and actions").click()
    frame.get_by_role("link", name="cdc_merge").first.wait_for()
    address = watched.page.evaluate("location.href")
    assert address.endswith(f"#/{LAKE}/{CUSTOMERS}/runs")

    watched.page.goto("about:blank")
    watched.page.goto(address)
    again = watched.page.frame_locator("iframe[title='CDC tables']")
    again.get_by_role("tab", name="Runs and actions", selected=True).wait_for()
    again.get_by_role("link", name="cdc_merge").first.click()
    watched.page.wait_for_url(f"**/dags/{quote('cdc_merge')}**")
    watched.context.close()


def test_a_run_is_started_with_the_users_own_permission(live: Live, browser: Any) -> None:
    watched = Watched(browser, live.url)
    watched.log_in("admin", PASSWORDS["admin"])
    frame = watched.open(PLACES["runs"])
    frame.get_by_role("button", name="Merge now").click()
    asked = frame.get_by_role("alertdialog", name="Merge now")
    assert LAKE in asked.inner_text()
    asked.get_by_role("button", name="Start").click()
    frame.get_by_text("Started ").wait_for()
    runs = json.loads(live.get("/api/v2/dags/cdc_merge/dagRuns?order_by=-run_after", live.token("admin"))[1])["dag_runs"]
    (started,) = [run for run in runs if run["conf"] == {"tables": [CUSTOMERS]}]
    assert started["triggering_user_name"] == "admin"
    watched.context.close()


def test_a_keyboard_alone_reaches_a_flow_and_its_tabs(live: Live, browser: Any) -> None:
    watched = Watched(browser, live.url)
    watched.log_in("admin", PASSWORDS["admin"])
    frame = watched.open(PLACES["flows"])
    frame.get_by_role("link", name=ORDERS).focus()
    watched.page.keyboard.press("Enter")
    frame.get_by_role("tab", name="Microbatches").focus()
    watched.page.keyboard.press("ArrowRight")
    frame.get_by_role("tab", name="One key", selected=True).wait_for()
    frame.get_by_role("textbox", name="Key").fill("1")
    watched.page.keyboard.press("Enter")
    # That flow's table is not there.
    frame.get_by_text("There is no table at ").wait_for()
    watched.context.close()
