"""Where a task's links lead: as Airflow records them of a run, and as its own API hands them out."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_cdc.links.page import flow_page, flows_page, quarantine_page
from airflow_cdc.links.tasks import FlowLink, QuarantineLink, SparkLink
from airflow_cdc.operators.maintain import CdcMaintainOperator
from airflow_cdc.plugins.cdc_plugin import ROUTE
from airflow_cdc.sensors.lag import CdcLagSensor
from tests.support.spark_provider import follows_jobs
from tests.unit.airflow.resource_manager import JOB

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
FLOWS, QUARANTINE, SPARK = (f"_link_{kind.__name__}" for kind in (FlowLink, QuarantineLink, SparkLink))


def link(kind: type, operator: Any) -> str:
    found: str = kind().get_link(operator, ti_key=None)
    return found


@pytest.mark.parametrize(("base_url", "prefix"), [(None, ""), ("http://airflow:8080", ""), ("https://host/team/airflow/", "/team/airflow")])
def test_addresses_stand_below_airflows_own(base_url: str | None, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if base_url:
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    assert flow_page("cdc_lake_default", TOPIC) == f"{prefix}/plugin/{ROUTE}#/cdc_lake_default/{TOPIC}"
    assert flows_page("a/b") == f"{prefix}/plugin/{ROUTE}#/a%2Fb"
    assert quarantine_page("a", "x#y") == f"{prefix}/plugin/{ROUTE}#/a/x%23y/quarantine"


@pytest.mark.parametrize(
    ("tables", "flows", "quarantine"),
    [
        (TOPIC, f"/plugin/cdc#/lake_a/{TOPIC}", f"/plugin/cdc#/lake_a/{TOPIC}/quarantine"),
        ("server.*", "/plugin/cdc#/lake_a", "/plugin/cdc#/lake_a"),
        (["!x"], "/plugin/cdc#/lake_a", "/plugin/cdc#/lake_a"),
        ([TOPIC, OTHER_TOPIC], "/plugin/cdc#/lake_a", "/plugin/cdc#/lake_a"),
        (None, "/plugin/cdc#/lake_a", "/plugin/cdc#/lake_a"),
    ],
)
def test_a_task_of_one_flow_leads_to_it_and_of_several_to_their_list(scene: Any, tables: Any, flows: str, quarantine: str) -> None:
    operator = scene.merge(tables=tables, lake_conn_id="lake_a")
    assert (link(FlowLink, operator), link(QuarantineLink, operator)) == (flows, quarantine)
    maintain = CdcMaintainOperator(task_id="maintain", tables=tables, lake_conn_id="lake_a")
    sensor = CdcLagSensor(task_id="lag", tables=tables, lake_conn_id="lake_a")
    assert [link(FlowLink, each) for each in (maintain, sensor)] == [flows, flows]


def test_a_run_records_its_links_and_names_the_one_flow_that_its_report_has(scene: Any, airflow_database: None) -> None:
    from airflow.models.xcom import XComModel
    from airflow.sdk import DAG
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with DAG("cdc_linked", schedule=None) as dag:
        scene.merge()
    scene.save(dag)
    scene.land("0000000000")
    run = dag.test()
    assert run.state == "success"
    with create_session() as session:
        rows = session.execute(
            select(XComModel.key, XComModel.value).where(XComModel.dag_id == "cdc_linked", XComModel.run_id == run.run_id)
        )
        recorded = {key: value for key, value in rows if key.startswith("_link_")}
    if recorded[FLOWS].strip('"').endswith("cdc_lake_default"):
        pytest.skip("dag.test of Airflow 3.1 records no links at a task's end")
    assert recorded[FLOWS].strip('"') == f"/plugin/cdc#/cdc_lake_default/{TOPIC}"
    assert recorded[QUARANTINE].strip('"') == f"/plugin/cdc#/cdc_lake_default/{TOPIC}/quarantine"


def test_the_links_are_known_before_the_job_ends_and_one_that_cannot_be_made_fails_nothing(scene: Any, context: Any) -> None:
    operator = scene.merge(tables=TOPIC)
    operator.pre_execute(context)
    assert context["ti"].pushed == {
        FLOWS: f"/plugin/cdc#/cdc_lake_default/{TOPIC}",
        QUARANTINE: f"/plugin/cdc#/cdc_lake_default/{TOPIC}/quarantine",
    }
    operator.lake_conn_id = None
    operator.pre_execute(context)


def test_serialized_tasks_keep_their_links(scene: Any) -> None:
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    with DAG("cdc_linked", schedule=None) as dag:
        scene.merge()
        CdcLagSensor(task_id="lag", max_files=0)
    tasks = [task["__var"] for task in LazyDeserializedDAG.from_dag(dag).data["dag"]["tasks"]]
    links = {task["task_id"]: task["_operator_extra_links"] for task in tasks}
    assert links == {"merge": {"Flows": FLOWS, "Quarantine": QUARANTINE, "Spark": SPARK}, "lag": {"Flows": FLOWS}}


# Spark.


@follows_jobs
def test_an_application_on_yarn_is_found_at_the_resource_manager(yarn: Any, context: Any, manager: Any) -> None:
    operator = yarn.merge(deferrable=True, deploy_mode="cluster")
    with pytest.raises(TaskDeferred):
        operator.execute(context)
    assert link(SparkLink, operator) == f"{manager.url}/cluster/app/{JOB[:-1]}1"


@follows_jobs
def test_an_application_is_found_at_the_history_server_where_one_is_set(
    yarn: Any, context: Any, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__AIRFLOW_CDC__SPARK_HISTORY_URL", "https://history.example.com/")
    operator = yarn.merge(deferrable=True, deploy_mode="cluster")
    assert link(SparkLink, operator) == "https://history.example.com/"
    with pytest.raises(TaskDeferred):
        operator.execute(context)
    assert link(SparkLink, operator) == f"https://history.example.com/history/{JOB[:-1]}1/"


def test_a_job_on_this_machine_has_no_address(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    operator = scene.merge()
    operator.execute(context)
    assert link(SparkLink, operator) == ""
