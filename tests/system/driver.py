"""One driver of several over a lake: applies an archive whenever it is asked to, and says what came of it.

Started as a process of its own; a line of JSON on stdin asks, a line on stdout answers.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from airflow_cdc.model.state.lease import Leases
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.session import start_session
from airflow_cdc.pipeline.spark.storage import use_options
from tests.support.leases import hold_at_once


def main() -> None:
    given = json.loads(sys.stdin.readline())
    use_options(given["file_systems"])
    if not given["heeds_leases"]:
        Leases.hold = hold_at_once  # type: ignore[method-assign]
    spark = start_session("driver", master="local[1]", options=given["spark"])
    spark.sparkContext.setLogLevel("ERROR")
    _answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        report = apply_archive(ArchiveRun(spark, given["archive"], given["lake"], wait_seconds=asked["wait_seconds"]))
        _answer(report.to_json())
    spark.stop()


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(document)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
