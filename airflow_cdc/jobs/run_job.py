"""run_job: what all submitted jobs share: a session, the report in every case, and the exit code."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from airflow_cdc.jobs.die_with_parent import die_with_parent, end_on_sigterm
from airflow_cdc.jobs.write_report import write_report
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import CdcError, storage_refusal
from airflow_cdc.model.state.lease import name_this_run
from airflow_cdc.model.state_kind import JOB_REPORT
from airflow_cdc.model.storage import JobStorage
from airflow_cdc.pipeline.run.explain_failure import missing_connector
from airflow_cdc.pipeline.spark.connect import release_sessions
from airflow_cdc.pipeline.spark.session import start_late, start_session
from airflow_cdc.pipeline.spark.storage import use_options


class _Report(Protocol):
    @property
    def ok(self) -> bool: ...

    def to_json(self) -> dict[str, Any]: ...


def _storage(given: str | None) -> JobStorage:
    if not given:
        return JobStorage()
    if given.startswith("{"):
        return JobStorage.from_json(json.loads(given))
    return JobStorage.from_json(read_once(Path(given)))


def read_once(path: Path) -> Any:
    """Return the document of a file with credentials, and remove it: nobody needs it again, and a killed task would leave it behind."""
    text = path.read_text(encoding="utf-8")
    path.unlink()
    return json.loads(text)


def _watch(storage: JobStorage) -> None:
    """End with the task. A client's queries at a Spark Connect server would go on without it, so they are ended there first."""
    if storage.remote:
        end_on_sigterm(release_sessions)
    die_with_parent(farewell=release_sessions)


def _cause(problem: Exception) -> dict[str, Any]:
    if refused := storage_refusal(problem):
        return refused.to_json()
    if missing := missing_connector(problem):
        return missing.to_json()
    return {"type": type(problem).__name__, "message": str(problem)[:2000], "next_step": "See the job's log.", "transient": True}


def log_line(line: str) -> None:
    """Write a progress line to stdout."""
    # A line may contain a record's or a file's name, which may be anything.
    sys.stdout.write(f"[airflow-cdc] {printable(line)}\n")
    sys.stdout.flush()


def run_job(
    job: str,
    given: argparse.Namespace,
    work: Callable[[SparkSession], _Report],
    failed: Callable[[dict[str, Any]], _Report],
    *,
    may_need_no_spark: bool = False,
) -> int:
    """Do a job's work, write its report and return its exit code: 0 on success, else 1.

    :param given: the arguments of :func:`~airflow_cdc.jobs.job_parser.job_parser`: ``report``, the URI where the report is always written;
        ``storage``, settings of the stores, as JSON (:class:`airflow_cdc.model.storage.JobStorage`) or the path of a file with it, which is
        removed after reading.
    :param failed: makes the report for an error that stopped the work.
    :param may_need_no_spark: whether Spark starts only when the work first uses it.
    """
    try:
        storage = _storage(given.storage)
        _watch(storage)
        name_this_run(given.run_name)
        use_options(storage.file_systems)
        start = start_late if may_need_no_spark else start_session
        report = work(start(f"airflow-cdc {job}", options=storage.spark, remote=storage.remote))
    except CdcError as error:
        report = failed(error.to_json())
    except Exception as problem:  # noqa: BLE001 - any error must reach the operator
        # The submitting task sees only the end of the log: the report must carry the cause.
        traceback.print_exc()
        report = failed(_cause(problem))
    finally:
        release_sessions()
    write_report(given.report, JOB_REPORT.framed(report.to_json()))
    return 0 if report.ok else 1
