"""SIGKILL at random moments: what is finished afterwards is what an undisturbed run gives."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.engine import MIXED, Engine
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
ENGINES = {Engine.SPARK: {"spark"}, Engine.NATIVE: {"native", MIXED}}
"""Of microbatches. Two of the five have late events, which Spark merges."""
# Of an undisturbed run: from where it begins to write, to its last writes.
FIRST, LAST = 0.3, 0.98


def start(lake: Path, folder: Path, engine: Engine) -> subprocess.Popen[bytes]:
    """Start the command, in a process group of its own."""
    flows = folder / "flows.yaml"
    flows.write_text(FLOWS)
    command = [sys.executable, "-m", "airflow_cdc", "apply", "--archive", str(ARCHIVE), "--lake", str(lake), "--flows", str(flows)]
    command += ["--engine", engine.value, *(word for table in TABLES for word in ("--table", table))]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def kill_some(kills: int, seconds: float, lake: Path, folder: Path, engine: Engine) -> None:
    """Start the command and kill it with everything it started, time and again.

    :param seconds: what an undisturbed run takes.
    """
    moments = random.Random(7)
    killed = 0
    for _ in range(kills):
        process = start(lake, folder, engine)
        try:
            process.wait(timeout=moments.uniform(FIRST, LAST) * seconds)
        except subprocess.TimeoutExpired:
            killed += 1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    # A run that goes on behind others has less to do, and may end before its moment.
    assert killed


def check(kills: int, engine: Engine, apply: Apply, spark: SparkSession, folder: Path) -> None:
    began = time.monotonic()
    assert start(folder / "undisturbed", folder, engine).wait() == 0
    kill_some(kills, time.monotonic() - began, folder / "killed", folder, engine)
    report = apply(ARCHIVE, folder / "killed", tables=TABLES)
    assert {batch.engine for flow in report.flows for batch in flow.batches} <= ENGINES[engine]
    found = compare_lakes(spark, str(folder / "killed"), str(folder / "undisturbed"))
    assert [table.flow for table in found.tables if table.equal] == ["pgpk.public.acct", "pgpk.public.pair"]
    assert [flow.pending_files for flow in summarize_flows(spark, str(folder / "killed"))] == [0, 0]


@pytest.mark.deep
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_two_kills_lose_and_double_nothing(engine: Engine, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(2, engine, apply, spark, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_twenty_kills_lose_and_double_nothing(engine: Engine, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(20, engine, apply, spark, tmp_path)
