"""However a merge ends early, no process of it lives on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from tests.unit.airflow.ended_early import kill_when, wait_for


def _lives(process: psutil.Process) -> bool:
    # In a container without an init process, nobody fetches the exit code of an orphan.
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def test_a_kill_leaves_no_process_behind(scene: Any, context: Any) -> None:
    # spark-submit's JVM starts Python, which starts workers; Spark's hook kills the JVM alone.
    pids = scene.folder / "pids"
    scene.submit_by(f"#!/bin/sh\necho $$ >> {pids}\nsh -c 'sleep 300 & echo $! >> {pids}; wait' &\necho $! >> {pids}\nwait\n")
    operator = scene.merge()
    processes: list[psutil.Process] = []

    def look() -> None:
        processes.extend(psutil.Process(int(pid)) for pid in pids.read_text().split())
        assert all(map(_lives, processes))

    kill_when(lambda: pids.exists() and len(pids.read_text().split()) == 3, operator, context, before=look)
    assert wait_for(lambda: not any(map(_lives, processes)))


def test_a_kill_before_anything_was_submitted_is_no_error(scene: Any) -> None:
    scene.merge().on_kill()


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
    assert wait_for(lambda: not _lives(job))


def test_the_job_ends_with_the_task_that_submitted_it(scene: Any) -> None:
    # A worker killed by SIGKILL runs no on_kill, and its JVM would go on.
    task = subprocess.Popen(["sleep", "300"])
    parent, job = _start_job(scene, _CHILD, **{SUBMITTER_VARIABLE: str(task.pid)})
    task.kill()
    task.wait()
    ended = wait_for(lambda: not _lives(job))
    _end(parent)
    assert ended


def test_a_job_started_by_hand_outlives_its_shell(scene: Any) -> None:
    parent, job = _start_job(scene, "import os\nos.environ.pop('PYSPARK_GATEWAY_PORT')\n" + _CHILD)
    _end(parent)
    time.sleep(0.5)
    lived = _lives(job)
    job.kill()
    assert lived
