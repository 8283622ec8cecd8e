"""A merge in the spelling of services that the Spark provider does not reach: what each field holds, and what is never in one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator
from airflow.sdk import DAG

from airflow_cdc.jobs.job_parser import ARCHIVE, FLOWS, SHAPE, job_parser
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.job_argument import ALL_ARGUMENTS, ENCODED
from airflow_cdc.runtime import newest_minor
from airflow_cdc.submitters.cdc_job import CdcJob
from airflow_cdc.submitters.cdc_maintain_job import CdcMaintainJob

APPLICATION = "s3://code/apply.py"
DELTA = ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
SERVICES = {
    "EMR Serverless": lambda job: job.emr_serverless(),
    "EMR": lambda job: job.emr_step(),
    "Dataproc": lambda job: job.dataproc("c"),
    "Databricks": lambda job: job.databricks(),
    "AWS Glue": lambda job: job.glue(),
    "Kubernetes": lambda job: job.spark_application(image="i", driver={}, executor={}),
}


class Submitting(BaseOperator):
    """Any operator with a templated field, and one that would take some texts for template files."""

    template_fields = ("payload",)
    template_ext = (".json", ".yaml")

    def __init__(self, *, payload: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.payload = payload


def render(payload: Any, context: dict[str, Any], **params: Any) -> Any:
    """Return a payload as a task's execution finds it."""
    with DAG("cdc", schedule=None):
        task = Submitting(payload=payload, task_id="merge")
    task.render_template_fields({**context, "task": task, "dag": task.dag, "params": params})
    return task.payload


def texts(payload: Any) -> Iterator[str]:
    """Yield every text of a payload."""
    if isinstance(payload, dict):
        for name, value in payload.items():
            yield name
            yield from texts(value)
    elif isinstance(payload, list):
        for value in payload:
            yield from texts(value)
    else:
        yield str(payload)


def arguments_of(payload: Any) -> list[str]:
    """Return the job's arguments: the one list of a payload that holds ``--lake``."""
    if isinstance(payload, list) and "--lake" in payload:
        return payload[payload.index("--archive") :]
    if isinstance(payload, dict) and ALL_ARGUMENTS in payload:
        # Glue starts the job with more of its own.
        return ["--JOB_ID", "j_1", "--JOB_NAME", "merge", ALL_ARGUMENTS, payload[ALL_ARGUMENTS], "--TempDir", "s3://code/tmp"]
    parts = payload.values() if isinstance(payload, dict) else payload if isinstance(payload, list) else ()
    return next(iter([found for part in parts if (found := arguments_of(part))]), [])


def given(arguments: list[str]) -> Any:
    parser = job_parser("apply", ARCHIVE, FLOWS, SHAPE)
    for name in ("--check-transactions", "--consistent"):
        parser.add_argument(name, action="store_true")
    for name in ("--since", "--until", "--engine"):
        parser.add_argument(name)
    return parser.parse_args(arguments)


@pytest.fixture
def job() -> CdcJob:
    return CdcJob(application=APPLICATION, py_files=["s3://code/cdc.zip"])


@pytest.mark.parametrize("service", SERVICES)
def test_the_jobs_own_parser_reads_the_arguments_of_every_service(scene: Any, context: Any, service: str) -> None:
    flows = json.dumps({"flows": [{"topic": "a.b", "columns": {"x": {"type": "int"}}}]})
    asked = {"tables": "{{ params.tables | join(',') }}", "flows_file": flows, "engine": "native", "consistent": True}
    job = CdcJob(application="local:///jobs/apply.py", check_transactions=True, archived_since="2026-01-01", **asked)

    read = given(arguments_of(render(SERVICES[service](job), context, tables=["a.*", "b"])))

    assert (read.archive, read.lake, read.table) == (str(scene.archive), str(scene.lake), ["a.*", "b"])
    assert json.loads(read.flows) == json.loads(flows)
    assert (read.check_transactions, read.consistent, read.engine, read.since) == (True, True, "native", "2026-01-01T00:00:00+00:00")
    assert read.run_name == "cdc.merge, manual__1, try 1"
    assert read.storage is None


@pytest.mark.parametrize("service", SERVICES)
def test_each_try_has_a_report_of_its_own_in_the_lake(scene: Any, context: Any, job: CdcJob, service: str) -> None:
    payload = SERVICES[service](job)
    reports = []
    for number in (1, 1, 2):
        context["ti"].try_number = number
        reports.append(given(arguments_of(render(payload, context))).report)

    # A deferred task renders its fields again when it resumes: the name is the same.
    assert reports[0] == reports[1] != reports[2]
    assert [report.startswith(f"{scene.lake}/_cdc/reports/") for report in reports] == [True] * 3


def test_nothing_that_a_shell_or_a_service_would_change_stands_in_an_argument(scene: Any, context: Any) -> None:
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host="/lake/{{x}}/it's `id` $(HOME)")
    scene.connect("store", conn_type="aws", extra={"endpoint_url": "http://minio:9000", "region_name": "eu-west-3"})
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://b/topics", extra={"storage_conn_id": "store"})

    arguments = arguments_of(render(CdcJob(application=APPLICATION).databricks(), context))

    assert [text for text in arguments if any(mark in text for mark in "{}`$\\'\"<>()\n")] == []
    assert any(text.startswith(ENCODED) for text in arguments)
    assert given(arguments).lake == "/lake/{{x}}/it's `id` $(HOME)"
    assert json.loads(given(arguments).storage)["file_systems"]["s3://b"]["endpoint_url"] == "http://minio:9000"


def test_a_glob_is_rendered_once(scene: Any, context: Any) -> None:
    job = CdcJob(application=APPLICATION, tables="{{ params.tables }}")
    read = given(arguments_of(render(job.emr_step(), context, tables="{{ti.try_number}}")))
    assert read.table == ["{{ti.try_number}}"]


def test_a_flows_file_is_a_path_of_the_driver_and_no_template_of_the_worker(scene: Any, context: Any) -> None:
    job = CdcJob(application=APPLICATION, flows_file="s3://code/{{ params.stage }}/flows.yaml")
    assert given(arguments_of(render(job.dataproc("c"), context, stage="prod"))).flows == "s3://code/prod/flows.yaml"


def test_a_backfills_run_takes_the_files_of_its_interval(scene: Any, context: Any) -> None:
    from datetime import datetime, timezone

    begin, end = (datetime(2026, 1, day, tzinfo=timezone.utc) for day in (1, 2))
    context["dag_run"] = SimpleNamespace(run_type="backfill", data_interval_start=begin, data_interval_end=end)
    read = given(arguments_of(render(CdcJob(application=APPLICATION, by_data_interval=True).emr_serverless(), context)))
    assert (read.since, read.until) == (begin.isoformat(), end.isoformat())


def test_a_maintenance_hands_its_settings_to_its_job(scene: Any, context: Any) -> None:
    job = CdcMaintainJob(
        application="s3://code/maintain.py", tables="a.*", vacuum_after_days="{{ params.days }}", only_plan="{{ params.plan }}"
    )
    arguments = render(job.emr_serverless(), context, days=14, plan=True)["sparkSubmit"]["entryPointArguments"]

    parser = job_parser("maintain", FLOWS)
    parser.add_argument("--settings")
    read = parser.parse_args(arguments)

    settings = json.loads(read.settings)
    assert (settings["vacuum_after_days"], settings["expire_after_days"], settings["dry_run"]) == (14, 30, True)
    assert (read.lake, read.table) == (str(scene.lake), ["a.*"])
    assert read.report.startswith(f"{scene.lake}/_cdc/reports/")
    with pytest.raises(AirflowFailException, match="Next step: Give at least 7 days"):
        render(CdcMaintainJob(application="a", vacuum_after_days=1).emr_step(), context)


# Packages and files.


def test_emr_serverless_gets_its_options_as_one_text(scene: Any, context: Any, job: CdcJob) -> None:
    driver = render(job.emr_serverless(), context)["sparkSubmit"]
    words = driver["sparkSubmitParameters"].split()
    assert driver["entryPoint"] == APPLICATION
    assert ("--conf", "=".join(DELTA)) in itertools.pairwise(words)
    assert words[-4:] == ["--packages", ",".join(newest_minor().packages), "--py-files", "s3://code/cdc.zip"]
    with pytest.raises(ConfigurationError, match=r"'spark.driver.extraJavaOptions=-Da -Db' holds a blank.*configuration_overrides"):
        CdcJob(application=APPLICATION, conf={"spark.driver.extraJavaOptions": "-Da -Db"}).emr_serverless()


def test_an_emr_step_is_a_whole_spark_submit(scene: Any, context: Any) -> None:
    job = CdcJob(application="s3://{{ params.bucket }}/apply.py", jars=["s3://code/delta.jar"], conf={"spark.a": "with a blank"})
    step = render(job.emr_step(), context, bucket="code")["HadoopJarStep"]
    assert step["Jar"] == "command-runner.jar"
    assert step["Args"][:3] == ["spark-submit", "--deploy-mode", "cluster"]
    assert "spark.a=with a blank" in step["Args"]
    # Named jars bring Delta: Maven is not asked.
    assert "--packages" not in step["Args"]
    before = step["Args"].index("--archive")
    assert step["Args"][before - 3 : before] == ["--jars", "s3://code/delta.jar", "s3://code/apply.py"]


def test_a_dataproc_job_has_its_packages_in_its_properties(scene: Any, context: Any, job: CdcJob) -> None:
    payload = render(job.dataproc("{{ params.cluster }}"), context, cluster="etl")
    assert payload["placement"] == {"cluster_name": "etl"}
    assert payload["pyspark_job"]["properties"]["spark.jars.packages"] == ",".join(newest_minor().packages)
    assert payload["pyspark_job"]["python_file_uris"] == ["s3://code/cdc.zip"]


def test_databricks_keeps_its_own_delta_and_the_clusters_own_options(scene: Any, context: Any) -> None:
    job = CdcJob(application="/Workspace/apply.py", py_files=["/Volumes/cdc.whl"], conf={"spark.a": "1", "spark.b": "1"})
    cluster = {"spark_version": "x", "spark_conf": {"spark.b": "2"}}
    task = render(job.databricks(new_cluster=cluster, libraries=[{"pypi": {"package": "fsspec"}}]), context)
    assert task["libraries"] == [{"whl": "/Volumes/cdc.whl"}, {"pypi": {"package": "fsspec"}}]
    options = task["new_cluster"]["spark_conf"]
    assert (options["spark.a"], options["spark.b"]) == ("1", "2")
    assert not {name for name in options if name.startswith("spark.sql.extensions") or "catalog" in name}
    # The caller's own dict serves other tasks too.
    assert cluster["spark_conf"] == {"spark.b": "2"}
    assert "new_cluster" not in job.databricks(existing_cluster_id="e")


def test_a_spark_application_is_not_restarted_by_kubernetes(scene: Any, context: Any) -> None:
    job = CdcJob(application="local:///apply.py", packages=[], conf={"spark.sql.extensions": "mine.Extension"})
    payload = render(job.spark_application(image="i", driver={"cores": 1}, executor={"instances": 1}), context)
    assert payload["spec"]["restartPolicy"] == {"type": "Never"}
    assert payload["spec"]["deps"] == {}
    # A list of the user's is added to Delta's, not put in its place.
    assert payload["spec"]["sparkConf"]["spark.sql.extensions"] == f"{DELTA[1]},mine.Extension"


def test_glue_gets_its_options_and_files_by_name_and_brings_delta(scene: Any, context: Any, job: CdcJob) -> None:
    given = render(job.glue(), context)
    assert given["script_location"] == APPLICATION
    options = given["script_args"]["--conf"].split(" --conf ")
    assert "=".join(DELTA) in options
    assert {name: given["script_args"].get(name) for name in ("--extra-py-files", "--extra-jars", "--datalake-formats")} == {
        "--extra-py-files": "s3://code/cdc.zip",
        "--extra-jars": None,
        "--datalake-formats": "delta",
    }
    own = render(CdcJob(application=APPLICATION, jars=["s3://code/delta.jar"]).glue(), context)["script_args"]
    assert (own["--extra-jars"], "--datalake-formats" in own) == ("s3://code/delta.jar", False)


# Releases.


def test_the_release_decides_which_delta_is_added(scene: Any, context: Any) -> None:
    for release, delta in {"emr-8.0.0": "delta-spark_4.0_2.13", "dataproc-3.0.2": "delta-spark_4.1_2.13"}.items():
        job = CdcJob(application=APPLICATION, release=release)
        packages = render(job.dataproc("c"), context)["pyspark_job"]["properties"]["spark.jars.packages"]
        assert packages.startswith(f"io.delta:{delta}:")
        assert f"io.delta:{delta}:" in render(job.emr_serverless(), context)["sparkSubmit"]["sparkSubmitParameters"]


def test_a_release_that_cannot_work_is_refused_where_the_dag_is_parsed() -> None:
    with pytest.raises(ConfigurationError, match=r"The release emr-7\.13\.0 has Spark 3\.5"):
        CdcJob(application=APPLICATION, release="emr-7.13.0")


def test_an_application_on_kubernetes_has_the_delta_of_its_image(scene: Any, context: Any) -> None:
    def packages(**version: str) -> list[str]:
        job = CdcJob(application=APPLICATION)
        return render(job.spark_application(image="i", driver={}, executor={}, **version), context)["spec"]["deps"]["packages"]

    assert packages() == list(newest_minor().packages)
    assert packages(spark_version="4.0.4")[0].startswith("io.delta:delta-spark_4.0_2.13:")
    with pytest.raises(ConfigurationError, match=r"The image has Spark 3\.5\.8"):
        packages(spark_version="3.5.8")


# Credentials.


@pytest.mark.parametrize("service", SERVICES)
def test_a_storage_connection_with_keys_is_refused_and_no_key_is_rendered(scene: Any, context: Any, job: CdcJob, service: str) -> None:
    scene.connect("store", conn_type="aws", login="AKIAKEY", password="topsecret")
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host="s3://b/lake", extra={"storage_conn_id": "store"})
    payload = SERVICES[service](job)
    with pytest.raises(AirflowFailException, match=rf"shown by {service} and .*execution role") as refused:
        render(payload, context)
    seen = [*texts(payload), str(refused.value), repr(payload)]
    assert [text for text in seen if "AKIAKEY" in text or "topsecret" in text] == []


def test_a_login_for_hdfs_is_refused(scene: Any, context: Any, job: CdcJob) -> None:
    scene.connect("hadoop", conn_type="webhdfs", host="nn", login="etl")
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host="hdfs://n/lake", extra={"storage_conn_id": "hadoop"})
    with pytest.raises(AirflowFailException, match=r"HADOOP_USER_NAME, and EMR starts the job with its own environment"):
        render(job.emr_step(), context)


@pytest.mark.parametrize(
    "name",
    ["s3a.secret.key", "s3a.bucket.b.access.key", "azure.account.key.a.dfs", "s3a.session.token", "gs.auth.service.account.private.key"],
)
def test_a_credential_in_the_options_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"conf sets spark\.hadoop\.fs\.{name}") as refused:
        CdcJob(application=APPLICATION, conf={f"spark.hadoop.fs.{name}": "topsecret"})
    assert "topsecret" not in str(refused.value)


def test_what_provides_credentials_may_be_named() -> None:
    names = ("spark.hadoop.fs.s3a.aws.credentials.provider", "spark.hadoop.hadoop.security.credential.provider.path")
    assert len(CdcJob(application=APPLICATION, conf=dict.fromkeys(names, "x")).conf) == 2


# What Airflow shows before a run.


@pytest.mark.parametrize("service", SERVICES)
def test_every_parse_of_a_dag_gives_the_same_serialized_dag(service: str) -> None:
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    def parsed() -> str:
        with DAG("cdc", schedule=None) as dag:
            Submitting(payload=SERVICES[service](CdcJob(application=APPLICATION)), task_id="merge")
        return json.dumps(LazyDeserializedDAG.from_dag(dag).data)

    # An address in memory would make each parse a new version of the Dag.
    assert parsed() == parsed()
    assert " at 0x" not in parsed()
    assert "cdc_lake_default" in parsed()


@pytest.mark.parametrize(("of_task", "expected"), [(None, "spark"), ("native", "native")])
def test_the_lakes_connection_names_the_engine_where_the_task_does_not(
    scene: Any, context: Any, of_task: str | None, expected: str
) -> None:
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host=str(scene.lake), extra={"engine": "spark"})
    job = CdcJob(application=APPLICATION, engine=of_task)
    assert given(arguments_of(render(job.emr_serverless(), context))).engine == expected


def test_a_connection_with_a_wrong_engine_is_refused_before_a_job_is_submitted(scene: Any, context: Any) -> None:
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host=str(scene.lake), extra={"engine": "duck"})
    with pytest.raises(AirflowFailException, match="engine is 'duck'"):
        render(CdcJob(application=APPLICATION).emr_serverless(), context)


def test_a_wrong_engine_is_refused_before_a_job_is_submitted(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="engine"):
        render(CdcJob(application=APPLICATION, engine="duck").emr_serverless(), context)
