"""The Dags of other services, rendered by the real operators: the services' own clients accept what is submitted."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import botocore.session
import jsonschema
import pytest
import yaml
from airflow.providers.cncf.kubernetes.operators.custom_object_launcher import CustomObjectLauncher
from botocore.validate import ParamValidator
from databricks.sdk.service.jobs import SubmitTask
from google.cloud.dataproc_v1.types import SubmitJobRequest

from airflow_cdc.jobs.job_parser import ARCHIVE, FLOWS, SHAPE, job_parser
from airflow_cdc.model.job_argument import given_arguments
from airflow_cdc.submitters.job_arguments import JobArguments
from tests.unit.airflow.dag_bag import dag_bag

DAGS = Path(__file__).parents[4] / "dags" / "submitters"
FILES = sorted(path.stem for path in DAGS.glob("*.py"))
SCHEMA = yaml.safe_load(Path(__file__).with_name("spark_application.yaml").read_text(encoding="utf-8"))
MOST_BYTES_OF_AN_ARGUMENT_OF_EMR = 10_280


def rendered(name: str, context: dict[str, Any]) -> Any:
    """Return a Dag's submitting task as its execution finds it."""
    from airflow.sdk.execution_time.context import VariableAccessor

    task = dag_bag(DAGS / f"{name}.py").dags[name].get_task("merge")
    task.render_template_fields({**context, "task": task, "dag": task.dag, "var": {"value": VariableAccessor(deserialize_json=False)}})
    return task


def refusals(service: str, operation: str, given: dict[str, Any]) -> str:
    """Return what the client's model has against the parameters of an operation; empty where it accepts them."""
    model = botocore.session.get_session().get_service_model(service).operation_model(operation)
    return ParamValidator().validate(given, model.input_shape).generate_report()


def has_unresolved(payload: Any) -> bool:
    """Whether a payload holds a template or a value that was not resolved."""
    if isinstance(payload, dict):
        return any(map(has_unresolved, [*payload, *payload.values()]))
    if isinstance(payload, (list, tuple)):
        return any(map(has_unresolved, payload))
    return isinstance(payload, JobArguments) or "{{" in str(payload)


# Each Dag.


def test_there_is_a_dag_for_each_service() -> None:
    assert FILES == ["cdc_databricks", "cdc_dataproc", "cdc_emr", "cdc_emr_serverless", "cdc_glue", "cdc_spark_application"]


@pytest.mark.parametrize("name", FILES)
def test_a_dag_parses_and_its_report_follows_its_merge(name: str) -> None:
    bag = dag_bag(DAGS / f"{name}.py")
    assert bag.import_errors == {}
    dag = bag.dags[name]
    merge, report = dag.get_task("merge"), dag.get_task("report")
    assert (report.submitted_by, report.upstream_task_ids, report.trigger_rule) == ("merge", {"merge"}, "none_skipped")
    assert [outlet.name for outlet in report.outlets] == ["cdc_tables:cdc_lake_default"]
    assert (merge.max_active_tis_per_dag, dag.max_active_runs, dag.catchup) == (1, 1, False)
    assert "docs/how-to/run-on-your-spark-service.md" in dag.doc_md
    assert dag.description


@pytest.mark.parametrize("name", FILES)
def test_parsing_it_imports_neither_spark_nor_the_pipeline_and_serializes_alike_each_time(name: str) -> None:
    program = (
        "import json, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "from tests.unit.airflow.dag_bag import dag_bag; from airflow.serialization.serialized_objects import LazyDeserializedDAG;"
        "parse = lambda: LazyDeserializedDAG.from_dag(next(iter(dag_bag(Path(sys.argv[1])).dags.values()))).data;"
        "print(json.dumps([parse() == parse(), [n for n in sys.modules if n.split('.')[0] in ('pyspark', 'py4j', 'delta')"
        " or n.startswith('airflow_cdc.pipeline')], ' at 0x' in json.dumps(parse())]))"
    )
    command = [sys.executable, "-c", program, str(DAGS / f"{name}.py"), str(DAGS.parents[1])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert json.loads(ended.stdout.splitlines()[-1]) == [True, [], False], ended.stderr[-2000:]


# Each payload, by the client's own model.


def arguments_in(payload: Any) -> list[str]:
    """Return the job's arguments in a payload."""
    if isinstance(payload, list) and "--archive" in payload:
        return payload[payload.index("--archive") :]
    parts = payload.values() if isinstance(payload, dict) else payload if isinstance(payload, list) else ()
    return next(filter(None, map(arguments_in, parts)), [])


def check_arguments(scene: Any, payload: Any) -> None:
    """Check that the job would find its places in a payload, and that nothing in it is left to render."""
    assert not has_unresolved(payload)
    read = job_parser("apply", ARCHIVE, FLOWS, SHAPE).parse_args(arguments_in(payload))
    assert (read.archive, read.lake) == (str(scene.archive), str(scene.lake))
    assert re.fullmatch(rf"{scene.lake}/_cdc/reports/[0-9a-f]{{12}}-000001\.json", read.report)


def test_emr_serverless_accepts_its_job(scene: Any, context: Any) -> None:
    task = rendered("cdc_emr_serverless", context)
    names = {"applicationId": task.application_id, "executionRoleArn": task.execution_role_arn, "clientToken": task.client_request_token}
    request = {**names, "jobDriver": task.job_driver, "configurationOverrides": task.configuration_overrides}
    assert refusals("emr-serverless", "StartJobRun", request) == ""
    assert "entryPoint" in refusals("emr-serverless", "StartJobRun", {**request, "jobDriver": {"sparkSubmit": {"entryPoin": "x"}}})
    check_arguments(scene, task.job_driver)


def test_emr_accepts_its_step(scene: Any, context: Any) -> None:
    task = rendered("cdc_emr", context)
    request = {"JobFlowId": task.job_flow_id, "Steps": task.steps}
    assert refusals("emr", "AddJobFlowSteps", request) == ""
    assert "Jar" in refusals("emr", "AddJobFlowSteps", {**request, "Steps": [{"Name": "x", "HadoopJarStep": {}}]})
    step = task.steps[0]["HadoopJarStep"]["Args"]
    assert max(map(len, step)) < MOST_BYTES_OF_AN_ARGUMENT_OF_EMR
    assert step[step.index("--archive") - 1] == "s3://code/apply.py"
    assert ("--conf", "spark.yarn.appMasterEnv.PYSPARK_PYTHON=/opt/cdc/bin/python") in itertools.pairwise(step)
    check_arguments(scene, task.steps)


def test_glue_accepts_its_job_and_its_run(scene: Any, context: Any) -> None:
    task = rendered("cdc_glue", context)
    config = task.hook.create_glue_job_config()
    assert refusals("glue", "CreateJob", config) == ""
    assert (config["GlueVersion"], config["Command"]["ScriptLocation"]) == ("6.0", "s3://code/apply.py")
    request = {"JobName": task.job_name, "Arguments": task.script_args, **task.run_job_kwargs}
    assert refusals("glue", "StartJobRun", request) == ""
    assert "Arguments" in refusals("glue", "StartJobRun", {**request, "Arguments": {"--x": ["--archive"]}})
    # Glue starts the script with each name once and its value after it, and adds names of its own.
    words = [word for name, value in {**task.script_args, "--JOB_NAME": "airflow-cdc"}.items() for word in (name, value)]
    check_arguments(scene, given_arguments(words))


def test_dataproc_accepts_its_job(scene: Any, context: Any) -> None:
    task = rendered("cdc_dataproc", context)
    request = SubmitJobRequest(project_id=task.project_id, region=task.region, job=task.job)
    assert list(request.job.pyspark_job.args) == task.job["pyspark_job"]["args"]
    assert request.job.placement.cluster_name == "etl"
    assert request.job.pyspark_job.properties["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    # Dataproc takes .py, .egg and .zip.
    assert [uri for uri in request.job.pyspark_job.python_file_uris if not uri.endswith((".py", ".egg", ".zip"))] == []
    with pytest.raises(ValueError, match="main_python_file"):
        SubmitJobRequest(job={"pyspark_job": {"main_python_file": "x"}})
    check_arguments(scene, task.job)


def test_databricks_accepts_its_run(scene: Any, context: Any) -> None:
    task = rendered("cdc_databricks", context)
    task.params = {}
    request = task._prepare_submit_json(context)
    (submitted,) = request["tasks"]
    known = SubmitTask.from_dict(submitted).as_dict()
    # The operator sends numbers as texts, which the service takes.
    assert known == submitted
    assert known["spark_python_task"]["python_file"] == "s3://code/apply.py"
    assert known["libraries"] == [{"whl": "s3://code/airflow_cdc-0.1.0-py3-none-any.whl"}]
    assert SubmitTask.from_dict({**submitted, "spark_python_tasks": 1}).as_dict() != {**submitted, "spark_python_tasks": 1}
    check_arguments(scene, submitted)


def test_a_spark_application_fits_the_definition_of_the_operator_in_the_cluster(scene: Any, context: Any) -> None:
    task = rendered("cdc_spark_application", context)
    task.name = "merge-abc"
    launcher = CustomObjectLauncher(
        name=task.name, namespace=task.namespace, kube_client=None, custom_obj_api=None, template_body=task.template_body
    )
    body = launcher.body
    jsonschema.validate(body, SCHEMA)
    assert body["metadata"] == {"name": "merge-abc", "namespace": "spark"}
    wrong = {**body, "spec": {**body["spec"], "restartPolicy": {"type": "never"}, "arguments": "x"}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)
    check_arguments(scene, body["spec"])
