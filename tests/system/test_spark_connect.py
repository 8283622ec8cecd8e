"""The same pipeline over Spark Connect: a client that has no JVM of its own at hand, only DataFrames and SQL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc import runtime
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES

TABLES = ("*.ring",)

# Classic and Connect sessions do not live in one process.
CLIENT = """
import json, os, sys
from pyspark.sql import SparkSession
from airflow_cdc import runtime
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.session import SESSION_OPTIONS

builder = SparkSession.builder.remote("local[2]")
for key, value in {**runtime.spark_options(), **SESSION_OPTIONS}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
reports = [apply_archive(ArchiveRun(spark, sys.argv[1], sys.argv[2], tables=tuple(sys.argv[3:]))) for _ in range(2)]
print(json.dumps({"client": type(spark).__module__, "ok": [report.ok for report in reports],
                  "status": [[flow.status.value for flow in report.flows] for report in reports]}), flush=True)
# At its end every cloned session would ask the server, which stops first, to forget its models, and wait for minutes.
os._exit(0)
"""


@pytest.mark.deep
def test_an_archive_applied_through_connect_gives_the_classic_session_s_tables(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = CAPTURES / "pg_pk" / "archive" / "schema"
    environment = {**os.environ, **runtime.spark_environment("local[2]"), "SPARK_LOCAL_DIRS": str(tmp_path)}
    # A server of its own, not the one that the classic session of this process started.
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYSPARK_GATEWAY", "SPARK_CONNECT"))}
    command = [sys.executable, "-c", CLIENT, str(archive), str(tmp_path / "connect"), *TABLES]

    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        client = subprocess.Popen(command, env=environment, stdout=out, stderr=err, start_new_session=True)
        try:
            code = client.wait(timeout=300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, signal.SIGKILL)

    assert code == 0, (tmp_path / "err").read_text()[-3000:]
    outcome = json.loads((tmp_path / "out").read_text().strip().splitlines()[-1])
    assert outcome["client"].startswith("pyspark.sql.connect")
    assert outcome["ok"] == [True, True]
    assert outcome["status"] == [["applied"], ["up_to_date"]]
    apply(archive, tmp_path / "classic", tables=TABLES)
    found = compare_lakes(spark, str(tmp_path / "connect"), str(tmp_path / "classic"))
    assert [table.flow for table in found.tables if table.equal] == ["pgpk.public.ring"]
