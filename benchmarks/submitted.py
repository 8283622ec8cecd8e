"""Measure a process from start to exit, with all that it starts; and the process that textbooks would have."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_cdc import runtime
from benchmarks.measure import Taken

MASTER = "local[2]"
_ROOT = Path(__file__).parents[1]


def run_process(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Taken:
    """Run a command and return what it took; ``peak`` is that of its largest process.

    ``measure`` asks the processes that live, and these have ended: the kernel keeps the sums of the children that were waited for.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{Path(command[0]).name} ended with {process.returncode}; its log is {log}")
    return Taken(cpu=usage.ru_utime + usage.ru_stime, wall=time.monotonic() - started, peak=usage.ru_maxrss * 1024)


def run_textbook(file: Path, table: Path, log: Path) -> Taken:
    """Merge one file by the textbook's job under a spark-submit of its own, with Spark's and Delta's defaults."""
    environment = {**runtime.spark_environment(MASTER), "PYTHONPATH": str(_ROOT)}
    options = [part for name, value in runtime.spark_options().items() for part in ("--conf", f"{name}={value}")]
    submit = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit")
    job = str(_ROOT / "benchmarks" / "textbook_job.py")
    return run_process([submit, "--master", MASTER, *options, job, str(file.absolute()), str(table.absolute())], environment, log)
