"""spark-submit entry point: apply the pending microbatches of an archive and write the report.

    apply.py --archive URI --lake URI [--flows FILE] [--table GLOB]... [--check-transactions] [--consistent]
             [--engine E] [--only-survey] [--since TIME] [--until TIME]
             [--layout L] [--format F] [--storage SETTINGS] [--run-name NAME] [--wait SECONDS] --report URI

``--storage`` holds the settings by which archive and lake are reached, as JSON (:class:`airflow_cdc.model.storage.JobStorage`) or the path
of a file that holds it; the file is removed when it is read.

Exit code 0 when all flows succeeded, 1 when any failed, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.report.apply_report.ApplyReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.job_parser import ARCHIVE, FLOWS, SHAPE, job_parser, shape_of
from airflow_cdc.jobs.run_job import log_line, run_job
from airflow_cdc.model.archive.interval import parse_interval
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = job_parser("apply", ARCHIVE, FLOWS, SHAPE)
    parser.add_argument("--check-transactions", action="store_true")
    parser.add_argument("--consistent", action="store_true")
    parser.add_argument("--since")
    parser.add_argument("--until")
    parser.add_argument("--engine", choices=[each.value for each in Engine])
    parser.add_argument("--only-survey", action="store_true")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> ApplyReport:
        run = ArchiveRun(
            spark,
            given.archive,
            given.lake,
            read_flows(given.flows),
            tuple(given.table),
            log_line,
            check_transactions=given.check_transactions,
            consistent=given.consistent,
            interval=parse_interval(given.since, given.until),
            wait_seconds=given.wait,
            only_survey=given.only_survey,
            engine=Engine(given.engine) if given.engine else None,
            expected=shape_of(given),
        )
        return apply_archive(run)

    return run_job("apply", given, work, lambda error: ApplyReport(given.archive, given.lake, error=error), may_need_no_spark=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
