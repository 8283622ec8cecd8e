"""The page's answers over a lake: listed, searched, sorted, paged; bounded; refused with a next step."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, HTTPException
from fastapi.testclient import TestClient

from airflow_cdc.model.errors import RejectReason
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.plugins.page.alone import LAKE, OneLake
from airflow_cdc.plugins.page.app import UI, make_app
from airflow_cdc.plugins.page.context import Trouble
from airflow_cdc.plugins.page.lake_view import LakeView
from airflow_cdc.plugins.page.plain import plain
from tests.support.many_flows import write_many
from tests.support.page_lakes import ACCOUNTS, CUSTOMERS, LINES, ORDERS, PAYMENTS, STOCK, TICKETS, write_shop
from tests.support.surveys import FS


class Context(OneLake):
    """The page's surroundings without Airflow, of which a test sets what Airflow knows."""

    def __init__(self, lake: Path) -> None:
        super().__init__(str(lake))
        self.failed: dict[str, Trouble] = {}
        self.shows = True

    def shows_values(self, request: Any, lake: str) -> bool:
        return self.shows

    def troubles(self, request: Any, lake: str, flows: Iterable[str]) -> dict[str, Trouble]:
        return self.failed


class Page:
    """A browser's side of the page."""

    def __init__(self, lake: Path) -> None:
        self.context = Context(lake)
        self.client = TestClient(make_app(self.context, []))
        self.context.view(LAKE).look(patience=60)

    def get(self, path: str, status: int = 200, **parameters: Any) -> Any:
        answer = self.client.get(f"/api/{path}", params={"lake": LAKE, **parameters})
        assert answer.status_code == status, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()

    def listed(self, **parameters: Any) -> list[str]:
        return [flow["flow"] for flow in self.get("flows", **parameters)["flows"]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return Page(write_shop(tmp_path_factory.mktemp("shop"), microbatches=12).lake)


def test_what_needs_somebody_comes_first(page: Page) -> None:
    assert page.listed() == [STOCK, PAYMENTS, ACCOUNTS, LINES, TICKETS, CUSTOMERS, ORDERS]


def test_flows_are_searched_filtered_sorted_and_paged(page: Page) -> None:
    assert page.listed(search="DBO.O") == [LINES, ORDERS]
    assert page.listed(standing="behind") == [ACCOUNTS, LINES]
    assert page.listed(connector="postgresql") == [ACCOUNTS]
    assert page.listed(sort="flow", descending=True)[:2] == [TICKETS, STOCK]
    assert page.listed(sort="flow", size=2, page=2) == [LINES, ORDERS]
    found = page.get("flows", sort="flow", size=2, search="shop")
    assert (found["matching"], found["total"], found["known"]) == (6, 7, 7)


@pytest.mark.parametrize("parameters", [{"sort": "__class__"}, {"page": 0}, {"size": 100_000}])
def test_another_parameter_is_refused(page: Page, parameters: dict[str, Any]) -> None:
    assert page.client.get("/api/flows", params={"lake": LAKE, **parameters}).status_code == 422


def test_a_flow_that_nobody_looks_at_is_stopped_though_nothing_is_seen_to_wait(page: Page) -> None:
    page.context.failed = {ORDERS: Trouble("Dag merge is due every 10 minutes, …", stops_always=True)}
    try:
        assert page.get("flow", flow=ORDERS)["standing"] == "stopped"
    finally:
        page.context.failed = {}


def test_a_row_has_its_last_microbatch_and_the_points_of_its_plot(page: Page) -> None:
    (flow,) = page.get("flows", search=ORDERS)["flows"]
    assert flow["last"]["number"] == flow["microbatches"] == 12
    assert len(flow["spark"]) == 12
    assert flow["spark"][-1] == [flow["last"]["events"]["read"], flow["last"]["lag"]]
    assert flow["lag_seconds"] == 0


def test_a_flow_whose_last_run_failed_is_stopped_while_something_waits(page: Page) -> None:
    page.context.failed = {LINES: Trouble("TableChangedError: …"), ORDERS: Trouble("TableChangedError: …"), STOCK: Trouble("another")}
    try:
        flows = {flow["flow"]: flow for flow in page.get("flows")["flows"]}
        assert (flows[LINES]["standing"], flows[LINES]["reason"]) == ("stopped", "TableChangedError: …")
        assert flows[ORDERS]["standing"] == "up to date"
        assert "cannot be read" in flows[STOCK]["reason"], "what the lake shows comes first"
        assert page.get("flow", flow=LINES)["standing"] == "stopped"
    finally:
        page.context.failed = {}


def test_a_flow_that_rejected_records_today_needs_a_look_although_nothing_waits(page: Page) -> None:
    assert page.listed(standing="needs a look") == [CUSTOMERS]
    flow = page.get("flow", flow=CUSTOMERS)
    assert flow["findings"] == [
        "Rejected records, now in the quarantine: 1 of 9 records (1 malformed_json)",
        "Columns that changed: column city added",
    ]
    page.context.failed = {CUSTOMERS: Trouble("Dag merge is due every 10 minutes, …", stops_always=True)}
    try:
        flow = page.get("flow", flow=CUSTOMERS)
        assert (flow["standing"], len(flow["findings"])) == ("stopped", 2)
    finally:
        page.context.failed = {}


def test_microbatches_are_bounded_and_ascending(page: Page) -> None:
    found = page.get("microbatches", flow=ORDERS, limit=3)
    assert [each["number"] for each in found["microbatches"]] == [10, 11, 12]
    assert found["total"] == 12
    assert [each["number"] for each in page.get("microbatches", flow=ORDERS, limit=2, before=10)["microbatches"]] == [8, 9]
    assert page.get("microbatches", flow=ORDERS)["rejects"] == {"value_does_not_fit_column": 2}
    assert [each["number"] for each in page.get("microbatches", flow=ORDERS)["microbatches"] if each["schema"]] == [7]
    assert page.client.get("/api/microbatches", params={"lake": LAKE, "flow": ORDERS, "limit": 1001}).status_code == 422


def test_a_flow_has_its_place_in_the_log_and_its_table(page: Page) -> None:
    found = page.get("flow", flow=CUSTOMERS)
    assert found["connector"] == "sqlserver"
    assert [each["lane"] for each in found["applied_through"]] == ["partition 0"]
    assert (found["epochs"], found["lives"], found["missing_offsets"]) == (1, [1], 0)
    table = page.get("table", flow=CUSTOMERS)
    assert (table["note"], table["table"]["rows"], table["table"]["columns"][0]["is_key"]) == ("", 2, True)
    assert page.get("table", flow=ORDERS)["note"] == "There is no table yet."


def test_a_key_and_a_quarantine_are_answered(page: Page) -> None:
    story = page.get("key", flow=CUSTOMERS, key="1")
    assert [event["outcome"] for event in story["events"]] == ["superseded", "merged", "stale", "merged", "redelivered"]
    assert [(row["values"]["name"], row["microbatch"]) for row in story["rows"]] == [("Ada Lovelace", 2)]
    assert (story["unread"], story["older"]) == ({}, 0)
    assert page.get("quarantine", flow=CUSTOMERS)["reasons"] == {"malformed_json": 1}
    assert page.get("quarantine", flow=CUSTOMERS, reason="missing_key")["records"] == []


def test_each_row_of_a_table_leads_to_its_story(page: Page) -> None:
    found = page.get("rows", flow=CUSTOMERS, newest=True)
    assert [(row["id"], row["name"], row["__cdc_microbatch"]) for row in found["rows"]] == [(3, "Curie", 3), (1, "Ada Lovelace", 2)]
    for row in found["rows"]:
        story = page.get("key", flow=CUSTOMERS, key=json.dumps({name: row[name] for name in found["keys"]}))
        assert [each["values"]["name"] for each in story["rows"]] == [row["name"]]
    assert [row["id"] for row in page.get("rows", flow=CUSTOMERS, text="curie", column="name")["rows"]] == [3]
    assert page.get("rows", 422, flow=CUSTOMERS, column="nothing")["detail"].endswith("has no column 'nothing'.")
    assert page.get("rows", 404, flow=ORDERS)["detail"] == "There is no table yet."


@pytest.fixture
def hidden(page: Page) -> Iterator[Page]:
    page.context.shows = False
    yield page
    page.context.shows = True


def test_who_may_not_see_values_sees_where_and_why_records_were_rejected(hidden: Page) -> None:
    found = hidden.get("quarantine", flow=CUSTOMERS)
    (record,) = found["records"]
    assert set(record) == {"microbatch", "topic", "reason", "file", "line", "partition", "offset"}
    assert (record["reason"], found["reasons"], found["shows_values"]) == ("malformed_json", {"malformed_json": 1}, False)


def test_who_may_not_see_values_cannot_find_them_by_searching(hidden: Page) -> None:
    file = hidden.get("quarantine", flow=CUSTOMERS)["records"][0]["file"]
    hidden.context.shows = True
    raw = hidden.get("quarantine", flow=CUSTOMERS)["records"][0]["raw"]
    assert hidden.get("quarantine", flow=CUSTOMERS, text=raw[:5])["matching"] == 1
    hidden.context.shows = False
    assert hidden.get("quarantine", flow=CUSTOMERS, text=raw[:5])["matching"] == 0
    assert hidden.get("quarantine", flow=CUSTOMERS, text=file[-8:])["matching"] == 1


def test_who_may_not_see_values_sees_no_row(hidden: Page) -> None:
    assert set(hidden.get("rows", 403, flow=CUSTOMERS)) == {"detail", "next_step"}


def test_who_may_not_see_values_has_no_story_of_a_key_known_or_not(hidden: Page) -> None:
    answers = [hidden.get("key", 403, flow=CUSTOMERS, key=key) for key in ("1", "no such key")]
    assert answers[0] == answers[1]
    assert "show_values" in answers[0]["next_step"]


def test_a_key_is_searched_within_bounds_and_from_there_on(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_cdc.plugins.page.app.MOST_MICROBATCHES", 1)
    newest = page.get("key", flow=CUSTOMERS, key="1")
    assert ([event["microbatches"] for event in newest["events"]], newest["older"]) == ([[3]], 2)
    older = page.get("key", flow=CUSTOMERS, key="1", through=newest["older"])
    assert ([event["microbatches"] for event in older["events"]], older["older"]) == ([[2], [2]], 1)


@pytest.mark.parametrize("path", ["flow", "table", "microbatches"])
def test_a_flow_that_the_lake_does_not_know_is_not_found(page: Page, path: str) -> None:
    assert page.client.get(f"/api/{path}", params={"lake": LAKE, "flow": "../../etc"}).status_code == 404


def test_what_is_wrong_is_answered_with_the_next_step(page: Page) -> None:
    answer = page.client.get("/api/flows", params={"lake": "nowhere"})
    assert (answer.status_code, answer.json()["next_step"]) == (422, "Open the page at the address that airflow-cdc page printed.")
    assert "does not fit: expected id=…" in page.get("key", 422, flow=CUSTOMERS, key='{"other": 1}')["detail"]


def test_a_key_with_a_column_too_many_is_refused_and_names_the_right_ones(page: Page) -> None:
    refused = page.get("key", 422, flow=CUSTOMERS, key='{"id": 1, "name": "Ada"}')
    assert refused["detail"].endswith("does not fit: expected id=…; not 'name'.")


@pytest.mark.parametrize(
    ("raised", "status", "detail"),
    [
        (ImportError("Install s3fs to access S3"), 502, "Install s3fs to access S3."),
        (PermissionError("no entry"), 502, "no entry"),
        (ValueError("a key: s3cr3t"), 500, "The page failed with ValueError."),
    ],
)
def test_what_fails_is_answered_in_words_and_without_what_the_text_may_hold(
    page: Page, monkeypatch: pytest.MonkeyPatch, raised: Exception, status: int, detail: str
) -> None:
    def fail(lake: str) -> LakeView:
        raise raised

    monkeypatch.setattr(page.context, "view", fail)
    client = TestClient(page.client.app, raise_server_exceptions=False)
    answer = client.get("/api/flow", params={"lake": LAKE, "flow": CUSTOMERS})
    assert (answer.status_code, answer.json()["detail"]) == (status, detail)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("flows", {"page": 10**23}),
        ("quarantine", {"flow": CUSTOMERS, "page": 10**23}),
        ("microbatches", {"flow": CUSTOMERS, "before": 10**23}),
        ("key", {"flow": CUSTOMERS, "key": "1", "through": 10**23}),
    ],
)
def test_a_number_that_no_list_has_is_refused(page: Page, path: str, parameters: dict[str, Any]) -> None:
    assert page.client.get(f"/api/{path}", params={"lake": LAKE, **parameters}).status_code == 422


def test_a_value_of_megabytes_is_cut_off_visibly() -> None:
    long = "x" * 8_000_000
    assert plain({"a": [long]}) == {"a": ["x" * 10_000 + "… (8,000,000 characters)"]}
    assert plain("x" * 10_000) == "x" * 10_000
    binary = plain(bytes(8_000_000))
    assert (len(binary) < 10_100, binary.endswith("… (8,000,000 bytes)")) == (True, True)


def test_more_searches_than_turns_are_told_to_come_back(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Barrier(3), threading.Event()

    def slow(*_: object) -> Any:
        begun.wait(10)
        go_on.wait(10)
        raise PermissionError("the end")

    monkeypatch.setattr("airflow_cdc.plugins.page.app.browse_quarantine", slow)
    monkeypatch.setattr("airflow_cdc.plugins.page.app._PATIENCE", 0.05)
    asked = {"lake": LAKE, "flow": CUSTOMERS}
    searches = [threading.Thread(target=page.client.get, args=("/api/quarantine",), kwargs={"params": asked}) for _ in range(2)]
    for each in searches:
        each.start()
    begun.wait(10)
    answer = page.client.get("/api/key", params={**asked, "key": "1"})
    go_on.set()
    for each in searches:
        each.join()
    assert (answer.status_code, answer.json()["next_step"]) == (503, "Ask again in a moment.")
    assert page.get("key", flow=CUSTOMERS, key="1")["events"], "turns are given back, also after a failure"


def test_what_an_archive_holds_that_is_no_flow_of_the_lake_is_listed(tmp_path: Path) -> None:
    shop = write_shop(tmp_path, microbatches=1)
    for name in ("new.topic+0+0000000000.json", f"{ORDERS}+0+0000099999.json", "anything.jsonl"):
        (shop.archive / name).write_text("{}")
    state = ArchiveState(FS, str(shop.lake), str(shop.archive))
    state.write_held_topics({"a/b": HeldTopic("a/b", RejectReason.UNKNOWN_TOPIC, files=1, records=7)})
    found = Page(shop.lake).get("flows")
    (archive,) = found["archives"]
    assert (archive["files"], archive["bytes"], archive["failure"]) == (2, 4, "")
    assert archive["held"] == [{"topic": "a/b", "reason": RejectReason.UNKNOWN_TOPIC.value, "detail": "", "records": 7}]
    (orders,) = [flow for flow in found["flows"] if flow["flow"] == ORDERS]
    assert (orders["standing"], orders["waiting"]["unsurveyed"]) == ("behind", 1)
    # The file whose name shows no flow may hold its events.
    (customers,) = [flow for flow in found["flows"] if flow["flow"] == CUSTOMERS]
    assert (customers["standing"], customers["reason"]) == (
        "unknown",
        "1 archived file waits for a run to look at it; names show no flow.",
    )


def test_an_archive_that_cannot_be_listed_is_named_and_nothing_is_up_to_date(tmp_path: Path) -> None:
    shop = write_shop(tmp_path, microbatches=1)
    shop.archive.rename(tmp_path / "elsewhere")
    found = Page(shop.lake).get("flows")
    assert "There is no archive" in found["archives"][0]["failure"]
    assert "up to date" not in found["standings"]
    assert found["standings"]["unknown"] == 2


def test_the_page_is_served_by_name_and_nothing_else_is(page: Page) -> None:
    index = page.client.get("/")
    assert index.status_code == 200
    assert "frame-ancestors 'self'" in index.headers["content-security-policy"]
    assert page.client.get("/page.js").headers["content-type"].startswith("application/javascript")
    for path in ("/index.html", "/..%2fcdc_plugin.py", "/%2e%2e/cdc_plugin.py", "/docs", "/openapi.json"):
        assert page.client.get(path).status_code == 404


def test_the_page_names_no_other_origin() -> None:
    names = {"http://www.w3.org/", "https://react.dev/"}
    for file in ("index.html", "page.css"):
        assert "//" not in (UI / file).read_text(encoding="utf-8").replace("<!doctype html>", ""), file
    script = (UI / "page.js").read_text(encoding="utf-8")
    found = {part.split('"')[0].split("`")[0] for part in script.split("://")[1:]}
    assert all(any(f"://{each}".startswith(name.removeprefix("http").removeprefix("s")) for name in names) for each in found), found


def test_every_route_has_the_dependencies(tmp_path: Path) -> None:
    def refuse() -> None:
        raise HTTPException(403, "no")

    app = make_app(Context(write_shop(tmp_path, microbatches=1).lake), [Depends(refuse)])
    client = TestClient(app)
    paths = [route.path for route in app.routes]  # type: ignore[attr-defined]
    assert len(paths) >= 10
    for path in paths:
        assert client.get(path.replace("{name}", "page.js"), params={"lake": LAKE, "flow": CUSTOMERS, "key": "1"}).status_code == 403, path
    assert {method for route in app.routes for method in getattr(route, "methods", ())} == {"GET"}


@pytest.mark.slow
def test_a_first_look_at_many_flows_is_answered_before_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(tmp_path / "lake", flows=60, microbatches=1)
    view, go_on = LakeView(str(tmp_path / "lake")), threading.Event()
    known = view._try
    looked: list[str] = []

    def slow(name: str, archives: Any, before: Any) -> Any:
        looked.append(name)
        assert len(looked) <= 55 or go_on.wait(60)
        return known(name, archives, before)

    monkeypatch.setattr(view, "_try", slow)
    first = view.look(patience=5)
    assert (first.at, first.total) == (0, 60)
    assert len(first.flows) < 60
    go_on.set()
    assert len(view.look(patience=60).flows) == 60


def test_a_new_microbatch_is_seen_and_one_that_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = write_shop(tmp_path, microbatches=2)
    view = LakeView(str(shop.lake))
    view.look(patience=60)
    commits = shop.lake / "_cdc" / "flows" / ORDERS / "commits"
    for path in commits.iterdir():
        path.write_text("{}")
    assert [done.report is not None for done in view.microbatches(ORDERS, [2])] == [True], "kept"
    assert view.flow(ORDERS).checkpoint.number == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2**53, str(2**53)),
        (-5, -5),
        (Decimal("1.10"), "1.10"),
        (datetime(2026, 1, 2, tzinfo=timezone.utc), "2026-01-02T00:00:00+00:00"),
        (b"\x00\x01", "AAE="),
        (float("nan"), "nan"),
        ({"a": (1, None, True)}, {"a": [1, None, True]}),
    ],
)
def test_values_reach_a_browser_without_loss(value: Any, expected: Any) -> None:
    assert json.loads(json.dumps(plain(value))) == expected
