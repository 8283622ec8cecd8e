"""The merge task over a server that ``airflow-cdc serve`` runs: the tables of a run of its own, also when it is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[2]
ARCHIVE, TABLES = CAPTURES / "pg_pk" / "s3", ("*.acct", "*.pair", "*.ring")

# A task as a worker runs it, without Airflow's database; SIGTERM reaches on_kill.
TASK = """
import json, os, signal, sys
from types import SimpleNamespace
from airflow.exceptions import AirflowSkipException
from airflow_cdc.operators.merge import CdcMergeOperator
pushed = {}
names = {"dag_id": "cdc", "task_id": "merge", "run_id": "manual__1"}
instance = SimpleNamespace(**names, map_index=-1, try_number=1, stats_tags={}, xcom_push=pushed.__setitem__)
task = CdcMergeOperator(task_id="merge", tables=json.loads(sys.argv[1]))
signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
try:
    outcome = task.execute({"ti": instance, "params": {}})
except AirflowSkipException:
    # Nothing to do; the result is kept all the same.
    (outcome,) = pushed.values()
print(json.dumps({name: flow["status"] for name, flow in outcome["flows"].items()}), flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server, and the token that it asks for."""
    folder = tmp_path_factory.mktemp("serve")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_DIRS": str(folder)}
    command = [sys.executable, "-m", "airflow_cdc", "serve", "--port", "0", "--master", "local[2]"]
    with (folder / "log").open("w") as log:
        serving = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert serving.stdout
        line = serving.stdout.readline()
        assert line.startswith("Spark Connect is ready, Ctrl-C ends it: sc://"), (folder / "log").read_text()
        yield line.split()[-1].removeprefix("sc://")
        serving.terminate()
        assert serving.wait(timeout=30) == 0
        serving.stdout.close()
    finally:
        serving.kill()


def _start(lake: Path, server: str, folder: Path, *, archive: Path = ARCHIVE) -> subprocess.Popen[str]:
    host, port, token = re.fullmatch(r"(.+):(\d+)/;token=(.+)", server).groups()  # type: ignore[union-attr]
    connections = {
        "CDC_ARCHIVE_DEFAULT": {"conn_type": "cdc_archive", "host": str(archive)},
        "CDC_LAKE_DEFAULT": {"conn_type": "cdc_lake", "host": str(lake)},
        "SPARK_DEFAULT": {"conn_type": "spark_connect", "host": host, "port": int(port), "password": token},
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_GATEWAY", "AIRFLOW"))}
    # Neither Java nor spark-submit is looked for.
    environment |= {"PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(folder / "airflow"), "JAVA_HOME": "/nowhere"}
    environment |= {f"AIRFLOW_CONN_{name}": json.dumps(fields) for name, fields in connections.items()}
    command = [sys.executable, "-c", TASK, json.dumps(TABLES)]
    log = (folder / f"task-{time.monotonic_ns()}.log").open("w")
    with log:
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)


def _ended(task: subprocess.Popen[str], folder: Path) -> dict[str, str]:
    out, _ = task.communicate(timeout=300)
    logs = sorted(folder.glob("task-*.log"))
    assert task.returncode == 0, out[-3000:] + logs[-1].read_text()[-3000:]
    outcome: dict[str, str] = json.loads(out.strip().splitlines()[-1])
    return outcome


def _check_equal(spark: SparkSession, apply: Apply, warm: Path, folder: Path) -> None:
    apply(ARCHIVE, folder / "classic", tables=TABLES)
    found = compare_lakes(spark, str(warm), str(folder / "classic"))
    assert sorted(table.flow.rsplit(".", 1)[1] for table in found.tables if table.equal) == ["acct", "pair", "ring"]


def test_tables_merged_side_by_side_over_a_server_are_those_of_a_run_of_its_own(
    apply: Apply, spark: SparkSession, server: str, tmp_path: Path
) -> None:
    first = _ended(_start(tmp_path / "warm", server, tmp_path), tmp_path)
    assert sorted(first.values()) == ["applied"] * 3
    assert sorted(_ended(_start(tmp_path / "warm", server, tmp_path), tmp_path).values()) == ["up_to_date"] * 3
    _check_equal(spark, apply, tmp_path / "warm", tmp_path)


@pytest.mark.parametrize("parameters", ["", "/;token=guessed"])
def test_a_client_without_the_token_is_refused(server: str, tmp_path: Path, parameters: str) -> None:
    url = f"sc://{server.partition('/')[0]}{parameters}"
    command = [sys.executable, "-m", "airflow_cdc", "apply", "--archive", str(ARCHIVE), "--lake", str(tmp_path), "--connect", url]
    done = subprocess.run([*command, "--engine", "spark"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "Give the connection the token that the server asks for" in " ".join(done.stderr.split())


def test_tasks_that_are_killed_on_the_way_lose_and_double_nothing(apply: Apply, spark: SparkSession, server: str, tmp_path: Path) -> None:
    moments = random.Random(7)
    for number in range(4):
        task = _start(tmp_path / "warm", server, tmp_path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            task.wait(timeout=moments.uniform(4, 12))
        # By Airflow, which asks first; and as a machine that is out of memory does it.
        task.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL)
        task.communicate(timeout=60)
    _ended(_start(tmp_path / "warm", server, tmp_path), tmp_path)
    _check_equal(spark, apply, tmp_path / "warm", tmp_path)


def test_a_server_that_goes_away_is_reported_and_the_next_run_goes_on(tmp_path: Path) -> None:
    task = _start(tmp_path / "warm", "127.0.0.1:1/;token=any", tmp_path)
    out, _ = task.communicate(timeout=120)
    assert task.returncode == 1
    log = max(tmp_path.glob("task-*.log")).read_text()
    assert "SparkUnreachableError: The Spark Connect server sc://127.0.0.1:1 did not answer" in out + log
