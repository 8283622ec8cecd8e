"""The plugin: Airflow accepts it, only the API server makes its app, and nobody without permission gets an answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from airflow.models import Connection
from airflow.secrets import BaseSecretsBackend

from tests.support.page_lakes import CUSTOMERS, ORDERS, write_shop

pytestmark = pytest.mark.usefixtures("airflow_database")
REPOSITORY = Path(__file__).parents[3]
ELSEWHERE = """
import sys
from airflow_cdc.plugins.cdc_plugin import CdcPlugin
assert CdcPlugin.fastapi_apps == [], CdcPlugin.fastapi_apps
heavy = ("airflow_cdc.pipeline", "airflow_cdc.plugins.page", "pyspark", "duckdb", "deltalake")
ours = [name for name in sys.modules if name.startswith(heavy)]
assert ours == [], ours
"""
IN_SERVER = """
import sys
import airflow.api_fastapi.app
from airflow_cdc.plugins.cdc_plugin import CdcPlugin
(app,) = CdcPlugin.fastapi_apps
assert app["url_prefix"] == "/cdc"
assert CdcPlugin.fastapi_apps[0]["app"] is app["app"], "made once"
assert not [name for name in sys.modules if name.startswith(("pyspark", "delta."))]
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [ELSEWHERE, IN_SERVER], ids=["elsewhere", "in the API server"])
def test_the_app_is_made_in_the_api_server_alone_and_never_with_spark(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_airflows_interface_accepts_the_plugin() -> None:
    from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse

    from airflow_cdc.plugins.cdc_plugin import CdcPlugin

    (view,) = (ExternalViewResponse.model_validate(each) for each in CdcPlugin.external_views)
    assert (view.destination, view.href, view.url_route) == ("nav", "/cdc/", "cdc")


def test_the_packages_entry_point_is_the_plugin() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points."airflow.plugins"]\nairflow_cdc = "airflow_cdc.plugins.cdc_plugin:CdcPlugin"' in text


@pytest.fixture(scope="module")
def client(airflow_database: None) -> Any:
    """Airflow's API with the page mounted, as the API server makes it. Once for a module: it takes seconds."""
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from fastapi.testclient import TestClient

    from airflow_cdc.plugins.page_in_airflow import airflow_app

    with pytest.MonkeyPatch.context() as patch:
        # With it everybody is logged in.
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "False")
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "of these tests and of no use elsewhere, but long enough for the signature")
        purge_cached_app()
        app = create_app(apps="core")
        # Before the routes of Airflow's own pages, which take whatever is left.
        app.mount("/cdc", airflow_app())
        app.router.routes.insert(0, app.router.routes.pop())
        yield TestClient(app)
        purge_cached_app()


def viewer(role: str = "viewer") -> dict[str, str]:
    """Return the headers of a user, who may look and nothing else unless another role is given."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return {"Authorization": f"Bearer {get_auth_manager().generate_jwt(SimpleAuthManagerUser(username='vera', role=role))}"}


ANSWERS = ("lakes", "flows", "flow", "microbatches", "table", "rows", "runs", "quarantine", "key")
ROUTES = ["", "page.js", *(f"api/{name}?lake=l&flow=f&key=1" for name in ANSWERS)]


@pytest.mark.slow
def test_no_route_answers_without_a_login_or_without_the_permission(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    headers = viewer()
    assert {route: client.get(f"/cdc/{route}").status_code for route in ROUTES} == dict.fromkeys(ROUTES, 401)
    assert client.get("/cdc/", headers=headers).status_code == 200

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_view", lambda *_, **__: False)
    assert {route: client.get(f"/cdc/{route}", headers=headers).status_code for route in ROUTES} == dict.fromkeys(ROUTES, 403)


@pytest.mark.slow
def test_lakes_are_those_of_connections_in_the_environment(client: Any, scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CDC_LAKE_JSON", json.dumps({"conn_type": "cdc_lake", "host": str(scene.lake)}))
    monkeypatch.setenv("AIRFLOW_CONN_CDC_LAKE_URI", f"cdc-lake://{str(scene.lake).replace('/', '%2F')}")
    monkeypatch.setenv("AIRFLOW_CONN_CDC_LAKE_BAD", json.dumps({"conn_type": "cdc_lake"}))
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "http", "host": "x"}))
    found = {lake["id"]: lake for lake in client.get("/cdc/api/lakes", headers=viewer()).json()["lakes"]}
    assert {name for name in found if name.startswith(("cdc_lake_json", "cdc_lake_uri", "cdc_lake_bad", "other"))} == {
        "cdc_lake_json",
        "cdc_lake_uri",
        "cdc_lake_bad",
    }
    assert found["cdc_lake_json"]["uri"] == found["cdc_lake_uri"]["uri"] == str(scene.lake)
    assert "has no root URL" in found["cdc_lake_bad"]["error"]


def offered(client: Any, lake: str, flow: str) -> dict[str, Any]:
    """Return what a run of each offered Dag is given, of the Dags that these tests made."""
    from airflow_cdc.plugins import dag_runs, dag_tasks

    dag_tasks.DAGS._at = dag_runs.RUNS._at = float("-inf")
    answer = client.get("/cdc/api/runs", params={"lake": lake, "flow": flow}, headers=viewer())
    assert answer.status_code == 200, answer.text
    return {dag["dag_id"]: dag["conf"] for dag in answer.json()["dags"] if dag["dag_id"].startswith("of_tests_")}


def save_dags(scene: Any, **tasks: list[tuple[type[Any], dict[str, Any]]]) -> None:
    """Make Dags of these tasks, by what is behind ``of_tests_`` in their names."""
    from airflow.sdk import DAG

    for name, those in tasks.items():
        with DAG(f"of_tests_{name}", schedule=None, tags=["cdc"]) as dag:
            for number, (kind, arguments) in enumerate(those):
                mapped = arguments.pop("mapped", False)
                if mapped:
                    kind.partial(task_id=f"t{number}", **arguments).expand(tables=[["a"]])
                else:
                    kind(task_id=f"t{number}", **arguments)
        scene.save(dag)


@pytest.mark.slow
def test_only_dags_that_work_on_the_pages_lake_alone_are_offered(client: Any, scene: Any, tmp_path: Path) -> None:
    from airflow.providers.standard.operators.empty import EmptyOperator

    from airflow_cdc.operators.merge import CdcMergeOperator
    from airflow_cdc.operators.reprocess import CdcReprocessOperator

    class Own(CdcMergeOperator):
        """A user's own operator."""

    shop = write_shop(tmp_path / "shop")
    scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(shop.lake))
    scene.connect("same_lake", conn_type="cdc_lake", host=f"{shop.lake}/")
    scene.connect("other_lake", conn_type="cdc_lake", host=str(tmp_path / "other"))
    scene.connect("archive_of_tests", conn_type="cdc_archive", host=str(shop.archive))
    by_form = {"lake_conn_id": "{{ params.lake_conn_id }}", "archive_conn_id": "{{ params.archive_conn_id }}"}
    save_dags(
        scene,
        of_it=[(CdcMergeOperator, {"lake_conn_id": "lake_of_tests"}), (EmptyOperator, {})],
        of_its_root=[(CdcMergeOperator, {"lake_conn_id": "same_lake"})],
        of_an_own_class=[(Own, {"lake_conn_id": "lake_of_tests"})],
        mapped=[(CdcMergeOperator, {"lake_conn_id": "lake_of_tests", "mapped": True})],
        by_form=[(CdcReprocessOperator, dict(by_form))],
        of_another=[(CdcMergeOperator, {"lake_conn_id": "other_lake"})],
        of_the_default=[(CdcMergeOperator, {})],
        mapped_of_the_default=[(CdcMergeOperator, {"mapped": True})],
        of_both=[(CdcMergeOperator, {"lake_conn_id": lake}) for lake in ("lake_of_tests", "other_lake")],
        of_it_and_of_one_by_form=[(CdcMergeOperator, {"lake_conn_id": "other_lake"}), (CdcReprocessOperator, dict(by_form))],
        by_a_template=[(CdcMergeOperator, {"lake_conn_id": "{{ var.value.lake or params.lake_conn_id }}"})],
        without_a_lake=[(EmptyOperator, {})],
    )
    places = {"lake_conn_id": "lake_of_tests", "archive_conn_id": "archive_of_tests"}
    expected = {"of_it": {}, "of_its_root": {}, "of_an_own_class": {}, "mapped": {}, "by_form": places}
    assert offered(client, "lake_of_tests", ORDERS) == {f"of_tests_{name}": conf for name, conf in expected.items()}
    assert set(offered(client, "other_lake", ORDERS)) == {"of_tests_of_another"}, "no archive of that lake has the flow"


@pytest.mark.slow
def test_where_the_flows_archive_is_not_certain_no_archive_is_chosen(client: Any, scene: Any, tmp_path: Path) -> None:
    from airflow_cdc.operators.reprocess import CdcReprocessOperator

    shop = write_shop(tmp_path / "shop")
    scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(shop.lake))
    by_form = {"lake_conn_id": "{{ params.lake_conn_id }}", "archive_conn_id": "{{ params.archive_conn_id }}"}
    save_dags(scene, by_form=[(CdcReprocessOperator, dict(by_form))])
    assert "of_tests_by_form" not in offered(client, "lake_of_tests", ORDERS), "no connection leads to the archive"
    for name in ("first", "second"):
        scene.connect(f"{name}_archive", conn_type="cdc_archive", host=str(shop.archive))
    assert "of_tests_by_form" not in offered(client, "lake_of_tests", ORDERS), "two have its root, perhaps with another layout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "seeing"),
    [(None, {"op", "admin"}), ("admins", {"op", "admin"}), (" All", {"viewer", "user", "op", "admin"}), ("none", set())],
)
def test_values_are_shown_to_who_may_read_the_lakes_connection(
    client: Any, scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, seeing: set[str]
) -> None:
    scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(write_shop(tmp_path / "shop").lake))
    if setting is not None:
        monkeypatch.setenv("AIRFLOW__AIRFLOW_CDC__SHOW_VALUES", setting)
    asked = {"lake": "lake_of_tests", "flow": CUSTOMERS, "key": "1"}
    answers = {role: client.get("/cdc/api/key", params=asked, headers=viewer(role)) for role in ("viewer", "user", "op", "admin")}
    assert {role for role, answer in answers.items() if answer.status_code == 200} == seeing
    assert {answer.status_code for answer in answers.values()} <= {200, 403}
    records = {role: client.get("/cdc/api/quarantine", params=asked, headers=viewer(role)).json()["records"] for role in answers}
    assert {role for role, found in records.items() if any("raw" in record for record in found)} == seeing
    assert client.get("/cdc/api/flow", params=asked, headers=viewer()).status_code == 200


@pytest.mark.slow
def test_a_wrong_setting_shows_nothing_and_says_what_to_set(
    client: Any, scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(write_shop(tmp_path / "shop").lake))
    monkeypatch.setenv("AIRFLOW__AIRFLOW_CDC__SHOW_VALUES", "everyone")
    asked = {"lake": "lake_of_tests", "flow": CUSTOMERS, "key": "1"}
    answer = client.get("/cdc/api/key", params=asked, headers=viewer("admin"))
    assert (answer.status_code, answer.json()["next_step"]) == (422, "Set it to one of all, admins, none.")


class Vault(BaseSecretsBackend):
    """A secrets backend, which lists nothing."""

    def get_connection(self, conn_id: str, **_: Any) -> Connection | None:
        return {
            "lake_in_vault": Connection("lake_in_vault", conn_type="cdc_lake", host=os.environ.get("LAKE_IN_VAULT", "")),
            "http_in_vault": Connection("http_in_vault", conn_type="http", host="x"),
        }.get(conn_id)


@pytest.mark.slow
def test_a_lake_in_a_secrets_backend_can_be_asked_for_and_no_other_connection_can(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_IN_VAULT", str(write_shop(tmp_path / "shop").lake))
    monkeypatch.setattr("airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded", lambda: [Vault()])
    paths = ("flow", "flows", "runs", "quarantine")
    found = {path: client.get(f"/cdc/api/{path}", params={"lake": "lake_in_vault", "flow": ORDERS}, headers=viewer()) for path in paths}
    assert {path: answer.status_code for path, answer in found.items()} == dict.fromkeys(paths, 200)
    for path in paths:
        refused = [
            client.get(f"/cdc/api/{path}", params={"lake": lake, "flow": ORDERS}, headers=viewer()) for lake in ("http_in_vault", "nothing")
        ]
        assert [answer.status_code for answer in refused] == [422, 422], [answer.text for answer in refused]
        assert refused[0].text.replace("http_in_vault", "nothing") == refused[1].text


@pytest.mark.slow
def test_what_a_lakes_state_names_elsewhere_is_read_only_if_its_connection_says_so(client: Any, scene: Any, tmp_path: Path) -> None:
    shop, other = write_shop(tmp_path / "shop"), write_shop(tmp_path / "other")
    # As whoever writes the lake's folder can.
    state = shop.lake / "_cdc" / "flows" / CUSTOMERS
    for path in (state / "checkpoint.json", *state.glob("commits/*.json")):
        path.write_text(path.read_text().replace(f"{shop.lake}/{CUSTOMERS}", f"{other.lake}/{CUSTOMERS}"))
    asked = {"lake": "lake_of_tests", "flow": CUSTOMERS, "key": "1"}

    def ask(name: str) -> Any:
        return client.get(f"/cdc/api/{name}", params=asked, headers=viewer("admin"))

    scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(shop.lake))
    assert ask("table").json()["table"] is None
    assert "it is outside of the lake. If it may, add its folder to page_reads" in ask("table").json()["note"]
    assert ask("key").status_code == 422
    (archive,) = settled(ask)["archives"]
    assert "No connection of type cdc_archive has the root" in archive["failure"]

    for reads in (str(tmp_path), f"/nowhere, {other.lake}, {shop.archive}"):
        scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(shop.lake), extra={"page_reads": reads})
        assert ask("table").json()["table"]["rows"] == 2
        assert ask("key").status_code == 200
        (archive,) = settled(ask)["archives"]
        assert archive["failure"] == ""

    scene.connect("lake_of_tests", conn_type="cdc_lake", host=str(shop.lake), extra={"page_reads": "relative"})
    assert (ask("table").status_code, "page_reads is 'relative'" in ask("table").text) == (422, True)


def settled(ask: Any) -> Any:
    """Return the list of flows once the archives are listed."""
    for _ in range(50):
        found = ask("flows").json()
        if any(archive["at"] or archive["failure"] for archive in found["archives"]):
            return found
        time.sleep(0.2)
    raise AssertionError(found)


@pytest.mark.slow
def test_lakes_of_one_bucket_are_reached_each_by_its_connection_as_it_is_now(
    client: Any, scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem

    made: list[tuple[str, str]] = []

    def url_to_fs(uri: str, **options: Any) -> tuple[LocalFileSystem, str]:
        if uri.startswith("s3://"):
            made.append((uri, options["key"]))
            return LocalFileSystem(), uri.replace("s3://bucket", str(tmp_path))
        return LocalFileSystem(), uri

    for name in ("one", "two"):
        write_shop(tmp_path / name)
        scene.connect(f"keys_of_{name}", conn_type="aws", login=f"key of {name}", password="secret")
        scene.connect(f"bucket_{name}", conn_type="cdc_lake", host=f"s3://bucket/{name}/lake", extra={"storage_conn_id": f"keys_of_{name}"})
    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)

    def ask(name: str) -> set[str]:
        made.clear()
        answer = client.get("/cdc/api/flow", params={"lake": f"bucket_{name}", "flow": ORDERS}, headers=viewer())
        assert answer.status_code == 200, answer.text
        return {key for uri, key in made if uri.startswith(f"s3://bucket/{name}/")}

    assert [ask(name) for name in ("one", "two")] == [{"key of one"}, {"key of two"}]
    assert [ask(name) <= {f"key of {name}"} for name in ("one", "two", "one")] == [True] * 3
    scene.connect("keys_of_one", conn_type="aws", login="key of one, rotated", password="secret")
    assert ask("one") == {"key of one, rotated"}
