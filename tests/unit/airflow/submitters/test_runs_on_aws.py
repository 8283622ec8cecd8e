"""Whole runs of the Dags of EMR and EMR Serverless: Airflow, the provider and Amazon's client are real, and a script stands for Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.airflow.dag_bag import dag_bag
from tests.unit.airflow.submitters.aws_server import AwsServer

DAGS = Path(__file__).parents[4] / "dags" / "submitters"
BOTH = ["cdc_emr_serverless", "cdc_emr"]
TOPIC = "server.db.orders"
SUCCESS = {"state": "success", "wait_for_files": "success", "merge": "success", "report": "success"}


@pytest.fixture
def aws(scene: Any) -> Iterator[AwsServer]:
    server = AwsServer(scene.spark_submit)
    keys = {"login": "AKIAOFAIRFLOW", "password": "secretofairflow"}
    scene.connect("aws_default", conn_type="aws", **keys, extra={"endpoint_url": server.url, "region_name": "eu-west-1"})
    yield server
    server.close()


@pytest.fixture
def run_dag(scene: Any, aws: AwsServer, airflow_database: None) -> Any:
    """Run a Dag through Airflow and return how its tasks ended; a failed task is not tried again."""

    def run(name: str) -> dict[str, Any]:
        dag = dag_bag(DAGS / f"{name}.py").dags[name]
        for task in dag.tasks:
            task.retries = 0
        scene.save(dag)
        ended = dag.test()
        return {"state": str(ended.state), **{ti.task_id: str(ti.state) for ti in ended.get_task_instances()}}

    return run


def reports(scene: Any) -> list[Path]:
    return list(scene.lake.joinpath("_cdc", "reports").glob("*"))


def announced() -> list[str]:
    """Return the tables that were announced, by the URIs of their assets."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return [event.asset.uri for event in session.scalars(select(AssetEvent))]


@pytest.mark.parametrize("name", BOTH)
def test_a_run_applies_what_waits_and_the_next_is_skipped(scene: Any, aws: AwsServer, run_dag: Any, name: str) -> None:
    topic = f"{TOPIC}_{name}"
    scene.land("0000000000", topic=topic)
    assert run_dag(name) == SUCCESS
    assert scene.lake.joinpath("_cdc", "flows", topic, "commits").is_dir()
    assert reports(scene) == []
    assert announced().count(f"x-cdc://lake/cdc_lake_default/{topic}") == 1
    skipped = dict.fromkeys(("wait_for_files", "merge", "report"), "skipped")
    assert run_dag(name) == {"state": "success", **skipped}
    assert len(aws.requests) == 1


@pytest.mark.parametrize("name", BOTH)
def test_a_job_that_fails_after_it_wrote_its_report_ends_the_run_by_its_own_causes(
    scene: Any, aws: AwsServer, run_dag: Any, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    scene.land("0000000000")
    error = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
    flow = {"flow": TOPIC, "status": "failed", "table": "l/t", "batches": [], "error": error}
    document = {"ok": False, "archive": "a", "lake": "l", "flows": [flow], "control_topics": [], "ignored_files": [], "error": None}
    scene.lake.joinpath("_cdc", "reports").mkdir(parents=True)
    scene.submit_leaves(document, exit_code=1)
    assert run_dag(name) == {"state": "failed", "wait_for_files": "success", "merge": "failed", "report": "failed"}
    assert f"{TOPIC}: SchemaChangeError: Column total shrank. Next step: Widen it." in capsys.readouterr().out
    assert reports(scene) == []


@pytest.mark.parametrize("name", BOTH)
def test_a_job_that_left_no_report_fails_the_run(scene: Any, run_dag: Any, capsys: pytest.CaptureFixture[str], name: str) -> None:
    scene.land("0000000000")
    scene.submit_by(f"#!{sys.executable}\nimport sys\nsys.exit(0)\n")
    assert run_dag(name) == {**SUCCESS, "state": "failed", "report": "failed"}
    assert "No report of a job of the task merge in lake" in capsys.readouterr().out


def test_a_job_that_did_its_work_counts_although_the_task_that_submitted_it_failed(scene: Any, aws: AwsServer, run_dag: Any) -> None:
    scene.land("0000000000")
    aws.answers_submissions = False
    assert run_dag("cdc_emr_serverless") == {**SUCCESS, "merge": "failed"}


@pytest.mark.parametrize("name", BOTH)
def test_no_key_of_airflow_reaches_a_job(scene: Any, aws: AwsServer, run_dag: Any, name: str) -> None:
    scene.land("0000000000")
    assert run_dag(name) == SUCCESS
    assert [request for request in aws.requests if "OFAIRFLOW" in str(request).upper()] == []
    assert len(aws.requests) == 1
