"""SIGKILL at random moments: what is finished afterwards is what an undisturbed run gives."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES

ARCHIVE = CAPTURES / "pg_pk" / "s3"
TABLES = ("*.acct", "*.pair")
FLOWS = """
flows:
- {topic: pgpk.public.acct, max_microbatch_bytes: 150000}
- {topic: pgpk.public.pair, max_microbatch_bytes: 50000}
"""
# From the start of the survey to well after the last merge of an undisturbed run.
FIRST_SECOND, LAST_SECOND = 4.0, 20.0


def kill_some(kills: int, seed: int, lake: Path, folder: Path) -> None:
    """Start the command and kill it with everything it started, time and again."""
    flows = folder / "flows.yaml"
    flows.write_text(FLOWS)
    moments = random.Random(seed)
    command = [sys.executable, "-m", "airflow_cdc", "apply", "--archive", str(ARCHIVE), "--lake", str(lake), "--flows", str(flows)]
    command += [word for table in TABLES for word in ("--table", table)]
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            process.wait(timeout=moments.uniform(FIRST_SECOND, LAST_SECOND))
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check(kills: int, apply: Apply, spark: SparkSession, folder: Path) -> None:
    kill_some(kills, 7, folder / "killed", folder)
    apply(ARCHIVE, folder / "killed", tables=TABLES)
    apply(ARCHIVE, folder / "undisturbed", tables=TABLES)
    found = compare_lakes(spark, str(folder / "killed"), str(folder / "undisturbed"))
    assert [table.flow for table in found.tables if table.equal] == ["pgpk.public.acct", "pgpk.public.pair"]
    assert [flow.pending_files for flow in summarize_flows(spark, str(folder / "killed"))] == [0, 0]


@pytest.mark.deep
def test_two_kills_lose_and_double_nothing(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(2, apply, spark, tmp_path)


@pytest.mark.deep
def test_twenty_kills_lose_and_double_nothing(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(20, apply, spark, tmp_path)
