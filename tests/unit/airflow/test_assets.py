"""Every merged table is an asset: who gets which change, also where a try failed or died."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import Asset, AssetAlias

from airflow_cdc.assets import TableName, table_asset, table_of
from airflow_cdc.operators.announcements import installation

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}


@pytest.mark.parametrize("flow", [TOPIC, "a/b c", "é?x=1#2", "%41"])
def test_airflow_leaves_the_uri_alone_and_it_names_the_table_again(flow: str) -> None:
    asset = table_asset(flow, lake_conn_id="lake/a")
    assert asset.uri == asset.name
    assert asset.uri.isascii()
    assert Asset(asset.uri).uri == asset.uri
    assert table_of(asset.uri) == TableName("lake/a", flow)


@pytest.mark.parametrize("uri", ["x-cdc://archive/cdc_archive_default", "x-cdc://lake/orders", "x-cdc://lake/a/", "s3://lake/a/b", "lake"])
def test_other_assets_name_no_table(uri: str) -> None:
    assert table_of(uri) is None


def _merge(scene: Any, context: Any, *outlets: Any, run_id: str = "a", **arguments: Any) -> dict[str, Any]:
    """Run the merge and return what is announced, by asset and, of an alias, by the assets that it adds."""
    from airflow.sdk.execution_time.context import OutletEventAccessors

    context["ti"].run_id, context["outlet_events"] = run_id, OutletEventAccessors()
    operator = scene.merge(outlets=list(outlets), **arguments)
    operator.execute(context)
    announced: dict[str, Any] = {}
    for outlet in operator.outlets:
        accessor = context["outlet_events"][outlet]
        if isinstance(outlet, AssetAlias):
            announced |= {event.dest_asset_key.uri: event.extra for event in accessor.asset_alias_events}
        else:
            announced[outlet.uri] = accessor.extra
    assert json.loads(json.dumps(announced)) == announced
    return announced


def _announced(scene: Any, version: int = 0) -> dict[str, Any]:
    return {"flow": TOPIC, "table": f"{scene.lake}/{TOPIC}", "table_version": version}


def test_a_table_is_announced_when_it_changed_and_only_then(scene: Any, context: Any) -> None:
    orders, customers = table_asset(TOPIC), table_asset(OTHER_TOPIC)
    scene.land("0000000000")
    announced = _merge(scene, context, orders, customers)
    assert list(announced) == [orders.uri]
    extra = announced[orders.uri]
    assert {name: extra[name] for name in ("flow", "table", "table_version")} == _announced(scene)
    assert extra["applied_position"] == {"0": ["7", "1", "-1"]}
    assert (extra["events"]["merged"], extra["rows"]) == (1, {"inserted": 1, "updated": 0, "deleted": 0})
    assert _merge(scene, context, orders, customers, run_id="b") == {}
    scene.land("0000000001", topic=OTHER_TOPIC)
    assert list(_merge(scene, context, orders, customers, run_id="c")) == [customers.uri]


def test_an_alias_announces_the_assets_of_tables_that_no_dag_file_knew(scene: Any, context: Any) -> None:
    scene.connect("my_lake", conn_type="cdc_lake", host=str(scene.lake))
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    announced = _merge(scene, context, AssetAlias("cdc"), lake_conn_id="my_lake")
    assert {uri: extra["flow"] for uri, extra in announced.items()} == {
        table_asset(name, lake_conn_id="my_lake").uri: name for name in (TOPIC, OTHER_TOPIC)
    }


def test_what_a_try_that_failed_for_another_table_changed_is_announced_by_the_retry(scene: Any, context: Any) -> None:
    # Airflow records events of tasks that succeed; to the retry this table is up to date.
    orders = table_asset(TOPIC)
    ours = scene.spark_submit.read_text()
    broken = f'FlowOutcome("z", FlowStatus.FAILED, "l/z", (), {TERMINAL!r})'
    scene.submit_by(ours.replace("report = ApplyReport(", f"outcomes.append({broken})\nreport = ApplyReport("))
    scene.land("0000000000")
    with pytest.raises(AirflowFailException, match="Column total shrank"):
        _merge(scene, context, orders)
    scene.submit_by(ours)
    assert _merge(scene, context, orders) == {orders.uri: _announced(scene)}


def test_what_a_job_changed_whose_task_died_is_announced_by_the_next_run(scene: Any, context: Any) -> None:
    orders = table_asset(TOPIC)
    scene.land("0000000000")
    _merge(scene, context, orders)
    ours = scene.spark_submit.read_text()
    scene.land("0000000001")
    scene.submit_by(ours.replace("\nwrite_report(", "\nsys.exit(1)\nwrite_report("))
    with pytest.raises(AirflowException):
        _merge(scene, context, orders, run_id="b")
    scene.submit_by(ours)
    assert _merge(scene, context, orders, run_id="c") == {orders.uri: _announced(scene, version=1)}


def test_a_retry_announces_again_what_a_try_meant_to_announce(scene: Any, context: Any) -> None:
    # A worker that is lost after the file was written and before Airflow knew.
    orders = table_asset(TOPIC)
    scene.land("0000000000")
    _merge(scene, context, orders, run_id="a")
    assert _merge(scene, context, orders, run_id="a") == {orders.uri: _announced(scene)}
    assert _merge(scene, context, orders, run_id="b") == {}


def test_two_airflows_on_one_lake_with_equal_names_announce_each_change_both(
    scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = table_asset(TOPIC)

    def merge_in(url: str, run_id: str) -> dict[str, Any]:
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", url)
        return _merge(scene, context, orders, run_id=run_id)

    one, two = "https://one.example.com/", "https://two.example.com"
    scene.land("0000000000")
    assert list(merge_in(one, "a")) == [orders.uri]
    scene.land("0000000001")
    assert list(merge_in(two, "a")) == [orders.uri]
    # Each announces what the other merged, and once.
    assert merge_in(one, "b") == {orders.uri: _announced(scene, version=1)}
    assert merge_in("https://one.example.com", "c") == {}
    scene.land("0000000002")
    assert list(merge_in(one, "d")) == [orders.uri]
    assert merge_in(two, "b") == {orders.uri: _announced(scene, version=2)}
    assert merge_in(two, "c") == {}


def test_an_airflow_without_a_public_url_is_known_by_the_one_that_its_workers_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__API__BASE_URL", raising=False)
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "http://api:8080/execution/")
    assert installation() == "http://api:8080/execution"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    assert installation() == "https://airflow.example.com"


def test_what_an_earlier_version_announced_is_not_announced_again_after_the_upgrade(scene: Any, context: Any) -> None:
    orders, folder = table_asset(TOPIC), scene.lake / "_cdc" / "told"
    scene.land("0000000000")
    _merge(scene, context, orders)
    (file,) = folder.rglob("*.json")
    former = folder / file.name
    file.rename(former)

    # Its retry finds what it meant to announce before the upgrade.
    assert _merge(scene, context, orders) == {orders.uri: _announced(scene)}
    file.unlink()
    assert _merge(scene, context, orders, run_id="b") == {}
    # Read once: what an Airflow that was not upgraded writes there later is its own.
    former.write_text(former.read_text().replace(f'"{TOPIC}": 0', f'"{TOPIC}": 1'))
    scene.land("0000000001")
    _merge(scene, context, run_id="other")
    assert _merge(scene, context, orders, run_id="c") == {orders.uri: _announced(scene, version=1)}


def test_a_task_without_outlets_writes_down_nothing(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    _merge(scene, context)
    assert not (scene.lake / "_cdc" / "told").exists()


def test_a_table_of_another_lake_is_refused_before_anything_is_submitted(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"is a table of lake other, and the task merges into cdc_lake_default.*Next step"):
        _merge(scene, context, table_asset(TOPIC, lake_conn_id="other"))
    assert not (scene.folder / "seen.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["table", "alias"])
def test_airflow_records_the_events_of_changed_tables_alone(scene: Any, airflow_database: None, by: str) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.sdk import DAG
    from airflow.utils.session import create_session
    from sqlalchemy import select

    scene.land("0000000000")
    outlets = {"table": [table_asset(TOPIC), table_asset("server.db.quiet")], "alias": [AssetAlias("cdc_tables")]}
    with DAG(f"cdc_by_{by}", schedule=[table_asset("server.db.source")]) as dag:
        scene.merge(outlets=outlets[by])
    scene.save(dag)
    with create_session() as session:
        before = session.scalars(select(AssetEvent.id)).all()
    assert str(dag.test().state) == "success"
    with create_session() as session:
        events = session.scalars(select(AssetEvent).where(AssetEvent.id.not_in(before))).all()
        announced = [
            (event.asset.uri, event.extra["table_version"], sorted(alias.name for alias in event.source_aliases)) for event in events
        ]
    assert announced == [(table_asset(TOPIC).uri, 0, {"table": [], "alias": ["cdc_tables"]}[by])]
