"""The merge as a client of a Spark Connect server: what it is started with, what it may not show, how it ends."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from tests.unit.airflow.ended_early import kill_when

TOKEN = "s3cr3t/t=ken"
REPORT = {"ok": True, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}
ERROR = {"type": "SparkUnreachableError", "message": "sc://h does not answer.", "next_step": "Start it.", "transient": True}

JOB = """\
import json, os, sys
storage = sys.argv[sys.argv.index("--storage") + 1]
seen = {{"arguments": sys.argv, "environment": dict(os.environ)}}
seen |= {{"mode": os.stat(storage).st_mode & 0o777, "storage": json.load(open(storage))}}
open({seen!r}, "w").write(json.dumps(seen))
open(sys.argv[sys.argv.index("--report") + 1], "w").write({report!r})
print("[airflow-cdc] applying", flush=True)
sys.exit({code})
"""


@pytest.fixture
def merge(scene: Any) -> Any:
    """Make an operator whose Spark connection leads to a server, and whose job leaves this report."""

    def make(report: dict[str, Any] | None = None, code: int = 0, **arguments: Any) -> Any:
        scene.connect("spark_default", conn_type="spark_connect", host="sc://spark.example.com", port=15002, password=TOKEN)
        job = scene.folder / "job.py"
        job.write_text(JOB.format(seen=str(scene.folder / "seen.json"), report=json.dumps(report or REPORT), code=code))
        return scene.merge(**{"application": str(job), "spark_binary": None, **arguments})

    return make


@pytest.fixture
def seen(scene: Any) -> Any:
    return lambda: json.loads((scene.folder / "seen.json").read_text())


def test_the_job_is_a_python_process_that_gets_the_server_by_a_file_of_its_own(merge: Any, seen: Any, context: Any, scene: Any) -> None:
    merge(tables="a.*", conf={"spark.sql.x": 1}, env_vars={"MINE": "1"}).execute(context)
    found = seen()
    *given, storage = found["arguments"][1:]
    assert given[:-4] == ["--archive", str(scene.archive), "--lake", str(scene.lake), "--table", "a.*", "--report"]
    assert (given[-3], given[-1]) == ("--run-name", "--storage")
    assert Path(storage).parent == Path(given[-4]).parent
    assert found["mode"] == 0o600
    url = "sc://spark.example.com:15002/;token=s3cr3t%2Ft%3Dken"
    assert found["storage"] == {"spark": {"spark.sql.x": "1"}, "file_systems": {}, "remote": url}
    assert (found["environment"]["MINE"], found["environment"][SUBMITTER_VARIABLE]) == ("1", str(os.getpid()))


def test_the_token_reaches_neither_command_line_nor_environment_nor_log_nor_rendered_fields(
    merge: Any, seen: Any, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = merge()
    outcome = operator.execute(context)
    found = seen()
    # Connections are variables of this test's Airflow, and reach every child.
    environment = {name: value for name, value in found["environment"].items() if not name.startswith("AIRFLOW_CONN_")}
    rendered = [getattr(operator, field) for field in operator.template_fields]
    captured = capsys.readouterr()
    assert "s3cr3t" not in str([found["arguments"], environment, rendered, outcome, captured.out, captured.err])


def test_no_other_spark_of_the_environment_reaches_the_job(merge: Any, seen: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED"):
        monkeypatch.setenv(name, "1")
    merge().execute(context)
    assert not {"SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "SPARK_CONNECT_MODE_ENABLED"} & set(seen()["environment"])


def test_stores_credentials_travel_in_the_same_file(merge: Any, seen: Any, context: Any, scene: Any) -> None:
    operator = merge()
    scene.connect("aws_archive", conn_type="aws", login="AKIAKEY", password="s3cr3t-key")
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="s3://aws_archive@bucket/topics")
    operator.execute(context)
    found = seen()
    assert "s3cr3t-key" in found["storage"]["spark"].values()
    assert "s3cr3t" not in str(found["arguments"])


def test_a_key_files_text_stays_here_and_is_refused(merge: Any, context: Any, scene: Any) -> None:
    operator = merge()
    scene.connect("gcp", conn_type="google_cloud_platform", extra={"keyfile_dict": json.dumps({"type": "service_account"})})
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="gs://gcp@bucket/topics")
    with pytest.raises(AirflowFailException, match=r"server \(sc://spark.example.com:15002\) would not find that file"):
        operator.execute(context)


def test_a_hadoop_user_is_the_servers_own(merge: Any, context: Any, scene: Any) -> None:
    operator = merge()
    scene.connect("hadoop", conn_type="hdfs", login="etl")
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="hdfs://name:8020/topics", extra={"storage_conn_id": "hadoop"})
    with pytest.raises(AirflowFailException, match="sets HADOOP_USER_NAME for Spark"):
        operator.execute(context)


def test_a_server_that_does_not_answer_is_tried_again(merge: Any, context: Any) -> None:
    with pytest.raises(AirflowException, match=r"SparkUnreachableError.*Next step: Start it") as raised:
        merge({**REPORT, "ok": False, "error": ERROR}, code=1).execute(context)
    assert not isinstance(raised.value, AirflowFailException)


def test_what_stays_wrong_is_not_tried_again(merge: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="ConfigurationError"):
        merge({**REPORT, "ok": False, "error": {**ERROR, "type": "ConfigurationError", "transient": False}}, code=1).execute(context)


def test_a_job_that_leaves_no_report_fails_with_its_last_words(merge: Any, context: Any, scene: Any) -> None:
    operator = merge()
    Path(operator.application).write_text("import no_such_module")
    with pytest.raises(AirflowException, match=r"exit code 1 and left no report(.|\n)*no_such_module"):
        operator.execute(context)


def test_a_job_that_fails_after_its_work_is_tried_again(merge: Any, context: Any) -> None:
    with pytest.raises(AirflowException, match="a retry finds nothing left to do"):
        merge(code=3).execute(context)


def test_what_a_server_has_from_its_start_on_is_named_and_the_task_is_not_deferred(
    merge: Any, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    merge(packages="a:b:1", executor_memory="2g", deferrable=True).execute(context)
    outcome = capsys.readouterr().out
    assert "without effect are ['packages', 'executor_memory']" in outcome
    assert "it is not deferred" in outcome


@pytest.mark.parametrize(("fields", "seen"), [({}, "it has no host"), ({"host": "sc://h/path"}, "its host 'sc://h/path' cannot be read")])
def test_a_connection_that_leads_nowhere_is_refused(scene: Any, context: Any, fields: dict[str, Any], seen: str) -> None:
    operator = scene.merge()
    scene.connect("spark_default", conn_type="spark_connect", **fields)
    with pytest.raises(AirflowFailException, match=seen):
        operator.execute(context)


# How it ends early.


def _kill_while_it_runs(operator: Any, context: Any, pids: Path) -> psutil.Process:
    jobs: list[psutil.Process] = []
    kill_when(
        lambda: pids.exists() and bool(pids.read_text().strip()),
        operator,
        context,
        before=lambda: jobs.append(psutil.Process(int(pids.read_text()))),
    )
    (job,) = jobs
    return job


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_kill_lets_the_job_say_farewell_and_does_not_wait_for_long(
    merge: Any, context: Any, scene: Any, monkeypatch: pytest.MonkeyPatch, *, is_stubborn: bool
) -> None:
    monkeypatch.setattr("airflow_cdc.operators.connect_client._SECONDS_TO_END", 0.5)
    pids, farewell = scene.folder / "pids", scene.folder / "farewell"
    waits = "time.sleep(300)" if is_stubborn else f"open({str(farewell)!r}, 'w').close()"
    operator = merge()
    Path(operator.application).write_text(
        "import os, time\n"
        "from airflow_cdc.jobs.die_with_parent import end_on_sigterm\n"
        f"end_on_sigterm(lambda: {waits})\n"
        f"open({str(pids)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(300)\n"
    )
    job = _kill_while_it_runs(operator, context, pids)
    assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE
    assert farewell.exists() is not is_stubborn


def test_the_job_says_farewell_when_its_task_was_killed(scene: Any) -> None:
    # By SIGKILL no on_kill runs, and what the job had asked of the server would go on.
    child = (
        "import sys, time\nfrom airflow_cdc.jobs.die_with_parent import die_with_parent\n"
        "die_with_parent(0.05, farewell=lambda: open(sys.argv[1], 'w').close())\nprint('watching', flush=True)\ntime.sleep(300)\n"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        f"environment = {{**os.environ, {SUBMITTER_VARIABLE!r}: str(os.getpid())}}\n"
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]], env=environment)\ntime.sleep(300)\n"
    )
    farewell = scene.folder / "farewell"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    task = psutil.Popen([sys.executable, "-c", parent, child, str(farewell)], env=environment, stdout=-1, text=True)
    assert task.stdout.readline() == "watching\n"
    (job,) = task.children()
    task.kill()
    task.wait()
    task.stdout.close()
    until = time.monotonic() + 10
    while not farewell.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert farewell.exists()
    psutil.wait_procs([job], timeout=5)
    assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE
