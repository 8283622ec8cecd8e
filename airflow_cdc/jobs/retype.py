"""spark-submit entry point: rebuild flows' tables with the types that are known now and write the report.

    retype.py --archive URI --lake URI [--flows FILE] [--table GLOB]... [--dry-run] [--storage SETTINGS] --report URI

Exit code 0 when all flows succeeded, 1 when any failed, 2 on usage. The report (JSON of
:class:`airflow_cdc.model.report.retyping.RetypeReport`) is written in every case.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.jobs.job_parser import ARCHIVE, DRY_RUN, FLOWS, job_parser
from airflow_cdc.jobs.run_job import log_line, run_job
from airflow_cdc.model.report.retyping import RetypeReport
from airflow_cdc.pipeline.repair.retype_flows import FlowsRetyping, retype_flows


def _arguments(argv: list[str]) -> argparse.Namespace:
    return job_parser("retype", ARCHIVE, FLOWS, DRY_RUN).parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the job and return its exit code."""
    given = _arguments(argv)

    def work(spark: SparkSession) -> RetypeReport:
        flows = read_flows(given.flows)
        order = FlowsRetyping(
            spark, given.archive, given.lake, tuple(given.table), given.dry_run, flows, progress=log_line, wait_seconds=given.wait
        )
        return retype_flows(order)

    return run_job("retype", given, work, lambda error: RetypeReport(given.archive, given.lake, given.dry_run, error=error))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
