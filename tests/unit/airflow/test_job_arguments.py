"""What every operator hands its job, and what it refuses to submit because the driver would not find it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.jobs.job_parser import job_parser
from airflow_cdc.model.job_argument import ENCODED, read_argument
from airflow_cdc.operators.maintain import CdcMaintainOperator
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.operators.rebuild import CdcRebuildOperator
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.operators.reprocess import CdcReprocessOperator
from airflow_cdc.operators.retype import CdcRetypeOperator
from airflow_cdc.operators.survey import CdcSurveyOperator
from airflow_cdc.operators.verify import CdcVerifyOperator

FLOWS = json.dumps({"flows": [{"topic": "a.b", "columns": {"x": {"type": "int"}}}]})
MARKED = "/lake/{{x}}/it's `id` \\ $HOME"
OPERATORS = [
    (CdcMergeOperator, {"flows_file": FLOWS, "tables": ["{{a}}", "b"]}),
    (CdcSurveyOperator, {"flows_file": FLOWS}),
    (CdcRebuildOperator, {"flows_file": FLOWS, "into_lake_conn_id": "marked"}),
    (CdcReprocessOperator, {"flows_file": FLOWS}),
    (CdcReplayOperator, {"flows_file": FLOWS}),
    (CdcRetypeOperator, {"flows_file": FLOWS}),
    (CdcMaintainOperator, {"flows_file": FLOWS}),
    (CdcVerifyOperator, {"other_lake_conn_id": "marked"}),
]


@pytest.fixture
def scene_of_marks(scene: Any) -> Iterator[Any]:
    """A scene whose stores are declared in nested JSON, on YARN in cluster mode."""
    scene.land("0000000000")
    client = {"endpoint_url": "http://minio:9000", "region_name": "eu-west-3"}
    scene.connect("store", conn_type="aws", extra=client)
    scene.connect("marked", conn_type="cdc_lake", host=MARKED)
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    scene.submit_by(scene.spark_submit.read_text().replace("parser = argparse", "sys.exit(3)\nparser = argparse"))
    return scene


@pytest.mark.parametrize(("kind", "arguments"), OPERATORS, ids=lambda value: getattr(value, "__name__", ""))
def test_no_argument_of_any_operator_is_changed_on_its_way(
    scene_of_marks: Any, context: Any, kind: type[Any], arguments: dict[str, Any]
) -> None:
    operator = kind(task_id="t", spark_binary=str(scene_of_marks.spark_submit), durable=False, **arguments)
    with pytest.raises(AirflowException, match="Error code is: 3"):
        operator.execute(context)
    application = next(number for number, text in enumerate(scene_of_marks.arguments) if text.endswith(f"jobs/{kind.job}"))
    given = scene_of_marks.arguments[application + 1 :]
    assert any(text.startswith(ENCODED) for text in given)
    assert not [text for text in given if any(mark in text for mark in "{}`$\\'\"<>\n")]
    read = [read_argument(text) for text in given]
    if "flows_file" in arguments:
        assert json.loads(read[read.index("--flows") + 1]) == json.loads(FLOWS)
    if any("marked" in str(value) for value in arguments.values()):
        assert MARKED in read


def test_the_stores_settings_arrive_whole(scene_of_marks: Any, context: Any) -> None:
    scene_of_marks.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://b/topics", extra={"storage_conn_id": "store"})
    with pytest.raises(AirflowException, match="Error code is: 3"):
        scene_of_marks.merge(durable=False).execute(context)
    given = job_parser("apply").parse_known_args(scene_of_marks.arguments[scene_of_marks.arguments.index("--lake") :])[0]
    # YARN left "region_name" only.
    options = json.loads(given.storage)["file_systems"]["s3://b"]
    assert (options["endpoint_url"], options["client_kwargs"]) == ("http://minio:9000", {"region_name": "eu-west-3"})


def test_every_job_is_named_after_its_task_so_that_another_one_that_waits_names_it(scene_of_marks: Any, context: Any) -> None:
    context["ti"].run_id, context["ti"].map_index = "scheduled__2026-11-24T00:00:00+00:00", 3
    with pytest.raises(AirflowException, match="Error code is: 3"):
        scene_of_marks.merge(durable=False).execute(context)
    given = job_parser("apply").parse_known_args(scene_of_marks.arguments[scene_of_marks.arguments.index("--lake") :])[0]
    assert given.run_name == "cdc.merge[3], scheduled__2026-11-24T00:00:00+00:00, try 1"


def test_what_a_person_types_is_taken_as_it_is() -> None:
    typed = '{"spark": {}, "file_systems": {"s3://b": {"client_kwargs": {}}}}'
    given = job_parser("apply").parse_args(["--lake", "l", "--report", "r", "--storage", typed])
    assert given.storage == typed
    with pytest.raises(SystemExit):
        job_parser("apply").parse_args(["--lake", f"{ENCODED}?", "--report", "r"])


def test_an_application_that_yarn_would_rename_is_refused(scene: Any, context: Any) -> None:
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=r"'/jobs/\{\{x\}\}.py' holds '\{\{'.*Next step: Give the file another path"):
        scene.merge(application="/jobs/{{x}}.py", durable=False).execute(context)


# Kubernetes.


@pytest.fixture
def pods(scene: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scene whose Spark connection leads to Kubernetes, in cluster mode; its provider is not installed here."""
    monkeypatch.setattr(spark_submit, "kube_client", SimpleNamespace(), raising=False)
    scene.connect("spark_default", conn_type="spark", host="k8s://https://k:6443", extra={"deploy-mode": "cluster", "namespace": "n"})
    return scene


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "application /"),
        ({"application": "local:///app/apply.py", "conf": {"spark.jars": "/opt/delta-spark.jar"}}, "spark.jars /opt/delta-spark.jar"),
        (
            {"application": "local:///app/apply.py", "packages": "io.delta:delta-spark_x", "py_files": "file:///a.zip"},
            "py_files file:///a.zip",
        ),
    ],
)
def test_files_of_the_worker_are_not_submitted_to_a_pod(pods: Any, context: Any, given: dict[str, Any], named: str) -> None:
    with pytest.raises(AirflowFailException, match=rf"not there: {named}.*spark.kubernetes.file.upload.path.*local:///"):
        pods.merge(**given).execute(context)
    assert not (pods.folder / "seen.json").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"conf": {"spark.kubernetes.file.upload.path": "s3a://b/uploads"}},
        {"application": "local:///app/apply.py", "conf": {"spark.jars": "local:///jars/delta-spark.jar, s3a://b/other.jar"}},
    ],
)
def test_files_that_a_pod_finds_are_submitted(pods: Any, context: Any, given: dict[str, Any]) -> None:
    pods.submit_by("#!/bin/sh\nexit 7\n")
    with pytest.raises(AirflowException, match="Error code is: 7"):
        pods.merge(**given).execute(context)
