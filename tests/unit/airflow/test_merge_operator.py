"""The merge operator, run through Spark's own hook as a real process that stands for spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from airflow_cdc.operators.merge import CdcMergeOperator

TOPIC = "server.db.orders"
REPORT = {"ok": False, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
TRANSIENT = {"type": "ConcurrentRunError", "message": "Another run was first.", "next_step": "Run again.", "transient": True}


def _merge(scene: Any, **arguments: Any) -> CdcMergeOperator:
    return CdcMergeOperator(**{"task_id": "merge", "spark_binary": str(scene.spark_submit), **arguments})


def _failed(name: str, error: dict[str, Any] | None) -> dict[str, Any]:
    return {"flow": name, "status": "failed", "table": f"l/{name}", "batches": [], "error": error}


def _job_that_leaves(report: Any, *, exit_code: int) -> str:
    text = report if isinstance(report, str) else json.dumps(report)
    return f"""\
        #!{sys.executable}
        import sys
        open(sys.argv[sys.argv.index("--report") + 1], "w").write({text!r})
        print("Exception in thread main: the wall of Spark's log")
        sys.exit({exit_code})
        """


def _pairs(arguments: list[str]) -> set[tuple[str, str]]:
    return set(zip(arguments, arguments[1:], strict=False))


def _conf(scene: Any) -> dict[str, str]:
    arguments = scene.seen["arguments"]
    return dict(value.split("=", 1) for name, value in zip(arguments, arguments[1:], strict=False) if name == "--conf")


def _wait_for(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


# What it hands on.


def test_applies_what_waits_and_hands_on_a_small_summary(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000001")
    result = _merge(scene).execute(context)
    events = {"read": 2, "merged": 2, "superseded": 0, "redelivered": 0, "stale": 0, "tombstones": 0, "control": 0, "rejected": 0}
    rows = {"inserted": 2, "updated": 0, "deleted": 0}
    table = {"status": "applied", "table": f"{scene.lake}/{TOPIC}", "table_version": 0, "events": events, "rows": rows}
    assert result == {"archive": str(scene.archive), "lake": str(scene.lake), "events": events, "rows": rows, "flows": {TOPIC: table}}
    assert json.loads(json.dumps(result)) == result


def test_a_second_run_finds_everything_applied(scene: Any, context: Any) -> None:
    # Also: the job and the sensor's question share the lake's state, because the hook hands both the same URI.
    scene.land("0000000000")
    _merge(scene).execute(context)
    assert _merge(scene).execute(context)["flows"] == {TOPIC: {"status": "up_to_date", "table": f"{scene.lake}/{TOPIC}"}}


def test_tells_its_outlet_assets_the_changed_tables(scene: Any, context: Any) -> None:
    asset = Asset("x-cdc://lake/orders")
    scene.land("0000000000")
    _merge(scene, outlets=[asset]).execute(context)
    extra = context["outlet_events"][asset].extra
    assert extra["tables"] == {TOPIC: {"table": f"{scene.lake}/{TOPIC}", "table_version": 0}}
    assert extra["rows"] == {"inserted": 1, "updated": 0, "deleted": 0}
    assert json.loads(json.dumps(extra)) == extra


def test_logs_a_line_a_flow_that_adds_up(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land("0000000000")
    _merge(scene).execute(context)
    log = capsys.readouterr().out
    assert f"{TOPIC}: applied, 1 events read = 1 merged; rows inserted 1, updated 0, deleted 0; {scene.lake}/{TOPIC}" in log
    assert "[airflow-cdc] applying" in log


# What it submits.


def test_the_job_is_given_the_roots_as_the_connections_spell_them(scene: Any, context: Any) -> None:
    scene.connect("lake", conn_type="cdc_lake", host=f"file://{scene.lake}")
    _merge(scene, lake_conn_id="lake", tables="a.*, b", flows_file="/flows.yaml").execute(context)
    arguments = scene.seen["arguments"]
    given = _pairs(arguments[[argument.endswith("apply.py") for argument in arguments].index(True) :])
    assert {("--archive", str(scene.archive)), ("--lake", f"file://{scene.lake}"), ("--flows", "/flows.yaml")} <= given
    assert {("--table", "a.*"), ("--table", "b")} <= given
    assert Path(next(argument for argument in arguments if argument.endswith("apply.py"))).parent.name == "jobs"


def test_delta_is_configured_and_the_users_options_go_over_it(scene: Any, context: Any) -> None:
    mine = {"spark.sql.extensions": "org.my.Extension", "spark.sql.catalog.spark_catalog": "org.my.Catalog", "spark.x": "1"}
    _merge(scene, conf=mine, packages="org.my:package:1", jars="/my.jar").execute(context)
    conf = _conf(scene)
    assert conf["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,org.my.Extension"
    assert (conf["spark.sql.catalog.spark_catalog"], conf["spark.x"]) == ("org.my.Catalog", "1")
    # --packages and --jars would replace what Delta needs.
    assert not {"--packages", "--jars"} & set(scene.seen["arguments"])
    assert "org.my:package:1" in conf["spark.jars.packages"]
    assert "/my.jar" in conf["spark.jars"]
    assert "delta-spark" in conf["spark.jars.packages"] + conf["spark.jars"]


def test_the_users_delta_is_the_only_one(scene: Any, context: Any) -> None:
    _merge(scene, packages="io.delta:delta-spark_4.2_2.13:4.4.9").execute(context)
    conf = _conf(scene)
    assert conf["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.9"
    assert "spark.jars" not in conf


def test_a_local_job_gets_this_python_a_quiet_log_and_a_small_jvm_and_the_users_flags_come_last(scene: Any, context: Any) -> None:
    _merge(scene, conf={"spark.driver.extraJavaOptions": "-Xss4m"}).execute(context)
    options = _conf(scene)["spark.driver.extraJavaOptions"].split()
    assert options[-1] == "-Xss4m"
    assert "-XX:TieredStopAtLevel=1" in options
    log4j = next(option for option in options if option.startswith("-Dlog4j2.configurationFile=file:"))
    assert Path(log4j.split("file:")[1]).is_file()
    assert _conf(scene)["spark.pyspark.driver.python"] == sys.executable
    environment = scene.seen["environment"]
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment[SUBMITTER_VARIABLE] == str(os.getpid())
    assert (Path(environment["JAVA_HOME"]) / "bin" / "java").is_file()


def test_a_big_local_master_keeps_the_jvms_second_compiler(scene: Any, context: Any) -> None:
    scene.connect("spark_default", conn_type="spark", host="local[16]")
    _merge(scene).execute(context)
    assert "TieredStopAtLevel" not in _conf(scene)["spark.driver.extraJavaOptions"]


def test_variables_of_this_machine_do_not_travel_to_yarn(scene: Any, context: Any) -> None:
    # Spark's hook turns env_vars into spark.yarn.appMasterEnv.…: JAVA_HOME of the worker would break every other node.
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "client"})
    _merge(scene, env_vars={"MINE": "1"}).execute(context)
    conf = _conf(scene)
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
    _merge(scene).execute(context)
    assert "SPARK_HOME" not in scene.seen["environment"]


def test_no_secret_reaches_command_line_log_or_rendered_fields(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.connect("aws_archive", conn_type="aws", login="AKIAKEY", password="s3cr3t-key")
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://aws_archive@bucket/topics")
    scene.submit_by(_job_that_leaves({**REPORT, "ok": True}, exit_code=0))
    operator = _merge(scene)
    operator.execute(context)
    shown = capsys.readouterr().out + str([getattr(operator, field) for field in operator.template_fields])
    assert "s3://bucket/topics" in shown
    assert "s3cr3t" not in shown
    assert "AKIAKEY" not in shown


def test_the_run_needs_no_date(scene: Any, context: Any) -> None:
    # Runs by REST, asset or partition have no logical_date: a template that names ds or data_interval_start would fail there.
    operator = _merge(scene, tables="{{ params.tables | join(',') }}")
    operator.render_template_fields({**context, "params": {"tables": ["a", "b.*"]}})
    assert (operator.tables, operator.name) == ("a,b.*", "airflow-cdc cdc.merge")


def test_a_default_of_the_dag_reaches_the_operator(scene: Any) -> None:
    from airflow.sdk import DAG

    with DAG("d", default_args={"name": "mine", "conn_id": "other", "lake_conn_id": "lake", "conf": {"a": "b"}}):
        operator = _merge(scene)
    assert (operator.name, operator._conn_id, operator.lake_conn_id, operator.conf) == ("mine", "other", "lake", {"a": "b"})


# Where Spark is.


@pytest.mark.parametrize(
    ("uri", "told"),
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
    scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch, uri: str | None, told: str
) -> None:
    # Spark's own hook submits to YARN in the first two cases.
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    if uri is not None:
        scene.connect_uri("spark_default", uri)
    with pytest.raises(AirflowFailException, match=told):
        _merge(scene, spark_binary=None).execute(context)


@pytest.mark.parametrize(
    ("host", "master"), [("local", "local"), ("local%5B%2A%5D", "local[*]"), ("127.0.0.1:7077", "spark://127.0.0.1:7077")]
)
def test_takes_the_masters_that_a_uri_can_spell(scene: Any, context: Any, host: str, master: str) -> None:
    scene.connect_uri("spark_default", f"spark://{host}")
    _merge(scene).execute(context)
    assert ("--master", master) in _pairs(scene.seen["arguments"])


# What goes wrong.


@pytest.mark.parametrize(
    ("flows", "kind"),
    [
        ([_failed("a", TRANSIENT), _failed("b", TRANSIENT)], AirflowException),
        ([_failed("a", TRANSIENT), _failed("b", TERMINAL)], AirflowFailException),
        ([_failed("a", None)], AirflowFailException),
    ],
)
@pytest.mark.parametrize("exit_code", [0, 1])
def test_failed_flows_fail_the_task_and_only_passing_causes_are_tried_again(
    scene: Any, context: Any, flows: list[dict[str, Any]], kind: type[Exception], exit_code: int
) -> None:
    # Exit code 0: in cluster mode nobody hands the job's exit code on.
    scene.submit_by(_job_that_leaves({**REPORT, "flows": flows}, exit_code=exit_code))
    with pytest.raises(AirflowException) as failed:
        _merge(scene).execute(context)
    assert type(failed.value) is kind
    assert str(failed.value).startswith(f"{len(flows)} of {len(flows)} flows failed.\na: ")


def test_the_message_is_the_jobs_own_cause_with_its_next_step(scene: Any, context: Any) -> None:
    scene.submit_by(_job_that_leaves({**REPORT, "flows": [_failed("a.b", TERMINAL)]}, exit_code=1))
    with pytest.raises(AirflowFailException) as failed:
        _merge(scene).execute(context)
    assert str(failed.value) == "1 of 1 flows failed.\na.b: SchemaChangeError: Column total shrank. Next step: Widen it."


def test_a_run_that_stopped_before_any_flow_says_why(scene: Any, context: Any) -> None:
    scene.submit_by(_job_that_leaves({**REPORT, "error": TRANSIENT}, exit_code=1))
    with pytest.raises(
        AirflowException, match=r"The job stopped.*\nThe run: ConcurrentRunError: Another run was first. Next step: Run again."
    ):
        _merge(scene).execute(context)


def test_hundreds_of_failures_make_no_endless_message(scene: Any, context: Any) -> None:
    flows = [_failed(f"t{number}", TERMINAL) for number in range(300)]
    scene.submit_by(_job_that_leaves({**REPORT, "flows": flows}, exit_code=1))
    with pytest.raises(AirflowFailException, match="… and 290 more") as failed:
        _merge(scene).execute(context)
    assert len(str(failed.value)) < 2000


def test_a_job_that_left_no_report_is_tried_again_with_what_spark_said(scene: Any, context: Any) -> None:
    scene.submit_by("#!/bin/sh\necho 'Exception in thread \"main\" java.lang.OutOfMemoryError'\nexit 1\n")
    with pytest.raises(AirflowException, match="OutOfMemoryError") as failed:
        _merge(scene).execute(context)
    assert not isinstance(failed.value, AirflowFailException)


def test_another_job_that_writes_no_report_is_named(scene: Any, context: Any) -> None:
    scene.submit_by("#!/bin/sh\nexit 0\n")
    with pytest.raises(AirflowException, match=r"no report is at .*is /my/job.py the right job"):
        _merge(scene, application="/my/job.py").execute(context)


@pytest.mark.parametrize("text", ["{", "[]", '{"flows": 1}'])
def test_an_unreadable_report_is_an_error_with_a_next_step(scene: Any, context: Any, text: str) -> None:
    scene.submit_by(_job_that_leaves(text, exit_code=0))
    with pytest.raises(AirflowFailException, match="Next step"):
        _merge(scene).execute(context)


def test_an_exit_code_is_not_ignored_when_the_report_says_all_is_well(scene: Any, context: Any) -> None:
    scene.submit_by(_job_that_leaves({**REPORT, "ok": True}, exit_code=1))
    with pytest.raises(AirflowException, match="Error code is: 1"):
        _merge(scene).execute(context)


def test_the_report_is_gone_afterwards(scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = scene.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    _merge(scene).execute(context)
    scene.submit_by(_job_that_leaves({**REPORT, "flows": [_failed("a", TERMINAL)]}, exit_code=1))
    with pytest.raises(AirflowFailException):
        _merge(scene).execute(context)
    assert list(temporary.iterdir()) == []


def test_in_cluster_mode_the_report_lies_in_the_lake_until_it_is_read(scene: Any, context: Any) -> None:
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    scene.land("0000000000")
    result = _merge(scene, durable=False).execute(context)
    report = Path(dict(_pairs(scene.seen["arguments"]))["--report"])
    assert report.parent == scene.lake / "_cdc" / "reports"
    assert result["rows"]["inserted"] == 1
    assert not report.exists()
    # Neither this machine's Python nor its log settings mean anything there.
    assert not {"spark.pyspark.driver.python", "spark.driver.extraJavaOptions"} & set(_conf(scene))


def test_in_cluster_mode_every_try_of_a_task_names_the_same_report(scene: Any, context: Any) -> None:
    # A retry may find the job of the try before still running: what it writes is what the retry asks for.
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    reports = []
    for try_number, run_id in ((1, "a"), (2, "a"), (1, "b")):
        context["ti"].try_number, context["ti"].run_id = try_number, run_id
        _merge(scene, durable=False).execute(context)
        reports.append(dict(_pairs(scene.seen["arguments"]))["--report"])
    assert reports[0] == reports[1] != reports[2]


# How it ends early.


def test_a_kill_leaves_no_process_behind(scene: Any, context: Any) -> None:
    # spark-submit's JVM starts Python, which starts workers; Spark's hook kills the JVM alone.
    pids = scene.folder / "pids"
    scene.submit_by(f"#!/bin/sh\necho $$ >> {pids}\nsh -c 'sleep 300 & echo $! >> {pids}; wait' &\necho $! >> {pids}\nwait\n")
    operator = _merge(scene)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            operator.execute(context)
        except AirflowException as error:
            raised.append(error)

    task = threading.Thread(target=run, daemon=True)
    task.start()
    assert _wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    processes = [psutil.Process(int(pid)) for pid in pids.read_text().split()]
    assert all(process.is_running() for process in processes)
    operator.on_kill()
    task.join(10)
    assert len(raised) == 1
    assert _wait_for(lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes))


def test_a_kill_before_anything_was_submitted_is_no_error(scene: Any) -> None:
    _merge(scene).on_kill()


_PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "PYSPARK_GATEWAY_PORT": "1"})
print(child.pid, flush=True)
time.sleep(300)
"""
_CHILD = """
import time
from airflow_cdc.jobs.die_with_parent import die_with_parent
die_with_parent(0.05)
print("watching", flush=True)
time.sleep(300)
"""


def _start_job(scene: Any, child: str, **environment: str) -> tuple[subprocess.Popen[str], psutil.Process]:
    repository = str(Path(__file__).parents[3])
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, child],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": repository, **environment},
    )
    assert parent.stdout
    job = psutil.Process(int(parent.stdout.readline()))
    assert parent.stdout.readline() == "watching\n"
    return parent, job


def _end(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    assert parent.stdout
    parent.stdout.close()


def test_the_job_ends_with_the_jvm_that_started_it(scene: Any) -> None:
    parent, job = _start_job(scene, _CHILD)
    _end(parent)
    assert _wait_for(lambda: not job.is_running())


def test_the_job_ends_with_the_task_that_submitted_it(scene: Any) -> None:
    # A worker killed by SIGKILL runs no on_kill, and its JVM would go on.
    task = subprocess.Popen(["sleep", "300"])
    parent, job = _start_job(scene, _CHILD, **{SUBMITTER_VARIABLE: str(task.pid)})
    task.kill()
    task.wait()
    ended = _wait_for(lambda: not job.is_running() or job.status() == psutil.STATUS_ZOMBIE)
    _end(parent)
    assert ended


def test_a_job_started_by_hand_outlives_its_shell(scene: Any) -> None:
    parent, job = _start_job(scene, "import os\nos.environ.pop('PYSPARK_GATEWAY_PORT')\n" + _CHILD)
    _end(parent)
    time.sleep(0.5)
    lived = job.is_running()
    job.kill()
    assert lived
