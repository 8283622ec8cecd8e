"""run_job: what all submitted jobs share: a session, the report in every case, and the exit code."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import fsspec
from pyspark.sql import SparkSession

from airflow_cdc.jobs.die_with_parent import die_with_parent
from airflow_cdc.model.errors import CdcError
from airflow_cdc.pipeline.session import start_session


class _Report(Protocol):
    @property
    def ok(self) -> bool: ...

    def to_json(self) -> dict[str, Any]: ...


def job_parser(job: str) -> argparse.ArgumentParser:
    """Return the parser of the arguments that all jobs have."""
    parser = argparse.ArgumentParser(prog=f"{job}.py")
    parser.add_argument("--lake", required=True)
    parser.add_argument("--table", action="append", default=[])
    parser.add_argument("--report", required=True)
    return parser


def say(line: str) -> None:
    """Tell progress on stdout."""
    sys.stdout.write(f"[airflow-cdc] {line}\n")
    sys.stdout.flush()


def run_job(job: str, place: str, work: Callable[[SparkSession], _Report], failed: Callable[[dict[str, Any]], _Report]) -> int:
    """Do a job's work, write its report and return its exit code: 0 when all went well, else 1.

    :param place: URI at which the report is written, in every case.
    :param failed: makes the report of an error that stopped the work.
    """
    die_with_parent()
    try:
        report = work(start_session(f"airflow-cdc {job}"))
    except CdcError as error:
        report = failed(error.to_json())
    except Exception as error:  # noqa: BLE001 - whatever it is, the operator must be told
        # The submitting task sees only the end of the log: the cause must travel in the report.
        traceback.print_exc()
        cause = {"type": type(error).__name__, "message": str(error)[:2000], "next_step": "See the job's log.", "transient": True}
        report = failed(cause)
    with fsspec.open(place, "w") as file:
        json.dump(report.to_json(), file)
    return 0 if report.ok else 1
