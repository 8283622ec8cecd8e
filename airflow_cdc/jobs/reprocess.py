"""spark-submit entry point: reprocess a range of the events that a lake's flows have applied, and write the report.

    reprocess.py --archive URI --lake URI [--flows FILE] [--table GLOB]... [--from-position P] [--to-position P] [--dry-run]
                 [--storage SETTINGS] --report URI

``P`` is a position or a time (:mod:`airflow_cdc.model.position.as_of`). Exit code 0 when all flows succeeded, 1 when any failed, 2 on
usage. The report (JSON of :class:`airflow_cdc.model.report.reprocessing.ReprocessReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.job_parser import ARCHIVE, DRY_RUN, FLOWS, job_parser
from airflow_cdc.jobs.run_job import log_line, run_job
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.report.reprocessing import ReprocessReport
from airflow_cdc.pipeline.repair.reprocess_flows import FlowsAgain, reprocess_flows


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = job_parser("reprocess", ARCHIVE, FLOWS, DRY_RUN)
    parser.add_argument("--from-position")
    parser.add_argument("--to-position")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> ReprocessReport:
        first, last = (parse_as_of(text) if text else None for text in (given.from_position, given.to_position))
        flows = read_flows(given.flows)
        order = FlowsAgain(spark, given.archive, given.lake, tuple(given.table), first, last, given.dry_run, flows, log_line, given.wait)
        return reprocess_flows(order)

    return run_job("reprocess", given, work, lambda error: ReprocessReport(given.archive, given.lake, given.dry_run, error=error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
