"""What the merge task submits, and where: the command line, the environment, the Spark connection."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from airflow_cdc.model.job_argument import read_argument
from tests.support.spark_provider import follows_jobs

REPORT = {"ok": True, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}


# What it submits.


def test_the_job_is_given_the_roots_as_the_connections_spell_them(scene: Any, context: Any) -> None:
    scene.connect("lake", conn_type="cdc_lake", host=f"file://{scene.lake}")
    scene.merge(lake_conn_id="lake", tables="a.*, b", flows_file="/flows.yaml").execute(context)
    job = next(number for number, argument in enumerate(scene.arguments) if argument.endswith("jobs/apply.py"))
    *given, report, _, name = scene.arguments[job + 1 :]
    roots = ["--archive", str(scene.archive), "--lake", f"file://{scene.lake}"]
    assert given == [*roots, "--flows", "/flows.yaml", "--table", "a.*", "--table", "b", "--report"]
    assert Path(report).name == "report.json"
    assert read_argument(name) == "cdc.merge, manual__1, try 1"


def test_the_job_is_asked_to_look_at_transactions_only_where_the_task_asks(scene: Any, context: Any) -> None:
    asked = {"--check-transactions", "--consistent"}
    scene.merge().execute(context)
    assert not asked & set(scene.arguments)
    scene.merge(check_transactions=True).execute(context)
    assert asked & set(scene.arguments) == {"--check-transactions"}
    scene.merge(consistent=True).execute(context)
    assert asked & set(scene.arguments) == {"--consistent"}


def test_an_engine_is_named_to_the_job_and_a_wrong_one_stops_before_spark_starts(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="engine is 'duck', expected one of"):
        scene.merge(engine="duck").execute(context)
    with pytest.raises(FileNotFoundError):
        _ = scene.arguments
    scene.merge(engine="spark").execute(context)
    assert scene.arguments[scene.arguments.index("--engine") + 1] == "spark"


def test_delta_is_configured_and_the_users_options_go_over_it(scene: Any, context: Any) -> None:
    mine = {"spark.sql.extensions": "org.my.Extension", "spark.sql.catalog.spark_catalog": "org.my.Catalog", "spark.x": "1"}
    scene.merge(conf=mine, packages="org.my:package:1", jars="/my.jar").execute(context)
    conf = scene.conf
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,org.my.Extension"
    assert (conf["spark.sql.catalog.spark_catalog"], conf["spark.x"]) == ("org.my.Catalog", "1")
    # --packages and --jars would replace what Delta needs.
    assert not {"--packages", "--jars"} & set(scene.arguments)
    assert "org.my:package:1" in conf["spark.jars.packages"]
    assert "/my.jar" in conf["spark.jars"]
    assert "delta-spark" in conf["spark.jars.packages"] + conf["spark.jars"]


def test_the_users_delta_is_the_only_one(scene: Any, context: Any) -> None:
    scene.merge(packages="io.delta:delta-spark_4.2_2.13:4.4.9").execute(context)
    conf = scene.conf
    assert conf["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.9"
    assert "spark.jars" not in conf


def test_a_local_job_gets_this_python_a_quiet_log_and_a_small_jvm_and_the_users_flags_come_last(scene: Any, context: Any) -> None:
    scene.merge(conf={"spark.driver.extraJavaOptions": "-Xss4m"}).execute(context)
    options = scene.conf["spark.driver.extraJavaOptions"].split()
    assert options[-1] == "-Xss4m"
    assert "-XX:TieredStopAtLevel=1" in options
    log4j = next(option for option in options if option.startswith("-Dlog4j2.configurationFile=file:"))
    assert Path(log4j.split("file:")[1]).is_file()
    assert scene.conf["spark.pyspark.driver.python"] == sys.executable
    environment = scene.environment
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment[SUBMITTER_VARIABLE] == str(os.getpid())
    assert (Path(environment["JAVA_HOME"]) / "bin" / "java").is_file()


@pytest.mark.parametrize(
    ("name", "size", "short"), [("a.json", 2**20, True), ("a.json", 2**27, False), ("a.json.gz", 2**24, False), (None, 0, False)]
)
def test_a_long_job_keeps_the_jvms_second_compiler(scene: Any, context: Any, name: str | None, size: int, short: bool) -> None:
    if name is None:
        scene.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://airflow/cannot/see")
    else:
        (scene.archive / name).touch()
        os.truncate(scene.archive / name, size)
    scene.submit_leaves(REPORT, exit_code=0)
    operator = scene.merge()
    operator.execute(context)
    assert ("-XX:TieredStopAtLevel=1" in operator.conf["spark.driver.extraJavaOptions"]) is short


def test_a_small_job_takes_its_classes_from_the_archive_where_there_is_one(
    scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_cdc.runtime import class_archive, spark

    archive, jar = scene.folder / "classes.jsa", scene.folder / "delta-spark.jar"
    monkeypatch.setattr(class_archive, "class_archive", lambda: archive)
    # Where no jars are installed, Spark fetches them itself.
    for module in (class_archive, spark):
        monkeypatch.setattr(module, "delta_jars", lambda: [jar])
    scene.merge().execute(context)
    assert "spark.driver.extraClassPath" not in scene.conf

    archive.touch()
    scene.merge().execute(context)
    assert scene.conf["spark.driver.extraClassPath"] == str(jar)
    assert "spark.jars" not in scene.conf
    options = scene.conf["spark.driver.extraJavaOptions"].split()
    assert {f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-XX:TieredStopAtLevel=1"} <= set(options)

    # What the user says of jars and class path counts, and a long job needs its second compiler.
    scene.merge(conf={"spark.driver.extraClassPath": "/mine.jar"}).execute(context)
    assert (scene.conf["spark.driver.extraClassPath"], "spark.jars" in scene.conf) == ("/mine.jar", True)
    scene.merge(packages="io.delta:delta-spark_4.2_2.13:4.4.9").execute(context)
    assert "spark.driver.extraClassPath" not in scene.conf


def test_files_that_wait_since_a_crash_may_be_many(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.submit_by(scene.spark_submit.read_text().replace("if batch is None", "if True"))
    for _ in range(2):
        scene.merge().execute(context)
    assert "-XX:TieredStopAtLevel=1" not in scene.conf["spark.driver.extraJavaOptions"]


def test_variables_of_this_machine_do_not_travel_to_yarn(scene: Any, context: Any) -> None:
    # Spark's hook turns env_vars into spark.yarn.appMasterEnv.…: JAVA_HOME of the worker would break every other node.
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "client"})
    scene.merge(env_vars={"MINE": "1"}).execute(context)
    conf = scene.conf
    assert conf["spark.yarn.appMasterEnv.MINE"] == "1"
    assert [name for name in conf if "appMasterEnv" in name] == ["spark.yarn.appMasterEnv.MINE"]


def test_without_spark_submit_on_path_this_environments_own_is_called(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_cdc.operators.spark_target import SparkTarget, binary_for

    monkeypatch.setenv("PATH", "/nowhere")
    ours = Path(binary_for(SparkTarget("local[2]", "client", "spark-submit")))
    assert ours.parts[-3:] == ("pyspark", "bin", "spark-submit")
    assert os.access(ours, os.X_OK)
    assert binary_for(SparkTarget("yarn", "client", "spark-submit")) == str(ours)
    monkeypatch.setenv("PATH", str(scene.folder))
    assert binary_for(SparkTarget("yarn", "client", "spark-submit")) == "spark-submit"
    assert binary_for(SparkTarget("local", "client", "spark-submit")) == str(ours)
    assert binary_for(SparkTarget("local", "client", "/opt/spark/bin/spark-submit")) == "/opt/spark/bin/spark-submit"


def test_another_sparks_scripts_are_not_pointed_at_our_spark_home(scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    scene.merge().execute(context)
    assert "SPARK_HOME" not in scene.environment


def test_no_secret_reaches_command_line_log_or_rendered_fields(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.connect("aws_archive", conn_type="aws", login="AKIAKEY", password="s3cr3t-key")
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://aws_archive@bucket/topics")
    scene.submit_leaves(REPORT, exit_code=0)
    operator = scene.merge()
    operator.execute(context)
    shown = capsys.readouterr().out + str([getattr(operator, field) for field in operator.template_fields])
    assert "s3://bucket/topics" in shown
    assert "s3cr3t" not in shown
    assert "AKIAKEY" not in shown


def test_the_run_needs_no_date(scene: Any, context: Any) -> None:
    # Runs by REST, asset or partition have no logical_date: a template that names ds or data_interval_start would fail there.
    operator = scene.merge(tables="{{ params.tables | join(',') }}")
    operator.render_template_fields({**context, "params": {"tables": ["a", "b.*"]}})
    assert (operator.tables, operator.name) == ("a,b.*", "airflow-cdc cdc.merge")


def test_a_default_of_the_dag_reaches_the_operator(scene: Any) -> None:
    from airflow.sdk import DAG

    with DAG("d", default_args={"name": "mine", "conn_id": "other", "lake_conn_id": "lake", "conf": {"a": "b"}}):
        operator = scene.merge()
    assert (operator.name, operator._conn_id, operator.lake_conn_id, operator.conf) == ("mine", "other", "lake", {"a": "b"})


# Where Spark is.


@follows_jobs
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (None, r"There is no connection spark_default.*AIRFLOW_CONN_SPARK_DEFAULT"),
        ("spark://local[*]", r"cannot read connection spark_default from the environment variable.*JSON"),
        ('{"conn_type": "spark"}', r"the master is 'spark://'"),
        ('{"conn_type": "spark", "host": "lokal[2]"}', r"the master is 'lokal\[2\]'"),
        ("http://spark.example.com", r"the master is 'http://"),
        ('{"conn_type": "spark", "host": "spark://m:7077", "extra": {"deploy-mode": "cluster"}}', "takes no Python job in cluster"),
        ('{"conn_type": "spark", "host": "local", "extra": {"spark-binary": "/opt/spark-submit"}}', "cannot be used"),
        ('{"conn_type": "spark", "host": "k8s://https://k:6443"}', r"cannot be used.*cncf-kubernetes"),
    ],
)
def test_refuses_a_spark_connection_that_would_lead_elsewhere(
    scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch, uri: str | None, message: str
) -> None:
    # Spark's own hook submits to YARN in the first two cases.
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    if uri is not None:
        scene.connect_uri("spark_default", uri)
    with pytest.raises(AirflowFailException, match=message):
        scene.merge(spark_binary=None).execute(context)


def test_settings_that_exclude_each_other_are_not_tried_again(scene: Any, context: Any, needs_state_stores: None) -> None:
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match="durable=True requires yarn_track_via_rm_api=True"):
        scene.merge().execute(context)


@follows_jobs
@pytest.mark.parametrize(
    ("host", "master"), [("local", "local"), ("local%5B%2A%5D", "local[*]"), ("127.0.0.1:7077", "spark://127.0.0.1:7077")]
)
def test_takes_the_masters_that_a_uri_can_spell(scene: Any, context: Any, host: str, master: str) -> None:
    scene.connect_uri("spark_default", f"spark://{host}")
    scene.merge().execute(context)
    assert ("--master", master) in scene.pairs
