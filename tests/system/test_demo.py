"""``make demo``'s own command: a real Airflow runs the shipped Dag, the Spark provider submits the job, Delta holds the rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.support.tables import read_quarantine, read_rows

QUEUE = "pg.public.queue"


def test_the_demo_ends_with_every_table_as_its_source(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    command = [sys.executable, "-m", "airflow_cdc", "demo", "--folder", str(folder)]
    demo = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr

    flows = {flow.flow: flow for flow in summarize_flows(spark, str(folder / "lake"))}
    assert {flow.microbatches for flow in flows.values()} == {2}
    assert {flow.pending_files for flow in flows.values()} == {0}
    # Five tickets moved up by one place in one statement, and none was lost.
    queue = read_rows(spark, str(folder / "lake"), QUEUE).rows
    assert [row["place"] for row in queue] == [2, 3, 4, 5, 6]
    assert len({row["ticket"] for row in queue}) == 5
    quarantined = read_quarantine(spark, str(folder / "lake"))
    assert [(record["flow"], record["reason"]) for record in quarantined] == [("pg.public.products", "malformed_json")]
    # The log of Spark and Airflow lies in files that the output names, not in the output.
    assert " WARN " not in demo.stdout + demo.stderr
    assert list(folder.glob("*.log"))
